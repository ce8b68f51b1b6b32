//! Pages of evaluations and of choices: their figures are those of `--json`, and no name breaks out of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::pages::{good, parsed, rows};
use crate::{failure, golden, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn holmes() -> String {
    path(&testkit::golden("eval").join("holmes.txt")).to_owned()
}

/// The text between `before` and `after`, as often as there is any.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).map(|rest| rest.split(after).next().unwrap()).collect()
}

/// The cells of all rows of all tables: what is shown, and the number that it sorts by.
fn cells(page: &str) -> Vec<Vec<(String, Option<f64>)>> {
    let cell = |cell: &str| {
        let (tag, text) = cell.split_once('>').unwrap();
        let value = between(tag, "data-value=\"", "\"").first().map(|value| value.parse().unwrap());
        (text.to_owned(), value)
    };
    let row = |row: &str| between(row, "<td", "</td>").into_iter().map(cell).collect::<Vec<_>>();
    between(page, "<tr>", "</tr>").into_iter().map(row).filter(|cells| !cells.is_empty()).collect()
}

/// The number in the row that begins with `name`.
fn figure(page: &str, name: &str) -> f64 {
    let found = cells(page).into_iter().find(|row| row[0].0 == name);
    found.unwrap_or_else(|| panic!("no row `{name}`"))[1].1.unwrap()
}

/// Returns true if two numbers are the same but for the last digits, which reading JSON may change.
fn same(a: Option<f64>, b: Option<f64>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if (a - b).abs() <= 1e-12 * b.abs())
}

/// The number of elements of this name.
fn count(page: &str, tag: &str) -> usize {
    page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count()
}

/// smollm2 in other encodings, with `eval --json` and a page of each, against smollm2.
fn evaluated(dir: &Path, preset: &str) -> (Value, String, PathBuf) {
    let (source, text) = (model("smollm2"), holmes());
    let (small, page) = (dir.join(format!("{preset}.gguf")), dir.join(format!("{preset}.html")));
    good(&["convert", path(&source), path(&small), "--preset", preset, "--allow-requantize"]);
    let args =
        ["eval", path(&small), "-f", &text, "--chunks", "3", "--ctx", "64", "--against", path(&source)];
    let document = parsed(&[&args[..], &["--json", "--html", path(&page)]].concat());
    let json = dir.join(format!("{preset}.json"));
    fs::write(&json, document.to_string()).unwrap();
    (document, fs::read_to_string(page).unwrap(), json)
}

