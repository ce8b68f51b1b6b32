//! Families that a program adds, and families that are rejected.

use serde_json::json;
use weighbridge_model::config::{Config, DecoderKeys, Reader};
use weighbridge_model::dialect::{Dialect, HF_DECODER, HF_LLAMA, Rule};
use weighbridge_model::family::blocks::{Attention, Bias, Block, Decoder, GatedFfn, Norm};
use weighbridge_model::module::{
    ColumnParallelLinear, Computes, FeedForward, FusedPart, MergedColumnParallelLinear, RmsNorm,
    RowParallelLinear, Table,
};
use weighbridge_model::{Description, DialectName, Error, Family, Model, Module, Tree, families, register};

/// A Llama of another name, with something of its own.
struct Acme {
    name: &'static str,
    gguf: &'static [&'static str],
    hf: &'static [&'static str],
    dialect: fn(DialectName) -> Option<Dialect>,
    module: fn(&Config) -> Box<dyn Module>,
}

const ACME: Acme =
    Acme { name: "acme", gguf: &[], hf: &["AcmeForCausalLM", "acme"], dialect: as_llama, module: llama };

fn as_llama(name: DialectName) -> Option<Dialect> {
    (name == DialectName::Hf).then(|| Dialect::new(name, vec![HF_DECODER, HF_LLAMA]))
}

fn decoder(c: &Config) -> Decoder {
    Decoder::new(c, Norm::rms, |n| {
        let attention = Attention::new(c, n, Bias::No, Bias::No).rotary(c, n);
        Block::new(c, Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::No))
    })
}

fn llama(c: &Config) -> Box<dyn Module> {
    Box::new(decoder(c))
}

impl Family for Acme {
    fn name(&self) -> &'static str {
        self.name
    }

    fn gguf(&self) -> &'static [&'static str] {
        self.gguf
    }

    fn hf(&self) -> &'static [&'static str] {
        self.hf
    }

    fn config(&self, r: &mut Reader) -> Config {
        Config { tied: r.tied(true), ..DecoderKeys::LLAMA.read(r) }
    }

    fn describe(&self, _: &Config, dialect: DialectName, _: &dyn Fn(&str) -> bool) -> Description {
        Description::new(dialect)
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        (self.module)(c)
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        (self.dialect)(name)
    }
}

/// A decoder with two last norms.
struct Twice(Decoder);
impl Module for Twice {
    fn declare(&self, tree: &mut Tree) {
        self.0.declare(tree);
        tree.child("output_norm", &RmsNorm::new(64));
    }
}

// A rule lacks one letter, and a table has no rule at all.
static TABLED: &[Rule] = &[Rule::same("bias_table.weight", "bias_tabel")];

/// A decoder with tables beside it.
struct Tabled(Decoder);
impl Module for Tabled {
    fn declare(&self, tree: &mut Tree) {
        self.0.declare(tree);
        tree.child("bias_tables", &Table::new(64));
        tree.child("other", &Table::new(64));
        tree.child("allowed", &Table::new(64).optional());
    }
}

/// The computation of the first, with the parameters of the second.
struct Says(Attention, Attention);
impl Module for Says {
    fn declare(&self, tree: &mut Tree) {
        self.1.declare(tree);
        let said = Tree::of(&self.0).unwrap().computed()[0].1.clone();
        tree.computes(said);
    }
}

/// A network without a way back.
struct Narrow(ColumnParallelLinear);
impl Module for Narrow {
    fn declare(&self, tree: &mut Tree) {
        tree.child("up", &self.0);
        let ffn = FeedForward { activation: weighbridge_model::Activation::Relu, gated: false };
        tree.computes(Ok(Computes::FeedForward(ffn)));
    }
}

/// A gated network.
struct Halves {
    gate_up: MergedColumnParallelLinear,
    down: RowParallelLinear,
}

impl Module for Halves {
    fn declare(&self, tree: &mut Tree) {
        tree.child("gate_up", &self.gate_up);
        tree.child("down", &self.down);
        let ffn = FeedForward { activation: weighbridge_model::Activation::Silu, gated: true };
        tree.computes(Ok(Computes::FeedForward(ffn)));
    }
}

