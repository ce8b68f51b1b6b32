//! Adapters, merged: the logits are those of peft's merged model, whatever the base's ecosystem, the adapter's, and the layout.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::lora::Adapter;
use weighbridge::planner::packed_layout;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Mesh, PlanBuilder, Pool, Runtime, RuntimeOptions, open};

use crate::golden;

/// A directory of golden/lora.
struct Case {
    dir: PathBuf,
    base: PathBuf,
    ids: Vec<u32>,
    logits: Vec<f32>,
}

impl Case {
    fn of(name: &str) -> Case {
        let dir = testkit::golden("lora").join(name);
        let facts: Value =
            serde_json::from_slice(&std::fs::read(dir.join("expected.json")).unwrap()).unwrap();
        let bytes = std::fs::read(dir.join("expected.bin")).unwrap();
        let ids = facts["input_ids"].as_array().unwrap().iter();
        Case {
            base: golden().join(facts["model"].as_str().unwrap()),
            ids: ids.map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect(),
            logits: bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            dir,
        }
    }

    /// The base in both ecosystems.
    fn bases(&self) -> [PathBuf; 2] {
        [self.base.clone(), self.base.join("model.gguf")]
    }

    /// The adapter in all forms that there are.
    fn forms(&self) -> Vec<PathBuf> {
        let gguf = self.dir.join("adapter.gguf");
        let peft = [self.dir.clone(), self.dir.join("adapter_model.safetensors")];
        peft.into_iter().chain(gguf.exists().then_some(gguf)).collect()
    }

    /// The distance of `found` from what is expected: the largest difference over the largest logit.
    fn distance(&self, found: &[f32]) -> f32 {
        assert_eq!(found.len(), self.logits.len());
        let largest = self.logits.iter().fold(0f32, |m, x| m.max(x.abs()));
        found.iter().zip(&self.logits).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / largest
    }
}

fn adapter(path: &Path, scale: f32) -> Arc<Adapter> {
    Arc::new(Adapter::open(path, scale).unwrap())
}

fn logits(base: &Path, ids: &[u32], options: RuntimeOptions) -> Vec<f32> {
    let kv = Some(weighbridge::engine::KvKind::F32);
    let options = RuntimeOptions { threads: Some(2), context: Some(ids.len()), kv, ..options };
    let mut runtime = Runtime::start(base, &options).unwrap();
    let mut found = vec![];
    runtime.forward_each(ids, |logits| found.extend_from_slice(logits)).unwrap();
    found
}

fn check(name: &str) {
    let case = Case::of(name);
    for form in case.forms() {
        let loras = vec![adapter(&form, 1.0)];
        for base in case.bases() {
            for layout in [LayoutKind::Canonical, LayoutKind::InPlace, packed_layout().unwrap()] {
                for backend in [BackendKind::Reference, BackendKind::Cpu] {
                    let loras = loras.clone();
                    let options =
                        RuntimeOptions { backend, layout: Some(layout), loras, ..RuntimeOptions::default() };
                    let distance = case.distance(&logits(&base, &case.ids, options));
                    assert!(
                        distance < 1e-4,
                        "{} on {}, {}, {backend:?}: {distance:e}",
                        form.display(),
                        base.display(),
                        layout.name()
                    );
                }
            }
        }
    }
}

#[test]
fn llama_and_its_output_matrix() {
    check("llama");
}

#[test]
fn ranks_and_scales_by_patterns() {
    check("llama-patterns");
}

#[test]
fn one_layer_of_two() {
    check("llama-some-layers");
}

#[test]
fn an_embedding() {
    check("llama-embedding");
}

#[test]
fn matrices_that_are_replaced() {
    check("llama-saved");
}

#[test]
fn gpt2_whose_matrices_are_transposed_and_fused() {
    check("gpt2");
}

#[test]
fn phi3_whose_matrices_are_fused() {
    check("phi3");
}

#[test]
fn attention_beside_experts() {
    check("qwen3moe");
}

fn convert(base: &Path, layout: LayoutKind, format: OutputFormat, loras: Vec<Arc<Adapter>>, to: &Path) {
    let source = open(base).unwrap();
    let options = ConvertOptions { loras, ..ConvertOptions::default() };
    Conversion::new(&source, layout, format, &options)
        .unwrap()
        .run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
}

