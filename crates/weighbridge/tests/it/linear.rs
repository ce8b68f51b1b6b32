//! GPTQ and AWQ as their readers have them: for linear layers alone, described by one config.json, and refused by name elsewhere.

use std::ops::ControlFlow;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;
use weighbridge::convert::compress::{Compression, Policy, Target};
use weighbridge::convert::{Conversion, ConvertOptions, Error, OutputFormat};
use weighbridge::planner::{EncodeRule, Preset};
use weighbridge::{Checkpoint, LayoutKind, PlanBuilder, Pool, load, open};

use crate::golden;

fn options(rules: &[&str], preset: Option<&str>) -> ConvertOptions<'static> {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let preset = preset.map(|name| Preset::named(name).unwrap());
    ConvertOptions { rules, preset, overwrite: true, ..ConvertOptions::default() }
}

fn convert(source: &Checkpoint, options: &ConvertOptions<'_>, to: &Path) -> Result<Vec<String>, Error> {
    let conversion = Conversion::new(source, LayoutKind::Source, OutputFormat::Hf, options)?;
    let report = conversion.run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))?;
    Ok(report.tensors.iter().map(|t| format!("{} {}", t.name, t.to)).collect())
}

fn said(folder: &Path) -> String {
    let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    serde_json::to_string_pretty(&config["quantization_config"]).unwrap()
}

/// The header of the file with the weights.
fn header(folder: &Path) -> serde_json::Map<String, Value> {
    let file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let len = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    serde_json::from_slice(&file[8..8 + len]).unwrap()
}

/// A directory reads back as the encoder made it, and has `g_idx`, which readers want.
#[test]
fn a_directory_reads_back_as_it_was_encoded() {
    let folder = tempfile::tempdir().unwrap();
    for (name, preset, scheme) in [
        ("llama-tiny", "gptq-4bit", "gptq:b4,g32,f16"),
        ("llama-tiny/model.gguf", "gptq-4bit", "gptq:b4,g32,f16"),
        ("llama-tiny", "awq-4bit", "awq:g32,f16"),
    ] {
        let (source, to) = (open(golden().join(name)).unwrap(), folder.path().join("out"));
        let tensors = convert(&source, &options(&[], Some(preset)), &to).unwrap();
        let encoded = tensors.iter().filter(|t| t.ends_with(scheme)).count();
        assert_eq!(encoded, 7 * 2, "{name}: {tensors:?}");
        let kept = |name: &str| tensors.iter().any(|t| t.starts_with(name) && !t.contains(':'));
        assert!(kept("model.embed_tokens.weight") && kept("lm_head.weight"), "{tensors:?}");
        // The same encoding on the way from the source to memory.
        let rules: Vec<EncodeRule> =
            ["attention.*", "ffn.*"].map(|p| format!("layers.*.{p}.weight={scheme}").parse().unwrap()).into();
        let wanted = PlanBuilder::new(&source).encode(rules).build().unwrap();
        let written = open(&to).unwrap();
        let found = PlanBuilder::new(&written).build().unwrap();
        let (wanted, found) =
            (wanted.load(&mut Pool::new(2)).unwrap(), found.load(&mut Pool::new(2)).unwrap());
        let mut compared = 0;
        for tensor in wanted.names().filter(|name| wanted.get(name).unwrap().scheme().name == scheme) {
            let (a, b) = (wanted.get(tensor).unwrap(), found.get(tensor).unwrap());
            assert_eq!(&*b.scheme().name, scheme, "{tensor}");
            assert!(a.planes().iter().zip(b.planes().iter()).all(|(a, b)| **a == **b), "{name}: {tensor}");
            compared += 1;
        }
        assert_eq!(compared, 7 * 2);
        let header = header(&to);
        let index = header.get("model.layers.1.mlp.down_proj.g_idx");
        match index {
            None => assert!(preset.starts_with("awq"), "{preset}"),
            Some(index) => {
                assert_eq!((&index["dtype"], &index["shape"]), (&"I32".into(), &serde_json::json!([96])));
                let file = std::fs::read(to.join("model.safetensors")).unwrap();
                let end =
                    |t: &Value, i: usize| usize::try_from(t["data_offsets"][i].as_u64().unwrap()).unwrap();
                let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
                let data = file.len() - tensors.map(|(_, tensor)| end(tensor, 1)).max().unwrap();
                let at = data + end(index, 0);
                let found: Vec<u8> = (0..96u32).flat_map(|i| (i / 32).to_le_bytes()).collect();
                assert_eq!(file[at..at + 4 * 96], found);
            }
        }
        // Written again from what is there, it is the same.
        let again = folder.path().join("again");
        convert(&written, &options(&[], None), &again).unwrap();
        let file = |folder: &Path, name: &str| std::fs::read(folder.join(name)).unwrap();
        assert!(file(&to, "config.json") == file(&again, "config.json"));
        assert!(file(&to, "model.safetensors") == file(&again, "model.safetensors"), "{name} as {preset}");
    }
}

