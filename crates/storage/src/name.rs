//! Names of files within a storage.

use std::borrow::{Borrow, Cow};
use std::fmt;

use crate::Error;

/// The name of a file or a directory within a storage: components with `/` between them, none of which leads elsewhere,
/// on any system. Not empty, `.` or `..`, and without `\` and NUL.
///
/// The storage itself is [`Name::ROOT`], which has no components.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Cow<'static, str>);

impl Name {
    /// The storage itself.
    pub const ROOT: Name = Name(Cow::Borrowed(""));

    /// The name that `text` is. Empty text is [`Name::ROOT`].
    ///
    /// # Errors
    /// [`Error::BadName`] if it would lead elsewhere.
    ///
    /// ```
    /// # use weighbridge_storage as storage;
    /// use storage::Name;
    ///
    /// assert_eq!(Name::parse("sub/model.gguf").unwrap().file_name(), "model.gguf");
    /// for text in ["../model.gguf", "/etc/passwd", "a//b", "a/", "a\\b", "."] {
    ///     assert!(Name::parse(text).is_err());
    /// }
    /// ```
    pub fn parse(text: impl Into<String>) -> Result<Name, Error> {
        let text = text.into();
        if text.is_empty() {
            Ok(Name::ROOT)
        } else if text.split('/').all(is_component) {
            Ok(Name(text.into()))
        } else {
            Err(Error::BadName { name: text })
        }
    }

    /// What a file is called that the caller chose by a path: as it is, with everything replaced that no name can hold.
    pub(crate) fn lossy(text: &str) -> Name {
        let text = text.replace(['/', '\\', '\0'], "\u{fffd}");
        if is_component(&text) { Name(text.into()) } else { Name("\u{fffd}".into()) }
    }

    /// The file called `name` in this directory, which may be some directories below it.
    ///
    /// # Errors
    /// [`Error::BadName`] if `name` leads elsewhere, or is empty.
    pub fn join(&self, name: &str) -> Result<Name, Error> {
        if name.is_empty() {
            return Err(Error::BadName { name: String::new() });
        }
        let name = Name::parse(name)?;
        Ok(if self.is_root() { name } else { Name(format!("{self}/{name}").into()) })
    }

    /// The directory it is in; that of [`Name::ROOT`] is itself.
    #[must_use]
    pub fn parent(&self) -> Name {
        self.0.rsplit_once('/').map_or(Name::ROOT, |(parent, _)| Name(parent.to_owned().into()))
    }

    /// The last component; empty for [`Name::ROOT`].
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(_, last)| last)
    }

    /// Whether it is [`Name::ROOT`].
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The components, from the root on.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `text` is one component of a name.
fn is_component(text: &str) -> bool {
    !text.is_empty() && !matches!(text, "." | "..") && !text.contains(['/', '\\', '\0'])
}

/// Names are ordered, compared and hashed as their text is.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out() {
        let long = "a/".repeat(5000) + "b";
        for good in ["a", "a/b", "...", "a b", "ä/ö", long.as_str()] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for bad in
            ["/", "/a", "a/", "a//b", ".", "..", "a/..", "a/../b", "./a", "a\\b", "a\0b", "\\\\host\\a"]
        {
            let error = Name::parse(bad).unwrap_err();
            assert!(matches!(&error, Error::BadName { name } if name == bad), "{bad:?}: {error}");
        }
        let sub = Name::parse("a/b").unwrap();
        assert_eq!(sub.join("c/d").unwrap().as_str(), "a/b/c/d");
        assert_eq!(Name::ROOT.join("c").unwrap().as_str(), "c");
        assert!(sub.join("").is_err() && sub.join("../c").is_err() && Name::ROOT.join("/c").is_err());
        assert_eq!((sub.parent().as_str(), sub.file_name()), ("a", "b"));
        assert!(sub.parent().parent().is_root() && Name::ROOT.parent().is_root());
        assert_eq!(sub.components().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(Name::ROOT.components().count(), 0);
    }

    #[test]
    fn a_chosen_file_has_some_name() {
        for (text, name) in
            [("x.gguf", "x.gguf"), ("a\\b", "a\u{fffd}b"), ("..", "\u{fffd}"), ("", "\u{fffd}")]
        {
            assert_eq!(Name::lossy(text).as_str(), name);
        }
    }
}
