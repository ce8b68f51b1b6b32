//! Models whose files are sound, and whose numbers, tokenizers or chat templates are absurd: one fault each.

use super::Made;
use super::build::{Gguf, Pair, Plane, array, kind, safetensors_of, string};

/// An absurd model.
#[derive(Debug)]
pub struct Absurd {
    /// What kind of fault it is.
    pub family: &'static str,
    /// What is wrong with it.
    pub name: String,
    /// Paths and what is made there.
    pub made: Vec<(&'static str, Made)>,
    /// The path that is opened.
    pub path: &'static str,
    /// The commands that refuse it; the others have no use for what is wrong.
    pub refuse: &'static [&'static str],
    /// What they say.
    pub says: &'static str,
}

const RUN: &[&str] = &["run"];
/// What needs the model's numbers.
const MODEL: &[&str] = &["plan", "run", "convert"];
/// The reason why a model with partly rotated heads is loaded and converted, but not run.
const ROTATED: &str = "of 16 elements of a head are rotated";
/// The same of config.json.
const PARTLY: &str = "`partial_rotary_factor` is 0.5";

/// Who refuses a model whose numbers are such that this is said.
fn who_refuses(says: &str) -> &'static [&'static str] {
    if [ROTATED, PARTLY].contains(&says) { RUN } else { MODEL }
}

/// All of them.
pub fn absurd() -> Vec<Absurd> {
    let gguf = |family, name: &str, model: &Gguf, refuse, says| Absurd {
        family,
        name: name.to_owned(),
        made: vec![("x.gguf", Made::File(model.build()))],
        path: "x.gguf",
        refuse,
        says,
    };
    let mut all =
        vec![gguf("sound", "gguf", &model(), &[], ""), directory("sound", "hf", CONFIG, TOKENIZER, &[], "")];
    all.extend(numbers().into_iter().map(|(n, m, says)| gguf("numbers", n, &m, who_refuses(says), says)));
    all.extend(configs());
    all.extend(vocabularies().into_iter().map(|(n, m, says)| gguf("vocabularies", n, &m, RUN, says)));
    all.extend(tokenizers());
    all.extend(templates().into_iter().map(|(n, source, says)| {
        gguf("templates", n, &model().set("tokenizer.chat_template", kind::STR, string(source)), RUN, says)
    }));
    all
}

const TOKENS: usize = 3 + 256 + 4;

