//! Encoding during a load gives the same bytes as converting first and loading the result, bit for bit.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::json;
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::planner::{EncodeRule, Encoding, Preset, packed_layout};
use weighbridge::runtime::BackendKind;
use weighbridge::{Error, LayoutKind, Loaded, Mesh, PlanBuilder, Pool, Runtime, RuntimeOptions, load, open};

use crate::golden;

// A llama that every scheme of blocks fits.
const HEAD: u64 = 64;
const HEADS: u64 = 4;
const KV: u64 = 2;
const HIDDEN: u64 = 256;
const FFN: u64 = 512;
const VOCAB: u64 = 384;

/// A directory as transformers writes it: random weights, the same on every machine.
fn llama(dir: &Path, dtype: &str, tied: bool) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": FFN, "vocab_size": VOCAB,
        "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
    });
    let mut tensors: Vec<(String, Vec<u64>)> = vec![
        ("model.embed_tokens.weight".into(), vec![VOCAB, HIDDEN]),
        ("model.norm.weight".into(), vec![HIDDEN]),
    ];
    if !tied {
        tensors.push(("lm_head.weight".into(), vec![VOCAB, HIDDEN]));
    }
    for n in 0..2 {
        let (q, kv) = (HEADS * HEAD, KV * HEAD);
        for (name, shape) in [
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
            ("self_attn.q_proj", vec![q, HIDDEN]),
            ("self_attn.k_proj", vec![kv, HIDDEN]),
            ("self_attn.v_proj", vec![kv, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, q]),
            ("mlp.gate_proj", vec![FFN, HIDDEN]),
            ("mlp.up_proj", vec![FFN, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, FFN]),
        ] {
            tensors.push((format!("model.layers.{n}.{name}.weight"), shape));
        }
    }
    let (mut header, mut data, mut rng) = (String::from("{"), vec![], testkit::Rng(0));
    for (name, shape) in tensors {
        let start = data.len();
        let size = if shape.len() == 1 { (1.0, 0.1) } else { (0.0, 0.2) };
        for _ in 0..shape.iter().product::<u64>() {
            let x = size.0 + size.1 * rng.float().powi(3);
            match dtype {
                "F32" => data.extend(x.to_le_bytes()),
                _ => data.extend(&x.to_le_bytes()[2..]),
            }
        }
        let comma = if header.len() > 1 { "," } else { "" };
        let end = data.len();
        write!(
            header,
            "{comma}\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        )
        .unwrap();
    }
    header.push('}');
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("model.safetensors"), file).unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

fn rules(texts: &[&str]) -> Vec<EncodeRule> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

fn encoding(texts: &[&str], preset: Option<&str>) -> Encoding {
    Encoding {
        rules: rules(texts),
        preset: preset.map(|name| Preset::named(name).unwrap()),
        is_guided: false,
    }
}

/// `source` written as `format`, encoded by rules for the names of that format.
fn convert(source: &Path, to: &Path, format: OutputFormat, by: &Encoding) {
    let options = ConvertOptions {
        rules: by.rules.clone(),
        preset: by.preset,
        allow_requantize: true,
        ..ConvertOptions::default()
    };
    Conversion::new(&open(source).unwrap(), LayoutKind::Source, format, &options)
        .unwrap()
        .run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
}

struct Want {
    layout: LayoutKind,
    mesh: Mesh,
    rank: u64,
}

fn wanted(layout: LayoutKind) -> Want {
    Want { layout, mesh: Mesh::default(), rank: 0 }
}

fn planned(path: &Path, want: &Want, by: &Encoding) -> Result<Loaded, Error> {
    let checkpoint = open(path)?;
    let builder = PlanBuilder::new(&checkpoint).layout(want.layout).mesh(want.mesh).rank(want.rank);
    Ok(builder.encoding(by.clone()).build()?.load(&mut Pool::new(2))?)
}

