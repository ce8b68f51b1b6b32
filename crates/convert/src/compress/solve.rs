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
}

/// States that are kept for all items together, at most: some tens of MB.
const STATES: usize = 1 << 20;

/// Options of the items so far: their bytes and cost, the state before the last of them, and its option.
#[derive(Clone, Copy)]
struct State {
    bytes: u64,
    cost: f64,
    before: usize,
    option: usize,
}

/// The option of each item; `None` if even the smallest ones are too large.
///
/// Items are taken one after the other. Of all ways to choose so far it keeps, in each of some thousand ranges of bytes, the one that
/// costs least, if no smaller one costs as little: all of them where there are few. Then single items are changed, and pairs of them,
/// while that helps.
pub(super) fn solve(items: &[Item], limit: u64) -> Option<Vec<usize>> {
    // The fewest bytes of the items that are left.
    let mut left = items.iter().map(Item::least).sum::<u64>();
    if left > limit {
        return None;
    }
    let ranges = (STATES / items.len().max(1)).clamp(1 << 10, 1 << 14);
    let range = |bytes: u64| {
        let at = u128::from(bytes) * (ranges as u128 - 1) / u128::from(limit.max(1));
        usize::try_from(at).unwrap_or(usize::MAX).min(ranges - 1)
    };
    let mut stages = vec![vec![State { bytes: 0, cost: 0.0, before: 0, option: 0 }]];
    for item in items {
        left -= item.least();
        let mut best: Vec<Option<State>> = vec![None; ranges];
        for (before, state) in stages.last().into_iter().flatten().enumerate() {
            for (option, (bytes, cost)) in item.options.iter().enumerate() {
                let next = State { bytes: state.bytes + bytes, cost: state.cost + cost, before, option };
                let place = &mut best[range(next.bytes)];
                let better = |old: &State| (next.cost, next.bytes) <= (old.cost, old.bytes);
                if next.bytes + left <= limit && place.as_ref().is_none_or(better) {
                    *place = Some(next);
                }
            }
        }
        let mut kept: Vec<State> = vec![];
        for state in best.into_iter().flatten() {
            if kept.last().is_none_or(|smaller| state.cost < smaller.cost) {
                kept.push(state);
            }
        }
        stages.push(kept);
    }
    // The last costs least.
    let mut at = stages.last()?.len().checked_sub(1)?;
    let mut chosen = vec![0; items.len()];
    for (chosen, stage) in chosen.iter_mut().zip(&stages[1..]).rev() {
        (*chosen, at) = (stage[at].option, stage[at].before);
    }
    let size: u64 = items.iter().zip(&chosen).map(|(item, c)| item.options[*c].0).sum();
    let mut room = limit - size;
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