/// A llama of one layer, of zeros, with a vocabulary of bytes and a template that says what the user says.
pub fn model() -> Gguf {
    let bytes = (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>"));
    let ends = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let tokens: Vec<_> =
        ends.into_iter().chain(bytes).chain(["\u{2581}", "a", "b", "ab"].map(str::to_owned)).collect();
    let tokens: Vec<_> = tokens.iter().map(String::as_str).collect();
    let types: Vec<i32> = [2, 3, 3].into_iter().chain([6; 256]).chain([1; 4]).collect();
    let types: Vec<u8> = types.into_iter().flat_map(i32::to_le_bytes).collect();
    let count = TOKENS as u64;
    let f32 = |x: f32| x.to_le_bytes();
    Gguf::new()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.embedding_length", 32)
        .u32("llama.attention.head_count", 2)
        .u32("llama.attention.head_count_kv", 1)
        .u32("llama.feed_forward_length", 32)
        .u32("llama.context_length", 64)
        .u32("llama.vocab_size", u32::try_from(TOKENS).expect("small"))
        .pair("llama.attention.layer_norm_rms_epsilon", kind::F32, f32(1e-5))
        .pair("llama.rope.freq_base", kind::F32, f32(1e4))
        .str("tokenizer.ggml.model", "llama")
        .strs("tokenizer.ggml.tokens", &tokens)
        .pair("tokenizer.ggml.scores", kind::ARRAY, array(kind::F32, count, vec![0; 4 * TOKENS]))
        .pair("tokenizer.ggml.token_type", kind::ARRAY, array(kind::I32, count, types))
        .str("tokenizer.chat_template", "{{ messages[0].content }}")
        .f32("token_embd.weight", &[count, 32])
        .f32("blk.0.attn_norm.weight", &[32])
        .f32("blk.0.attn_q.weight", &[32, 32])
        .f32("blk.0.attn_k.weight", &[16, 32])
        .f32("blk.0.attn_v.weight", &[16, 32])
        .f32("blk.0.attn_output.weight", &[32, 32])
        .f32("blk.0.ffn_norm.weight", &[32])
        .f32("blk.0.ffn_gate.weight", &[32, 32])
        .f32("blk.0.ffn_up.weight", &[32, 32])
        .f32("blk.0.ffn_down.weight", &[32, 32])
        .f32("output_norm.weight", &[32])
        .f32("output.weight", &[count, 32])
}

impl Gguf {
    /// The same with another value of `key`, or with the key if it had none.
    fn set(mut self, key: &str, kind: u32, value: impl AsRef<[u8]>) -> Gguf {
        let value = value.as_ref().to_vec();
        match self.pairs.iter_mut().find(|p| p.key == key.as_bytes()) {
            Some(Pair { kind: k, value: v, .. }) => (*k, *v) = (kind, value),
            None => self.pairs.push(Pair { key: key.as_bytes().to_vec(), key_len: None, kind, value }),
        }
        self
    }

    fn drop(mut self, key: &str) -> Gguf {
        self.pairs.retain(|p| p.key != key.as_bytes());
        self
    }
}

fn numbers() -> Vec<(&'static str, Gguf, &'static str)> {
    let set = |key: &str, kind, value: &[u8]| model().set(&format!("llama.{key}"), kind, value);
    let u32 = |key: &str, n: u32| set(key, kind::U32, &n.to_le_bytes());
    let u64 = |key: &str, n: u64| set(key, kind::U64, &n.to_le_bytes());
    let i32 = |key: &str, n: i32| set(key, kind::I32, &n.to_le_bytes());
    let f32 = |key: &str, x: f32| set(key, kind::F32, &x.to_le_bytes());
    let (layers, hidden) = ("block_count", "embedding_length");
    let (heads, kv, eps) =
        ("attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon");
    let linear = |factor: f32| {
        f32("rope.scaling.factor", factor).set("llama.rope.scaling.type", kind::STR, string("linear"))
    };
    let q = |layer: &str| model().f32(&format!("blk.{layer}.attn_q.weight"), &[32, 32]);
    vec![
        (
            "10^9 layers",
            u32(layers, 1_000_000_000),
            "`llama.block_count` is 1000000000, wanted at most 4096 layers",
        ),
        ("2^40 layers", u64(layers, 1 << 40), "`llama.block_count` is 1099511627776, wanted an integer"),
        (
            "layers as text",
            set(layers, kind::STR, &string("1")),
            "`llama.block_count` is \"1\", wanted an integer",
        ),
        ("1.5 layers", f32(layers, 1.5), "`llama.block_count` is 1.5, wanted an integer"),
        ("no layers", u32(layers, 0), "`llama.block_count` is 0, wanted an integer"),
        ("no layer count", model().drop("llama.block_count"), "no value for `layers`"),
        ("fewer layers than are said", u32(layers, 2), "`blk.1.attn_q.weight` is missing: wanted [32, 32]"),
        ("4096 layers of one", u32(layers, 4096), "is missing in 4095 layers"),
        (
            "more layers than are said",
            q("1"),
            "`blk.1.attn_q.weight` [32, 32] is in the checkpoint, but no parameter",
        ),
        ("layer 2^32", q("4294967296"), "`blk.4294967296.attn_q.weight` [32, 32] is in the checkpoint"),
        ("layer −1", q("-1"), "`blk.-1.attn_q.weight` [32, 32] is in the checkpoint"),
        ("no heads", u32(heads, 0), "`llama.attention.head_count` is 0, wanted an integer"),
        ("heads that do not divide", u32(heads, 3), "32 hidden does not divide by 3 heads"),
        ("2^32 − 1 heads", u32(heads, u32::MAX), "`head_dim` is 1, wanted an even number"),
        ("no key heads", u32(kv, 0), "`llama.attention.head_count_kv` is 0, wanted an integer"),
        ("key heads that do not divide", u32(kv, 3), "is 3, wanted a divisor of the 2 query heads"),
        (
            "key heads by layer, of more layers",
            set(kv, kind::ARRAY, &array(kind::U32, 2, [1, 0, 0, 0, 2, 0, 0, 0])),
            "`llama.attention.head_count_kv` is a list of 2",
        ),
        ("hidden 0", u32(hidden, 0), "`llama.embedding_length` is 0, wanted an integer"),
        ("hidden −1", i32(hidden, -1), "`llama.embedding_length` is -1, wanted an integer"),
        ("hidden 2^62", u64(hidden, 1 << 62), "`llama.embedding_length` is 4611686018427387904"),
        ("hidden 2^32", u64(hidden, 1 << 32), "`head_dim` is 2147483648, wanted an even number"),
        ("hidden 64", u32(hidden, 64), "`token_embd.weight`: wanted [263, 64]"),
        (
            "ffn 2^62",
            u64("feed_forward_length", 1 << 62),
            "`llama.feed_forward_length` is 4611686018427387904",
        ),
        ("ffn 2^32", u64("feed_forward_length", 1 << 32), "`blk.0.ffn_gate.weight`: wanted [4294967296, 32]"),
        ("vocab 2^40", u64("vocab_size", 1 << 40), "`llama.vocab_size` is 1099511627776"),
        ("vocab 0", u32("vocab_size", 0), "`llama.vocab_size` is 0, wanted an integer"),
        ("context 2^62", u64("context_length", 1 << 62), "`llama.context_length` is 4611686018427387904"),
        ("context 0", u32("context_length", 0), "`llama.context_length` is 0, wanted an integer"),
        (
            "eps NaN",
            f32(eps, f32::NAN),
            "`llama.attention.layer_norm_rms_epsilon` is NaN, wanted a positive number",
        ),
        ("eps infinite", f32(eps, f32::INFINITY), "is inf, wanted a positive number"),
        ("eps −1", f32(eps, -1.0), "is -1, wanted a positive number"),
        (
            "theta NaN",
            f32("rope.freq_base", f32::NAN),
            "`llama.rope.freq_base` is NaN, wanted a positive number",
        ),
        ("theta 0", f32("rope.freq_base", 0.0), "`llama.rope.freq_base` is 0, wanted a positive number"),
        ("rope of no dimensions", u32("rope.dimension_count", 0), "`llama.rope.dimension_count` is 0"),
        ("rope of −1 dimensions", i32("rope.dimension_count", -1), "`llama.rope.dimension_count` is -1"),
        ("rope of 15 dimensions", u32("rope.dimension_count", 15), ROTATED),
        ("heads of 15", u32("attention.key_length", 15), "is 15, wanted an even number up to 4096"),
        (
            "heads of 2^62",
            u64("attention.key_length", 1 << 62),
            "`llama.attention.key_length` is 4611686018427387904",
        ),
        (
            "rope stretched by NaN",
            linear(f32::NAN),
            "`llama.rope.scaling.factor` is NaN, wanted a positive number",
        ),
        ("rope stretched by 0", linear(0.0), "`llama.rope.scaling.factor` is 0, wanted a positive number"),
        ("no architecture", model().drop("general.architecture"), "does not name its architecture"),
        (
            "an architecture of 100 kB",
            model().set("general.architecture", kind::STR, string("\u{1b}x".repeat(50_000))),
            r"architecture `\u{1b}x\u{1b}x",
        ),
    ]
}

fn vocabularies() -> Vec<(&'static str, Gguf, &'static str)> {
    let set = |key: &str, kind, value: &[u8]| model().set(&format!("tokenizer.ggml.{key}"), kind, value);
    let count = TOKENS as u64;
    let list =
        |key: &str, element, len: u64, elements: &[u8]| set(key, kind::ARRAY, &array(element, len, elements));
    // The token after the three is of type byte.
    let byte = |text: &str| {
        let texts: Vec<u8> = (0..TOKENS)
            .flat_map(|i| string(if i == 3 { text.to_owned() } else { format!("t{i}") }))
            .collect();
        let types: Vec<u8> = (0..TOKENS).flat_map(|i| if i == 3 { 6i32 } else { 1 }.to_le_bytes()).collect();
        list("tokens", kind::STR, count, &texts).set(
            "tokenizer.ggml.token_type",
            kind::ARRAY,
            array(kind::I32, count, types),
        )
    };
    let bpe = |merges: &[&str]| {
        set("model", kind::STR, &string("gpt2"))
            .set("tokenizer.ggml.pre", kind::STR, string("gpt-2"))
            .drop("tokenizer.ggml.scores")
            .strs("tokenizer.ggml.merges", merges)
    };
    let nan: Vec<u8> = [f32::NAN; TOKENS].into_iter().flat_map(f32::to_le_bytes).collect();
    let texts: Vec<u8> = (0..TOKENS).flat_map(|_| string("x")).collect();
    let bos = |n: u32| set("bos_token_id", kind::U32, &n.to_le_bytes());
    vec![
        ("<0x-1>", byte("<0x-1>"), "token 3 `<0x-1>` is a byte token, whose text must be `<0xHH>`"),
        ("<0x100>", byte("<0x100>"), "token 3 `<0x100>` is a byte token"),
        ("<0xé>", byte("<0xé>"), "token 3 `<0xé>` is a byte token"),
        (
            "scores of text",
            list("scores", kind::STR, count, &texts),
            "wanted an array of f32, found [str; 263] (at byte ",
        ),
        (
            "scores of doubles",
            list("scores", kind::F64, count, &[0; 8 * TOKENS]),
            "wanted an array of f32, found [f64; 263]",
        ),
        (
            "a score short",
            list("scores", kind::F32, count - 1, &[0; 4 * TOKENS - 4]),
            "262 scores for 263 tokens",
        ),
        ("no scores", list("scores", kind::F32, 0, &[]), "0 scores for 263 tokens"),
        ("scores of NaN", list("scores", kind::F32, count, &nan), "the score of token 0 is NaN"),
        (
            "types of floats",
            list("token_type", kind::F32, count, &nan),
            "wanted an array of i32, found [f32; 263] (at byte ",
        ),
        ("one type", list("token_type", kind::I32, 1, &[1, 0, 0, 0]), "1 types for 263 tokens"),
        (
            "types of 99",
            list("token_type", kind::I32, count, &[99, 0, 0, 0].repeat(TOKENS)),
            "token 0 has type 99",
        ),
        (
            "tokens of numbers",
            list("tokens", kind::U8, count, &[0; TOKENS]),
            "wanted an array of str, found [u8; 263] (at byte ",
        ),
        ("no tokens", list("tokens", kind::STR, 0, &[]), "`tokenizer.ggml.tokens`: no tokens"),
        (
            "a token for tokens",
            set("tokens", kind::STR, &string("x")),
            "wanted an array of str, found str `x` (at byte ",
        ),
        (
            "begin at 2^32 − 1",
            bos(u32::MAX),
            "`tokenizer.ggml.bos_token_id`: 4294967295, and there are 263 tokens",
        ),
        ("begin at the end", bos(263), "`tokenizer.ggml.bos_token_id`: 263, and there are 263 tokens"),
        (
            "end at 2^63",
            set("eos_token_id", kind::U64, &(1u64 << 63).to_le_bytes()),
            "and there are 263 tokens",
        ),
        (
            "end at −1",
            set("eos_token_id", kind::I32, &[0xff; 4]),
            "that is not negative, found i32 -1 (at byte ",
        ),
        (
            "a number for a flag",
            set("add_bos_token", kind::U32, &[1, 0, 0, 0]),
            "wanted a bool, found u32 1 (at byte ",
        ),
        (
            "an unknown kind",
            set("model", kind::STR, &string("rwkv")),
            "tokenizer model `rwkv` is not supported",
        ),
        (
            "an unknown cut",
            bpe(&["a b"]).set("tokenizer.ggml.pre", kind::STR, string("x")),
            "`x` is not supported",
        ),
        ("a merge of what is no token", bpe(&["q z"]), "merge 0 (`q` and `z`) needs `qz`, which is no token"),
        ("a merge to no token", bpe(&["b a"]), "merge 0 (`b` and `a`) needs `ba`, which is no token"),
        ("a merge of one", bpe(&["ab"]), "merge 0 is not two tokens with a space between"),
        ("a merge with nothing", bpe(&["a "]), "merge 0 (`a` and ``) needs ``, which is no token"),
        ("a merge of nothing", bpe(&["a b", " "]), "merge 1 is not two tokens with a space between"),
        (
            "a number for a template",
            model().set("tokenizer.chat_template", kind::U32, [1; 4]),
            "wanted a string, found u32",
        ),
    ]
}

/// Programs of strangers. Each ends, with an error: what is held is bounded where it is run.
pub fn templates() -> Vec<(&'static str, String, &'static str)> {
    let grow = |step: &str| {
        format!(
            "{{% set ns = namespace(s='xxxxxxxxxxxxxxxx', l=[1]) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.s|length }}}}"
        )
    };
    let nest = |then: &str| {
        format!(
            "{{% set ns = namespace(s=[]) %}}{{% for i in range(99999) %}}{{% set ns.s = [ns.s] %}}{{% endfor %}}{then}"
        )
    };
    let chain = |link: &str| format!("{{{{ {}1 }}}}", link.repeat(50_000));
    let (steps, room, deep) = ("takes more than 5000000 steps", "it takes over ", "a tag has ");
    let constant = "a tag may repeat a constant";
    vec![
        (
            "no end",
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
            steps,
        ),
        (
            "a macro of itself",
            "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}".to_owned(),
            "recursion limit",
        ),
        (
            "a loop of itself",
            "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned(),
            "recursion limit",
        ),
        (
            "includes itself",
            "{% include 'chat_template' %}".to_owned(),
            "wants another template, and there is none",
        ),
        (
            "extends itself",
            "{% extends 'chat_template' %}".to_owned(),
            "wants another template, and there is none",
        ),
        (
            "reads a file",
            "{% include '/etc/passwd' %}".to_owned(),
            "wants another template, and there is none",
        ),
        (
            "extends a file",
            "{% extends '/etc/passwd' %}".to_owned(),
            "wants another template, and there is none",
        ),
        (
            "imports a file",
            "{% import '/etc/passwd' as x %}".to_owned(),
            "wants another template, and there is none",
        ),
        ("imports to a number", "{% import 'x' as 1 %}".to_owned(), "wants another template"),
        ("opens a file", "{{ open('/etc/passwd').read() }}".to_owned(), "open is unknown"),
        (
            "Python's way out",
            "{{ ''.__class__.__mro__[1].__subclasses__() }}".to_owned(),
            "`chat_template`: ",
        ),
        ("a long string", "{{ 'x' * 1000000000 }}".to_owned(), constant),
        ("a long list", "{{ [0] * 10000000000 }}".to_owned(), constant),
        // Found by a fuzzer: computed while the template is parsed, where nothing bounds the time.
        ("a long list as text", "{{ [0] * 8400766~000 }}".to_owned(), constant),
        ("a list of lists", "{{ [[0] * 99999] * 99999 ~ '' }}".to_owned(), constant),
        (
            "a long string, not constant",
            "{% set n = messages|length * 1000000000 %}{{ 'x' * n }}".to_owned(),
            "repeated string is too large",
        ),
        (
            "a long range",
            "{% for i in range(10 ** 12) %}{% endfor %}".to_owned(),
            "range has too many elements",
        ),
        ("a large power", "{{ 9 ** 9 ** 9 }}".to_owned(), "unable to calculate"),
        ("strings that double", grow("{% set ns.s = ns.s ~ ns.s %}"), room),
        ("sums that double", grow("{% set ns.s = ns.s + ns.s %}"), room),
        ("lists that double", grow("{% set ns.l = ns.l + ns.l %}"), "`chat_template`: "),
        ("replacements that grow", grow("{% set ns.s = ns.s|replace('x', ns.s) %}"), room),
        ("joins that grow", grow("{% set ns.s = [ns.s, ns.s]|join(ns.s) %}"), room),
        ("blocks that double", grow("{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}"), room),
        ("a wide indent", "{{ 'x\ny'|indent(1000000000) }}".to_owned(), "`width` of `indent` must be"),
        ("a wide format", "{{ '%1000000000d'|format(1) }}".to_owned(), room),
        ("a wide batch", "{{ [1]|batch(1000000000, 0)|list }}".to_owned(), room),
        ("many slices", "{{ [1]|slice(1000000000)|list|length }}".to_owned(), room),
        ("a deep list that is shown", nest("{{ ns.s }}"), room),
        ("a deep list as JSON", nest("{{ ns.s|tojson }}"), room),
        ("what holds itself", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".to_owned(), room),
        (
            "a prompt of 20 MB",
            "{% for i in range(99999) %}{{ 'x' * 200 }}{% endfor %}".to_owned(),
            "the prompt is over 16777216 bytes",
        ),
        ("deep brackets", format!("{{{{ {}1{} }}}}", "(".repeat(300), ")".repeat(300)), "recursion limits"),
        ("deep blocks", "{% if 1 %}".repeat(20_000), "recursion limits"),
        ("nots", chain("not "), deep),
        ("minuses", chain("-"), deep),
        ("a long sum", chain("1+"), deep),
        ("a long choice", chain("1 if 1 else "), deep),
        (
            "many branches",
            format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(50_000)),
            "over 1000 `elif`",
        ),
        ("2 MB", "x".repeat(2 << 20), "wanted at most 1048576"),
        ("cut short", "{% for".to_owned(), "unexpected end of input"),
        ("a refusal", "{{ raise_exception('no\u{1b}[2J') }}".to_owned(), "`chat_template`: no"),
    ]
}

const CONFIG: &str = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":32,"num_hidden_layers":1,
"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":32,"vocab_size":8,"max_position_embeddings":64,
"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":false}"#;

