//! Upper bounds of a kernel on this machine: plain reads of memory, and bare products from registers and the
//! first-level cache.

use crate::isa::{Isa, per_isa};
use crate::lanes::{Lanes, for_lanes, prefetch};

/// Bytes from one place before the next has its turn.
const TURN: usize = 1024;

/// A way to read memory, of which [`read`] takes what a machine likes best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPattern {
    /// Places that are read in turns.
    pub streams: usize,
    /// Prefetch distance in bytes; 0 prefetches nothing.
    pub ahead: usize,
}

impl ReadPattern {
    /// The ways worth trying.
    pub fn ways() -> impl Iterator<Item = ReadPattern> {
        [1, 2, 4]
            .into_iter()
            .flat_map(|streams| [0, 1024, 4096, 6144].map(|ahead| ReadPattern { streams, ahead }))
    }
}

per_isa! {
    /// Reads all of `bytes` but for less than 128 at the end, and returns a word that depends on all of them, so that
    /// no read is optimised away.
    pub fn read(how: ReadPattern, bytes: &[u8]) -> u64 = read_body
}
#[inline(always)]
fn read_body<const FMA: bool>(how: ReadPattern, bytes: &[u8]) -> u64 {
    let turns = bytes.len() / TURN / how.streams;
    let mut sums = [0u64; 16];
    for turn in 0..turns {
        for stream in 0..how.streams {
            let place = &bytes[(stream * turns + turn) * TURN..][..TURN];
            for lines in place.as_chunks::<128>().0 {
                if how.ahead > 0 {
                    prefetch(lines.as_ptr().wrapping_add(how.ahead));
                    prefetch(lines.as_ptr().wrapping_add(how.ahead + 64));
                }
                for (sum, word) in sums.iter_mut().zip(lines.as_chunks::<8>().0) {
                    *sum ^= u64::from_ne_bytes(*word);
                }
            }
        }
    }
    for lines in bytes[how.streams * turns * TURN..].as_chunks::<128>().0 {
        for (sum, word) in sums.iter_mut().zip(lines.as_chunks::<8>().0) {
            *sum ^= u64::from_ne_bytes(*word);
        }
    }
    sums.iter().fold(0, |a, b| a ^ b)
}

/// Vectors of codes in one product of [`multiply`].
const VECTORS: usize = 8;
/// Rows of activations in one.
const ROWS: usize = 4;

/// Runs `rounds` rounds of products of bytes as the kernels do them, without scales and without memory. Returns the
/// number of pairs of bytes multiplied and added.
pub fn multiply(isa: Isa, rounds: usize) -> u64 {
    let mut lanes = 0;
    let mut sums = [0.0; 16];
    // SAFETY: the instructions are there, since an `Isa` is a witness of its own, and 16 floats are enough for all
    // lanes.
    unsafe { multiply_of(isa, isa.interleave().unwrap_or(8))(rounds, &mut lanes, &mut sums) }
    std::hint::black_box(sums);
    (rounds * VECTORS * ROWS * 4 * lanes) as u64
}

for_lanes! {
    /// # Safety
    /// As [`Lanes`].
    fn multiply_of<>(rounds: usize, lanes: &mut usize, sums: &mut [f32; 16]) = multiply_all
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn multiply_all<V: Lanes>(rounds: usize, lanes: &mut usize, sums: &mut [f32; 16]) {
    let codes = [1u8; VECTORS * 64];
    let x = std::hint::black_box([1i8; ROWS * VECTORS * 4]);
    // SAFETY: as this function; there are as many bytes as are read.
    unsafe {
        let mut total = [V::splat_f(0.0); ROWS];
        for _ in 0..rounds {
            let codes = std::hint::black_box(codes.as_ptr());
            let mut vectors = [V::splat(0); VECTORS];
            for (i, vector) in vectors.iter_mut().enumerate() {
                *vector = V::load(codes.add(i * 4 * V::N));
            }
            for (row, total) in total.iter_mut().enumerate() {
                let products = V::dot::<7, VECTORS, 2>(&vectors, x.as_ptr().add(row * 4 * VECTORS), 0, 0);
                *total = V::add(*total, V::to_f(products));
            }
        }
        *lanes = V::N;
        for total in total {
            let mut all = [0.0; 16];
            V::store_f(all.as_mut_ptr(), total);
            sums.iter_mut().zip(all).for_each(|(sum, x)| *sum += x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_whatever_the_way() {
        let mut bytes = vec![0u8; 8 * TURN];
        for isa in Isa::available() {
            for how in ReadPattern::ways() {
                assert_eq!(read(isa, how, &bytes), 0);
                for i in (0..bytes.len()).step_by(97) {
                    bytes[i] = 1;
                    assert_ne!(read(isa, how, &bytes), 0, "{isa:?} {how:?} misses byte {i}");
                    bytes[i] = 0;
                }
            }
        }
    }

    #[test]
    fn products_are_counted() {
        for isa in Isa::available() {
            let lanes = isa.interleave().unwrap_or(8);
            assert_eq!(multiply(isa, 10), (10 * 8 * 4 * 4 * lanes) as u64);
        }
    }
}
