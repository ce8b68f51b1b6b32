//! Which experts the rows of a pass are sent to.
//!
//! Source: transformers `MixtralTopKRouter`, `Qwen3MoeTopKRouter`, `DeepseekV2TopkRouter`, `DeepseekV3TopkRouter` and
//! `GptOssTopKRouter`@v5.23.

use model::module::{Groups, Routing, Scores};

/// The experts of rows, and the rows of experts. Nothing is allocated after [`Routes::new`].
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Of each row, best first: `[rows, used]`.
    chosen: Vec<Chosen>,
    /// Experts of a row.
    used: usize,
    /// The row at each place, where the rows of an expert follow each other.
    rows: Vec<usize>,
    /// The rows of each expert.
    pub(super) counts: Vec<usize>,
    /// Scores while a row's experts are chosen: `[experts]`.
    choice: Vec<f32>,
    /// How good each group of experts is.
    groups: Vec<f32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    expert: usize,
    /// The factor of its result.
    weight: f32,
    /// The place of the row among those of all experts.
    place: usize,
}

impl Routes {
    /// Room for `rows` rows that are sent to `used` of `experts` experts at most.
    pub(crate) fn new(rows: usize, used: usize, experts: usize) -> Routes {
        Routes {
            chosen: Vec::with_capacity(rows * used),
            used,
            rows: Vec::with_capacity(rows * used),
            counts: Vec::with_capacity(experts),
            choice: Vec::with_capacity(experts),
            groups: Vec::with_capacity(experts),
        }
    }

    /// Chooses the experts of each row of `scores`, the results of a router, `[rows, experts]`. These are overwritten. `correction`
    /// is `[experts]`.
    pub(super) fn choose(
        &mut self,
        routing: &Routing,
        correction: Option<&[f32]>,
        scores: &mut [f32],
        rows: usize,
    ) {
        let experts = scores.len() / rows;
        self.used = usize::try_from(routing.used).unwrap_or(usize::MAX);
        self.chosen.clear();
        self.counts.clear();
        self.counts.resize(experts, 0);
        for scores in scores.chunks_exact_mut(experts) {
            self.choose_of(routing, correction, scores);
        }
        self.place();
    }

    /// The same of one row.
    fn choose_of(&mut self, routing: &Routing, correction: Option<&[f32]>, scores: &mut [f32]) {
        match routing.scores {
            Scores::Softmax => softmax(scores),
            Scores::Sigmoid => scores.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
        }
        let choice = &mut self.choice;
        choice.clear();
        choice.extend_from_slice(scores);
        if let Some(correction) = correction {
            choice.iter_mut().zip(correction).for_each(|(x, by)| *x += by);
        }
        if let Some(groups) = routing.groups {
            keep_best(groups, choice, &mut self.groups);
        }
        let first = self.chosen.len();
        for _ in 0..self.used {
            let expert = best(choice);
            choice[expert] = f32::NEG_INFINITY;
            self.counts[expert] += 1;
            self.chosen.push(Chosen { expert, weight: scores[expert], place: 0 });
        }
        let chosen = &mut self.chosen[first..];
        // Sigmoids may all be 0.
        let sum = || chosen.iter().map(|chosen| chosen.weight).sum::<f32>() + 1e-20;
        let scale = if routing.normed { routing.scale / sum() } else { routing.scale };
        for chosen in chosen {
            chosen.weight *= scale;
        }
    }

    /// Finds the places of the rows of each expert.
    fn place(&mut self) {
        // `counts` are where the next row of an expert goes, and then again how many there are.
        let mut next = 0;
        for count in &mut self.counts {
            (*count, next) = (next, next + *count);
        }
        self.rows.clear();
        self.rows.resize(self.chosen.len(), 0);
        for (i, chosen) in self.chosen.iter_mut().enumerate() {
            let next = &mut self.counts[chosen.expert];
            chosen.place = *next;
            self.rows[*next] = i / self.used;
            *next += 1;
        }
        let mut before = 0;
        for end in &mut self.counts {
            (*end, before) = (*end - before, *end);
        }
    }

    /// `count` products that have `rows` rows each.
    pub(crate) fn equal(&mut self, count: usize, rows: usize) -> &[usize] {
        self.counts.clear();
        self.counts.resize(count, rows);
        &self.counts
    }

    /// The row at each place.
    pub(super) fn rows(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().copied()
    }

    /// The places of row `row` among those of all experts, and what the results there are multiplied with: best expert first.
    pub(super) fn of(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let chosen = &self.chosen[row * self.used..][..self.used];
        chosen.iter().map(|chosen| (chosen.place, chosen.weight))
    }
}

fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for x in &mut *x {
        *x = (*x - max).exp();
    }
    let sum: f32 = x.iter().sum();
    for x in x {
        *x /= sum;
    }
}

