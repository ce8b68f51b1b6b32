//! Eight rows in 256-bit vectors: once with AVX2 alone, once with the byte dot product of AVX-VNNI.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the contract of `Lanes`: the features are enabled where this is inlined, the pointers are valid"
)]

use std::arch::x86_64::*;

use super::{Lanes, Vectors};

/// AVX2 alone. Named for the encoding of its instructions. Used only behind an `Avx2` witness (or one of a
/// set that includes AVX2).
pub(crate) struct Vex;

/// With AVX-VNNI. Used only behind an `AvxVnni` witness.
pub(crate) struct VexVnni;

/// Words 4L..4L+4 of `v[i]` hold four words of row `4 L + i`; the result's `[j]` hold word `j` of those four
/// rows. It is its own inverse.
#[inline(always)]
unsafe fn transpose(v: [__m256i; 4]) -> [__m256i; 4] {
    unsafe {
        let lo = [_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpacklo_epi32(v[2], v[3])];
        let hi = [_mm256_unpackhi_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[2], v[3])];
        [
            _mm256_unpacklo_epi64(lo[0], lo[1]),
            _mm256_unpackhi_epi64(lo[0], lo[1]),
            _mm256_unpacklo_epi64(hi[0], hi[1]),
            _mm256_unpackhi_epi64(hi[0], hi[1]),
        ]
    }
}

#[inline(always)]
unsafe fn broadcast(x: *const i8, j: usize) -> __m256i {
    unsafe { _mm256_set1_epi32(x.cast::<i32>().add(j).read_unaligned()) }
}

/// Byte products by `vpmaddubsw`, summed in 16 bits for as long as they fit: of codes of `BITS` bits and
/// `|x| <= 127`, one pair is at most `2 * (2^BITS - 1) * 127`, so 8, 4, 2 and 1 vectors for 4 to 7 bits. Codes
/// of 8 bits are made signed, and their sign is moved to `x`: `2 * 128 * 127` just fits.
#[inline(always)]
unsafe fn dot_avx2<const BITS: u32, const M: usize>(
    v: &[__m256i; M],
    x: *const i8,
    zero: i32,
    minus: i32,
) -> __m256i {
    unsafe {
        let ones = _mm256_set1_epi16(1);
        if BITS == 8 {
            let mut sum = _mm256_set1_epi32((zero - 128) * minus);
            for (j, v) in v.iter().enumerate() {
                let w = _mm256_xor_si256(*v, _mm256_set1_epi8(-128));
                let products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(broadcast(x, j), w));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
            }
            return sum;
        }
        let fit = const { 128 >> BITS };
        let mut sum = _mm256_set1_epi32(zero * minus);
        for (c, v) in v.chunks(fit).enumerate() {
            let mut products = _mm256_maddubs_epi16(v[0], broadcast(x, c * fit));
            for (j, v) in v.iter().enumerate().skip(1) {
                let product = _mm256_maddubs_epi16(*v, broadcast(x, c * fit + j));
                products = _mm256_add_epi16(products, product);
            }
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
        }
        sum
    }
}

#[inline(always)]
unsafe fn dot_vnni<const BITS: u32, const M: usize>(
    v: &[__m256i; M],
    x: *const i8,
    zero: i32,
    minus: i32,
) -> __m256i {
    unsafe {
        let mut sum = _mm256_set1_epi32(zero * minus);
        for (j, v) in v.iter().enumerate() {
            sum = _mm256_dpbusd_avx_epi32(sum, *v, broadcast(x, j));
        }
        sum
    }
}

/// The same vector, where the compiler must have it by then, and no read of memory is moved across.
///
/// Without this it sorts the sums of several rows by rows again: a vector of codes then waits for all of them on the stack.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn made(mut v: __m256i) -> __m256i {
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) v, options(nostack, preserves_flags)) };
    v
}

