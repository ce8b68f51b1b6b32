//! Where the hub is, who asks, and where the cache is: from the environment, as huggingface_hub reads it.
//!
//! Source: huggingface_hub 2.4.0, `constants.py` and `utils/_auth.py`.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The hub that everybody uses.
const HUB: &str = "https://huggingface.co";

/// A token. Nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// The token in `text`, without space around it; `None` if there is none.
    pub(crate) fn clean(text: &str) -> Option<Token> {
        let text = text.replace(['\r', '\n'], "");
        let text = text.trim();
        (!text.is_empty()).then(|| Token(text.to_owned()))
    }

    /// The value of the header that carries it.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// `text` without the token.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// What the environment says.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: String,
    pub(crate) token: Option<Token>,
    pub(crate) cache: PathBuf,
    pub(crate) offline: bool,
}

impl Settings {
    /// Those of this process.
    pub(crate) fn of_process() -> Result<Settings, Error> {
        // What is not UTF-8 is no address, no token and no path of the Python library.
        Settings::read(&|name| env::var(name).ok())
    }

    /// Those of an environment.
    fn read(var: &dyn Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let path = |text: &str| expanded(text, var);
        let under = |folder: &str, name: &str| Path::new(folder).join(name).to_string_lossy().into_owned();
        let cache_home = var("XDG_CACHE_HOME").unwrap_or_else(|| path("~/.cache"));
        let home = path(&var("HF_HOME").unwrap_or_else(|| under(&cache_home, "huggingface")));
        let old = var("HUGGINGFACE_HUB_CACHE").unwrap_or_else(|| under(&home, "hub"));
        let cache = PathBuf::from(path(&var("HF_HUB_CACHE").unwrap_or(old)));
        let file = PathBuf::from(path(&var("HF_TOKEN_PATH").unwrap_or_else(|| under(&home, "token"))));
        let set = |name| var(name).filter(|text: &String| !text.is_empty());
        let is_on = |text: Option<String>| {
            text.is_some_and(|text| matches!(text.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE"))
        };
        let token = match set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN")) {
            Some(text) => Token::clean(&text),
            None => None,
        };
        let token = match token {
            _ if is_on(var("HF_HUB_DISABLE_IMPLICIT_TOKEN")) => None,
            None => token_in(&file)?,
            token => token,
        };
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned());
        let offline = is_on(set("HF_HUB_OFFLINE").or_else(|| var("TRANSFORMERS_OFFLINE")));
        Ok(Settings { endpoint: endpoint.trim_end_matches('/').to_owned(), token, cache, offline })
    }
}

/// The token that `hf auth login` left.
fn token_in(file: &Path) -> Result<Option<Token>, Error> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Token::clean(&text)),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(e) => Err(Error::io(file, "read the token in")(e)),
    }
}

/// Replaces `~` at the beginning, and `$NAME` and `${NAME}` of variables that are set, as `os.path` of Python does.
fn expanded(text: &str, var: &dyn Fn(&str) -> Option<String>) -> String {
    let text = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home =
                var("HOME").or_else(|| env::home_dir().map(|home| home.to_string_lossy().into_owned()));
            home.map_or_else(|| text.to_owned(), |home| format!("{}{rest}", home.trim_end_matches('/')))
        }
        _ => text.to_owned(),
    };
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let after = from.get(1..).unwrap_or_default();
        let (name, end) = match after.strip_prefix('{') {
            Some(braced) => {
                braced.find('}').map_or(("", 0), |end| (braced.get(..end).unwrap_or_default(), end + 3))
            }
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                (after.get(..end).unwrap_or_default(), end + 1)
            }
        };
        match var(name).filter(|_| !name.is_empty()) {
            Some(value) => {
                out.push_str(&value);
                rest = from.get(end..).unwrap_or_default();
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Settings {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Settings::read(&var).expect("settings")
    }

    #[test]
    fn the_cache_is_where_python_has_it() {
        for (vars, wanted) in [
            (&[("HOME", "/h")][..], "/h/.cache/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/hf")], "/h/hf/hub"),
            (
                &[("HOME", "/h"), ("HF_HOME", "$DATA/${WHO}/$NONE"), ("DATA", "/d"), ("WHO", "me")],
                "/d/me/$NONE/hub",
            ),
            (&[("HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
            (&[("HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/new")], "/new"),
            (&[("HOME", "/h"), ("HF_HUB_CACHE", "~/c"), ("HF_HOME", "/hf")], "/h/c"),
        ] {
            assert_eq!(of(vars).cache, Path::new(wanted), "{vars:?}");
        }
    }

    #[test]
    fn tokens_are_found_and_never_shown() {
        let dir = tempfile::tempdir().expect("a folder");
        let home = dir.path().to_str().expect("text");
        assert_eq!(of(&[("HF_HOME", home)]).token, None);
        std::fs::write(dir.path().join("token"), "hf_of_the_file\n").expect("written");
        let token = |vars: &[(&str, &str)]| of(vars).token.map(|token| token.bearer());
        let bearer = |text: &str| Some(format!("Bearer {text}"));
        assert_eq!(token(&[("HF_HOME", home)]), bearer("hf_of_the_file"));
        assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN", " hf_a\n")]), bearer("hf_a"));
        assert_eq!(token(&[("HF_HOME", home), ("HUGGING_FACE_HUB_TOKEN", "hf_b")]), bearer("hf_b"));
        assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN", "")]), bearer("hf_of_the_file"));
        assert_eq!(token(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        let path = dir.path().join("token");
        assert_eq!(
            token(&[("HF_HOME", "/h"), ("HF_TOKEN_PATH", path.to_str().expect("text"))]),
            bearer("hf_of_the_file")
        );
        assert!(!format!("{:?}", of(&[("HF_TOKEN", "hf_secret")])).contains("secret"));
        assert_eq!(Token::clean("hf_x").map(|t| t.hidden_in("a hf_x b")), Some("a *** b".to_owned()));
    }

    #[test]
    fn offline_and_endpoint() {
        for (value, wanted) in
            [("1", true), ("true", true), ("On", true), ("yes", true), ("0", false), ("", false)]
        {
            assert_eq!(of(&[("HF_HUB_OFFLINE", value)]).offline, wanted, "{value}");
        }
        assert!(of(&[("TRANSFORMERS_OFFLINE", "1")]).offline);
        assert!(!of(&[("TRANSFORMERS_OFFLINE", "1"), ("HF_HUB_OFFLINE", "0")]).offline);
        assert_eq!(of(&[]).endpoint, "https://huggingface.co");
        assert_eq!(
            of(&[("HF_ENDPOINT", "https://mirror.example/hub//")]).endpoint,
            "https://mirror.example/hub"
        );
    }
}
