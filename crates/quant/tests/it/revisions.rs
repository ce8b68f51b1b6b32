//! The bytes written for the same values stay the same, or the revision changes: it tells copies that were kept for the
//! next start apart.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{Noise, Planes};

/// Rows and columns: whole groups of every form, and whole blocks of every scheme.
const ROWS: usize = 32;
const K: usize = 1024;

fn digest(all: &[Planes]) -> String {
    let mut hasher = blake3::Hasher::new();
    for plane in all.iter().flat_map(|planes| &planes.0) {
        hasher.update(&(plane.len() as u64).to_le_bytes()).update(plane);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Returns what the encoder called `name` writes, as a digest: for ordinary values, with and without importance, and
/// for values with few large ones.
fn encoded(name: &str) -> Option<String> {
    let (codec, scheme) = (quant::codec(name)?, quant::scheme(name)?);
    let encoder = codec.encoder()?;
    let mut noise = Noise(0x5eed);
    let values = noise.floats(ROWS * K);
    let importance: Vec<f32> = noise.floats(K).into_iter().map(f32::abs).collect();
    let spread: Vec<f32> = noise.floats(ROWS * K).into_iter().map(|x| x * x * x * 40.0).collect();
    let all =
        [(&values, None), (&values, Some(&importance[..])), (&spread, None)].map(|(values, importance)| {
            let mut planes = Planes::of(&scheme, ROWS, K, 0);
            encoder.encode(values, K, importance, &mut planes.get_mut());
            planes
        });
    Some(digest(&all))
}

/// Interleaves `r` rows of random bytes of the scheme called `name`.
fn interleaved(name: &str, r: usize) -> Option<(String, String)> {
    let (stored, form) = (quant::scheme(name)?, quant::interleaved(name, r)?);
    let mut planes = Planes::of(&stored, ROWS, K, 0);
    let mut noise = Noise(0x5eed);
    for plane in &mut planes.0 {
        *plane = noise.bytes(plane.len());
    }
    let mut packed = Planes::of(&form, ROWS, K, 0);
    quant::repack(&stored, &form, K, &planes.get(), &mut packed.get_mut());
    Some((form.name.to_string(), digest(&[packed])))
}

#[test]
fn other_bytes_have_another_revision() {
    let path = testkit::golden("revisions.tsv");
    let golden = std::fs::read_to_string(&path).unwrap();
    let known: BTreeMap<&str, &str> = golden
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('\t').unwrap())
        .collect();
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for name in quant::names() {
        let revision = |name: &str| quant::codec(name).unwrap().revision();
        if let Some(digest) = encoded(&name) {
            found.insert(name.clone(), format!("{}\t{digest}", revision(&name)));
        }
        for (form, digest) in [8, 16].into_iter().filter_map(|r| interleaved(&name, r)) {
            let line = format!("{}\t{digest}", revision(&form));
            found.insert(form, line);
        }
    }
    assert!(found.len() > 80, "{}", found.len());
    let mut wrong = String::new();
    for (name, line) in &found {
        if known.get(name.as_str()) != Some(&line.as_str()) {
            let _ = writeln!(wrong, "{name}\t{line}");
        }
    }
    for name in known.keys().filter(|name| !found.contains_key(**name)) {
        let _ = writeln!(wrong, "{name} is gone");
    }
    assert!(
        wrong.is_empty(),
        "raise `Codec::revision` of those whose bytes have changed, and put these lines into {}:\n{wrong}",
        path.display()
    );
}
