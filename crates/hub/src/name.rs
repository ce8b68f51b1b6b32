//! Names of models on the hub.

use std::fmt;

use storage::Name;

use crate::Error;

/// What a name begins with.
const SCHEME: &str = "hf:";
/// The longest that an owner or a name of a repository may be.
const LONGEST: usize = 96;

/// The name of a repository: `owner/name`, or `name` alone for the oldest ones.
///
/// Source of the rules: huggingface_hub 2.4.0, `utils/_validators.py`, `validate_repo_id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repo(String);

impl Repo {
    /// The repository called `text`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Repo, String> {
        let parts: Vec<&str> = text.split('/').collect();
        if parts.len() > 2 {
            return Err(format!("{} names with `/` between them", parts.len()));
        }
        for part in &parts {
            let is_edge = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let strange = part.chars().find(|c| !is_edge(*c) && !matches!(c, '-' | '.'));
            match strange {
                _ if part.is_empty() => return Err("an empty one".to_owned()),
                Some(strange) => return Err(format!("`{}`", strange.escape_debug())),
                None if !part.starts_with(is_edge) || !part.ends_with(is_edge) => {
                    return Err(format!("`{part}`, which begins or ends with `-` or `.`"));
                }
                None if part.len() > LONGEST => return Err(format!("one of {} characters", part.len())),
                None => {}
            }
        }
        let two = ["--", ".."].into_iter().find(|two| text.contains(two));
        match two {
            Some(two) => Err(format!("`{two}`")),
            None if text.ends_with(".git") => Err("`.git` at its end".to_owned()),
            None => Ok(Repo(text.to_owned())),
        }
    }

    /// The repository of a folder of the cache: `models--owner--name`.
    pub(crate) fn of_folder(folder: &str) -> Option<Repo> {
        let id = folder.strip_prefix("models--")?.replacen("--", "/", 1);
        Repo::parse(&id).ok()
    }

    /// Its folder in the cache. Source: huggingface_hub 2.4.0, `file_download.py`, `repo_folder_name`.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.0.replace('/', "--"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A model on the hub: `hf:owner/name[@revision][/file-or-quantisation]`.
///
/// ```
/// # use weighbridge_hub as hub;
/// let name = hub::HubName::parse("hf:owner/name@v1.0/Q4_K_M")?;
/// assert_eq!((name.repo().as_str(), name.revision(), name.part()), ("owner/name", "v1.0", Some("Q4_K_M")));
/// # Ok::<(), hub::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    repo: Repo,
    revision: Option<String>,
    part: Option<String>,
}

