//! Tools in prompts and answers, as the templates of real models have them.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use serde_json::{Value, json};
use weighbridge_engine::grammar::{Compiler, Source};
use weighbridge_engine::sampler::Constraint;
use weighbridge_engine::text::{
    Call, CallForm, CallGrammar, CallSyntax, ChatTemplate, Conversation, EncodeOptions, Message, Part,
    ReplyReader, ReplySyntax, SpecialText, Tokenizer, ToolChoice, tokenizer,
};

/// The output of `golden/tokenizer/tools.py`: what is the same for all templates, and the templates with their prompts.
struct Golden {
    tools: Vec<Value>,
    one: Message,
    two: Message,
    templates: Vec<Value>,
}

fn golden() -> Golden {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/tokenizer/tools.jsonl.zst");
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let given = lines.next().unwrap();
    let answer = |given: &Value| {
        let calls = given[1].as_array().unwrap().iter();
        let call = |call: &Value| Call {
            name: call[1]["name"].as_str().unwrap().to_owned(),
            arguments: spaced(&call[1]["arguments"]),
        };
        let calls = calls.map(|given| (given[0].as_str().unwrap().to_owned(), call(given))).collect();
        Message { calls, ..Message::new("assistant", given[0].as_str().unwrap()) }
    };
    Golden {
        tools: given["tools"].as_array().unwrap().clone(),
        one: answer(&given["one"]),
        two: answer(&given["two"]),
        templates: lines.collect(),
    }
}

/// JSON as Python's `json.dumps` writes it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, field)| format!("{}: {}", Value::from(key.as_str()), spaced(field)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

impl Golden {
    /// The conversation of a case.
    fn conversation(&self, case: &Value) -> Conversation {
        let user = Message::new("user", "How is the weather?");
        let result = |id: &str, text: &str| Message {
            call_id: Some(id.to_owned()),
            name: Some("get_weather".to_owned()),
            ..Message::new("tool", text)
        };
        let messages = match case["name"].as_str().unwrap() {
            "asked" => vec![user],
            "one" => vec![user, self.one.clone()],
            "two" => vec![user, self.two.clone()],
            "answered" => vec![user, self.one.clone(), result("abcdefgh1", "{\"sun\": true}")],
            "both answered" => {
                vec![user, self.two.clone(), result("abcdefgh1", "sun"), result("abcdefgh2", "rain")]
            }
            other => panic!("{other}"),
        };
        Conversation {
            messages,
            tools: self.tools.clone(),
            form: form(case),
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            ..Conversation::default()
        }
    }
}

fn form(case: &Value) -> CallForm {
    let of = |name: &str| case[name].as_bool().unwrap();
    CallForm { is_text: of("is_text"), is_content_null: of("is_content_null") }
}

#[test]
fn prompts_with_tools_are_those_of_jinja2() {
    let golden = golden();
    let mut wrong = BTreeMap::new();
    let mut cases = 0;
    for template in &golden.templates {
        let name = template["name"].as_str().unwrap();
        let compiled = match ChatTemplate::new(template["source"].as_str().unwrap()) {
            Ok(compiled) => compiled,
            Err(error) => {
                wrong.insert(name, error.to_string());
                continue;
            }
        };
        for case in template["cases"].as_array().unwrap() {
            cases += 1;
            let found = compiled.render(&golden.conversation(case), "<s>", "</s>");
            let prompt = case["prompt"].as_str().unwrap();
            // Jinja2 escapes what is added to a text that is marked as safe, and minijinja does not: nobody wants that in a prompt.
            if name == "meetkai-functionary-medium-v3.1" {
                continue;
            }
            if found.as_ref().ok().map(String::as_str) != Some(prompt) {
                wrong.entry(name).or_insert_with(|| match found {
                    Err(error) => format!("{}: {error}", case["name"]),
                    Ok(found) => {
                        let same = found.bytes().zip(prompt.bytes()).take_while(|(a, b)| a == b).count();
                        let near = |text: &str| {
                            let bytes = &text.as_bytes()[same.saturating_sub(30)..text.len().min(same + 60)];
                            String::from_utf8_lossy(bytes).into_owned()
                        };
                        format!("{}: {:?}, wanted {:?}", case["name"], near(&found), near(prompt))
                    }
                });
            }
        }
    }
    for (name, why) in &wrong {
        eprintln!("{name}: {why}");
    }
    assert!(wrong.is_empty(), "{} of {}", wrong.len(), golden.templates.len());
    assert!(cases > 300, "{cases}");
}

