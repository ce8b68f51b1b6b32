//! What `plan` says that a load takes, held against what `load` takes; and shares of ranks.

use std::path::Path;

use serde_json::Value;

use crate::{failure, golden, model, stdout, weighbridge};

/// What a command says as JSON, and its exit code.
fn json(args: &[&str]) -> (Value, i32) {
    let output = weighbridge(args.iter().chain(&["--json"]));
    let facts = serde_json::from_str(&stdout(&output));
    let facts = facts.unwrap_or_else(|_| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)));
    (facts, output.status.code().unwrap())
}

fn number(facts: &Value, key: &str) -> u64 {
    facts[key].as_u64().unwrap_or_else(|| panic!("no {key} in {facts}"))
}

/// What `plan` and `load` say of the same, in this order.
fn both(path: &Path, args: &[&str]) -> (Value, Value) {
    let path = path.to_str().unwrap();
    let [plan, load] = ["plan", "load"].map(|command| json(&[&[command, path], args].concat()).0);
    for key in [
        "bytes_owned",
        "bytes_borrowed",
        "bytes_copied",
        "bytes_encoded",
        "bytes_read",
        "bytes_needed",
        "threads",
    ] {
        assert_eq!(number(&plan, key), number(&load, key), "{key} of {args:?}");
    }
    assert_eq!(number(&plan, "scratch_bytes"), number(&load, "scratch_bytes_expected"), "{args:?}");
    assert!(number(&load, "scratch_bytes") <= number(&plan, "scratch_bytes"), "{args:?}");
    (plan, load)
}

#[test]
fn a_load_takes_what_the_plan_says() {
    for file in ["llama-tiny/model.gguf", "llama-tiny", "gpt2-tiny/model.gguf", "gemma3-tiny"] {
        for layout in ["source", "canonical", "in-place", "packed", "hf"] {
            for more in [&["--threads", "1"][..], &["--owned", "--threads", "2"], &["--io", "pread"]] {
                both(&golden().join(file), &[&["--layout", layout], more].concat());
            }
        }
        if file.starts_with("llama") {
            for layout in ["packed", "vllm"] {
                both(&golden().join(file), &["--layout", layout, "--encode", "*=q8_0", "--threads", "2"]);
            }
        }
        for more in [&["--rank", "0"][..], &["--rank", "1", "--io", "pread"], &["--rank", "1", "--owned"]] {
            both(&golden().join(file), &[&["--layout", "modules", "--tp", "2"], more].concat());
        }
    }
}

/// One thread uses all that is foreseen for it. How much two use depends on how their work falls together; no more is
/// foreseen for them than twice as much.
#[test]
fn buffers_of_a_real_model_are_foreseen_closely() {
    let file = model("smollm2");
    for layout in ["packed", "canonical", "vllm"] {
        let of = |threads| both(&file, &["--layout", layout, "--threads", threads]);
        let ((one, used), (two, _)) = (of("1"), of("2"));
        assert_eq!(number(&one, "scratch_bytes"), number(&used, "scratch_bytes"), "{layout}");
        assert!(number(&two, "scratch_bytes") <= 2 * number(&one, "scratch_bytes"), "{layout}");
    }
}

/// All ranks together read each byte once, but for what several of them hold: also where a row is cut.
#[test]
fn ranks_read_what_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let hf = dir.path().join("hf");
    let file = model("smollm2");
    let to = ["--to", "hf", "--encode", "*=bf16", "--max-shard-size", "60MB"];
    let args = [&["convert", file.to_str().unwrap(), hf.to_str().unwrap()], &to[..]].concat();
    assert!(weighbridge(args).status.success());
    assert!(hf.join("model-00005-of-00005.safetensors").exists());
    for path in [file, hf] {
        for (layout, io) in [("vllm", "mmap"), ("vllm", "pread"), ("canonical", "mmap")] {
            let mesh = ["--layout", layout, "--tp", "3", "--io", io, "--owned"];
            let (all, _) = json(&[&["plan", path.to_str().unwrap(), "--all-ranks"], &mesh[..]].concat());
            let replicated: u64 =
                all["replicated"].as_array().unwrap().iter().map(|r| number(r, "bytes")).sum();
            let (stored, mut read) = (number(&all, "bytes_stored"), 0);
            for (rank, line) in all["ranks"].as_array().unwrap().iter().enumerate() {
                let (_, load) = both(&path, &[&mesh[..], &["--rank", &rank.to_string()]].concat());
                read += number(&load, "bytes_read");
                assert_eq!(number(line, "bytes_read"), number(&load, "bytes_read"));
                // Elsewhere than on Linux it is not known.
                assert!(load["bytes_from_disk"].is_u64() || !cfg!(target_os = "linux"));
            }
            assert_eq!(number(&all, "bytes_taken"), read);
            let most = stored + stored / 50 + replicated;
            // Without a map, what lies between the parts of rows is read along.
            assert_eq!(read <= most, io == "mmap", "{}: {read} of {stored}", path.display());
        }
    }
}

