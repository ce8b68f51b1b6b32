//! A model of the user's own, put together from modules, on one rank and on several.

use std::path::Path;

use weighbridge::model::Tree;
use weighbridge::module::{
    ColumnParallelLinear, FusedPart, Layers, MergedColumnParallelLinear, QkvParallelLinear, RmsNorm,
    RowParallelLinear, VocabParallelEmbedding,
};
use weighbridge::plan::Whole;
use weighbridge::{Checkpoint, Dtype, LayoutKind, Loaded, Mesh, Module, Plan, PlanBuilder, Pool, open};

use crate::golden;

#[derive(Module)]
struct Attention {
    qkv_proj: QkvParallelLinear,
    o_proj: RowParallelLinear,
}

#[derive(Module)]
struct Mlp {
    gate_up_proj: MergedColumnParallelLinear,
    down_proj: RowParallelLinear,
}

#[derive(Module)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

#[derive(Module)]
struct Body {
    embed_tokens: VocabParallelEmbedding,
    layers: Layers<Block>,
    norm: RmsNorm,
}

/// Names as transformers has them.
#[derive(Module)]
struct Mine {
    model: Body,
    #[module(name = "lm_head")]
    head: weighbridge::module::ParallelLmHead,
    #[module(skip)]
    #[allow(dead_code, reason = "what is skipped is no module")]
    note: &'static str,
}

fn mine(checkpoint: &Checkpoint) -> Mine {
    let config = weighbridge::describe(checkpoint).unwrap().config().clone();
    let (hidden, ffn) = (*config.hidden, *config.ffn);
    let block = |_| Block {
        input_layernorm: RmsNorm::new(hidden),
        self_attn: Attention {
            qkv_proj: QkvParallelLinear::new(hidden, *config.heads, *config.kv_heads, *config.head_dim),
            o_proj: RowParallelLinear::new(*config.heads * *config.head_dim, hidden),
        },
        post_attention_layernorm: RmsNorm::new(hidden),
        mlp: Mlp {
            gate_up_proj: MergedColumnParallelLinear::new(
                hidden,
                [FusedPart::new("gate_proj", ffn), FusedPart::new("up_proj", ffn)],
            ),
            down_proj: RowParallelLinear::new(ffn, hidden),
        },
    };
    Mine {
        model: Body {
            embed_tokens: VocabParallelEmbedding::new(*config.vocab, hidden),
            layers: Layers((0..*config.layers).map(block).collect()),
            norm: RmsNorm::new(hidden),
        },
        head: weighbridge::module::ParallelLmHead::new(hidden, *config.vocab)
            .tied_to("model.embed_tokens.weight"),
        note: "mine",
    }
}

fn loaded(plan: &Plan) -> Loaded {
    plan.load(&mut Pool::new(2)).unwrap()
}

fn llama() -> Checkpoint {
    open(golden().join("llama-tiny")).unwrap()
}

/// Fused layers hold the bytes of their parts, one below the other.
#[test]
fn fused_layers_are_made_of_their_parts() {
    let checkpoint = llama();
    let mine = mine(&checkpoint);
    let plan = PlanBuilder::new(&checkpoint).module(&mine).build().unwrap();
    let (own, stored) = (loaded(&plan), {
        let plan = weighbridge::planner::plan_as_stored(&checkpoint).unwrap();
        loaded(&plan)
    });
    let parts = |names: &[&str]| -> Vec<u8> {
        names
            .iter()
            .flat_map(|n| stored.get(&format!("model.layers.1.{n}.weight")).unwrap().bytes().to_vec())
            .collect()
    };
    let held = |name: &str| own.get(&format!("model.layers.1.{name}.weight")).unwrap().bytes().to_vec();
    assert!(
        held("self_attn.qkv_proj") == parts(&["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"])
    );
    assert!(held("mlp.gate_up_proj") == parts(&["mlp.gate_proj", "mlp.up_proj"]));
    assert!(held("mlp.down_proj") == parts(&["mlp.down_proj"]));
}