#[test]
fn the_configuration_says_what_readers_look_for() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(golden().join("llama-tiny")).unwrap();
    let said = |rules: &[&str], preset| {
        convert(&source, &options(rules, preset), folder.path().join("out").as_path()).unwrap();
        said(&folder.path().join("out"))
    };
    assert_snapshot!(said(&[], Some("gptq-4bit")), @r#"
    {
      "bits": 4,
      "checkpoint_format": "gptq",
      "desc_act": false,
      "group_size": 32,
      "lm_head": false,
      "quant_method": "gptq",
      "sym": true
    }
    "#);
    assert_snapshot!(said(&[], Some("awq-4bit")), @r#"
    {
      "bits": 4,
      "group_size": 32,
      "modules_to_not_convert": [
        "lm_head",
        "model.embed_tokens"
      ],
      "quant_method": "awq",
      "version": "gemm",
      "zero_point": true
    }
    "#);
    // Two sizes, and matrices of the layers that stay as they are.
    let mixed =
        ["*.up_proj.weight=gptq-v2:b8,row,f16", "*.o_proj.weight=f32", "*_proj.weight=gptq-v2:b4,g32,f16"];
    assert_snapshot!(said(&mixed, None), @r#"
    {
      "bits": 4,
      "checkpoint_format": "gptq_v2",
      "desc_act": false,
      "group_size": 32,
      "lm_head": false,
      "quant_method": "gptq",
      "sym": false,
      "dynamic": {
        "-:^model\\.layers\\.0\\.self_attn\\.o_proj$": {},
        "-:^model\\.layers\\.1\\.self_attn\\.o_proj$": {},
        "+:^model\\.layers\\.0\\.mlp\\.up_proj$": {
          "bits": 8,
          "group_size": -1
        },
        "+:^model\\.layers\\.1\\.mlp\\.up_proj$": {
          "bits": 8,
          "group_size": -1
        }
      },
      "modules_in_block_to_quantize": [
        [
          "mlp.down_proj",
          "mlp.gate_proj",
          "mlp.up_proj",
          "self_attn.k_proj",
          "self_attn.q_proj",
          "self_attn.v_proj"
        ]
      ]
    }
    "#);
    // A matrix of the name is plain in one layer alone.
    let some = ["*.0.self_attn.o_proj.weight=f32", "*_proj.weight=gptq:b8,g32,f16"];
    let said: Value = serde_json::from_str(&said(&some, None)).unwrap();
    assert_eq!(
        said["dynamic"],
        serde_json::json!({"-:^model\\.layers\\.0\\.self_attn\\.o_proj$": {}}),
        "{said}"
    );
    let named = said["modules_in_block_to_quantize"][0].as_array().unwrap();
    assert_eq!(named.len(), 7 * 2 - 1, "{named:?}");
    assert!(named.contains(&"model.layers.1.self_attn.o_proj".into()), "{named:?}");
}

/// Each problem is named, and all at once.
#[test]
fn other_tensors_than_linear_layers_are_refused_by_name() {
    let to = tempfile::tempdir().unwrap();
    let refused = |name: &str, rule: &str| {
        let source = open(golden().join(name)).unwrap();
        let error = convert(&source, &options(&[rule], None), to.path()).unwrap_err();
        error.to_string()
    };
    assert_snapshot!(refused("llama-tiny", "*=gptq:b4,g32,f16"), @"
    `lm_head.weight` cannot be `gptq:b4,g32,f16`, which readers know for linear layers alone: it is the output matrix
    `model.embed_tokens.weight` cannot be `gptq:b4,g32,f16`, which readers know for linear layers alone: it is the token embedding
    `model.layers.{n}.input_layernorm.weight` (2 of them) [64] cannot be `gptq:b4,g32,f16`: needs at least 2 axes, found 1
    `model.layers.{n}.post_attention_layernorm.weight` (2 of them) [64] cannot be `gptq:b4,g32,f16`: needs at least 2 axes, found 1
    `model.norm.weight` [64] cannot be `gptq:b4,g32,f16`: needs at least 2 axes, found 1
    ");
    // GPT-2 of transformers has its matrices transposed.
    let transposed = refused("gpt2-tiny", "*c_fc.weight=awq:g32,f16");
    assert!(transposed.contains("c_fc") && transposed.contains("it is stored `[in, out]`"), "{transposed}");
    // Groups that are not whole: AutoAWQ has none.
    let ragged = refused("llama-tiny", "*.down_proj.weight=awq:g64,f16");
    assert!(ragged.contains("its 96 columns are no whole groups of 64"), "{ragged}");
    // Two versions.
    let source = open(golden().join("llama-tiny")).unwrap();
    let both = ["*.up_proj.weight=gptq-v2:b4,g32,f16", "*.down_proj.weight=gptq:b4,g32,f16"];
    let error = convert(&source, &options(&both, None), to.path()).unwrap_err().to_string();
    assert!(error.contains("up_proj") && error.contains("gptq-v2"), "{error}");
    // A group that ends before it is full is read by GPTQModel.
    convert(&source, &options(&["*.down_proj.weight=gptq:b4,g64,f16"], None), &to.path().join("out"))
        .unwrap();
    let back = open(to.path().join("out")).unwrap();
    let plan = PlanBuilder::new(&back).build().unwrap();
    plan.load_with(&mut Pool::new(1), load::Options::default()).unwrap();
}

/// `compress` of a directory chooses the larger encoding where the target allows it, and one for all matrices.
#[test]
fn compress_takes_four_bits_where_eight_are_too_many() {
    let source = open(golden().join("llama-tiny")).unwrap();
    let becomes = |target, preset| {
        let options = options(&[], preset);
        let (policy, mut pool) = (Policy::default(), Pool::new(2));
        let mut each = |_: &weighbridge::convert::compress::Measuring<'_>| ControlFlow::Continue(());
        let found =
            Compression::new(&source, OutputFormat::Hf, target, &policy, &options, &mut pool, &mut each)
                .unwrap();
        assert!(found.bytes <= found.limit, "{target:?}");
        let mut schemes: Vec<String> =
            found.choices.iter().map(|choice| choice.becomes().scheme.name.to_string()).collect();
        schemes.sort();
        schemes.dedup();
        schemes.join(" ")
    };
    assert_eq!(becomes(Target::Like(8), None), "bnb-int8");
    assert_eq!(becomes(Target::Like(4), None), "gptq:b4,g32,f16");
    assert_eq!(becomes(Target::Like(8), Some("awq-4bit")), "awq:g32,f16");
    // Of 20 bits, embeddings take their 32.
    let (many, few) = (becomes(Target::Bits(20.0), None), becomes(Target::Bits(13.0), None));
    assert!(many.contains("bnb-int8") && !many.contains("gptq"), "{many}");
    assert_eq!(few, "gptq:b4,g32,f16");
}