fn config(architecture: &str) -> serde_json::Value {
    json!({
        "architectures": [architecture], "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 8,
        "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64, "unheard_of": 1,
    })
}

fn added(family: Acme) -> Result<(), Error> {
    register(Box::leak(Box::new(family)))
}

fn refused(family: Acme) -> String {
    added(family).unwrap_err().to_string()
}

#[test]
fn a_family_is_found_once_it_is_added() {
    let facts = config("AcmeForCausalLM");
    let unknown = Model::from_facts(&facts).unwrap_err();
    assert!(matches!(unknown, Error::Unsupported { .. }), "{unknown}");
    added(ACME).unwrap();
    assert!(families().iter().any(|family| family.name() == "acme"));
    let model = Model::from_facts(&facts).unwrap();
    assert_eq!((model.family.name(), *model.config().layers), ("acme", 2));
    assert_eq!(Model::claimed(&facts), Some(("acme", DialectName::Hf)));
    assert!(model.architecture().is_ok());
    // Beside a part that sees.
    let mut parts = config("LlavaForConditionalGeneration");
    parts["text_config"] = config("AcmeForCausalLM");
    parts["text_config"]["model_type"] = json!("acme");
    assert_eq!(Model::from_facts(&parts).unwrap().family.name(), "acme");
    // The error for an unknown family lists the known ones.
    let unknown = Model::from_facts(&config("Unheard")).unwrap_err().diagnostics().to_string();
    assert!(unknown.contains("`acme`, `"), "{unknown}");

    // Twice.
    let twice = "the family `acme` is declared wrongly:\n  another family has this name\n  hf: the family `acme` \
                 claims `AcmeForCausalLM`\n  hf: the family `acme` claims `acme`";
    assert_eq!(refused(ACME), twice);
}

#[test]
fn a_claim_that_another_family_has_is_refused() {
    let both = |name| Some(Dialect::new(name, vec![HF_DECODER]));
    let said = refused(Acme {
        name: "acme-claims",
        gguf: &["llama", "acme-claims"],
        hf: &["Qwen2ForCausalLM", "llava"],
        dialect: both,
        ..ACME
    });
    let wanted = "the family `acme-claims` is declared wrongly:\n  gguf: the family `mixtral` claims `llama`\n  hf: \
                  the family `qwen2` claims `Qwen2ForCausalLM`\n  hf: `llava` is a model of several parts; claim the \
                  architecture of its text model";
    assert_eq!(said, wanted);
    assert_eq!(Model::claimed(&config("Qwen2ForCausalLM")), Some(("qwen2", DialectName::Hf)));
    let said = refused(Acme { name: "llama", hf: &[], ..ACME });
    let wanted = "the family `llama` is declared wrongly:\n  it claims no architecture\n  another family has this name";
    assert_eq!(said, wanted);
}

#[test]
fn names_that_cannot_be_made_are_refused() {
    static RULES: &[Rule] = &[
        Rule::same("layers.{n}.a.weight", "h.{n}.a.{x}"),
        Rule::same("layers.{l}.b.weight", "h.{n}.b"),
        Rule::same("c.weight", "h.{n}.c"),
        Rule::same("layers.{n}.d.weight", "h.{n}.{e}.{e}.d"),
    ];
    let dialect = |name| match name {
        DialectName::Gguf => Some(Dialect::new(DialectName::Hf, vec![])),
        _ => Some(Dialect::new(name, vec![RULES])),
    };
    let said = refused(Acme { name: "acme-rules", hf: &["acme-rules"], dialect, ..ACME });
    let wanted = "the family `acme-rules` is declared wrongly:\n  gguf: wanted the names of gguf, found those of hf\n  \
                  hf: the rule for `layers.{n}.a.weight` from `h.{n}.a.{x}`: an entry has no holes but `{n}` and `{e}`\n  \
                  hf: the rule for `layers.{l}.b.weight` from `h.{n}.b`: a parameter has no hole but `{n}`\n  \
                  hf: the rule for `c.weight` from `h.{n}.c`: the entry has the number of a layer, and the parameter is in none\n  \
                  hf: the rule for `layers.{n}.d.weight` from `h.{n}.{e}.{e}.d`: `{e}` is there twice";
    assert_eq!(said, wanted);
    let said = refused(Acme { name: "acme-none", gguf: &["acme-none"], hf: &[], ..ACME });
    let wanted = "the family `acme-none` is declared wrongly:\n  gguf: it claims architectures there, and has no names for parameters";
    assert_eq!(said, wanted);
}