/// As stored, under the names of the other ecosystem, and under canonical ones.
#[test]
fn converted_models_have_their_adapters() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "llama-embedding", "llama-saved", "gpt2", "phi3"] {
        let case = Case::of(name);
        for (i, form) in case.forms().into_iter().enumerate() {
            for (j, base) in case.bases().into_iter().enumerate() {
                for format in [OutputFormat::Hf, OutputFormat::Gguf] {
                    let to = folder.path().join(format!("{name}-{i}-{j}.{}", format.name()));
                    convert(&base, LayoutKind::Source, format, vec![adapter(&form, 1.0)], &to);
                    let options =
                        RuntimeOptions { backend: BackendKind::Reference, ..RuntimeOptions::default() };
                    let distance = case.distance(&logits(&to, &case.ids, options));
                    assert!(distance < 1e-4, "{} from {}: {distance:e}", to.display(), base.display());
                }
            }
        }
    }
}

fn values(plan: &weighbridge::Plan, name: &str) -> Vec<f32> {
    let loaded = plan.load(&mut Pool::new(2)).unwrap();
    let tensor = loaded.get(name).unwrap_or_else(|| panic!("there is no {name}"));
    let mut out = vec![0.0; tensor.rows() * tensor.width()];
    out.chunks_mut(tensor.width()).enumerate().for_each(|(row, out)| tensor.decode_row(row, out));
    out
}

/// Ranks hold shares of rows and of columns.
#[test]
fn ranks_hold_shares_of_the_changed_matrices() {
    let case = Case::of("llama");
    let source = open(&case.base).unwrap();
    let plan = |layout, tp, rank, is_merged: bool| {
        let mesh = Mesh { tp, ..Mesh::default() };
        let loras = is_merged.then(|| adapter(&case.dir, 1.0));
        PlanBuilder::new(&source).layout(layout).mesh(mesh).rank(rank).loras(loras).build().unwrap()
    };
    for name in ["layers.0.attention.q.weight", "layers.1.attention.output.weight"] {
        let whole = values(&plan(LayoutKind::Canonical, 1, 0, true), name);
        assert_ne!(whole, values(&plan(LayoutKind::Canonical, 1, 0, false), name));
        let shares = [0, 1].map(|rank| values(&plan(LayoutKind::Canonical, 2, rank, true), name));
        let width = |values: &[f32]| values.len() / 64;
        let joined: Vec<f32> = if name.contains(".q.") {
            shares.concat()
        } else {
            (0..64)
                .flat_map(|row| {
                    shares.iter().flat_map(move |s| s[row * width(s)..(row + 1) * width(s)].to_vec())
                })
                .collect()
        };
        assert_eq!(joined, whole, "{name}");
    }
    // Fused, each part has factors of its own.
    let part = |part: &str| {
        values(&plan(LayoutKind::Canonical, 1, 0, true), &format!("layers.0.attention.{part}.weight"))
    };
    let fused = plan(LayoutKind::Modules, 1, 0, true);
    let name = fused
        .params()
        .iter()
        .map(|p| &p.name)
        .find(|n| n.contains("layers.0.") && n.contains("qkv"))
        .unwrap();
    assert_eq!(values(&fused, name), [part("q"), part("k"), part("v")].concat());
}

