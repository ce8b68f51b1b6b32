//! Two groups of lanes as one of twice the rows: sixteen rows with 256-bit vectors.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each function has the contract of the one that it calls for either half"
)]

use super::Lanes;

/// The first half of the lanes in one `V`, the second in another.
pub(crate) struct Pair<V>(std::marker::PhantomData<V>);

impl<V: Lanes> Lanes for Pair<V> {
    const N: usize = 2 * V::N;
    const REGISTERS: usize = V::REGISTERS / 2;
    const KEEPS: bool = V::KEEPS;
    type I = [V::I; 2];
    type F = [V::F; 2];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::I {
        unsafe { [V::load(p), V::load(p.add(4 * V::N))] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::I) {
        unsafe {
            V::store(p, v[0]);
            V::store(p.add(4 * V::N), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        unsafe { [V::load_u8(p), V::load_u8(p.add(V::N))] }
    }
    #[inline(always)]
    unsafe fn load_u16(p: *const u8) -> Self::I {
        unsafe { [V::load_u16(p), V::load_u16(p.add(2 * V::N))] }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> Self::F {
        unsafe { [V::load_f(p), V::load_f(p.add(V::N))] }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, v: Self::F) {
        unsafe {
            V::store_f(p, v[0]);
            V::store_f(p.add(V::N), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, a: Self::I) {
        unsafe {
            V::store_bytes(p, a[0]);
            V::store_bytes(p.add(V::N), a[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u8) -> Self::F {
        unsafe { [V::load_half(p), V::load_half(p.add(2 * V::N))] }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self::F {
        unsafe { [V::load_bf16(p), V::load_bf16(p.add(2 * V::N))] }
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> Self::I {
        unsafe { [V::splat(v); 2] }
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> Self::F {
        unsafe { [V::splat_f(v); 2] }
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, mask: u32) -> Self::I {
        unsafe { [V::and(a[0], mask), V::and(a[1], mask)] }
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        unsafe { [V::or(a[0], b[0]), V::or(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn xor(a: Self::I, mask: u32) -> Self::I {
        unsafe { [V::xor(a[0], mask), V::xor(a[1], mask)] }
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, n: u32) -> Self::I {
        unsafe { [V::shl(a[0], n), V::shl(a[1], n)] }
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, n: u32) -> Self::I {
        unsafe { [V::shr(a[0], n), V::shr(a[1], n)] }
    }
    #[inline(always)]
    unsafe fn high_nibbles(a: Self::I) -> Self::I {
        unsafe { [V::high_nibbles(a[0]), V::high_nibbles(a[1])] }
    }
    #[inline(always)]
    unsafe fn top_byte(a: Self::I) -> Self::I {
        unsafe { [V::top_byte(a[0]), V::top_byte(a[1])] }
    }
    #[inline(always)]
    unsafe fn pick(a: Self::I, from: [u8; 4]) -> Self::I {
        unsafe { [V::pick(a[0], from), V::pick(a[1], from)] }
    }
    #[inline(always)]
    unsafe fn lookup(a: Self::I, table: &'static [u8; 16]) -> Self::I {
        unsafe { [V::lookup(a[0], table), V::lookup(a[1], table)] }
    }
    #[inline(always)]
    unsafe fn dot_halves(a: Self::I, b: Self::I) -> Self::I {
        unsafe { [V::dot_halves(a[0], b[0]), V::dot_halves(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        unsafe { [V::to_f(a[0]), V::to_f(a[1])] }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        unsafe { [V::add(a[0], b[0]), V::add(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        unsafe { [V::mul(a[0], b[0]), V::mul(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { [V::fma(a[0], b[0], c[0]), V::fma(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { [V::fnma(a[0], b[0], c[0]), V::fnma(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn round(a: Self::F, b: Self::F) -> Self::I {
        unsafe { [V::round(a[0], b[0]), V::round(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        unsafe { V::sum(V::add(a[0], a[1])) }
    }
    #[inline(always)]
    unsafe fn sum_i(a: Self::I) -> i32 {
        unsafe { V::sum_i(a[0]) + V::sum_i(a[1]) }
    }
    #[inline(always)]
    unsafe fn max_bits(a: Self::F, b: Self::F) -> u32 {
        unsafe { V::max_bits(a[0], a[1]).max(V::max_bits(b[0], b[1])) }
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const M: usize, const CHAINS: usize>(
        v: &[Self::I; M],
        x: *const i8,
        zero: i32,
        minus: i32,
    ) -> Self::I {
        let (low, high) = (v.map(|v| v[0]), v.map(|v| v[1]));
        unsafe {
            [
                V::dot::<BITS, M, CHAINS>(&low, x, zero, minus),
                V::dot::<BITS, M, CHAINS>(&high, x, zero, minus),
            ]
        }
    }
    #[inline(always)]
    unsafe fn gather(rows: *const u8, stride: usize) -> [Self::I; 4] {
        let [low, high] = unsafe { [V::gather(rows, stride), V::gather(rows.add(V::N * stride), stride)] };
        [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]], [low[3], high[3]]]
    }
    #[inline(always)]
    unsafe fn scatter(words: [Self::I; 4], rows: *mut u8, stride: usize) {
        unsafe {
            V::scatter(words.map(|w| w[0]), rows, stride);
            V::scatter(words.map(|w| w[1]), rows.add(V::N * stride), stride);
        }
    }
}