const TOKENIZER: &str = r#"{"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,
"trim_offsets":true,"use_regex":true},"post_processor":null,"model":{"type":"BPE","vocab":{"h":0,"i":1,"a":2,"b":3,"ab":4},"merges":["a b"]}}"#;

/// The same llama as transformers has it.
fn directory(
    family: &'static str,
    name: &str,
    config: &str,
    tokenizer: &str,
    refuse: &'static [&'static str],
    says: &'static str,
) -> Absurd {
    const TENSORS: &[Plane] = &[
        ("model.embed_tokens.weight", "F32", &[8, 32], None),
        ("model.layers.0.input_layernorm.weight", "F32", &[32], None),
        ("model.layers.0.self_attn.q_proj.weight", "F32", &[32, 32], None),
        ("model.layers.0.self_attn.k_proj.weight", "F32", &[16, 32], None),
        ("model.layers.0.self_attn.v_proj.weight", "F32", &[16, 32], None),
        ("model.layers.0.self_attn.o_proj.weight", "F32", &[32, 32], None),
        ("model.layers.0.post_attention_layernorm.weight", "F32", &[32], None),
        ("model.layers.0.mlp.gate_proj.weight", "F32", &[32, 32], None),
        ("model.layers.0.mlp.up_proj.weight", "F32", &[32, 32], None),
        ("model.layers.0.mlp.down_proj.weight", "F32", &[32, 32], None),
        ("model.norm.weight", "F32", &[32], None),
        ("lm_head.weight", "F32", &[8, 32], None),
    ];
    let text = |content: &str| Made::File(content.as_bytes().to_vec());
    Absurd {
        family,
        name: name.to_owned(),
        made: vec![
            ("m/config.json", text(config)),
            ("m/tokenizer.json", text(tokenizer)),
            ("m/chat_template.jinja", text("{{ messages[0].content }}")),
            ("m/model.safetensors", Made::File(safetensors_of(TENSORS))),
        ],
        path: "m",
        refuse,
        says,
    }
}