/// Blocks are decoded, changed and encoded again, and the plan says so.
#[test]
fn quantised_matrices_stay_quantised() {
    let case = Case::of("llama");
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("q8.gguf");
    let source = open(case.base.join("model.gguf")).unwrap();
    let options = ConvertOptions {
        rules: ["*norm*=f32", "*=q8_0"].iter().map(|r| r.parse().unwrap()).collect(),
        ..ConvertOptions::default()
    };
    Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options)
        .unwrap()
        .run(&to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let blocks = open(&to).unwrap();
    let up = "layers.0.ffn.up.weight";
    for layout in [LayoutKind::Canonical, LayoutKind::InPlace] {
        let plan = |loras: Option<Arc<Adapter>>| {
            PlanBuilder::new(&blocks).layout(layout).loras(loras).build().unwrap()
        };
        let merged = plan(Some(adapter(&case.dir, 1.0)));
        assert_eq!(&*merged.find(up).unwrap().scheme.name, "q8_0");
        let said = merged.explain(up).unwrap();
        assert!(said.contains("by lora (lossy: the adapter `"), "{said}");
        assert_ne!(merged.digest(), plan(None).digest());
        assert_ne!(merged.digest(), plan(Some(adapter(&case.dir, 0.5))).digest());
        assert_eq!(merged.digest(), plan(Some(adapter(&case.dir, 1.0))).digest());
        // As exact as blocks are.
        let exact =
            PlanBuilder::new(&source).layout(layout).loras([adapter(&case.dir, 1.0)]).build().unwrap();
        for name in [up, "layers.1.attention.k.weight"] {
            let (found, wanted) = (values(&merged, name), values(&exact, name));
            let largest = wanted.iter().fold(0f32, |m, x| m.max(x.abs()));
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < largest / 60.0), "{name}");
        }
    }
    // The same through an encoding that is asked for, from floats.
    let encoded = PlanBuilder::new(&source).layout(packed_layout().unwrap()).loras([adapter(&case.dir, 1.0)]);
    let encoded = encoded.encode(["layers.*.ffn.*=q8_0".parse().unwrap()]).build().unwrap();
    let up =
        encoded.params().iter().find(|p| p.name.contains("layers.0.ffn") && p.name.contains("up")).unwrap();
    assert!(up.scheme.name.starts_with("q8_0"), "{}", up.scheme);
    encoded.load(&mut Pool::new(2)).unwrap();
}