/// The same statements for 0 to 7: where the compiler leaves a loop it keeps the sums in memory.
macro_rules! steps {
    ($j:ident => $step:block) => {
        steps!($j 0 $step);
        steps!($j 1 $step);
        steps!($j 2 $step);
        steps!($j 3 $step);
        steps!($j 4 $step);
        steps!($j 5 $step);
        steps!($j 6 $step);
        steps!($j 7 $step);
    };
    ($j:ident $value:literal $step:block) => {{
        let $j: usize = $value;
        $step
    }};
}

/// [`dot_avx2`] for `NT` rows at once.
#[inline(always)]
unsafe fn dots_avx2<V: Lanes<I = __m256i>, const BITS: u32, const NT: usize>(
    codes: &impl Vectors<V>,
    x: [*const i8; NT],
    zero: i32,
    minus: [i32; NT],
) -> [__m256i; NT] {
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let signed = BITS == 8;
        let fit = const { if BITS == 8 { 1 } else { 128 >> BITS } };
        let mut sums = [_mm256_setzero_si256(); NT];
        let mut products = [_mm256_setzero_si256(); NT];
        let zero = if signed { zero - 128 } else { zero };
        steps!(j => {
            let mut v = codes.vector(j);
            let mut magnitude = v;
            if signed {
                v = _mm256_xor_si256(v, _mm256_set1_epi8(-128));
                magnitude = _mm256_abs_epi8(v);
            }
            for t in 0..NT {
                let x = broadcast(x[t], j);
                let x = if signed { _mm256_sign_epi8(x, v) } else { x };
                let product = _mm256_maddubs_epi16(magnitude, x);
                products[t] = if j.is_multiple_of(fit) { product } else { _mm256_add_epi16(products[t], product) };
                if j % fit == fit - 1 || j == 7 {
                    let sum = _mm256_madd_epi16(products[t], ones);
                    sums[t] = if j < fit { sum } else { _mm256_add_epi32(sums[t], sum) };
                    sums[t] = made(sums[t]);
                } else {
                    products[t] = made(products[t]);
                }
            }
        });
        if zero != 0 {
            for (sum, minus) in sums.iter_mut().zip(minus) {
                *sum = _mm256_add_epi32(*sum, _mm256_set1_epi32(zero * minus));
            }
        }
        sums
    }
}

/// [`dot_vnni`] for `NT` rows at once.
#[inline(always)]
unsafe fn dots_vnni<V: Lanes<I = __m256i>, const BITS: u32, const NT: usize>(
    codes: &impl Vectors<V>,
    x: [*const i8; NT],
    zero: i32,
    minus: [i32; NT],
) -> [__m256i; NT] {
    unsafe {
        let mut sums = [_mm256_setzero_si256(); NT];
        if zero != 0 {
            for (sum, minus) in sums.iter_mut().zip(minus) {
                *sum = _mm256_set1_epi32(zero * minus);
            }
        }
        steps!(j => {
            let v = codes.vector(j);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = made(_mm256_dpbusd_avx_epi32(*sum, v, broadcast(x, j)));
            }
        });
        sums
    }
}

/// The bytes that a byte shuffle takes to do the same in each of four words.
#[inline(always)]
pub(super) unsafe fn in_each_word(from: [u8; 4]) -> __m128i {
    unsafe {
        let first = _mm_set_epi8(12, 12, 12, 12, 8, 8, 8, 8, 4, 4, 4, 4, 0, 0, 0, 0);
        _mm_add_epi8(first, _mm_set1_epi32(i32::from_le_bytes(from)))
    }
}

/// 16 bytes of every fourth row.
#[inline(always)]
unsafe fn two(rows: *const u8, stride: usize) -> __m256i {
    unsafe {
        let v = _mm256_castsi128_si256(_mm_loadu_si128(rows.cast()));
        _mm256_inserti128_si256::<1>(v, _mm_loadu_si128(rows.add(4 * stride).cast()))
    }
}

