//! `weighbridge diff`: in what two checkpoints differ.

use std::io::Write;
use std::ops::ControlFlow;

use weighbridge::Pool;
use weighbridge::checkpoint::Io;
use weighbridge::convert::{Compared, DiffGroup, DiffReport, KeyDifference, Outcome, StoredParam};
use weighbridge::tensor::Pattern;
use weighbridge::tensor::{Bytes, counted};

use crate::args::{DiffArgs, open_options};
use crate::failure::Failure;
use crate::json;
use crate::pages::{self, DiffPage};
use crate::progress::{Line, speed};
use crate::style;
use crate::style::shown;

/// Keys that are shown; JSON has all of them.
const KEYS: usize = 40;

pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    let page = args.page.output(args.json)?;
    // Read, not mapped: what is done with leaves memory at once.
    let options = open_options(Io::Pread);
    let a = weighbridge::open_with(&args.a, &options)?;
    let b = weighbridge::open_with(&args.b, &options)?;
    let mut pool = Pool::new(args.threads.map_or_else(Pool::available, usize::from));
    let line = Line::new();
    let report = weighbridge::convert::diff(&a, &b, args.layout(), &mut pool, &mut |i, total, name| {
        line.show(|| format!("[{}/{total}] {name}", i + 1));
        ControlFlow::Continue(())
    });
    line.clear();
    let report = report?;
    let groups = report.groups();
    let found = if report.is_same() { Ok(()) } else { Err(Failure::Found) };
    if let Some(page) = page {
        page.write(&pages::diff_html(&DiffPage {
            names: [&a, &b].map(|checkpoint| checkpoint.location().file_name()),
            report: &report,
            groups: &groups,
            facts: facts(&report),
            cells: &cells,
        }))?;
        if page.is_stdout() {
            return found;
        }
    }
    if args.json {
        json::print(&json::Diff::of((&args.a, &args.b), &report, &groups))?;
    } else {
        std::io::stdout().lock().write_all(text(args, &report, &groups).as_bytes())?;
    }
    found
}

/// Lines on the whole: how the two are compared, and how they differ.
fn facts(report: &DiffReport) -> Vec<String> {
    let how = match (report.family, &report.why_stored) {
        (Some(family), _) => format!("both are `{family}`: compared by canonical names"),
        (None, Some(why)) => {
            let why: Vec<&str> = why.lines().collect();
            format!("compared by stored names: {}", why.join("\n  "))
        }
        (None, None) => "compared by stored names".to_owned(),
    };
    let mut lines = vec![how, summary(report)];
    if let Some(d) = report.difference() {
        let (max, relative, cosine) = (d.max, d.relative(), d.cosine());
        lines.push(format!(
            "other values: largest error {max:.3e}, relative {relative:.3e}, cosine {cosine:.6}"
        ));
    }
    lines
}

fn text(args: &DiffArgs, report: &DiffReport, groups: &[DiffGroup]) -> String {
    use std::fmt::Write;
    let title = format!("A {}\nB {}", shown(&args.a), shown(&args.b));
    let mut out = format!("{}\n", style::heading(&title));
    // Writing to a `String` cannot fail.
    let mut say = |text: String| {
        let _ = writeln!(out, "  {text}");
    };
    let mut lines = facts(report);
    if report.bytes_read > 0 {
        let speed = speed(report.bytes_read, report.seconds);
        let (read, most) = (Bytes(report.bytes_read), Bytes(report.peak_memory));
        lines.insert(1, format!("{read} read in {:.2} s, {speed}; at most {most} in memory", report.seconds));
    }
    lines.into_iter().for_each(&mut say);
    for (name, a, b) in &report.configuration {
        say(format!("configuration: {name} is {a} in A, {b} in B"));
    }
    for group in keys(report) {
        say(group);
    }
    for what in &report.not_compared {
        say(format!("not compared: {what}"));
    }
    for name in &report.implied {
        say(format!("{name} is a tensor in one; the other computes it from its configuration"));
    }
    for (which, only) in [("A", &report.only_a), ("B", &report.only_b)] {
        for (name, count, held) in gathered(only) {
            let count = if count == 1 { String::new() } else { format!("{count} × ") };
            say(format!("only in {which}: {count}{name} {} {}", held.shape, held.scheme));
        }
    }
    let renamed = report.renamed();
    if !renamed.is_empty() && !args.all {
        let count: usize = renamed.iter().map(|r| r.2).sum();
        say(format!("{} under other stored names: `--all` lists them", counted(count, "parameter")));
    }
    let heading = ["", "parameter", "A", "B", "unequal", "max error", "relative", "cosine"];
    let mut rows = vec![];
    if args.all {
        let mut params: Vec<&Compared> = report.params.iter().collect();
        params.sort_by(|x, y| y.outcome.cmp_badness(&x.outcome));
        rows.extend(params.into_iter().map(|p| row("", &p.name, &p.a, &p.b, &p.outcome)));
    } else {
        rows.extend(groups.iter().map(|g: &DiffGroup| {
            let count = if g.count == 1 { String::new() } else { format!("{} ×", g.count) };
            row(&count, &g.name, &g.a, &g.b, &g.outcome)
        }));
    }
    if !rows.is_empty() {
        out.push_str(&style::table(&heading, &rows, &[0, 4, 5, 6, 7]));
    }
    if args.all && !renamed.is_empty() {
        let row = |(a, b, count)| vec![if count == 1 { String::new() } else { format!("{count} ×") }, a, b];
        let rows: Vec<Vec<String>> = renamed.into_iter().map(row).collect();
        out.push_str(&style::table(&["", "made in A from", "in B from"], &rows, &[0]));
    }
    out
}

