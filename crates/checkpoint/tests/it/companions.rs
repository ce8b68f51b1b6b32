//! Quantised weights that lie in several tensors: one entry each, or a message that says what does not fit.

mod bitnet;
mod fp8;
mod mlx;
mod mxfp4;

use checkpoint::Checkpoint;

use crate::build::safetensors;
use crate::{Dir, open_both};

/// A directory with `config.json` and a safetensors file of tensors: name, dtype, shape.
struct Model {
    config: String,
    tensors: Vec<(String, &'static str, Vec<u64>)>,
}

impl Model {
    fn new(config: &str) -> Model {
        Model { config: config.to_owned(), tensors: vec![] }
    }

    fn with(mut self, name: &str, dtype: &'static str, shape: &[u64]) -> Model {
        self.tensors.push((name.to_owned(), dtype, shape.to_vec()));
        self
    }

    fn write(&self) -> Dir {
        let (mut at, mut infos) = (0, vec![]);
        for (name, dtype, shape) in &self.tensors {
            let bytes = match *dtype {
                "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 1,
                "F16" | "BF16" => 2,
                _ => 4,
            };
            let end = at + bytes * shape.iter().product::<u64>();
            infos.push(format!(
                r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{at},{end}]}}"#
            ));
            at = end;
        }
        let dir = Dir::new();
        dir.file("m/config.json", &self.config);
        let header = format!("{{{}}}", infos.join(","));
        dir.file("m/model.safetensors", safetensors(header, usize::try_from(at).expect("small")));
        dir
    }

    fn open(&self) -> Checkpoint {
        open_both(&self.write().path("m")).expect("sound")
    }

    /// The entries, as a list: name, shape, scheme, and the bytes of each plane.
    fn entries(&self) -> String {
        let checkpoint = self.open();
        let lines = checkpoint.entries().iter().map(|e| {
            let planes: Vec<u64> = e.planes.iter().map(|p| p.bytes.end - p.bytes.start).collect();
            format!("{} {} {} {planes:?}", e.name, e.shape, e.scheme)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn error(&self) -> String {
        self.write().error("m")
    }
}
