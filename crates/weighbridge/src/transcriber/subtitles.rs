//! Transcripts as files of subtitles.
//!
//! Source: <https://www.w3.org/TR/webvtt1/>; openai/whisper@v20250625, whisper/utils.py.

/// A format of subtitles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subtitles {
    /// `SubRip`, .srt.
    Srt,
    /// `WebVTT`, .vtt.
    Vtt,
}

impl Subtitles {
    /// The first line of a file.
    pub fn head(self) -> &'static str {
        match self {
            Subtitles::Srt => "",
            Subtitles::Vtt => "WEBVTT\n\n",
        }
    }

    /// The cue `number`, from 1 on, of a text that is said from `start` to `end`, in seconds.
    pub fn cue(self, number: usize, start: f64, end: f64, text: &str) -> String {
        // An arrow would end the line of times, and an empty line the cue.
        let text = text.trim().replace("-->", "->").replace("\n\n", "\n");
        match self {
            Subtitles::Srt => format!("{number}\n{} --> {}\n{text}\n\n", clock(start, ','), clock(end, ',')),
            Subtitles::Vtt => format!("{} --> {}\n{text}\n\n", clock(start, '.'), clock(end, '.')),
        }
    }
}

/// Hours, minutes, seconds and milliseconds, with `point` before the last.
pub fn clock(seconds: f64, point: char) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let all = (seconds * 1000.0).round() as u64;
    let (millis, all) = (all % 1000, all / 1000);
    format!("{:02}:{:02}:{:02}{point}{millis:03}", all / 3600, all / 60 % 60, all % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_hours() {
        assert_eq!(clock(0.0, ','), "00:00:00,000");
        assert_eq!(clock(3661.5, '.'), "01:01:01.500");
        assert_eq!(clock(59.9996, '.'), "00:01:00.000");
    }

    #[test]
    fn no_text_breaks_a_cue() {
        let cue = Subtitles::Srt.cue(2, 1.0, 2.5, " a --> b\n\nc");
        assert_eq!(cue, "2\n00:00:01,000 --> 00:00:02,500\na -> b\nc\n\n");
    }
}
