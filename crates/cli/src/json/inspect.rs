//! `inspect --json`.

use std::collections::BTreeMap;

use serde::Serialize;
use weighbridge::checkpoint::GgufMetadata;
use weighbridge::engine::KvKind;
use weighbridge::model::Architecture;
use weighbridge::plan::Resolved;
use weighbridge::{Checkpoint, Model, TensorEntry, planner};

use super::Typed;
use super::shared::{Ignored, Key, NotNeeded};
use crate::commands::inspect::kv_bytes;
use crate::keys::Doubts;

/// Bytes of keys and values, by how they are kept.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KvBytes {
    positions: u64,
    f32: u64,
    f16: u64,
    int8: u64,
    int4: u64,
}

impl KvBytes {
    fn of(architecture: &Architecture) -> Option<KvBytes> {
        let positions = architecture.decoder()?.context;
        Some(KvBytes {
            positions,
            f32: kv_bytes(architecture, KvKind::F32, positions)?,
            f16: kv_bytes(architecture, KvKind::F16, positions)?,
            int8: kv_bytes(architecture, KvKind::Int8, positions)?,
            int4: kv_bytes(architecture, KvKind::Int4, positions)?,
        })
    }
}

/// What `weighbridge inspect --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Inspect<'a> {
    path: String,
    format: &'a str,
    /// The number of values of all tensors.
    parameters: u64,
    /// Bytes of all tensors.
    bytes: u64,
    /// The family of the model; null if none takes it.
    family: Option<&'static str>,
    /// Whether the tensors are those that the family wants; null without a family.
    fits: Option<bool>,
    /// Why no family takes it; null if one does.
    problem: Option<String>,
    /// Bytes of the KV cache of 1,000 positions in f16; null if the model does not run here.
    kv_cache_bytes_1000: Option<u64>,
    /// Bytes of the KV cache of all positions that the model was made for; null if the model does not run here.
    kv_cache_bytes_context: Option<KvBytes>,
    /// Entries that no parameter is made from.
    not_needed: Vec<NotNeeded>,
    /// The fields that the model is computed with, by name.
    config: BTreeMap<&'static str, Setting>,
    /// Every key of the checkpoint beside its tensors; null without a family.
    keys: Option<Vec<Key<'a>>>,
    /// Names of tensors that share their bytes.
    ties: Vec<Vec<&'a str>>,
    /// Objects beside the tensors that mean nothing here.
    ignored: Vec<Ignored<'a>>,
    /// Metadata of a GGUF file, by key; empty for other formats.
    metadata: BTreeMap<&'a str, Typed>,
    tensors: Vec<Tensor<'a>>,
}

/// A field of the configuration.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Setting {
    value: Typed,
    /// Where it comes from: a key, a default, a tensor.
    from: String,
}

/// A tensor.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Tensor<'a> {
    name: &'a str,
    shape: Vec<u64>,
    encoding: &'a str,
    bytes: u64,
    /// Where its bytes are.
    planes: Vec<Plane<'a>>,
    /// Elements from an index to the next, for each axis; null if they lie row by row.
    strides: Option<&'a [u64]>,
}

/// Bytes of a tensor in a file.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Plane<'a> {
    /// What they are: `data`, `blocks`, `scales`, …
    role: &'a str,
    file: String,
    offset: u64,
    bytes: u64,
}

impl<'a> Inspect<'a> {
    pub(crate) fn of(
        checkpoint: &'a Checkpoint,
        (parameters, bytes): (u64, u64),
        model: Result<(&Model, Result<Resolved, planner::Error>), &planner::Error>,
        doubts: Option<&'a Doubts>,
    ) -> Inspect<'a> {
        let name = |tie: Vec<&'a TensorEntry>| tie.into_iter().map(|e| e.name.as_str()).collect();
        let metadata = checkpoint.metadata().gguf();
        let mut document = Inspect {
            path: checkpoint.location().to_string(),
            format: checkpoint.format().name(),
            parameters,
            bytes,
            family: None,
            fits: None,
            kv_cache_bytes_1000: None,
            kv_cache_bytes_context: None,
            problem: None,
            not_needed: vec![],
            config: BTreeMap::new(),
            keys: doubts.map(Doubts::keys),
            ties: checkpoint.ties().into_iter().map(name).collect(),
            ignored: checkpoint.ignored().iter().map(Ignored::from).collect(),
            metadata: metadata.into_iter().flat_map(GgufMetadata::iter).map(|(k, v)| (k, v.into())).collect(),
            tensors: checkpoint.entries().iter().map(|entry| Tensor::of(checkpoint, entry)).collect(),
        };
        match model {
            Ok((model, fit)) => {
                let setting = |(name, value, origin): (_, _, &weighbridge::model::Origin)| {
                    (name, Setting { value: Typed::parsed(value), from: origin.to_string().replace('`', "") })
                };
                document.family = Some(model.family.name());
                document.fits = Some(fit.is_ok());
                let architecture = model.architecture().ok();
                let architecture = architecture.as_ref();
                document.kv_cache_bytes_1000 =
                    architecture.and_then(|architecture| kv_bytes(architecture, KvKind::F16, 1000));
                document.kv_cache_bytes_context = architecture.and_then(KvBytes::of);
                let left =
                    fit.map(|resolved| weighbridge::plan::dropped(&resolved.dropped)).unwrap_or_default();
                let left = left.into_iter();
                document.not_needed =
                    left.map(|d| NotNeeded { pattern: d.pattern, count: d.count, why: d.why }).collect();
                document.config = model.fields().into_iter().map(setting).collect();
            }
            Err(error) => document.problem = Some(error.diagnostics().to_string()),
        }
        document
    }
}

impl<'a> Tensor<'a> {
    fn of(checkpoint: &Checkpoint, e: &'a TensorEntry) -> Tensor<'a> {
        let planes = e.planes.iter().zip(e.scheme.planes.iter()).map(|(data, spec)| Plane {
            role: spec.role,
            file: checkpoint.file(data.file).location.to_string(),
            offset: data.bytes.start,
            bytes: data.bytes.end - data.bytes.start,
        });
        Tensor {
            name: &e.name,
            shape: e.shape.to_vec(),
            encoding: &e.scheme.name,
            bytes: e.byte_len(),
            planes: planes.collect(),
            strides: e.strides.as_deref(),
        }
    }
}
