//! The parameters of each rank of vLLM, compared with golden/vllm: plain slices of arrays, as its loaders cut them.

use std::path::Path;

use checkpoint::{Draft, Outgoing, ValueBuf, WriteOptions};
use serde_json::{Map, Value, json};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::model::ExpertPlacement;
use weighbridge::plan::Whole;
use weighbridge::{Checkpoint, Mesh, PlanBuilder, Pool, open};

/// The bytes of a stored tensor, as golden/vllm/README.md says.
fn bytes(name: &str, len: usize, exceptions: &[Value]) -> Vec<u8> {
    let seed =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let word = |i: u64| {
        let z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let mut stream: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(|i| word(i).to_le_bytes()).collect();
    stream.truncate(len);
    let rule =
        exceptions.iter().find(|e| name.ends_with(e[0].as_str().unwrap())).map(|e| e[1].as_str().unwrap());
    let words = || stream.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap()));
    match rule {
        None => stream,
        Some("i32: index / 128") => {
            (0..u32::try_from(len / 4).unwrap()).flat_map(|i| (i / 128).to_le_bytes()).collect()
        }
        Some("f32: 0.5 + (word % 2^20) / 2^20") => {
            words().flat_map(|w| (0.5 + (w % (1 << 20)) as f32 / (1 << 20) as f32).to_le_bytes()).collect()
        }
        Some("u8: 127 and 255 are 0") => {
            stream.into_iter().map(|b| if b & 127 == 127 { 0 } else { b }).collect()
        }
        Some("f32: 1") => words().flat_map(|_| 1f32.to_le_bytes()).collect(),
        // u16: bit 14 of the first N of M is 0
        Some(rule) if rule.starts_with("u16: ") => {
            let numbers = rule.split(' ').filter_map(|word| word.parse().ok());
            let [_, first, every, _] = numbers.collect::<Vec<usize>>()[..] else { panic!("{rule}") };
            for block in stream.chunks_exact_mut(2 * every) {
                block[..2 * first].iter_mut().skip(1).step_by(2).for_each(|high| *high &= 0xBF);
            }
            stream
        }
        Some(other) => panic!("no such rule: {other}"),
    }
}

