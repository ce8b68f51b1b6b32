//! What goes on, on stderr: progress on one line of a terminal, and how a model runs.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weighbridge::Runtime;
use weighbridge::tensor::Bytes;

use crate::style;

/// The line is written again after this long, at the earliest.
const PAUSE: Duration = Duration::from_millis(50);

/// A line on stderr that is written again and again, by any thread; nothing if that is no terminal.
pub(crate) struct Line {
    terminal: bool,
    started: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Line {
    pub(crate) fn new() -> Line {
        Line { terminal: std::io::stderr().is_terminal(), started: Instant::now(), shown: Mutex::new(None) }
    }

    /// Shows `text`, if it is time to.
    pub(crate) fn show(&self, text: impl FnOnce() -> String) {
        // Whoever finds another thread writing need not write too.
        let Some(mut shown) = self.terminal.then(|| self.shown.try_lock().ok()).flatten() else { return };
        if shown.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        *shown = Some(Instant::now());
        write(&format!("\r\x1b[K{}", style::note(&text())));
    }

    /// Shows how much has been read, of how much, how fast, and how long it will take.
    pub(crate) fn bytes(&self, done: u64, total: u64) {
        const WIDTH: u64 = 24;
        self.show(|| {
            let full = usize::try_from(WIDTH * done / total.max(1)).unwrap_or(0);
            let bar: String = (0..24).map(|i| if i < full { '█' } else { '░' }).collect();
            let seconds = self.started.elapsed().as_secs_f64();
            let left = seconds * total.saturating_sub(done) as f64 / done.max(1) as f64;
            let speed = speed(done, seconds);
            format!("{bar} {} of {}, {speed}, {left:.0} s left", Bytes(done), Bytes(total))
        });
    }

    pub(crate) fn clear(&self) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_some() {
            write("\r\x1b[K");
        }
    }
}

/// Clears the line that any thread has shown, before the process ends.
pub(crate) fn clear() {
    if std::io::stderr().is_terminal() {
        write("\r\x1b[K");
    }
}

/// Says that not all weights may be in memory at once, if that is so.
pub(crate) fn streaming(runtime: &Runtime) {
    if let Some(streaming) = runtime.streaming() {
        write(&format!("{}\n", style::note(&streaming.to_string())));
    }
}

/// The speed of `bytes` in `seconds`, for people.
pub(crate) fn speed(bytes: u64, seconds: f64) -> String {
    format!("{:.2} GB/s", bytes as f64 / seconds.max(1e-9) / 1e9)
}

fn write(text: &str) {
    // Progress that cannot be shown is no reason to stop.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Side information. If stderr is gone, it is not missed.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", style::note(text));
}
