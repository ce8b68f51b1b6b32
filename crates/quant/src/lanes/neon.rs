//! Four rows in 128-bit vectors, with the byte dot product of ARM. Two of them make a group of eight, four one of sixteen.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the contract of `Lanes`: the features are enabled where this is inlined, the pointers are valid"
)]

use std::arch::aarch64::*;
use std::arch::asm;

use super::Lanes;

/// Used only behind a `NeonDotprod` witness.
pub(crate) struct Neon;

/// Word `i` of `v[j]` becomes word `j` of the result's `[i]`. It is its own inverse.
#[inline(always)]
fn transpose(v: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
    unsafe {
        let wide = |v: uint32x4_t| vreinterpretq_u64_u32(v);
        let even = [wide(vtrn1q_u32(v[0], v[1])), wide(vtrn1q_u32(v[2], v[3]))];
        let odd = [wide(vtrn2q_u32(v[0], v[1])), wide(vtrn2q_u32(v[2], v[3]))];
        let low = |v: [uint64x2_t; 2]| vreinterpretq_u32_u64(vtrn1q_u64(v[0], v[1]));
        let high = |v: [uint64x2_t; 2]| vreinterpretq_u32_u64(vtrn2q_u64(v[0], v[1]));
        [low(even), low(odd), high(even), high(odd)]
    }
}

