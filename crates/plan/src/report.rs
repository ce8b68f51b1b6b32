//! Problems as messages: problems with one cause are reported once, a renamed tensor as one problem.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tensor::{Diagnostic, Diagnostics, Pattern, Shape, Step, counted, nearest, nearness};

use crate::problem::{End, Problem, Problems};
use crate::steps::Clash;
use crate::why::Why;

/// Messages shown before the rest is only counted.
const SHOWN: usize = 40;
/// Groups of unused names that a missing one is compared with.
const CANDIDATES: usize = 512;

/// The message about one problem, or about several with the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Message {
    /// Before the place.
    head: String,
    /// After the place.
    tail: String,
    hints: Vec<String>,
}

/// Problems that read the same but for their numbers.
struct Group<'a> {
    problems: Vec<&'a Problem>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&messages(std::slice::from_ref(self)).problems())
    }
}

impl Problem {
    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        messages(std::slice::from_ref(self)).hints()
    }
}

impl Problems {
    /// One message for each group of problems with the same cause, with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        messages(&self.0)
    }

    /// Returns what to do about them.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostics().problems())
    }
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

/// One message for each group.
pub(crate) fn messages(problems: &[Problem]) -> Diagnostics {
    let mut groups: Vec<Group> = vec![];
    let mut index: HashMap<Message, usize> = HashMap::new();
    for problem in problems {
        let at = *index.entry(message(problem, &pattern)).or_insert_with(|| {
            groups.push(Group { problems: vec![] });
            groups.len() - 1
        });
        groups[at].problems.push(problem);
    }
    let partner = renamed(&groups);
    let mut out = vec![];
    let taken: Vec<usize> = partner.iter().copied().flatten().collect();
    for (i, group) in groups.iter().enumerate() {
        if out.len() == SHOWN {
            let rest: usize = groups[i..].iter().map(|g| g.problems.len()).sum();
            out.push(Diagnostic::new(format!("… and {}", counted(rest, "more problem"))));
            break;
        }
        if let Some(other) = partner[i] {
            out.push(pair(group, &groups[other]));
        } else if !taken.contains(&i) {
            out.push(group.diagnostic());
        }
    }
    out.into_iter().collect()
}

impl Group<'_> {
    fn diagnostic(&self) -> Diagnostic {
        let [one] = self.problems[..] else {
            let m = message(self.problems[0], &pattern);
            return compose(m, &self.place());
        };
        compose(message(one, &str::to_string), "")
    }

    fn subjects(&self) -> Vec<&str> {
        self.problems.iter().map(|p| subject(p)).collect()
    }

    fn place(&self) -> String {
        place(&self.subjects())
    }

    /// The subject: a name, or a pattern if there are several.
    fn name(&self) -> String {
        if let [one] = self.problems[..] { subject(one).into() } else { pattern(subject(self.problems[0])) }
    }
}

fn compose(m: Message, place: &str) -> Diagnostic {
    Diagnostic { what: format!("{}{place}{}", m.head, m.tail), hints: m.hints }
}

fn pattern(name: &str) -> String {
    Pattern::of(name).to_string()
}

