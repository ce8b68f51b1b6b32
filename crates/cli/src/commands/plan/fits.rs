//! `plan --memory`: whether a load fits, and what would.

use weighbridge::load::{self, Needs};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Mesh, Plan};

use crate::failure::Failure;
use crate::json;

/// Ranks that are tried, at most.
pub(super) const MOST_RANKS: u64 = 64;

/// Parameters and buffers held in one way.
pub(crate) struct MemoryUse {
    /// Nothing stays in a map.
    owned: bool,
    needs: Needs,
    /// Bytes of keys and values.
    cache: u64,
}

/// Keys and values of a sequence, which a run keeps beside the parameters.
pub(crate) struct Cache<'a> {
    /// Positions.
    pub(crate) positions: u64,
    /// Their bytes on one rank of the given number of ranks.
    pub(crate) bytes: &'a dyn Fn(u64) -> u64,
}

impl MemoryUse {
    fn of(plan: &Plan, owned: bool, threads: usize, cache: u64) -> Result<MemoryUse, Failure> {
        let options = load::Options { owned, ..load::Options::default() };
        Ok(MemoryUse { owned, needs: plan.needs(options, threads)?, cache })
    }

    /// Bytes that stay in memory for the whole run.
    fn stays(&self) -> u64 {
        self.needs.owned.saturating_add(self.cache)
    }

    /// The limit on buffers that lets it fit into `memory`: `None` if there is none.
    fn room(&self, memory: u64) -> Option<u64> {
        memory.checked_sub(self.stays()).filter(|room| *room >= self.needs.least_scratch)
    }

    /// What it takes with as many buffers as it likes.
    fn all(&self) -> u64 {
        self.stays().saturating_add(self.needs.scratch)
    }

    fn text(&self, memory: u64) -> String {
        let how = if self.owned { "owned" } else { "mapped" };
        let Needs { owned, scratch, least_scratch, borrowed, neediest, .. } = &self.needs;
        let map = match borrowed {
            0 => String::new(),
            n => format!(" ({} more stay in the page cache)", Bytes(*n)),
        };
        let cache = match self.cache {
            0 => String::new(),
            n => format!(", {} for the KV cache", Bytes(n)),
        };
        let map = map + &cache;
        let parameters = Bytes(*owned);
        match self.room(memory) {
            Some(room) if room >= *scratch => format!(
                "fits, {how}: {parameters} for parameters{map}, {} of buffers, {} to spare",
                Bytes(*scratch),
                Bytes(memory - self.all())
            ),
            Some(room) => format!(
                "fits, {how}, with smaller buffers: {parameters} for parameters{map}, {} of buffers: `load --memory {room}`",
                Bytes(room)
            ),
            None => {
                let who = neediest.as_ref().map_or_else(String::new, |who| format!(" (`{who}`)"));
                format!(
                    "does not fit, {how}: {parameters} for parameters{map}, and at least {} of buffers{who}",
                    Bytes(*least_scratch)
                )
            }
        }
    }

    fn json(&self, memory: u64) -> json::MemoryUse<'_> {
        let Needs { owned, scratch, least_scratch, borrowed, neediest, .. } = &self.needs;
        let room = self.room(memory);
        json::MemoryUse {
            fits: room.is_some(),
            bytes_owned: *owned,
            cache_bytes: self.cache,
            bytes_borrowed: *borrowed,
            scratch_bytes: room.map(|room| room.min(*scratch)),
            scratch_bytes_unlimited: *scratch,
            scratch_bytes_least: *least_scratch,
            neediest: neediest.as_deref(),
        }
    }
}

/// Whether a load fits into so much memory.
pub(crate) struct Fits {
    memory: u64,
    /// Positions whose keys and values are counted.
    positions: Option<u64>,
    /// The ways that were looked at, the best first.
    ways: Vec<MemoryUse>,
    /// The least `tp` with which the first rank's share fits, if none of the ways does.
    shared: Option<(u64, MemoryUse)>,
}

impl Fits {
    /// Looks at `plan`: owned first, then borrowed if it may be, then on more ranks, whose first has the plan that `share`
    /// makes; it fails where the model cannot be divided so.
    pub(crate) fn look(
        memory: u64,
        plan: &Plan,
        (only_owned, threads): (bool, usize),
        mesh: &Mesh,
        cache: Option<&Cache<'_>>,
        share: impl Fn(Mesh) -> Result<Plan, weighbridge::planner::Error>,
    ) -> Result<Fits, Failure> {
        let kept = |tp| cache.map_or(0, |cache| (cache.bytes)(tp));
        let positions = cache.map(|cache| cache.positions);
        let mut fits = Fits { memory, positions, ways: vec![], shared: None };
        for owned in [true, false] {
            if owned || !only_owned && !fits.any() {
                fits.ways.push(MemoryUse::of(plan, owned, threads, kept(mesh.tp))?);
            }
        }
        if fits.any() {
            return Ok(fits);
        }
        // Fewer ranks than this cannot do, whatever is shared.
        let least = fits.ways.iter().map(MemoryUse::stays).min().unwrap_or(0).div_ceil(memory);
        for tp in (mesh.tp + 1).max(mesh.tp.saturating_mul(least))..=MOST_RANKS {
            let Ok(plan) = share(Mesh { tp, ..*mesh }) else { continue };
            for owned in if only_owned { &[true][..] } else { &[true, false] } {
                let held = MemoryUse::of(&plan, *owned, threads, kept(tp))?;
                if held.room(memory).is_some() {
                    fits.shared = Some((tp, held));
                    return Ok(fits);
                }
            }
        }
        Ok(fits)
    }

    /// Whether it fits on this mesh.
    pub(crate) fn any(&self) -> bool {
        self.ways.iter().any(|way| way.room(self.memory).is_some())
    }

    /// A line for each way.
    pub(crate) fn lines(&self) -> Vec<String> {
        let said = |text: String| format!("{}: {text}", Bytes(self.memory));
        let mut lines: Vec<String> = self.ways.iter().map(|way| said(way.text(self.memory))).collect();
        if let Some((tp, held)) = &self.shared {
            lines.push(format!("{}: rank 0 of `--tp {tp}` {}", Bytes(self.memory), held.text(self.memory)));
        }
        if let Some(positions) = self.positions {
            lines.push(format!(
                "includes the KV cache for {}; change it with `--ctx`",
                counted(positions, "position")
            ));
        }
        lines
    }

    /// The same as data.
    pub(crate) fn json(&self) -> json::Fits<'_> {
        let way =
            |owned: bool| self.ways.iter().find(|way| way.owned == owned).map(|way| way.json(self.memory));
        let shared = |(tp, held): &'_ (u64, MemoryUse)| (*tp, held.owned);
        let shared = self.shared.as_ref().map(|of| (shared(of), of.1.json(self.memory)));
        json::Fits {
            bytes: self.memory,
            fits: self.any(),
            positions: self.positions,
            owned: way(true),
            borrowed: way(false),
            shared: shared.map(|((tp, owned), memory)| json::Shared { tp, owned, memory }),
        }
    }
}
