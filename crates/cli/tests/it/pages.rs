//! Pages and pictures: all that they must show is there, and no name of a checkpoint breaks out of them.

use std::fs;
use std::path::Path;
use std::process::Output;

use insta::assert_snapshot;
use roxmltree::{Document, Node};
use serde_json::{Map, Value, json};

use crate::files::hf_directory;
use crate::{failure, golden, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

pub(crate) fn good(args: &[&str]) -> Output {
    let output = weighbridge(args);
    assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    output
}

pub(crate) fn parsed(args: &[&str]) -> Value {
    serde_json::from_slice(&good(args).stdout).unwrap()
}

/// The groups of a picture that have this class.
fn groups<'a>(picture: &'a Document<'a>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    picture
        .descendants()
        .filter(move |node| node.has_tag_name(SVG_G) && node.attribute("class") == Some(class))
}

const SVG_G: (&str, &str) = ("http://www.w3.org/2000/svg", "g");

fn number(node: &Node<'_, '_>, name: &str) -> u64 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// A picture: well-formed, of known elements, and with nothing in it that runs or fetches.
fn picture(text: &str) -> Document<'_> {
    let picture = Document::parse(text).unwrap();
    let known = [
        "svg",
        "title",
        "desc",
        "style",
        "defs",
        "pattern",
        "line",
        "g",
        "path",
        "rect",
        "text",
        "linearGradient",
        "stop",
    ];
    for node in picture.descendants().filter(Node::is_element) {
        assert!(known.contains(&node.tag_name().name()), "{:?}", node.tag_name());
        for attribute in node.attributes() {
            assert!(
                !attribute.name().starts_with("on") && !attribute.name().contains("href"),
                "{attribute:?}"
            );
            assert!(attribute.value().replace("url(#", "").find("url(").is_none(), "{attribute:?}");
        }
    }
    has_no_odd_characters(text);
    picture
}

/// Nothing controls how a text is shown.
fn has_no_odd_characters(text: &str) {
    let turns = |c: char| matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    assert_eq!(text.chars().find(|c| c.is_control() && *c != '\n' || turns(*c)), None);
}

#[test]
fn a_picture_of_a_plan_has_every_byte_and_every_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.svg");
    let (llama, gpt2, gemma) =
        (golden().join("llama-tiny"), golden().join("gpt2-tiny"), golden().join("gemma3-tiny"));
    let runs: [(&Path, &[&str]); 9] = [
        (&llama, &[]),
        (&llama, &["--layout", "canonical"]),
        (&llama, &["--layout", "canonical", "--owned"]),
        (&llama, &["--layout", "vllm", "--tp", "2", "--rank", "1"]),
        (&llama, &["--layout", "canonical", "--encode", "*=q8_0"]),
        (&gpt2, &["--layout", "modules"]),
        (&gpt2, &["--layout", "source", "--io", "pread"]),
        (&gemma, &["--layout", "vllm"]),
        (&gemma, &["--layout", "in-place"]),
    ];
    for (model, args) in runs {
        let plan = [&["plan", path(model)], args].concat();
        let whole = [&plan[..], &["--json", "--svg", path(&file), "--force"]].concat();
        let _ = fs::remove_file(&file);
        let said = parsed(&whole);
        assert_eq!(said, parsed(&[&plan[..], &["--json"]].concat()), "{plan:?}");
        let entries = parsed(&["inspect", path(model), "--json"]);
        let text = fs::read_to_string(&file).unwrap();
        let picture = picture(&text);
        let sum =
            |class: &str, what: &str| groups(&picture, class).map(|node| number(&node, what)).sum::<u64>();
        let fact = |name: &str| said[name].as_u64().unwrap();
        assert_eq!(
            sum("entry", "data-count"),
            entries["tensors"].as_array().unwrap().len() as u64,
            "{plan:?}"
        );
        assert_eq!(sum("entry", "data-bytes"), entries["bytes"].as_u64().unwrap(), "{plan:?}");
        assert_eq!(sum("entry", "data-taken"), fact("bytes_needed"), "{plan:?}");
        assert_eq!(sum("param", "data-count"), said["params"].as_array().unwrap().len() as u64, "{plan:?}");
        assert_eq!(sum("param", "data-bytes"), fact("bytes_in_slots"), "{plan:?}");
        let filled = sum("band", "data-written") + sum("param", "data-padding");
        assert_eq!(filled, fact("bytes_in_slots"), "{plan:?}");
        let by = |way: &str| {
            let of_way = groups(&picture, "param").filter(|node| node.attribute("data-way") == Some(way));
            of_way.map(|node| number(&node, "data-bytes")).sum::<u64>()
        };
        assert_eq!(by("borrowed"), fact("bytes_borrowed"), "{plan:?}");
        if fact("bytes_decoded") == 0 {
            assert_eq!(
                (by("copied"), by("encoded")),
                (fact("bytes_copied"), fact("bytes_encoded")),
                "{plan:?}"
            );
        }
    }
}

