//! The vector of a text, made of the vectors of its tokens.
//!
//! Source: `Pooling`, sentence_transformer/modules/pooling.py of sentence-transformers 6.2.

/// One way to make a vector of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The first token's.
    Cls,
    /// The largest of each element.
    Max,
    /// The mean.
    Mean,
    /// The sum, divided by the square root of the number of tokens.
    MeanSqrtLength,
    /// The mean, in which the token at position `i` counts `i + 1` times.
    WeightedMean,
    /// The last token's.
    LastToken,
}

impl Way {
    /// In the order in which old settings join the results.
    pub(super) const ALL: [Way; 6] =
        [Way::Cls, Way::Max, Way::Mean, Way::MeanSqrtLength, Way::WeightedMean, Way::LastToken];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Way::Cls => "cls",
            Way::Max => "max",
            Way::Mean => "mean",
            Way::MeanSqrtLength => "mean_sqrt_len_tokens",
            Way::WeightedMean => "weightedmean",
            Way::LastToken => "lasttoken",
        }
    }

    /// The key of settings of before 5.3.
    pub(super) fn old_name(self) -> &'static str {
        match self {
            Way::Cls => "pooling_mode_cls_token",
            Way::Max => "pooling_mode_max_tokens",
            Way::Mean => "pooling_mode_mean_tokens",
            Way::MeanSqrtLength => "pooling_mode_mean_sqrt_len_tokens",
            Way::WeightedMean => "pooling_mode_weightedmean_tokens",
            Way::LastToken => "pooling_mode_lasttoken",
        }
    }
}

/// The pooling of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pooling {
    /// Their results are joined.
    pub(super) ways: Vec<Way>,
    /// Whether the tokens of a prompt count.
    pub(super) includes_prompt: bool,
}

impl Pooling {
    /// Appends the vector of a text to `out`, `[ways · hidden]`: `tokens` is `[tokens, hidden]`, of which the first `prompt` are
    /// those of a prompt.
    pub(super) fn run(&self, tokens: &[f32], hidden: usize, prompt: usize, out: &mut Vec<f32>) {
        let all = tokens.len() / hidden;
        // A text may be so long a prompt that nothing else is left: sentence-transformers takes all of it then for the first token,
        // and none for means.
        let skipped = if self.includes_prompt { 0 } else { prompt.min(all) };
        let rows = || tokens.chunks_exact(hidden).enumerate().skip(skipped);
        for way in &self.ways {
            match way {
                Way::Cls => {
                    let first = if skipped < all { skipped } else { 0 };
                    out.extend_from_slice(&tokens[first * hidden..][..hidden]);
                }
                Way::LastToken => out.extend_from_slice(&tokens[(all - 1) * hidden..]),
                Way::Max => {
                    let largest = |i| rows().map(|(_, row)| row[i]).fold(f32::NEG_INFINITY, f32::max);
                    out.extend((0..hidden).map(largest));
                }
                Way::Mean | Way::MeanSqrtLength | Way::WeightedMean => {
                    let weight = |at: usize| if *way == Way::WeightedMean { at as f64 + 1.0 } else { 1.0 };
                    let total: f64 = rows().map(|(at, _)| weight(at)).sum();
                    let divisor = if *way == Way::MeanSqrtLength { total.sqrt() } else { total }.max(1e-9);
                    let mut sums = vec![0f64; hidden];
                    for (at, row) in rows() {
                        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight(at) * f64::from(*x));
                    }
                    #[expect(clippy::cast_possible_truncation, reason = "summed in f64, kept in f32")]
                    out.extend(sums.iter().map(|sum| (sum / divisor) as f32));
                }
            }
        }
    }
}

/// Divides `vector` by its length, as `torch.nn.functional.normalize` does.
pub(super) fn normalize(vector: &mut [f32]) {
    let square: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = square.sqrt().max(1e-12);
    for x in vector {
        #[expect(clippy::cast_possible_truncation, reason = "divided in f64, kept in f32")]
        let divided = (f64::from(*x) / length) as f32;
        *x = divided;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three tokens of two elements, the first of them a prompt.
    const TOKENS: [f32; 6] = [1.0, -2.0, 3.0, 4.0, 5.0, -6.0];

    fn pooled(way: Way, includes_prompt: bool) -> Vec<f32> {
        let mut out = vec![];
        Pooling { ways: vec![way], includes_prompt }.run(&TOKENS, 2, 1, &mut out);
        out
    }

    /// The numbers are those of sentence-transformers 6.2 for these tokens.
    #[test]
    fn each_way_is_that_of_sentence_transformers() {
        for (way, all, rest) in [
            (Way::Cls, [1.0, -2.0], [3.0, 4.0]),
            (Way::Max, [5.0, 4.0], [5.0, 4.0]),
            (Way::Mean, [3.0, -1.333_333_4], [4.0, -1.0]),
            (Way::MeanSqrtLength, [5.196_152_7, -2.309_401], [5.656_854, -std::f32::consts::SQRT_2]),
            (Way::WeightedMean, [3.666_666_7, -2.0], [4.2, -2.0]),
            (Way::LastToken, [5.0, -6.0], [5.0, -6.0]),
        ] {
            for (includes_prompt, wanted) in [(true, all), (false, rest)] {
                let found = pooled(way, includes_prompt);
                let near = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6);
                assert!(near, "{way:?} {includes_prompt}: {found:?}, wanted {wanted:?}");
            }
        }
    }

    #[test]
    fn nothing_has_no_direction() {
        let mut zero = [0.0; 3];
        normalize(&mut zero);
        assert!(zero.iter().all(|x| x.to_bits() == 0));
        let mut some = [3.0, 4.0];
        normalize(&mut some);
        assert_eq!(some.map(f32::to_bits), [0.6f32, 0.8].map(f32::to_bits));
    }
}