fn configs() -> Vec<Absurd> {
    let cases = [
        (
            "layers of 10^9",
            "num_hidden_layers\":1,",
            "num_hidden_layers\":1000000000,",
            "is 1000000000, wanted at most 4096 layers",
        ),
        ("layers of 10^300", "num_hidden_layers\":1,", "num_hidden_layers\":1e300,", "wanted an integer"),
        (
            "layers as text",
            "num_hidden_layers\":1,",
            "num_hidden_layers\":\"1\",",
            "is \"1\", wanted an integer",
        ),
        (
            "layers that are null",
            "num_hidden_layers\":1,",
            "num_hidden_layers\":null,",
            "`num_hidden_layers` is null",
        ),
        ("hidden 2^64", "hidden_size\":32", "hidden_size\":18446744073709551616", "wanted an integer"),
        ("heads −2", "num_attention_heads\":2", "num_attention_heads\":-2", "`num_attention_heads` is -2"),
        ("key heads 0", "num_key_value_heads\":1", "num_key_value_heads\":0", "`num_key_value_heads` is 0"),
        ("vocab 2^40", "vocab_size\":8", "vocab_size\":1099511627776", "`vocab_size` is 1099511627776"),
        ("eps as a list", "rms_norm_eps\":1e-5", "rms_norm_eps\":[1e-5]", "`rms_norm_eps` is a list of 1"),
        ("theta 0", "rope_theta\":10000.0", "rope_theta\":0", "`rope_theta` is 0, wanted a positive number"),
        (
            "rope of an unknown kind",
            "rope_theta",
            "rope_scaling\":{\"rope_type\":\"x\"},\"rope_theta",
            "`rope_scaling.rope_type` is \"x\"",
        ),
        (
            "rope stretched by nothing",
            "rope_theta",
            "rope_scaling\":{\"rope_type\":\"linear\"},\"rope_theta",
            "`rope_scaling.factor` is absent",
        ),
        ("half a rotation", "rope_theta", "partial_rotary_factor\":0.5,\"rope_theta", PARTLY),
        (
            "an unknown architecture",
            "\"llama\",\"architectures\":[\"LlamaForCausalLM\"]",
            "\"x\",\"architectures\":[\"X\\u001b[2JForCausalLM\"]",
            "is not supported",
        ),
    ];
    let case = |(name, from, to, says): (&str, &str, &str, &'static str)| {
        assert!(CONFIG.contains(from), "{from}");
        directory("configs", name, &CONFIG.replace(from, to), TOKENIZER, who_refuses(says), says)
    };
    cases.into_iter().map(case).collect()
}