/// The place of the largest, the first of equal ones.
fn best(x: &[f32]) -> usize {
    let larger = |best: (usize, f32), x: (usize, f32)| if x.1.total_cmp(&best.1).is_gt() { x } else { best };
    x.iter().copied().enumerate().reduce(larger).map_or(0, |(place, _)| place)
}

/// The sum of the `count` largest.
fn best_sum(x: &[f32], count: usize) -> f32 {
    let by_rank = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let next = |last: Option<(usize, f32)>| {
        let after = |x: &(usize, f32)| last.is_none_or(|last| by_rank(&last, x).is_lt());
        x.iter().copied().enumerate().filter(after).min_by(by_rank)
    };
    let ranked = std::iter::successors(next(None), |last| next(Some(*last)));
    ranked.take(count).map(|(_, x)| x).sum()
}

/// Takes the experts of all but the best groups out of the choice. `sums` is room for a number for each group.
fn keep_best(groups: Groups, choice: &mut [f32], sums: &mut Vec<f32>) {
    let [all, used, count] = [groups.all, groups.used, groups.best].map(|n| n as usize);
    let each = choice.len() / all;
    sums.clear();
    sums.extend(choice.chunks_exact(each).map(|group| best_sum(group, count)));
    // The best are marked, and what has no mark goes.
    for _ in 0..used {
        let best = best(sums);
        sums[best] = f32::NEG_INFINITY;
    }
    for (group, sum) in choice.chunks_exact_mut(each).zip(sums) {
        if *sum > f32::NEG_INFINITY {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Routing =
        Routing { used: 2, scores: Scores::Softmax, groups: None, normed: false, scale: 1.0 };

    fn chosen(routing: Routing, correction: Option<&[f32]>, scores: &[f32]) -> Vec<(usize, f32)> {
        let mut routes = Routes::new(1, 4, 8);
        routes.choose(&routing, correction, &mut scores.to_vec(), 1);
        routes.chosen.iter().map(|chosen| (chosen.expert, chosen.weight)).collect()
    }

    fn experts(routing: Routing, correction: Option<&[f32]>, scores: &[f32]) -> Vec<usize> {
        chosen(routing, correction, scores).into_iter().map(|(expert, _)| expert).collect()
    }

    #[test]
    fn the_highest_scores_are_chosen_and_weighed() {
        let scores = [1.0, 3.0, 3.0, 2.0].map(f32::ln);
        let near = |found: Vec<(usize, f32)>, wanted: &[(usize, f32)]| {
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(
                    found.0 == wanted.0 && (found.1 - wanted.1).abs() < 1e-6,
                    "{found:?}, not {wanted:?}"
                );
            }
        };
        near(chosen(PLAIN, None, &scores), &[(1, 3.0 / 9.0), (2, 3.0 / 9.0)]);
        near(chosen(Routing { normed: true, scale: 4.0, ..PLAIN }, None, &scores), &[(1, 2.0), (2, 2.0)]);
        let sigmoid = Routing { scores: Scores::Sigmoid, used: 1, ..PLAIN };
        near(chosen(sigmoid, None, &scores), &[(1, 0.75)]);
        // The correction decides, and does not weigh.
        near(chosen(sigmoid, Some(&[1.0, 0.0, 0.0, 0.0]), &scores), &[(0, 0.5)]);
    }

    #[test]
    fn groups_are_chosen_by_their_best() {
        let scores = [9.0, 0.0, 5.0, 6.0, 7.0, 1.0, 2.0, 3.0];
        let groups = |used, best| Routing { groups: Some(Groups { all: 4, used, best }), ..PLAIN };
        assert_eq!(experts(groups(1, 1), None, &scores), [0, 1]);
        // By sums: of exponentials, the best alone counts here; sigmoids are all near 1 but for the second.
        let by_two = Routing { scores: Scores::Sigmoid, ..groups(1, 2) };
        assert_eq!(experts(by_two, None, &scores), [3, 2]);
        assert_eq!(experts(groups(2, 1), None, &scores), [0, 4]);
    }

    #[test]
    fn rows_of_an_expert_follow_each_other() {
        let mut routes = Routes::new(3, 2, 4);
        let mut scores = [[0.0, 1.0, 2.0, 0.0], [3.0, 0.0, 2.0, 0.0], [0.0, 0.0, 2.0, 5.0]].concat();
        routes.choose(&PLAIN, None, &mut scores, 3);
        assert_eq!(routes.counts, [1, 1, 3, 1]);
        assert_eq!(routes.rows().collect::<Vec<_>>(), [1, 0, 0, 1, 2, 2]);
        for row in 0..3 {
            for (place, _) in routes.of(row) {
                assert_eq!(routes.rows().nth(place), Some(row));
            }
        }
        // Again, of fewer rows.
        routes.choose(&PLAIN, None, &mut scores[..4], 1);
        assert_eq!(routes.rows().count(), 2);
    }
}
