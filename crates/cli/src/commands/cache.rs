//! `weighbridge cache`: the copies of loaded weights.

use std::io::Write;
use std::time::SystemTime;

use weighbridge::runtime::{CopyStatus, copy_status};
use weighbridge::store::{Cache, Listed, Ranks, Share, Stale, Start, State, Tier, Weights};
use weighbridge::tensor::{Bytes, counted};

use crate::args::{CacheArg, CacheArgs, CacheCommand, StatusArgs};
use crate::cache;
use crate::failure::Failure;
use crate::json;
use crate::style;

pub(crate) fn run(args: &CacheArgs) -> Result<(), Failure> {
    let cache = cache::must().map_err(Failure::Other)?;
    let (removed, verb) = match &args.command {
        CacheCommand::Status(args) => return status(&cache, args),
        CacheCommand::List(_) => (vec![], "removed"),
        CacheCommand::Verify(args) => (verify(&cache, &args.keys)?, "not what was built, and removed"),
        CacheCommand::Prune(args) => {
            (cache.prune(args.max_size).map_err(weighbridge::Error::from)?, "removed")
        }
        CacheCommand::Clear(_) => (cache.prune(0).map_err(weighbridge::Error::from)?, "removed"),
    };
    let entries = cache.list().map_err(weighbridge::Error::from)?;
    let limit = cache.limit();
    let found = matches!(args.command, CacheCommand::Verify(_)) && !removed.is_empty();
    if args.command.json() {
        json::print(&json::Cache::of(&cache, limit, &entries, &removed))?;
    } else {
        let mut out = std::io::stdout().lock();
        for entry in &removed {
            writeln!(out, "{}: {verb} ({})", short(entry), Bytes(entry.bytes))?;
        }
        out.write_all(list(&cache, limit, &entries).as_bytes())?;
    }
    if found { Err(Failure::Found) } else { Ok(()) }
}

/// Reads the copies whose keys begin with one of `keys`, or all. Returns those that are not what was built.
fn verify(cache: &Cache, keys: &[String]) -> Result<Vec<Listed>, Failure> {
    let list = cache.list().map_err(weighbridge::Error::from)?;
    let begins = |entry: &Listed, key: &String| entry.key.to_string().starts_with(key.as_str());
    if let Some(key) = keys.iter().find(|key| !list.iter().any(|entry| begins(entry, key))) {
        return Err(Failure::Other(format!(
            "no copy has a key that begins with `{key}`\nhint: `weighbridge cache list` shows them"
        )));
    }
    let asked = |entry: &Listed| keys.is_empty() || keys.iter().any(|key| begins(entry, key));
    let whole =
        |entry: &Listed| entry.ranks.is_some() || matches!(entry.state, State::Ready | State::Doubtful);
    let mut wrong = vec![];
    for entry in list.into_iter().filter(|entry| whole(entry) && asked(entry)) {
        if !cache.verify(entry.key).map_err(weighbridge::Error::from)? {
            wrong.push(entry);
        }
    }
    Ok(wrong)
}

/// The copies as a table, and what they take together.
fn list(cache: &Cache, limit: u64, entries: &[Listed]) -> String {
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            vec![
                short(entry),
                stands(entry),
                Bytes(entry.bytes).to_string(),
                ago(entry.used),
                entry.source.clone().unwrap_or_else(|| "?".to_owned()),
            ]
        })
        .collect();
    let all: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let heading = ["key", "state", "size", "used", "model"];
    let table = if rows.is_empty() { String::new() } else { style::table(&heading, &rows, &[2]) };
    let copies = if entries.len() == 1 { "copy" } else { "copies" };
    let summary = format!(
        "{} {copies}, {} of at most {}, in `{}`",
        entries.len(),
        Bytes(all),
        Bytes(limit),
        cache.folder().display()
    );
    format!("{table}{summary}\n")
}

