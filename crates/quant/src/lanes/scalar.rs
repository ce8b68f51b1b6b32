//! Lanes in plain Rust: the reference that every other implementation is tested against. Operations stay functions,
//! since a kernel with all of them written out for each lane takes long to compile and is no faster.

use super::{Lanes, NONE};
use crate::float16::Half;

/// `N` lanes, one after the other.
pub(crate) struct Scalar<const N: usize>;

/// The `N` words at `p`.
#[inline(always)]
unsafe fn words<const N: usize>(p: *const u8) -> [u32; N] {
    // SAFETY: the caller gives `4 * N` readable bytes, of any alignment.
    unsafe { p.cast::<[u32; N]>().read_unaligned() }
}

impl<const N: usize> Lanes for Scalar<N> {
    const N: usize = N;
    const REGISTERS: usize = 16;
    type I = [u32; N];
    type F = [f32; N];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> [u32; N] {
        // SAFETY: as this function.
        unsafe { words(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: [u32; N]) {
        // SAFETY: the caller gives `4 * N` writable bytes.
        unsafe { p.cast::<[u32; N]>().write_unaligned(v) }
    }
    #[inline(never)]
    unsafe fn load_u8(p: *const u8) -> [u32; N] {
        // SAFETY: the caller gives `N` readable bytes.
        unsafe { p.cast::<[u8; N]>().read_unaligned() }.map(u32::from)
    }
    #[inline(always)]
    unsafe fn load_u16(p: *const u8) -> [u32; N] {
        // SAFETY: the caller gives `2 * N` readable bytes.
        unsafe { p.cast::<[u16; N]>().read_unaligned() }.map(u32::from)
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> [f32; N] {
        // SAFETY: the caller gives `N` readable floats.
        unsafe { p.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, v: [f32; N]) {
        // SAFETY: the caller gives `N` writable floats.
        unsafe { p.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(never)]
    unsafe fn load_half(p: *const u8) -> [f32; N] {
        // SAFETY: the caller gives `2 * N` readable bytes.
        let bits = unsafe { p.cast::<[u16; N]>().read_unaligned() };
        bits.map(|b| Half::from_bits(b).to_f32())
    }
    #[inline(never)]
    unsafe fn load_bf16(p: *const u8) -> [f32; N] {
        // SAFETY: the caller gives `2 * N` readable bytes.
        let bits = unsafe { p.cast::<[u16; N]>().read_unaligned() };
        bits.map(|b| f32::from_bits(u32::from(b) << 16))
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> [u32; N] {
        [v; N]
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> [f32; N] {
        [v; N]
    }
    #[inline(never)]
    unsafe fn and(a: [u32; N], mask: u32) -> [u32; N] {
        a.map(|a| a & mask)
    }
    #[inline(never)]
    unsafe fn or(a: [u32; N], b: [u32; N]) -> [u32; N] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(never)]
    unsafe fn xor(a: [u32; N], mask: u32) -> [u32; N] {
        a.map(|a| a ^ mask)
    }
    #[inline(never)]
    unsafe fn shl(a: [u32; N], n: u32) -> [u32; N] {
        a.map(|a| a << n)
    }
    #[inline(never)]
    unsafe fn shr(a: [u32; N], n: u32) -> [u32; N] {
        a.map(|a| a >> n)
    }
    #[inline(never)]
    unsafe fn top_byte(a: [u32; N]) -> [u32; N] {
        a.map(|a| (a.cast_signed() >> 24).cast_unsigned())
    }
    #[inline(never)]
    unsafe fn pick(a: [u32; N], from: [u8; 4]) -> [u32; N] {
        let byte = |a: u32, from: u8| if from == NONE { 0 } else { a.to_le_bytes()[from as usize] };
        a.map(|a| u32::from_le_bytes(from.map(|from| byte(a, from))))
    }
    #[inline(never)]
    unsafe fn lookup(a: [u32; N], table: &'static [u8; 16]) -> [u32; N] {
        a.map(|a| u32::from_le_bytes(a.to_le_bytes().map(|i| table[i as usize])))
    }
    #[inline(never)]
    unsafe fn dot_halves(a: [u32; N], b: [u32; N]) -> [u32; N] {
        let low = |a: u32| a.cast_signed() << 16 >> 16;
        let high = |a: u32| a.cast_signed() >> 16;
        std::array::from_fn(|i| (low(a[i]) * low(b[i]) + high(a[i]) * high(b[i])).cast_unsigned())
    }
    #[inline(never)]
    unsafe fn to_f(a: [u32; N]) -> [f32; N] {
        a.map(|a| a.cast_signed() as f32)
    }
    #[inline(never)]
    unsafe fn add(a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(never)]
    unsafe fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(never)]
    unsafe fn fma(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(never)]
    unsafe fn fnma(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }
    #[inline(never)]
    unsafe fn sum(mut a: [f32; N]) -> f32 {
        let mut half = N / 2;
        while half > 0 {
            for i in 0..half {
                a[i] += a[i + half];
            }
            half /= 2;
        }
        a[0]
    }
    #[inline(never)]
    unsafe fn sum_i(a: [u32; N]) -> i32 {
        a.iter().map(|a| a.cast_signed()).sum()
    }
    #[inline(never)]
    unsafe fn max_bits(a: [f32; N], b: [f32; N]) -> u32 {
        // The bits of non-negative floats are in the order of their values, and NaN comes out on top.
        a.iter().chain(&b).fold(0, |max, a| max.max(a.to_bits() & 0x7FFF_FFFF))
    }
    #[inline(never)]
    unsafe fn round(a: [f32; N], b: [f32; N]) -> [u32; N] {
        // Added to 1.5 * 2^23, a small number is rounded to an integer in the low bits of the sum.
        const MAGIC: f32 = 12_582_912.0;
        std::array::from_fn(|i| (a[i] * b[i] + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()))
    }
    #[inline(never)]
    unsafe fn store_bytes(p: *mut u8, a: [u32; N]) {
        // SAFETY: the caller gives `N` writable bytes.
        unsafe { p.cast::<[u8; N]>().write(a.map(|a| a as u8)) }
    }
    #[inline(never)]
    unsafe fn dot<const BITS: u32, const M: usize, const CHAINS: usize>(
        v: &[[u32; N]; M],
        x: *const i8,
        zero: i32,
        minus: i32,
    ) -> [u32; N] {
        let mut sum = [zero * minus; N];
        for (j, v) in v.iter().enumerate() {
            // SAFETY: the caller gives `4 * M` readable bytes.
            let x = unsafe { x.add(4 * j).cast::<[i8; 4]>().read_unaligned() };
            for (sum, v) in sum.iter_mut().zip(v) {
                *sum += v.to_le_bytes().iter().zip(x).map(|(v, x)| *v as i32 * x as i32).sum::<i32>();
            }
        }
        sum.map(i32::cast_unsigned)
    }
    #[inline(never)]
    unsafe fn gather(rows: *const u8, stride: usize) -> [[u32; N]; 4] {
        // SAFETY: the caller gives 16 readable bytes in each of `N` rows.
        let rows: [[u32; 4]; N] = std::array::from_fn(|i| unsafe { words(rows.add(i * stride)) });
        std::array::from_fn(|j| rows.map(|row| row[j]))
    }
    #[inline(never)]
    unsafe fn scatter(words: [[u32; N]; 4], rows: *mut u8, stride: usize) {
        for i in 0..N {
            // SAFETY: the caller gives 16 writable bytes in each of `N` rows.
            unsafe { rows.add(i * stride).cast::<[u32; 4]>().write_unaligned(words.map(|word| word[i])) }
        }
    }
    #[inline(always)]
    fn prefetch(_: *const u8) {}
}
