use super::*;
use crate::BATCH;
use crate::state::SavedState;

const SHAPE: KvShape = KvShape { kv_heads: 3, key: 4, value: 6, shared: false, window: None };

/// Any numbers, which differ from position to position and from head to head.
fn row(position: usize, elements: usize) -> Vec<f32> {
    (0..elements).map(|i| ((position * 31 + i * 7) % 101) as f32 / 8.0 - 6.0).collect()
}

fn cache(shape: KvShape, kind: KvKind, capacity: usize) -> KvCache {
    KvCache::new(shape, kind, capacity).unwrap()
}

fn extend(cache: &mut KvCache, positions: Range<usize>) {
    let KvShape { kv_heads, key, value, .. } = cache.shape;
    let rows: Vec<_> =
        positions.clone().map(|p| (row(p, kv_heads * key), row(p + 50, kv_heads * value))).collect();
    cache.extend(positions.start, rows.iter().map(|(k, v)| (&k[..], &v[..])));
}

/// Fills it up to `len`, in passes.
fn fill(cache: &mut KvCache, len: usize, pass: usize) {
    while cache.len < len {
        let end = len.min(cache.len + pass);
        extend(cache, cache.len..end);
    }
}

/// What a query at the next position sees of all heads.
fn seen(cache: &KvCache, at: usize) -> Vec<f32> {
    let from = cache.shape.window.map_or(0, |window| (at + 1).saturating_sub(window));
    let heads = (0..cache.shape.kv_heads).map(|head| cache.rows(head, from..cache.len.min(at + 1), at));
    heads.flat_map(|(keys, values)| keys.into_iter().chain(values)).collect()
}

/// The largest difference.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn rows_are_found_where_they_were_written() {
    for kind in [KvKind::F32, KvKind::F16] {
        let mut cache = cache(SHAPE, kind, 200);
        fill(&mut cache, 150, 40);
        let (keys, values) = cache.rows(2, 60..70, 149);
        for (i, position) in (60..70).enumerate() {
            assert_eq!(keys[i * 4..][..4], row(position, 12)[8..], "{kind}");
            assert_eq!(values[i * 6..][..6], row(position + 50, 18)[12..], "{kind}");
        }
    }
}

#[test]
fn older_positions_are_near_what_was_written_and_recent_ones_equal_it() {
    let mut exact = cache(SHAPE, KvKind::F32, 1000);
    fill(&mut exact, 700, 100);
    let want = exact.rows(1, 0..700, 699);
    for (kind, most) in [(KvKind::Int8, 12.5 / 255.0 / 1.9), (KvKind::Int4, 12.5 / 15.0 / 1.9)] {
        let mut cache = cache(SHAPE, kind, 1000);
        fill(&mut cache, 700, 100);
        let found = cache.rows(1, 0..700, 699);
        let error = apart(&found.0, &want.0).max(apart(&found.1, &want.1));
        assert!(error > 0.0 && error < most, "{kind}: {error}");
        let recent = 700 - RECENT;
        assert_eq!(found.0[recent * 4..], want.0[recent * 4..], "{kind}");
        assert_eq!(found.1[recent * 6..], want.1[recent * 6..], "{kind}");
    }
}

#[test]
fn what_a_query_sees_does_not_depend_on_the_passes_before() {
    for kind in KvKind::ALL {
        for window in [None, Some(100), Some(600)] {
            let shape = KvShape { window, ..SHAPE };
            let [mut slow, mut fast] = [(); 2].map(|()| cache(shape, kind, 1500));
            for end in (1..1400).step_by(199) {
                // One after the other, and as many as a pass may have.
                fill(&mut slow, end, 1);
                fast.truncate(0);
                fill(&mut fast, end, BATCH);
                assert_eq!(seen(&slow, end - 1), seen(&fast, end - 1), "{kind}, {window:?}, {end}");
                // A query in the middle of the pass sees what it would have seen at its end.
                let middle = end - 1 - (end - 1) % BATCH;
                let mut alone = cache(shape, kind, 1500);
                fill(&mut alone, middle + 1, 7);
                let [found, want] = [&fast, &alone].map(|cache| {
                    let from = window.map_or(0, |window| (middle + 1).saturating_sub(window));
                    cache.rows(2, from..=middle, middle)
                });
                assert_eq!(found, want, "{kind}, {window:?}, {middle} of {end}");
            }
        }
    }
}

