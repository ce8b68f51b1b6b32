//! Sixteen rows in 512-bit vectors, with AVX-512 VNNI.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the contract of `Lanes`: the features are enabled where this is inlined, the pointers are valid"
)]

use std::arch::x86_64::*;

use super::Lanes;
use super::avx2::in_each_word;

/// Named for the encoding of its instructions. Used only behind an `Avx512Vnni` witness.
pub(crate) struct Evex;

/// Words 4L..4L+4 of `v[i]` hold four words of row `4 L + i`; the result's `[j]` hold word `j` of those four
/// rows. It is its own inverse.
#[inline(always)]
unsafe fn transpose(v: [__m512i; 4]) -> [__m512i; 4] {
    unsafe {
        let lo = [_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpacklo_epi32(v[2], v[3])];
        let hi = [_mm512_unpackhi_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[2], v[3])];
        [
            _mm512_unpacklo_epi64(lo[0], lo[1]),
            _mm512_unpackhi_epi64(lo[0], lo[1]),
            _mm512_unpacklo_epi64(hi[0], hi[1]),
            _mm512_unpackhi_epi64(hi[0], hi[1]),
        ]
    }
}

/// Lanes `i` and `i + 8` added.
#[inline(always)]
unsafe fn halved(a: __m512) -> __m256 {
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)) }
}

/// 16 bytes of every fourth row.
#[inline(always)]
unsafe fn four(rows: *const u8, stride: usize) -> __m512i {
    unsafe {
        let v = _mm512_castsi128_si512(_mm_loadu_si128(rows.cast()));
        let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(rows.add(4 * stride).cast()));
        let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(rows.add(8 * stride).cast()));
        _mm512_inserti32x4::<3>(v, _mm_loadu_si128(rows.add(12 * stride).cast()))
    }
}

