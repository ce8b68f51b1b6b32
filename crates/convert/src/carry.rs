//! Translates a checkpoint's metadata into another ecosystem's: numbers of the model, tokenizer, chat template,
//! sampling defaults. Metadata that cannot be translated is listed.

mod pooling;
mod speech;
mod to_gguf;
mod to_hf;
mod to_onnx;

use std::borrow::Cow;
use std::collections::HashSet;

use checkpoint::{Checkpoint, Ctranslate2Files, HfFiles, Metadata, OpenaiMetadata, Outgoing, ValueBuf};
use load::Pool;
use model::{Description, DialectName, KeyVerdict, Loss, Model, RopeScaling, Verdict};
use plan::PlannedParam;
use tensor::{Dtype, Expr, Scheme, Shape, Target};

use planner::encoding::floats_in;
use planner::{LayoutKind, PlanBuilder, Request};

use crate::conversion::allowed;
use crate::{Error, OutputFormat, rope};

use to_gguf::to_gguf;
use to_hf::to_hf;
pub(crate) use to_onnx::to_onnx;

/// A tensor that no entry of the source holds.
pub(crate) struct Made {
    /// The tensor, of one plane.
    pub(crate) outgoing: Outgoing,
    content: Content,
}

/// The bytes of a tensor.
enum Content {
    Bytes(Vec<u8>),
    /// The tensors that readers want beside this one.
    Beside(Box<Outgoing>),
}

impl Made {
    /// The tensors that readers want beside `weight`.
    pub(crate) fn beside(weight: &Outgoing) -> impl Iterator<Item = Made> {
        let of = |(outgoing, _)| Made { outgoing, content: Content::Beside(Box::new(weight.clone())) };
        weight.facts().into_iter().map(of)
    }

    /// True if it repeats what the scheme of another tensor says: our reader takes it for no tensor of its own.
    pub(crate) fn is_fact(&self) -> bool {
        matches!(self.content, Content::Beside(_))
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.content {
            Content::Bytes(bytes) => Cow::Borrowed(bytes),
            Content::Beside(weight) => {
                let facts = weight.facts().into_iter();
                let own = facts.filter(|(fact, _)| *fact == self.outgoing).map(|(_, bytes)| bytes).next();
                Cow::Owned(own.unwrap_or_default())
            }
        }
    }
}

/// Metadata stored beside the tensors.
#[derive(Default)]
pub(crate) enum Beside {
    /// Nothing new.
    #[default]
    Nothing,
    /// GGUF metadata.
    Gguf(Vec<(String, ValueBuf)>),
    /// The files of a directory of CTranslate2.
    Ctranslate2(Box<Ctranslate2Files>),
    /// The metadata of a file of whisper.cpp.
    Ggml(Box<OpenaiMetadata>),
    /// The files of a directory.
    Hf(Box<HfFiles>),
}

/// A checkpoint's metadata, translated into another ecosystem's.
#[derive(Default)]
pub(crate) struct Carried {
    pub(crate) beside: Beside,
    pub(crate) made: Vec<Made>,
    pub(crate) left: Vec<Left>,
    pub(crate) lost: Vec<Loss>,
}

impl Carried {
    /// Translates the metadata of `checkpoint` into that of `home`, whose files have no name for the canonical
    /// parameters `nameless`.
    ///
    /// # Errors
    /// If `home` cannot describe the model, or a file beside the weights is broken.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        model: &Model,
        request: &Request,
        mut nameless: Vec<String>,
        home: DialectName,
    ) -> Result<Carried, Error> {
        let params = &request.resolved.params;
        let own: HashSet<&str> =
            params.iter().filter(|p| p.tied_to.is_none()).map(|p| p.name.as_str()).collect();
        let own = |name: &str| own.contains(name);
        let metadata = checkpoint.metadata();
        let mut left = vec![];
        nameless.retain(|name| match model.left_out(home, name) {
            Some(why) => {
                left.push(Left::new("tensors", name, why));
                false
            }
            None => true,
        });
        for param in params.iter().filter(|p| own(&p.name)) {
            left.extend(model.cut(home, &param.name).map(|why| Left::new("tensors", &param.name, why)));
        }
        let carried = match (home, metadata) {
            (DialectName::Gguf, Metadata::Hf(hf)) => {
                no_name(home, &nameless)?;
                let (said, made) = factors_of(model);
                let carried = to_gguf(hf, metadata, &scaled(model, said)?, &own)?;
                Carried { made, ..carried }
            }
            (DialectName::Hf, Metadata::Gguf(gguf)) => {
                let said = scaling_of(model, request, &mut nameless)?;
                no_name(home, &nameless)?;
                let made = zeros(model, &own);
                Carried { made, ..to_hf(gguf, metadata, &scaled(model, said)?, &own)? }
            }
            (_, Metadata::Ctranslate2(_) | Metadata::Openai(_))
            | (DialectName::Ctranslate2 | DialectName::Openai, _) => {
                no_name(home, &nameless)?;
                speech::carried(metadata, model, home, &own)?
            }
            _ => {
                no_name(home, &nameless)?;
                Carried::default()
            }
        };
        Ok(Carried { left: [left, carried.left].concat(), ..carried })
    }
}