fn tokenizers() -> Vec<Absurd> {
    let deep = "[".repeat(100_000);
    let cases = [
        ("an id of 10^12", "\"ab\":4", "\"ab\":1000000000000", "`ab` has the id 1000000000000, wanted"),
        ("an id of −1", "\"ab\":4", "\"ab\":-1", "`ab` has the id -1, wanted"),
        ("an id of text", "\"ab\":4", "\"ab\":\"4\"", "`ab` has the id \"4\", wanted"),
        ("one id twice", "\"ab\":4", "\"ab\":3", "have the id 3"),
        (
            "a gap",
            "\"added_tokens\":[]",
            "\"added_tokens\":[{\"id\":6,\"content\":\"x\"},{\"id\":6,\"content\":\"x\"}]",
            "`added_tokens[1].special`: missing",
        ),
        (
            "a token added over another",
            "\"added_tokens\":[]",
            "\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]",
            "`added_tokens[0].special`: missing",
        ),
        (
            "a token added without text",
            "\"added_tokens\":[]",
            "\"added_tokens\":[{\"id\":5}]",
            "`added_tokens[0].content`: missing",
        ),
        ("a merge of no tokens", "\"a b\"", "\"q z\"", "which is no token"),
        ("a merge of three", "\"a b\"", "[\"a\",\"b\",\"c\"]", "`model.merges[0]`: wanted a pair of tokens"),
        ("a merge of numbers", "\"a b\"", "[1,2]", "`model.merges[0]`: wanted a pair of tokens"),
        ("merges of text", "[\"a b\"]", "\"a b\"", "`model.merges`: wanted an array"),
        (
            "a vocabulary of lists",
            "{\"h\":0,\"i\":1,\"a\":2,\"b\":3,\"ab\":4}",
            "[[\"h\",0]]",
            "`model.vocab`: wanted an object",
        ),
        ("another kind", "\"BPE\"", "\"Unigram\"", "`model.vocab`: wanted an array"),
        (
            "a cut by a slow expression",
            "\"type\":\"ByteLevel\"",
            "\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$\"}",
            "the regex `(a+)+$` is not supported",
        ),
        (
            "another normalizer",
            "\"normalizer\":null",
            "\"normalizer\":{\"type\":\"Replace\"}",
            "`normalizer.pattern`: missing",
        ),
        ("no JSON", "{\"added", "added", "`tokenizer.json`: expected value"),
        ("deep", "{\"added_tokens\":[]", &deep, "recursion limit exceeded"),
    ];
    let case = |(name, from, to, says): (&str, &str, &str, &'static str)| {
        assert!(TOKENIZER.contains(from), "{from}");
        directory("tokenizers", name, CONFIG, &TOKENIZER.replacen(from, to, 1), RUN, says)
    };
    cases.into_iter().map(case).collect()
}