/// For each missing group, the unused one that is most likely the same tensor under another name. Of all names that the
/// model wants, the missing one is the nearest to it, or one is the other with more letters; it is missing where the other
/// is too many; and if there are several, one of the same shape goes first.
fn renamed(groups: &[Group]) -> Vec<Option<usize>> {
    let mut partner = vec![None; groups.len()];
    let mut free: Vec<(usize, String, String, &Shape)> = vec![];
    for (i, g) in groups.iter().enumerate() {
        if let Problem::Unused { entry, shape, nearest, .. } = g.problems[0] {
            let near = nearest.as_deref().map(pattern).unwrap_or_default();
            free.push((i, pattern(entry), near, shape));
        }
    }
    free.truncate(CANDIDATES);
    for same_shape in [true, false] {
        for (i, g) in groups.iter().enumerate() {
            let Problem::Missing { entry, wants, .. } = g.problems[0] else { continue };
            if partner[i].is_some() {
                continue;
            }
            let wanted = pattern(entry);
            let numbers: HashSet<Vec<u64>> = g.numbers().into_iter().collect();
            let fits = |(other, name, near, shape): &(usize, String, String, &Shape)| {
                is_near(name, &wanted, near)
                    && (!same_shape || wants.as_ref() == Some(*shape))
                    && groups[*other].numbers().iter().all(|n| numbers.contains(n))
            };
            let names = free.iter().filter(|f| fits(f)).map(|f| f.1.as_str());
            let near = nearest(&wanted, names).and_then(|n| free.iter().position(|f| f.1 == n && fits(f)));
            if let Some(at) = near {
                partner[i] = Some(free.remove(at).0);
            }
        }
    }
    partner
}

/// Whether `name` is as near to `wanted` as to `near`, which is the nearest of all names that the model wants.
fn is_near(name: &str, wanted: &str, near: &str) -> bool {
    near == wanted
        || is_longer(name, wanted)
        || is_longer(wanted, name)
        || (!near.is_empty() && name.len() <= 512 && nearness(name, wanted) >= nearness(name, near))
}

/// Whether `a` is `b` with more letters at the end of one segment.
fn is_longer(a: &str, b: &str) -> bool {
    let (mut differ, mut longer) = (0, true);
    for (a, b) in a.split('.').zip(b.split('.')).filter(|(a, b)| a != b) {
        differ += 1;
        longer &= a.starts_with(b);
    }
    differ == 1 && longer && a.split('.').count() == b.split('.').count()
}

fn pair(missing: &Group, unused: &Group) -> Diagnostic {
    let (Problem::Missing { params, wants, .. }, Problem::Unused { shape, .. }) =
        (missing.problems[0], unused.problems[0])
    else {
        return missing.diagnostic();
    };
    let name: &dyn Fn(&str) -> String = if missing.problems.len() == 1 { &str::to_string } else { &pattern };
    let wanted = wants.as_ref().map_or(String::new(), |s| format!(" {s}"));
    let same = wants.as_ref() == Some(shape);
    let shape = if same { " of the same shape".into() } else { format!(" {shape}") };
    let (there, here) = (missing.numbers(), unused.numbers());
    let elsewhere = if there == here { String::new() } else { unused.place() };
    let m = Message {
        head: format!("wanted `{}`{wanted} for {}", missing.name(), names(params, name)),
        tail: format!(", found unused `{}`{shape}{elsewhere}", unused.name()),
        hints: vec![if same {
            "was it renamed?".into()
        } else {
            "was it renamed, or is it another tensor?".into()
        }],
    };
    compose(m, &missing.place())
}

impl Group<'_> {
    fn numbers(&self) -> Vec<Vec<u64>> {
        self.subjects().iter().map(|s| numbers(s)).collect()
    }
}

/// The name that a problem is about.
fn subject(problem: &Problem) -> &str {
    match problem {
        Problem::Missing { entry, .. }
        | Problem::Unused { entry, .. }
        | Problem::PartlyUsed { entry, .. }
        | Problem::NotZero { entry, .. } => entry,
        Problem::Shape { param, .. }
        | Problem::Expression { param, .. }
        | Problem::Mixed { param, .. }
        | Problem::Steps { param, .. }
        | Problem::Stage { param, .. }
        | Problem::Encoding { param, .. }
        | Problem::Movement { param, .. }
        | Problem::TooFine { param, .. }
        | Problem::Unknown { param, .. }
        | Problem::Torn { param, .. }
        | Problem::Dtype { param, .. }
        | Problem::Align { param, .. }
        | Problem::Circle { param }
        | Problem::Unproven { param, .. } => param,
        Problem::Duplicate { name, .. } => name,
        Problem::Renamed { found, .. } => found,
        Problem::NothingToAllow { pattern, .. } => pattern,
    }
}