/// Says the model of `checkpoint` in the files that an HF directory has beside its weights (config.json, the tokenizer's, the chat
/// template), and lists what none of them says. The weights' names there are those of [`LayoutKind::Named`]. Of an HF directory, its own
/// files.
///
/// # Errors
/// If no family claims the checkpoint, or it does not match its model; if config.json cannot say all of the model, but for keys that
/// `allow_loss` names.
pub fn in_hf(checkpoint: &Checkpoint, allow_loss: &[String]) -> Result<(HfFiles, Vec<Left>), Error> {
    if let Metadata::Hf(hf) = checkpoint.metadata() {
        return Ok((hf.files()?, vec![]));
    }
    let model = planner::describe(checkpoint)?;
    let layout = LayoutKind::Named(DialectName::Hf);
    let request = PlanBuilder::new(checkpoint).model(&model).layout(layout).request()?;
    let carried = Carried::of(checkpoint, &model, &request, request.nameless.clone(), DialectName::Hf)?;
    allowed(&carried.lost, allow_loss, OutputFormat::Hf)?;
    match carried.beside {
        Beside::Hf(files) => Ok((*files, carried.left)),
        Beside::Gguf(_) | Beside::Ctranslate2(_) | Beside::Ggml(_) | Beside::Nothing => {
            let what = format!("`{}` does not say what model it holds", checkpoint.location());
            Err(Error::Convert { what: what.into() })
        }
    }
}

/// Returns the scaling of rotary frequencies that GGUF has in keys, and the tensors that it has instead of the rest.
fn factors_of(model: &Model) -> (RopeScaling, Vec<Made>) {
    let rope = rope::of(model);
    let has = |name: &str| model.params().any(|spec| spec.name == name);
    match rope.scaling.clone() {
        RopeScaling::Llama3 { .. } if has(rope::FACTORS) => {
            (RopeScaling::None, vec![floats("rope_freqs.weight", &rope.factors())])
        }
        RopeScaling::LongRope { short, long, original_context, attention_factor } if has(rope::LONG) => {
            let one = |name: &str, factors: &[f64]| {
                floats(name, &factors.iter().map(|x| narrow(*x)).collect::<Vec<f32>>())
            };
            let made = vec![one(rope::LONG, &long), one(rope::SHORT, &short)];
            let (short, long) = (vec![], vec![]);
            (RopeScaling::LongRope { short, long, original_context, attention_factor }, made)
        }
        // A scaling that GGUF cannot describe is found when its metadata is compared with the model.
        scaling => (scaling, vec![]),
    }
}

/// The stretch of rotary frequencies with what GGUF has in tensors, which are no longer `nameless` then.
fn scaling_of(model: &Model, request: &Request, nameless: &mut Vec<String>) -> Result<RopeScaling, Error> {
    let rope = rope::of(model);
    let mut found = |wanted_names: &[&str]| {
        let all = wanted_names.iter().all(|wanted| nameless.iter().any(|name| name == wanted));
        nameless.retain(|name| !all || !wanted_names.contains(&name.as_str()));
        all
    };
    match rope.scaling.clone() {
        RopeScaling::LongRope { original_context, attention_factor, .. }
            if found(&[rope::LONG, rope::SHORT]) =>
        {
            let of = |name: &str| -> Result<Vec<f64>, Error> {
                Ok(values(request, name)?.into_iter().map(f64::from).collect())
            };
            let (short, long) = (of(rope::SHORT)?, of(rope::LONG)?);
            Ok(RopeScaling::LongRope { short, long, original_context, attention_factor })
        }
        scaling if nameless.iter().any(|name| name == rope::FACTORS) => {
            match rope.scaling_of(&values(request, rope::FACTORS)?) {
                Some(said) => {
                    nameless.retain(|name| name != rope::FACTORS);
                    Ok(said)
                }
                None => Ok(scaling),
            }
        }
        scaling => Ok(scaling),
    }
}