fn filled(path: &Path, want: &Want, by: &Encoding) -> Loaded {
    planned(path, want, by).unwrap()
}

/// Names, shapes, schemes and all bytes, of what `compared` says.
fn assert_same(a: &Loaded, b: &Loaded, what: &str, compared: impl Fn(&str) -> bool) {
    let names = |loaded: &Loaded| loaded.names().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(names(a), names(b), "{what}");
    for name in a.names().filter(|name| compared(name)) {
        let (x, y) = (a.get(name).unwrap(), b.get(name).unwrap());
        assert_eq!((x.shape(), x.scheme()), (y.shape(), y.scheme()), "{what}: {name}");
        assert!(
            x.slots().iter().map(load::Slot::bytes).eq(y.slots().iter().map(load::Slot::bytes)),
            "{what}: {name}"
        );
    }
}

/// Whether a share of what is encoded is what encoding the share gives: scales are of no more than the share.
fn local(scheme: &str, name: &str) -> bool {
    let columns = name.contains("attention.output") || name.contains("ffn.down");
    match scheme {
        "bnb-int8" => !columns,
        // Two heads of keys lie in one block.
        _ if scheme.starts_with("fp8") => {
            ["q.weight", "gate.weight", "up.weight"].iter().any(|end| name.ends_with(end))
        }
        _ => true,
    }
}

/// A way to encode, in the words of a format and in canonical ones.
struct Way {
    format: OutputFormat,
    named: Encoding,
    canonical: Encoding,
    /// A scheme that something has then.
    shows: &'static str,
}

fn ways() -> Vec<Way> {
    let canonical = |scheme: &str| -> Vec<String> {
        let names = ["q", "k", "v", "output"].map(|m| format!("layers.*.attention.{m}.weight={scheme}"));
        let ffn = ["gate", "up", "down"].map(|m| format!("layers.*.ffn.{m}.weight={scheme}"));
        names.into_iter().chain(ffn).collect()
    };
    let gguf = |scheme: &str| -> Vec<String> {
        let names = ["q", "k", "v", "output"].map(|m| format!("blk.*.attn_{m}.weight={scheme}"));
        let ffn = ["gate", "up", "down"].map(|m| format!("blk.*.ffn_{m}.weight={scheme}"));
        names.into_iter().chain(ffn).collect()
    };
    let by = |texts: &[String]| {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        encoding(&texts, None)
    };
    let mut ways = vec![];
    for scheme in ["q8_0", "q4_k", "q6_k", "q4_0", "f16"] {
        let (named, canonical) = (by(&gguf(scheme)), by(&canonical(scheme)));
        ways.push(Way { format: OutputFormat::Gguf, named, canonical, shows: scheme });
    }
    for (format, scheme) in [
        (OutputFormat::Mlx, "mlx-affine:b4,g64,bf16"),
        (OutputFormat::Hf, "bnb-int8"),
        (OutputFormat::Hf, "fp8:e4m3,b128x128,f32"),
    ] {
        let named = encoding(&[&format!("*proj.weight={scheme}")], None);
        ways.push(Way { format, named, canonical: by(&canonical(scheme)), shows: scheme });
    }
    // Everything, norms included; and by what things are for.
    let both = |texts: &[&str], preset| (encoding(texts, preset), encoding(texts, preset));
    let (named, canonical) = both(&["*=q8_0"], None);
    ways.push(Way { format: OutputFormat::Gguf, named, canonical, shows: "q8_0" });
    for (format, preset, shows) in [
        (OutputFormat::Gguf, "q4_k_m", "q6_k"),
        (OutputFormat::Gguf, "q8_0", "q8_0"),
        (OutputFormat::Mlx, "mlx-4bit", "mlx-affine:b4,g64,bf16"),
        (OutputFormat::Hf, "int8", "bnb-int8"),
        (OutputFormat::Hf, "fp8-block", "fp8:e4m3,b128x128,f32"),
    ] {
        let (named, canonical) = both(&[], Some(preset));
        ways.push(Way { format, named, canonical, shows });
    }
    ways
}