#[test]
fn a_picture_shows_ties_and_what_is_fused_or_not_needed() {
    let words = |model: &str, args: &[&str]| {
        let model = golden().join(model);
        let output = good(&[&["plan", path(&model), "--svg", "-"], args].concat());
        let text = stdout(&output);
        let picture = picture(&text);
        let texts = picture.descendants().filter(|n| n.tag_name().name() == "text").filter_map(|n| n.text());
        // What is read in one go depends on the machine.
        let texts = texts.filter(|text| !text.contains(" read · "));
        texts.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let fused = words("llama-tiny", &["--layout", "vllm", "--tp", "2", "--rank", "1"]);
    assert_snapshot!(fused, @"
    llama-tiny → vllm layout, rank 1 of tp 2
    in the file: 21 tensors, 305 KiB
    in memory: 15 parameters, 153 KiB
    model.embed_tokens.weight
    [128, 64] f32, 32.0 KiB, 16.0 KiB taken
    2 × model.layers.{n}.input_layernorm.weight
    [64] f32, 512 B
    2 × model.layers.{n}.self_attn.q_proj.weight
    [64, 64] f32, 32.0 KiB, 16.0 KiB taken
    2 × model.layers.{n}.self_attn.k_proj.weight
    [32, 64] f32, 16.0 KiB, 8.0 KiB taken
    2 × model.layers.{n}.self_attn.v_proj.weight
    [32, 64] f32, 16.0 KiB, 8.0 KiB taken
    2 × model.layers.{n}.self_attn.o_proj.weight
    [64, 64] f32, 32.0 KiB, 16.0 KiB taken
    2 × model.layers.{n}.post_attention_layernorm.weight
    [64] f32, 512 B
    2 × model.layers.{n}.mlp.gate_proj.weight
    [96, 64] f32, 48.0 KiB, 24.0 KiB taken
    2 × model.layers.{n}.mlp.up_proj.weight
    [96, 64] f32, 48.0 KiB, 24.0 KiB taken
    2 × model.layers.{n}.mlp.down_proj.weight
    [64, 96] f32, 48.0 KiB, 24.0 KiB taken
    model.norm.weight
    [64] f32, 256 B
    lm_head.weight
    [128, 64] f32, 32.0 KiB, 16.0 KiB taken
    model.embed_tokens.weight
    f32, 16.0 KiB: mapped
    2 × model.layers.{n}.input_layernorm.weight
    f32, 512 B: mapped
    2 × model.layers.{n}.self_attn.qkv_proj.weight
    f32, 32.0 KiB: fused of 3, a slice, copied
    2 × model.layers.{n}.self_attn.o_proj.weight
    f32, 16.0 KiB: a slice, copied
    2 × model.layers.{n}.post_attention_layernorm.weight
    f32, 512 B: mapped
    2 × model.layers.{n}.mlp.gate_up_proj.weight
    f32, 48.0 KiB: fused of 2, a slice, copied
    2 × model.layers.{n}.mlp.down_proj.weight
    f32, 24.0 KiB: a slice, copied
    model.norm.weight
    f32, 256 B: mapped
    lm_head.weight
    f32, 16.0 KiB: mapped
    f32
    mapped: used where it lies in the file
    copied: moved as it is
    not taken
    20.0 KiB, on either side; no bar is lower than 2 px
    ");
    let tied = words("gemma3-tiny", &["--layout", "canonical"]);
    assert!(tied.contains("output.weight\ntied to token_embedding.weight"), "{tied}");
    let ranks = words("llama-tiny", &["--layout", "vllm", "--tp", "2", "--pp", "2", "--all-ranks"]);
    for said in
        ["vllm layout on tp 2 × pp 2", "rank 3: tp 1, pp 1", "all ranks", "2×", "taken by several ranks"]
    {
        assert!(ranks.contains(said), "{said}: {ranks}");
    }
}

#[test]
fn a_picture_of_ranks_has_what_each_takes() {
    let llama = golden().join("llama-tiny");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ranks.svg");
    for mesh in [&["--tp", "2"][..], &["--tp", "2", "--pp", "2"], &["--pp", "2"]] {
        let _ = fs::remove_file(&file);
        let args = [
            &["plan", path(&llama), "--layout", "vllm", "--all-ranks", "--json", "--svg", path(&file)],
            mesh,
        ];
        let said = parsed(&args.concat());
        let text = fs::read_to_string(&file).unwrap();
        let picture = picture(&text);
        let taken = |row: Node<'_, '_>| {
            let shares = row.children().filter(|node| node.attribute("class") == Some("share"));
            shares.map(|node| number(&node, "data-taken")).sum::<u64>()
        };
        let rows: Vec<u64> = groups(&picture, "rank").map(taken).collect();
        let wanted: Vec<u64> =
            said["ranks"].as_array().unwrap().iter().map(|r| r["bytes_needed"].as_u64().unwrap()).collect();
        assert_eq!(rows, wanted, "{mesh:?}");
    }
}

/// Names that try to break out of markup, of scripts, of lines, of the page.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "</script><script>alert(1)</script>",
        "</SCRIPT ><!--<script>",
        "<img src=x onerror=alert(1)>",
        "\"><svg onload=alert(1)>",
        "' onmouseover='alert(1)",
        "</title></style></text><a href=\"https://example.com\">",
        "]]>&amp;&#x3c;b&#x3e;",
        "a\u{202e}b\u{2066}c\u{200f}",
        "line\u{2028}line\u{2029}\u{feff}\u{fffe}",
        "url(https://example.com/x)",
        "{n}.{rest..}.3",
        "\\u003c/script\\u003e",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(1 << 20));
    names.extend((0..100).map(|n| format!("{}{n}", char::from(b'a' + n % 26))));
    names
}

