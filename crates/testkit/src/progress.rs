//! A progress line on a terminal, and nothing but its end elsewhere.

use std::io::{IsTerminal, Write};

/// Bytes done of bytes expected, redrawn in place on standard error.
pub(crate) struct Progress {
    label: String,
    total: u64,
    terminal: bool,
}

impl Progress {
    /// A line for `total` bytes; says once what is being done where there is no terminal.
    pub(crate) fn start(label: &str, total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        if !terminal {
            eprintln!("{label} ({})", megabytes(total));
        }
        Self { label: label.to_owned(), total, terminal }
    }

    /// Draws `done` bytes.
    pub(crate) fn draw(&self, done: u64) {
        if self.terminal {
            eprint!("\r{}\x1b[K", self.line(done));
            // A progress line that cannot be flushed is no reason to fail.
            let _ = std::io::stderr().flush();
        }
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn line(&self, done: u64) -> String {
        const WIDTH: u64 = 30;
        let filled = (done.min(self.total) * WIDTH).checked_div(self.total).unwrap_or(WIDTH);
        let bar: String = (0..WIDTH).map(|cell| if cell < filled { '=' } else { ' ' }).collect();
        format!("{} [{bar}] {} of {}", self.label, megabytes(done), megabytes(self.total))
    }
}

/// `98.4 MB`: decimal, as downloads are counted.
pub fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fills_up_and_never_overflows() {
        let progress = Progress { label: "x".into(), total: 10_000_000, terminal: false };
        assert_eq!(progress.line(0), format!("x [{}] 0.0 MB of 10.0 MB", " ".repeat(30)));
        assert_eq!(
            progress.line(5_000_000),
            format!("x [{}{}] 5.0 MB of 10.0 MB", "=".repeat(15), " ".repeat(15))
        );
        assert_eq!(progress.line(20_000_000), format!("x [{}] 20.0 MB of 10.0 MB", "=".repeat(30)));
    }
}
