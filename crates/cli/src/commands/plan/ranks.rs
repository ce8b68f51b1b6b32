//! `plan --all-ranks`: what each rank reads and holds.

use std::io::{self, Write};

use weighbridge::load::{self, Needs};
use weighbridge::plan::{Untaken, Whole};
use weighbridge::planner::Ranks;
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Checkpoint, LayoutKind, Mesh};

use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::json;
use crate::pages::{self, Output, RanksPage, Shares};
use crate::style;
use crate::style::shown;

/// What one rank reads and holds.
struct Line {
    rank: u64,
    params: usize,
    slots: u64,
    needs: Needs,
    needed: u64,
    padding: u64,
}

impl Line {
    /// Bytes that the rank takes of the files: what it borrows is taken when it is used first.
    fn taken(&self) -> u64 {
        self.needs.read + self.needs.borrowed
    }

    fn json(&self, mesh: &Mesh) -> json::Rank {
        let at = mesh.rank(self.rank);
        json::Rank {
            rank: self.rank,
            tp: at.tp,
            pp: at.pp,
            ep: at.ep,
            params: self.params,
            bytes_in_slots: self.slots,
            bytes_needed: self.needed,
            bytes_read: self.needs.read,
            bytes_from_map: self.needs.lent,
            bytes_borrowed: self.needs.borrowed,
            bytes_owned: self.needs.owned,
            reads: self.needs.reads.count,
            scratch_bytes: self.needs.scratch,
            bytes_padding: self.padding,
        }
    }
}

/// Every rank, one line each, and what they have in common.
pub(super) fn run(
    args: &PlanArgs,
    checkpoint: &Checkpoint,
    (layout, ranks): (LayoutKind, &Ranks),
    threads: usize,
    picture: Option<&Output>,
) -> Result<(), Failure> {
    let (mut whole, mut lines) = (Whole::default(), vec![]);
    let mut shares = picture.map(|_| Shares::new(checkpoint.entries()));
    let options = load::Options { owned: args.owned, ..load::Options::default() };
    for rank in 0..ranks.count() {
        let plan = ranks.plan(rank)?;
        whole.add(plan.pieces());
        let summary = plan.summary();
        let line = Line {
            rank,
            params: summary.params,
            slots: summary.slot_bytes,
            needs: plan.needs(options, threads)?,
            needed: summary.needed_bytes,
            padding: summary.zero_bytes,
        };
        if let Some(shares) = &mut shares {
            shares.add(title(rank, ranks.mesh()), &plan, [line.slots, line.taken()], line.needs.reads.count);
        }
        lines.push(line);
    }
    let entries = checkpoint.entries();
    let stored: u64 = entries.iter().map(weighbridge::TensorEntry::byte_len).sum();
    let replicated = whole.replicated(entries);
    let untaken = if args.verify { whole.untaken(entries) } else { vec![] };
    let read: u64 = lines.iter().map(Line::taken).sum();
    let needed: u64 = lines.iter().map(|l| l.needed).sum();
    let more: u64 = replicated.iter().map(|r| r.bytes).sum();
    let over = |n: u64| 100.0 * (n as f64 / stored.max(1) as f64 - 1.0);
    let sums = format!(
        "all ranks together need {} of {} stored ({:+.1} %), {} of it duplicated; they read {} ({:+.1} %)",
        Bytes(needed),
        Bytes(stored),
        over(needed),
        Bytes(more),
        Bytes(read),
        over(read)
    );
    if let Some((picture, shares)) = picture.zip(shares) {
        picture.write(&pages::ranks_svg(&RanksPage {
            name: &checkpoint.location().file_name(),
            what: format!("{} layout on {}", layout.name(), super::shape(args)),
            sums: &sums,
            shares: &shares,
        }))?;
        if picture.is_stdout() {
            return if untaken.is_empty() { Ok(()) } else { Err(unused(&untaken)) };
        }
    }
    if args.json {
        json::print(&json::Ranks {
            ranks: lines.iter().map(|line| line.json(ranks.mesh())).collect(),
            bytes_stored: stored,
            bytes_needed: needed,
            bytes_taken: read,
            replicated: replicated.iter().map(json::Replicated::from).collect(),
            untaken: args.verify.then(|| untaken.iter().map(json::Untaken::from).collect()),
        })?;
        return if untaken.is_empty() { Ok(()) } else { Err(Failure::Found) };
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", style::heading(&format!("{} on {}", shown(&args.path), super::shape(args))))?;
    if args.all_ranks {
        write!(out, "{}", table(&lines, ranks))?;
    }
    writeln!(out, "  {sums}")?;
    for group in replicated.iter().take(REPLICATED) {
        writeln!(out, "    {} {} ({})", Bytes(group.bytes), group.pattern, counted(group.entries, "entry"))?;
    }
    if replicated.len() > REPLICATED {
        writeln!(out, "    … and {}", counted(replicated.len() - REPLICATED, "more pattern"))?;
    }
    if !untaken.is_empty() {
        return Err(unused(&untaken));
    }
    if args.verify {
        let (tensors, ranks) = (counted(entries.len(), "tensor"), counted(ranks.count(), "rank"));
        writeln!(
            out,
            "  proved: {ranks} use every byte of {tensors}, and write every byte of their memory once"
        )?;
    }
    Ok(())
}

/// `rank 3: tp 1, ep 1`: its place in the dimensions that there are.
fn title(rank: u64, mesh: &Mesh) -> String {
    let at = mesh.rank(rank);
    let all = [("tp", mesh.tp, at.tp), ("pp", mesh.pp, at.pp), ("ep", mesh.ep, at.ep)];
    let many: Vec<String> =
        all.into_iter().filter(|(_, n, _)| *n != 1).map(|(name, _, at)| format!("{name} {at}")).collect();
    if many.len() < 2 { format!("rank {rank}") } else { format!("rank {rank}: {}", many.join(", ")) }
}

/// Lists what no rank uses.
fn unused(untaken: &[Untaken]) -> Failure {
    let one = |u: &Untaken| match u.byte {
        Some(byte) => format!("\n  `{}`: byte {byte} of {} in its {}", u.entry, u.bytes, u.plane),
        None => format!("\n  `{}`: the shares of its {} overlap too finely to check", u.entry, u.plane),
    };
    let list: String = untaken.iter().take(40).map(one).collect();
    Failure::Other(format!("the ranks do not use all of {}:{list}", counted(untaken.len(), "plane")))
}

/// Patterns that are listed.
const REPLICATED: usize = 8;

fn table(lines: &[Line], ranks: &Ranks) -> String {
    let heading = [
        "rank",
        "tp",
        "pp",
        "ep",
        "parameters",
        "memory needed",
        "used",
        "read",
        "reads",
        "buffers",
        "padding",
    ];
    let row = |l: &Line| {
        let at = ranks.mesh().rank(l.rank);
        let numbers = [l.rank, at.tp, at.pp, at.ep, l.params as u64].map(|n| n.to_string());
        let sizes = [l.slots, l.needed, l.taken()].map(|n| Bytes(n).to_string());
        let rest = [
            l.needs.reads.count.to_string(),
            Bytes(l.needs.scratch).to_string(),
            Bytes(l.padding).to_string(),
        ];
        numbers.into_iter().chain(sizes).chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    style::table(&heading, &rows, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
}