/// What nothing encodes must be encoded in something else, and then it is.
#[test]
fn schemes_that_nothing_encodes_are_refused() {
    let case = Case::of("llama-some-layers");
    let source = open(testkit::golden("big-endian").join("llama.gguf")).unwrap();
    let plan = |rules: &[&str]| {
        let rules: Vec<_> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let loras = [adapter(&case.dir, 1.0)];
        PlanBuilder::new(&source).layout(LayoutKind::Canonical).encode(rules).loras(loras).build()
    };
    insta::assert_snapshot!(plan(&[]).unwrap_err().diagnostics(), @"
    an adapter changes `layers.{n}.attention.q.weight`, which is stored in `f16.be`, and nothing encodes that
    an adapter changes `layers.{n}.attention.v.weight`, which is stored in `f16.be`, and nothing encodes that
    hint: encode what the adapter changes in another scheme
    ");
    plan(&["*=f16"]).unwrap().load(&mut Pool::new(2)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let loras = vec![adapter(&case.dir, 1.0)];
    let options =
        ConvertOptions { loras, rules: vec!["*=f32".parse().unwrap()], ..ConvertOptions::default() };
    let to = folder.path().join("merged.gguf");
    Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options)
        .unwrap()
        .run(&to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
}

#[test]
fn several_adapters_are_added() {
    let case = Case::of("llama");
    let source = open(&case.base).unwrap();
    let name = "layers.1.ffn.down.weight";
    let of = |loras: &[(&str, f32)]| {
        let loras = loras.iter().map(|(name, scale)| adapter(&testkit::golden("lora").join(name), *scale));
        values(&PlanBuilder::new(&source).layout(LayoutKind::Canonical).loras(loras).build().unwrap(), name)
    };
    let (base, one, other) = (of(&[]), of(&[("llama", 1.0)]), of(&[("llama-patterns", 1.0)]));
    assert_eq!(of(&[("llama", 0.0)]), base);
    let both = of(&[("llama", 2.0), ("llama-patterns", -0.5)]);
    for i in 0..base.len() {
        let wanted = base[i] + 2.0 * (one[i] - base[i]) - 0.5 * (other[i] - base[i]);
        assert!((both[i] - wanted).abs() < 1e-5, "{i}");
    }
}

/// A copy of loaded weights is of its adapters, by their values.
#[cfg(unix)]
#[test]
fn a_copy_is_of_its_adapters() {
    use weighbridge::runtime::CacheMode;
    use weighbridge::store::Cache;

    let (first, second) = (Case::of("llama"), Case::of("llama-some-layers"));
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("adapter");
    let put = |case: &Case| {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(case.dir.join(file), dir.join(file)).unwrap();
        }
    };
    let start = |loras: Vec<Arc<Adapter>>| {
        let cache = CacheMode::Write(Cache::new(folder.path().join("cache")));
        let context = Some(first.ids.len());
        let kv = Some(weighbridge::engine::KvKind::F32);
        let options =
            RuntimeOptions { loras, cache, context, kv, threads: Some(2), ..RuntimeOptions::default() };
        let mut runtime = Runtime::start(&first.base, &options).unwrap();
        runtime.build_copy().unwrap();
        let mut found = vec![];
        runtime.forward_each(&first.ids, |logits| found.extend_from_slice(logits)).unwrap();
        (runtime.is_from_cache(), found)
    };
    put(&first);
    let (from, found) = start(vec![adapter(&dir, 1.0)]);
    assert!(!from && first.distance(&found) < 1e-4);
    let (from, found) = start(vec![adapter(&dir, 1.0)]);
    assert!(from && first.distance(&found) < 1e-4);
    assert!(!start(vec![adapter(&dir, 0.5)]).0);
    // Without the adapter, and with another under the same path.
    let (from, found) = start(vec![]);
    assert!(!from && first.distance(&found) > 0.1);
    put(&second);
    let (from, found) = start(vec![adapter(&dir, 1.0)]);
    assert!(!from && second.distance(&found) < 1e-4);
    let (from, found) = start(vec![adapter(&dir, 1.0)]);
    assert!(from && second.distance(&found) < 1e-4);
}

/// Sessions of one model in one batch, each with an adapter of its own: the logits are those of the merged models.
#[test]
fn sessions_have_adapters_of_their_own() {
    use weighbridge::engine::{KvKind, Logits, Snapshot};
    use weighbridge::{Batch, Session};

    for backend in [BackendKind::Reference, BackendKind::Cpu] {
        for layout in [LayoutKind::InPlace, packed_layout().unwrap()] {
            let [first, second] = ["llama", "llama-patterns"].map(Case::of);
            let options = |context| {
                let layout = Some(layout);
                RuntimeOptions { backend, layout, context, threads: Some(2), ..RuntimeOptions::default() }
            };
            let ids = &first.ids[..];
            let plain = logits(&first.base, ids, options(None));
            let mut runtime = Runtime::start(&first.base, &options(Some(ids.len()))).unwrap();
            let adapters = [None, Some(adapter(&first.forms()[2], 1.0)), Some(adapter(&second.dir, 1.0))];
            let adapters = adapters.map(|adapter| adapter.map(|adapter| runtime.adapter(&adapter).unwrap()));
            let mut sessions = adapters.map(|adapter| {
                let mut session = Session::new(runtime.shared(), KvKind::F32, ids.len()).unwrap();
                session.set_adapter(adapter).unwrap();
                session
            });
            let mut found = [vec![], vec![], vec![]];
            // A prompt, then token after token.
            let steps = std::iter::once(&ids[..ids.len() - 3]).chain(ids[ids.len() - 3..].chunks(1));
            for tokens in steps {
                let mut batch = Batch::new();
                for session in &mut sessions {
                    batch.add(session, tokens, Logits::All);
                }
                runtime.run(batch, |part, _, logits| found[part].extend_from_slice(logits)).unwrap();
            }
            let what = format!("{backend:?} {}", layout.name());
            assert!(found[0] == plain, "{what}");
            for (case, found) in [&first, &second].into_iter().zip(&found[1..]) {
                let distance = case.distance(found);
                assert!(distance < 1e-4, "{what}: {distance:e}");
            }
            let [_, session, other] = &mut sessions;
            assert!(session.set_adapter(None).is_err() && other.restore(&session.snapshot()).is_err());
            // A file of a session is of its adapter.
            let file = tempfile::tempdir().unwrap();
            let file = file.path().join("saved");
            session.save(ids, &file).unwrap();
            assert!(Snapshot::open(&file, session).is_ok());
            let refused = Snapshot::open(&file, other).unwrap_err();
            assert!(refused.to_string().contains("another adapter"), "{refused}");
            session.truncate(0);
            session.set_adapter(None).unwrap();
        }
    }
    let saved = Case::of("llama-saved");
    let runtime = Runtime::start(&saved.base, &RuntimeOptions::default()).unwrap();
    let refused = runtime.adapter(&adapter(&saved.dir, 1.0)).unwrap_err().to_string();
    assert!(
        refused.contains("an adapter beside the weights cannot change output.weight, token_embedding.weight"),
        "{refused}"
    );
}

/// Writes an adapter of `tensors`, all of them ones.
fn write(dir: &Path, config: &Value, tensors: &[(&str, [u64; 2])]) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("adapter_config.json"), config.to_string()).unwrap();
    let (mut header, mut data) = (Map::new(), vec![]);
    for (name, shape) in tensors {
        let start = data.len();
        data.extend((0..shape[0] * shape[1]).flat_map(|_| 1f32.to_le_bytes()));
        header.insert(
            (*name).to_owned(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let file = testkit::fixture::safetensors_bytes(&Value::Object(header).to_string(), &data);
    std::fs::write(dir.join("adapter_model.safetensors"), file).unwrap();
}

/// All that is wrong with an adapter, or with it in llama-tiny.
fn refused(config: &Value, tensors: &[(&str, [u64; 2])], base: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("adapter");
    write(&dir, config, tensors);
    let adapter = match Adapter::open(&dir, 1.0) {
        Ok(adapter) => Arc::new(adapter),
        Err(error) => return error.diagnostics().to_string().replace(&dir.display().to_string(), "DIR"),
    };
    let source = open(golden().join(base)).unwrap();
    let error = PlanBuilder::new(&source).layout(LayoutKind::Canonical).loras([adapter]).build().unwrap_err();
    error.diagnostics().to_string().replace(&dir.display().to_string(), "DIR")
}

const Q_A: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
const Q_B: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

fn config() -> Value {
    json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4})
}

