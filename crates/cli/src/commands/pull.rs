//! `weighbridge pull`: models of the Hugging Face Hub.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use hub::{Hub, HubName, Progress, Pulled};
use weighbridge::tensor::{Bytes, counted};

use crate::args::PullArgs;
use crate::failure::{Failure, INTERRUPTED};
use crate::json;
use crate::progress::{self, Line, note, speed};

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let names =
        args.names.iter().map(|name| parse(name, args.revision.as_deref())).collect::<Result<Vec<_>, _>>()?;
    let builder = Hub::builder()?;
    let hub = if args.offline { builder.offline(true) } else { builder }.build();
    // What has arrived is on the disk, and the next pull continues.
    let _ = ctrlc::set_handler(|| {
        progress::clear();
        std::process::exit(i32::from(INTERRUPTED));
    });
    let mut all = vec![];
    for name in names {
        let (line, started) = (Line::new(), Instant::now());
        let watch = |progress: Progress| {
            show(&line, progress);
            ControlFlow::Continue(())
        };
        let pulled = hub.pull(&name, &watch);
        line.clear();
        let pulled = pulled?;
        let seconds = started.elapsed().as_secs_f64();
        note(&said(&pulled, seconds));
        if !args.json {
            writeln!(std::io::stdout().lock(), "{}", pulled.path.display())?;
        }
        all.push(json::Pulled::of(&name, &pulled, seconds));
    }
    if args.json {
        json::print(&json::Pull { pulled: all })?;
    }
    Ok(())
}

/// A name as it was typed: `hf:` may be left out.
fn parse(name: &str, revision: Option<&str>) -> Result<HubName, Failure> {
    let name =
        if HubName::is_meant(name) { HubName::parse(name)? } else { HubName::parse(&format!("hf:{name}"))? };
    Ok(match revision {
        Some(revision) => name.at(revision)?,
        None => name,
    })
}

fn show(line: &Line, progress: Progress) {
    let Progress { done, total, waiting, checking } = progress;
    if checking > 0 && done + PIECE >= total {
        line.show(|| format!("checking {}", counted(checking, "file")));
    } else if waiting > 0 && done == 0 {
        line.show(|| format!("another process downloads {}: waiting", counted(waiting, "file")));
    } else if total > 0 {
        line.bytes(done, total);
    }
}

/// Bytes that are too few to show.
const PIECE: u64 = 64 << 10;

/// What a pull did, in a line.
fn said(pulled: &Pulled, seconds: f64) -> String {
    let files = counted(pulled.files.len(), "file");
    let there = Bytes(pulled.bytes_there);
    let commit = pulled.commit.get(..12).unwrap_or(&pulled.commit);
    match (&pulled.from_cache, pulled.bytes_downloaded) {
        (Some(why), _) => format!("from the cache ({why}): commit {commit}, {files}, {there}"),
        (None, 0) => format!("commit {commit}: {files}, {there}, all in the cache"),
        (None, new) => {
            let there = if pulled.bytes_there == 0 {
                String::new()
            } else {
                format!(", {there} in the cache before")
            };
            format!("commit {commit}: {files}, {} downloaded, {}{there}", Bytes(new), speed(new, seconds))
        }
    }
}