/// A file with a tensor of each name.
fn with_names(file: &Path, names: &[String], value: f32) {
    let mut header = Map::new();
    let mut data = vec![];
    for name in names {
        let start = data.len();
        data.extend([value, 1.0].iter().flat_map(|f| f.to_le_bytes()));
        header.insert(
            name.clone(),
            json!({"dtype": "F32", "shape": [1, 2], "data_offsets": [start, data.len()]}),
        );
    }
    fs::write(file, testkit::fixture::safetensors_bytes(&Value::from(header).to_string(), &data)).unwrap();
}

/// The tags of a page as a browser finds them: none within a script or a style.
fn tags(page: &str) -> Vec<&str> {
    let (mut tags, mut rest) = (vec![], page);
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').unwrap();
        tags.push(tag);
        rest = match tag.split(' ').next() {
            Some(raw @ ("script" | "style")) => &after[after.find(&format!("</{raw}")).unwrap()..],
            _ => after,
        };
    }
    tags
}

/// Checks a page, and returns the rows that its script shows.
pub(crate) fn rows(page: &str) -> Vec<Value> {
    has_no_odd_characters(page);
    assert!(page.contains("default-src 'none'"));
    assert_eq!(page.to_lowercase().matches("<script").count(), 2);
    assert_eq!(page.to_lowercase().matches("</script").count(), 2);
    let known = [
        "!DOCTYPE",
        "!--",
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "span",
        "i",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "g",
        "rect",
        "line",
        "circle",
        "text",
        "tspan",
        "details",
        "summary",
        "figure",
        "figcaption",
        "ul",
        "li",
        "section",
        "input",
        "script",
    ];
    for tag in tags(page) {
        let name = tag.trim_start_matches('/').split(' ').next().unwrap();
        assert!(known.contains(&name), "<{tag}>");
        for outside in [" src=", " href=", " onload", " onerror", " onmouse", "url(", "http:", "https:"] {
            assert!(!tag.contains(outside), "<{tag}>");
        }
    }
    let (_, data) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    data.as_array().unwrap().clone()
}

/// The names that the script makes of a row.
fn names(row: &Value) -> Vec<String> {
    let texts = |value: &Value| -> Vec<String> {
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        value.as_array().unwrap().iter().map(text).collect()
    };
    let (parts, numbers) = (texts(&row[0]), texts(&row[1]));
    if parts.len() == 1 {
        return parts;
    }
    let name = |numbers: &[String]| {
        parts
            .iter()
            .zip(numbers.iter().map(String::as_str).chain([""]))
            .map(|(p, n)| format!("{p}{n}"))
            .collect()
    };
    numbers.chunks(parts.len() - 1).map(name).collect()
}