#[test]
fn a_rank_that_is_not_there_is_misuse() {
    let tiny = golden().join("llama-tiny");
    let path = tiny.to_str().unwrap();
    let said = failure(&["load", path, "--layout", "vllm", "--tp", "2", "--rank", "2"], &tiny);
    assert!(said.contains("there is no rank 2 of 2") && said.ends_with("exit code 2"), "{said}");
    let said = failure(&["load", path, "--layout", "source", "--tp", "2"], &tiny);
    assert!(said.contains("cannot be split across ranks") && said.ends_with("exit code 2"), "{said}");
}

/// A load that is refused, and what the plan says of it.
#[test]
fn too_little_memory_is_misuse_and_the_plan_says_what_would_do() {
    let file = model("smollm2");
    let path = file.to_str().unwrap();
    let packed = ["--layout", "packed", "--threads", "2"];
    let (plan, code) = json(&[&["plan", path], &packed[..]].concat());
    let (owned, least) = (number(&plan, "bytes_owned"), number(&plan, "scratch_bytes_least"));
    assert!(code == 0 && least > 1000 && least < number(&plan, "scratch_bytes"));
    let little = (least - 1).to_string();
    let said = failure(&[&["load", path, "--memory", &little], &packed[..]].concat(), &file);
    let hint = format!("hint: this load needs at least {least} bytes");
    assert!(said.contains(&hint) && said.ends_with("exit code 2"), "{said}");
    let facts = json(&[&["load", path, "--memory", &least.to_string()], &packed[..]].concat()).0;
    assert!(number(&facts, "scratch_bytes") <= least);

    let fits = |memory: u64, more: &[&str]| {
        let memory = memory.to_string();
        let (facts, code) = json(&[&["plan", path, "--memory", &memory], more].concat());
        let facts = facts["memory"].clone();
        assert_eq!((facts["fits"] == true, facts["bytes"].to_string()), (code == 0, memory));
        facts
    };
    // Packed, nothing is borrowed but what needs no packing.
    let all = fits(1 << 30, &packed);
    assert_eq!(all["owned"]["scratch_bytes"], all["owned"]["scratch_bytes_unlimited"]);
    let all_owned = number(&all["owned"], "bytes_owned");
    // Keys and values of as many positions as `run` reserves: 30 layers, 3 heads of 64, in f16.
    let cache = number(&all["owned"], "cache_bytes");
    assert_eq!((cache, &all["positions"]), (30 * 2 * 3 * 64 * 2 * 4096, &4096.into()));
    let short = fits(1 << 30, &[&packed[..], &["--ctx", "100"]].concat());
    assert_eq!(number(&short["owned"], "cache_bytes"), cache / 4096 * 128, "pages of 64");
    let exact = fits(all_owned + cache + least, &packed);
    assert_eq!((&exact["fits"], number(&exact["owned"], "scratch_bytes")), (&true.into(), least));
    // What it says can be done.
    let memory = number(&exact["owned"], "scratch_bytes").to_string();
    json(&[&["load", path, "--owned", "--memory", &memory], &packed[..]].concat());
    let borrowed = fits(owned + cache + least, &packed);
    assert_eq!(borrowed["owned"]["fits"], owned == all_owned, "{borrowed}");
    // Half of it is for two ranks, if any number does: smollm2 has 9 heads, 3 of keys.
    let half = fits(all_owned / 2, &["--layout", "vllm", "--owned", "--threads", "2"]);
    assert_eq!((number(&half["shared"], "tp"), &half["shared"]["fits"]), (3, &true.into()), "{half}");
    let text = stdout(&weighbridge(["plan", path, "--layout", "vllm", "--owned", "--memory", "48MiB"]));
    for said in
        ["48.0 MiB: does not fit, owned", "48.0 MiB: rank 0 of `--tp 3` fits, owned: 30.8 MiB for parameters"]
    {
        assert!(text.contains(said), "{text}");
    }
    // In place, all is borrowed, and no buffer is needed.
    let none = fits(cache + 1, &["--layout", "in-place"]);
    assert_eq!((&none["owned"]["fits"], &none["borrowed"]["fits"]), (&false.into(), &true.into()));
}
