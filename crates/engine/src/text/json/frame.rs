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

fn template(step: &Value) -> Option<Frame> {
    let pieces = step["single"].as_array()?;
    let texts = pieces.iter().filter(|piece| piece["Sequence"].is_object()).count();
    let at = pieces.iter().position(|piece| piece["Sequence"].is_object()).filter(|_| texts == 1)?;
    let ids = |pieces: &[Value]| -> Option<Vec<u32>> {
        let mut all = Vec::new();
        for piece in pieces {
            let name = piece["SpecialToken"]["id"].as_str()?;
            for one in step["special_tokens"][name]["ids"].as_array()? {
                all.push(id(one)?);
            }
        }
        Some(all)
    };
    Some((ids(&pieces[..at])?, ids(&pieces[at + 1..])?))
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