#[test]
fn what_a_configuration_asks_for_is_refused_by_name() {
    let config = json!({
        "peft_type": "LORA", "r": 2, "bias": "all", "use_dora": true, "modules_to_save": ["score"],
        "init_lora_weights": "pissa", "trainable_token_indices": [1], "rank_pattern": {"q_proj|k_proj": 4},
    });
    insta::assert_snapshot!(refused(&config, &[(Q_A, [2, 64]), (Q_B, [64, 2])], "llama-tiny"), @r#"
    the adapter `DIR` cannot be used:
      `bias` is "all", wanted "none"
      `trainable_token_indices` is a list of 1, wanted no value
      `use_dora` is true, wanted no value
    hint: merge the adapter with peft (`merge_and_unload`), and load the result
      `init_lora_weights` is "pissa", wanted true, false or gaussian, eva, orthogonal, mica
    hint: such an adapter changes the base model too: convert it with peft (`path_initial_model_for_weight_conversion` of `save_pretrained`)
      `lora_alpha` is missing, wanted a number
      `rank_pattern` is an object, wanted ranks by the names of modules, without regular expressions
      `modules_to_save` is "score", wanted modules whose `weight` is in the adapter
    "#);
}

#[test]
fn factors_that_do_not_go_together_are_listed() {
    let one = |n: u64, part: &str, half: &str| {
        format!("base_model.model.model.layers.{n}.self_attn.{part}.lora_{half}.weight")
    };
    let names = [
        (one(0, "k_proj", "A"), [2, 64]),
        (one(1, "k_proj", "A"), [2, 64]),
        (one(0, "v_proj", "A"), [2, 64]),
        (one(0, "v_proj", "B"), [32, 3]),
        (one(0, "o_proj", "A"), [4, 64]),
        (one(0, "o_proj", "B"), [64, 4]),
        ("base_model.model.model.norm.weight".to_owned(), [1, 64]),
        ("base_model.model.model.embed_tokens.base_layer.weight".to_owned(), [128, 64]),
    ];
    let tensors: Vec<(&str, [u64; 2])> = names.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
    insta::assert_snapshot!(refused(&config(), &tensors, "llama-tiny"), @"
    the adapter `DIR` cannot be used:
      `base_model.model.model.norm.weight`: is not a factor of an adapter: wanted `NAME.lora_A.weight`, `NAME.lora_B.weight`, `NAME.lora_embedding_A` or `NAME.lora_embedding_B`
      `base_model.model.model.embed_tokens.base_layer.weight`: has no other factor: wanted `base_model.model.model.embed_tokens.lora_A.weight`
      2 × `base_model.model.model.layers.{n}.self_attn.k_proj.lora_A.weight`: has no other factor: wanted `base_model.model.model.layers.{n}.self_attn.k_proj.lora_B.weight`
      `model.layers.0.self_attn.o_proj.weight`: the factors have rank 4, the configuration says 2
      `model.layers.0.self_attn.v_proj.weight`: the factors have different ranks: A is [2, 64], B is [32, 3], wanted [rank, in] and [out, rank]
    ");
}

#[test]
fn what_the_model_has_not_is_listed() {
    let tensors = [
        (Q_A, [2, 64]),
        (Q_B, [48, 2]),
        ("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", [2, 64]),
        ("base_model.model.model.layers.7.self_attn.q_proj.lora_B.weight", [64, 2]),
        ("base_model.model.model.layers.0.self_attn.q_prod.lora_A.weight", [2, 64]),
        ("base_model.model.model.layers.0.self_attn.q_prod.lora_B.weight", [64, 2]),
        ("base_model.model.model.layers.0.input_layernorm.lora_A.weight", [2, 64]),
        ("base_model.model.model.layers.0.input_layernorm.lora_B.weight", [1, 2]),
    ];
    insta::assert_snapshot!(refused(&config(), &tensors, "llama-tiny"), @"
    the adapter `DIR` does not fit the model:
      `model.layers.0.input_layernorm.weight`: `layers.0.attention_norm.weight` is [64], and only matrices are changed
      `model.layers.0.self_attn.q_proj.weight`: the change is [48, 64], wanted [64, 64] for `layers.{n}.attention.q.weight`
      `model.layers.0.self_attn.q_prod.weight`: the model has no such tensor
      `model.layers.7.self_attn.q_proj.weight`: the model has no such tensor
    hint: the nearest is `model.layers.0.self_attn.q_proj.weight`
    ");
}

#[test]
fn a_tied_embedding_is_not_changed() {
    let tensors = [
        ("base_model.model.transformer.wte.lora_embedding_A", [2, 160]),
        ("base_model.model.transformer.wte.lora_embedding_B", [64, 2]),
    ];
    insta::assert_snapshot!(refused(&config(), &tensors, "gpt2-tiny"), @"
    the adapter `DIR` does not fit the model:
      `transformer.wte.weight`: `token_embedding.weight` and `output.weight` are one tensor in this model, and an adapter may mean either
    hint: merge the adapter with the program that trained it
    ");
}

#[test]
fn adapters_of_other_families_are_refused() {
    // Other names, and in GGUF another architecture.
    let tensors = [
        ("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", [2, 64]),
        ("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", [192, 2]),
    ];
    let names = refused(&config(), &tensors, "llama-tiny");
    assert!(names.contains("the model has no such tensor"), "{names}");
    let source = open(golden().join("llama-tiny")).unwrap();
    let other = adapter(&Case::of("phi3").dir.join("adapter.gguf"), 1.0);
    let error = PlanBuilder::new(&source).layout(LayoutKind::Canonical).loras([other]).build().unwrap_err();
    let error = error.to_string();
    assert!(error.contains("the adapter is for `phi3`, the model is of the family `llama`"), "{error}");
}

#[test]
fn what_is_no_adapter_is_said() {
    let refused = |path: PathBuf| {
        Adapter::open(&path, 1.0).unwrap_err().to_string().replace(&golden().display().to_string(), "GOLDEN")
    };
    let model = refused(golden().join("llama-tiny"));
    assert!(
        model.contains("`GOLDEN/llama-tiny` is no adapter: wanted a directory with `adapter_config.json`"),
        "{model}"
    );
    let gguf = refused(golden().join("llama-tiny/model.gguf"));
    assert!(gguf.contains("`general.type` is"), "{gguf}");
    assert!(gguf.contains("`adapter.lora.alpha` is missing, wanted a number"), "{gguf}");
}

#[test]
fn unknown_keys_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config["secret_sauce"] = json!(7);
    write(folder.path(), &config, &[(Q_A, [2, 64]), (Q_B, [64, 2])]);
    let adapter = Adapter::open(folder.path(), 1.0).unwrap();
    let unknown = adapter.keys().iter().filter(|key| key.verdict == weighbridge::model::Verdict::Unknown);
    assert_eq!(unknown.map(|key| key.key.as_str()).collect::<Vec<_>>(), ["secret_sauce"]);
    // Every key that peft writes has a verdict.
    for case in ["llama", "llama-patterns", "gpt2"] {
        let adapter = adapter_of(case);
        assert!(adapter.keys().iter().all(|key| key.verdict != weighbridge::model::Verdict::Unknown));
    }
}

fn adapter_of(case: &str) -> Arc<Adapter> {
    adapter(&Case::of(case).dir, 1.0)
}
