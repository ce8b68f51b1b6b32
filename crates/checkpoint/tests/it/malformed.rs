//! Broken files, one fault each: every one is refused, mapped and read alike, in words that name it.

use checkpoint::Error;

use crate::{Dir, open_both};
use testkit::corpus::{Blame, corpus};

#[test]
fn every_broken_checkpoint_is_refused_in_words_that_name_the_fault() {
    let mut wrong = Vec::new();
    for case in corpus() {
        let dir = Dir::new();
        let path = case.make(dir.0.path());
        let who = format!("{}, {}", case.family, case.name);
        let Err(error) = open_both(&path) else {
            wrong.push(format!("{who}: opens"));
            continue;
        };
        let found = match error {
            Error::Malformed(_) => Blame::Malformed,
            Error::Mismatch(_) => Blame::Mismatch,
            Error::Unsupported(_) => Blame::Unsupported,
            Error::Misuse(_) => Blame::Misuse,
            _ => Blame::Io,
        };
        let text = dir.text(&error);
        // The file that is opened, or one of the same checkpoint.
        let about = if path.is_dir() { path.as_path() } else { path.parent().expect("a parent") };
        if found != case.blame
            || !text.contains(&case.says)
            || !error.location().path().is_some_and(|path| path.starts_with(about))
        {
            wrong.push(format!("{who}: wanted {:?} and `{}` in\n    {text}", case.blame, case.says));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
