//! Files of real encoders: tests/files/make.py.

use std::f64::consts::TAU;
use std::io::{self, Read};

use weighbridge_audio::{Error, Format, Sound};

pub(crate) const FILES: [(&str, &[u8]); 7] = [
    ("short.flac", include_bytes!("../files/short.flac")),
    ("deep.flac", include_bytes!("../files/deep.flac")),
    ("pipe.flac", include_bytes!("../files/pipe.flac")),
    ("tone.mp3", include_bytes!("../files/tone.mp3")),
    ("tagged.mp3", include_bytes!("../files/tagged.mp3")),
    ("low.mp3", include_bytes!("../files/low.mp3")),
    ("tone.ogg", include_bytes!("../files/tone.ogg")),
];

pub(crate) fn file(name: &str) -> Vec<u8> {
    FILES.iter().find(|(file, _)| *file == name).unwrap().1.to_vec()
}

/// A pipe: it gives few bytes at a time, and is interrupted.
struct Pipe {
    bytes: io::Cursor<Vec<u8>>,
    turn: usize,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let bytes = buffer.len().min(1 + self.turn % 97);
        self.bytes.read(&mut buffer[..bytes])
    }
}

pub(crate) fn open(bytes: &[u8]) -> Result<Sound, Error> {
    Sound::open(Box::new(Pipe { bytes: io::Cursor::new(bytes.to_vec()), turn: 0 }))
}

/// Reads to the end or an error, and returns the samples before it.
pub(crate) fn decode(bytes: &[u8]) -> (Vec<f32>, Result<Sound, Error>) {
    let mut samples = Vec::new();
    let mut sound = match open(bytes) {
        Ok(sound) => sound,
        Err(error) => return (samples, Err(error)),
    };
    loop {
        match sound.read(&mut samples) {
            Ok(true) => {}
            Ok(false) => return (samples, Ok(sound)),
            Err(error) => {
                assert!(!sound.read(&mut samples).unwrap());
                return (samples, Err(error));
            }
        }
    }
}

pub(crate) fn whole(bytes: &[u8]) -> (Vec<f32>, Sound) {
    let (samples, result) = decode(bytes);
    (samples, result.unwrap())
}

/// Compares with the tones of make.py, `edge` samples from both ends.
fn assert_tone(name: &str, samples: &[f32], tolerance: f64, edge: usize) {
    let wanted = |n: usize| {
        let t = n as f64 / 44_100.0;
        0.25 * (TAU * 440.0 * t).sin() + 0.125 * (TAU * 660.0 * t).sin()
    };
    let compared = samples.iter().enumerate().skip(edge).take(samples.len() - 2 * edge);
    let worst = compared.map(|(n, &x)| (f64::from(x) - wanted(n)).abs()).fold(0.0, f64::max);
    println!("{name}: off by {worst:.1e}");
    assert!(worst <= tolerance, "{name}: {worst}");
}

#[test]
fn flac() {
    for (name, seconds) in [("short.flac", Some(0.1)), ("pipe.flac", None)] {
        let (samples, sound) = whole(&file(name));
        assert_eq!((sound.format(), sound.rate(), sound.channels()), (Format::Flac, 44_100, 2));
        assert_eq!(sound.seconds(), seconds);
        assert_eq!(samples.len(), 4_410);
        // The encoder's input has 16 bits.
        assert_tone(name, &samples, 2e-5, 0);
    }
    let (samples, sound) = whole(&file("deep.flac"));
    assert_eq!((samples.len(), sound.channels()), (2_400, 1));
    let wanted = |n: usize| 0.5 * (TAU * 440.0 * n as f64 / 48_000.0).sin();
    assert!(samples.iter().enumerate().all(|(n, &x)| (f64::from(x) - wanted(n)).abs() < 1e-6));
}

/// The delay of encoder and decoder is cut, and so is the padding at the end.
#[test]
fn mp3() {
    let (samples, sound) = whole(&file("tone.mp3"));
    assert_eq!((sound.format(), sound.rate(), sound.channels()), (Format::Mp3, 44_100, 2));
    assert_eq!(sound.seconds(), Some(0.5));
    assert_eq!(samples.len(), 22_050);
    assert_tone("tone.mp3", &samples, 2e-2, 2_000);
    assert!(sound.damaged_seconds() == 0.0);

    let (samples, sound) = whole(&file("low.mp3"));
    assert_eq!((sound.rate(), sound.channels(), samples.len()), (16_000, 1, 8_000));
}