/// `cache status`: the tiers of a model, and what the next start uses.
fn status(cache: &Cache, args: &StatusArgs) -> Result<(), Failure> {
    let options = args.model.options(CacheArg::Read)?;
    let checkpoint = weighbridge::open_with(args.model.path(), &options.open)?;
    let copy = copy_status(&checkpoint, cache, &options)?;
    let bytes: u64 = checkpoint.files().iter().map(|file| file.source.len()).sum();
    if args.json.json {
        return Ok(json::print(&json::CacheStatus::of(&checkpoint, bytes, &copy))?);
    }
    let files = format!(
        "{}: {}, {}, {}; {}",
        checkpoint.location(),
        checkpoint.format(),
        counted(checkpoint.files().len(), "file"),
        Bytes(bytes),
        encodings(&copy.weights)
    );
    let none = |tier: Tier| match tier {
        Tier::Source => "none here: these files are compressed",
        _ => "none: `weighbridge compress` makes one",
    };
    let tier = |tier: Tier| if copy.tiers.files() == tier { files.clone() } else { none(tier).to_owned() };
    let mut lines = vec![
        ("tier", copy.tiers.now().to_string()),
        ("source", tier(Tier::Source)),
        ("compressed", tier(Tier::Compressed)),
        ("runtime-ready", ready(&copy)),
    ];
    lines.extend(
        copy.path.iter().filter(|_| copy.state != State::Absent).map(|path| ("", path.display().to_string())),
    );
    let is_off = copy.start != copy.state.start();
    lines.push(("next start", next(copy.start, copy.state, is_off).to_owned()));
    for (index, (listed, stale)) in copy.others.iter().enumerate() {
        let ranks = listed.ranks.map_or_else(String::new, |_| format!("; {}", stands(listed)));
        let line = format!(
            "{} ({}): {}{ranks}",
            short(listed),
            Bytes(listed.bytes),
            unused(*stale, listed.ranks.is_some())
        );
        lines.push((if index == 0 { "not used" } else { "" }, line));
    }
    let mut out = std::io::stdout().lock();
    lines.iter().try_for_each(|(name, line)| writeln!(out, "{name:<14} {line}"))?;
    Ok(())
}

/// The bits of a weight, and the encodings with their tensors: `4.85 bits a weight (q4_0 211, f32 61)`.
fn encodings(weights: &Weights) -> String {
    let share = |share: &Share| format!("{} {}", share.encoding, share.tensors);
    let shares: Vec<String> = weights.encodings.iter().map(share).collect();
    match weights.bits() {
        Some(bits) => format!("{bits:.2} bits a weight ({})", shares.join(", ")),
        None => "no weights".to_owned(),
    }
}

/// Where the copy stands, with its layout, its size, and why it is not ready.
fn ready(copy: &CopyStatus) -> String {
    let (state, layout, all) = (said(copy.state), copy.layout.name(), Bytes(copy.bytes));
    if copy.key.is_none() {
        return format!(
            "{state}: the model's files are not in a file system, or changed less than two seconds ago"
        );
    }
    match copy.state {
        State::Absent => format!("{state}; {layout}, it would take {all}"),
        State::Building => format!("{state}; {layout}, {} of {all} on the disk", Bytes(copy.stored)),
        State::Partial => format!(
            "{state}: the process that built it has ended; {layout}, {} of {all} on the disk",
            Bytes(copy.stored)
        ),
        State::Doubtful => {
            format!("{state}: its file has changed since it was verified; {layout}, {}", Bytes(copy.stored))
        }
        _ => format!("{state}; {layout}, {all}"),
    }
}

/// Describes the next start; `is_off` if the options forbid copies.
fn next(start: Start, state: State, is_off: bool) -> &'static str {
    match (start, state) {
        _ if is_off => "loads the model's files, because of `--cache off`",
        (Start::Maps, _) => "maps the copy",
        (Start::Verifies, _) => "reads the copy whole, and maps it if the digest matches",
        (Start::Loads, State::Partial) => "loads the model's files; `run` continues the copy",
        (Start::Loads, _) => "loads the model's files",
    }
}

/// Why a start does not use a copy of the same model, or a set of copies.
fn unused(stale: Stale, is_set: bool) -> &'static str {
    match stale {
        Stale::FilesChanged => "stale, the model's files have changed since it was built",
        Stale::OtherIsa => "for another instruction set",
        Stale::OtherLayout | Stale::OtherPlan if is_set => "for the ranks of a mesh",
        Stale::OtherLayout => "for another layout",
        _ => "for another version of weighbridge, other encodings or another rank",
    }
}

/// Where a copy stands; of a set, with how many ranks have theirs: `unfinished, 2 of 4 ranks`.
fn stands(entry: &Listed) -> String {
    match entry.ranks {
        Some(Ranks { ready, of }) => format!("{}, {ready} of {of} ranks", said(entry.state)),
        None => said(entry.state).to_owned(),
    }
}

/// A state as the list names it.
pub(crate) fn said(state: State) -> &'static str {
    match state {
        State::Building => "being built",
        State::Partial => "unfinished",
        State::Ready => "ready",
        State::Doubtful => "to be verified",
        _ => "none",
    }
}

/// The beginning of a key, which tells it from others.
fn short(entry: &Listed) -> String {
    entry.key.to_string().chars().take(12).collect()
}

/// How long ago a time was, in its largest unit.
fn ago(then: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(then).map_or(0, |ago| ago.as_secs());
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} ago", counted(usize::try_from(seconds / 86400).unwrap_or(0), "day")),
    }
}