/// Every way, from both dtypes, in the layouts that keep encodings and in the one that interleaves rows; on one rank
/// and on two, where blocks are cut at their ends alone.
#[test]
fn encoding_on_the_way_is_converting_first() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, tied) in [("BF16", false), ("BF16", true), ("F32", false)] {
        let source = folder.path().join(format!("{dtype}-{tied}"));
        llama(&source, dtype, tied);
        let all = dtype == "BF16" && !tied;
        for (i, way) in ways().into_iter().enumerate().filter(|(i, _)| all || i % 3 == 0) {
            if dtype == "F32" && way.shows.starts_with("mlx") {
                // The scales would have the other dtype.
                continue;
            }
            let to = folder.path().join(format!("{dtype}-{tied}-{i}.{}", way.format.name()));
            convert(&source, &to, way.format, &way.named);
            let none = Encoding::default();
            let two = Mesh { tp: 2, ..Mesh::default() };
            let layouts = [LayoutKind::Canonical, LayoutKind::Modules, packed_layout().unwrap()];
            let (mut shown, mut compared) = (false, 0);
            for layout in layouts {
                for want in
                    [wanted(layout), Want { layout, mesh: two, rank: 0 }, Want { layout, mesh: two, rank: 1 }]
                {
                    let what = format!(
                        "{dtype} {tied} {} {} of {i}, {}",
                        way.format.name(),
                        way.shows,
                        layout.name()
                    );
                    // Tensors cut within a block, or fused of several encodings, cannot be compared.
                    let Ok(first) = planned(&to, &want, &none) else { continue };
                    let on_the_way = filled(&source, &want, &way.canonical);
                    let many = want.mesh.is_many();
                    assert_same(&on_the_way, &first, &what, |name| {
                        // GGUF has norms as f32, which this layout does not ask for.
                        let other = layout == LayoutKind::Modules && name.contains("norm");
                        !other && (!many || local(way.shows, name))
                    });
                    shown |=
                        on_the_way.names().any(|n| *on_the_way.get(n).unwrap().scheme().name == *way.shows);
                    compared += if many { 100 } else { 1 };
                }
            }
            let everywhere = ["q8_0", "q4_0", "f16", "bnb-int8"].contains(&way.shows);
            assert!(compared >= if everywhere { 403 } else { 2 }, "{i}: {compared}");
            assert!(shown, "{i}: nothing is {}", way.shows);
        }
    }
}

/// Blocks of one encoding become blocks of another, even if they had several: fused parts are decoded first.
#[test]
fn parts_of_several_encodings_are_encoded_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (hf, mixed, to) =
        (folder.path().join("hf"), folder.path().join("mixed.gguf"), folder.path().join("to.gguf"));
    llama(&hf, "F32", false);
    convert(&hf, &mixed, OutputFormat::Gguf, &encoding(&["*attn_v*=q6_k", "*norm*=f32", "*=q4_0"], None));
    convert(&mixed, &to, OutputFormat::Gguf, &encoding(&["*norm*=f32", "*=q8_0"], None));
    let by = encoding(&["*norm*=f32", "*=q8_0"], None);
    for layout in [LayoutKind::Canonical, LayoutKind::InPlace, LayoutKind::Modules, packed_layout().unwrap()]
    {
        let on_the_way = filled(&mixed, &wanted(layout), &by);
        assert_same(&on_the_way, &filled(&to, &wanted(layout), &Encoding::default()), layout.name(), |_| {
            true
        });
    }
    // Tensors that already have the encoding are not touched; rows are not interleaved with tensors that get it.
    let some = encoding(&["layers.0.attention.v.weight=q4_0"], None);
    let packed = filled(&mixed, &wanted(packed_layout().unwrap()), &some);
    assert!(
        packed.get("layers.0.attention.v.weight").is_some()
            && packed.get("layers.1.attention.q.weight").is_some()
    );
    let checkpoint = open(&mixed).unwrap();
    let fused = |rule: &str| {
        let plan =
            PlanBuilder::new(&checkpoint).layout(LayoutKind::Modules).encoding(encoding(&[rule], None));
        plan.build()
    };
    // It is fused with them where they need not be, and with nothing else.
    let plan = fused("layers.*.attention.v.weight=q4_0").unwrap();
    assert_eq!(&*plan.find("layers.0.attention.qkv.weight").unwrap().scheme.name, "q4_0");
    let error = format!("{:?}", fused("layers.*.attention.v.weight=q5_0").err().unwrap());
    assert!(error.contains("wanted the same codec steps for all parts, found none and `-> q5_0`"), "{error}");
    assert!(error.contains("hint: encode all of its parts alike"), "{error}");
}