impl HubName {
    /// Whether `text` is meant as the name of a model on the hub, right or wrong.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Parses a name.
    ///
    /// In a revision, `%2F` stands for `/`; `refs/pr/N` needs no escape. The repository `gpt2`, without an owner, takes a
    /// file after a revision only: `hf:gpt2@main/model.safetensors`.
    ///
    /// # Errors
    /// [`Error::BadName`], with what was wanted and what was found.
    pub fn parse(text: &str) -> Result<HubName, Error> {
        let bad = |wanted, found: String| Error::BadName { text: text.to_owned(), wanted, found };
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(bad("`hf:` at the beginning", "none".to_owned()));
        };
        if rest.starts_with("//") {
            return Err(bad("`hf:owner/name`", "`//` after `hf:`".to_owned()));
        }
        // The repository ends at its second `/`, or at an `@` before that.
        let end = rest.char_indices().filter(|(_, c)| *c == '/').nth(1).map_or(rest.len(), |(at, _)| at);
        let at = rest.find('@').filter(|at| *at < end);
        let (repo, rest) = rest.split_at(at.unwrap_or(end));
        let repo = Repo::parse(repo).map_err(|found| {
            bad(
                "an owner and a name of ASCII letters, digits, `-`, `_` and `.`, without `--` and `..`",
                found,
            )
        })?;
        let (revision, part) = match rest.strip_prefix('@') {
            None => (None, rest.strip_prefix('/')),
            Some(rest) => {
                let of_pull_request = rest.strip_prefix("refs/pr/").map(|number| {
                    let end = number.find('/').unwrap_or(number.len());
                    rest.split_at(rest.len() - number.len() + end)
                });
                let (revision, part) = match of_pull_request {
                    Some((revision, part)) => (revision, part.strip_prefix('/')),
                    None => {
                        rest.split_once('/').map_or((rest, None), |(revision, part)| (revision, Some(part)))
                    }
                };
                let revision = decoded(revision)
                    .and_then(|revision| checked(&revision))
                    .map_err(|found| bad("a branch, a tag or a commit after `@`", found))?;
                (Some(revision), part)
            }
        };
        if let Some(part) = part {
            Name::parse(part)
                .ok()
                .filter(|name| !name.is_root() && !part.contains(char::is_control))
                .ok_or_else(|| {
                    bad(
                        "a file of the repository or a quantisation after the name",
                        format!("`{}`", part.escape_debug()),
                    )
                })?;
        }
        Ok(HubName { repo, revision, part: part.map(str::to_owned) })
    }

    /// The same at `revision`, a branch, a tag or a commit as it is, without escapes.
    ///
    /// # Errors
    /// [`Error::BadName`] if it is none, or the name has another.
    pub fn at(self, revision: &str) -> Result<HubName, Error> {
        let bad = |wanted, found| Error::BadName { text: self.to_string(), wanted, found };
        match &self.revision {
            Some(own) if own != revision => Err(bad("one revision", format!("`{own}` and `{revision}`"))),
            _ => {
                let revision = checked(revision)
                    .map_err(|found| bad("a branch, a tag or a commit as its revision", found))?;
                Ok(HubName { revision: Some(revision), ..self })
            }
        }
    }

    /// The repository.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// The branch, tag or commit; `main` if none was named.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// The file or the quantisation.
    pub fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }

    /// The same repository at the same revision, with another file or quantisation.
    pub(crate) fn with_part(&self, part: &str) -> HubName {
        HubName { part: Some(part.to_owned()), ..self.clone() }
    }
}

/// As [`HubName::parse`] takes it.
impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.repo)?;
        if let Some(revision) = &self.revision {
            let is_pull_request =
                revision.strip_prefix("refs/pr/").is_some_and(|number| !number.contains('/'));
            let revision = revision.replace('%', "%25");
            write!(f, "@{}", if is_pull_request { revision } else { revision.replace('/', "%2F") })?;
        }
        match &self.part {
            // Without a revision, `hf:gpt2/file` is the repository `file` of the owner `gpt2`.
            Some(part) if self.revision.is_none() && !self.repo.as_str().contains('/') => {
                write!(f, "@main/{part}")
            }
            Some(part) => write!(f, "/{part}"),
            None => Ok(()),
        }
    }
}

/// Replaces `%2F` and its like.
fn decoded(text: &str) -> Result<String, String> {
    let mut out = vec![];
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("`%` without two hexadecimal digits".to_owned());
        };
        out.extend(u8::try_from(high * 16 + low));
    }
    String::from_utf8(out).map_err(|_| "bytes that are not UTF-8".to_owned())
}

