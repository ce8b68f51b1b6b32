//! Files that were changed at random: reading them ends soon, and without a panic.

use std::time::{Duration, Instant};

use weighbridge_audio::Error;

use crate::Noise;
use crate::files::{FILES, checksum, decode, file};
use crate::wav::header;

/// Changes some bytes, cuts, or doubles a part.
fn mutated(bytes: &[u8], noise: &mut Noise) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=noise.below(6) {
        // Headers are short: half of all changes are there.
        let reach = if noise.below(2) == 0 { bytes.len().min(200) } else { bytes.len() };
        let at = noise.below(reach);
        match noise.below(8) {
            0 => bytes[at] = 0xff,
            1 => bytes[at] = 0,
            2..5 => bytes[at] ^= 1 << noise.below(8),
            5 => {
                let end = bytes.len().min(at + 1 + noise.below(8));
                bytes[at..end].fill(0xff);
            }
            6 => bytes.truncate(at.max(30)),
            _ => {
                let part = bytes[at..bytes.len().min(at + 64)].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

/// Gives each page of Ogg the checksum of what it has now, so that the decoder sees it.
fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while bytes.len() >= at + 27 && bytes[at..].starts_with(b"OggS") {
        let segments = at + 27 + usize::from(bytes[at + 26]);
        if bytes.len() < segments {
            break;
        }
        let end =
            segments + bytes[at + 27..segments].iter().map(|&length| usize::from(length)).sum::<usize>();
        if bytes.len() < end {
            break;
        }
        bytes[at + 22..at + 26].fill(0);
        let sum = checksum(&bytes[at..end]);
        bytes[at + 22..at + 26].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    bytes
}

/// Returns whether it was read to its end.
fn survives(name: &str, bytes: &[u8]) -> bool {
    let start = Instant::now();
    let (samples, result) = decode(bytes);
    assert!(samples.iter().all(|x| x.abs() <= 1.0), "{name}");
    assert!(samples.len() < 10_000_000, "{name}: {} samples", samples.len());
    assert!(start.elapsed() < Duration::from_secs(2), "{name}: {:?}", start.elapsed());
    match result {
        Err(Error::Io { source, .. }) => panic!("{name}: {source}"),
        // No decoder is known to panic on these. If one does, it is caught, but look at it.
        Err(Error::Malformed { what, .. }) if what.contains("make sense") => panic!("{name}: caught a panic"),
        result => result.is_ok(),
    }
}

fn mutate(name: &str, bytes: &[u8], times: u64) {
    let start = Instant::now();
    // Without optimisation, decoders are slow.
    let times = if cfg!(debug_assertions) { times / 20 } else { times };
    let times = std::env::var("WEIGHBRIDGE_FUZZ_RUNS").map_or(times, |runs| runs.parse().unwrap());
    let good = (0..times).filter(|&seed| {
        let mut bytes = mutated(bytes, &mut Noise(seed * 7 + 1));
        // One of four keeps its wrong checksums.
        if seed % 4 != 0 {
            bytes = with_checksums(bytes);
        }
        survives(name, &bytes)
    });
    println!("{name}: {} of {times} were read to their end, in {:.1?}", good.count(), start.elapsed());
}

#[test]
fn mutated_flac() {
    for name in ["short.flac", "deep.flac", "pipe.flac"] {
        mutate(name, &file(name), 1_000);
    }
}

#[test]
fn mutated_mp3() {
    for name in ["tone.mp3", "tagged.mp3", "low.mp3"] {
        mutate(name, &file(name), 1_000);
    }
}

#[test]
fn mutated_vorbis() {
    mutate("tone.ogg", &file("tone.ogg"), 3_000);
}

#[test]
fn mutated_wav() {
    for (tag, bits) in [(1, 8), (1, 16), (1, 24), (3, 32), (3, 64)] {
        let mut bytes = header(tag, 2, 16_000, bits, 2_036, 2_000);
        bytes.extend([0; 2_000]);
        mutate("wav", &bytes, 1_000);
    }
}

#[test]
fn noise_after_a_good_start() {
    let mut noise = Noise(3);
    for (name, bytes) in FILES {
        for keep in [16, 48, 100, 400] {
            let mut bytes = bytes[..keep].to_vec();
            bytes.extend((0..50_000).map(|_| noise.next().to_be_bytes()[0]));
            survives(name, &bytes);
        }
    }
}

/// A header of codebooks that asks for terabytes, as lewton would allocate them.
#[test]
fn codebooks_of_terabytes() {
    let good = file("tone.ogg");
    let at = good.windows(3).position(|bytes| bytes == b"BCV").unwrap();
    for (dimensions, entries) in
        [([0xff, 0xff], [0xff, 0xff, 0xff]), ([0, 0], [1, 0, 0]), ([1, 0], [0, 0, 0xff])]
    {
        let mut bytes = good.clone();
        bytes[at + 3..at + 5].copy_from_slice(&dimensions);
        bytes[at + 5..at + 8].copy_from_slice(&entries);
        let (samples, result) = decode(&with_checksums(bytes));
        assert!(samples.is_empty());
        let error = result.unwrap_err().to_string();
        assert!(error.contains("codebooks"), "{error}");
    }
}

/// Headers whose frames have any length make nanomp3 look far for the next one.
#[test]
fn headers_of_mp3_without_frames() {
    let name = "tone.mp3";
    for header in [[0xff, 0xfb, 0x90, 0x00], [0xff, 0xfb, 0x00, 0xff], [0xff, 0xe3, 0x08, 0x44]] {
        let headers = header.repeat(1 << 15);
        survives(name, &headers);
        survives(name, &[file(name), headers, file(name)].concat());
    }
    for length in [3, 5, 7, 1_001] {
        let mut part = vec![0xff, 0xfb, 0x04];
        part.resize(length, 0x55);
        let bytes = [file(name), part.repeat((1 << 18) / length)].concat();
        survives(name, &bytes);
    }
}
