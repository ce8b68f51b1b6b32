//! Checkpoints on servers.

use std::sync::Arc;
use std::time::Duration;

use checkpoint::OpenOptions;
use testkit::http::{Answer, Faults, FileServer};

use crate::noise;

/// A safetensors file of one f32 tensor `name` of `values` values, with `pad` spaces behind its header.
fn safetensors(name: &str, values: usize, pad: usize) -> Vec<u8> {
    let mut header =
        format!(r#"{{"{name}":{{"dtype":"F32","shape":[{values}],"data_offsets":[0,{}]}}}}"#, values * 4);
    header.extend(std::iter::repeat_n(' ', pad));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &noise(values * 4)].concat()
}

fn open(url: &str) -> Result<checkpoint::Checkpoint, checkpoint::Error> {
    let options = OpenOptions::default().with_resolver(Arc::new(weighbridge_remote::Servers::from_env()));
    checkpoint::open_with(url, &options)
}

/// A directory of `shards` files with an index, as Hugging Face has it.
fn sharded(server: &FileServer, shards: usize) {
    server.put("model/config.json", br#"{"model_type":"nothing"}"#.as_slice());
    let mut map = Vec::new();
    for no in 1..=shards {
        let file = format!("model-{no:05}-of-{shards:05}.safetensors");
        map.push(format!(r#""t{no}":"{file}""#));
        server.put(&format!("model/{file}"), safetensors(&format!("t{no}"), 50_000, 30_000));
    }
    let index = format!(r#"{{"metadata":{{}},"weight_map":{{{}}}}}"#, map.join(","));
    server.put("model/model.safetensors.index.json", index.into_bytes());
}

#[test]
fn a_sharded_checkpoint_is_opened_by_its_headers() {
    let server = FileServer::start();
    sharded(&server, 40);
    let slow = Faults { delay: Duration::from_millis(10), ..Faults::default() };
    for faults in [slow, Faults { breaks: 10, busy: 20, ..Faults::default() }] {
        let kind = faults.breaks == 0;
        server.fail(faults);
        server.counts();
        let checkpoint = open(&server.url("model/")).unwrap();
        assert_eq!(checkpoint.entries().len(), 40);
        assert_eq!(checkpoint.location().to_string(), server.url("model"));
        let counts = server.counts();
        // Headers of 30 kB each; the files have 9 MB.
        if kind {
            assert!(counts.bytes < 40 * 31_000 && counts.at_once > 4, "{counts:?}");
        }
    }
}

#[test]
fn a_shard_that_is_missing_is_named() {
    let server = FileServer::start();
    sharded(&server, 3);
    server.put(
        "model/model.safetensors.index.json",
        br#"{"weight_map":{"t1":"model-00001-of-00003.safetensors","x":"other.safetensors"}}"#.as_slice(),
    );
    let error = open(&server.url("model/")).unwrap_err().to_string();
    assert!(error.contains("other.safetensors"), "{error}");
}

#[test]
fn a_page_in_place_of_files_is_said_to_be_one() {
    let server = FileServer::start();
    let body = "<!DOCTYPE html><html><title>Not found</title></html>";
    let page = Answer { status: "200 OK", headers: "Content-Type: text/html\r\n", body };
    server.fail(Faults { missing: Some(page), ..Faults::default() });
    for url in ["model", "model/", "model/a.safetensors"] {
        let error = open(&server.url(url)).unwrap_err().to_string();
        assert!(error.contains("JSON") || error.contains("HTML") || error.contains("ange"), "{url}: {error}");
    }
}

#[test]
fn a_wrong_name_and_an_unknown_scheme_are_errors() {
    let server = FileServer::start();
    server.put("model.gguf", b"GGUF".as_slice());
    let error = open(&server.url("modle.gguf")).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let error = checkpoint::open(server.url("model.gguf")).unwrap_err().to_string();
    assert!(error.contains("URLs of `http:` are not read"), "{error}");
}