/// Lists the keys that differ, one a line; bookkeeping takes one line for each reason.
fn keys(report: &DiffReport) -> Vec<String> {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let of = |k: &KeyDifference| {
        let (file, key) = (k.file.escape_debug(), k.key.escape_debug());
        if k.key.is_empty() { file.to_string() } else { format!("{file}: {key}") }
    };
    let line = |k: &KeyDifference| format!("{} is {} in A, {} in B", of(k), side(&k.a), side(&k.b));
    let mut lines: Vec<String> = report.differing_keys().map(line).collect();
    let more = lines.len().saturating_sub(KEYS);
    if more > 0 {
        lines.truncate(KEYS);
        lines.push(format!("… and {more} more keys: --json lists all"));
    }
    let mut reasons: Vec<(&str, Vec<String>)> = vec![];
    for key in &report.keys {
        let Some(why) = key.bookkeeping else { continue };
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, keys)) => keys.push(of(key)),
            None => reasons.push((why, vec![of(key)])),
        }
    }
    let noted =
        |(why, keys): &(&str, Vec<String>)| format!("no difference, since it {why}: {}", keys.join(", "));
    lines.extend(reasons.iter().map(noted));
    lines
}

/// How many parameters compare in which way.
fn summary(report: &DiffReport) -> String {
    let total = report.params.len();
    let identical = report.count(|o| matches!(o, Outcome::Identical));
    let same = report.count(|o| matches!(o, Outcome::SameValues));
    let recoded = report.params.iter().filter(|p| p.a.scheme != p.b.scheme).count();
    let mut parts = vec![];
    let mut add = |n: usize, what: &str| {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    };
    add(identical, "bit-equal");
    add(same, "of equal values");
    add(report.count(|o| matches!(o, Outcome::Values { .. })), "of other values");
    add(report.count(|o| matches!(o, Outcome::Opaque)), "of other bytes");
    add(report.count(|o| matches!(o, Outcome::Shape)), "of other shapes");
    add(recoded, "in other encodings");
    add(report.only_a.len(), "only in A");
    add(report.only_b.len(), "only in B");
    let verdict = match (report.is_same(), report.has_same_parameters()) {
        (true, _) => "the same",
        (false, true) => "they differ, but not in parameters",
        (false, false) => "they differ",
    };
    let said = report.differing_keys().count();
    if said > 0 {
        parts.push(format!("{} with other values", counted(said, "key")));
    }
    format!("{verdict}: {} in both; {}", counted(total, "parameter"), parts.join(", "))
}

fn row(count: &str, name: &str, a: &StoredParam, b: &StoredParam, outcome: &Outcome) -> Vec<String> {
    let start = [count, name, &a.scheme, &b.scheme].map(str::to_owned);
    start.into_iter().chain(cells(a, b, outcome)).collect()
}

/// What is unequal, the largest error, the relative one, the cosine.
fn cells(a: &StoredParam, b: &StoredParam, outcome: &Outcome) -> [String; 4] {
    match outcome {
        Outcome::Identical => ["", "bit-equal", "", ""].map(str::to_owned),
        Outcome::SameValues => ["", "equal", "", ""].map(str::to_owned),
        Outcome::Opaque => ["", "other bytes", "", ""].map(str::to_owned),
        Outcome::Shape => [String::new(), format!("{} ≠ {}", a.shape, b.shape), String::new(), String::new()],
        Outcome::Values { difference: d, unequal, not_finite } => [
            share(*unequal, d.count),
            if *not_finite > 0 { format!("{not_finite} not finite") } else { format!("{:.2e}", d.max) },
            format!("{:.2e}", d.relative()),
            format!("{:.6}", d.cosine()),
        ],
    }
}

/// A share in percent, that is only none or all if it is.
fn share(part: u64, of: u64) -> String {
    let percent = part as f64 * 100.0 / of.max(1) as f64;
    match percent {
        _ if part == of => "100%".to_owned(),
        p if p > 99.9 => "> 99.9%".to_owned(),
        p if p < 0.1 => format!("{part} of {of}"),
        p => format!("{p:.1}%"),
    }
}

/// Parameters alike but for numbers in their names: the name or pattern, how many, one of them.
fn gathered(only: &[(String, StoredParam)]) -> Vec<(String, usize, &StoredParam)> {
    let mut groups: Vec<(String, usize, &StoredParam, &str)> = vec![];
    for (name, held) in only {
        let pattern = Pattern::of(name).to_string();
        let alike = |g: &&mut (String, usize, &StoredParam, &str)| {
            g.0 == pattern && (&g.2.shape, &g.2.scheme) == (&held.shape, &held.scheme)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.1 += 1,
            None => groups.push((pattern, 1, held, name)),
        }
    }
    let named = |(pattern, count, held, name): (String, usize, _, &str)| {
        (if count == 1 { name.to_owned() } else { pattern }, count, held)
    };
    groups.into_iter().map(named).collect()
}
