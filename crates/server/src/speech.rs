//! The thread of a model of speech: one sound after the other.
//!
//! Sounds wait as the files that they came as. One that has its turn is decoded on a thread of its own, as far as [`Sounds::longest`]:
//! a dozen bytes of FLAC can hold a second. Its client's leaving ends it with the next window.

use std::io::Cursor;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::body::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weighbridge::Transcriber;
use weighbridge::transcriber::{
    Ear, Heard, Progress, Segment, Sound, SpeechOptions, Transcript, language_name,
};

use crate::form::UNIT;
use crate::host::Host;
use crate::inbox::Inbox;
use crate::refusal::{Refusal, failed};

/// Sounds of the largest size that are in memory together.
const SOUNDS: usize = 4;

/// The state that requests to a model of speech share.
pub(crate) struct Sounds {
    pub(crate) host: Arc<Host>,
    ear: Ear,
    /// The codes of the languages that the model knows; none: it knows English alone.
    pub(crate) languages: Vec<&'static str>,
    /// Held while a sound is decoded and transcribed.
    turn: Arc<Semaphore>,
    /// Memory for sounds that wait, in units of [`UNIT`].
    pub(crate) memory: Arc<Semaphore>,
    pub(crate) inbox: Inbox<Job>,
}

impl Deref for Sounds {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// A sound that has its turn.
pub(crate) struct Job {
    heard: Heard,
    options: SpeechOptions,
    deadline: Option<Instant>,
    since: Instant,
    news: UnboundedSender<News>,
    /// Given back when the engine is done.
    _rights: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

/// News of a sound.
pub(crate) enum News {
    /// A part of the transcript.
    Said(Segment),
    /// All of it.
    Ended(Transcript),
    /// There is none, or no more of it.
    Failed(Refusal),
}

/// A sound that is transcribed.
pub(crate) struct Hearing {
    /// Its length.
    pub(crate) seconds: f64,
    pub(crate) news: UnboundedReceiver<News>,
}

impl Sounds {
    pub(crate) fn new(transcriber: &Transcriber, host: Arc<Host>, inbox: Inbox<Job>) -> Sounds {
        let memory = (host.options.sound / UNIT).saturating_mul(SOUNDS).min(Semaphore::MAX_PERMITS);
        Sounds {
            host,
            ear: transcriber.ear(),
            languages: transcriber.languages().collect(),
            turn: Arc::new(Semaphore::new(1)),
            memory: Arc::new(Semaphore::new(memory)),
            inbox,
        }
    }

    /// Whether the model knows a language by this code or English name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let mut known =
            self.languages.iter().copied().chain(["en"].into_iter().filter(|_| self.languages.is_empty()));
        known.any(|code| {
            code.eq_ignore_ascii_case(name)
                || language_name(code).is_some_and(|known| known.eq_ignore_ascii_case(name))
        })
    }

    /// Seconds of a sound at most.
    pub(crate) fn longest(&self) -> f64 {
        self.options.longest_sound.as_secs_f64()
    }

    /// Waits for a sound's turn, decodes it, and gives it to the engine. `place` is the right to wait, and `memory` that to be kept.
    pub(crate) async fn hear(
        self: &Arc<Self>,
        file: Bytes,
        memory: Option<OwnedSemaphorePermit>,
        place: OwnedSemaphorePermit,
        options: SpeechOptions,
    ) -> Result<Hearing, Refusal> {
        let (since, deadline) = (Instant::now(), self.deadline());
        let wait = Arc::clone(&self.turn).acquire_owned();
        let turn = match deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline.into(), wait).await.map_err(|_| Refusal::late())?
            }
            None => wait.await,
        };
        let turn = turn.map_err(|_| Refusal::stopping())?;
        // Set when the client leaves: this future is dropped then.
        let left = Left(Arc::new(AtomicBool::new(false)));
        let (own, has_left) = (Arc::clone(self), Arc::clone(&left.0));
        let decoded = tokio::task::spawn_blocking(move || {
            let heard = own.decode(file, &has_left, deadline);
            // The file is not needed any more.
            drop(memory);
            (heard, turn)
        });
        let (heard, turn) = decoded.await.map_err(|_| Refusal::failed("the sound could not be decoded"))?;
        let heard = heard?;
        let seconds = heard.seconds;
        let (news, receiver) = unbounded_channel();
        let job = Job { heard, options, deadline, since, news, _rights: (place, turn) };
        if !self.inbox.send(job) {
            return Err(Refusal::stopping());
        }
        Ok(Hearing { seconds, news: receiver })
    }

    fn decode(
        &self,
        file: Bytes,
        has_left: &AtomicBool,
        deadline: Option<Instant>,
    ) -> Result<Heard, Refusal> {
        let wrong = |error: &dyn std::fmt::Display| Refusal::of_field("file", error.to_string());
        let sound = Sound::open(Box::new(Cursor::new(file))).map_err(|error| wrong(&error))?;
        let longest = self.longest();
        let (mut is_long, mut is_late) = (false, false);
        let heard = self.ear.hear(sound, &mut |seconds| {
            is_long = seconds > longest;
            is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            !is_long && !is_late && !has_left.load(Ordering::Relaxed)
        });
        let heard = heard.map_err(|error| wrong(&error))?;
        if is_long {
            return Err(wrong(&format!("the sound is longer than {longest} s")));
        }
        if is_late {
            return Err(Refusal::late());
        }
        match &heard.ended {
            Some(fault) => Err(wrong(fault)),
            None => Ok(heard),
        }
    }
}

/// Says, when it is dropped, that somebody has left.
struct Left(Arc<AtomicBool>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transcribes sounds until no more can come.
pub(crate) fn run(mut model: Transcriber, host: &Host, mut jobs: UnboundedReceiver<Job>) {
    while let Some(job) = jobs.blocking_recv() {
        host.metrics.answers(1, 0);
        transcribe(&mut model, host, &job);
        host.metrics.sound(job.heard.seconds);
        host.pace.took(job.since.elapsed());
        host.metrics.answers(0, 0);
    }
}

fn transcribe(model: &mut Transcriber, host: &Host, job: &Job) {
    let mut is_late = false;
    // One model computes at a time, and others do between two parts of a sound.
    let mut turn = Some(host.turn.blocking_lock());
    let found = model.transcribe_heard(&job.heard, &job.options, &mut |progress| {
        drop(turn.take());
        turn = Some(host.turn.blocking_lock());
        if let Progress::Segment(segment) = progress {
            let _ = job.news.send(News::Said(segment.clone()));
        }
        is_late = job.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_late || job.news.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(turn);
    let _ = job.news.send(match found {
        Ok(_) if is_late => News::Failed(Refusal::late()),
        Ok(transcript) => News::Ended(transcript),
        Err(error) => News::Failed(Refusal::of_failed(failed(&error))),
    });
}
