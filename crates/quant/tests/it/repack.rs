//! Repacking is exact and invertible, and every instruction set does the same.

use proptest::prelude::*;
use quant::{Isa, Matrix};
use tensor::Shape;

use crate::{BLOCKS, Noise};

/// `rows` rows of `k` columns of `bytes`, there and back on every instruction set.
fn round_trip(name: &str, r: usize, k: usize, bytes: &[u8]) {
    let (stored, form) = (quant::scheme(name).unwrap(), quant::interleaved(name, r).unwrap());
    let row = stored.byte_len(&Shape::from([k as u64])).unwrap() as usize;
    let rows = bytes.len() / row;
    let len = form.byte_len(&Shape::from([rows as u64, k as u64])).unwrap() as usize;

    let mut reference = vec![0xAA; len];
    quant::repack_with(Isa::Scalar, &stored, &form, k, bytes, &mut reference);
    for isa in Isa::available() {
        let mut packed = vec![0x55; len];
        quant::repack_with(isa, &stored, &form, k, bytes, &mut packed);
        assert_eq!(packed, reference, "`{form}` by {}", isa.name());
        let mut back = vec![0x55; bytes.len()];
        quant::repack_with(isa, &form, &stored, k, &packed, &mut back);
        assert_eq!(back, bytes, "`{form}` and back by {}", isa.name());
    }

    // Decoding the form gives what decoding the rows gives, whatever the bits of the scales.
    let values = |name: &str, bytes: &[u8], n: usize| {
        let mut out = vec![0.0; n];
        let matrix = Matrix { planes: &[bytes], rows: n / k, k };
        quant::codec(name).unwrap().decode(matrix, 0..n / k, &mut out);
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let want = values(name, bytes, rows * k);
    let found = values(&form.name, &reference, rows * k);
    for (i, found) in found.iter().enumerate() {
        assert_eq!(*found, want[i], "`{form}` at [{}, {}]", i / k, i % k);
    }
    for row in [0, rows - 1, rows / 2] {
        for (scheme, w) in [(&stored, bytes), (&form, &reference)] {
            let mut out = vec![0.0; k];
            quant::decode_row(scheme, Matrix { planes: &[w], rows, k }, row, &mut out);
            let out: Vec<u32> = out.into_iter().map(f32::to_bits).collect();
            assert_eq!(out, want[row * k..][..k], "row {row} of `{scheme}`");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_come_back_bit_for_bit(seed in 1u64.., units in 1usize..5, groups in 1usize..4) {
        for name in BLOCKS {
            for r in [8, 16] {
                let codec = quant::codec(name).unwrap();
                let k = units * if codec.per() == 32 { 64 } else { 256 };
                let bytes = Noise(seed).bytes(groups * r * k / codec.per() * codec.cell_bytes());
                round_trip(name, r, k, &bytes);
            }
        }
    }
}

#[test]
fn each_single_bit_comes_back() {
    for name in BLOCKS {
        let codec = quant::codec(name).unwrap();
        let k = if codec.per() == 32 { 64 } else { 256 };
        let row = k / codec.per() * codec.cell_bytes();
        let (stored, form) = (quant::scheme(name).unwrap(), quant::interleaved(name, 8).unwrap());
        let mut units = vec![0; form.byte_len(&Shape::from([8, k as u64])).unwrap() as usize];
        let empty = {
            quant::repack(&stored, &form, k, &vec![0; 8 * row], &mut units);
            units.clone()
        };
        for bit in 0..8 * row {
            let mut bytes = vec![0; 8 * row];
            bytes[3 * row + bit / 8] = 1 << (bit % 8);
            quant::repack(&stored, &form, k, &bytes, &mut units);
            let changed: u32 = units.iter().zip(&empty).map(|(a, b)| (a ^ b).count_ones()).sum();
            // The exponents of MXFP4 become floats; all other bits only move.
            let widened = name == "mxfp4" && bit % (17 * 8) < 8;
            assert!(changed == 1 || widened, "`{name}`, bit {bit}: {changed} changed");
            let mut back = vec![0xFF; 8 * row];
            quant::repack(&form, &stored, k, &units, &mut back);
            assert_eq!(back, bytes, "`{name}`, bit {bit}");
        }
    }
}

#[test]
#[should_panic(expected = "are not forms of each other")]
fn schemes_that_do_not_belong_together_are_refused() {
    let (q4_0, q4_1) = (quant::scheme("q4_0").unwrap(), quant::interleaved("q4_1", 8).unwrap());
    quant::repack(&q4_0, &q4_1, 64, &[0; 8 * 36], &mut [0; 320]);
}

#[test]
#[should_panic(expected = "are not units of 64")]
fn columns_that_cut_a_unit_are_refused() {
    let (q4_0, form) = (quant::scheme("q4_0").unwrap(), quant::interleaved("q4_0", 8).unwrap());
    quant::repack(&q4_0, &form, 96, &[0; 8 * 54], &mut [0; 8 * 54]);
}