/// The numbers that stand in a name's holes.
fn numbers(name: &str) -> Vec<u64> {
    name.split('.').filter_map(|s| s.parse().ok()).collect()
}

/// Where: ` in 30 layers (0–29)`.
fn place(subjects: &[&str]) -> String {
    let [first, _, ..] = subjects else { return String::new() };
    let each: Option<Vec<u64>> =
        subjects.iter().map(|s| <[u64; 1]>::try_from(numbers(s)).ok().map(|n| n[0])).collect();
    match each {
        Some(each) => format!(" in {} {} ({})", each.len(), unit(first), ranges(each)),
        None => format!(" in {} places (the first is `{first}`)", subjects.len()),
    }
}

/// Returns the unit that the one number in `name` counts, by the segment before it.
fn unit(name: &str) -> &'static str {
    let before = name.split('.').zip(name.split('.').skip(1)).find(|(_, n)| n.parse::<u64>().is_ok());
    match before.map(|b| b.0) {
        Some("layers" | "layer" | "blk" | "blocks" | "block" | "h") => "layers",
        Some("experts" | "expert") => "experts",
        _ => "places",
    }
}

/// `0–3, 7, 9–12`, at most six of them.
fn ranges(mut of: Vec<u64>) -> String {
    of.sort_unstable();
    of.dedup();
    let mut runs: Vec<(u64, u64)> = vec![];
    for n in of {
        match runs.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(n) => last.1 = n,
            _ => runs.push((n, n)),
        }
    }
    let text = |&(a, b): &(u64, u64)| if a == b { a.to_string() } else { format!("{a}–{b}") };
    let mut out: Vec<String> = runs.iter().take(6).map(text).collect();
    if runs.len() > 6 {
        out.push("…".into());
    }
    out.join(", ")
}

/// `a`, `a` and `b`, `a` and 3 more; each in backticks.
fn names(of: &[String], name: &dyn Fn(&str) -> String) -> String {
    match of {
        [] => "nothing".into(),
        [a] => format!("`{}`", name(a)),
        [a, b] => format!("`{}` and `{}`", name(a), name(b)),
        [a, rest @ ..] => format!("`{}` and {} more", name(a), rest.len()),
    }
}

