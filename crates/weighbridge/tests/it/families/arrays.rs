//! Small arrays of f32, and what llama.cpp's converter does with them (golden/families/README.md).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use weighbridge::open;

use super::{shape, text};

/// Arrays by name.
pub(super) type Arrays = BTreeMap<String, Array>;

/// A dense array, slowest axis first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) shape: Vec<u64>,
    pub(super) values: Vec<f32>,
}

impl Array {
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    /// Whether it is `other`, or but for rounding if it was computed.
    pub(super) fn is_near(&self, other: &Array, computed: bool) -> bool {
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= b.abs() * f32::EPSILON;
        self == other
            || (computed && self.shape == other.shape && self.values.iter().zip(&other.values).all(near))
    }

    /// The array whose element at `index` is this one's at `from(index)`.
    fn picked(&self, shape: Vec<u64>, from: impl Fn(&[u64]) -> Vec<u64>) -> Array {
        let count: u64 = shape.iter().product();
        let values = (0..count).map(|flat| {
            let mut index = vec![0; shape.len()];
            let mut rest = flat;
            for (at, extent) in index.iter_mut().zip(&shape).rev() {
                *at = rest % extent;
                rest /= extent;
            }
            let at = from(&index).iter().zip(&self.shape).fold(0, |at, (i, extent)| at * extent + i);
            self.values[usize::try_from(at).unwrap()]
        });
        let values = values.collect();
        Array { shape, values }
    }

    fn reshaped(&self, shape: Vec<u64>) -> Array {
        assert_eq!(shape.iter().product::<u64>(), self.shape.iter().product::<u64>());
        Array { shape, values: self.values.clone() }
    }

    fn permuted(&self, axes: &[u64]) -> Array {
        let axes: Vec<usize> = axes.iter().map(|a| usize::try_from(*a).unwrap()).collect();
        let shape = axes.iter().map(|a| self.shape[*a]).collect();
        self.picked(shape, |index| {
            let mut from = vec![0; axes.len()];
            for (i, axis) in index.iter().zip(&axes) {
                from[*axis] = *i;
            }
            from
        })
    }

    fn every(&self, axis: usize, start: u64, step: u64, count: u64) -> Array {
        let mut shape = self.shape.clone();
        shape[axis] = count;
        self.picked(shape, |index| {
            let mut from = index.to_vec();
            from[axis] = start + step * from[axis];
            from
        })
    }
}

/// Every tensor of a file of f32.
pub(super) fn read(path: &Path) -> Arrays {
    let checkpoint = open(path).unwrap();
    let entries = checkpoint.entries().iter().map(|e| {
        assert_eq!(&*e.scheme.name, "f32");
        let range = &e.planes[0].bytes;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
        checkpoint.file(e.planes[0].file).source.read_at(range.start, &mut bytes).unwrap();
        let values = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        (e.name.clone(), Array { shape: e.shape.to_vec(), values })
    });
    entries.collect()
}

/// From `start` on along `axis`, heads that are in groups take turns.
fn tiled(one: &Array, details: &Value) -> Array {
    let number = |key: &str| details[key].as_u64().unwrap();
    let (axis, start, groups) = (usize::try_from(number("axis")).unwrap(), number("start"), number("groups"));
    let one = match details.get("reshape") {
        Some(wanted) => one.reshaped(shape(wanted)),
        None => one.clone(),
    };
    let each = number("heads") / groups;
    let unit = (one.shape[axis] - start) / number("heads");
    one.picked(one.shape.clone(), |index| {
        let mut from = index.to_vec();
        if let Some(at) = index[axis].checked_sub(start) {
            let (head, rest) = (at / unit, at % unit);
            let (turn, group) = (head / groups, head % groups);
            from[axis] = start + (group * each + turn) * unit + rest;
        }
        from
    })
}

/// One tensor of `gguf_of`: `[how, sources, details]`.
pub(super) fn made(of: &Value, hf: &Arrays) -> Array {
    let (how, details) = (text(&of[0]), &of[2]);
    let sources: Vec<&str> = of[1].as_array().unwrap().iter().map(text).collect();
    let number = |key: &str| details[key].as_u64().unwrap();
    let source = || {
        // Blocks and scales are one tensor here, of their common name.
        let name = sources[0].trim_end_matches("_blocks");
        hf.get(name).unwrap_or_else(|| panic!("no `{name}`"))
    };
    match how {
        "same" | "mxfp4" => source().clone(),
        "transposed" => source().permuted(&shape(&details["axes"])),
        "plus_one" => {
            let one = source();
            Array { values: one.values.iter().map(|x| x + 1.0).collect(), ..one.clone() }
        }
        "tiled" => tiled(source(), details),
        "tiled_negative_exp" => {
            let one = tiled(source(), details);
            Array { values: one.values.iter().map(|x| -x.exp()).collect(), ..one }
        }
        "rope_permuted" => {
            let (one, heads) = (source(), number("heads"));
            let rest: u64 = one.shape[1..].iter().product();
            let half = one.shape[0] / heads / 2;
            one.reshaped(vec![heads, 2, half, rest]).permuted(&[0, 2, 1, 3]).reshaped(one.shape.clone())
        }
        "grouped" => {
            let (one, groups) = (source(), number("groups"));
            let group = number("heads") / groups;
            let head = one.shape[0] / groups / (group + 2);
            let queries = groups * group * head;
            one.picked(one.shape.clone(), |index| {
                let mut from = index.to_vec();
                // Which of queries, keys and values, and the row in it.
                let (first, rows, row) = match index[0].checked_sub(queries) {
                    None => (0, group * head, index[0]),
                    Some(row) => match row.checked_sub(groups * head) {
                        None => (group * head, head, row),
                        Some(row) => ((group + 1) * head, head, row),
                    },
                };
                from[0] = row / rows * (group + 2) * head + first + row % rows;
                from
            })
        }
        "stacked" => {
            let parts: Vec<&Array> = sources.iter().map(|name| &hf[*name]).collect();
            let mut shape = parts[0].shape.clone();
            shape.insert(0, parts.len() as u64);
            Array { shape, values: parts.iter().flat_map(|p| p.values.clone()).collect() }
        }
        "every_second" | "mxfp4_every_second" => {
            let axis = usize::try_from(number("axis")).unwrap();
            let one = source();
            one.every(axis, number("start"), 2, one.shape[axis] / 2)
        }
        "head_rows" | "head_rows_transposed" => {
            let rows = shape(&details["rows"]);
            let heads = source().reshaped(shape(&details["reshape"]));
            heads.every(1, rows[0], 1, rows[1] - rows[0]).permuted(&shape(&details["axes"]))
        }
        "made" => {
            let values: Vec<f32> = details["values"]
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.to_string().parse().unwrap())
                .collect();
            Array { shape: vec![values.len() as u64], values }
        }
        other => panic!("`{other}` is not known here"),
    }
}