/// The same model by its family and by its own modules: the same shares on every rank.
#[test]
fn a_model_of_ones_own_is_shared_as_the_family_is() {
    let checkpoint = llama();
    let mine = mine(&checkpoint);
    let mesh = Mesh { tp: 2, pp: 2, ..Mesh::default() };
    let (own, family) = (
        PlanBuilder::new(&checkpoint).module(&mine).mesh(mesh).ranks().unwrap(),
        PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).ranks().unwrap(),
    );
    assert_eq!(own.count(), 4);
    let mut whole = Whole::default();
    for rank in 0..4 {
        let (own, family) = (own.plan(rank).unwrap(), family.plan(rank).unwrap());
        whole.add(own.pieces());
        let (own, family) = (loaded(&own), loaded(&family));
        let mut names: Vec<&str> = own.names().collect();
        names.sort_unstable();
        let mut theirs: Vec<&str> = family.names().collect();
        theirs.sort_unstable();
        assert_eq!(names, theirs, "rank {rank}");
        for name in names {
            assert!(
                own.get(name).unwrap().bytes() == family.get(name).unwrap().bytes(),
                "rank {rank}: {name}"
            );
        }
    }
    assert_eq!(whole.untaken(checkpoint.entries()), []);
}

#[test]
fn two_owners_of_one_name_are_both_named() {
    #[derive(Module)]
    struct Twice {
        qkv_proj: QkvParallelLinear,
        k_proj: ColumnParallelLinear,
    }
    let twice = Twice {
        qkv_proj: QkvParallelLinear::new(8, 2, 1, 4),
        k_proj: ColumnParallelLinear::new(8, 4).with_bias(),
    };
    let text: Vec<String> = Tree::of(&twice).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "two modules own `k_proj.weight`: `qkv_proj` (QkvParallelLinear) and `k_proj` (ColumnParallelLinear)"
        ]
    );
    let checkpoint = llama();
    let error = PlanBuilder::new(&checkpoint).module(&twice).build().err().unwrap();
    assert!(error.is_misuse() && error.to_string().contains("two modules own"), "{error}");
}

/// A layer with a load rule of its own: two matrices that it holds as one table, transposed.
#[test]
fn a_layer_may_have_a_rule_of_its_own() {
    #[derive(Module)]
    struct Holder {
        model: Inner,
    }
    #[derive(Module)]
    struct Inner {
        layers: Layers<Only>,
    }
    #[derive(Module)]
    struct Only {
        self_attn: Pair,
    }
    struct Pair;
    impl Module for Pair {
        fn declare(&self, tree: &mut Tree) {
            use weighbridge::model::ParamSpec;
            use weighbridge::tensor::Expr;
            let part = |tree: &mut Tree, name: &str| tree.part(name, ParamSpec::matrix(32.into(), 64.into()));
            let (k, v) = (part(tree, "k_proj.weight"), part(tree, "v_proj.weight"));
            let side = |name: String| Expr::source(name).transpose();
            tree.held_as("kv", Expr::Stack(vec![side(k), side(v)]));
        }
    }
    let checkpoint = llama();
    let config = weighbridge::describe(&checkpoint).unwrap().config().clone();
    assert_eq!(
        (*config.kv_heads * *config.head_dim, *config.hidden),
        (32, 64),
        "the golden model has another shape"
    );
    let holder = Holder { model: Inner { layers: Layers(vec![Only { self_attn: Pair }]) } };
    let plan = PlanBuilder::new(&checkpoint)
        .module(&holder)
        .leave("{a}.{b}.{c}.{d}.{e}.weight", "not looked at here")
        .leave("{a}.{b}.{c}.{d}.weight", "not looked at here")
        .leave("{a}.{b}.weight", "not looked at here")
        .leave("lm_head.weight", "not looked at here")
        .build()
        .unwrap();
    assert_eq!(plan.params().len(), 1);
    let (own, stored) = (loaded(&plan), weighbridge::planner::plan_as_stored(&checkpoint).unwrap());
    let stored = loaded(&stored);
    let kv = own.get("model.layers.0.self_attn.kv").unwrap();
    assert_eq!(kv.shape().to_vec(), [2, 64, 32]);
    let v = stored.get("model.layers.0.self_attn.v_proj.weight").unwrap();
    let width = v.bytes().len() / (32 * 64);
    let at = |bytes: &[u8], i: usize| bytes[i * width..(i + 1) * width].to_vec();
    for (row, column) in [(0, 0), (3, 5), (31, 63)] {
        assert_eq!(at(kv.bytes(), 64 * 32 + column * 32 + row), at(v.bytes(), row * 64 + column));
    }
}

