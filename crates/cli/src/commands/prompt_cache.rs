//! `run --prompt-cache FILE`: what a prompt computes is kept in a file, and the next prompt that begins so goes on from there.

use std::path::Path;

use weighbridge::Runtime;
use weighbridge::checkpoint::{Draft, Refused};
use weighbridge::engine::Snapshot;
use weighbridge::tensor::{Bytes, counted};

use crate::failure::Failure;
use crate::progress::note;

/// The file of a prompt.
pub(super) struct PromptCache<'a> {
    path: &'a Path,
    /// It is there, and stays as it is.
    is_there: bool,
}

impl PromptCache<'_> {
    /// The file at `path`, which may be there. Asked before the model is loaded.
    pub(super) fn at(path: &Path) -> Result<PromptCache<'_>, Failure> {
        if let Some(Refused::NoDirectory(parent)) = Draft::refused(path, false) {
            return Err(Failure::Usage(format!("there is no directory `{}`", parent.display())));
        }
        Ok(PromptCache { path, is_there: path.exists() })
    }

    /// Puts the session of `runtime` behind the first of `tokens` that the file has, if it has any. Returns how many these are.
    pub(super) fn restore(&self, runtime: &mut Runtime, tokens: &[u32]) -> Result<usize, Failure> {
        if !self.is_there {
            return Ok(0);
        }
        let opened = Snapshot::open(self.path, runtime.session());
        let (snapshot, theirs) = opened.map_err(weighbridge::Error::from)?;
        let same = theirs.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let session = runtime.session_mut();
        let wanted = session.known_of(same, tokens.len());
        let known = session.restore_first(&snapshot, wanted).map_err(weighbridge::Error::from)?;
        let (shown, all) = (self.path.display(), counted(tokens.len(), "token"));
        if session.has_left_out() {
            note(&format!(
                "nothing of `{shown}` is used: it was written after a part of its prompt was left out"
            ));
            return Ok(session.truncate(0));
        }
        match known {
            0 if same == 0 => note(&format!("nothing of `{shown}` is used: the prompt begins otherwise")),
            0 => note(&format!(
                "nothing of `{shown}` is used: it has {} and cannot go back to the {wanted} that the prompt begins with",
                counted(theirs.len(), "token"),
            )),
            _ => note(&format!("{known} of the prompt's {all} are in `{shown}`")),
        }
        Ok(known)
    }

    /// True if the prompt is to be kept.
    pub(super) fn is_new(&self) -> bool {
        !self.is_there
    }

    /// Says why no file appears for a prompt of one token: the last token has to run each time, to have logits.
    pub(super) fn say_nothing_is_kept(&self) {
        note(&format!(
            "`{}` is not written: all but the last token of a prompt is kept",
            self.path.display()
        ));
    }

    /// Keeps what the session of `runtime` has of `tokens`, which it has run.
    pub(super) fn save(&self, runtime: &Runtime, tokens: &[u32]) -> Result<(), Failure> {
        let saved = runtime.session().save(tokens, self.path);
        let bytes = saved.map_err(weighbridge::Error::from)?;
        let kept = counted(tokens.len(), "token");
        note(&format!("`{}` has the first {kept} of the prompt ({})", self.path.display(), Bytes(bytes)));
        Ok(())
    }
}