/// Nothing says where the sound begins and ends, so the encoder's delay and padding stay.
#[test]
fn mp3_without_the_encoders_tag() {
    let (samples, sound) = whole(&file("tagged.mp3"));
    assert_eq!(sound.seconds(), None);
    assert_eq!(samples.len() % 1_152, 0);
    // lame delays by 576 samples and the decoder by 529.
    assert_tone("tagged.mp3", &samples[576 + 529..][..22_050], 2e-2, 2_000);
}

#[test]
fn vorbis() {
    let (samples, sound) = whole(&file("tone.ogg"));
    assert_eq!((sound.format(), sound.rate(), sound.channels()), (Format::Vorbis, 44_100, 2));
    assert_eq!(sound.seconds(), None);
    assert_eq!(samples.len(), 22_050);
    assert_tone("tone.ogg", &samples, 2e-2, 2_000);
}

/// One sound after the other, as radio streams have them.
#[test]
fn chained_vorbis() {
    let once = file("tone.ogg");
    let (single, _) = whole(&once);
    let (samples, _) = whole(&[once.clone(), once].concat());
    assert!(samples == [single.clone(), single].concat());
}

#[test]
fn id3_before_any_format() {
    let mut tagged = b"ID3\x04\x00\x00\x00\x00\x02\x01".to_vec();
    tagged.extend([0; 257]);
    for name in ["short.flac", "tone.mp3", "tone.ogg"] {
        let (plain, _) = whole(&file(name));
        let (samples, _) = whole(&[tagged.clone(), file(name)].concat());
        assert!(samples == plain, "{name}");
    }
}

/// The samples before the fault are good, and the error gives their length.
#[test]
fn files_that_are_cut_off() {
    for (name, bytes) in FILES {
        let (plain, sound) = whole(bytes);
        let mut lengths = vec![];
        for cut in [bytes.len() / 3, bytes.len() / 2, bytes.len() * 3 / 4, bytes.len() - 200] {
            let (samples, result) = decode(&bytes[..cut]);
            let error = result.expect_err(name);
            let Error::Truncated { format, seconds } = error else { panic!("{name}: {error}") };
            assert_eq!(format, sound.format());
            assert!((seconds - samples.len() as f64 / f64::from(sound.rate())).abs() < 1e-9, "{name}");
            // An MP3 that is cut off keeps its padding.
            let shared = samples.len().min(plain.len());
            assert!(samples[..shared] == plain[..shared], "{name}");
            lengths.push(samples.len());
        }
        assert!(lengths.is_sorted(), "{name}: {lengths:?}");
    }
}

#[test]
fn formats_that_are_refused_by_name() {
    let mut opus = file("tone.ogg");
    let at = opus.windows(7).position(|bytes| bytes == b"\x01vorbis").unwrap();
    opus[at..at + 8].copy_from_slice(b"OpusHead");
    opus[22..26].fill(0);
    let sum = checksum(&opus[..58]);
    opus[22..26].copy_from_slice(&sum.to_le_bytes());
    let cases: [(&[u8], &str); 9] = [
        (b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42", "cannot read MP4 or m4a (AAC or ALAC)"),
        (&opus, "cannot read Opus in ogg"),
        (b"\xff\xf1\x50\x80\x1c\x3f\xfc\x21\0\0\0", "cannot read AAC (ADTS)"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01", "cannot read Matroska or WebM"),
        (b"FORM\0\0\0\x10AIFFCOMM", "cannot read AIFF"),
        (b"RIFX\0\0\0\x10WAVE", "cannot read big-endian wav (RIFX)"),
        (
            b"RIFF\0\0\0\x10AVI LIST",
            "not a sound file: wanted wav, flac, ogg or mp3, found `RIFF\\x00\\x00\\x00\\x10AVI LIST`",
        ),
        (b"<html>", "not a sound file: wanted wav, flac, ogg or mp3, found `<html>`"),
        (b"", "not a sound file: wanted wav, flac, ogg or mp3, found an empty file"),
    ];
    for (bytes, wanted) in cases {
        let error = open(bytes).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert!(error.hint().unwrap().contains("ffmpeg -i in.m4a out.wav"));
    }
}

/// The checksum of a page of Ogg, whose field is zero.
pub(crate) fn checksum(page: &[u8]) -> u32 {
    page.iter().fold(0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
        })
    })
}
