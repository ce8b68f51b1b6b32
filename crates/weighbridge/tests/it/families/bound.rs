//! A source that changes under a conversion, and values whose rows lie in another order.

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::{Checkpoint, Error, LayoutKind, Plan, PlanBuilder, Pool, load, open};

use super::{Family, decoded, family};

/// The same length, in place.
fn rewrite(path: &Path) {
    // Longer than a tick of any file system's clock.
    sleep(Duration::from_millis(30));
    let mut bytes = fs::read(path).unwrap();
    let values = bytes.len() / 2;
    bytes[values..].iter_mut().for_each(|b| *b = b.wrapping_add(1) & 0x3f);
    File::options().write(true).open(path).unwrap().write_all(&bytes).unwrap();
}

fn hf(family: &Family, dir: &Path) -> Checkpoint {
    family.write_hf(&dir.join("hf"));
    fs::write(dir.join("hf/generation_config.json"), "{\"temperature\": 0.5}").unwrap();
    open(dir.join("hf")).unwrap()
}

/// A conversion into any form ends with an error that names the file, and leaves nothing to read.
#[test]
fn a_source_that_is_rewritten_during_a_conversion_ends_it() {
    for (format, name) in [
        (OutputFormat::Hf, "out"),
        (OutputFormat::Safetensors, "out.safetensors"),
        (OutputFormat::NpyDir, "out.d"),
        (OutputFormat::Npz, "out.npz"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let source = hf(&family("llama"), dir.path());
        let weights = dir.path().join("hf/model.safetensors");
        let to = dir.path().join(name);
        // After the first, in the middle, and when all is copied.
        for at in [1, 5, usize::MAX] {
            let options = ConvertOptions::default();
            let source = open(source.location().path().unwrap()).unwrap();
            let conversion = Conversion::new(&source, LayoutKind::Source, format, &options).unwrap();
            let done = conversion.run(&to, &mut Pool::new(1), &mut |progress| {
                if progress.index == at.min(progress.total - 1) {
                    rewrite(&weights);
                }
                ControlFlow::Continue(())
            });
            let error = done.err().unwrap().to_string();
            let said = format!("`{}` has changed since it was opened: it was written to", weights.display());
            assert!(error.contains(&said), "{format:?}: {error}");
            assert!(!to.exists(), "{format:?}");
        }
    }
}

/// Files beside the weights are of the same model, or an error.
#[test]
fn a_file_beside_the_weights_that_was_rewritten_is_not_carried() {
    let dir = tempfile::tempdir().unwrap();
    let source = hf(&family("llama"), dir.path());
    let beside = dir.path().join("hf/generation_config.json");
    sleep(Duration::from_millis(30));
    fs::write(&beside, "{\"temperature\": 0.7}").unwrap();
    let options = ConvertOptions::default();
    let refused = Conversion::new(&source, LayoutKind::Source, OutputFormat::Hf, &options).err().unwrap();
    let said = format!("`{}` has changed since it was opened", beside.display());
    assert!(refused.to_string().contains(&said), "{refused}");
}

/// The same names, shapes and encodings, and rows of q and k that lie otherwise: GGUF has them interleaved.
#[test]
fn weights_are_not_updated_with_rows_in_another_order() {
    let dir = tempfile::tempdir().unwrap();
    let llama = family("llama");
    let hf = hf(&llama, dir.path());
    let path = dir.path().join("model.gguf");
    llama.write_gguf(&path, &llama.gguf_arrays(&decoded(&hf, LayoutKind::Source, dir.path())));
    let gguf = open(&path).unwrap();
    let plan = |of: &Checkpoint, layout| -> Plan { PlanBuilder::new(of).layout(layout).build().unwrap() };
    let mut pool = Pool::new(1);
    let owned = load::Options { owned: true, ..load::Options::default() };

    let mut model = plan(&gguf, LayoutKind::InPlace).load_with(&mut pool, owned).unwrap();
    let q = "layers.0.attention.q.weight";
    let before = model.get(q).unwrap().bytes().to_vec();
    let refused = model.update(&plan(&hf, LayoutKind::InPlace), &[], &mut pool, owned).unwrap_err();
    assert!(matches!(refused, load::Error::Update { .. }));
    insta::assert_snapshot!(Error::from(refused).diagnostics(), @r"
    nothing was updated:
    wanted the layout in-place with interleaved rotary order, found the layout in-place with half rotary order
    hint: plan it in the layout of the weights in memory; all checkpoints are alike in `canonical`
    ");
    assert_eq!(model.get(q).unwrap().bytes(), before);

    // In canonical order they are the same model.
    let canonical = |of| plan(of, LayoutKind::Canonical);
    let mut model = canonical(&gguf).load_with(&mut pool, owned).unwrap();
    let before = model.get(q).unwrap().bytes().to_vec();
    model.update(&canonical(&hf), &[], &mut pool, owned).unwrap();
    assert_eq!(model.get(q).unwrap().bytes(), before);
}