#[test]
fn what_was_guessed_wrong_in_one_pass_is_as_if_it_had_not_been() {
    for kind in KvKind::ALL {
        for window in [None, Some(100), Some(600)] {
            let [mut cache, mut want] = [(); 2].map(|()| cache(KvShape { window, ..SHAPE }, kind, 1500));
            fill(&mut cache, 500, 60);
            fill(&mut want, 500, 60);
            for step in [1, 17, 64, 200, 250] {
                let start = cache.len;
                extend(&mut cache, start..start + BATCH);
                assert!(cache.reaches(start + step));
                cache.truncate(start + step);
                extend(&mut want, start..start + step);
                extend(&mut cache, start + step..start + step + 1);
                extend(&mut want, start + step..start + step + 1);
                assert_eq!(
                    seen(&cache, start + step),
                    seen(&want, start + step),
                    "{kind}, {window:?}, {step}"
                );
            }
        }
    }
}

#[test]
fn going_far_back_reaches_what_is_kept() {
    for kind in KvKind::ALL {
        let mut cache = cache(SHAPE, kind, 1500);
        fill(&mut cache, 1400, 200);
        for back in [1399, 1200, 1088, 1087, 641, 640, 300, 64, 10, 1, 0] {
            // Pages of which there are codes alone do not become what they were.
            let exact = kind.code_bits().is_none() || back >= 1088 || back == 0;
            assert_eq!(cache.reaches(back), exact, "{kind}, {back}");
            if !exact {
                continue;
            }
            cache.truncate(back);
            extend(&mut cache, back..back + 1);
            let mut want = self::cache(SHAPE, kind, 1500);
            fill(&mut want, back + 1, 50);
            assert_eq!(seen(&cache, back), seen(&want, back), "{kind}, {back}");
        }
    }
    // A window forgets what it has passed.
    for kind in KvKind::ALL {
        let shape = KvShape { key: 64, value: 64, ..SHAPE };
        let mut cache = cache(KvShape { window: Some(600), ..shape }, kind, 1500);
        fill(&mut cache, 1400, 200);
        assert!(cache.reaches(1390) && cache.reaches(0) && !cache.reaches(700), "{kind}");
        assert!((cache.bytes() as u64) < shape.bytes(kind, 1500).unwrap() * 5 / 6, "{kind}");
    }
}

#[test]
fn sessions_go_on_from_a_snapshot_and_share_it() {
    for kind in KvKind::ALL {
        for window in [None, Some(100), Some(600)] {
            let shape = KvShape { window, ..SHAPE };
            let mut first = cache(shape, kind, 1500);
            fill(&mut first, 777, 130);
            let snapshot = first.snapshot(777);
            let [mut second, mut third] = [1000, 1500].map(|capacity| cache(shape, kind, capacity));
            fill(&mut second, 300, 100);
            for fork in [&mut second, &mut third] {
                fork.restore(&snapshot, 777);
                assert_eq!(seen(fork, 777), seen(&first, 777), "{kind}, {window:?}");
            }
            let before = seen(&third, 777);
            for fork in [&mut first, &mut second] {
                fill(fork, 990, 9);
            }
            assert_eq!(seen(&first, 989), seen(&second, 989), "{kind}, {window:?}");
            assert_eq!(seen(&third, 777), before, "{kind}, {window:?}: the others wrote into what it sees");
            // What it shares is copied before it is written.
            second.restore(&snapshot, 777);
            second.truncate(770);
            extend(&mut second, 770..771);
            third.truncate(770);
            assert_eq!(seen(&third, 769), seen(&second, 769), "{kind}, {window:?}");
            // Or a part of it, as far as the pages that it had without codes reach.
            let start = 777usize.div_ceil(PAGE).saturating_sub(shape.pages(kind, 1500).full);
            for len in [776, 769, 768, 704, 600, 500, 300, 1, 0] {
                assert_eq!(
                    second.reaches_in(&snapshot, len),
                    first.first_full(len) >= start || len == 0,
                    "{kind}, {window:?}, {len}"
                );
                if second.reaches_in(&snapshot, len) {
                    let mut part = cache(shape, kind, len + 1);
                    part.restore(&snapshot, len);
                    extend(&mut part, len..len + 1);
                    let mut whole = cache(shape, kind, len + 1);
                    fill(&mut whole, len + 1, 50);
                    assert_eq!(seen(&part, len), seen(&whole, len), "{kind}, {window:?}, {len}");
                }
            }
            let again = second.snapshot(771);
            // The pages that both have are there once.
            let places = |snapshot: &KvSnapshot| -> Vec<*const u32> {
                let pages = snapshot.full.pages.iter().chain(&snapshot.coded.pages);
                pages.flat_map(SharedPage::parts).map(<[u32]>::as_ptr).collect()
            };
            let before = places(&snapshot);
            let shared = places(&again).into_iter().filter(|place| before.contains(place)).count();
            assert!(shared > 0 && again.bytes() > 0, "{kind}, {window:?}");
        }
    }
}

