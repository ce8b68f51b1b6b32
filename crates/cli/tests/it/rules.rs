//! Rules, and what may be missing: the examples of docs/rules.md, and the mistakes that a newcomer makes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use serde_json::{Map, Value, json};

use crate::files::{gguf, hf_directory};
use crate::{failure, golden, stdout, weighbridge};

/// The blocks of TOML of docs/rules.md, by the name in their first lines.
fn examples() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let named = |block: &str| {
        let name = block.lines().next().unwrap().strip_prefix("# ").expect("a block begins with its name");
        (name.to_owned(), block.to_owned())
    };
    blocks.map(named).collect()
}

/// A directory of a model, with rules beside it.
struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new(rules: &str) -> Case {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("model")).unwrap();
        std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
        Case { dir }
    }

    fn example(name: &str) -> Case {
        Case::new(&examples()[name])
    }

    fn model(&self) -> PathBuf {
        self.dir.path().join("model")
    }

    /// `command MODEL --rules RULES` and more.
    fn args(&self, command: &str, more: &[&str]) -> Vec<String> {
        let path = |p: PathBuf| p.to_str().unwrap().to_owned();
        let mut args = vec![command.to_owned(), path(self.model())];
        args.extend(more.iter().map(|m| (*m).to_owned()));
        args.extend(["--rules".to_owned(), path(self.dir.path().join("rules.toml"))]);
        args
    }

    fn plan(&self, more: &[&str]) -> String {
        let output = weighbridge(self.args("plan", &[more, &["--threads", "2"]].concat()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).replace(&format!("{}/", self.dir.path().display()), "")
    }

    fn fails(&self, more: &[&str]) -> String {
        let args = self.args("plan", more);
        failure(&args.iter().map(String::as_str).collect::<Vec<_>>(), self.dir.path())
    }
}

/// A directory with `config.json` and tensors of zeros, which take no room.
fn sparse(dir: &Path, config: &Value, tensors: &[(String, Vec<u64>)]) {
    let (mut header, mut at) = (Map::new(), 0u64);
    for (name, shape) in tensors {
        let end = at + 2 * shape.iter().product::<u64>();
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}));
        at = end;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let path = dir.join("model.safetensors");
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], &header].concat()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(8 + header.len() as u64 + at).unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

fn llama(hidden: u64, heads: u64, kv_heads: u64, ffn: u64, vocab: u64, layers: u64) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
        "num_hidden_layers": layers, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    })
}

/// Names and shapes for each layer, with `{n}` for its number, and others.
fn tensors(layers: u64, list: &[(&str, &[u64])]) -> Vec<(String, Vec<u64>)> {
    let mut out = vec![];
    for (name, shape) in list {
        let times = if name.contains("{n}") { layers } else { 1 };
        out.extend((0..times).map(|n| (name.replace("{n}", &n.to_string()), shape.to_vec())));
    }
    out
}

/// The tensors of Llama 2 7B, under Meta's names.
const META: &[(&str, &[u64])] = &[
    ("tok_embeddings.weight", &[32000, 4096]),
    ("norm.weight", &[4096]),
    ("output.weight", &[32000, 4096]),
    ("layers.{n}.attention.wq.weight", &[4096, 4096]),
    ("layers.{n}.attention.wk.weight", &[4096, 4096]),
    ("layers.{n}.attention.wv.weight", &[4096, 4096]),
    ("layers.{n}.attention.wo.weight", &[4096, 4096]),
    ("layers.{n}.feed_forward.w1.weight", &[11008, 4096]),
    ("layers.{n}.feed_forward.w2.weight", &[4096, 11008]),
    ("layers.{n}.feed_forward.w3.weight", &[11008, 4096]),
    ("layers.{n}.attention_norm.weight", &[4096]),
    ("layers.{n}.ffn_norm.weight", &[4096]),
    ("rope.freqs", &[64]),
];

fn meta(rules: &str) -> Case {
    let case = Case::new(rules);
    sparse(&case.model(), &llama(4096, 32, 32, 11008, 32000, 32), &tensors(32, META));
    case
}