macro_rules! lanes {
    ($name:ident, $dot:ident, $dots:ident) => {
        impl Lanes for $name {
            const N: usize = 8;
            const REGISTERS: usize = 16;
            const TOGETHER: bool = true;
            type I = __m256i;
            type F = __m256;

            #[inline(always)]
            unsafe fn load(p: *const u8) -> __m256i {
                unsafe { _mm256_loadu_si256(p.cast()) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut u8, v: __m256i) {
                unsafe { _mm256_storeu_si256(p.cast(), v) }
            }
            #[inline(always)]
            unsafe fn load_u8(p: *const u8) -> __m256i {
                unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())) }
            }
            #[inline(always)]
            unsafe fn load_u16(p: *const u8) -> __m256i {
                unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())) }
            }
            #[inline(always)]
            unsafe fn load_f(p: *const f32) -> __m256 {
                unsafe { _mm256_loadu_ps(p) }
            }
            #[inline(always)]
            unsafe fn store_f(p: *mut f32, v: __m256) {
                unsafe { _mm256_storeu_ps(p, v) }
            }
            #[inline(always)]
            unsafe fn load_half(p: *const u8) -> __m256 {
                unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
            }
            #[inline(always)]
            unsafe fn load_bf16(p: *const u8) -> __m256 {
                unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(Self::load_u16(p))) }
            }
            #[inline(always)]
            unsafe fn splat(v: u32) -> __m256i {
                unsafe { _mm256_set1_epi32(v.cast_signed()) }
            }
            #[inline(always)]
            unsafe fn splat_f(v: f32) -> __m256 {
                unsafe { _mm256_set1_ps(v) }
            }
            #[inline(always)]
            unsafe fn and(a: __m256i, mask: u32) -> __m256i {
                unsafe { _mm256_and_si256(a, _mm256_set1_epi32(mask.cast_signed())) }
            }
            #[inline(always)]
            unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
                unsafe { _mm256_or_si256(a, b) }
            }
            #[inline(always)]
            unsafe fn xor(a: __m256i, mask: u32) -> __m256i {
                unsafe { _mm256_xor_si256(a, _mm256_set1_epi32(mask.cast_signed())) }
            }
            #[inline(always)]
            unsafe fn shl(a: __m256i, n: u32) -> __m256i {
                unsafe {
                    match n {
                        0 => a,
                        2 => _mm256_slli_epi32::<2>(a),
                        4 => _mm256_slli_epi32::<4>(a),
                        8 => _mm256_slli_epi32::<8>(a),
                        16 => _mm256_slli_epi32::<16>(a),
                        _ => _mm256_sll_epi32(a, _mm_cvtsi32_si128(n.cast_signed())),
                    }
                }
            }
            #[inline(always)]
            unsafe fn shr(a: __m256i, n: u32) -> __m256i {
                unsafe {
                    match n {
                        0 => a,
                        2 => _mm256_srli_epi32::<2>(a),
                        4 => _mm256_srli_epi32::<4>(a),
                        8 => _mm256_srli_epi32::<8>(a),
                        16 => _mm256_srli_epi32::<16>(a),
                        24 => _mm256_srli_epi32::<24>(a),
                        _ => _mm256_srl_epi32(a, _mm_cvtsi32_si128(n.cast_signed())),
                    }
                }
            }
            #[inline(always)]
            unsafe fn top_byte(a: __m256i) -> __m256i {
                unsafe { _mm256_srai_epi32::<24>(a) }
            }
            #[inline(always)]
            unsafe fn pick(a: __m256i, from: [u8; 4]) -> __m256i {
                unsafe { _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(in_each_word(from))) }
            }
            #[inline(always)]
            unsafe fn lookup(a: __m256i, table: &'static [u8; 16]) -> __m256i {
                unsafe {
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                    _mm256_shuffle_epi8(table, a)
                }
            }
            #[inline(always)]
            unsafe fn dot_halves(a: __m256i, b: __m256i) -> __m256i {
                unsafe { _mm256_madd_epi16(a, b) }
            }
            #[inline(always)]
            unsafe fn to_f(a: __m256i) -> __m256 {
                unsafe { _mm256_cvtepi32_ps(a) }
            }
            #[inline(always)]
            unsafe fn add(a: __m256, b: __m256) -> __m256 {
                unsafe { _mm256_add_ps(a, b) }
            }
            #[inline(always)]
            unsafe fn mul(a: __m256, b: __m256) -> __m256 {
                unsafe { _mm256_mul_ps(a, b) }
            }
            #[inline(always)]
            unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
                unsafe { _mm256_fmadd_ps(a, b, c) }
            }
            #[inline(always)]
            unsafe fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 {
                unsafe { _mm256_fnmadd_ps(a, b, c) }
            }
            #[inline(always)]
            unsafe fn sum(a: __m256) -> f32 {
                unsafe {
                    let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                    let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
                    _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
                }
            }
            #[inline(always)]
            unsafe fn sum_i(a: __m256i) -> i32 {
                unsafe {
                    let a = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
                    let a = _mm_add_epi32(a, _mm_unpackhi_epi64(a, a));
                    _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32::<1>(a)))
                }
            }
            #[inline(always)]
            unsafe fn max_bits(a: __m256, b: __m256) -> u32 {
                unsafe {
                    let mask = _mm256_set1_epi32(0x7FFF_FFFF);
                    let a = _mm256_and_si256(_mm256_castps_si256(a), mask);
                    let a = _mm256_max_epi32(a, _mm256_and_si256(_mm256_castps_si256(b), mask));
                    let a = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
                    let a = _mm_max_epi32(a, _mm_unpackhi_epi64(a, a));
                    _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32::<1>(a))).cast_unsigned()
                }
            }
            #[inline(always)]
            unsafe fn round(a: __m256, b: __m256) -> __m256i {
                const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
                unsafe { _mm256_cvttps_epi32(_mm256_round_ps::<NEAREST>(_mm256_mul_ps(a, b))) }
            }
            #[inline(always)]
            unsafe fn store_bytes(p: *mut u8, a: __m256i) {
                unsafe {
                    // The low byte of each word, in order, in each half.
                    let bytes = _mm256_shuffle_epi8(a, _mm256_set1_epi32(0x0C08_0400));
                    let low = _mm_cvtsi128_si32(_mm256_castsi256_si128(bytes)).cast_unsigned();
                    let high = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(bytes)).cast_unsigned();
                    p.cast::<u64>().write_unaligned(u64::from(low) | u64::from(high) << 32);
                }
            }
            #[inline(always)]
            unsafe fn dot<const BITS: u32, const M: usize, const CHAINS: usize>(
                v: &[__m256i; M],
                x: *const i8,
                zero: i32,
                minus: i32,
            ) -> __m256i {
                unsafe { $dot::<BITS, M>(v, x, zero, minus) }
            }
            #[inline(always)]
            unsafe fn dots<const BITS: u32, const NT: usize>(
                codes: &impl Vectors<Self>,
                x: [*const i8; NT],
                zero: i32,
                minus: [i32; NT],
            ) -> [__m256i; NT] {
                unsafe { $dots::<Self, BITS, NT>(codes, x, zero, minus) }
            }
            #[inline(always)]
            unsafe fn gather(rows: *const u8, stride: usize) -> [__m256i; 4] {
                unsafe {
                    transpose([
                        two(rows, stride),
                        two(rows.add(stride), stride),
                        two(rows.add(2 * stride), stride),
                        two(rows.add(3 * stride), stride),
                    ])
                }
            }
            #[inline(always)]
            unsafe fn scatter(words: [__m256i; 4], rows: *mut u8, stride: usize) {
                unsafe {
                    for (i, v) in transpose(words).into_iter().enumerate() {
                        let row = rows.add(i * stride);
                        _mm_storeu_si128(row.cast(), _mm256_castsi256_si128(v));
                        _mm_storeu_si128(row.add(4 * stride).cast(), _mm256_extracti128_si256::<1>(v));
                    }
                }
            }
        }
    };
}

lanes!(Vex, dot_avx2, dots_avx2);
lanes!(VexVnni, dot_vnni, dots_vnni);
