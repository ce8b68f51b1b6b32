//! Spectrograms, compared with the reference's: golden/whisper_mel.py.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::time::Instant;

use serde_json::Value;
use weighbridge_audio::{Error, FrontEnd, LogMel, scale};

use crate::{Noise, narrow};

/// The sounds of golden/whisper_mel.py.
fn sound(name: &str, samples: usize) -> Vec<f32> {
    let mut noise = Noise(20);
    let sample = |n: usize| {
        let t = n as f64 / 16_000.0;
        match name {
            "tone" => 0.5 * (TAU * 440.0 * t).sin(),
            "chirp" => 0.4 * (TAU * (100.0 * t + 1500.0 * t * t)).sin(),
            "noise" => noise.sample(),
            "impulse" => f64::from(u8::from(n == 8_000)),
            "silence" => 0.0,
            "quiet" => 0.8 * (TAU * 1000.0 * t).sin() * (TAU * 0.1 * t).sin().powi(8) + 1e-3 * noise.sample(),
            _ => panic!("{name}"),
        }
    };
    (0..samples).map(sample).map(narrow).collect()
}

/// Pushes samples in blocks of `block`, and returns scaled frames.
fn spectrogram(samples: &[f32], padding: usize, mels: usize, block: usize) -> Vec<f32> {
    let mut mel = LogMel::new(FrontEnd::whisper(mels)).unwrap();
    let mut frames = Vec::new();
    for samples in samples.chunks(block) {
        mel.push(samples, &mut frames);
    }
    let maximum = mel.finish(padding, &mut frames);
    scale(&mut frames, maximum);
    frames
}

#[test]
fn equal_to_the_reference() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../../golden/whisper/mel.json")).unwrap();
    let mut worst = 0.0_f32;
    for case in cases {
        let name = case["sound"].as_str().unwrap();
        let [samples, padding, mels] =
            ["samples", "padding", "mels"].map(|key| usize::try_from(case[key].as_u64().unwrap()).unwrap());
        let shape: Vec<usize> = serde_json::from_value(case["shape"].clone()).unwrap();
        let wanted: BTreeMap<usize, Vec<f32>> = serde_json::from_value(case["frames"].clone()).unwrap();
        let found = spectrogram(&sound(name, samples), padding, mels, 1000);
        assert_eq!(found.len(), shape[0] * shape[1], "{name}");
        for (frame, wanted) in wanted {
            let found = &found[frame * mels..][..mels];
            for (band, (&found, &wanted)) in found.iter().zip(&wanted).enumerate() {
                let off = (found - wanted).abs();
                assert!(off <= 1e-5, "{name}, frame {frame}, band {band}: wanted {wanted}, found {found}");
                worst = worst.max(off);
            }
        }
    }
    println!("largest difference from the reference: {worst:.1e}");
}

#[test]
fn blocks_make_no_difference() {
    for samples in [0, 1, 2, 159, 160, 161, 200, 201, 400, 5_000] {
        let sound = sound("noise", samples);
        let whole = spectrogram(&sound, 77, 80, 1 << 20);
        assert_eq!(whole.len(), (samples + 77) / 160 * 80);
        for block in [1, 7, 160, 199, 201, 4_096] {
            assert!(spectrogram(&sound, 77, 80, block) == whole, "{samples} samples in blocks of {block}");
        }
    }
}

#[test]
fn another_sound_begins_anew() {
    let sound = sound("chirp", 4_000);
    let mut mel = LogMel::new(FrontEnd::whisper(80)).unwrap();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    mel.push(&sound, &mut first);
    let maximum = mel.finish(1_000, &mut first);
    assert_eq!(mel.maximum(), f32::NEG_INFINITY);
    mel.push(&sound, &mut second);
    assert_eq!(mel.finish(1_000, &mut second).to_bits(), maximum.to_bits());
    assert!(first == second);
}

#[test]
fn parameters_that_make_no_sense() {
    let whisper = FrontEnd::whisper(80);
    for front in [
        FrontEnd { mels: 0, ..whisper },
        FrontEnd { mels: usize::MAX, ..whisper },
        FrontEnd { fft: 401, ..whisper },
        FrontEnd { fft: 0, ..whisper },
        FrontEnd { fft: 1 << 40, ..whisper },
        FrontEnd { hop: 0, ..whisper },
        FrontEnd { hop: 401, ..whisper },
        FrontEnd { rate: 0, ..whisper },
    ] {
        assert!(matches!(LogMel::new(front), Err(Error::Misuse { .. })), "{front:?}");
    }
}

/// A slow machine has some room: 2000 times real time was measured.
#[test]
fn faster_than_the_sound() {
    let sound = sound("noise", 16_000 * 60);
    let start = Instant::now();
    spectrogram(&sound, 0, 128, 16_000);
    let times = 60.0 / start.elapsed().as_secs_f64();
    println!("128 bands: {times:.0} times real time");
    assert!(times > 20.0 || cfg!(debug_assertions), "{times}");
}