/// The norms of Gemma are stored less one: it is added before they are encoded.
#[test]
fn what_is_added_is_added_before() {
    let checkpoint = open(golden().join("gemma3-tiny")).unwrap();
    let plain = PlanBuilder::new(&checkpoint).build().unwrap();
    let plan = PlanBuilder::new(&checkpoint).encode(rules(&["*norm*=bf16"])).build().unwrap();
    let mut pool = Pool::new(2);
    let (plain, rounded) = (plain.load(&mut pool).unwrap(), plan.load(&mut pool).unwrap());
    let (a, b) = (plain.get("output_norm.weight").unwrap(), rounded.get("output_norm.weight").unwrap());
    assert_eq!(&*b.scheme().name, "f32");
    assert_ne!(a.as_f32(), b.as_f32());
    for (a, b) in a.as_f32().iter().zip(b.as_f32()) {
        let (bits, odd) = (a.to_bits(), a.to_bits() >> 16 & 1);
        assert_eq!(b.to_bits(), (bits + 0x7FFF + odd) & 0xFFFF_0000, "{a}");
    }
}

#[test]
fn memory_is_bounded_while_encoding() {
    let folder = tempfile::tempdir().unwrap();
    llama(folder.path(), "BF16", false);
    let checkpoint = open(folder.path()).unwrap();
    let layout = packed_layout().unwrap();
    for by in [encoding(&["*=q8_0"], None), encoding(&[], Some("q4_k_m"))] {
        let plan = PlanBuilder::new(&checkpoint).layout(layout).encoding(by).build().unwrap();
        let load = |memory: Option<u64>, threads| {
            let options = load::Options { memory, ..load::Options::default() };
            plan.load_with(&mut Pool::new(threads), options)
        };
        let Err(load::Error::LittleMemory { least, .. }) = load(Some(1), 2) else { panic!("refused") };
        let free = load(None, 2).unwrap();
        for (memory, threads) in [(least, 1), (least, 3), (2 * least + 100, 2)] {
            let bounded = load(Some(memory), threads).unwrap();
            assert!(bounded.report().scratch_peak <= memory, "{:?}", bounded.report());
            assert_same(&free, &bounded, "bounded", |_| true);
        }
        // Far less than a matrix in f32: a band of 16 rows.
        assert!(least < HIDDEN * FFN * 4 / 4, "{least}");
    }
}

/// The tokens of both backends, chosen as the most likely, and the last logits.
fn tokens(path: &Path, backend: BackendKind, by: &Encoding) -> (Vec<u32>, Vec<f32>) {
    let options =
        RuntimeOptions { backend, threads: Some(2), encoding: by.clone(), ..RuntimeOptions::default() };
    let mut runtime = Runtime::start(path, &options).unwrap();
    let (mut ids, mut logits) = (vec![1, 2, 3], vec![]);
    let mut from = 0;
    for _ in 0..12 {
        logits = runtime.forward(&ids[from..]).unwrap().to_vec();
        from = ids.len();
        ids.push(crate::argmax(&logits));
    }
    (ids, logits)
}