/// `files` with torch's name for what most values of `params` are.
pub(crate) fn with_dtype(mut files: HfFiles, params: &[&PlannedParam]) -> HfFiles {
    let mut counts: Vec<(&'static str, u64)> = vec![("float32", 0), ("float16", 0), ("bfloat16", 0)];
    for param in params {
        let name = match floats_in(&param.scheme) {
            Some(Dtype::F32) => "float32",
            Some(Dtype::F16) => "float16",
            _ => "bfloat16",
        };
        if let Some((_, count)) = counts.iter_mut().find(|(n, _)| *n == name) {
            *count += param.shape.elements().unwrap_or(0);
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map_or("float32", |(name, _)| name);
    files.config.insert("torch_dtype".to_owned(), most.into());
    files
}

fn no_name(home: DialectName, nameless: &[String]) -> Result<(), Error> {
    if nameless.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = nameless.iter().map(|name| format!("`{name}`")).collect();
    let what = format!("the {home} dialect has no name for {}", list.join(", "));
    Err(Error::Convert { what: what.into() })
}

/// The model with another stretch of rotary frequencies.
fn scaled(model: &Model, scaling: RopeScaling) -> Result<Model, Error> {
    let mut config = model.config().clone();
    config.rope_scaling.value = scaling;
    model.with_config(config).map_err(|e| Error::Convert { what: e.diagnostics() })
}

/// Vectors of types for a model whose file has none: llama.cpp takes them for zeros, and transformers for anything.
fn zeros(model: &Model, own: &dyn Fn(&str) -> bool) -> Vec<Made> {
    let types = model.params().find(|spec| spec.name == "token_type_embedding.weight" && !own(&spec.name));
    let made = types.and_then(|spec| {
        let shape = spec.shape();
        let count = usize::try_from(shape.elements()?).ok()?;
        let outgoing = Outgoing {
            name: model.entry(DialectName::Hf, &spec.name)?,
            shape,
            scheme: Scheme::plain(Dtype::F32),
        };
        Some(Made { outgoing, content: Content::Bytes(vec![0; 4 * count]) })
    });
    made.into_iter().collect()
}

fn floats(name: &str, values: &[f32]) -> Made {
    let shape = Shape::from([values.len() as u64]);
    let outgoing = Outgoing { name: name.to_owned(), shape, scheme: Scheme::plain(Dtype::F32) };
    Made { outgoing, content: Content::Bytes(values.iter().flat_map(|x| x.to_le_bytes()).collect()) }
}

/// The values of the factors called `name`.
fn values(request: &Request, name: &str) -> Result<Vec<f32>, Error> {
    let scheme = Some(Scheme::plain(Dtype::F32));
    let only = Target { name: name.to_owned(), expr: Expr::source(name), scheme };
    let plan = request.only(only)?;
    let loaded = plan.load(&mut Pool::new(1))?;
    Ok(rope::values(&loaded, name))
}

/// A key or feature of the source that the result does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The file of the source that says it, or `metadata` for GGUF.
    pub file: String,
    /// The key, or the file itself if it is left as a whole.
    pub key: String,
    /// Why it is left.
    pub why: String,
}

impl Left {
    fn new(file: &str, key: &str, why: impl Into<String>) -> Left {
        Left { file: file.to_owned(), key: key.to_owned(), why: why.into() }
    }
}

/// Whether the model was read from a key, so that the result has it too.
fn is_said(key: &KeyVerdict) -> bool {
    matches!(key.verdict, Verdict::Used | Verdict::Checked | Verdict::NotFollowed { .. })
}

/// Why a key of the configuration is not carried.
fn why_left(key: &KeyVerdict, otherwise: &'static str) -> String {
    match key.verdict {
        Verdict::WithoutEffect(why) => why.to_owned(),
        _ => otherwise.to_owned(),
    }
}

/// Checks that the metadata to be written reads back as the model it was made from.
fn proven(model: &Model, description: &Description) -> Result<(), Error> {
    let differs = |what: String| Error::Convert {
        what: format!("the {} dialect cannot say this model: {what}", description.dialect).into(),
    };
    let unsaid = model.unsaid(description).map_err(|e| differs(e.to_string()))?;
    if unsaid.is_empty() {
        return Ok(());
    }
    let list =
        unsaid.iter().map(|(name, is, would)| format!("\n  `{name}` is {is}, and would be read as {would}"));
    Err(differs(list.collect()))
}

/// An error of several lines in one.
fn in_a_line(error: &engine::text::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("; ")
}

/// The f32 of a file that is nearest to a number.
#[expect(clippy::cast_possible_truncation, reason = "it was an f32 in one ecosystem, or is one in the other")]
fn narrow(x: f64) -> f32 {
    x as f32
}

/// The names of scores in GGUF, below the architecture.
const LABELS: &str = ".classifier.output_labels";

/// Defaults of sampling: in generation_config.json, and in GGUF.
///
/// Source: gguf-py/gguf/metadata.py@0c1e57098, `Metadata.load`; gguf-py/gguf/constants.py, `Keys.General`.
static SAMPLING: &[(&str, &str)] = &[
    ("temperature", "general.sampling.temp"),
    ("top_k", "general.sampling.top_k"),
    ("top_p", "general.sampling.top_p"),
    ("min_p", "general.sampling.min_p"),
    ("repetition_penalty", "general.sampling.penalty_repeat"),
];
