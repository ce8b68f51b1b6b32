//! Operations on vectors of f32: norms, activation functions, rotary embedding, weights of attention.
//!
//! Each is written once in plain Rust over arrays of lanes and compiled for every instruction set. Sums are taken
//! lane by lane and the lanes added pairwise, so they are more exact than a running sum. Where the processor
//! multiplies and adds in one rounding, this does: results are the same on all such instruction sets, and
//! differ in the last bits from [`Isa::Scalar`](crate::Isa).

use crate::activations::is_scaled;
use crate::isa::per_isa;

mod delta;
mod erf;
mod exp;

pub use delta::{convolve, delta_step, silu};
use erf::one_plus_erf;
use exp::{exp, exp_of_negative};

/// Values taken at once.
const LANES: usize = 16;
/// Sums kept apart, to hide the latency of an addition.
const CHAINS: usize = 4;

/// `a * b + c`, in one rounding if the processor has it.
#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `f` of the values pairwise: of `i` and `i + 32`, then of `i` and `i + 16`, and so on. One chain of all of them would take longer
/// than what comes before, for some hundred values.
#[inline(always)]
fn by_halves(mut values: [f32; LANES * CHAINS], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES * CHAINS / 2;
    while half > 0 {
        for i in 0..half {
            values[i] = f(values[i], values[i + half]);
        }
        half /= 2;
    }
    values[0]
}

/// The sums added pairwise.
#[inline(always)]
fn sum_of(sums: [f32; LANES * CHAINS]) -> f32 {
    by_halves(sums, |a, b| a + b)
}

/// `Σ f(a[i], b[i], sum)`, where `f` adds a term to what it is given.
///
/// The loops over lanes have constant bounds and touch arrays only: that is the form that compilers turn into
/// vectors.
macro_rules! sum_by {
    ($a:expr, $b:expr, |$x:ident, $y:ident, $sum:ident| $term:expr) => {{
        let (a, a_rest) = $a.as_chunks::<{ LANES * CHAINS }>();
        let (b, b_rest) = $b.as_chunks::<{ LANES * CHAINS }>();
        let mut sums = [0.0; LANES * CHAINS];
        for (a, b) in a.iter().zip(b) {
            for i in 0..LANES * CHAINS {
                let ($x, $y, $sum) = (a[i], b[i], sums[i]);
                sums[i] = $term;
            }
        }
        for ((x, y), sum) in a_rest.iter().zip(b_rest).zip(&mut sums) {
            let ($x, $y, $sum) = (*x, *y, *sum);
            *sum = $term;
        }
        sum_of(sums)
    }};
}

macro_rules! same_length {
    ($a:ident, $($b:ident),*) => {
        $(assert_eq!($a.len(), $b.len(), "`{}` and `{}` have different lengths", stringify!($a), stringify!($b));)*
    };
}

per_isa! {
    /// `out += x`.
    pub fn add(out: &mut [f32], x: &[f32]) = add_body
}
#[inline(always)]
fn add_body<const FMA: bool>(out: &mut [f32], x: &[f32]) {
    same_length!(out, x);
    for (out, x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

per_isa! {
    /// `out += a * x`.
    pub fn axpy(a: f32, x: &[f32], out: &mut [f32]) = axpy_body
}
#[inline(always)]
fn axpy_body<const FMA: bool>(a: f32, x: &[f32], out: &mut [f32]) {
    same_length!(out, x);
    for (out, x) in out.iter_mut().zip(x) {
        *out = fma::<FMA>(a, *x, *out);
    }
}

per_isa! {
    /// `Σ a * b`.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 = dot_body
}
#[inline(always)]
fn dot_body<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    same_length!(a, b);
    sum_by!(a, b, |a, b, sum| fma::<FMA>(a, b, sum))
}

per_isa! {
    /// `out = x / sqrt(mean(x²) + eps) * w`: RMSNorm. `w` is the factor itself, `1 + w` where a family stores
    /// that.
    pub fn rms_norm(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) = rms_norm_body
}
#[inline(always)]
fn rms_norm_body<const FMA: bool>(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    same_length!(x, w, out);
    let squares = sum_by!(x, x, |x, _x, sum| fma::<FMA>(x, x, sum));
    let scale = 1.0 / (squares / x.len() as f32 + eps).sqrt();
    for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
        *out = x * scale * w;
    }
}

per_isa! {
    /// `out = (x - mean) / sqrt(variance + eps) * w + b`: LayerNorm, which may have no `b`.
    pub fn layer_norm(x: &[f32], w: &[f32], b: Option<&[f32]>, eps: f32, out: &mut [f32]) = layer_norm_body
}
#[inline(always)]
fn layer_norm_body<const FMA: bool>(x: &[f32], w: &[f32], b: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    same_length!(x, w, out);
    let n = x.len() as f32;
    let mean = sum_by!(x, x, |x, _x, sum| sum + x) / n;
    // The variance from the differences, not from the squares: activations may have a large mean.
    let variance = sum_by!(x, x, |x, _x, sum| fma::<FMA>(x - mean, x - mean, sum)) / n;
    let scale = 1.0 / (variance + eps).sqrt();
    let Some(b) = b else {
        for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
            *out = (x - mean) * scale * w;
        }
        return;
    };
    same_length!(b, out);
    for (((out, x), w), b) in out.iter_mut().zip(x).zip(w).zip(b) {
        *out = fma::<FMA>((x - mean) * scale, *w, *b);
    }
}