#[test]
fn every_example_is_run() {
    let names: Vec<String> = examples().into_keys().collect();
    let run = ["internlm2.toml", "meta.toml", "nanogpt.toml", "one.toml", "stack.toml", "unstack.toml"];
    assert_eq!(names, run, "an example of docs/rules.md that no test runs, or none that one does");
}

#[test]
fn meta_is_a_llama() {
    let case = meta(&examples()["meta.toml"]);
    assert_snapshot!(case.plan(&["--layout", "canonical"]), @"
    model matches llama
      292 tensors → 291 parameters, canonical layout
      291 parameters, 291 of 292 tensors used, 1 dropped
      uses 12.6 GiB of the files
      12.6 GiB in memory: 10.6 GiB can be mapped, 2.0 GiB copied, the rest re-encoded
      bf16 -> f32 in 65 parameters: 520 KiB to 1.0 MiB, exact
      1089 reads, 1.0 GiB in total: 8.0 KiB to 1.0 MiB each, median 1.0 MiB
      1.0 GiB copied from the map, in runs too close together for separate reads
      memory: 2.0 GiB for parameters, 10.6 GiB mapped, 2.0 MiB of buffers on 2 threads (minimum 64.0 KiB)
      dropped: rope.freqs (computed from the configuration)
    ");
    assert_snapshot!(case.plan(&["--layout", "canonical", "--explain", "layers.31.attention.q.weight"]), @"
    layers.31.attention.q.weight [4096, 4096] bf16
      = merge(0; merge(0; permute([0, 2, 1, 3]; split(1, 2; split(0, 128; layers.31.attention.wq.weight)))))
      all <- layers.31.attention.wq.weight, reordered
      data: 32.0 MiB, 1 piece
        0 <- layers.31.attention.wq.weight at 0: 32 × 2 × 64 × 8192 bytes
    ");
}

#[test]
fn one_rule_is_not_all_that_meta_needs() {
    let said = meta(&examples()["one.toml"]).fails(&[]);
    assert!(said.contains("`model.embed_tokens.weight` is missing"), "{said}");
    assert!(!said.contains("gate_proj"), "{said}");
}

/// llama-tiny under Meta's names and in Meta's order of rows is llama-tiny again, byte for byte.
#[test]
fn meta_converts_to_the_bytes_of_transformers() {
    let case = Case::new(&examples()["meta.toml"].replace("[-1, 64, 2]", "[-1, 8, 2]"));
    hf_directory(&case.model(), |tensors| {
        for (name, shape, bytes) in tensors.iter_mut() {
            for (hf, meta) in [
                ("model.layers.", "layers."),
                ("model.embed_tokens", "tok_embeddings"),
                ("model.norm", "norm"),
                ("lm_head", "output"),
                ("self_attn.q_proj", "attention.wq"),
                ("self_attn.k_proj", "attention.wk"),
                ("self_attn.v_proj", "attention.wv"),
                ("self_attn.o_proj", "attention.wo"),
                ("mlp.gate_proj", "feed_forward.w1"),
                ("mlp.down_proj", "feed_forward.w2"),
                ("mlp.up_proj", "feed_forward.w3"),
                ("post_attention_layernorm", "ffn_norm"),
                ("input_layernorm", "attention_norm"),
            ] {
                *name = name.replace(hf, meta);
            }
            if name.ends_with("wq.weight") || name.ends_with("wk.weight") {
                let row = bytes.len() / usize::try_from(shape[0]).unwrap();
                let rows: Vec<&[u8]> = bytes.chunks(row).collect();
                // Row i of the first half of a head, then row i of the second.
                let pairs = rows.chunks(16).flat_map(|head| (0..8).flat_map(|i| [head[i], head[8 + i]]));
                *bytes = pairs.collect::<Vec<_>>().concat();
            }
        }
        tensors.push(("rope.freqs".to_owned(), vec![8], vec![0; 32]));
    });
    let out = case.dir.path().join("out");
    let mut args = case.args("convert", &["--to", "hf"]);
    args.insert(2, out.to_str().unwrap().to_owned());
    let output = weighbridge(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let same = weighbridge(["diff".as_ref(), golden().join("llama-tiny").as_os_str(), out.as_os_str()]);
    assert_eq!(same.status.code(), Some(0), "{}", stdout(&same));
}

#[test]
fn nanogpt_is_a_gpt2() {
    let case = Case::example("nanogpt.toml");
    let config = json!({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    });
    let list: &[(&str, &[u64])] = &[
        ("_orig_mod.transformer.wte.weight", &[50304, 768]),
        ("_orig_mod.transformer.wpe.weight", &[1024, 768]),
        ("_orig_mod.transformer.h.{n}.ln_1.weight", &[768]),
        ("_orig_mod.transformer.h.{n}.ln_1.bias", &[768]),
        ("_orig_mod.transformer.h.{n}.ln_2.weight", &[768]),
        ("_orig_mod.transformer.h.{n}.ln_2.bias", &[768]),
        ("_orig_mod.transformer.h.{n}.attn.c_attn.weight", &[2304, 768]),
        ("_orig_mod.transformer.h.{n}.attn.c_attn.bias", &[2304]),
        ("_orig_mod.transformer.h.{n}.attn.c_proj.weight", &[768, 768]),
        ("_orig_mod.transformer.h.{n}.attn.c_proj.bias", &[768]),
        ("_orig_mod.transformer.h.{n}.mlp.c_fc.weight", &[3072, 768]),
        ("_orig_mod.transformer.h.{n}.mlp.c_fc.bias", &[3072]),
        ("_orig_mod.transformer.h.{n}.mlp.c_proj.weight", &[768, 3072]),
        ("_orig_mod.transformer.h.{n}.mlp.c_proj.bias", &[768]),
        ("_orig_mod.transformer.ln_f.weight", &[768]),
        ("_orig_mod.transformer.ln_f.bias", &[768]),
        ("_orig_mod.lm_head.weight", &[50304, 768]),
    ];
    sparse(&case.model(), &config, &tensors(12, list));
    assert_snapshot!(case.plan(&["--layout", "canonical"]), @"
    model matches gpt2
      149 tensors → 197 parameters, canonical layout
      197 parameters (1 tied), 148 of 149 tensors used, 1 dropped
      uses 237 MiB of the files
      238 MiB in memory: 237 MiB can be mapped, 0 B copied, the rest re-encoded
      bf16 -> f32 in 122 parameters: 237 KiB to 474 KiB, exact
      314 reads, 237 MiB in total: 1.5 KiB to 2.0 MiB each, median 476 KiB
      memory: 238 MiB for parameters, 2.0 MiB of buffers on 2 threads (minimum 6.0 KiB)
      dropped: _orig_mod.lm_head.weight (the same as the embedding)
    ");
    assert_snapshot!(case.plan(&["--layout", "canonical", "--explain", "layers.0.ffn.down.weight"]), @"
    layers.0.ffn.down.weight [768, 3072] bf16
      = transpose(transpose(_orig_mod.transformer.h.0.mlp.c_proj.weight))
      all <- _orig_mod.transformer.h.0.mlp.c_proj.weight
      data: 4.5 MiB, one run of _orig_mod.transformer.h.0.mlp.c_proj.weight at byte 0: can be mapped
    ");
}

#[test]
fn internlm2_is_a_llama() {
    let case = Case::example("internlm2.toml");
    let list: &[(&str, &[u64])] = &[
        ("model.tok_embeddings.weight", &[92544, 4096]),
        ("model.layers.{n}.attention.wqkv.weight", &[6144, 4096]),
        ("model.layers.{n}.attention.wo.weight", &[4096, 4096]),
        ("model.layers.{n}.feed_forward.w1.weight", &[14336, 4096]),
        ("model.layers.{n}.feed_forward.w2.weight", &[4096, 14336]),
        ("model.layers.{n}.feed_forward.w3.weight", &[14336, 4096]),
        ("model.layers.{n}.attention_norm.weight", &[4096]),
        ("model.layers.{n}.ffn_norm.weight", &[4096]),
        ("model.norm.weight", &[4096]),
        ("output.weight", &[92544, 4096]),
    ];
    sparse(&case.model(), &llama(4096, 32, 8, 14336, 92544, 32), &tensors(32, list));
    assert_snapshot!(case.plan(&["--layout", "canonical"]), @"
    model matches llama
      227 tensors → 291 parameters, canonical layout
      291 parameters, all 227 tensors used
      uses 14.4 GiB of the files
      14.4 GiB in memory: 12.9 GiB can be mapped, 1.5 GiB copied, the rest re-encoded
      bf16 -> f32 in 65 parameters: 520 KiB to 1.0 MiB, exact
      1601 reads, 1.5 GiB in total: 8.0 KiB to 2.0 MiB each, median 976 KiB
      memory: 1.5 GiB for parameters, 12.9 GiB mapped, 2.0 MiB of buffers on 2 threads (minimum 64.0 KiB)
    ");
    assert_snapshot!(case.plan(&["--layout", "canonical", "--explain", "layers.0.attention.k.weight"]), @"
    layers.0.attention.k.weight [1024, 4096] bf16
      = merge(0; merge(0; split(1, 128; split(0, 768; model.layers.0.attention.wqkv.weight))[:, 4..5]))
      all <- model.layers.0.attention.wqkv.weight[512..6016 (1024 of 5504)]
      data: 8.0 MiB, 1 piece
        0 <- model.layers.0.attention.wqkv.weight at 4194304: 8 × 1048576 bytes
    ");
    // Every rank of a mesh, and the proof that all bytes are used.
    assert!(case.plan(&["--layout", "vllm", "--tp", "8", "--verify"]).contains("proved"));
}

/// Experts are stacked and unstacked: the same bytes.
#[test]
fn experts_are_stacked_and_come_apart() {
    let case = Case::example("stack.toml");
    let mut all = vec![];
    for (layer, expert, part) in
        (0..2u8).flat_map(|l| (0..3u8).flat_map(move |e| ["w1", "w2", "w3"].map(|part| (l, e, part))))
    {
        let shape = if part == "w2" { vec![4, 6] } else { vec![6, 4] };
        let bytes = (0..96u8).map(|i| i.wrapping_mul(7) ^ (layer * 50 + expert * 11) ^ part.as_bytes()[1]);
        let name = format!("model.layers.{layer}.block_sparse_moe.experts.{expert}.{part}.weight");
        all.push((name, shape, bytes.collect::<Vec<u8>>()));
    }
    all.extend(
        (0..2).map(|l| (format!("model.layers.{l}.block_sparse_moe.gate.weight"), vec![3, 4], vec![l; 48])),
    );
    hf_directory(&case.model(), |t| *t = all.clone());
    let source = case.model().join("model.safetensors");
    let convert = |from: &Path, to: &str, rules: &str| {
        let rules_file = case.dir.path().join(rules);
        std::fs::write(&rules_file, &examples()[rules]).unwrap();
        let to = case.dir.path().join(to);
        let output = weighbridge([
            "convert".as_ref(),
            from.as_os_str(),
            to.as_os_str(),
            "--rules".as_ref(),
            rules_file.as_os_str(),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        to
    };
    let stacked = convert(&source, "stacked.safetensors", "stack.toml");
    let listed = stdout(&weighbridge(["inspect".as_ref(), stacked.as_os_str(), "--tensors".as_ref()]));
    assert!(listed.contains("model.layers.1.mlp.experts.gate_up_proj"), "{listed}");
    assert!(listed.contains("[3, 12, 4]") && !listed.contains("block_sparse_moe"), "{listed}");
    let again = convert(&stacked, "again.safetensors", "unstack.toml");
    let same = weighbridge([
        "diff".as_ref(),
        source.as_os_str(),
        again.as_os_str(),
        "--layout".as_ref(),
        "source".as_ref(),
    ]);
    assert_eq!(same.status.code(), Some(0), "{}", stdout(&same));
}

/// A typo, a wrong type, a capture too much: all at once, with lines.
#[test]
fn a_file_of_rules_that_means_nothing() {
    let case = meta(
        r#"
[[rule]]
form = "norm.weight"
to = "model.norm.weight"

[[rule]]
from = "layers.{n}.attention.wq.weight"
to = "model.layers.{m}.self_attn.q_proj.weight"

[[rule]]
from = ["a.weight", "layers{n}.w"]
to = "x"
do = "transposed"

[[rule]]
from = "b.weight"
to = ["q.weight", "k.weight"]

[[rule]]
from = "c.weight"
to = ["q.weight", "k.weight"]
do = [{ split = { axis = 0, size = [1, 2] } }, { merge = 1 }, "split"]

[[rule]]
from = "d.weight"
drop = ""

[[rules]]
from = 3
"#,
    );
    assert_snapshot!(case.fails(&[]), @"
    error: `rules.toml` line 3: wanted `from`, `to`, `do` or `drop`, found the key `form`
    `rules.toml` line 6: `from` gives the capture `{n}`, found the capture `{m}` in `model.layers.{m}.self_attn.q_proj.weight`
    `rules.toml` line 11: a capture stands for a whole segment, found `layers{n}` in `layers{n}.w`
    `rules.toml` line 13: wanted `transpose`, `tie` or a table for `do`, found `transposed`
    hint: did you mean `transpose`?
    `rules.toml` line 15: wanted as many names in `to` as there are tensors, 1, found 2
    hint: `split` makes several tensors of one, `tie` gives one several names
    `rules.toml` line 22: wanted `axis` or `sizes`, found the key `size`
    hint: did you mean `sizes`?
    `rules.toml` line 22: wanted a table, as `{ merge = { axis = 0 } }`, for `merge`, found 1
    `rules.toml` line 22: wanted `transpose`, `tie` or a table for `do`, found `split`
    hint: it is written `{ split = { axis = 0, sizes = [4096, 1024, 1024] } }`
    `rules.toml` line 26: wanted the reason why nothing is lost for `drop`, found ``
    `rules.toml` line 28: wanted `rule`, found the key `rules`
    hint: did you mean `rule`?
    exit code 2
    ");
    assert_snapshot!(Case::new("[[rule]]\nfrom = \"a\nto = 'b'\n").fails_alone(), @"
    error: `rules.toml` line 2: invalid basic string, expected `\"`
    exit code 2
    ");
    assert_snapshot!(Case::new("").fails_alone(), @"
    error: `rules.toml` line 1: wanted at least one `[[rule]]`, found none
    exit code 2
    ");
}

impl Case {
    /// What is wrong with the rules alone.
    fn fails_alone(&self) -> String {
        hf_directory(&self.model(), |_| {});
        self.fails(&[])
    }
}

#[test]
fn rules_that_do_not_fit_the_checkpoint() {
    let case = meta(
        r#"
[[rule]]
from = "layers.{n}.attention.wqq.weight"
to = "model.layers.{n}.self_attn.q_proj.weight"

[[rule]]
from = "layers.{n}.attention.{part}.weight"
to = "model.layers.{n}.self_attn.{part}.weight"

[[rule]]
from = "layers.{n}.attention.wk.weight"
to = "model.layers.{n}.self_attn.k_proj.weight"

[[rule]]
from = "layers.{n}.ffn_norm.weight"
to = "layers.{n}.attention_norm.weight"

[[rule]]
from = "layers.{n}.feed_forward.w1.weight"
to = ["layers.{n}.a", "layers.{n}.b"]
do = { split = { axis = 0, sizes = [8000, 8000] } }
"#,
    );
    assert_snapshot!(case.fails(&[]), @"
    error: the rules do not fit `model`:
    `rules.toml` line 2: no tensor of the checkpoint is called `layers.{n}.attention.wqq.weight`
    hint: the nearest is `layers.{n}.attention.wq.weight`
    `rules.toml` line 6: `layers.0.attention.wk.weight` is taken twice: here by `layers.{n}.attention.{part}.weight`, in line 10 by `layers.{n}.attention.wk.weight`, and 31 more alike
    hint: at most one rule takes a tensor; only names with `{name..}` leave alone what others take
    `rules.toml` line 14: `layers.0.attention_norm.weight` would be two tensors: here it is made of `layers.0.ffn_norm.weight`, `layers.0.attention_norm.weight` has that name already, and no rule takes it, and 31 more alike
    `rules.toml` line 18: split of axis 0 of [11008, 4096] to [8000, 8000] does not fit, found `layers.0.feed_forward.w1.weight` [11008, 4096], and 31 more alike
    exit code 1
    ");
}

#[test]
fn a_file_of_rules_that_is_not_there() {
    let case = Case::new("");
    std::fs::remove_file(case.dir.path().join("rules.toml")).unwrap();
    hf_directory(&case.model(), |_| {});
    assert_snapshot!(case.fails(&[]), @"
    error: cannot read the rules `rules.toml`: No such file or directory (os error 2)
    exit code 1
    ");
}

/// What may be missing is named, and listed; nothing else is excused.
#[test]
fn absence_is_allowed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    std::fs::create_dir(&model).unwrap();
    hf_directory(&model, |t| {
        t.retain(|t| t.0 != "lm_head.weight" && t.0 != "model.layers.1.self_attn.q_proj.weight");
    });
    let path = model.to_str().unwrap();
    let plan = |more: &[&str]| {
        let output = weighbridge(["plan", path].iter().chain(more));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).replace(&format!("{}/", dir.path().display()), "")
    };
    let fails = |more: &[&str]| failure(&[&["plan", path], more].concat(), dir.path());
    let both =
        ["--allow-missing", "output.weight", "--allow-missing", "model.layers.{n}.self_attn.q_proj.weight"];
    assert_snapshot!(plan(&[&both[..], &["--layout", "canonical"]].concat()), @"
    model matches llama
      19 tensors → 19 parameters, canonical layout
      19 parameters, all 19 tensors used
      uses 257 KiB of the files
      257 KiB in memory: 257 KiB can be mapped, 0 B copied
      memory: 0 B for parameters, 257 KiB mapped
      missing, allowed by `model.layers.{n}.self_attn.q_proj.weight`: layers.1.attention.q.weight, made from model.layers.1.self_attn.q_proj.weight
      missing, allowed by `output.weight`: output.weight, made from lm_head.weight
    ");
    let facts: Value =
        serde_json::from_str(&plan(&[&both[..], &["--layout", "canonical", "--json"]].concat())).unwrap();
    assert_eq!(facts["absent"][1]["entries"], json!(["lm_head.weight"]), "{:#}", facts["absent"]);
    // The other is missing still.
    assert_snapshot!(fails(&["--allow-missing", "output.weight"]), @"
    error: `model` does not match its model (llama):
    `model.layers.1.self_attn.q_proj.weight` is missing: wanted [64, 64] for `layers.1.attention.q.weight`
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
    assert_snapshot!(fails(&["--allow-missing", "outputs.weight"]), @"
    error: `model` does not match its model (llama):
    `model.layers.1.self_attn.q_proj.weight` is missing: wanted [64, 64] for `layers.1.attention.q.weight`
    `lm_head.weight` is missing: wanted [128, 64] for `output.weight`
    no parameter is called `outputs.weight`, so it cannot be missing
    hint: the nearest is `output.weight`
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
    // Its layers hold q, k and v as one.
    assert_snapshot!(fails(&[&both[..], &["--layout", "vllm"]].concat()), @"
    error: `model` does not match its model (llama):
    `layers.1.attention.qkv.weight`: wanted `layers.1.attention.q.weight` for it too, which is absent, as it may be
    hint: use a layout without fused parameters: canonical, in-place, gguf or hf
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

/// Rules and encodings: rows of blocks are moved whole.
#[test]
fn rules_move_what_gguf_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (file, rules) = (dir.path().join("model.gguf"), dir.path().join("rules.toml"));
    gguf(&file, |_| {});
    std::fs::write(&rules, "[[rule]]\nfrom = \"blk.{n}.attn_v.weight\"\nto = \"blk.{n}.attn_w.weight\"\n")
        .unwrap();
    let args = ["plan", file.to_str().unwrap(), "--rules", rules.to_str().unwrap()];
    assert_snapshot!(failure(&args, dir.path()), @"
    error: `model.gguf` does not match its model (llama):
    wanted `blk.{n}.attn_v.weight` [32, 64] for `layers.{n}.attention.v.weight` in 2 layers (0–1), found unused `blk.{n}.attn_w.weight` of the same shape
    hint: was it renamed?
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}
