//! A file format of one's own: its reader says which tensors lie where, and all else is as with any checkpoint.
//!
//! `cargo run -p weighbridge --example own_format -- DIRECTORY`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::path::Path;

use weighbridge::storage::{LocalFiles, Storage};
use weighbridge::tensor::{FileId, PlaneData};
use weighbridge::{
    Checkpoint, Dtype, LayoutKind, Mesh, Module, PlanBuilder, Pool, Scheme, TensorEntry, module,
};

/// Lines `NAME ROWS COLUMNS`, an empty one, then the values of all tensors, f32, one after the other.
fn open(path: &Path) -> Result<Checkpoint, Box<dyn std::error::Error>> {
    let (files, name) = LocalFiles::at(path)?;
    let source = files.open(&name)?;
    let mut head = vec![0; usize::try_from(source.len())?.min(1 << 20)];
    source.read_at(0, &mut head)?;
    let end = head.windows(2).position(|two| two == b"\n\n").ok_or("no empty line ends the header")? + 2;
    let (mut entries, mut at) = (vec![], end as u64);
    for line in std::str::from_utf8(&head[..end])?.lines().filter(|line| !line.is_empty()) {
        let [name, rows, columns] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("wanted a name and two numbers, found `{line}`").into());
        };
        let (shape, scheme) = ([rows.parse::<u64>()?, columns.parse()?].into(), Scheme::plain(Dtype::F32));
        // A size that cannot be is found here, what lies outside the file below.
        let bytes = at..at.saturating_add(scheme.byte_len(&shape)?);
        at = bytes.end;
        let planes = vec![PlaneData { file: FileId(0), bytes }];
        entries.push(TensorEntry { name: name.to_owned(), shape, scheme, planes, strides: None });
    }
    let location = files.location(&name);
    Ok(Checkpoint::of_entries(location.clone(), "acme", vec![(location, source)], entries)?)
}

/// The model that such files are of.
#[derive(Module)]
struct Ffn {
    up: module::ColumnParallelLinear,
    down: module::RowParallelLinear,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).ok_or("wanted a directory to write to")?;
    let path = Path::new(&dir).join("model.acme");
    let values = (0u16..2 * 64 * 16).flat_map(|n| f32::from(n).to_le_bytes());
    let file: Vec<u8> = b"up.weight 64 16\ndown.weight 16 64\n\n".iter().copied().chain(values).collect();
    std::fs::write(&path, file)?;

    let checkpoint = open(&path)?;
    let (up, down) = (module::ColumnParallelLinear::new(16, 64), module::RowParallelLinear::new(64, 16));
    let model = Ffn { up, down };
    for rank in 0..2 {
        let mesh = Mesh { tp: 2, ..Mesh::default() };
        let plan =
            PlanBuilder::new(&checkpoint).module(&model).layout(LayoutKind::Modules).mesh(mesh).rank(rank);
        let loaded = plan.build()?.load(&mut Pool::new(1))?;
        for name in ["up.weight", "down.weight"] {
            let tensor = loaded.get(name).ok_or("it was planned")?;
            println!("rank {rank}: {name} {} of {}", tensor.shape(), checkpoint.format());
        }
    }
    Ok(())
}
