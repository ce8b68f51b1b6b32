//! The tokens that a post-processor puts around a text.

use serde_json::Value;

use super::file::steps;

/// Ids before and after a text.
pub(in super::super) type Frame = (Vec<u32>, Vec<u32>);

/// The tokens around a text; `None` unless the text occurs once.
pub(in super::super) fn of(processor: &Value) -> Option<Frame> {
    let mut frame = (vec![], vec![]);
    for step in steps(processor, "processors") {
        match step["type"].as_str()? {
            "ByteLevel" => {}
            "TemplateProcessing" => frame = template(step)?,
            _ => frame = (vec![id(&step["cls"][1])?], vec![id(&step["sep"][1])?]),
        }
    }
    Some(frame)
}

/// Ids around two texts, and how many of those between them are of the first type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct PairFrame {
    pub(in super::super) before: Vec<u32>,
    pub(in super::super) between: Vec<u32>,
    pub(in super::super) after: Vec<u32>,
    /// What follows is of the second type, the second text too; `None`: all is of the first.
    pub(in super::super) first: Option<usize>,
}

/// The tokens around two texts; `None` unless each occurs once, in their order, and types change once at most.
///
/// Source: `BertProcessing`, `RobertaProcessing` and `TemplateProcessing`, tokenizers/src/processors@v0.23.2.
pub(in super::super) fn of_pair(processor: &Value) -> Option<PairFrame> {
    let mut frame = None;
    for step in steps(processor, "processors") {
        frame = match step["type"].as_str()? {
            "ByteLevel" => frame,
            "TemplateProcessing" => Some(pair_template(step)?),
            kind => {
                let (cls, sep) = (id(&step["cls"][1])?, id(&step["sep"][1])?);
                let is_bert = kind == "BertProcessing";
                let between = if is_bert { vec![sep] } else { vec![sep, sep] };
                Some(PairFrame { before: vec![cls], between, after: vec![sep], first: is_bert.then_some(1) })
            }
        };
    }
    frame
}

fn pair_template(step: &Value) -> Option<PairFrame> {
    let pieces = step["pair"].as_array()?;
    let place = |name: &str| pieces.iter().position(|piece| piece["Sequence"]["id"] == name);
    let (first, second) = (place("A")?, place("B")?);
    let texts = pieces.iter().filter(|piece| piece["Sequence"].is_object()).count();
    if first > second || texts != 2 {
        return None;
    }
    let between = &pieces[first + 1..second];
    let kind = |piece: &Value| {
        let inner = if piece["Sequence"].is_object() { &piece["Sequence"] } else { &piece["SpecialToken"] };
        inner["type_id"].as_u64()
    };
    let kinds = pieces.iter().map(kind).collect::<Option<Vec<u64>>>()?;
    let change = kinds.iter().position(|kind| *kind > 0);
    let from = change.unwrap_or(kinds.len());
    if kinds[from..].iter().any(|kind| *kind != 1) || from <= first || change.is_some_and(|at| at > second) {
        return None;
    }
    Some(PairFrame {
        before: ids(step, &pieces[..first])?,
        between: ids(step, between)?,
        after: ids(step, &pieces[second + 1..])?,
        first: match change {
            Some(at) => Some(ids(step, &pieces[first + 1..at])?.len()),
            None => None,
        },
    })
}

fn template(step: &Value) -> Option<Frame> {
    let pieces = step["single"].as_array()?;
    let texts = pieces.iter().filter(|piece| piece["Sequence"].is_object()).count();
    let at = pieces.iter().position(|piece| piece["Sequence"].is_object()).filter(|_| texts == 1)?;
    Some((ids(step, &pieces[..at])?, ids(step, &pieces[at + 1..])?))
}

/// The ids of special tokens.
fn ids(step: &Value, pieces: &[Value]) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for piece in pieces {
        let name = piece["SpecialToken"]["id"].as_str()?;
        for one in step["special_tokens"][name]["ids"].as_array()? {
            all.push(id(one)?);
        }
    }
    Some(all)
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