impl Lanes for Evex {
    const N: usize = 16;
    const REGISTERS: usize = 32;
    type I = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: __m512i) {
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u16(p: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(Self::load_u16(p))) }
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(v.cast_signed()) }
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> __m512 {
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, mask: u32) -> __m512i {
        unsafe { _mm512_and_si512(a, _mm512_set1_epi32(mask.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, mask: u32) -> __m512i {
        unsafe { _mm512_xor_si512(a, _mm512_set1_epi32(mask.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn shl(a: __m512i, n: u32) -> __m512i {
        unsafe {
            match n {
                0 => a,
                2 => _mm512_slli_epi32::<2>(a),
                4 => _mm512_slli_epi32::<4>(a),
                8 => _mm512_slli_epi32::<8>(a),
                16 => _mm512_slli_epi32::<16>(a),
                _ => _mm512_sll_epi32(a, _mm_cvtsi32_si128(n.cast_signed())),
            }
        }
    }
    #[inline(always)]
    unsafe fn shr(a: __m512i, n: u32) -> __m512i {
        unsafe {
            match n {
                0 => a,
                2 => _mm512_srli_epi32::<2>(a),
                4 => _mm512_srli_epi32::<4>(a),
                8 => _mm512_srli_epi32::<8>(a),
                16 => _mm512_srli_epi32::<16>(a),
                24 => _mm512_srli_epi32::<24>(a),
                _ => _mm512_srl_epi32(a, _mm_cvtsi32_si128(n.cast_signed())),
            }
        }
    }
    #[inline(always)]
    unsafe fn top_byte(a: __m512i) -> __m512i {
        unsafe { _mm512_srai_epi32::<24>(a) }
    }
    #[inline(always)]
    unsafe fn pick(a: __m512i, from: [u8; 4]) -> __m512i {
        unsafe { _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(in_each_word(from))) }
    }
    #[inline(always)]
    unsafe fn lookup(a: __m512i, table: &'static [u8; 16]) -> __m512i {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, a)
        }
    }
    #[inline(always)]
    unsafe fn dot_halves(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_madd_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn to_f(a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe {
            let a = halved(a);
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    unsafe fn sum_i(a: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(a) }
    }
    #[inline(always)]
    unsafe fn max_bits(a: __m512, b: __m512) -> u32 {
        unsafe {
            let mask = _mm512_set1_epi32(0x7FFF_FFFF);
            let a = _mm512_and_si512(_mm512_castps_si512(a), mask);
            let b = _mm512_and_si512(_mm512_castps_si512(b), mask);
            _mm512_reduce_max_epu32(_mm512_max_epu32(a, b))
        }
    }
    #[inline(always)]
    unsafe fn max_bits_4(pairs: [[__m512; 2]; 4]) -> [u32; 4] {
        unsafe {
            let mask = _mm512_set1_epi32(0x7FFF_FFFF);
            // No closures: they would be without the features that the function is compiled with.
            let mut of_pair = [mask; 4];
            for (of_pair, [a, b]) in of_pair.iter_mut().zip(pairs) {
                let a = _mm512_and_si512(_mm512_castps_si512(a), mask);
                *of_pair = _mm512_max_epu32(a, _mm512_and_si512(_mm512_castps_si512(b), mask));
            }
            let [[a, b], [c, d]] = interleaved(of_pair);
            let (max01, max23) = (_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
            let max =
                _mm512_max_epu32(_mm512_unpacklo_epi64(max01, max23), _mm512_unpackhi_epi64(max01, max23));
            let max = _mm256_max_epu32(_mm512_castsi512_si256(max), _mm512_extracti64x4_epi64::<1>(max));
            let max = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256::<1>(max));
            std::mem::transmute(max)
        }
    }
    #[inline(always)]
    unsafe fn sum_4([a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        // Halves of 256 bits, then of 128, of 64 and of 32: the order of `sum`.
        unsafe {
            let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b));
            let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xEE>(c, d));
            let all =
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xDD>(ab, cd));
            let all = _mm512_add_ps(all, _mm512_permute_ps::<0x4E>(all));
            let all = _mm512_add_ps(all, _mm512_movehdup_ps(all));
            let places = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            std::mem::transmute(_mm512_castps512_ps128(_mm512_permutexvar_ps(places, all)))
        }
    }
    #[inline(always)]
    unsafe fn sums_4(vectors: [__m512i; 4]) -> [i32; 4] {
        unsafe {
            let [[a, b], [c, d]] = interleaved(vectors);
            let (sum01, sum23) = (_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
            let sum =
                _mm512_add_epi32(_mm512_unpacklo_epi64(sum01, sum23), _mm512_unpackhi_epi64(sum01, sum23));
            let sum = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
            let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
            std::mem::transmute(sum)
        }
    }
    #[inline(always)]
    unsafe fn round(a: __m512, b: __m512) -> __m512i {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { _mm512_cvt_roundps_epi32::<NEAREST>(_mm512_mul_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, a: __m512i) {
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(a)) }
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const M: usize, const CHAINS: usize>(
        v: &[__m512i; M],
        x: *const i8,
        zero: i32,
        minus: i32,
    ) -> __m512i {
        unsafe {
            let mut sums = [_mm512_set1_epi32(zero * minus), _mm512_setzero_si512()];
            for (j, v) in v.iter().enumerate() {
                let x = _mm512_set1_epi32(x.cast::<i32>().add(j).read_unaligned());
                sums[j % CHAINS] = _mm512_dpbusd_epi32(sums[j % CHAINS], *v, x);
            }
            if CHAINS == 1 { sums[0] } else { _mm512_add_epi32(sums[0], sums[1]) }
        }
    }
    #[inline(always)]
    unsafe fn gather(rows: *const u8, stride: usize) -> [__m512i; 4] {
        unsafe {
            transpose([
                four(rows, stride),
                four(rows.add(stride), stride),
                four(rows.add(2 * stride), stride),
                four(rows.add(3 * stride), stride),
            ])
        }
    }
    #[inline(always)]
    unsafe fn scatter(words: [__m512i; 4], rows: *mut u8, stride: usize) {
        unsafe {
            for (i, v) in transpose(words).into_iter().enumerate() {
                let row = rows.add(i * stride);
                _mm_storeu_si128(row.cast(), _mm512_castsi512_si128(v));
                _mm_storeu_si128(row.add(4 * stride).cast(), _mm512_extracti32x4_epi32::<1>(v));
                _mm_storeu_si128(row.add(8 * stride).cast(), _mm512_extracti32x4_epi32::<2>(v));
                _mm_storeu_si128(row.add(12 * stride).cast(), _mm512_extracti32x4_epi32::<3>(v));
            }
        }
    }
}

/// Lanes of the first two vectors in turns, and of the other two: the lower and the upper two lanes of each 128 bits.
#[inline(always)]
unsafe fn interleaved([a, b, c, d]: [__m512i; 4]) -> [[__m512i; 2]; 2] {
    unsafe {
        [
            [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)],
            [_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d)],
        ]
    }
}
