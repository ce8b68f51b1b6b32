//! Chat templates are programs of strangers.

use std::time::{Duration, Instant};

use weighbridge_engine::text::{ChatTemplate, Message};

use crate::models;

fn message(role: &str, content: &str) -> Message {
    Message { role: role.to_owned(), content: content.to_owned() }
}

/// The template of a real model, as transformers' Jinja renders it (written out from the template).
#[test]
fn smollm2_renders_as_it_was_trained() {
    let checkpoint = models::open("smollm2");
    let source = checkpoint.metadata().gguf().unwrap().str("tokenizer.chat_template").unwrap().unwrap();
    let template = ChatTemplate::new(source).unwrap();
    let messages =
        [message("user", "Hi <b>&amp;</b>"), message("assistant", "Hello."), message("user", "Bye\n")];
    let text = template.render(&messages, true, "<s>", "</s>").unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nHi <b>&amp;</b><|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n\
         <|im_start|>user\nBye\n<|im_end|>\n<|im_start|>assistant\n"
    );
    let own = template.render(&[message("system", "Be brief."), messages[0].clone()], false, "", "").unwrap();
    assert_eq!(own, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b>&amp;</b><|im_end|>\n");
}

/// What templates of other models use: trimmed blocks, methods of Python, macros, slices, namespaces.
#[test]
fn the_jinja_of_real_templates_is_understood() {
    let render = |source: &str| {
        let messages = [message("system", " S "), message("user", "a"), message("assistant", "b")];
        ChatTemplate::new(source).unwrap().render(&messages, true, "<s>", "</s>").unwrap()
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
    let error = template.render(&[message("user", "x")], true, "", "").unwrap_err();
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
        let error = template.render(&[message("user", "x")], true, "", "").unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(5), "{source}: {:?} {error}", started.elapsed());
    }
}

#[test]
fn what_is_no_template_is_an_error() {
    let error = ChatTemplate::new("{% for m in messages %}").err().unwrap().to_string();
    assert!(error.starts_with("`chat_template`: ") && error.contains("(line 1)"), "{error}");
    assert!(ChatTemplate::new(&"x".repeat(2 << 20)).is_err());
    // Nothing of the machine can be reached.
    for source in ["{% include '/etc/passwd' %}", "{% import 'x' as x %}", "{{ open('/etc/passwd') }}"] {
        let template = ChatTemplate::new(source).unwrap();
        assert!(template.render(&[message("user", "x")], true, "", "").is_err(), "{source}");
    }
}
