//! Repacking is exact and invertible, and every instruction set does the same.

use proptest::prelude::*;
use quant::{Isa, Matrix};
use tensor::Shape;

use crate::{Noise, Planes, packable, unit};

/// `rows` rows of `k` columns, there and back on every instruction set.
fn round_trip(name: &str, r: usize, k: usize, w: &Planes) {
    let (stored, form) = (quant::scheme(name).unwrap(), quant::interleaved(name, r).unwrap());
    let row = stored.plane_bytes(&stored.planes[0], &Shape::from([1, k as u64])).unwrap() as usize;
    let rows = w.0[0].len() / row;

    let mut reference = Planes::of(&form, rows, k, 0xAA);
    quant::repack_with(Isa::Scalar, &stored, &form, k, &w.get(), &mut reference.get_mut());
    for isa in Isa::available() {
        let mut packed = Planes::of(&form, rows, k, 0x55);
        quant::repack_with(isa, &stored, &form, k, &w.get(), &mut packed.get_mut());
        assert!(packed == reference, "`{form}` by {}", isa.name());
        let mut back = Planes::of(&stored, rows, k, 0x55);
        quant::repack_with(isa, &form, &stored, k, &packed.get(), &mut back.get_mut());
        assert!(back == *w, "`{form}` and back by {}", isa.name());
    }

    // Decoding the form gives the same as decoding the rows, for any bits of the scales.
    let values = |name: &str, w: &Planes| {
        let mut out = vec![0.0; rows * k];
        let matrix = Matrix { planes: &w.get(), rows, k };
        quant::codec(name).unwrap().decode(matrix, 0..rows, &mut out);
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let want = values(name, w);
    let found = values(&form.name, &reference);
    for (i, found) in found.iter().enumerate() {
        assert_eq!(*found, want[i], "`{form}` at [{}, {}]", i / k, i % k);
    }
    for row in [0, rows - 1, rows / 2] {
        for (scheme, w) in [(&stored, w), (&form, &reference)] {
            let mut out = vec![0.0; k];
            quant::decode_row(scheme, Matrix { planes: &w.get(), rows, k }, row, &mut out);
            let out: Vec<u32> = out.into_iter().map(f32::to_bits).collect();
            assert_eq!(out, want[row * k..][..k], "row {row} of `{scheme}`");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_come_back_bit_for_bit(seed in 1u64.., units in 1usize..5, groups in 1usize..4) {
        for name in &packable() {
            for r in [8, 16] {
                let k = units * unit(name);
                let mut w = Planes::of(&quant::scheme(name).unwrap(), groups * r, k, 0);
                let mut noise = Noise(seed);
                for plane in &mut w.0 {
                    *plane = noise.bytes(plane.len());
                }
                round_trip(name, r, k, &w);
            }
        }
    }
}

#[test]
fn each_single_bit_comes_back() {
    for name in &packable() {
        let k = unit(name);
        let (stored, form) = (quant::scheme(name).unwrap(), quant::interleaved(name, 8).unwrap());
        let (zeros, mut empty) = (Planes::of(&stored, 8, k, 0), Planes::of(&form, 8, k, 0));
        quant::repack(&stored, &form, k, &zeros.get(), &mut empty.get_mut());
        let mut units = empty.clone();
        for plane in 0..zeros.0.len() {
            let row = zeros.0[plane].len() / 8;
            for bit in 0..8 * row {
                let mut w = zeros.clone();
                w.0[plane][3 * row + bit / 8] = 1 << (bit % 8);
                quant::repack(&stored, &form, k, &w.get(), &mut units.get_mut());
                let bytes = units.0.iter().flatten().zip(empty.0.iter().flatten());
                let changed: u32 = bytes.map(|(a, b)| (a ^ b).count_ones()).sum();
                // The exponents of MXFP4 become floats; all other bits only move.
                let widened = match &**name {
                    "mxfp4" => bit % (17 * 8) < 8,
                    "mlx-mxfp4" | "mxfp4-split" => plane == 1,
                    _ => false,
                };
                assert!(changed == 1 || widened, "`{name}`, plane {plane}, bit {bit}: {changed} changed");
                let mut back = Planes::of(&stored, 8, k, 0xFF);
                quant::repack(&form, &stored, k, &units.get(), &mut back.get_mut());
                assert!(back == w, "`{name}`, plane {plane}, bit {bit}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "are not forms of each other")]
fn schemes_that_do_not_belong_together_are_refused() {
    let (q4_0, q4_1) = (quant::scheme("q4_0").unwrap(), quant::interleaved("q4_1", 8).unwrap());
    quant::repack(&q4_0, &q4_1, 64, &[&[0; 8 * 36]], &mut [&mut [0; 320]]);
}

#[test]
#[should_panic(expected = "are not units of 64")]
fn columns_that_cut_a_unit_are_refused() {
    let (q4_0, form) = (quant::scheme("q4_0").unwrap(), quant::interleaved("q4_0", 8).unwrap());
    quant::repack(&q4_0, &form, 96, &[&[0; 8 * 54]], &mut [&mut [0; 8 * 54]]);
}

#[test]
#[should_panic(expected = "bytes do not become")]
fn planes_of_different_matrices_are_refused() {
    let name = "squish-int8:row";
    let (stored, form) = (quant::scheme(name).unwrap(), quant::interleaved(name, 8).unwrap());
    let (mut w, mut packed) = (Planes::of(&stored, 8, 64, 0), Planes::of(&form, 8, 64, 0));
    w.0[1].truncate(7 * 4);
    quant::repack(&stored, &form, 64, &w.get(), &mut packed.get_mut());
}
