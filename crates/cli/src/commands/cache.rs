//! `weighbridge cache`: the copies of loaded weights.

use std::io::Write;
use std::time::SystemTime;

use weighbridge::runtime::copy_status;
use weighbridge::store::{Cache, Listed, State};
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
    let whole = |entry: &Listed| matches!(entry.state, State::Ready | State::Doubtful);
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
                said(entry.state).to_owned(),
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

/// `cache status`: from the files of the model to what a start maps.
fn status(cache: &Cache, args: &StatusArgs) -> Result<(), Failure> {
    let options = args.model.options(CacheArg::Read).map_err(Failure::Usage)?;
    let checkpoint = weighbridge::open_with(args.model.path(), &options.open)?;
    let copy = copy_status(&checkpoint, cache, &options)?;
    let source: u64 = checkpoint.files().iter().map(|file| file.source.len()).sum();
    if args.json.json {
        return Ok(json::print(&json::CacheStatus::of(&checkpoint, source, &copy))?);
    }
    let mut out = std::io::stdout().lock();
    let files = counted(checkpoint.files().len(), "file");
    writeln!(
        out,
        "source         {}: {}, {files}, {}",
        checkpoint.location(),
        checkpoint.format(),
        Bytes(source)
    )?;
    let why =
        if copy.key.is_none() { ": its files are not in a file system, or are two seconds old" } else { "" };
    let size = match copy.state {
        State::Absent => format!("it would take {}", Bytes(copy.bytes)),
        _ => Bytes(copy.bytes).to_string(),
    };
    writeln!(out, "runtime-ready  {}{why}; {}, {size}", said(copy.state), copy.layout.name())?;
    if let Some(path) = copy.path.filter(|_| copy.state != State::Absent) {
        writeln!(out, "               {}", path.display())?;
    }
    Ok(())
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
