//! `tokenize`, as a user sees it, and `run --chat-template`.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{failure, model, stdout, weighbridge};

/// A directory with a small tokenizer.json of words.
fn words(change: impl Fn(&mut Value)) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": true,
                          "normalized": false, "special": true}],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "BertProcessing", "cls": ["<s>", 3], "sep": ["a\nb", 2]},
        "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "hello": 1, "a\nb": 2}},
    });
    change(&mut file);
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn it_shows_ids_and_pieces() {
    let smollm2 = model("smollm2");
    let smollm2 = smollm2.to_str().unwrap();
    assert_snapshot!(stdout(&weighbridge(["tokenize", smollm2, "Hello, wörld\n<|im_end|>"])), @"
    19556  Hello
       28  ,
      267  Ġw
    29989  Ã¶r
      400  ld
      198  Ċ
        2  <|im_end|>
    ");
    assert_snapshot!(stdout(&weighbridge(["tokenize", smollm2, "<|im_end|>", "--special-as-text"])), @"
     44  <
    108  |
    306  im
     79  _
    486  end
    108  |
     46  >
    ");
    assert_snapshot!(stdout(&weighbridge(["tokenize", smollm2, "19556, 28 905", "--decode"])), @"Hello, world");
    let (_dir, file) = words(|_| ());
    assert_snapshot!(stdout(&weighbridge(["tokenize", &file, "HELLO <s>  you"])), @r#"
    3  <s>
    1  hello
    3  <s>
    0  [UNK]
    2  a\nb
    "#);
    assert_snapshot!(stdout(&weighbridge(["tokenize", &file, "HELLO", "--no-special"])), @"1  hello");
    assert_snapshot!(stdout(&weighbridge(["tokenize", &file, "3 1", "--decode", "--no-special"])), @"hello");
}

#[test]
fn json_has_what_is_known() {
    let (_dir, file) = words(|f| f["foo"] = json!(1));
    assert_snapshot!(stdout(&weighbridge(["tokenize", &file, "hello", "--json"])), @r#"
    {
      "tokenizer": "tokenizers WordLevel",
      "vocabulary": 4,
      "text": "hello",
      "count": 3,
      "tokens": [
        {
          "id": 3,
          "token": "<s>"
        },
        {
          "id": 1,
          "token": "hello"
        },
        {
          "id": 2,
          "token": "a\nb"
        }
      ],
      "notes": [
        {
          "file": "tokenizer.json",
          "field": "foo",
          "why": "what it does is not known"
        }
      ]
    }
    "#);
    assert_snapshot!(stdout(&weighbridge(["tokenize", &file, "1", "--decode", "--json"])), @r#"
    {
      "tokenizer": "tokenizers WordLevel",
      "vocabulary": 4,
      "text": "hello",
      "count": 1,
      "tokens": [
        {
          "id": 1,
          "token": "hello"
        }
      ],
      "notes": [
        {
          "file": "tokenizer.json",
          "field": "foo",
          "why": "what it does is not known"
        }
      ]
    }
    "#);
}

#[test]
fn what_cannot_be_followed_is_told_field_by_field() {
    let (dir, file) = words(|f| {
        f["normalizer"] = json!({"type": "Foo"});
        f["model"]["unk_token"] = json!(7);
    });
    assert_snapshot!(failure(&["tokenize", &file, "x"], dir.path()), @"
    error: `tokenizer.json`: `tokenizer.json` cannot be followed exactly
      `normalizer.type`: `Foo` is not supported, only BertNormalizer, Strip, StripAccents, NFC, NFD, NFKC, NFKD, Lowercase, Nmt, Precompiled, Replace, Prepend, ByteLevel, Sequence
      `model.unk_token`: wanted a string, found `7`
    exit code 1
    ");
    let (dir, file) = words(|_| ());
    assert_snapshot!(failure(&["tokenize", &file, "--decode", "1,x"], dir.path()), @"
    error: `x` is not a token id: wanted a number below 4
    exit code 2
    ");
}

#[test]
fn a_chat_template_of_the_users_overrides_the_models() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jinja");
    // The model continues the template's text: 8 tokens, or 1.
    let prompt_tokens = |template: &str| {
        std::fs::write(&path, template).unwrap();
        let smollm2 = model("smollm2");
        let args = ["run", smollm2.to_str().unwrap(), "-p", "Hi", "-n", "1", "--json", "--chat-template"];
        let output = weighbridge(args.into_iter().chain([path.to_str().unwrap()]));
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        facts["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(prompt_tokens("{{ messages[0].content }}"), 1);
    assert_eq!(prompt_tokens("<|im_start|>user\n{{ messages[0].content }}<|im_end|>"), 5);
    std::fs::write(&path, "{{ raise_exception('no') }}").unwrap();
    let smollm2 = model("smollm2");
    let args = ["run", smollm2.to_str().unwrap(), "-p", "Hi", "--chat-template", path.to_str().unwrap()];
    let stderr = String::from_utf8(weighbridge(args).stderr).unwrap();
    assert!(stderr.ends_with("t.jinja`: `chat_template`: no (line 1)\n"), "{stderr}");
}
