//! A model of one's own, put together from layers that own their parameters, loaded on one rank of two.
//!
//! `cargo run --release -p weighbridge --example own_model -- DIR`, where DIR is a Llama as transformers saves it.

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::path::PathBuf;

use weighbridge::module::{
    FusedPart, Layers, MergedColumnParallelLinear, ParallelLmHead, QkvParallelLinear, RmsNorm,
    RowParallelLinear, VocabParallelEmbedding,
};
use weighbridge::{Mesh, Module, PlanBuilder, Pool};

#[derive(Module)]
struct Llama {
    model: Body,
    lm_head: ParallelLmHead,
}

#[derive(Module)]
struct Body {
    embed_tokens: VocabParallelEmbedding,
    layers: Layers<Block>,
    norm: RmsNorm,
}

#[derive(Module)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

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

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("wanted a directory with a Llama")?);
    let checkpoint = weighbridge::open(&path)?;
    let described = weighbridge::describe(&checkpoint)?;
    let numbers = described.config();
    let (hidden, ffn, heads, kv_heads, head_dim) =
        (*numbers.hidden, *numbers.ffn, *numbers.heads, *numbers.kv_heads, *numbers.head_dim);
    let block = |_| Block {
        input_layernorm: RmsNorm::new(hidden),
        self_attn: Attention {
            qkv_proj: QkvParallelLinear::new(hidden, heads, kv_heads, head_dim),
            o_proj: RowParallelLinear::new(heads * head_dim, hidden),
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
    let llama = Llama {
        model: Body {
            embed_tokens: VocabParallelEmbedding::new(*numbers.vocab, hidden),
            layers: Layers((0..*numbers.layers).map(block).collect()),
            norm: RmsNorm::new(hidden),
        },
        lm_head: ParallelLmHead::new(hidden, *numbers.vocab).tied_to("model.embed_tokens.weight"),
    };

    let mesh = Mesh { tp: 2, ..Mesh::default() };
    let plan = PlanBuilder::new(&checkpoint)
        .module(&llama)
        .leave("model.layers.{n}.self_attn.rotary_emb.inv_freq", "computed from the configuration")
        .mesh(mesh)
        .rank(1)
        .build()?;
    let loaded = plan.load(&mut Pool::new(Pool::available()))?;
    let name = "model.layers.0.self_attn.qkv_proj.weight";
    println!("{}", plan.explain(name)?);
    let held = loaded.get(name).ok_or("a Llama has it")?;
    println!("{} {} {}: {} bytes", name, held.shape(), held.scheme(), held.bytes().len());
    Ok(())
}