/// A module's parameters and computation depend on the configuration, so they are checked when a model is described.
#[test]
fn modules_that_contradict_themselves_are_refused() {
    added(Acme { name: "acme-twice", hf: &["acme-twice"], module: |c| Box::new(Twice(decoder(c))), ..ACME })
        .unwrap();
    let said = Model::from_facts(&config("acme-twice")).unwrap_err().to_string();
    let wanted = "the family `acme-twice` is declared wrongly:\n  two modules own `output_norm.weight`: `output_norm` \
                  (RmsNorm) and `output_norm` (RmsNorm)";
    assert_eq!(said, wanted);

    added(Acme {
        name: "acme-named",
        hf: &["acme-named"],
        dialect: |name| as_llama(name).map(|d| Dialect { rules: vec![HF_DECODER, HF_LLAMA, TABLED], ..d }),
        module: |c| Box::new(Tabled(decoder(c))),
        ..ACME
    })
    .unwrap();
    let said = Model::from_facts(&config("acme-named")).unwrap_err().to_string();
    let wanted = "the family `acme-named` is declared wrongly:\n  hf: no rule names `bias_tables.weight`, and no module owns \
                  `bias_table.weight`, which a rule names\n  hf: no rule names `other.weight`";
    assert_eq!(said, wanted);
}

/// A matrix of another size than attention takes would be read past its end.
#[test]
fn modules_of_other_shapes_than_they_compute_are_not_run() {
    added(Acme {
        name: "acme-wide",
        hf: &["acme-wide"],
        module: |c| {
            let wide = Config { head_dim: weighbridge_model::Field::default(32, "wide"), ..c.clone() };
            let mut decoder = decoder(c);
            for block in &mut decoder.layers.0 {
                let attention = Attention::new(&wide, 0, Bias::No, Bias::No);
                block.attention = Box::new(Says(Attention::new(c, 0, Bias::No, Bias::No), attention));
            }
            Box::new(decoder)
        },
        ..ACME
    })
    .unwrap();
    let model = Model::from_facts(&config("acme-wide")).unwrap();
    let why = model.architecture().unwrap_err().why;
    let wanted = "`layers.0.attention.qkv` is [384, 64], wanted [192, 64], `layers.1.attention.qkv` is [384, 64], wanted [192, 64]";
    assert_eq!(why, wanted);

    added(Acme {
        name: "acme-narrow",
        hf: &["acme-narrow"],
        module: |c| {
            let mut decoder = decoder(c);
            decoder.layers.0[1].ffn = Box::new(Narrow(ColumnParallelLinear::new(64, 8)));
            Box::new(decoder)
        },
        dialect: |name| as_llama(name).map(|d| Dialect { rules: vec![HF_DECODER, HF_LLAMA], ..d }),
        ..ACME
    })
    .unwrap();
    let model = Model::from_facts(&config("acme-narrow")).unwrap();
    assert_eq!(model.architecture().unwrap_err().why, "no module owns `layers.1.ffn.down`");

    // Halves of other widths that add up right.
    added(Acme {
        name: "acme-halves",
        hf: &["acme-halves"],
        module: |c| {
            let mut decoder = decoder(c);
            decoder.layers.0[0].ffn = Box::new(Halves {
                gate_up: MergedColumnParallelLinear::new(
                    64,
                    [FusedPart::new("gate", 40), FusedPart::new("up", 88)],
                ),
                down: RowParallelLinear::new(64, 64),
            });
            Box::new(decoder)
        },
        ..ACME
    })
    .unwrap();
    let model = Model::from_facts(&config("acme-halves")).unwrap();
    let wanted = "`layers.0.ffn.gate_up` has parts of [40, 88] rows, wanted [64, 64]";
    assert_eq!(model.architecture().unwrap_err().why, wanted);
}