fn shape(of: &Value) -> Vec<u64> {
    of.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// Writes the checkpoint that a golden file describes, and opens it.
pub(crate) fn checkpoint(golden: &Value, folder: &Path) -> Checkpoint {
    let entries = golden["entries"].as_array().unwrap();
    let exceptions = golden["exceptions"].as_array().unwrap();
    let config = golden["config"].as_object().unwrap();
    if config.contains_key("general.architecture") {
        let path = folder.join("model.gguf");
        let tensors = entries.iter().map(|e| Outgoing {
            name: e[0].as_str().unwrap().to_owned(),
            shape: shape(&e[1]).into(),
            scheme: quant::scheme(&e[2].as_str().unwrap().to_lowercase()).unwrap(),
        });
        let tensors: Vec<Outgoing> = tensors.collect();
        let pairs = config.iter().filter(|(key, _)| !key.starts_with("GGUF."));
        let pairs: Vec<(&str, ValueBuf)> = pairs.filter_map(|(k, v)| Some((k.as_str(), value(v)?))).collect();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (*key, value.borrow())).collect();
        let mut writer = Draft::gguf(tensors.clone(), &pairs)
            .unwrap()
            .create_with(&path, &WriteOptions::default())
            .unwrap();
        for tensor in &tensors {
            let len = tensor.scheme.byte_len(&tensor.shape).unwrap();
            writer.tensor(&[&bytes(&tensor.name, usize::try_from(len).unwrap(), exceptions)]).unwrap();
        }
        writer.finish().unwrap();
        return open(&path).unwrap();
    }
    let (mut header, mut data) = (Map::new(), Vec::new());
    for entry in entries {
        let (name, dtype) = (entry[0].as_str().unwrap(), entry[2].as_str().unwrap());
        let width = match dtype {
            "F32" | "I32" | "U32" => 4,
            "F16" | "BF16" => 2,
            "F8_E4M3" | "U8" => 1,
            other => panic!("how wide is {other}?"),
        };
        let len = usize::try_from(shape(&entry[1]).iter().product::<u64>()).unwrap() * width;
        let start = data.len();
        data.extend(bytes(name, len, exceptions));
        let extent = json!({"dtype": dtype, "shape": entry[1], "data_offsets": [start, data.len()]});
        header.insert(name.to_owned(), extent);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    std::fs::write(folder.join("config.json"), serde_json::to_vec(config).unwrap()).unwrap();
    open(folder).unwrap()
}

/// A value of GGUF; floats of this JSON are f32 there.
fn value(of: &Value) -> Option<ValueBuf> {
    Some(match of {
        Value::String(text) => ValueBuf::Str(text.clone()),
        Value::Bool(flag) => ValueBuf::Bool(*flag),
        Value::Number(n) => match n.as_u64() {
            Some(n) => ValueBuf::U32(u32::try_from(n).unwrap()),
            #[allow(clippy::cast_possible_truncation, reason = "it was an f32")]
            None => ValueBuf::F32(n.as_f64().unwrap() as f32),
        },
        _ => return None,
    })
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

/// Every plane of every parameter of every rank, or what is wrong.
fn compare(checkpoint: &Checkpoint, mesh: Mesh, ranks: &[Value], pool: &mut Pool) -> Vec<String> {
    let mut wrong = vec![];
    let of = PlanBuilder::new(checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).ranks();
    let of = match of {
        Ok(of) => of,
        Err(error) => return vec![error.to_string()],
    };
    assert_eq!(of.count(), ranks.len() as u64);
    let mut whole = Whole::default();
    for (rank, wanted) in (0..).zip(ranks) {
        let plan = match of.plan(rank) {
            Ok(plan) => plan,
            Err(error) => {
                wrong.push(format!("rank {rank}: {error}"));
                continue;
            }
        };
        whole.add(plan.pieces());
        let loaded = plan.load(pool).unwrap();
        let wanted = wanted.as_object().unwrap();
        let own = plan.params().iter().filter(|p| p.tied_to.is_none()).map(|p| p.name.as_str());
        wrong.extend(
            own.filter(|n| !wanted.contains_key(*n)).map(|n| format!("rank {rank}: {n} is not held")),
        );
        for (name, param) in wanted {
            let Some(tensor) = loaded.get(name) else {
                wrong.push(format!("rank {rank}: {name} is missing"));
                continue;
            };
            let planes: Vec<Value> = tensor
                .scheme()
                .planes
                .iter()
                .zip(&*tensor.planes())
                .map(|(spec, bytes)| json!([spec.role, digest(bytes)]))
                .collect();
            let held = json!([tensor.shape().to_vec(), &*tensor.scheme().name, planes]);
            let theirs = param["planes"].as_array().unwrap().iter().map(|p| json!([p[0], p[2]]));
            let theirs = json!([param["shape"], param["scheme"], theirs.collect::<Vec<_>>()]);
            if held != theirs {
                wrong.push(format!("rank {rank}: {name} is {held}, vLLM's {theirs}"));
            }
        }
    }
    let untaken = whole.untaken(checkpoint.entries());
    wrong.extend(untaken.iter().map(|u| format!("no rank takes {u:?}")));
    wrong
}

#[test]
fn every_rank_holds_what_vllm_holds() {
    let folder = testkit::golden("vllm");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|e| e == "json"));
    names.sort();
    let (mut pool, mut wrong, mut compared) = (Pool::new(2), vec![], 0);
    for path in names {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !FAMILIES.iter().any(|f| name.starts_with(&format!("{f}-"))) {
            continue;
        }
        let golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint(&golden, folder.path());
        let mut add = |what: String, mesh: Mesh, ranks: &Value| {
            let found = compare(&checkpoint, mesh, ranks.as_array().unwrap(), &mut pool);
            wrong.extend(found.into_iter().map(|w| format!("{name}, {what}, {w}")));
            compared += 1;
        };
        for (tp, ranks) in golden["tp"].as_object().unwrap() {
            let mesh = Mesh { tp: tp.parse().unwrap(), ..Mesh::default() };
            add(format!("tp {tp}"), mesh, ranks);
        }
        if let Some(ep) = golden.get("ep") {
            for (key, experts) in
                [("linear", ExpertPlacement::Linear), ("round_robin", ExpertPlacement::RoundRobin)]
            {
                let tp = ep["tp"].as_u64().unwrap();
                add(
                    format!("ep {key}"),
                    Mesh { tp, experts, whole_experts: true, ..Mesh::default() },
                    &ep[key],
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(compared >= 4 * FAMILIES.len(), "{compared} meshes were compared");
}

/// Written for vLLM's `sharded_state` loader: each rank's files hold what golden/vllm says, plane for plane.
#[test]
fn what_is_written_for_each_rank_is_what_it_holds() {
    let golden_folder = testkit::golden("vllm");
    for (name, tensor) in [
        ("llama-bf16", "model.layers.0.self_attn.qkv_proj.weight"),
        ("llama-fp8", "model.layers.0.self_attn.qkv_proj.weight_scale_inv"),
        ("llama-fp8t", "model.layers.0.self_attn.qkv_proj.weight_scale"),
        ("llama-awq4", "model.layers.0.mlp.gate_up_proj.qzeros"),
        ("llama-gptq4", "model.layers.0.mlp.gate_up_proj.scales"),
    ] {
        let golden: Value =
            serde_json::from_slice(&std::fs::read(golden_folder.join(format!("{name}.json"))).unwrap())
                .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let source = checkpoint(&golden, folder.path());
        let options = ConvertOptions {
            mesh: Mesh { tp: 4, ..Mesh::default() },
            max_shard: Some(400_000),
            ..ConvertOptions::default()
        };
        let to = folder.path().join("sharded");
        Conversion::new(&source, weighbridge::vllm::LAYOUT, OutputFormat::Hf, &options)
            .unwrap()
            .run(&to, &mut Pool::new(2), &mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        assert!(to.join("config.json").is_file());
        for (rank, wanted) in golden["tp"]["4"].as_array().unwrap().iter().enumerate() {
            let (mut names, mut digests) = (vec![], vec![]);
            for part in 0.. {
                let path = to.join(format!("model-rank-{rank}-part-{part}.safetensors"));
                if !path.exists() {
                    assert!(part > 1, "{name}: cut into {part} parts");
                    break;
                }
                // Read as bytes: a header of JSON, and data.
                let file = std::fs::read(&path).unwrap();
                let data = 8 + usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
                let header: Map<String, Value> = serde_json::from_slice(&file[8..data]).unwrap();
                // Scales of attention's cache are no parameters.
                for (name, info) in header.into_iter().filter(|(name, _)| !name.contains(".attn.")) {
                    let at: Vec<usize> = serde_json::from_value(info["data_offsets"].clone()).unwrap();
                    digests.push(digest(&file[data + at[0]..data + at[1]]));
                    names.push(name);
                }
            }
            let planes = wanted.as_object().unwrap().values().flat_map(|p| p["planes"].as_array().unwrap());
            let mut theirs: Vec<String> = planes.map(|p| p[2].as_str().unwrap().to_owned()).collect();
            digests.sort();
            theirs.sort();
            assert_eq!(digests, theirs, "{name}, rank {rank}");
            assert!(names.iter().any(|n| n == tensor), "{name}: {tensor} in {names:?}");
        }
    }
}

/// Keys of GGUF's DeepSeek are decoded, since their blocks cross vLLM's boundaries: each rank reads those of its heads.
#[test]
fn what_is_decoded_first_is_read_in_part() {
    let golden = testkit::golden("vllm/deepseek_v3-q8_0.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(&golden, folder.path());
    let mesh = Mesh { tp: 4, ..Mesh::default() };
    let ranks = PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).ranks().unwrap();
    let (mut whole, mut decoded) = (Whole::default(), 0);
    for rank in 0..4 {
        let plan = ranks.plan(rank).unwrap();
        decoded += plan.params().iter().filter(|p| !p.staged.is_empty()).count();
        whole.add(plan.pieces());
    }
    assert_eq!(decoded, 4 * 2, "ranks, layers");
    let several = whole.replicated(checkpoint.entries());
    assert!(several.iter().any(|r| r.pattern.contains("attn_kv_a_mqa")), "{several:?}");
    assert!(
        !several.iter().any(|r| r.pattern.contains("_b.weight") && !r.pattern.contains("q_b")),
        "{several:?}"
    );
}

/// The plan moves `kv_b_proj` to the matrices of latent attention, on every rank, and reads nothing else.
#[test]
fn absorbed_matrices_are_those_of_vllm() {
    let read = |path: &str| -> Value {
        serde_json::from_slice(&std::fs::read(testkit::golden(path)).unwrap()).unwrap()
    };
    let (golden, theirs) = (read("vllm/deepseek_v3-bf16.json"), read("vllm_mla.json"));
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(&golden, folder.path());
    for (tp, ranks) in theirs.as_object().unwrap() {
        let mesh = Mesh { tp: tp.parse().unwrap(), ..Mesh::default() };
        for (rank, wanted) in (0..).zip(ranks.as_array().unwrap()) {
            let of = PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).rank(rank);
            let mut request = of.request().unwrap();
            let before = request.targets.len();
            weighbridge::vllm::absorbed::absorb(&mut request).unwrap();
            assert_eq!(request.targets.len() - before, 2 * 2, "matrices, layers");
            let plan = request.compile().unwrap();
            let loaded = plan.load(&mut Pool::new(2)).unwrap();
            for (name, told) in wanted.as_object().unwrap() {
                let tensor = loaded.get(name).unwrap_or_else(|| panic!("{name} is missing"));
                assert_eq!(plan.find(name).unwrap().fidelity, plan::Fidelity::Exact, "{name}");
                let held = json!([tensor.shape().to_vec(), digest(tensor.bytes())]);
                assert_eq!(held, *told, "{name}, rank {rank} of {tp}");
            }
        }
    }
}

/// Blocks of FP8 are decoded first, which is said; other attention has nothing to absorb.
#[test]
fn absorbing_says_what_it_loses_and_what_it_cannot_do() {
    let read = |path: &str| -> Value {
        serde_json::from_slice(&std::fs::read(testkit::golden(path)).unwrap()).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let source = checkpoint(&read("vllm/deepseek_v3-fp8.json"), folder.path());
    let request = |source: &Checkpoint| PlanBuilder::new(source).layout(weighbridge::vllm::LAYOUT).request();
    let mut of = request(&source).unwrap();
    weighbridge::vllm::absorbed::absorb(&mut of).unwrap();
    let plan = of.compile().unwrap();
    let name = "model.layers.0.self_attn.mla_attn.mla_attn.W_UV";
    let param = plan.find(name).unwrap();
    assert_eq!(&*param.scheme.name, "bf16");
    assert!(matches!(param.fidelity, plan::Fidelity::Lossy(_)), "{:?}", param.fidelity);

    let folder = tempfile::tempdir().unwrap();
    let other = checkpoint(&read("vllm/llama-bf16.json"), folder.path());
    let refused = weighbridge::vllm::absorbed::absorb(&mut request(&other).unwrap()).unwrap_err();
    assert!(refused.what.contains("no layer has the latent attention"), "{}", refused.what);
}

/// Models with golden files that are declared.
const FAMILIES: &[&str] = &["llama", "gemma3", "mixtral", "phi3", "qwen2", "qwen3", "deepseek_v3"];
