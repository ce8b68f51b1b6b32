//! Random numbers.

/// PCG32 (XSH-RR), M. E. O'Neill, <https://www.pcg-random.org>: small, and the same on every machine.
pub(crate) struct Pcg32 {
    state: u64,
}

impl Pcg32 {
    const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
    const INCREMENT: u64 = 1_442_695_040_888_963_407;

    pub(crate) fn new(seed: u64) -> Pcg32 {
        let mut random = Pcg32 { state: seed.wrapping_add(Self::INCREMENT) };
        random.next();
        random
    }

    fn next(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(Self::MULTIPLIER).wrapping_add(Self::INCREMENT);
        let xored = (((old >> 18) ^ old) >> 27) as u32;
        xored.rotate_right((old >> 59) as u32)
    }

    /// In [0, 1), 53 bits.
    pub(crate) fn uniform(&mut self) -> f64 {
        let bits = (u64::from(self.next()) << 32 | u64::from(self.next())) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}
