//! `weighbridge check`: checks a checkpoint without its model.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use weighbridge::check::{CheckOptions, CheckReport, CheckedFile, Finding, Manifest, Wrong};
use weighbridge::checkpoint::Io;
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Checkpoint, Pool};

use super::inspect::count;
use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::json;
use crate::progress::{Line, speed};
use crate::style;

/// Findings that are shown; JSON has all of them.
const SHOWN: usize = 40;
/// Files that are shown one by one.
const FILES: usize = 12;

/// What was done with a manifest.
enum Kept {
    Written(PathBuf),
    Verified(PathBuf),
    Nothing,
}

impl Kept {
    /// The file that was written, and the one that was compared with.
    fn files(&self) -> (Option<&Path>, Option<&Path>) {
        match self {
            Kept::Written(file) => (Some(file), None),
            Kept::Verified(file) => (None, Some(file)),
            Kept::Nothing => (None, None),
        }
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let (path, file) = args.paths().map_err(Failure::Usage)?;
    // Read, not mapped: what is done with leaves memory at once.
    let checkpoint = weighbridge::open_with(&path, &args.also.options(Io::Pread))?;
    let (wanted, written) = if args.verify.is_some() { (file, None) } else { (None, file) };
    let manifest = wanted.as_deref().map(Manifest::read).transpose()?;
    let options =
        CheckOptions { deep: args.deep, digests: args.write_manifest.is_some(), verify: manifest.as_ref() };
    let mut pool = Pool::new(args.threads.map_or_else(Pool::available, usize::from));
    let line = Line::new();
    let report = weighbridge::check::check(&checkpoint, &options, &mut pool, &|done, total| {
        line.bytes(done, total);
        ControlFlow::Continue(())
    });
    line.clear();
    let report = report?;
    let kept = match (written, &report.manifest, wanted) {
        (Some(file), Some(manifest), _) if report.is_good() => {
            manifest.write(&file, args.force)?;
            Kept::Written(file)
        }
        (_, _, Some(file)) => Kept::Verified(file),
        _ => Kept::Nothing,
    };
    if args.json {
        json::print(&json::Check::of(&checkpoint, &report, kept.files()))?;
    } else {
        let text = text(args, &checkpoint, &report, &kept);
        std::io::stdout().lock().write_all(text.as_bytes())?;
    }
    if report.is_good() { Ok(()) } else { Err(Failure::Found) }
}

fn text(args: &CheckArgs, checkpoint: &Checkpoint, report: &CheckReport, kept: &Kept) -> String {
    use std::fmt::Write;
    let mut out = format!("{}\n", style::heading(&checkpoint.location().to_string()));
    // Writing to a `String` cannot fail.
    let mut say = |text: String| {
        let _ = writeln!(out, "  {text}");
    };
    let format = checkpoint.format();
    say(format!(
        "{format}, {}, {}: the structure is sound",
        counted(report.tensors, "tensor"),
        Bytes(report.bytes)
    ));
    if !checkpoint.ignored().is_empty() {
        say(format!("ignored: {} beside the tensors", counted(checkpoint.ignored().len(), "object")));
    }
    if args.deep {
        let wrong = report.findings.iter().filter(|f| is_of_values(f)).count();
        let what = if wrong == 0 {
            "all finite".to_owned()
        } else {
            format!("wrong in {}", counted(wrong, "tensor"))
        };
        say(format!("{} values read: {what}", count(report.values)));
    }
    for (name, scheme) in &report.unknown {
        say(format!("`{name}` was not checked: no codec reads {scheme}"));
    }
    match kept {
        Kept::Written(file) => say(format!("manifest written to `{}`", file.display())),
        Kept::Verified(file) => {
            let wrong = report.findings.iter().filter(|f| !is_of_values(f)).count();
            let what = if wrong == 0 {
                format!("{} equal", counted(report.tensors, "tensor"))
            } else {
                format!("{} in tensors", counted(wrong, "difference"))
            };
            let said = report.manifest.as_ref().and_then(Manifest::keys).map_or(0, <[_]>::len);
            let beside = match (&report.keys_not_compared, report.keys.len()) {
                (Some(_), _) => String::new(),
                (None, 0) if said == 0 => String::new(),
                (None, 0) => format!("; {} equal", counted(said, "key")),
                (None, keys) => format!("; {} with other values", counted(keys, "key")),
            };
            say(format!("compared with `{}`: {what}{beside}", file.display()));
            if let Some(why) = report.keys_not_compared {
                say(format!("metadata, configuration, tokenizer and template were not compared: {why}"));
            }
        }
        Kept::Nothing if args.write_manifest.is_some() => say("no manifest was written".to_owned()),
        Kept::Nothing => {}
    }
    if report.bytes_read > 0 {
        let (read, speed) = (Bytes(report.bytes_read), speed(report.bytes_read, report.seconds));
        say(format!("{read} read in {:.2} s, {speed}", report.seconds));
    }
    out.push_str(&table(report));
    for finding in report.findings.iter().take(SHOWN) {
        let _ = writeln!(out, "{finding}");
    }
    if let more @ 1.. = report.findings.len().saturating_sub(SHOWN) {
        let _ = writeln!(out, "… and {more} more: --json lists all");
    }
    for finding in report.keys.iter().take(SHOWN) {
        let _ = writeln!(out, "{finding}");
    }
    if let more @ 1.. = report.keys.len().saturating_sub(SHOWN) {
        let _ = writeln!(out, "… and {more} more keys: --json lists all");
    }
    out
}

/// Where the bytes of each file are, of not too many, and of all together.
fn table(report: &CheckReport) -> String {
    let heading = ["file", "length", "tensors", "before", "between", "after"];
    let sizes = |f: &CheckedFile| [f.bytes, f.tensors, f.before, f.between, f.after];
    let row = |name: String, sizes: [u64; 5]| -> Vec<String> {
        std::iter::once(name).chain(sizes.map(|n| Bytes(n).to_string())).collect()
    };
    let mut rows = vec![];
    for file in report.files.iter().take(FILES) {
        let name = Path::new(&file.path).file_name().map(|n| n.to_string_lossy().into_owned());
        rows.push(row(name.unwrap_or_default(), sizes(file)));
    }
    if let more @ 1.. = report.files.len().saturating_sub(FILES) {
        rows.push(vec![format!("… and {more} more")]);
    }
    if report.files.len() > 1 {
        let all =
            report.files.iter().map(sizes).fold([0; 5], |sum, n| std::array::from_fn(|i| sum[i] + n[i]));
        rows.push(row(format!("all {} files", report.files.len()), all));
    }
    style::table(&heading, &rows, &[1, 2, 3, 4, 5])
}

fn is_of_values(finding: &Finding) -> bool {
    matches!(finding.wrong, Wrong::Data(_) | Wrong::NotFinite { .. })
}