/// The rows, with the templates that find them.
const ROWS: &str = "\
apriel: Apriel-1.6-15b-Thinker-fixed unsloth-Apriel-1.5\n\
command-r7b: Cohere2MoE CohereForAI-c4ai-command-r7b-12-2024-tool_use\n\
deepseek-v3: deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B\n\
deepseek-v3.1: deepseek-ai-DeepSeek-V3.1\n\
functionary: meetkai-functionary-medium-v3.1\n\
gigachat: GigaChat3.1-10B-A1.8B\n\
glm: GLM-4.6 GLM-4.7-Flash Spark2.5 inclusionai-ling-3.0-flash poolside-Laguna-S-2.1 poolside-Laguna-XS-2.1 poolside-Laguna-XS.2\n\
hermes: Bielik-11B-v3.0-Instruct MiMo-VL NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Reka-Edge ibm-granite-granite-4.0 ibm-granite-granite-4.1\n\
kimi-k2: moonshotai-Kimi-K2\n\
llama: meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct\n\
minicpm5: openbmb-MiniCPM5-1B\n\
minimax-m1: MiniMax-M1\n\
minimax-m2: MiniMax-M2\n\
mistral: mistralai-Mistral-Nemo-Instruct-2407\n\
mistral-args: Mistral-Small-3.2-24B-Instruct-2506 mistralai-Ministral-3-14B-Reasoning-2512 unsloth-mistral-Devstral-Small-2507\n\
nemotron: NVIDIA-Nemotron-Nano-v2\n\
qwen3-coder: NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 Qwen3-Coder Qwen3.5-4B StepFun3.5-Flash\n\
seed: ByteDance-Seed-OSS";
/// Templates whose calls are unknown.
const UNKNOWN: &str = "\
Apertus-8B-Instruct CohereForAI-c4ai-command-r-plus-tool_use GigaChat3-10B-A1.8B Kimi-K2-Instruct \
Kimi-K2-Thinking Kimi-K3 LFM2-8B-A1B LFM2.5-8B-A1B \
LFM2.5-Instruct MiniMax-M3 deepseek-ai-DeepSeek-V3.2 deepseek-ai-DeepSeek-V4-Flash-0731 \
deepseek-ai-DeepSeek-V4 google-gemma-4-31B-it-interleaved google-gemma-4-31B-it ibm-granite-granite-3.3-2B-Instruct \
meetkai-functionary-medium-v3.2 muse-glimmer openai-gpt-oss-120b tencent-Hy3 \
upstage-Solar-Open-100B";

/// The rows that templates find, and templates whose calls are unknown.
#[test]
fn calls_are_read_back_from_what_templates_write() {
    let golden = golden();
    let (mut rows, mut unknown) = (BTreeMap::new(), vec![]);
    for template in &golden.templates {
        let name = template["name"].as_str().unwrap();
        let source = template["source"].as_str().unwrap();
        let cases = template["cases"].as_array().unwrap();
        let of = |case_name: &str, form: CallForm| {
            let case = cases.iter().find(|case| case["name"] == case_name && self::form(case) == form);
            case.map(|case| case["prompt"].as_str().unwrap())
        };
        let call = &golden.one.calls[0].1;
        let found = CallForm::ALL
            .into_iter()
            .find_map(|form| Some((CallSyntax::of(of("asked", form)?, of("one", form)?, call)?, form)));
        let Some((calls, form)) = found else {
            unknown.push(name);
            continue;
        };
        rows.entry(calls.name()).or_insert(vec![]).push(name);
        let syntax = ReplySyntax { thoughts: ReplySyntax::thoughts(source), calls: Some(calls) };
        let prompt = of("asked", form).unwrap();
        for (case, message) in [("one", &golden.one), ("two", &golden.two)] {
            let Some(whole) = of(case, form) else { continue };
            keeps_to_its_grammar(name, &syntax, prompt, whole, &golden.tools);
            read(name, &syntax, prompt, whole, message, &golden.tools);
        }
    }
    let rows: Vec<String> = rows.iter().map(|(row, names)| format!("{row}: {}", names.join(" "))).collect();
    assert_eq!((rows.join("\n"), unknown.join(" ")), (ROWS.to_owned(), UNKNOWN.to_owned()));
}

