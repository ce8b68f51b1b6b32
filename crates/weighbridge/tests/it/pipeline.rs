//! Plans and loads of real files: borrowed and moved bytes are the same.

use weighbridge::checkpoint::Io;
use weighbridge::load::LoadReport;
use weighbridge::planner::packed_layout;
use weighbridge::{LayoutKind, Loaded, OpenOptions, Pool, describe, open, open_with, plan};

use crate::{golden, model};

fn loaded(path: &std::path::Path, layout: LayoutKind, io: Io, threads: usize) -> (Loaded, LoadReport) {
    let checkpoint = open_with(path, &OpenOptions::with_io(io)).unwrap();
    let model = describe(&checkpoint).unwrap();
    let planned = plan(&checkpoint, &model, layout).unwrap();
    let loaded = planned.load(&mut Pool::new(threads)).unwrap();
    let report = loaded.report().clone();
    (loaded, report)
}

/// Mapped or read, on one thread or three: the same bytes in every slot.
#[test]
fn ways_to_read_and_thread_counts_give_the_same_bytes() {
    let paths = [
        golden().join("gpt2-tiny"),
        golden().join("gemma3-tiny"),
        golden().join("llama-tiny/model.gguf"),
        model("smollm2"),
        model("gemma3"),
    ];
    for path in paths {
        for layout in [LayoutKind::Canonical, LayoutKind::InPlace, packed_layout().unwrap()] {
            let (mapped, _) = loaded(&path, layout, Io::Mmap, 1);
            let (read, report) = loaded(&path, layout, Io::Pread, 3);
            assert_eq!(report.bytes_borrowed, 0, "nothing to borrow from");
            assert_eq!(mapped.names().count(), read.names().count());
            for name in mapped.names() {
                let (a, b) = (mapped.get(name).unwrap(), read.get(name).unwrap());
                assert_eq!((a.shape(), a.scheme()), (b.shape(), b.scheme()));
                assert!(a.bytes() == b.bytes(), "{} {name} in {}", path.display(), layout.name());
            }
        }
    }
}

#[test]
fn in_place_borrows_every_byte_of_a_gguf() {
    for name in ["smollm2", "gemma3"] {
        let path = model(name);
        let (loaded, report) = loaded(&path, LayoutKind::InPlace, Io::Mmap, 2);
        assert_eq!((report.bytes_copied, report.bytes_encoded, report.bytes_read), (0, 0, 0), "{name}");
        let stored: u64 = open(&path).unwrap().entries().iter().map(weighbridge::TensorEntry::byte_len).sum();
        assert_eq!(report.bytes_borrowed, stored, "{name}");
        // The output matrix is the token embedding: one slot, two names.
        let output = loaded.get("output.weight").unwrap().bytes();
        assert_eq!(output.as_ptr(), loaded.get("token_embedding.weight").unwrap().bytes().as_ptr());
    }
}

/// Row `n` of canonical q is row `n` as HF has it, whether the file is HF's or GGUF's, which stores the rows
/// of a head in another order.
#[test]
fn both_dialects_give_the_same_canonical_parameters() {
    for name in ["llama-tiny", "llama3-rope-tiny", "gpt2-tiny", "gemma3-tiny"] {
        let (hf, _) = loaded(&golden().join(name), LayoutKind::Canonical, Io::Auto, 2);
        let (gguf, _) = loaded(&golden().join(name).join("model.gguf"), LayoutKind::Canonical, Io::Auto, 2);
        for param in hf.names() {
            let (a, b) = (hf.get(param).unwrap(), gguf.get(param).unwrap());
            assert_eq!(a.shape(), b.shape(), "{name} {param}");
            assert!(a.bytes() == b.bytes(), "{name} {param}");
        }
    }
}

/// Mixed files keep apart what cannot be fused.
#[test]
fn packed_fuses_where_encodings_agree() {
    let names = |name: &str| {
        let checkpoint = open(model(name)).unwrap();
        let planned = plan(&checkpoint, &describe(&checkpoint).unwrap(), packed_layout().unwrap()).unwrap();
        planned.params().iter().map(|p| p.name.clone()).collect::<Vec<_>>()
    };
    let smollm2 = names("smollm2");
    assert!(smollm2.contains(&"layers.0.attention.qkv.weight".to_owned()));
    assert!(smollm2.contains(&"layers.29.ffn.gate_up.weight".to_owned()));
    let gemma3 = names("gemma3"); // v is Q8_0 in the first layer, q and k are Q5_0
    assert!(gemma3.contains(&"layers.0.attention.v.weight".to_owned()));
    assert!(gemma3.contains(&"layers.0.ffn.gate_up.weight".to_owned()));
}

/// The plan's word before, the report's after.
#[test]
fn the_plan_predicts_what_the_load_reports() {
    for layout in [LayoutKind::Canonical, LayoutKind::InPlace, packed_layout().unwrap()] {
        let checkpoint = open(model("smollm2")).unwrap();
        let planned = plan(&checkpoint, &describe(&checkpoint).unwrap(), layout).unwrap();
        let predicted = planned.summary();
        let loaded = planned.load(&mut Pool::new(2)).unwrap();
        let report = loaded.report();
        assert_eq!(predicted.borrowable_bytes, report.bytes_borrowed, "{}", layout.name());
        assert_eq!(predicted.copied_bytes, report.bytes_copied, "{}", layout.name());
    }
}
