//! Decode against vectors that the reference implementation made: `golden/blocks.py`.

use std::fs;

/// Every NaN in the vectors.
const NAN: u32 = 0x7fc0_0000;

/// The schemes that have vectors.
const NAMES: &[&str] = &[
    "f32", "f16", "bf16", "q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k",
    "q4_k", "q5_k", "q6_k", "q8_k", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
    "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4", "nvfp4",
];

pub(crate) fn golden(scheme: &str, file: &str) -> Vec<u8> {
    let path = testkit::golden(scheme).join(file);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn decode_equals_the_reference_bit_for_bit() {
    for name in NAMES {
        let codec = quant::codec(name).unwrap();
        let (blocks, values) = (golden(name, "blocks.bin"), golden(name, "values.bin"));
        let want: Vec<u32> =
            values.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let n = blocks.len() / codec.cell_bytes();
        assert!(n >= 64, "`{name}` has only {n} golden blocks");

        let mut out = vec![f32::NAN; want.len()];
        codec.decode_blocks(&blocks, &mut out);
        for (i, (found, want)) in out.iter().zip(&want).enumerate() {
            let at = (i / codec.per(), i % codec.per());
            // The bits of a NaN are the compiler's choice: the reference's are written as one of them.
            let found = if found.is_nan() { NAN } else { found.to_bits() };
            assert_eq!(found, *want, "`{name}`, value {} of block {}", at.1, at.0);
        }
    }
}
