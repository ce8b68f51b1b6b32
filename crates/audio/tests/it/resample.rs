//! Changes of rate.

use std::f64::consts::TAU;
use std::time::Instant;

use weighbridge_audio::{Error, Resampler};

use crate::{Noise, narrow};

fn resampled(samples: &[f32], from: u32, to: u32, block: usize) -> Vec<f32> {
    let mut resampler = Resampler::new(from, to).unwrap();
    let mut out = Vec::new();
    for samples in samples.chunks(block) {
        resampler.push(samples, &mut out);
    }
    resampler.finish(&mut out);
    out
}

fn tone(hertz: f64, rate: u32, samples: usize) -> Vec<f32> {
    (0..samples).map(|n| narrow((TAU * hertz * n as f64 / f64::from(rate)).sin())).collect()
}

/// Tones come out as the same tones, at the same time.
#[test]
fn tones_stay_where_they_are() {
    for rate in [8_000, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 44_101, 48_000, 96_000, 192_000] {
        for hertz in [100.0, 1_000.0, 3_000.0] {
            let samples = rate as usize;
            let found = resampled(&tone(hertz, rate, samples), rate, 16_000, 4_096);
            assert_eq!(found.len(), 16_000, "{rate}");
            let wanted = tone(hertz, 16_000, 16_000);
            let off = found.iter().zip(&wanted).map(|(found, wanted)| (found - wanted).abs());
            // The filter is 128 samples of the lower rate long: 8 kHz at worst.
            let worst = off.skip(256).take(16_000 - 512).fold(0.0, f32::max);
            println!("{rate} Hz, a tone of {hertz} Hz: off by {worst:.1e}");
            assert!(worst < 1e-4, "{rate} Hz, a tone of {hertz} Hz: {worst}");
        }
    }
}

/// Tones that the lower rate cannot hold are gone: none comes back as another tone.
#[test]
fn nothing_folds_back() {
    for rate in [44_100, 48_000, 192_000] {
        for hertz in [8_100.0, 9_000.0, 15_000.0, 20_000.0] {
            let found = resampled(&tone(hertz, rate, rate as usize), rate, 16_000, 4_096);
            let loudest = found.iter().skip(256).take(16_000 - 512).map(|x| x.abs()).fold(0.0, f32::max);
            println!("{rate} Hz, a tone of {hertz} Hz: {loudest:.1e} is left");
            assert!(loudest < 2e-5, "{rate} Hz, a tone of {hertz} Hz: {loudest}");
        }
    }
}

#[test]
fn blocks_make_no_difference() {
    let mut noise = Noise(1);
    let samples: Vec<f32> = (0..3_001).map(|_| narrow(noise.sample())).collect();
    for (from, to) in
        [(8_000, 16_000), (44_100, 16_000), (44_101, 16_000), (16_000, 16_000), (192_000, 16_000)]
    {
        let whole = resampled(&samples, from, to, samples.len());
        let wanted = (samples.len() as u64 * u64::from(to)).div_ceil(u64::from(from));
        assert_eq!(whole.len() as u64, wanted, "{from} to {to}");
        for block in [1, 5, 160, 1_000] {
            assert!(resampled(&samples, from, to, block) == whole, "{from} to {to} in blocks of {block}");
        }
    }
}

#[test]
fn lengths_of_short_sounds() {
    for from in [8_000, 44_100, 48_000, 192_000] {
        for samples in 0..20_usize {
            let found = resampled(&vec![0.5; samples], from, 16_000, 3);
            assert_eq!(found.len() as u64, (samples as u64 * 16_000).div_ceil(u64::from(from)));
        }
    }
}

#[test]
fn another_sound_begins_anew() {
    let samples = tone(1_000.0, 44_100, 4_410);
    let mut resampler = Resampler::new(44_100, 16_000).unwrap();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    resampler.push(&samples, &mut first);
    resampler.finish(&mut first);
    resampler.push(&samples, &mut second);
    resampler.finish(&mut second);
    assert!(first == second);
}

#[test]
fn rates_that_make_no_sense() {
    for (from, to) in [(0, 16_000), (16_000, 0), (10, 16_000), (u32::MAX, 16_000)] {
        assert!(matches!(Resampler::new(from, to), Err(Error::Misuse { .. })), "{from} to {to}");
    }
}

#[test]
fn faster_than_the_sound() {
    for rate in [44_100, 44_101, 48_000, 192_000] {
        let samples = tone(440.0, rate, rate as usize * 10);
        let start = Instant::now();
        resampled(&samples, rate, 16_000, 16_384);
        let times = 10.0 / start.elapsed().as_secs_f64();
        println!("{rate} Hz: {times:.0} times real time");
        assert!(times > 10.0 || cfg!(debug_assertions), "{rate}: {times}");
    }
}
