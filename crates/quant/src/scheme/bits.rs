//! Codes of a few bits.

/// Code `i` of a stream of `bits` (at most 8) bits each, lowest bits first.
#[inline(always)]
pub(super) fn code(stream: &[u8], bits: usize, i: usize) -> u8 {
    let (byte, shift) = (i * bits / 8, i * bits % 8);
    let next = if shift + bits > 8 { stream[byte + 1] } else { 0 };
    let both = u16::from_le_bytes([stream[byte], next]);
    (both >> shift & ((1 << bits) - 1)) as u8
}

/// Unpacks the codes from `first` on until `out` is full: eight at a time where both are multiples of eight.
#[inline(always)]
pub(super) fn unpack(stream: &[u8], bits: usize, first: usize, out: &mut [u8]) {
    if !first.is_multiple_of(8) || !out.len().is_multiple_of(8) {
        out.iter_mut().enumerate().for_each(|(i, out)| *out = code(stream, bits, first + i));
        return;
    }
    let stream = &stream[first / 8 * bits..][..out.len() / 8 * bits];
    match bits {
        1 => eights::<1>(stream, out),
        2 => eights::<2>(stream, out),
        3 => eights::<3>(stream, out),
        4 => {
            for (byte, out) in stream.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = [byte & 15, byte >> 4];
            }
        }
        5 => eights::<5>(stream, out),
        6 => eights::<6>(stream, out),
        7 => eights::<7>(stream, out),
        _ => out.copy_from_slice(stream),
    }
}

/// Eight codes from each `BITS` bytes.
#[inline(always)]
fn eights<const BITS: usize>(stream: &[u8], out: &mut [u8]) {
    for (bytes, out) in stream.as_chunks::<BITS>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (i, out) in out.iter_mut().enumerate() {
            *out = (word >> (i * BITS)) as u8 & ((1 << BITS) - 1);
        }
    }
}

/// Puts code `i` into a stream where its bits are still zero.
#[inline(always)]
pub(super) fn put_code(stream: &mut [u8], bits: usize, i: usize, code: u8) {
    let (byte, shift) = (i * bits / 8, i * bits % 8);
    let [low, high] = (u16::from(code) << shift).to_le_bytes();
    stream[byte] |= low;
    if shift + bits > 8 {
        stream[byte + 1] |= high;
    }
}

/// Replaces a stream by one of `codes`: of rows that end with their bytes.
pub(super) fn put_codes(stream: &mut [u8], bits: usize, codes: &[u8]) {
    stream.fill(0);
    for (i, code) in codes.iter().enumerate() {
        put_code(stream, bits, i, *code);
    }
}

/// Codes of some bits, packed from the lowest bit on into little-endian words of 32 bits: as few words as
/// hold whole codes. Codes of three bits may lie across two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Bits of a code.
    pub(super) bits: usize,
    /// Codes in a run.
    pub(super) per: usize,
    /// Words of a run.
    pub(super) words: usize,
}

impl Run {
    /// Runs of codes of 1 to 8 bits.
    pub(super) const fn of(bits: usize) -> Run {
        // A power of two that divides both.
        let common = 1 << bits.trailing_zeros();
        Run { bits, per: 32 / common, words: bits / common }
    }

    /// The run that starts at word `at` of `plane`; its words lie `stride` words apart.
    #[inline(always)]
    pub(super) fn get(self, plane: &[u8], at: usize, stride: usize) -> Stream {
        let words = plane.as_chunks::<4>().0;
        let word = |w: usize| u128::from(u32::from_le_bytes(words[at + w * stride]));
        let low = word(0);
        Stream((1..self.words).fold(low, |stream, w| stream | word(w) << (32 * w)), self.bits)
    }

    /// Writes a run of codes where [`Run::get`] reads it.
    pub(super) fn put(self, codes: impl IntoIterator<Item = u8>, plane: &mut [u8], at: usize, stride: usize) {
        let mask = (1u128 << self.bits) - 1;
        let code = |(i, code)| (u128::from(code) & mask) << (i * self.bits);
        let stream = codes.into_iter().take(self.per).enumerate().map(code).fold(0, |all, code| all | code);
        let words = plane.as_chunks_mut::<4>().0;
        for w in 0..self.words {
            words[at + w * stride] = ((stream >> (32 * w)) as u32).to_le_bytes();
        }
    }
}

/// The codes of one run.
#[derive(Clone, Copy)]
pub(super) struct Stream(u128, usize);

impl Stream {
    /// Code `i`.
    #[inline(always)]
    pub(super) fn code(self, i: usize) -> i32 {
        let mask = (1i32 << self.1) - 1;
        // At most two words of a run of one word are read: then the narrow shift does.
        (self.0 >> (i * self.1)) as i32 & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_from_a_stream() {
        for bits in 1..=8 {
            let codes: Vec<u8> = (0..64).map(|i| (i * 37 % (1 << bits)) as u8).collect();
            let mut stream = vec![0; 8 * bits];
            for (i, c) in codes.iter().enumerate() {
                put_code(&mut stream, bits, i, *c);
            }
            let back: Vec<u8> = (0..64).map(|i| code(&stream, bits, i)).collect();
            for (first, n) in [(0, 64), (8, 48), (16, 3), (5, 16)] {
                let mut some = vec![0xEE; n];
                unpack(&stream, bits, first, &mut some);
                assert_eq!(some, back[first..][..n], "{bits} bits from {first}");
            }
            assert_eq!(back, codes, "{bits} bits");
        }
    }

    #[test]
    fn runs_are_the_shortest_of_whole_words() {
        let of = |bits| (Run::of(bits).per, Run::of(bits).words);
        assert_eq!([2, 3, 4, 5, 6, 8].map(of), [(16, 1), (32, 3), (8, 1), (32, 5), (16, 3), (4, 1)]);
    }

    #[test]
    fn codes_come_back_from_words_that_lie_apart() {
        for bits in [1, 2, 3, 4, 5, 6, 7, 8] {
            let run = Run::of(bits);
            if 32 * run.words > 128 {
                continue;
            }
            let mut plane = vec![0; 4 * (run.words * 3 + 1)];
            let codes: Vec<u8> =
                (0..run.per).map(|i| (i * 37 + 5) as u8 & ((1u16 << bits) - 1) as u8).collect();
            run.put(codes.iter().copied(), &mut plane, 1, 3);
            let back = run.get(&plane, 1, 3);
            assert!((0..run.per).all(|i| back.code(i) == i32::from(codes[i])), "{bits} bits");
        }
    }
}