/// A revision that is a path of git, and of the cache's `refs`.
fn checked(revision: &str) -> Result<String, String> {
    let is_bad = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    match revision.chars().find(|c| is_bad(*c)) {
        Some(c) => Err(format!("`{}`", c.escape_debug())),
        None if revision.is_empty() => Err("nothing".to_owned()),
        None if revision.len() > 255 => Err(format!("{} bytes", revision.len())),
        None if revision.starts_with('-')
            || revision.contains("..")
            || revision.split('/').any(|part| part.is_empty() || part.starts_with('.')) =>
        {
            Err(format!("`{revision}`"))
        }
        None => Ok(revision.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, Option<String>) {
        let name = HubName::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let again = HubName::parse(&name.to_string()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            (again.repo(), again.revision(), again.part()),
            (name.repo(), name.revision(), name.part())
        );
        (name.repo().to_string(), name.revision().to_owned(), name.part().map(str::to_owned))
    }

    fn found(text: &str) -> String {
        HubName::parse(text).map_or_else(|e| e.to_string(), |name| format!("{name:?}"))
    }

    #[test]
    fn names_have_parts() {
        for (text, repo, revision, part) in [
            ("hf:gpt2", "gpt2", "main", None),
            ("hf:gpt2@main/model.safetensors", "gpt2", "main", Some("model.safetensors")),
            ("hf:owner/name", "owner/name", "main", None),
            ("hf:owner/name.v1-GGUF/Q4_K_M", "owner/name.v1-GGUF", "main", Some("Q4_K_M")),
            ("hf:owner/name/sub/model-Q4_K_M.gguf", "owner/name", "main", Some("sub/model-Q4_K_M.gguf")),
            ("hf:owner/name/a@b.gguf", "owner/name", "main", Some("a@b.gguf")),
            ("hf:owner/name@v1.0", "owner/name", "v1.0", None),
            ("hf:owner/name@v1.0/sub/x.gguf", "owner/name", "v1.0", Some("sub/x.gguf")),
            ("hf:owner/name@refs/pr/12", "owner/name", "refs/pr/12", None),
            ("hf:owner/name@refs/pr/12/Q8_0", "owner/name", "refs/pr/12", Some("Q8_0")),
            ("hf:owner/name@feature%2Fx/Q8_0", "owner/name", "feature/x", Some("Q8_0")),
        ] {
            assert_eq!(
                parts(text),
                (repo.to_owned(), revision.to_owned(), part.map(str::to_owned)),
                "{text}"
            );
        }
        let name = HubName::parse("hf:gpt2").expect("a name");
        assert_eq!(name.with_part("a/b.gguf").to_string(), "hf:gpt2@main/a/b.gguf");
    }

    #[test]
    fn bad_names_say_what_was_wanted_and_found() {
        for (text, says) in [
            ("owner/name", "wanted `hf:` at the beginning, found none"),
            ("hf://owner/name", "wanted `hf:owner/name`, found `//` after `hf:`"),
            ("hf:", "without `--` and `..`, found an empty one"),
            ("hf:owner/", "found an empty one"),
            ("hf:/name", "found an empty one"),
            ("hf:own er/name", "found ` `"),
            ("hf:größe/name", "found `ö`"),
            ("hf:owner/na--me", "found `--`"),
            ("hf:../name", "found `..`, which begins or ends"),
            ("hf:owner/.name", "found `.name`, which begins or ends with `-` or `.`"),
            ("hf:owner/name.git", "found `.git` at its end"),
            ("hf:owner/name@", "wanted a branch, a tag or a commit after `@`, found nothing"),
            ("hf:owner/name@a%2", "found `%` without two hexadecimal digits"),
            ("hf:owner/name@..%2F..%2Fetc", "found `../../etc`"),
            ("hf:owner/name@%2Fetc", "found `/etc`"),
            ("hf:owner/name@a%00", "found `\\0`"),
            ("hf:owner/name/", "wanted a file of the repository or a quantisation after the name, found ``"),
            ("hf:owner/name/../../x", "found `../../x`"),
            ("hf:owner/name/a\\b", "found `a\\\\b`"),
        ] {
            assert!(found(text).contains(says), "{text}: {}", found(text));
        }
        let long = format!("hf:owner/{}", "a".repeat(97));
        assert!(found(&long).contains("found one of 97 characters"), "{}", found(&long));
    }

    #[test]
    fn a_revision_beside_the_name() {
        let name = |text| HubName::parse(text).expect("a name");
        assert_eq!(name("hf:o/n").at("feature/x").expect("a revision").to_string(), "hf:o/n@feature%2Fx");
        assert!(name("hf:o/n@a").at("a").is_ok());
        let error = name("hf:o/n@a").at("b").map_err(|e| e.to_string());
        assert_eq!(
            error,
            Err("`hf:o/n@a` names no model: wanted one revision, found `a` and `b`".to_owned())
        );
        assert!(name("hf:o/n").at("../x").is_err());
    }

    #[test]
    fn folders_of_the_cache() {
        for id in ["gpt2", "owner/name", "a-b/c_d.e"] {
            let repo = Repo::parse(id).expect("a repository");
            assert_eq!(Repo::of_folder(&repo.folder()), Some(repo));
        }
        assert_eq!(Repo::of_folder("datasets--owner--name"), None);
    }
}