/// Mamba 2 has gate, input, B, C and time steps one below the other in one tensor: a rank holds its share of each, and of groups
/// that are fewer than the ranks, the one that its heads belong to.
#[test]
fn regions_of_one_tensor_are_cut_each_by_its_own_rule() {
    use weighbridge::model::{Along, Axis, ParamSpec};
    use weighbridge::tensor::Expr;
    const HIDDEN: u64 = 6;
    /// Heads of a mixer, and how many rows one has; groups, and how large their state is.
    struct Mixer {
        heads: (u64, u64),
        groups: (u64, u64),
    }
    impl Mixer {
        fn regions(&self) -> [(&'static str, Along); 5] {
            let inner = Axis::Divided.of_units(self.heads.0, self.heads.1);
            let states = Axis::KvHeads.of_units(self.groups.0, self.groups.1);
            [
                ("gate", inner),
                ("input", inner),
                ("b", states),
                ("c", states),
                ("dt", Axis::Divided.of(self.heads.0)),
            ]
        }
    }
    impl Module for Mixer {
        fn declare(&self, tree: &mut Tree) {
            let mut start = 0;
            let parts = self.regions().map(|(name, rows)| {
                let region = start..start + rows.extent;
                start = region.end;
                tree.part_of(&format!("in_proj.{name}"), ParamSpec::matrix(rows, HIDDEN.into()), |tree| {
                    Expr::source(tree.full("in_proj.weight")).slice(0, region)
                })
            });
            tree.held_as("in_proj.weight", Expr::concat(0, parts.map(Expr::source).to_vec()));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixer.safetensors");
    for groups in [1, 2, 4] {
        let mixer = Mixer { heads: (8, 4), groups: (groups, 3) };
        let rows: u64 = mixer.regions().iter().map(|(_, along)| along.extent).sum();
        let values: Vec<u8> =
            (0..rows * HIDDEN).flat_map(|i| u32::try_from(i).unwrap().to_le_bytes()).collect();
        let header = format!(
            r#"{{"in_proj.weight":{{"dtype":"I32","shape":[{rows},{HIDDEN}],"data_offsets":[0,{}]}}}}"#,
            values.len()
        );
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values].concat();
        std::fs::write(&path, file).unwrap();
        let checkpoint = open(&path).unwrap();
        for tp in [1, 2, 4] {
            let mesh = Mesh { tp, ..Mesh::default() };
            let ranks = PlanBuilder::new(&checkpoint).module(&mixer).mesh(mesh).ranks().unwrap();
            let mut whole = Whole::default();
            for rank in 0..tp {
                // vllm/model_executor/layers/mamba/mamba_mixer2.py `mamba_v2_sharded_weight_loader`, v0.33.0, of groups
                // that divide; and where there are fewer than ranks, neighbours have the same one.
                let mut wanted: Vec<u64> = vec![];
                let mut start = 0;
                for (name, along) in mixer.regions() {
                    let few = matches!(name, "b" | "c") && groups < tp;
                    let (size, at) = if few {
                        (along.unit, rank / (tp / groups) * along.unit)
                    } else {
                        (along.extent / tp, rank * (along.extent / tp))
                    };
                    wanted.extend(start + at..start + at + size);
                    start += along.extent;
                }
                let plan = ranks.plan(rank).unwrap();
                whole.add(plan.pieces());
                let held = loaded(&plan);
                let held = held.get("in_proj.weight").unwrap();
                let row = usize::try_from(HIDDEN * 4).unwrap();
                let wanted = wanted.into_iter().map(|r| usize::try_from(r).unwrap());
                let bytes: Vec<u8> = wanted.flat_map(|r| values[r * row..(r + 1) * row].to_vec()).collect();
                assert!(held.bytes() == bytes, "{groups} groups, rank {rank} of {tp}");
            }
            assert_eq!(whole.untaken(checkpoint.entries()), []);
        }
    }
}

#[test]
fn what_a_mesh_cannot_share_is_told_at_once() {
    let checkpoint = llama();
    let refused = |mesh: Mesh, rank: u64, layout: LayoutKind| {
        let plan = PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).rank(rank).build();
        plan.err().unwrap().diagnostics().to_string()
    };
    let mesh = |tp| Mesh { tp, ..Mesh::default() };
    insta::assert_snapshot!(refused(mesh(3), 0, weighbridge::vllm::LAYOUT), @"
    this model cannot be split across these ranks:
      `token_embedding.weight`: cannot split 128 rows (with padding) across 3 ranks; use a divisor of 128
      `layers.{n}.attention.q.weight` (2 of them): cannot split 4 heads of 16 across 3 ranks; use a divisor of 4
      `layers.{n}.attention.k.weight` (2 of them): cannot split 2 heads of 16 across 3 ranks; use a divisor or a multiple of 2
      `layers.{n}.attention.v.weight` (2 of them): cannot split 2 heads of 16 across 3 ranks; use a divisor or a multiple of 2
      `layers.{n}.attention.output.weight` (2 of them): cannot split 4 heads of 16 across 3 ranks; use a divisor of 4
      `output.weight`: cannot split 128 rows (with padding) across 3 ranks; use a divisor of 128
    ");
    insta::assert_snapshot!(refused(mesh(2), 2, weighbridge::vllm::LAYOUT), @"there is no rank 2 of 2: ranks are counted from 0");
    insta::assert_snapshot!(refused(mesh(2), 0, LayoutKind::Source), @"
    the layout `source` is for whole files and cannot be split across ranks
    hint: use canonical, modules, packed or another runtime's layout
    ");
    insta::assert_snapshot!(refused(mesh(0), 0, LayoutKind::Canonical), @"wanted from 1 to 1048576 ranks");
}

/// Rules stand between a checkpoint and a model of one's own, as they do before a family's names.
#[test]
fn rules_make_what_ones_own_modules_want() {
    let checkpoint = llama();
    let mine = mine(&checkpoint);
    let rules = |text: &str| weighbridge::planner::parse_rules("mine.toml", text).unwrap();
    let dropped = rules("[[rule]]\nfrom = 'lm_head.weight'\ndrop = 'the embedding is meant'\n");
    let plan = PlanBuilder::new(&checkpoint).module(&mine).mapping(dropped).build().unwrap();
    assert_eq!(plan.pieces().dropped, [("lm_head.weight".to_owned(), "the embedding is meant".to_owned())]);
    let (embedding, _) = plan.pieces().find("model.embed_tokens.weight").unwrap();
    let (_, head) = plan.pieces().find("lm_head.weight").unwrap();
    assert_eq!(head.tied_to, Some(embedding));

    // A name that is changed is not found any more, and another is not wanted.
    let renamed = rules("[[rule]]\nfrom = 'model.norm.weight'\nto = 'model.normal.weight'\n");
    let error = PlanBuilder::new(&checkpoint).module(&mine).mapping(renamed.clone()).build().err().unwrap();
    assert!(error.to_string().contains("wanted `model.norm.weight` [64]"), "{error}");
    // Both may be excused, each by its own name.
    let builder = PlanBuilder::new(&checkpoint).module(&mine).mapping(renamed);
    let builder = builder.allow_missing("model.norm.weight").leave("model.normal.weight", "not mine");
    let plan = builder.build().unwrap();
    assert_eq!(plan.pieces().absent[0].param, "model.norm.weight");
    assert_eq!(plan.pieces().dropped, [("model.normal.weight".to_owned(), "not mine".to_owned())]);
}

/// Of what is held as one, a part that may be absent is said.
#[test]
fn fused_modules_are_not_torn() {
    let checkpoint = llama();
    let mine = mine(&checkpoint);
    let text = "[[rule]]\nfrom = 'model.layers.0.mlp.up_proj.weight'\ndrop = 'lost'\n";
    let rules = weighbridge::planner::parse_rules("mine.toml", text).unwrap();
    let builder = PlanBuilder::new(&checkpoint).module(&mine).mapping(rules);
    let error =
        builder.allow_missing("model.layers.{n}.mlp.up_proj.weight").build().err().unwrap().to_string();
    let said =
        "`model.layers.0.mlp.gate_up_proj.weight`: wanted `model.layers.0.mlp.up_proj.weight` for it too";
    assert!(error.contains(said), "{error}");
}

/// A safetensors file of f32 tensors, each value another.
fn floats(dir: &Path, tensors: &[(&str, Vec<u64>)]) -> Checkpoint {
    let mut all = vec![];
    for (i, (name, shape)) in tensors.iter().enumerate() {
        let count = shape.iter().product::<u64>();
        let values = (0..count).map(|n| (i as u64 * 1_000_000 + n) as f32).collect();
        all.push(((*name).to_owned(), shape.clone(), values));
    }
    let dir = dir.join("floats");
    crate::wrappers::write(&dir, &serde_json::json!({}), &all);
    open(dir.join("model.safetensors")).unwrap()
}

#[derive(Module)]
struct Grown {
    embed: VocabParallelEmbedding,
    head: weighbridge::module::ParallelLmHead,
}

/// Tokens added to a vocabulary are a region of their own on every rank: the rows of each rank, and their places among
/// all rows, equal vLLM's (golden/vllm_vocab.py).
#[test]
fn added_tokens_are_a_region_of_their_own() {
    const HIDDEN: u64 = 8;
    let path = golden().join("../vllm_vocab.json");
    let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 18);
    for case in cases {
        let [org, added, tp] = ["org", "added", "tp"].map(|key| case[key].as_u64().unwrap());
        let mesh = Mesh { tp, ..Mesh::default() };
        let holding = weighbridge::model::Holding { vocab: Some(64), ..Default::default() };
        let regions = [org, added].map(|n| weighbridge::model::Axis::Vocab.of(n));
        let gathered = mesh.gathered(&regions, holding).unwrap();
        let wanted: Vec<u64> =
            case["gathered"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!(gathered, wanted, "{org} + {added} on {tp}");
        // One rank alone pads nothing in this layout.
        if tp == 1 {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut tensors = vec![("embed.weight", vec![org, HIDDEN]), ("head.weight", vec![org, HIDDEN])];
        if added > 0 {
            tensors.push(("embed.added.weight", vec![added, HIDDEN]));
            tensors.push(("head.added.weight", vec![added, HIDDEN]));
        }
        let checkpoint = floats(dir.path(), &tensors);
        let module = Grown {
            embed: VocabParallelEmbedding::new(org, HIDDEN).with_added(added),
            head: weighbridge::module::ParallelLmHead::new(HIDDEN, org).with_added(added),
        };
        let stored = loaded(&weighbridge::planner::plan_as_stored(&checkpoint).unwrap());
        for name in ["embed", "head"] {
            let rows = |part: &str| stored.get(&format!("{name}.{part}weight")).map(|t| t.bytes().to_vec());
            let mut all = vec![];
            for rank in 0..tp {
                let plan =
                    PlanBuilder::new(&checkpoint).module(&module).mesh(mesh).rank(rank).build().unwrap();
                let held = loaded(&plan).get(&format!("{name}.weight")).unwrap().bytes().to_vec();
                let of = &case["ranks"][usize::try_from(rank).unwrap()];
                let mut wanted = vec![];
                for (key, part, start) in [("org", "", 0), ("added", "added.", org)] {
                    let numbers: Vec<u64> =
                        of[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
                    let at = |n: u64| usize::try_from(n * HIDDEN * 4).unwrap();
                    if let Some(rows) = rows(part) {
                        wanted.extend(&rows[at(numbers[0] - start)..at(numbers[1] - start)]);
                    }
                    wanted.extend(vec![0u8; at(numbers[2])]);
                }
                assert!(held == wanted, "{name}: {org} + {added}, rank {rank} of {tp}");
                all.extend(held);
            }
            // The rows of all ranks, in the order of the map, are the vocabulary.
            let row = usize::try_from(HIDDEN * 4).unwrap();
            let in_order: Vec<u8> = gathered
                .iter()
                .flat_map(|at| all[usize::try_from(*at).unwrap() * row..][..row].to_vec())
                .collect();
            assert!(
                in_order == [rows(""), rows("added.")].into_iter().flatten().flatten().collect::<Vec<u8>>()
            );
        }
    }
}

/// A head that is tied to an embedding with added tokens is tied in both regions.
#[test]
fn a_tied_head_is_tied_in_both_regions() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [("embed.weight", vec![100, 8]), ("embed.added.weight", vec![3, 8])];
    let checkpoint = floats(dir.path(), &tensors);
    let module = Grown {
        embed: VocabParallelEmbedding::new(100, 8).with_added(3),
        head: weighbridge::module::ParallelLmHead::new(8, 100).tied_to("embed.weight").with_added(3),
    };
    let plan = PlanBuilder::new(&checkpoint).module(&module).build().unwrap();
    assert_eq!(plan.find("head.weight").unwrap().tied_to, Some(0));
    assert_eq!(plan.find("embed.weight").unwrap().shape, [103, 8].into());
}

#[derive(Module)]
struct Strict {
    table: weighbridge::module::HeldAs<weighbridge::module::Embedding>,
    norm: RmsNorm,
}

fn strict(dtype: Option<Dtype>, align: Option<u64>) -> Strict {
    let module = weighbridge::module::Embedding::new(10, 7);
    let contract = weighbridge::model::Contract { dtype, align };
    Strict { table: weighbridge::module::HeldAs { module, contract }, norm: RmsNorm::new(7) }
}

/// A dtype that a module declares for its parameters is checked before a byte is read.
#[test]
fn a_declared_dtype_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = floats(dir.path(), &[("table.weight", vec![10, 7]), ("norm.weight", vec![7])]);
    let plan = |module: &Strict| PlanBuilder::new(&checkpoint).module(module).build();
    plan(&strict(Some(Dtype::F32), None)).unwrap();
    let narrow = strict(Some(Dtype::BF16), None);
    insta::assert_snapshot!(plan(&narrow).unwrap_err().diagnostics().to_string().replace(&dir.path().join("floats").display().to_string(), "."), @"
    `./model.safetensors` does not match its model (the caller's):
    `table.weight`: its module wants bf16, found f32
    hint: encode it on the way: `table.weight=bf16`
    ");
    // The hint works when it is followed.
    let rule = "table.weight=bf16".parse().unwrap();
    let plan = PlanBuilder::new(&checkpoint).module(&narrow).encode([rule]).build().unwrap();
    assert_eq!(plan.find("table.weight").unwrap().scheme.dtype(), Some(Dtype::BF16));
}

/// Memory begins where a module says, whether it is a file's, our own or the caller's.
#[test]
fn a_declared_alignment_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = floats(dir.path(), &[("norm.weight", vec![7]), ("table.weight", vec![10, 7])]);
    for align in [1, 64, 256, 4096] {
        let module = strict(None, Some(align));
        let plan = PlanBuilder::new(&checkpoint).module(&module).build().unwrap();
        let mut pool = Pool::new(1);
        for owned in [false, true] {
            let options = weighbridge::load::Options { owned, ..Default::default() };
            let loaded = plan.load_with(&mut pool, options).unwrap();
            let address = loaded.get("table.weight").unwrap().bytes().as_ptr().addr();
            assert!(address.is_multiple_of(usize::try_from(align).unwrap()), "{align}: {address:#x}");
        }
        assert_eq!(plan.find("table.weight").unwrap().align, align);
    }
    let plan = |align| PlanBuilder::new(&checkpoint).module(&strict(None, Some(align))).build();
    assert_ne!(plan(256).unwrap().digest(), plan(64).unwrap().digest());
    for wrong in [3, 8192, 0] {
        let error = plan(wrong).unwrap_err().to_string();
        let wanted =
            format!("`table.weight`: wanted a power of two up to 4096 to align it to, found {wrong}");
        assert!(error.ends_with(&wanted), "{error}");
    }
}