/// At some lengths the next position is the first that reads a page by its codes, which are not made yet.
#[test]
fn a_snapshot_of_any_length_has_what_the_next_position_sees() {
    for kind in KvKind::ALL {
        for window in [None, Some(600)] {
            let shape = KvShape { window, ..SHAPE };
            let mut first = cache(shape, kind, 1000);
            for len in 1..900 {
                let snapshot = first.snapshot(first.len);
                let mut second = cache(shape, kind, 1000);
                assert!(second.reaches_in(&snapshot, first.len), "{kind}, {window:?}, {len}");
                second.restore(&snapshot, first.len);
                for cache in [&mut first, &mut second] {
                    extend(cache, len - 1..len);
                }
                assert_eq!(seen(&first, len - 1), seen(&second, len - 1), "{kind}, {window:?}, {len}");
            }
        }
    }
}

#[test]
fn values_may_be_part_of_their_keys() {
    for kind in KvKind::ALL {
        let shape = KvShape { kv_heads: 1, key: 12, value: 8, shared: true, window: None };
        let mut cache = cache(shape, kind, 300);
        for position in 0..300 {
            cache.extend(position, [(&row(position, 12)[..], &[][..])].into_iter());
        }
        let (keys, values) = cache.rows(0, 0..300, 299);
        let starts: Vec<f32> = keys.chunks_exact(12).flat_map(|key| &key[..8]).copied().collect();
        assert_eq!(values, starts, "{kind}");
        assert!(apart(&keys[..12], &row(0, 12)) < 0.5, "{kind}");
        assert_eq!(cache.bytes() as u64, shape.bytes(kind, 300).unwrap(), "{kind}");
    }
}

#[test]
fn codes_are_as_small_as_they_say() {
    let shape = KvShape { kv_heads: 3, key: 64, value: 64, shared: false, window: None };
    let of =
        |kind| shape.bytes(kind, 1 << 20).unwrap() as f64 / shape.bytes(KvKind::F32, 1 << 20).unwrap() as f64;
    assert!((of(KvKind::F16) - 0.5).abs() < 1e-3);
    assert!((of(KvKind::Int8) - 9.0 / 32.0).abs() < 1e-3);
    assert!((of(KvKind::Int4) - 5.0 / 32.0).abs() < 1e-3);
    for kind in KvKind::ALL {
        let cache = cache(shape, kind, 3000);
        assert_eq!(cache.bytes() as u64, shape.bytes(kind, 3000).unwrap(), "{kind}");
        let read = shape.reads(kind, 2999);
        assert!(read <= shape.bytes(kind, 3000).unwrap() && read > shape.reads(kind, 1000), "{kind}");
    }
}

#[test]
fn an_absurd_size_is_an_error() {
    for kind in KvKind::ALL {
        let shape = |n| KvShape { kv_heads: n, key: n, value: n, shared: false, window: None };
        assert!(matches!(KvCache::new(shape(1 << 20), kind, 1 << 40), Err(Error::CacheTooLarge { .. })));
        assert!(matches!(KvCache::new(shape(1 << 18), kind, 1 << 18), Err(Error::CacheTooLarge { .. })));
    }
}

