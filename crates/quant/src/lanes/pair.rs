//! Two groups of lanes as one of twice the rows: sixteen rows with 256-bit vectors.

use super::Lanes;

/// The first half of the lanes in one `V`, the second in another.
pub(crate) struct Pair<V>(std::marker::PhantomData<V>);

macro_rules! both {
    ($($a:ident),* => $e:expr) => {{
        let ($($a,)*) = ($(&$a,)*);
        let at = |h: usize| { $(let $a = $a[h];)* $e };
        [at(0), at(1)]
    }};
}

#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each function has the contract of the one it calls twice"
)]
impl<V: Lanes> Lanes for Pair<V> {
    const N: usize = 2 * V::N;
    type I = [V::I; 2];
    type F = [V::F; 2];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::I {
        unsafe { [V::load(p), V::load(p.add(4 * V::N))] }
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
    unsafe fn load_half(p: *const u8) -> Self::F {
        unsafe { [V::load_half(p), V::load_half(p.add(2 * V::N))] }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self::F {
        unsafe { [V::load_bf16(p), V::load_bf16(p.add(2 * V::N))] }
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> Self::F {
        unsafe { [V::splat_f(v); 2] }
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, mask: u32) -> Self::I {
        both!(a => unsafe { V::and(a, mask) })
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        both!(a, b => unsafe { V::or(a, b) })
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, n: u32) -> Self::I {
        both!(a => unsafe { V::shl(a, n) })
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, n: u32) -> Self::I {
        both!(a => unsafe { V::shr(a, n) })
    }
    #[inline(always)]
    unsafe fn top_byte(a: Self::I) -> Self::I {
        both!(a => unsafe { V::top_byte(a) })
    }
    #[inline(always)]
    unsafe fn fifth_bit(a: Self::I, j: usize) -> Self::I {
        both!(a => unsafe { V::fifth_bit(a, j) })
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        both!(a => unsafe { V::to_f(a) })
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        both!(a, b => unsafe { V::mul(a, b) })
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(a, b, c => unsafe { V::fma(a, b, c) })
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(a, b, c => unsafe { V::fnma(a, b, c) })
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const M: usize>(v: &[Self::I; M], x: *const i8, offset: i32) -> Self::I {
        let half = |h: usize| unsafe { V::dot::<BITS, M>(&std::array::from_fn(|j| v[j][h]), x, offset) };
        [half(0), half(1)]
    }
    #[inline(always)]
    unsafe fn gather<const FLIP: bool>(rows: *const u8, stride: usize, out: *mut u8, pitch: usize) {
        unsafe {
            V::gather::<FLIP>(rows, stride, out, pitch);
            V::gather::<FLIP>(rows.add(V::N * stride), stride, out.add(4 * V::N), pitch);
        }
    }
    #[inline(always)]
    unsafe fn scatter<const FLIP: bool>(words: *const u8, pitch: usize, rows: *mut u8, stride: usize) {
        unsafe {
            V::scatter::<FLIP>(words, pitch, rows, stride);
            V::scatter::<FLIP>(words.add(4 * V::N), pitch, rows.add(V::N * stride), stride);
        }
    }
    #[inline(always)]
    fn prefetch(p: *const u8) {
        V::prefetch(p);
    }
}
