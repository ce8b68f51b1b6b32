//! Products with a matrix of signs that is never written down.

/// A matrix `[out, in]` whose elements are all `±1`, and whose rows are orthogonal as far as there are no more of them than the next
/// power of two: `s_i H_ij d_j`, with Hadamard's `H` and random signs `s` and `d`.
pub(super) struct Signs {
    columns: Vec<f32>,
    rows: Vec<f32>,
    /// The row of inputs, transformed.
    buffer: Vec<f32>,
}

impl Signs {
    /// The matrix `[out, input]` of this seed.
    pub(super) fn new(out: usize, input: usize, seed: u64) -> Signs {
        let signs = |n: usize, seed: u64| (0..n as u64).map(move |i| sign(seed, i)).collect();
        Signs {
            columns: signs(input, seed),
            rows: signs(out, !seed),
            buffer: vec![0.0; input.next_power_of_two()],
        }
    }

    /// `y += factor · S x`.
    pub(super) fn add(&mut self, factor: f32, x: &[f32], y: &mut [f32]) {
        let buffer = &mut self.buffer;
        buffer.fill(0.0);
        for ((out, x), sign) in buffer.iter_mut().zip(x).zip(&self.columns) {
            *out = factor * sign * x;
        }
        transform(buffer);
        let mask = buffer.len() - 1;
        for (i, (y, sign)) in y.iter_mut().zip(&self.rows).enumerate() {
            *y += sign * buffer[i & mask];
        }
    }
}

/// Walsh and Hadamard's transform, in place: `len` is a power of two.
fn transform(x: &mut [f32]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// A random sign: the same for the same numbers on every machine. The finaliser of Stafford's 13th variant (splitmix64).
pub(super) fn sign(seed: u64, i: u64) -> f32 {
    let mut x = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    if (x ^ (x >> 31)) & 1 == 0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "small integers are exact")]
mod tests {
    use super::*;

    /// The matrix itself, by its products with the unit vectors.
    fn dense(out: usize, input: usize) -> Vec<Vec<f32>> {
        let mut signs = Signs::new(out, input, 7);
        let column = |j: usize| {
            let (mut x, mut y) = (vec![0.0; input], vec![0.0; out]);
            x[j] = 1.0;
            signs.add(2.0, &x, &mut y);
            y
        };
        let columns: Vec<Vec<f32>> = (0..input).map(column).collect();
        (0..out).map(|i| columns.iter().map(|column| column[i]).collect()).collect()
    }

    #[test]
    fn all_elements_are_signs_and_rows_are_orthogonal() {
        for (out, input) in [(8, 8), (5, 8), (3, 1)] {
            let rows = dense(out, input);
            assert!(rows.iter().flatten().all(|x| x.abs() == 2.0), "{out} × {input}");
            for (i, a) in rows.iter().enumerate().filter(|_| input == 8) {
                for b in &rows[..i] {
                    assert_eq!(a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>(), 0.0);
                }
            }
        }
        // More rows than the transform has: they repeat, but for their signs.
        let rows = dense(64, 5);
        assert!(rows.iter().flatten().all(|x| x.abs() == 2.0));
        let ups = rows.iter().flatten().filter(|x| **x > 0.0).count();
        assert!((100..220).contains(&ups), "{ups} of 320");
    }

    #[test]
    fn a_product_is_the_sum_of_its_columns() {
        let (rows, x) = (dense(6, 10), [1.0f32, -2.0, 3.0, 0.5, 4.0, -1.0, 2.0, 8.0, -0.25, 1.5]);
        let mut y = vec![1.0; 6];
        Signs::new(6, 10, 7).add(2.0, &x, &mut y);
        let wanted = |row: &Vec<f32>| 1.0 + row.iter().zip(&x).map(|(w, x)| w * x).sum::<f32>();
        assert_eq!(y, rows.iter().map(wanted).collect::<Vec<_>>());
    }
}