per_isa! {
    /// `out = silu(gate) * up`, with `silu(x) = x / (1 + exp(-x))`.
    pub fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) = silu_mul_body
}
#[inline(always)]
fn silu_mul_body<const FMA: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    same_length!(gate, up, out);
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp::<FMA>(-gate)) * up;
    }
}

per_isa! {
    /// `out = sigmoid(gate) · out`.
    pub fn sigmoid_mul(gate: &[f32], out: &mut [f32]) = sigmoid_mul_body
}
#[inline(always)]
fn sigmoid_mul_body<const FMA: bool>(gate: &[f32], out: &mut [f32]) {
    same_length!(gate, out);
    for (out, gate) in out.iter_mut().zip(gate) {
        *out /= 1.0 + exp::<FMA>(-gate);
    }
}

/// GELU by its tanh form, `x / 2 * (1 + tanh(√(2/π) (x + 0.044715 x³)))`, written with
/// `(1 + tanh z) / 2 = 1 / (1 + exp(-2 z))`.
#[inline(always)]
fn gelu<const FMA: bool>(x: f32) -> f32 {
    const TWICE_SQRT_2_PI: f32 = 1.595_769;
    let z = fma::<FMA>(0.044_715 * x * x, x, x);
    x / (1.0 + exp::<FMA>(-TWICE_SQRT_2_PI * z))
}

per_isa! {
    /// `out = gelu(gate) * up`, by the tanh form of GELU.
    pub fn gelu_tanh_mul(gate: &[f32], up: &[f32], out: &mut [f32]) = gelu_tanh_mul_body
}
#[inline(always)]
fn gelu_tanh_mul_body<const FMA: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    same_length!(gate, up, out);
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = gelu::<FMA>(*gate) * up;
    }
}

per_isa! {
    /// `out = gelu(x)`, by the tanh form of GELU.
    pub fn gelu_tanh(x: &[f32], out: &mut [f32]) = gelu_tanh_body
}
#[inline(always)]
fn gelu_tanh_body<const FMA: bool>(x: &[f32], out: &mut [f32]) {
    same_length!(x, out);
    for (out, x) in out.iter_mut().zip(x) {
        *out = gelu::<FMA>(*x);
    }
}

per_isa! {
    /// `out = x` less what the codes of [`Activations`](crate::Activations) say of it: what 8 bits leave out. Both are whole blocks
    /// of 32. Where there are no codes it is 0.
    pub fn beyond_codes(x: &[f32], out: &mut [f32]) = beyond_codes_body
}
#[inline(always)]
fn beyond_codes_body<const FMA: bool>(x: &[f32], out: &mut [f32]) {
    same_length!(x, out);
    let ((x, rest), (out, _)) = (x.as_chunks::<32>(), out.as_chunks_mut::<32>());
    assert!(rest.is_empty(), "{} values are not blocks of 32", 32 * x.len() + rest.len());
    for (x, out) in x.iter().zip(out) {
        // As integers, so that a NaN is the largest.
        let max = f32::from_bits(x.iter().fold(0, |max, x| max.max(x.abs().to_bits())));
        if !is_scaled(&max) {
            out.fill(0.0);
            continue;
        }
        let (inverse, scale) = (127.0 / max, max / 127.0);
        for (out, x) in out.iter_mut().zip(x) {
            *out = fma::<FMA>(-(x * inverse).round_ties_even(), scale, *x);
        }
    }
}

per_isa! {
    /// `out = gelu(x)`, by the error function: `x / 2 * (1 + erf(x / √2))`.
    pub fn gelu_erf(x: &[f32], out: &mut [f32]) = gelu_erf_body
}
#[inline(always)]
fn gelu_erf_body<const FMA: bool>(x: &[f32], out: &mut [f32]) {
    same_length!(x, out);
    for (out, x) in out.iter_mut().zip(x) {
        *out = 0.5 * x * one_plus_erf::<FMA>(x * std::f32::consts::FRAC_1_SQRT_2);
    }
}

per_isa! {
    /// Rotates each pair `(x[i], x[i + d/2])` by the angle whose cosine and sine are `cos[i]` and `sin[i]`: RoPE
    /// in rotate-half order, the one of HF checkpoints. `x` is one head, `[d]`; the others are `[d/2]`.
    pub fn rope_half(x: &mut [f32], cos: &[f32], sin: &[f32]) = rope_half_body
}
#[inline(always)]
fn rope_half_body<const FMA: bool>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert_eq!(x.len(), 2 * cos.len(), "`x` and `cos`");
    same_length!(cos, sin);
    let (low, high) = x.split_at_mut(cos.len());
    for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        let (a, b) = (*low, *high);
        *low = fma::<FMA>(a, *cos, -(b * sin));
        *high = fma::<FMA>(a, *sin, b * cos);
    }
}

