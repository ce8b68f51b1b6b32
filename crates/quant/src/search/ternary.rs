//! Schemes whose values are `-d`, 0 and `d`.

use crate::float16::Half;

use super::Parts;

/// The best `d` of a block, and its codes: 0 for `-d`, 1 for 0, 2 for `d`.
///
/// Whatever `d` is, the values that do not become 0 are those farthest from 0. If there are `n` of them, the
/// best `d` is the weighted mean of their distances, which makes the error less than `Σ w x²` by
/// `(Σ w |x|)² / Σ w`. So every `n` is tried.
pub(crate) fn ternary<const N: usize>(parts: &Parts<N, 1>) -> (Half, [u8; N]) {
    let [group] = &parts.groups;
    // Without its sign bit, a float orders as its bits do.
    let mut order: [u64; N] = std::array::from_fn(|i| u64::from(group.x[i].abs().to_bits()) << 32 | i as u64);
    order.sort_unstable();
    let (mut sum, mut weight, mut best, mut most) = (0.0f64, 0.0f64, 0.0, 0.0);
    for key in order.iter().rev() {
        let i = *key as u32 as usize;
        sum += f64::from(group.w[i]) * f64::from(group.x[i].abs());
        weight += f64::from(group.w[i]);
        let gain = sum * sum / weight;
        if gain > most {
            (best, most) = (sum / weight, gain);
        }
    }
    let (d, factor) = parts.half(best as f32);
    let middle = 0.5 * factor;
    (d, group.x.map(|x| 1 + u8::from(x > middle) - u8::from(x < -middle)))
}