#[test]
fn a_page_of_an_evaluation_has_the_figures_of_the_document_and_so_has_that_of_several() {
    let dir = TempDir::new().unwrap();
    let (first, page, q4) = evaluated(dir.path(), "q4_0");
    assert!(rows(&page).is_empty());
    let (text, size) = (&first["text"], &first["size"]);
    let against = &text["against"];
    let mean = |of: &Value| of["value"].as_f64().unwrap();
    for (name, wanted) in [
        ("perplexity", mean(&text["perplexity"])),
        ("perplexity of the other model", mean(&against["perplexity"])),
        ("ratio", mean(&against["ratio"])),
        ("KL divergence", mean(&against["kl"])),
        ("KL divergence, median", against["kl_median"].as_f64().unwrap()),
        ("KL divergence, 99 %", against["kl_99"].as_f64().unwrap()),
        ("KL divergence, largest", against["kl_max"].as_f64().unwrap()),
        ("same most likely token", mean(&against["top1"])),
        ("of the five most likely", mean(&against["top5"])),
    ] {
        assert!(same(Some(figure(&page, name)), Some(wanted)), "{name}");
    }
    // Every bin, chunk and range of positions: as many marks as rows, and their figures.
    let bins = against["kl_histogram"].as_array().unwrap();
    let tokens: u64 = bins.iter().map(|bin| bin["tokens"].as_u64().unwrap()).sum();
    assert_eq!((tokens, bins.len(), page.matches("class=\"column\"").count()), (3 * 31, 17, 17));
    let (chunks, positions) = (text["by_chunk"].as_array().unwrap(), text["by_position"].as_array().unwrap());
    assert_eq!((chunks.len(), positions.len()), (3, 16));
    assert_eq!(page.matches("class=\"point\"").count(), 3 * (3 + 16));
    let all = cells(&page);
    for part in chunks.iter().chain(positions) {
        let wanted = [&part["perplexity"], &part["kl"], &part["top1"]].map(|of| Some(mean(of)));
        let is_there = |row: &&Vec<(String, Option<f64>)>| {
            row.len() == 5 && row[2..].iter().zip(wanted).all(|(cell, wanted)| same(cell.1, wanted))
        };
        assert_eq!(all.iter().filter(is_there).count(), 1, "{part}");
    }
    // Parts are of the whole.
    let sum = |parts: &[Value]| -> f64 {
        parts.iter().map(|part| mean(&part["kl"]) * part["tokens"].as_f64().unwrap()).sum::<f64>()
    };
    for parts in [chunks, positions] {
        assert!((sum(parts) / (3.0 * 31.0) / mean(&against["kl"]) - 1.0).abs() < 1e-9);
    }
    let bytes = fs::metadata(dir.path().join("q4_0.gguf")).unwrap().len();
    assert_eq!((size["bytes"].as_u64(), size["parameters"].as_u64()), (Some(bytes), Some(134_515_008)));

    let (second, _, q8) = evaluated(dir.path(), "q8_0");
    let both = dir.path().join("both.html");
    // The smallest comes first, whatever the order.
    let text = stdout(&good(&["report", path(&q8), path(&q4), "--html", path(&both)]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines[1].contains("q4_0.gguf") && lines[2].contains("q8_0.gguf"), "{text}");
    let page = fs::read_to_string(both).unwrap();
    assert!(rows(&page).is_empty());
    let all = cells(&page);
    let of_models: Vec<_> = all.iter().filter(|row| row.len() == 11).collect();
    assert_eq!(of_models.len(), 3);
    for (row, document) in of_models.iter().zip([&first, &second]) {
        let text = &document["text"];
        let against = &text["against"];
        let wanted = [
            document["size"]["bytes"].as_f64(),
            document["size"]["bits"].as_f64(),
            Some(mean(&text["perplexity"])),
            Some(mean(&against["ratio"])),
            Some(mean(&against["kl"])),
            against["kl_median"].as_f64(),
            against["kl_99"].as_f64(),
            Some(mean(&against["top1"])),
            Some(mean(&against["top5"])),
        ];
        assert!(row.len() == 2 + wanted.len(), "{row:?}");
        assert!(row[2..].iter().zip(wanted).all(|(cell, wanted)| same(cell.1, wanted)), "{row:?}");
    }
    let source = fs::metadata(model("smollm2")).unwrap().len() as f64;
    assert_eq!(of_models[2][2].1, Some(source));
    // A point for each model in two plots, and the reference in one of them.
    assert_eq!((page.matches("class=\"point\"").count(), page.matches("class=\"hollow\"").count()), (5, 1));
    assert_eq!(text, stdout(&good(&["report", path(&q4), path(&q8)])));
}

/// Names that try to break out of a page.
const HOSTILE: [&str; 4] = [
    "</script><script>alert(1)</script>",
    "\"><svg onload=alert(1)>",
    "</text></svg><img src=x onerror=alert(1)>",
    "a\u{202e}b\u{2028}c",
];

#[test]
fn hostile_names_stay_within_a_report_and_what_does_not_compare_is_named() {
    let dir = TempDir::new().unwrap();
    let (source, text) = (model("smollm2"), holmes());
    let tasks = testkit::golden("tasks").join("arc.jsonl");
    let (odd, text_file) =
        (dir.path().join("<img src=x onerror=alert(1)>.gguf"), dir.path().join("\"><b>.txt"));
    std::os::unix::fs::symlink(&source, &odd).unwrap();
    fs::copy(&text, &text_file).unwrap();
    let args = [
        "eval",
        path(&odd),
        "-f",
        path(&text_file),
        "--chunks",
        "2",
        "--ctx",
        "256",
        "--against",
        path(&odd),
    ];
    let args = [&args[..], &["--task", path(&tasks)]].concat();
    let page = stdout(&good(&[&args[..], &["--html", "-"]].concat()));
    assert!(rows(&page).is_empty());
    assert!(
        page.contains("multiple-choice tasks") && page.contains("&lt;img src=x onerror=alert(1)&gt;.gguf")
    );
    assert!(!page.contains("<img") && !page.contains("<b>"));
    let document = parsed(&[&args[..], &["--json"]].concat());
    assert_eq!(document["text"]["against"]["kl"]["value"], 0.0);

    let files: Vec<PathBuf> = HOSTILE
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let mut document = document.clone();
            for place in ["model", "against"] {
                document[place] = Value::from(format!("{name}/{name}"));
            }
            document["text"]["path"] = Value::from(*name);
            let file = dir.path().join(format!("{n}.json"));
            fs::write(&file, document.to_string()).unwrap();
            file
        })
        .collect();
    let names: Vec<&str> = files.iter().map(|file| path(file)).collect();
    let page = stdout(&good(&[&["report"], &names[..], &["--html", "-"]].concat()));
    assert!(rows(&page).is_empty());
    assert!(count(&page, "circle") > 4, "{page}");

    // All that is wrong comes at once.
    let mut other = document.clone();
    other["text"]["chunks"] = Value::from(9);
    other["tasks"] = Value::Array(vec![]);
    fs::write(dir.path().join("other.json"), other.to_string()).unwrap();
    fs::write(dir.path().join("broken.json"), "{\"model\": 3}").unwrap();
    let at = |name: &str| path(&dir.path().join(name)).to_owned();
    let said = failure(
        &["report", &at("0.json"), &at("other.json"), &at("broken.json"), &at("none.json")],
        dir.path(),
    );
    for part in [
        "`broken.json` is not what `eval --json` prints: invalid type",
        "cannot read `none.json`",
        "`other.json` has the tasks none, and `0.json` `arc`",
        "`other.json` has scored 9 chunks, and `0.json` 2 chunks",
        "hint: evaluate all models on the same text",
        "exit code 1",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_page_of_a_choice_has_every_matrix() {
    let (dir, tiny) = (TempDir::new().unwrap(), golden().join("llama-tiny"));
    let (file, made) = (dir.path().join("choice.html"), dir.path().join("small.gguf"));
    let args = ["compress", path(&tiny), path(&made), "--target", "6"];
    let plan = [&args[..], &["--plan", "--json", "--html", path(&file)]].concat();
    let document = parsed(&plan);
    assert!(!made.exists());
    let page = fs::read_to_string(&file).unwrap();
    let matrices = document["matrices"].as_array().unwrap();
    let shown = rows(&page);
    assert_eq!(shown.len(), matrices.len());
    for (row, matrix) in shown.iter().zip(matrices) {
        let chosen =
            matrix["candidates"].as_array().unwrap().iter().find(|c| c["scheme"] == matrix["to"]).unwrap();
        assert_eq!((&row[0][0], &row[4]), (&matrix["name"], &matrix["to"]));
        for (cell, wanted) in
            [(5, &matrix["bits"]), (6, &matrix["bytes"]), (7, &chosen["error"]), (8, &chosen["cost"])]
        {
            assert_eq!(row[cell][1].as_f64(), wanted.as_f64(), "{row}");
        }
    }
    // A cell for each matrix of a layer in each of two maps: two layers of seven, and what the maps mean.
    assert_eq!(
        between(&page, "class=\"heat\"", "</figure>").iter().map(|map| count(map, "rect")).sum::<usize>(),
        2 * 14
    );
    let of_kinds: f64 = cells(&page).iter().filter(|row| row.len() == 7).map(|row| row[4].1.unwrap()).sum();
    let bytes: f64 = matrices.iter().map(|m| m["bytes"].as_f64().unwrap()).sum();
    assert!(same(Some(of_kinds), Some(bytes)), "{of_kinds} of {bytes}");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        stdout(&good(&[&args[..], &["--plan", "--html", "-"]].concat()))
    );

    // Its own `--force` replaces the page too, and nothing that is not ours.
    good(&[&args[..], &["--force", "--html", path(&file)]].concat());
    assert!(made.exists());
    fs::write(&file, "mine").unwrap();
    let output = weighbridge([&args[..], &["--force", "--html", path(&file)]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}
