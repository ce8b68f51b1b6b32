//! Files at the edges of formats that are read or rejected, compared with the reference readers: the tables of
//! docs/strictness.md show golden/strictness/cases.json and the results of this crate, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    format: String,
    what: String,
    why: String,
    suffix: String,
    content: String,
    references: BTreeMap<String, String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The bytes of a text in base64 (RFC 4648, section 4).
fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut out, mut bits, mut held) = (vec![], 0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        bits = bits << 6 | u32::from(digit(c));
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    out
}

/// Returns the result for a file: `reads`, or the message without the hint.
fn asked(case: &Case, dir: &Path) -> String {
    let path = dir.join(format!("f{}", case.suffix));
    std::fs::write(&path, base64(&case.content)).unwrap();
    match checkpoint::open(&path) {
        Ok(_) => "reads".to_owned(),
        Err(error) => {
            let text = error.to_string().replace(&path.display().to_string(), "FILE");
            let lines = text.lines().map(str::trim);
            let text = lines.collect::<Vec<_>>().join(" ");
            // Names of zero bytes and the like are shown as escapes; a table cell must not end early.
            let cut: String = text.chars().take(160).collect();
            format!("refuses: {}", cut.replace('|', "\\|"))
        }
    }
}

/// The tables, one a format.
fn tables(cases: &[Case]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut out = String::new();
    let mut last = "";
    for case in cases {
        if case.format != last {
            let readers: Vec<&str> = case.references.keys().map(String::as_str).collect();
            let title = case.format.clone();
            write!(out, "\n### {title}\n\n| a file with | {} | Weighbridge | why |\n", readers.join(" | "))
                .unwrap();
            writeln!(out, "|---|{}---|---|", "---|".repeat(readers.len())).unwrap();
            last = &case.format;
        }
        let said: Vec<&str> = case.references.values().map(String::as_str).collect();
        writeln!(
            out,
            "| {} | {} | {} | {} |",
            case.what,
            said.join(" | "),
            asked(case, dir.path()),
            case.why
        )
        .unwrap();
    }
    out
}

#[test]
fn the_page_says_what_is_read_and_what_is_not() {
    const MARK: &str = "<!-- The tables below are kept by the test `strictness` of crates/checkpoint. -->\n";
    let cases = std::fs::read_to_string(root().join("golden/strictness/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&cases).unwrap();
    assert!(cases.len() >= 80);
    let page = root().join("docs/strictness.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (intro, found) = text.split_once(MARK).unwrap();
    let wanted = tables(&cases);
    if std::env::var_os("WEIGHBRIDGE_UPDATE").is_some() {
        std::fs::write(&page, format!("{intro}{MARK}{wanted}")).unwrap();
        return;
    }
    for (wanted, found) in wanted.lines().zip(found.lines()) {
        assert_eq!(wanted, found, "run the test with WEIGHBRIDGE_UPDATE=1, and read what has changed");
    }
    assert_eq!(wanted, found);
}

/// Where we are stricter than every reader of a format, the page gives a reason.
#[test]
fn every_rule_that_is_stricter_has_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let cases = std::fs::read_to_string(root().join("golden/strictness/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&cases).unwrap();
    for case in &cases {
        let reads = case.references.values().any(|said| said == "reads");
        let refused = asked(case, dir.path()) != "reads";
        assert!(!reads || !refused || !case.why.is_empty(), "{}: {}", case.format, case.what);
        // And where we read what none of them does.
        assert!(reads || refused || !case.why.is_empty(), "{}: {}", case.format, case.what);
    }
}
