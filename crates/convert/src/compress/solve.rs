//! Chooses one option for each item, so that the sum of their sizes is within a limit and the sum of their costs small.

use super::Choice;

/// Bytes and cost of each option, by bytes.
pub(super) struct Item {
    options: Vec<(u64, f64)>,
}

impl Item {
    pub(super) fn of(choice: &Choice) -> Item {
        Item { options: choice.candidates.iter().map(|c| (c.bytes, c.cost)).collect() }
    }

    /// The fewest bytes.
    pub(super) fn least(&self) -> u64 {
        self.options.iter().map(|option| option.0).min().unwrap_or(0)
    }

    /// The options on the lower convex hull, from the fewest bytes on: each costs less than the one before.
    fn hull(&self) -> Vec<usize> {
        let mut hull: Vec<usize> = vec![];
        let mut order: Vec<usize> = (0..self.options.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (self.options[*a], self.options[*b]);
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        for i in order {
            if hull.last().is_some_and(|last| self.options[i].1 >= self.options[*last].1) {
                continue;
            }
            while let [.., a, b] = hull[..]
                && self.gain(a, b) <= self.gain(b, i)
            {
                hull.pop();
            }
            hull.push(i);
        }
        hull
    }

    /// What is won for each byte on the way from option `a` to the larger `b`.
    fn gain(&self, a: usize, b: usize) -> f64 {
        let (a, b) = (self.options[a], self.options[b]);
        (a.1 - b.1) / (b.0 - a.0).max(1) as f64
    }
}

/// The option of each item; `None` if even the smallest ones are too large.
///
/// Along the convex hulls the steps that win most for each byte are taken first, which is optimal but for the last bytes. Then single
/// items are changed, and pairs of them, while that helps.
pub(super) fn solve(items: &[Item], limit: u64) -> Option<Vec<usize>> {
    let hulls: Vec<Vec<usize>> = items.iter().map(Item::hull).collect();
    let mut chosen: Vec<usize> = hulls.iter().map(|hull| hull.first().copied().unwrap_or(0)).collect();
    let size = |chosen: &[usize]| items.iter().zip(chosen).map(|(item, c)| item.options[*c].0).sum::<u64>();
    let mut room = limit.checked_sub(size(&chosen))?;
    let mut steps: Vec<(f64, usize, usize)> = vec![];
    for (i, (item, hull)) in items.iter().zip(&hulls).enumerate() {
        steps.extend(hull.windows(2).enumerate().map(|(at, pair)| (item.gain(pair[0], pair[1]), i, at)));
    }
    // Of equals the first.
    steps.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut at = vec![0; items.len()];
    for (_, i, step) in steps {
        let (from, to) = (hulls[i][step], hulls[i][step + 1]);
        let more = items[i].options[to].0 - items[i].options[from].0;
        if at[i] == step && more <= room {
            (at[i], chosen[i], room) = (step + 1, to, room - more);
        }
    }
    // Each round wins something; the number is for costs that differ by rounding alone.
    for _ in 0..10_000 {
        let Some(moves) = better(items, &chosen, room) else { break };
        for (i, to) in moves {
            room = room + items[i].options[chosen[i]].0 - items[i].options[to].0;
            chosen[i] = to;
        }
    }
    Some(chosen)
}

/// A change of one item.
#[derive(Clone, Copy)]
struct Move {
    item: usize,
    to: usize,
    /// Bytes that it takes more.
    bytes: i128,
    /// Cost that it saves.
    saves: f64,
}

/// The best change of one item, or of two of which one makes room for the other.
fn better(items: &[Item], chosen: &[usize], room: u64) -> Option<Vec<(usize, usize)>> {
    let mut moves = vec![];
    for (item, (options, now)) in items.iter().zip(chosen).enumerate() {
        let now = options.options[*now];
        let all = options.options.iter().enumerate();
        moves.extend(all.map(|(to, option)| Move {
            item,
            to,
            bytes: i128::from(option.0) - i128::from(now.0),
            saves: now.1 - option.1,
        }));
    }
    moves.sort_by_key(|m| (m.bytes, m.item, m.to));
    // Of the moves up to each, the two that save most, of different items.
    let mut best: Vec<[Option<Move>; 2]> = Vec::with_capacity(moves.len());
    let mut two: [Option<Move>; 2] = [None, None];
    for m in &moves {
        match two {
            [Some(first), second] if first.item == m.item => {
                two = [Some(if m.saves > first.saves { *m } else { first }), second];
            }
            [first, _] if first.is_none_or(|first| m.saves > first.saves) => two = [Some(*m), first],
            [first, second] if second.is_none_or(|second| m.saves > second.saves) => two = [first, Some(*m)],
            _ => {}
        }
        best.push(two);
    }
    let room = i128::from(room);
    let mut found: Option<(f64, Vec<(usize, usize)>)> = None;
    let mut offer = |saves: f64, moves: Vec<(usize, usize)>| {
        if saves > 0.0 && found.as_ref().is_none_or(|(most, _)| saves > *most * (1.0 + 1e-12)) {
            found = Some((saves, moves));
        }
    };
    for m in &moves {
        if m.bytes <= room {
            offer(m.saves, vec![(m.item, m.to)]);
        }
        let end = moves.partition_point(|other| other.bytes <= room - m.bytes);
        let Some(two) = end.checked_sub(1).map(|last| best[last]) else { continue };
        if let Some(other) = two.into_iter().flatten().find(|other| other.item != m.item) {
            offer(m.saves + other.saves, vec![(m.item, m.to), (other.item, other.to)]);
        }
    }
    found.map(|(_, moves)| moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(items: &[Item], chosen: &[usize]) -> (u64, f64) {
        let of = items.iter().zip(chosen).map(|(item, c)| item.options[*c]);
        of.fold((0, 0.0), |(bytes, cost), option| (bytes + option.0, cost + option.1))
    }

    /// All assignments.
    fn least(items: &[Item], limit: u64) -> Option<f64> {
        let mut sums = vec![(0, 0.0)];
        for item in items {
            let more = |(bytes, cost): &(u64, f64)| {
                item.options.iter().map(|o| (bytes + o.0, cost + o.1)).collect::<Vec<_>>()
            };
            sums = sums.iter().flat_map(more).collect();
        }
        sums.into_iter().filter(|sum| sum.0 <= limit).map(|sum| sum.1).min_by(f64::total_cmp)
    }

    #[test]
    fn it_is_as_good_as_trying_all_or_nearly() {
        let mut random = testkit::Rng(5);
        let mut number = |n: u64| random.next() % n;
        let (mut worst, mut tried) = (1.0f64, 0);
        for _ in 0..200 {
            let items: Vec<Item> = (0..5)
                .map(|_| {
                    let scale = 1 + number(50);
                    let options = (1..5i32).map(|n| {
                        let bytes = scale * (10 * u64::from(n.unsigned_abs()) + number(6));
                        (bytes, (1 + number(1000)) as f64 * 4f64.powi(-n))
                    });
                    Item { options: options.collect() }
                })
                .collect();
            let all: u64 = items.iter().map(|item| item.options[3].0).sum();
            let limit = all / 4 + number(all);
            let chosen = solve(&items, limit);
            let Some(wanted) = least(&items, limit) else {
                assert!(chosen.is_none());
                continue;
            };
            let found = cost(&items, &chosen.unwrap());
            assert!(found.0 <= limit && found.1 >= wanted - 1e-9);
            worst = worst.max(found.1 / wanted);
            tried += 1;
        }
        assert!(tried > 100 && worst < 1.1, "{tried} tried, the worst {worst} times the best");
    }

    #[test]
    fn the_limit_is_kept_and_what_fits_is_taken() {
        let item = |options: &[(u64, f64)]| Item { options: options.to_vec() };
        let items = [item(&[(10, 8.0), (20, 1.0)]), item(&[(10, 9.0), (20, 2.0), (30, 1.9)])];
        assert!(solve(&items, 19).is_none());
        assert_eq!(solve(&items, 20), Some(vec![0, 0]));
        assert_eq!(solve(&items, 39), Some(vec![1, 0]));
        assert_eq!(solve(&items, 49), Some(vec![1, 1]));
        assert_eq!(solve(&items, 50), Some(vec![1, 2]));
        // A larger encoding that loses more is never taken.
        assert_eq!(solve(&[item(&[(10, 1.0), (20, 5.0)])], 100), Some(vec![0]));
    }
}
