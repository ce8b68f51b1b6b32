//! A group of rows as vector lanes: the few operations that the kernels are written in.
//!
//! Lane `i` of every vector belongs to row `i` of a group of `N` rows, so nothing is ever summed across
//! lanes, and every implementation gives the same bits as [`scalar`]: integer sums are exact, and floats
//! are only multiplied, or multiplied and added in one rounding.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod pair;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::{Vex, VexVnni};
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Evex;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use pair::Pair;
pub(crate) use scalar::Scalar;

/// Compiles a function over [`Lanes`] once for each implementation, and defines the function that picks one of
/// them by instruction set and rows in a group: the vectors of one group where there are such, else plain Rust.
///
/// The pointer it returns may be called wherever the `Isa` came from its constructors, under the contract of
/// the function itself.
macro_rules! for_lanes {
    ($(#[$doc:meta])* $vis:vis fn $pick:ident<$($generic:ident: $bound:ident)?>
     ($($a:ident: $t:ty),* $(,)?) = $body:ident) => {
        $(#[$doc])*
        $vis fn $pick<$($generic: $bound)?>(isa: $crate::isa::Isa, r: usize) -> unsafe fn($($t),*) {
            use $crate::isa::Isa;
            use $crate::lanes::{compiled, Scalar};
            #[cfg(target_arch = "x86_64")]
            use $crate::lanes::{Evex, Vex, VexVnni};
            #[cfg(target_arch = "aarch64")]
            use $crate::lanes::{Neon, Pair};

            compiled! { scalar8 Scalar<8>, [], [$($generic: $bound)?]($($a: $t),*) $body }
            compiled! { scalar16 Scalar<16>, [], [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "x86_64")]
            compiled! { vex8 Vex, [#[target_feature(enable = "avx2,fma,f16c")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "x86_64")]
            compiled! { vnni8 VexVnni, [#[target_feature(enable = "avx2,fma,f16c,avxvnni")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "x86_64")]
            compiled! { evex16 Evex, [#[target_feature(
                            enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "aarch64")]
            compiled! { neon8 Pair<Neon>, [#[target_feature(enable = "neon,dotprod")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "aarch64")]
            compiled! { neon16 Pair<Pair<Neon>>, [#[target_feature(enable = "neon,dotprod")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }

            match (isa, r) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2(_) | Isa::Avx512Vnni(_), 8) => vex8::<$($generic)?>,
                #[cfg(target_arch = "x86_64")]
                (Isa::AvxVnni(_), 8) => vnni8::<$($generic)?>,
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512Vnni(_), 16) => evex16::<$($generic)?>,
                #[cfg(target_arch = "aarch64")]
                (Isa::NeonDotprod(_), 8) => neon8::<$($generic)?>,
                #[cfg(target_arch = "aarch64")]
                (Isa::NeonDotprod(_), 16) => neon16::<$($generic)?>,
                (_, 8) => scalar8::<$($generic)?>,
                (_, 16) => scalar16::<$($generic)?>,
                _ => unreachable!("groups have 8 or 16 rows"),
            }
        }
    };
}
pub(crate) use for_lanes;

/// As [`for_lanes`], for functions that need 16 lanes for any number of rows.
macro_rules! for_16_lanes {
    ($(#[$doc:meta])* $vis:vis fn $pick:ident<$($generic:ident: $bound:ident)?>
     ($($a:ident: $t:ty),* $(,)?) = $body:ident) => {
        $(#[$doc])*
        $vis fn $pick<$($generic: $bound)?>(isa: $crate::isa::Isa) -> unsafe fn($($t),*) {
            use $crate::isa::Isa;
            use $crate::lanes::{compiled, Scalar};
            #[cfg(target_arch = "x86_64")]
            use $crate::lanes::{Evex, Pair, Vex};
            #[cfg(target_arch = "aarch64")]
            use $crate::lanes::{Neon, Pair};

            compiled! { scalar Scalar<16>, [], [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "x86_64")]
            compiled! { vex Pair<Vex>, [#[target_feature(enable = "avx2,fma,f16c")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "x86_64")]
            compiled! { evex Evex, [#[target_feature(
                            enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }
            #[cfg(target_arch = "aarch64")]
            compiled! { neon Pair<Pair<Neon>>, [#[target_feature(enable = "neon,dotprod")]],
                        [$($generic: $bound)?]($($a: $t),*) $body }

            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2(_) | Isa::AvxVnni(_) => vex::<$($generic)?>,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512Vnni(_) => evex::<$($generic)?>,
                #[cfg(target_arch = "aarch64")]
                Isa::NeonDotprod(_) => neon::<$($generic)?>,
                _ => scalar::<$($generic)?>,
            }
        }
    };
}
pub(crate) use for_16_lanes;

/// One instance of a function over [`Lanes`].
macro_rules! compiled {
    ($name:ident $lanes:ty, [$(#[$feature:meta])*],
     [$($generic:ident: $bound:ident)?]($($a:ident: $t:ty),*) $body:ident) => {
        $(#[$feature])*
        unsafe fn $name<$($generic: $bound)?>($($a: $t),*) {
            // SAFETY: the same contract, and the features that `$lanes` needs are enabled here.
            unsafe { $body::<$lanes $(, $generic)?>($($a),*) }
        }
    };
}
pub(crate) use compiled;

/// An index that selects no byte: [`Lanes::pick`] makes it zero.
pub(crate) const NONE: u8 = 0x80;

/// Vectors of codes that are made one by one.
pub(crate) trait Vectors<V: Lanes> {
    /// Vector `j`.
    ///
    /// # Safety
    /// As [`Lanes`], and it has the vector.
    unsafe fn vector(&self, j: usize) -> V::I;
}

/// `N` lanes of 32 bits.
///
/// # Safety
/// Every function needs the processor features of its implementation (none for [`Scalar`]), and must be
/// inlined into a function that enables them. Pointers must be valid for what their function reads or
/// writes; none need be aligned.
pub(crate) trait Lanes: Sized {
    /// Rows in a group.
    const N: usize;
    /// Vectors of `N` lanes that fit in the registers.
    const REGISTERS: usize;
    /// Whether, with a single row of activations, vectors of codes that several sub-blocks share stay in registers from one to the
    /// next. Else they are loaded again for each, which wants fewer registers.
    const KEEPS: bool = true;
    /// Whether the registers have no room for the codes of a block beside several rows of activations, so that [`Lanes::dots`]
    /// is faster than [`Lanes::dot`] for each row.
    const TOGETHER: bool = false;
    /// `N` times 32 bits of integers.
    type I: Copy;
    /// `N` times f32.
    type F: Copy;

    /// Reads `4 * N` bytes.
    unsafe fn load(p: *const u8) -> Self::I;
    /// Writes `4 * N` bytes.
    unsafe fn store(p: *mut u8, v: Self::I);
    /// Reads `N` unsigned integers of 8 bits.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// Reads `N` unsigned integers of 16 bits.
    unsafe fn load_u16(p: *const u8) -> Self::I;
    /// Reads `N` floats.
    unsafe fn load_f(p: *const f32) -> Self::F;
    /// Writes `N` floats.
    unsafe fn store_f(p: *mut f32, v: Self::F);
    /// Reads `N` binary16.
    unsafe fn load_half(p: *const u8) -> Self::F;
    /// Reads `N` bfloat16.
    unsafe fn load_bf16(p: *const u8) -> Self::F;
    /// `v` in every lane.
    unsafe fn splat(v: u32) -> Self::I;
    /// `v` in every lane.
    unsafe fn splat_f(v: f32) -> Self::F;
    /// The bits common to `a` and `mask`, which stands in every lane.
    unsafe fn and(a: Self::I, mask: u32) -> Self::I;
    /// The bits of either.
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// The bits of `a`, with those of `mask` flipped.
    unsafe fn xor(a: Self::I, mask: u32) -> Self::I;
    /// Each lane shifted left by `n`, a constant below 32.
    unsafe fn shl(a: Self::I, n: u32) -> Self::I;
    /// Each lane shifted right by `n`, a constant below 32, zeros coming in.
    unsafe fn shr(a: Self::I, n: u32) -> Self::I;
    /// The high half of each byte.
    #[inline(always)]
    unsafe fn high_nibbles(a: Self::I) -> Self::I {
        // SAFETY: as this function.
        unsafe { Self::and(Self::shr(a, 4), 0x0F0F_0F0F) }
    }
    /// The top byte of each lane, with its sign.
    unsafe fn top_byte(a: Self::I) -> Self::I;
    /// Byte `i` of each lane is its byte `from[i]`, or zero if that is [`NONE`]. `from` is constant.
    unsafe fn pick(a: Self::I, from: [u8; 4]) -> Self::I;
    /// Each byte, which is below 16, as `table` has it. `table` is constant.
    unsafe fn lookup(a: Self::I, table: &'static [u8; 16]) -> Self::I;
    /// The sum of the products of the two halves of each lane, integers of 16 bits with sign.
    unsafe fn dot_halves(a: Self::I, b: Self::I) -> Self::I;
    /// Signed integers as floats, rounded to nearest even.
    unsafe fn to_f(a: Self::I) -> Self::F;
    /// The sum.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// The product.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` in one rounding.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b` in one rounding.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// All lanes added pairwise: `i` and `i + N/2`, then `i` and `i + N/4`, and so on.
    unsafe fn sum(a: Self::F) -> f32;
    /// All lanes added.
    unsafe fn sum_i(a: Self::I) -> i32;
    /// The bits of the largest magnitude in either; that of a NaN if there is one.
    unsafe fn max_bits(a: Self::F, b: Self::F) -> u32;
    /// [`Lanes::max_bits`] of four pairs.
    #[inline(always)]
    unsafe fn max_bits_4(pairs: [[Self::F; 2]; 4]) -> [u32; 4] {
        let [[a, b], [c, d], [e, f], [g, h]] = pairs;
        // SAFETY: as this function.
        unsafe { [Self::max_bits(a, b), Self::max_bits(c, d), Self::max_bits(e, f), Self::max_bits(g, h)] }
    }
    /// [`Lanes::sum_i`] of four vectors.
    #[inline(always)]
    unsafe fn sums_4(vectors: [Self::I; 4]) -> [i32; 4] {
        let [a, b, c, d] = vectors;
        // SAFETY: as this function.
        unsafe { [Self::sum_i(a), Self::sum_i(b), Self::sum_i(c), Self::sum_i(d)] }
    }
    /// [`Lanes::sum`] of four vectors.
    #[inline(always)]
    unsafe fn sum_4(vectors: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = vectors;
        // SAFETY: as this function.
        unsafe { [Self::sum(a), Self::sum(b), Self::sum(c), Self::sum(d)] }
    }
    /// The nearest integers of `a * b`, which are below 2^22, halves to even.
    unsafe fn round(a: Self::F, b: Self::F) -> Self::I;
    /// Writes the low byte of each lane.
    unsafe fn store_bytes(p: *mut u8, a: Self::I);

    /// In each lane, `Σ (v - zero) · x` over `4 * M` codes: byte `i` of `v[j]` is the unsigned code that meets
    /// `x[4 * j + i]`, and has no bit above `BITS`. `x` is never -128, and `minus` is `-Σ x`. Where each step waits for the one
    /// before, there are `CHAINS` chains of them, 1 or 2: the best number depends on the registers that the caller
    /// leaves free.
    unsafe fn dot<const BITS: u32, const M: usize, const CHAINS: usize>(
        v: &[Self::I; M],
        x: *const i8,
        zero: i32,
        minus: i32,
    ) -> Self::I;

    /// [`Lanes::dot`] of the same eight vectors of codes with `NT` rows of activations. A vector is made once, and before the next one it meets all rows.
    #[inline(always)]
    unsafe fn dots<const BITS: u32, const NT: usize>(
        codes: &impl Vectors<Self>,
        x: [*const i8; NT],
        zero: i32,
        minus: [i32; NT],
    ) -> [Self::I; NT] {
        // SAFETY: as this function.
        unsafe {
            let (mut v, mut sums) = ([Self::splat(0); 8], [Self::splat(0); NT]);
            for (j, v) in v.iter_mut().enumerate() {
                *v = codes.vector(j);
            }
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = Self::dot::<BITS, 8, 1>(&v, x[t], zero, minus[t]);
            }
            sums
        }
    }

    /// Reads 16 bytes of each of `N` rows, the first at `rows` and the others `stride` bytes apart, as four
    /// vectors of one word a row.
    unsafe fn gather(rows: *const u8, stride: usize) -> [Self::I; 4];
    /// The inverse of [`Lanes::gather`].
    unsafe fn scatter(words: [Self::I; 4], rows: *mut u8, stride: usize);

    /// Asks for the cache line at `p`, which may point anywhere.
    #[inline(always)]
    fn prefetch(p: *const u8) {
        prefetch(p);
    }
}

/// Asks for the cache line at `p`, which may point anywhere.
#[inline(always)]
pub(crate) fn prefetch(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it reads nothing that is seen.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every aarch64 has the instruction, and it reads nothing that is seen.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

/// Asks for the cache line at `p`, which may point anywhere, as far as the second-level cache: more may be on their way to it at once.
#[inline(always)]
pub(crate) fn prefetch_far(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it reads nothing that is seen.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every aarch64 has the instruction, and it reads nothing that is seen.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}