#[test]
fn a_model_that_is_encoded_on_the_way_runs_as_one_that_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let hf = folder.path().join("hf");
    llama(&hf, "BF16", true);
    let mut answers = vec![];
    for (i, by) in
        [encoding(&["*=q8_0"], None), encoding(&[], Some("q4_k_m")), encoding(&[], Some("mlx-4bit"))]
            .iter()
            .enumerate()
    {
        let format = if i == 2 { OutputFormat::Mlx } else { OutputFormat::Gguf };
        let to = folder.path().join(format!("{i}.{}", format.name()));
        convert(&hf, &to, format, by);
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            let (ids, logits) = tokens(&hf, backend, by);
            assert_eq!(
                (&ids, &logits),
                (
                    &tokens(&to, backend, &Encoding::default()).0,
                    &tokens(&to, backend, &Encoding::default()).1
                )
            );
            answers.push(logits);
        }
    }
    let plain = tokens(&hf, BackendKind::Reference, &Encoding::default()).1;
    assert!(answers.iter().all(|logits| *logits != plain), "nothing was encoded");
}

#[test]
fn a_plan_says_what_is_encoded() {
    let folder = tempfile::tempdir().unwrap();
    llama(folder.path(), "BF16", false);
    let checkpoint = open(folder.path()).unwrap();
    let layout = LayoutKind::Packed { rows: 16 };
    let plan = PlanBuilder::new(&checkpoint)
        .layout(layout)
        .encode(rules(&["layers.*.weight=q8_0"]))
        .build()
        .unwrap();
    let text = plan.explain("layers.0.ffn.down.weight").unwrap();
    insta::assert_snapshot!(text, @"
    layers.0.ffn.down.weight [256, 512] q8_0.r16
      all <- model.layers.0.mlp.down_proj.weight
      then bf16 -> q8_0 (lossy: bf16 is rounded to q8_0)
      then q8_0 -> q8_0.r16 (exact)
      data: 256 KiB, one run of model.layers.0.mlp.down_proj.weight at byte 0
    ");
    let summary = plan.summary().to_string();
    let told = |what: &str| assert!(summary.contains(what), "{summary}");
    told("bf16 -> q8_0 in 12 parameters");
    told("lossy: bf16 is rounded to q8_0");
    told("q8_0 -> q8_0.r16 in 8 parameters");
    // Norms are floats to kernels, and went through the encoding.
    told("q8_0 -> f32 in 4 parameters");
}

fn refused(path: &Path, layout: LayoutKind, mesh: Mesh, by: Encoding) -> String {
    let checkpoint = open(path).unwrap();
    let error = PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).encoding(by).build().err().unwrap();
    assert!(error.is_misuse(), "{error}");
    assert!(!error.to_string().contains("hint:"), "{error}");
    error.diagnostics().to_string()
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    llama(folder.path(), "BF16", true);
    let (one, canonical) = (Mesh::default(), LayoutKind::Canonical);
    let by = encoding(
        &["layers.*.ffn.dwon.weight=q8_0", "output.weight=q8_0", "*norm*=f16", "*.ffn_norm.*=f32"],
        None,
    );
    insta::assert_snapshot!(refused(folder.path(), canonical, one, by), @"
    rule `layers.*.ffn.dwon.weight=q8_0`: no parameter matches
    hint: the nearest is `layers.0.ffn.down.weight`
    rule `output.weight=q8_0`: `output.weight` is tied to `token_embedding.weight`, and is encoded with it
    hint: name `token_embedding.weight` in the rule
    rule `*.ffn_norm.*=f32`: earlier rules match all of its parameters, such as `layers.0.ffn_norm.weight`
    ");
    let two = Mesh { tp: 2, ..Mesh::default() };
    let by = encoding(&["layers.*.attention.*.weight=q4_k"], None);
    insta::assert_snapshot!(refused(folder.path(), packed_layout().unwrap(), two, by), @"
    `layers.{n}.attention.output.weight` (2 of them) [256, 128], a rank's share of [256, 256], cannot be `q4_k`: axis 1 has 128 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    ");
    let entry = encoding(&["model.layers.*.self_attn.q.weight=q8_0"], None);
    insta::assert_snapshot!(refused(folder.path(), LayoutKind::Source, one, entry), @"
    rule `model.layers.*.self_attn.q.weight=q8_0`: no parameter matches
    hint: the nearest is `model.layers.0.self_attn.q_proj.weight`
    ");
    let unknown = format!("{:?}", "*=q4_kk".parse::<EncodeRule>().unwrap_err());
    assert!(unknown.contains("no scheme is called `q4_kk`"), "{unknown}");
    // As stored, a preset has to know what the entries are for.
    let folder = tempfile::tempdir().unwrap();
    let numbers = folder.path().join("numbers.safetensors");
    let header = br#"{"a":{"dtype":"I32","shape":[2,32],"data_offsets":[0,256]},"b":{"dtype":"F32","shape":[2,32],"data_offsets":[256,512]}}"#;
    std::fs::write(&numbers, [&(header.len() as u64).to_le_bytes()[..], header, &[0; 512]].concat()).unwrap();
    let preset = refused(&numbers, LayoutKind::Source, one, encoding(&[], Some("q8_0")));
    assert!(
        preset.starts_with("the preset `q8_0` depends on the role of each tensor, which is unknown"),
        "{preset}"
    );
    insta::assert_snapshot!(refused(&numbers, LayoutKind::Source, one, encoding(&["a=q8_0"], None)), @"rule `a=q8_0`: only floats are encoded, and `a` is i32");
    // Under a rule for all, what is no floats stays what it is.
    let loaded = filled(&numbers, &wanted(LayoutKind::Source), &encoding(&["*=q8_0"], None));
    let scheme = |name: &str| loaded.get(name).unwrap().scheme().name.to_string();
    assert_eq!((scheme("a").as_str(), scheme("b").as_str()), ("i32", "q8_0"));
}

/// Stored transposed, the columns are not what is summed over: presets say so, canonical parameters are upright.
#[test]
fn presets_are_for_upright_matrices() {
    let path = golden().join("gpt2-tiny");
    let by = || encoding(&[], Some("q8_0"));
    for layout in [LayoutKind::Source, LayoutKind::Named(weighbridge::model::DialectName::Hf)] {
        let error = refused(&path, layout, Mesh::default(), by());
        assert!(error.contains("it is stored `[in, out]`"), "{error}");
    }
    let loaded = filled(&path, &wanted(LayoutKind::Canonical), &by());
    assert_eq!(&*loaded.get("layers.0.ffn.up.weight").unwrap().scheme().name, "q8_0");
}

/// On the last stage of a pipeline the output is there, and what it is tied to is not.
#[test]
fn what_is_tied_follows_its_root_on_every_stage() {
    let folder = tempfile::tempdir().unwrap();
    llama(folder.path(), "BF16", true);
    let mesh = Mesh { pp: 2, ..Mesh::default() };
    let by = encoding(&["token_embedding.weight=q8_0", "layers.0.*=q8_0"], None);
    for (rank, name) in [(0, "token_embedding.weight"), (1, "output.weight")] {
        let loaded = filled(folder.path(), &Want { layout: LayoutKind::Canonical, mesh, rank }, &by);
        assert_eq!(&*loaded.get(name).unwrap().scheme().name, "q8_0", "{rank}");
    }
    let one = filled(folder.path(), &wanted(LayoutKind::Canonical), &by);
    let (a, b) = (one.get("token_embedding.weight").unwrap(), one.get("output.weight").unwrap());
    assert_eq!(a.bytes().as_ptr(), b.bytes().as_ptr());
}