/// The part of a prompt that a model would write, without the token that ends it.
fn answer<'a>(prompt: &str, whole: &'a str) -> Option<&'a str> {
    let answer = whole.strip_prefix(prompt)?;
    let ends = [
        "<|im_end|>",
        "<|eot_id|>",
        "</s>",
        "<|eom_id|>",
        "<seed:eos>",
        "<|END_OF_TURN_TOKEN|>",
        "<|message_sep|>",
        "<end_of_sentence>",
        "[e~[",
        "<SPECIAL_12>",
        "<sep>",
        "<｜end▁of▁sentence｜>",
        "<|end_of_text|>",
        "<|role_end|>",
        "</assistant>",
        "<|end|>",
    ];
    let end = ends.iter().filter_map(|end| answer.find(end)).min().unwrap_or(answer.len());
    Some(&answer[..end])
}

/// Reads the answer of `whole` in pieces of each size.
fn read(name: &str, syntax: &ReplySyntax, prompt: &str, whole: &str, message: &Message, tools: &[Value]) {
    let Some(answer) = answer(prompt, whole) else { return };
    if message.calls.len() > 1 && !answer.contains("Oslo") {
        // Each call, or each text, is a turn of its own.
        return;
    }
    let chars: Vec<char> = answer.chars().collect();
    for size in 1..=chars.len() {
        let mut reader = ReplyReader::new(syntax.clone(), syntax.is_thinking(prompt), tools.to_vec());
        let mut parts = vec![];
        for piece in chars.chunks(size) {
            parts.extend(reader.push(&piece.iter().collect::<String>()));
        }
        parts.extend(reader.finish());
        let calls: Vec<&Call> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Call(call) => Some(call),
                _ => None,
            })
            .collect();
        let value =
            |call: &Call| (call.name.clone(), serde_json::from_str::<Value>(&call.arguments).unwrap());
        let found: Vec<_> = calls.into_iter().map(value).collect();
        let wanted: Vec<_> = message.calls.iter().map(|(_, call)| value(call)).collect();
        assert_eq!(found, wanted, "{name} in pieces of {size}: {answer:?}");
        let text: String = parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        // Some templates leave out what is said beside calls.
        let said = if answer.contains(&message.content) { message.content.as_str() } else { "" };
        assert_eq!(text.trim(), said, "{name} in pieces of {size}: {answer:?}");
    }
}

/// What a template writes is what the grammar of its calls allows, with text before the calls and without.
fn keeps_to_its_grammar(name: &str, syntax: &ReplySyntax, prompt: &str, whole: &str, tools: &[Value]) {
    let Some(answer) = answer(prompt, whole) else { return };
    let (tokenizer, compiler) = &*GRAMMARS;
    let calls = syntax.calls.unwrap();
    if syntax.is_thinking(prompt) && !answer.contains(syntax.thoughts.unwrap()[1]) {
        // The template leaves out thoughts, whose beginning is in its prompt.
        return;
    }
    if answer.contains("\\u00f6") {
        // llguidance takes a letter as it is, and not escaped.
        return;
    }
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        let is_thinking = syntax.is_thinking(prompt);
        let form = CallGrammar { tools, choice, is_single: false, thoughts: syntax.thoughts, is_thinking };
        let source = calls.grammar(&form, tokenizer);
        let (mut grammar, warnings) = compiler
            .compile(Source::Lark(source.clone()))
            .unwrap_or_else(|why| panic!("{name}: {why}\n{source}"));
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
        let mut text = answer;
        if choice == ToolChoice::Required {
            // Nothing but calls, and thoughts that the prompt has begun.
            let Some(at) = text.find(calls.marks().first().copied().unwrap_or("{")) else { continue };
            if !is_thinking {
                text = &text[at..];
            } else if !text[..at].trim().ends_with(syntax.thoughts.unwrap()[1]) {
                continue;
            }
        }
        let options = EncodeOptions { add_special: false, parse_special: false };
        let mut seen = String::new();
        for token in tokenizer.encode(text.trim_end(), options).unwrap() {
            let allowed =
                grammar.allowed().unwrap_or_else(|why| panic!("{name} after {seen:?}: {why}\n{source}"));
            let is_allowed = allowed[token as usize / 32] >> (token % 32) & 1 == 1;
            let piece = tokenizer.token_bytes(token, SpecialText::Shown);
            let piece = String::from_utf8_lossy(&piece);
            assert!(is_allowed, "{name} after {seen:?}: not {piece:?}\n{source}");
            seen.push_str(&piece);
            grammar.accept(token);
        }
        // It may end here.
        let allowed =
            grammar.allowed().unwrap_or_else(|why| panic!("{name} after {seen:?}: {why}\n{source}"));
        let ends = tokenizer.end_of_generation();
        assert!(
            ends.iter().any(|end| allowed[*end as usize / 32] >> (end % 32) & 1 == 1),
            "{name} after {seen:?}\n{source}"
        );
    }
}