per_isa! {
    /// Rotates each pair `(x[2 i], x[2 i + 1])` by the angle whose cosine and sine are `cos[i]` and `sin[i]`:
    /// RoPE in adjacent order, the one of Meta's checkpoints and of GGUF's `llama` architecture. `x` is one
    /// head, `[d]`; the others are `[d/2]`.
    pub fn rope_interleaved(x: &mut [f32], cos: &[f32], sin: &[f32]) = rope_interleaved_body
}
#[inline(always)]
fn rope_interleaved_body<const FMA: bool>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert_eq!(x.len(), 2 * cos.len(), "`x` and `cos`");
    same_length!(cos, sin);
    for ((pair, cos), sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
        let [a, b] = *pair;
        *pair = [fma::<FMA>(a, *cos, -(b * sin)), fma::<FMA>(a, *sin, b * cos)];
    }
}

per_isa! {
    /// Makes weights of scores: `x = exp(z - max z)`, with `z = scale * x`, or `cap * tanh(scale * x / cap)` under a soft cap.
    /// Returns the largest `z` and the sum of the weights; minus infinity and 0 if `x` is empty.
    pub fn weigh(x: &mut [f32], scale: f32, soft_cap: Option<f32>) -> (f32, f32) = weigh_body
}
#[inline(always)]
fn weigh_body<const FMA: bool>(x: &mut [f32], scale: f32, soft_cap: Option<f32>) -> (f32, f32) {
    if let Some(cap) = soft_cap {
        // cap * tanh(z / cap) = cap * (1 - 2 / (1 + exp(2 z / cap)))
        let twice = 2.0 * scale / cap;
        for x in x.iter_mut() {
            *x = cap - 2.0 * cap / (1.0 + exp::<FMA>(twice * *x));
        }
    }
    let scale = if soft_cap.is_some() { 1.0 } else { scale };
    let max = max_body::<FMA>(scale, x);
    let weight = |x: &mut f32| {
        *x = exp_of_negative::<FMA>(scale * *x - max);
        *x
    };
    let (parts, rest) = x.as_chunks_mut::<{ LANES * CHAINS }>();
    let mut sums = [0.0; LANES * CHAINS];
    for part in parts {
        for i in 0..LANES * CHAINS {
            sums[i] += weight(&mut part[i]);
        }
    }
    for (x, sum) in rest.iter_mut().zip(&mut sums) {
        *sum += weight(x);
    }
    (max, sum_of(sums))
}

per_isa! {
    /// `out = a * out + b * x`.
    pub fn blend(a: f32, out: &mut [f32], b: f32, x: &[f32]) = blend_body
}
#[inline(always)]
fn blend_body<const FMA: bool>(a: f32, out: &mut [f32], b: f32, x: &[f32]) {
    same_length!(out, x);
    for (out, x) in out.iter_mut().zip(x) {
        *out = fma::<FMA>(a, *out, b * x);
    }
}

per_isa! {
    /// `out = a * x`.
    pub fn scaled(a: f32, x: &[f32], out: &mut [f32]) = scaled_body
}
#[inline(always)]
fn scaled_body<const FMA: bool>(a: f32, x: &[f32], out: &mut [f32]) {
    same_length!(out, x);
    for (out, x) in out.iter_mut().zip(x) {
        *out = a * x;
    }
}

per_isa! {
    /// `exp(x)`, to about one unit in the last place.
    pub fn exponential(x: f32) -> f32 = exp
}

/// Returns the largest value times `scale`; minus infinity if `x` is empty. NaN is ignored.
#[inline(always)]
fn max_body<const FMA: bool>(scale: f32, x: &[f32]) -> f32 {
    let (parts, rest) = x.as_chunks::<{ LANES * CHAINS }>();
    let mut max = [f32::NEG_INFINITY; LANES * CHAINS];
    let larger = |max: f32, x: f32| if scale * x > max { scale * x } else { max };
    for x in parts {
        for (max, x) in max.iter_mut().zip(x) {
            *max = larger(*max, *x);
        }
    }
    for (max, x) in max.iter_mut().zip(rest) {
        *max = larger(*max, *x);
    }
    by_halves(max, |a, b| if b > a { b } else { a })
}

per_isa! {
    /// The index of the largest value, the lowest one if several are equal; `None` if there is no value that
    /// is a number above minus infinity.
    pub fn argmax(x: &[f32]) -> Option<usize> = argmax_body
}
#[inline(always)]
fn argmax_body<const FMA: bool>(x: &[f32]) -> Option<usize> {
    let max = max_body::<FMA>(1.0, x);
    // The block that has it first, then the place in the block: the first loop stays simple enough for vectors.
    let count = |x: &[f32]| x.iter().map(|x| u32::from(*x >= max)).sum::<u32>();
    let block = x.chunks(64).position(|x| count(x) > 0)?;
    let at = x[block * 64..].iter().position(|x| *x >= max)?;
    (max > f32::NEG_INFINITY).then_some(block * 64 + at)
}
