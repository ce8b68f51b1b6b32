//! Rows with a scale each become a matrix with one.

use quant::{Codec, Difference, Matrix};

use crate::{Noise, Planes};

const ROWS: usize = 12;
const K: usize = 40;

/// Rows of `by_row`, three matrices below each other, with these scales.
fn rows(codec: &dyn Codec, scales: [f32; 3], noise: &mut Noise) -> Planes {
    let merger = codec.merger().unwrap();
    let mut rows = Planes::of(&merger.by_row(), ROWS, K, 0);
    rows.0[0] = noise.bytes(ROWS * K);
    let name = codec.name().rsplit_once(',').unwrap().1;
    let scales = scales.into_iter().flat_map(|scale| [scale; ROWS / 3]);
    rows.0[1] = scales
        .flat_map(|x: f32| match name {
            "f32" => x.to_le_bytes().to_vec(),
            "f16" => half::f16::from_f32(x).to_le_bytes().to_vec(),
            "bf16" => half::bf16::from_f32(x).to_le_bytes().to_vec(),
            "f8_e8m0" => vec![(x.to_bits() >> 23) as u8],
            other => panic!("scales of {other}"),
        })
        .collect();
    rows
}

fn decoded(codec: &dyn Codec, planes: &Planes) -> Vec<f32> {
    let mut out = vec![0.0; ROWS * K];
    codec.decode(Matrix { planes: &planes.get(), rows: ROWS, k: K }, 0..ROWS, &mut out);
    out
}

#[test]
fn the_largest_scale_stays_and_the_other_codes_are_the_nearest() {
    let mut noise = Noise(7);
    for name in [
        "fp8:e4m3,tensor,f32",
        "fp8:e5m2,tensor,f32",
        "fp8:e4m3,tensor,f8_e8m0",
        "ct-fp8:tensor,bf16",
        "ct-fp8:tensor,f16",
    ] {
        let codec = quant::codec(name).unwrap();
        let merger = codec.merger().unwrap();
        let by_row = quant::codec(&merger.by_row().name).unwrap();
        for scales in
            [[0.25, 1.0, 0.375], [1e-4, 3.1e-4, 2.3e-4], [2.0, 2.0, 2.0], [1.5, -3.0, 0.0], [0.0; 3]]
        {
            let rows = rows(codec, scales, &mut noise);
            let mut whole = Planes::of(&codec.scheme(), ROWS, K, 0xAA);
            let lost = merger.merge(Matrix { planes: &rows.get(), rows: ROWS, k: K }, &mut whole.get_mut());

            let (was, is) = (decoded(by_row, &rows), decoded(codec, &whole));
            let real = Difference::of(&was, &is);
            let facts = |d: &Difference| (d.count, d.max.to_bits(), d.overflowed, d.underflowed);
            assert_eq!(facts(&lost), facts(&real), "`{name}` {scales:?}");
            assert!((lost.squares - real.squares).abs() <= 1e-9 * real.squares, "`{name}` {scales:?}");

            // Each code alone, with the scale that all have now.
            let mut all = Planes::of(&codec.scheme(), 1, 256, 0);
            all.0[0] = (0..=255).collect();
            all.0[1].clone_from(&whole.0[1]);
            let mut values = vec![0.0; 256];
            codec.decode(Matrix { planes: &all.get(), rows: 1, k: 256 }, 0..1, &mut values);
            let largest = scales.map(f32::abs).into_iter().fold(0.0, f32::max);
            for (i, (was, is)) in was.iter().zip(&is).enumerate() {
                if scales[i / (ROWS / 3 * K)].abs() == largest && largest > 0.0 {
                    assert_eq!(rows.0[0][i], whole.0[0][i], "`{name}` {scales:?} at {i}");
                }
                if was.is_finite() {
                    let near = values
                        .iter()
                        .filter(|v| v.is_finite())
                        .map(|v| (v - was).abs())
                        .fold(f32::MAX, f32::min);
                    // Where values are rounded to 16 bits the codes are not chosen by what that makes of them.
                    let slack = if name.starts_with("ct") {
                        was.abs() * 2f32.powi(-7)
                    } else {
                        was.abs() * 2f32.powi(-22)
                    };
                    assert!(
                        (is - was).abs() <= near + slack,
                        "`{name}` {scales:?} at {i}: {was} is {is}, {near}"
                    );
                } else {
                    assert!(!is.is_finite(), "`{name}` at {i}");
                }
            }

            // Spread over rows again, and merged: nothing changes.
            let mut again = Planes::of(&merger.by_row(), ROWS, K, 0x55);
            merger.spread(Matrix { planes: &whole.get(), rows: ROWS, k: K }, &mut again.get_mut());
            let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(decoded(by_row, &again)), bits(is), "`{name}` {scales:?}");
            let mut twice = Planes::of(&codec.scheme(), ROWS, K, 0xAA);
            let lost = merger.merge(Matrix { planes: &again.get(), rows: ROWS, k: K }, &mut twice.get_mut());
            assert!(twice == whole && lost.squares == 0.0, "`{name}` {scales:?}");
        }
    }
}

#[test]
fn only_matrices_with_one_scale_are_merged() {
    for name in quant::names() {
        let merges = quant::codec(&name).unwrap().merger().is_some();
        assert_eq!(merges, name.contains("fp8:") && name.contains("tensor,"), "`{name}`");
    }
}