#[test]
fn hostile_names_stay_within_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("<b>a.safetensors"), dir.path().join("b.safetensors"));
    with_names(&a, &hostile(), 1.0);
    with_names(&b, &hostile(), 2.0);
    let shown = stdout(&good(&["plan", path(&a), "--layout", "source", "--svg", "-"]));
    let drawn = picture(&shown);
    let count: u64 = groups(&drawn, "entry").map(|node| number(&node, "data-count")).sum();
    assert_eq!(count, hostile().len() as u64);
    assert!(shown.len() < 200_000, "{}", shown.len());
    let page = stdout(&good(&["inspect", path(&a), "--html", "-"]));
    assert_eq!(rows(&page).iter().map(|row| names(row).len()).sum::<usize>(), hostile().len());
    assert!(page.len() < 300_000, "{}", page.len());
    assert!(!page.contains("<b>a") && page.contains("&lt;b&gt;a"));
    let output = weighbridge(["diff", path(&a), path(&b), "--html", "-"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let page = stdout(&output);
    assert_eq!(rows(&page).len(), hostile().len());
    assert!(page.len() < 300_000, "{}", page.len());
}

#[test]
fn a_page_of_a_checkpoint_has_every_tensor() {
    let (dir, model) = (tempfile::tempdir().unwrap(), golden().join("llama-tiny"));
    let file = dir.path().join("page.html");
    let text = good(&["inspect", path(&model)]);
    assert_eq!(good(&["inspect", path(&model), "--html", path(&file)]).stdout, text.stdout);
    let page = fs::read_to_string(&file).unwrap();
    let mut shown: Vec<String> = rows(&page).iter().flat_map(names).collect();
    let said = parsed(&["inspect", path(&model), "--json"]);
    let mut wanted: Vec<String> =
        said["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect();
    shown.sort();
    wanted.sort();
    assert_eq!(shown, wanted);
    for said in ["bytes by layer", "configuration", "num_attention_heads", "2 layers of model.layers.{n}"] {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn a_page_of_a_difference_has_every_parameter() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::create_dir(&a).unwrap();
    fs::create_dir(&b).unwrap();
    hf_directory(&a, |_| {});
    hf_directory(&b, |tensors| {
        for (name, _, data) in tensors {
            if name == "model.layers.1.mlp.up_proj.weight" {
                data[1] ^= 0x40;
            }
        }
    });
    let file = dir.path().join("diff.html");
    let output = weighbridge(["diff", path(&a), path(&b), "--json", "--html", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = fs::read_to_string(&file).unwrap();
    let shown = rows(&page);
    assert_eq!(shown.len(), said["parameters"].as_array().unwrap().len());
    // The worst comes first.
    assert_eq!(names(&shown[0]), ["layers.1.ffn.up.weight"]);
    assert!(page.contains("relative error by layer") && page.contains("layer 1, "), "{page}");
    let (once, twice) = (page, stdout(&weighbridge(["diff", path(&a), path(&b), "--html", "-"])));
    assert!(once == twice, "two runs make two pages");
}

#[test]
fn a_page_is_written_where_nothing_else_is() {
    let (dir, model) = (tempfile::tempdir().unwrap(), golden().join("llama-tiny"));
    let (file, folder) = (dir.path().join("page.svg"), dir.path());
    let plan = |more: &[&str]| failure(&[&["plan", path(&model)], more].concat(), folder);
    fs::write(&file, "mine").unwrap();
    assert_snapshot!(plan(&["--svg", path(&file)]), @"
    error: `page.svg`: already exists
    hint: `--force` replaces the file if weighbridge wrote it
    exit code 2
    ");
    assert_snapshot!(plan(&["--svg", path(&file), "--force"]), @"
    error: `page.svg` was not written by weighbridge, so it is not replaced
    hint: name another file
    exit code 2
    ");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    fs::remove_file(&file).unwrap();
    good(&["plan", path(&model), "--svg", path(&file)]);
    let first = fs::read(&file).unwrap();
    good(&["plan", path(&model), "--layout", "canonical", "--svg", path(&file), "--force"]);
    assert_ne!(fs::read(&file).unwrap(), first);
    good(&["inspect", path(&model), "--html", path(&file), "--force"]);
    let sub = folder.join("sub");
    fs::create_dir(&sub).unwrap();
    assert_snapshot!(plan(&["--svg", path(&sub), "--force"]), @"
    error: `sub` is a directory, wanted the name of a file
    exit code 2
    ");
    assert_snapshot!(plan(&["--svg", path(&sub.join("no/page.svg"))]), @"
    error: `sub/no`: there is no such directory
    hint: create it first
    exit code 2
    ");
    let output = weighbridge(["plan", path(&model), "--svg", "-", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["error"], "`--json` and `--svg -` both write to standard output");
    assert_eq!(output.status.code(), Some(2));
    assert!(plan(&["--force"]).ends_with("exit code 2"));
    // What cannot be planned is not drawn.
    let missing = sub.join("missing.svg");
    assert!(plan(&["--layout", "vllm", "--tp", "3", "--svg", path(&missing)]).starts_with("error: "));
    assert!(!missing.exists());
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