/// Evicts down to `budget` with a weight of 1 for each of `wanted` in all heads but the last, which wants those a page later.
fn evict(cache: &mut KvCache, budget: usize, wanted: &[usize]) {
    let heads = cache.shape.kv_heads;
    cache
        .evict(budget, |cache, queries, weights| {
            assert_eq!(queries.len() % 2, 0);
            let before = weights.len() / heads;
            assert_eq!(before, cache.len() - queries.len() / 2);
            for (head, weights) in weights.chunks_exact_mut(before).enumerate() {
                let later = if head + 1 == heads { PAGE } else { 0 };
                for place in wanted {
                    weights[place + later] = 1.0;
                }
            }
        })
        .unwrap();
}

/// A cache of `len` positions that observes queries.
fn observed(kind: KvKind, capacity: usize, len: usize) -> KvCache {
    let mut cache = cache(SHAPE, kind, capacity);
    cache.observe(Some(2));
    fill(&mut cache, len, 90);
    observe(&mut cache, 0..len);
    cache
}

fn observe(cache: &mut KvCache, positions: Range<usize>) {
    let queries: Vec<_> = positions.clone().map(|position| [position as f32; 2]).collect();
    cache.observed().unwrap().add(positions.start, queries.iter().map(|query| &query[..]));
}

#[test]
fn what_is_looked_at_most_is_kept_with_its_neighbours_and_the_last() {
    for kind in KvKind::ALL {
        let mut cache = observed(kind, 1500, 1100);
        let whole: Vec<_> = (0..3).map(|head| cache.rows(head, 0..1100, 1099)).collect();
        evict(&mut cache, 64 + 10, &[100, 900]);
        assert_eq!((cache.len(), cache.left_out(), cache.place(1100)), (74, 1026, 74), "{kind}");
        for (head, (keys, values)) in whole.iter().enumerate() {
            let later = if head == 2 { PAGE } else { 0 };
            let kept = [100, 900].into_iter().flat_map(|at| at + later - 2..at + later + 3).chain(1036..1100);
            let (found_keys, found_values) = cache.rows(head, 0..74, 73);
            for (n, place) in kept.enumerate() {
                // Few are left: none has a code any more, and a code's number is one of binary16, rounded.
                let (key, value) = (&found_keys[n * 4..][..4], &found_values[n * 6..][..6]);
                assert!(apart(key, &keys[place * 4..][..4]) < 4e-3, "{kind}, {head}, {place}");
                assert!(apart(value, &values[place * 6..][..6]) < 4e-3, "{kind}, {head}, {place}");
                if kind == KvKind::F32 {
                    assert_eq!(
                        (key, value),
                        (&row(place, 12)[head * 4..][..4], &row(place + 50, 18)[head * 6..][..6])
                    );
                }
            }
        }
        let queries = 4 * 2 * OBSERVED as u64;
        assert_eq!(cache.bytes() as u64, SHAPE.bytes(kind, 1500).unwrap() + queries, "{kind}");
    }
}

#[test]
fn a_session_goes_on_behind_what_was_kept() {
    for kind in KvKind::ALL {
        let mut evicted = observed(kind, 1500, 1100);
        // Nothing to do.
        evict(&mut evicted, 1100, &[]);
        assert_eq!(evicted.left_out(), 0);
        evict(&mut evicted, 400, &[30, 31, 32]);
        let kept = seen(&evicted, 399);
        // Not back into the prompt, but to its beginning.
        assert!(evicted.reaches(1100) && evicted.reaches(0), "{kind}");
        assert!(!evicted.reaches(1099) && !evicted.reaches(399) && !evicted.reaches(1), "{kind}");
        // What was guessed wrong is taken back.
        extend(&mut evicted, 1100..1105);
        assert!(evicted.reaches(1102));
        evicted.truncate(1102);
        extend(&mut evicted, 1102..1103);
        let (keys, _) = evicted.rows(1, 400..403, 402);
        assert_eq!(keys, (1100..1103).flat_map(|p| row(p, 12)[4..8].to_vec()).collect::<Vec<_>>(), "{kind}");
        let snapshot = evicted.snapshot(1103);
        let mut other = cache(SHAPE, kind, 1200);
        assert!(other.reaches_in(&snapshot, 1103) && other.reaches_in(&snapshot, 1100));
        assert!(!other.reaches_in(&snapshot, 1099) && !other.reaches_in(&snapshot, 300));
        other.restore(&snapshot, 1100);
        assert_eq!((seen(&other, 399), other.left_out()), (kept, 700), "{kind}");
        other.restore(&snapshot, 1103);
        assert_eq!(seen(&other, 402), seen(&evicted, 402), "{kind}");
        // The next prompt is taken in, and thinned again: what was kept of the first may be left out now.
        for fork in [&mut other, &mut evicted] {
            extend(fork, 1103..1400);
        }
        assert_eq!(seen(&other, 699), seen(&evicted, 699), "{kind}");
        observe(&mut evicted, 1336..1400);
        evict(&mut evicted, 100, &[350, 550]);
        assert_eq!((evicted.len(), evicted.left_out()), (100, 1300), "{kind}");
        extend(&mut evicted, 1400..1500);
        assert_eq!(evicted.len(), 200);
        // And another text has all the room.
        evicted.truncate(0);
        assert_eq!((evicted.len(), evicted.left_out()), (0, 0));
        let mut fresh = cache(SHAPE, kind, 1500);
        for cache in [&mut evicted, &mut fresh] {
            fill(cache, 1500, 200);
        }
        assert_eq!(seen(&evicted, 1499), seen(&fresh, 1499), "{kind}");
        // It restores what was not thinned, too.
        evicted.restore(&observed(kind, 1500, 700).snapshot(700), 700);
        assert_eq!((evicted.len(), evicted.left_out()), (700, 0));
    }
}