fn message(problem: &Problem, name: &dyn Fn(&str) -> String) -> Message {
    let mut hints = vec![];
    let (head, tail) = match problem {
        Problem::Missing { entry, params, wants } => {
            let wanted = wants.as_ref().map_or("needed".into(), |s| format!("wanted {s}"));
            (format!("`{}` is missing", name(entry)), format!(": {wanted} for {}", names(params, name)))
        }
        Problem::Unused { entry, shape, nearest, made_of } => {
            match nearest {
                Some(n) if pattern(n) == pattern(entry) => {
                    hints.push(
                        "the model wants such a tensor, but not with this number: is the layer count right?"
                            .into(),
                    );
                }
                Some(n) => hints.push(format!("the nearest that the model wants is `{}`", name(n))),
                None => {}
            }
            (
                match made_of {
                    Some(of) => format!("`{}` {shape} is made of `{}`", name(entry), name(of)),
                    None => format!("`{}` {shape} is in the checkpoint", name(entry)),
                },
                ", but no parameter uses it".into(),
            )
        }
        Problem::Shape { param, entries, as_stored, wants, found } => {
            hints.extend(shape_hint(wants, found));
            match &entries[..] {
                [entry] if *as_stored => {
                    let wanted = format!(": wanted {wants} for `{}`, found {found}", name(param));
                    (format!("`{}`", name(entry)), wanted)
                }
                _ => {
                    let made = format!(": wanted {wants}, found {found} made from {}", names(entries, name));
                    (format!("`{}`", name(param)), made)
                }
            }
        }
        Problem::Expression { param, sources, why, .. } => {
            let found: Vec<_> = sources.iter().take(4).map(|(n, s)| format!("`{}` {s}", name(n))).collect();
            let more =
                if sources.len() > 4 { format!(" and {} more", sources.len() - 4) } else { String::new() };
            let found =
                if found.is_empty() { String::new() } else { format!(", found {}{more}", found.join(", ")) };
            (format!("`{}`", name(param)), format!(": {} does not fit{found}", why_text(why)))
        }
        Problem::Mixed { param, parts } => {
            hints.push("keep the parts apart, or store them alike".into());
            let parts: Vec<_> = parts.iter().map(|(n, s)| format!("`{}` in {s}", name(n))).collect();
            (
                format!("`{}`", name(param)),
                format!(": wanted parts in one encoding, found {}", parts.join(", ")),
            )
        }
        Problem::Steps { param, clash } => {
            if let Clash::Differ(a, b) = clash
                && a.iter().chain(b).all(|s| matches!(s, Step::To(_)))
            {
                hints.push("encode all of its parts alike, or keep them apart (the layout canonical)".into());
            }
            (format!("`{}`", name(param)), clash_text(clash))
        }
        Problem::Stage { param, stage, why } => {
            (format!("`{}`", name(param)), format!(": the stage `{stage}` cannot change it: {why}"))
        }
        Problem::Encoding { param, from, to, why } => {
            let why = match why {
                Some((shape, why)) => format!(": {shape}: {why}"),
                None => ": there is no codec for it".into(),
            };
            let text = if from == to {
                format!(": cannot be held in `{to}`{why}")
            } else {
                format!(": wanted `{to}`, found `{from}`{why}")
            };
            (format!("`{}`", name(param)), text)
        }
        Problem::Movement { param, scheme, plane, operation, why, nearest } => {
            hints.extend(nearest.iter().cloned());
            let cell = || format!("a `{plane}` cell of `{scheme}`");
            let text = match why {
                Why::Cut { axis, per } => {
                    format!(" cuts {}, which packs {per} elements along axis {axis}", cell())
                }
                Why::Ragged { axis, extent, per } => {
                    format!(
                        " leaves {extent} elements along axis {axis}, not a multiple of the {per} that {} packs",
                        cell()
                    )
                }
                Why::Mixed { axis, per } => {
                    format!(
                        " needs several values in {}, which spans {} of axis {axis}",
                        cell(),
                        Why::span(*per)
                    )
                }
                Why::Padding => format!(" lets padding share {}, where it would not stay 0", cell()),
                Why::Planes { from } => format!(" moves `{from}` into `{scheme}`, but their planes differ"),
                other => format!(": {}", why_text(other)),
            };
            (format!("`{}`", name(param)), format!(": {operation}{text}"))
        }
        Problem::TooFine { param, limit } => {
            hints
                .push("the axes are cut so that almost each element moves alone; is the shape right?".into());
            (format!("`{}`", name(param)), format!(": its movement takes more than {limit} steps"))
        }
        Problem::Duplicate { what, name: n } => {
            (format!("the {what} `{}` is given twice", name(n)), String::new())
        }
        Problem::Unknown { param, name: n, nearest } => {
            hints.extend(nearest.as_ref().map(|n| format!("the nearest is `{}`", name(n))));
            if param.is_empty() {
                (format!("there is no parameter `{}`", name(n)), String::new())
            } else {
                (format!("`{}`", name(param)), format!(": there is no parameter `{}`", name(n)))
            }
        }
        Problem::Dtype { param, wanted, found } => {
            hints.push(format!("encode it on the way: `{}={wanted}`", name(param).replace("{n}", "*")));
            (format!("`{}`", name(param)), format!(": its module wants {wanted}, found {found}"))
        }
        Problem::Align { param, align } => (
            format!("`{}`", name(param)),
            format!(": wanted a power of two up to 4096 to align it to, found {align}"),
        ),
        Problem::Torn { param, absent } => {
            hints.push("use a layout without fused parameters: canonical, in-place, gguf or hf".into());
            (
                format!("`{}`", name(param)),
                format!(": wanted `{}` for it too, which is absent, as it may be", name(absent)),
            )
        }
        Problem::Renamed { end, found, wanted, count: n, example, rule } => {
            hints.extend(rule.iter().map(|rule| format!("this rule renames them: {rule}")));
            let dotted = |text: &str| match end {
                End::Start => format!("`{text}.`"),
                End::Finish => format!("`.{text}`"),
            };
            let does = match end {
                End::Start => "begin with",
                End::Finish => "end in",
            };
            let differ = match (found.as_str(), wanted.as_str()) {
                ("", wanted) => format!("do not {does} {}", dotted(wanted)),
                (found, "") => format!("{does} an extra {}", dotted(found)),
                (found, wanted) => format!("{does} {} instead of {}", dotted(found), dotted(wanted)),
            };
            let (found, wanted) = example;
            (format!("{n} tensors {differ}"), format!(": wanted `{wanted}`, found `{found}`, and so on"))
        }
        Problem::NotZero { entry, shape, part: (part, of) } => (
            format!("`{}`", name(entry)),
            format!(
                " {shape}: part {} of {of} must be zero, as the model has no parameter for it, and is not",
                part + 1
            ),
        ),
        Problem::PartlyUsed { entry, shape, used } => {
            let all = shape.elements().unwrap_or(0);
            hints.push("do the sizes of the configuration belong to these files?".into());
            (
                format!("`{}`", name(entry)),
                format!(" {shape}: parameters are made from {used} of its {all} elements"),
            )
        }
        Problem::NothingToAllow { pattern, nearest } => {
            hints.extend(nearest.as_ref().map(|n| format!("the nearest is `{n}`")));
            (format!("no parameter is called `{pattern}`, so it cannot be missing"), String::new())
        }
        Problem::Circle { param } => (format!("`{}` is tied to itself", name(param)), String::new()),
        Problem::Unproven { param, plane, why } => {
            hints.push("this is a bug in the planner; nothing was loaded".into());
            (format!("`{}`", name(param)), format!(": plane `{plane}` is not proved: {why}"))
        }
    };
    Message { head, tail, hints }
}