/// In each lane of `sum`, the four products of its bytes of `w` with the four of `x` that begin at byte `4 * LANE`, added.
///
/// An instruction by its name, since the standard library does not offer it yet.
#[inline(always)]
unsafe fn sdot<const LANE: usize>(sum: int32x4_t, w: uint32x4_t, x: uint32x4_t) -> int32x4_t {
    let mut sum = sum;
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            w = in(vreg) w,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// The bits of the magnitudes.
#[inline(always)]
unsafe fn magnitude(a: float32x4_t) -> uint32x4_t {
    unsafe { vreinterpretq_u32_f32(vabsq_f32(a)) }
}

impl Lanes for Neon {
    const N: usize = 4;
    const REGISTERS: usize = 32;
    const KEEPS: bool = false;
    type I = uint32x4_t;
    type F = float32x4_t;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> uint32x4_t {
        unsafe { vreinterpretq_u32_u8(vld1q_u8(p)) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: uint32x4_t) {
        unsafe { vst1q_u8(p, vreinterpretq_u8_u32(v)) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> uint32x4_t {
        unsafe {
            let bytes = vreinterpret_u8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
            vmovl_u16(vget_low_u16(vmovl_u8(bytes)))
        }
    }
    #[inline(always)]
    unsafe fn load_u16(p: *const u8) -> uint32x4_t {
        unsafe { vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))) }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, v: float32x4_t) {
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u8) -> float32x4_t {
        unsafe { vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> float32x4_t {
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(p)))) }
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> uint32x4_t {
        unsafe { vdupq_n_u32(v) }
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(v) }
    }
    #[inline(always)]
    unsafe fn and(a: uint32x4_t, mask: u32) -> uint32x4_t {
        unsafe { vandq_u32(a, vdupq_n_u32(mask)) }
    }
    #[inline(always)]
    unsafe fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vorrq_u32(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: uint32x4_t, mask: u32) -> uint32x4_t {
        unsafe { veorq_u32(a, vdupq_n_u32(mask)) }
    }
    #[inline(always)]
    unsafe fn shl(a: uint32x4_t, n: u32) -> uint32x4_t {
        unsafe { vshlq_u32(a, vdupq_n_s32(n.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn shr(a: uint32x4_t, n: u32) -> uint32x4_t {
        // A shift to the left by less than nothing.
        unsafe { vshlq_u32(a, vdupq_n_s32(-n.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn high_nibbles(a: uint32x4_t) -> uint32x4_t {
        unsafe { vreinterpretq_u32_u8(vshrq_n_u8::<4>(vreinterpretq_u8_u32(a))) }
    }
    #[inline(always)]
    unsafe fn top_byte(a: uint32x4_t) -> uint32x4_t {
        unsafe { vreinterpretq_u32_s32(vshrq_n_s32::<24>(vreinterpretq_s32_u32(a))) }
    }
    #[inline(always)]
    unsafe fn pick(a: uint32x4_t, from: [u8; 4]) -> uint32x4_t {
        unsafe {
            // A byte past the table, as `NONE` is in every lane, makes zero.
            let words = std::array::from_fn::<u8, 16, _>(|i| (i / 4 * 4) as u8 + from[i % 4]);
            vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a), vld1q_u8(words.as_ptr())))
        }
    }
    #[inline(always)]
    unsafe fn lookup(a: uint32x4_t, table: &'static [u8; 16]) -> uint32x4_t {
        unsafe { vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(table.as_ptr()), vreinterpretq_u8_u32(a))) }
    }
    #[inline(always)]
    unsafe fn dot_halves(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe {
            let (a, b) = (vreinterpretq_s16_u32(a), vreinterpretq_s16_u32(b));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
            vreinterpretq_u32_s32(vpaddq_s32(low, vmull_high_s16(a, b)))
        }
    }
    #[inline(always)]
    unsafe fn to_f(a: uint32x4_t) -> float32x4_t {
        unsafe { vcvtq_f32_s32(vreinterpretq_s32_u32(a)) }
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn fnma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmsq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn sum(a: float32x4_t) -> f32 {
        unsafe {
            let twos = vadd_f32(vget_low_f32(a), vget_high_f32(a));
            vget_lane_f32::<0>(vpadd_f32(twos, twos))
        }
    }
    #[inline(always)]
    unsafe fn sum_i(a: uint32x4_t) -> i32 {
        unsafe { vaddvq_s32(vreinterpretq_s32_u32(a)) }
    }
    #[inline(always)]
    unsafe fn max_bits(a: float32x4_t, b: float32x4_t) -> u32 {
        unsafe { vmaxvq_u32(vmaxq_u32(magnitude(a), magnitude(b))) }
    }
    #[inline(always)]
    unsafe fn round(a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        unsafe { vreinterpretq_u32_s32(vcvtnq_s32_f32(vmulq_f32(a, b))) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, a: uint32x4_t) {
        unsafe {
            let halves = vmovn_u32(a);
            let bytes = vmovn_u16(vcombine_u16(halves, halves));
            p.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)));
        }
    }
    /// One chain: two or four groups of four rows are multiplied beside each other.
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const M: usize, const CHAINS: usize>(
        v: &[uint32x4_t; M],
        x: *const i8,
        zero: i32,
        minus: i32,
    ) -> uint32x4_t {
        const { assert!(M.is_multiple_of(4)) }
        unsafe {
            // The instruction takes signed bytes: codes of eight bits have 128 taken off.
            let signed = |v| if BITS == 8 { Self::xor(v, 0x8080_8080) } else { v };
            let zero = if BITS == 8 { zero - 128 } else { zero };
            let mut sum = vdupq_n_s32(zero * minus);
            for (j, v) in v.as_chunks::<4>().0.iter().enumerate() {
                let x = Self::load(x.add(16 * j).cast());
                sum = sdot::<0>(sum, signed(v[0]), x);
                sum = sdot::<1>(sum, signed(v[1]), x);
                sum = sdot::<2>(sum, signed(v[2]), x);
                sum = sdot::<3>(sum, signed(v[3]), x);
            }
            vreinterpretq_u32_s32(sum)
        }
    }
    #[inline(always)]
    unsafe fn gather(rows: *const u8, stride: usize) -> [uint32x4_t; 4] {
        unsafe {
            transpose([
                Self::load(rows),
                Self::load(rows.add(stride)),
                Self::load(rows.add(2 * stride)),
                Self::load(rows.add(3 * stride)),
            ])
        }
    }
    #[inline(always)]
    unsafe fn scatter(words: [uint32x4_t; 4], rows: *mut u8, stride: usize) {
        unsafe {
            for (i, v) in transpose(words).into_iter().enumerate() {
                Self::store(rows.add(i * stride), v);
            }
        }
    }
}
