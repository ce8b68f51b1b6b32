//! Chat templates are programs of strangers.

use std::time::{Duration, Instant};

use serde_json::Value;
use weighbridge_engine::text::{ChatTemplate, Conversation, Message};

use crate::models;

fn message(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

/// A conversation of one turn.
fn x() -> Conversation {
    Conversation::new(vec![message("user", "x")])
}

/// The output of `golden/tokenizer/chat.py`: prompts that Jinja2 renders from templates of real models and our own.
#[test]
fn prompts_are_those_of_jinja2() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/tokenizer/chat.json");
    let templates: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(templates.len() >= 16);
    for template in &templates {
        let name = template["gguf"].as_str().or(template["name"].as_str()).unwrap();
        let source = template["source"].as_str().map_or_else(|| embedded(name), str::to_owned);
        let compiled = ChatTemplate::new(&source).unwrap();
        let cases = template["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let messages = case["messages"].as_array().unwrap().iter();
            let messages: Vec<_> = messages
                .map(|m| message(m["role"].as_str().unwrap(), m["content"].as_str().unwrap()))
                .collect();
            let add_generation_prompt = case["add_generation_prompt"].as_bool().unwrap();
            let conversation = Conversation { add_generation_prompt, ..Conversation::new(messages) };
            let found = compiled.render(&conversation, "<s>", "</s>");
            match case["prompt"].as_str() {
                Some(prompt) => assert_eq!(found.unwrap(), prompt, "{name}"),
                None => {
                    let said = found.unwrap_err().to_string();
                    assert!(said.contains(case["refused"].as_str().unwrap()), "{name}: {said}");
                }
            }
        }
    }
}

/// The template inside a GGUF file.
fn embedded(file: &str) -> String {
    let path = match file.strip_suffix(".gguf").filter(|name| !name.starts_with("ggml-vocab")) {
        Some(name) => testkit::model(name),
        None => models::path("ggml-vocabs", file),
    };
    let checkpoint = checkpoint::open(&path).unwrap();
    let metadata = checkpoint.metadata().gguf().unwrap();
    metadata.str("tokenizer.chat_template").unwrap().unwrap().to_owned()
}

/// Features that templates of other models use: trimmed blocks, methods of Python, macros, slices, namespaces.
#[test]
fn the_jinja_of_real_templates_is_understood() {
    let render = |source: &str| {
        let messages = vec![message("system", " S "), message("user", "a"), message("assistant", "b")];
        ChatTemplate::new(source).unwrap().render(&Conversation::new(messages), "<s>", "</s>").unwrap()
    };
    assert_eq!(
        render(
            "{%- for m in messages -%}\n  {{ m.role.upper() }}:{{ m['content'].strip() }}|\n{%- endfor %}"
        ),
        "SYSTEM:S|USER:a|ASSISTANT:b|"
    );
    assert_eq!(
        render(
            "{% if messages[0].role == 'system' %}\n{% set rest = messages[1:] %}\n{% endif %}\n{{ rest|length }}"
        ),
        "2"
    );
    assert_eq!(
        render(
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"
        ),
        "3"
    );
    assert_eq!(
        render("{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say(bos_token + eos_token) }}"),
        "[<s></s>]"
    );
    assert_eq!(
        render("{{ messages[1]|tojson }}{{ 'x' if tools else 'none' }}"),
        r#"{"role": "user", "content": "a"}none"#
    );
    assert_eq!(
        render("{{ messages[1].content.startswith('a') and not messages[2].content.endswith('a') }}"),
        "True"
    );
}

#[test]
fn a_template_may_refuse_a_conversation() {
    let template = ChatTemplate::new("{{ raise_exception('roles must alternate') }}").unwrap();
    let error = template.render(&x(), "", "").unwrap_err();
    assert_eq!(error.to_string(), "`chat_template`: roles must alternate (line 1)");
}

#[test]
fn a_template_that_does_not_end_or_grows_is_stopped() {
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let deep = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    let large = "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{{ ns.s }}{% endfor %}";
    let wide = "{% for i in range(1000000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}";
    for source in [endless, deep, large, wide] {
        let started = Instant::now();
        let template = ChatTemplate::new(source).unwrap();
        let error = template.render(&x(), "", "").unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(5), "{source}: {:?} {error}", started.elapsed());
    }
}

#[test]
fn what_is_no_template_is_an_error() {
    let error = ChatTemplate::new("{% for m in messages %}").err().unwrap().to_string();
    assert!(error.starts_with("`chat_template`: ") && error.contains("(line 1)"), "{error}");
    assert!(ChatTemplate::new(&"x".repeat(2 << 20)).is_err());
    // Nothing of the machine can be reached.
    for source in ["{% include '/etc/passwd' %}", "{% import 'x' as x %}", "{% extends 'x' %}"] {
        let error = ChatTemplate::new(source).err().unwrap().to_string();
        assert!(error.contains("wants another template"), "{error}");
    }
    let template = ChatTemplate::new("{{ open('/etc/passwd') }}").unwrap();
    assert!(template.render(&x(), "", "").is_err());
}