static GRAMMARS: LazyLock<(Tokenizer, Compiler)> = LazyLock::new(|| {
    let tokenizer = tokenizer(&checkpoint::open(testkit::model("smollm2")).unwrap()).unwrap();
    let compiler = Compiler::new(&tokenizer, tokenizer.end_of_generation(), tokenizer.vocab_size()).unwrap();
    (tokenizer, compiler)
});

/// Definitions that a schema refers to, and special tokens around a call.
#[test]
fn grammars_have_definitions_and_special_tokens() {
    let (tokenizer, compiler) = &*GRAMMARS;
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "required": ["x"], "additionalProperties": false,
        "$defs": {"X": {"enum": [1, 2]}},
    }}});
    let call = Call { name: "f".to_owned(), arguments: "{\"x\": 1}".to_owned() };
    for (written, wrong) in [
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", "{\"x\": 3"),
        ("[TOOL_CALLS]f[ARGS]{\"x\": 1}", "{\"x\": 3"),
        ("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}]", "{\"x\": 3"),
        (
            "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
            "<parameter=x>\n3",
        ),
        ("<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", "<arg_value>3"),
    ] {
        let calls = CallSyntax::of("", written, &call).unwrap();
        let form = CallGrammar {
            tools: std::slice::from_ref(&tool),
            choice: ToolChoice::Required,
            is_single: true,
            thoughts: None,
            is_thinking: false,
        };
        let source = Source::Lark(calls.grammar(&form, tokenizer));
        let takes = |text: &str| {
            let (mut grammar, _) = compiler.compile(source.clone()).unwrap();
            let options = EncodeOptions { add_special: false, parse_special: false };
            tokenizer.encode(text, options).unwrap().into_iter().all(|token| {
                let is_allowed = grammar.allowed().unwrap()[token as usize / 32] >> (token % 32) & 1 == 1;
                if is_allowed {
                    grammar.accept(token);
                }
                is_allowed
            })
        };
        assert!(takes(written), "{written}");
        let at = written.find('1').unwrap();
        let refused = format!("{}3", &written[..at]);
        assert!(refused.ends_with(wrong), "{refused}");
        assert!(!takes(&refused), "{refused}");
        assert!(!takes("f"), "{written}");
    }
    // smollm2 has the special tokens `<|im_start|>` and `<file_sep>`: no text stands for them.
    let thoughts = Some(["<|im_start|>", "<file_sep>"]);
    let calls = CallSyntax::of("", "[TOOL_CALLS]f[ARGS]{\"x\": 1}", &call).unwrap();
    let form = CallGrammar {
        tools: &[tool],
        choice: ToolChoice::Auto,
        is_single: true,
        thoughts,
        is_thinking: false,
    };
    let (mut grammar, _) = compiler.compile(Source::Lark(calls.grammar(&form, tokenizer))).unwrap();
    let options = EncodeOptions { add_special: false, parse_special: true };
    for token in tokenizer
        .encode("<|im_start|>a thought<file_sep>said [TOOL_CALLS]f[ARGS]{\"x\": 2}", options)
        .unwrap()
    {
        let is_allowed = grammar.allowed().unwrap()[token as usize / 32] >> (token % 32) & 1 == 1;
        assert!(is_allowed, "{:?}", tokenizer.token_spelling(token));
        grammar.accept(token);
    }
}