fn why_text(why: &Why) -> String {
    match why {
        Why::Shape(text) => text.clone(),
        Why::Overflow => "a size that overflows 64 bits".into(),
        Why::Rank { wants, found } => format!("needs at least {wants} axes, found {found}"),
        other => format!("{other:?}"),
    }
}

fn clash_text(clash: &Clash) -> String {
    let steps = |s: &[Step]| match s {
        [] => "none".into(),
        s => format!("`{}`", s.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
    };
    match clash {
        Clash::Differ(a, b) => {
            format!(": wanted the same codec steps for all parts, found {} and {}", steps(a), steps(b))
        }
        Clash::Moved(stage) => format!(": what the stage `{stage}` changes cannot be moved afterwards"),
        Clash::ZeroPlus => ": adds to a part that is joined with padding, which would not stay 0".into(),
    }
}

fn shape_hint(wants: &Shape, found: &Shape) -> Option<String> {
    let reversed: Vec<u64> = found.iter().rev().copied().collect();
    if found.len() > 1 && reversed == **wants {
        return Some("the axes are reversed: was it saved transposed?".into());
    }
    if found.len() == wants.len() {
        let differ: Vec<usize> = (0..found.len()).filter(|&i| found[i] != wants[i]).collect();
        let [axis] = differ[..] else { return None };
        return Some(format!("only axis {axis} differs: {} wanted, {} found", wants[axis], found[axis]));
    }
    (found.elements() == wants.elements()).then(|| "the number of elements is right, but not the axes".into())
}