/// A cache that goes on from a snapshot holds pages that follow each other in one place.
#[test]
fn the_pages_of_a_snapshot_lie_together() {
    for kind in KvKind::ALL {
        let mut first = cache(SHAPE, kind, 1100);
        fill(&mut first, 1030, 9);
        let mut second = cache(SHAPE, kind, 1100);
        second.restore(&first.snapshot(1030), 1030);
        let read = |cache: &KvCache| cache.memory().collect::<Vec<_>>().concat();
        assert!(read(&first) == read(&second), "{kind}");
        // Two runs of eight pages, and one page that may be written.
        let (heads, stretches) = (2 * SHAPE.kv_heads, second.memory().count());
        let most = if kind.code_bits().is_some() { 6 } else { 3 };
        assert!(stretches <= most * heads, "{kind}: {stretches} stretches for {heads} heads");
    }
}

/// A file that has whatever is asked for.
struct Any {
    /// As many rows as may be, or as few.
    most: bool,
}

impl SavedState for Any {
    type Error = String;

    fn rows(
        &mut self,
        _: &str,
        width: usize,
        count: std::ops::RangeInclusive<usize>,
    ) -> Result<Vec<Vec<u32>>, String> {
        let count = if self.most { *count.end() } else { *count.start() };
        Ok(vec![vec![0; width]; count])
    }

    fn wrong(&self, what: &str) -> String {
        what.to_owned()
    }
}

/// Whatever a file says, it is an error, or positions that a session can go on from.
#[test]
fn no_positions_of_a_file_break_a_cache() {
    let numbers = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 64, 100, 500, 700, 701, u64::MAX];
    let (mut taken, mut refused) = (0, 0);
    for kind in [KvKind::F16, KvKind::Int8] {
        for window in [None, Some(100), Some(600)] {
            let shape = KvShape { kv_heads: 1, key: 2, value: 2, window, shared: false };
            let mut cache = cache(shape, kind, 800);
            for position in [0, 1, 64, 192, 700] {
                for (left_out, kept) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
                    for (full, coded) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
                        for most in [false, true] {
                            let places = [left_out, kept, full, coded];
                            let Ok(snapshot) = cache.read(position, places, &mut Any { most }) else {
                                refused += 1;
                                continue;
                            };
                            taken += 1;
                            for len in [position, position.saturating_sub(1), position / 2] {
                                if cache.reaches_in(&snapshot, len) {
                                    cache.restore(&snapshot, len);
                                    extend_at(&mut cache, len);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(taken > 100 && refused > 1000, "{taken} taken, {refused} refused");
}

/// Runs some positions from the session's position `at` on, and looks at all that they see.
fn extend_at(cache: &mut KvCache, at: usize) {
    let numbers = [0.5; 2];
    cache.extend(at, std::iter::repeat_n((&numbers[..], &numbers[..]), 70));
    let last = cache.len - 1;
    assert!(seen(cache, last).iter().all(|x| x.is_finite()));
}
