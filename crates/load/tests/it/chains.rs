//! Encoded, and then made ready for kernels: the same as doing the two one after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint::{Checkpoint, Io};
use load::Plan;
use load::{Error, Loaded, Options, Pool};
use quant::{Difference, Matrix};
use tensor::{Dtype, Expr, Scheme, Shape, Target};
use testkit::Rng;

use crate::{folder, open};

/// A file with `w`, `[rows, k]` in f32, and its values: of many sizes, the largest anywhere.
pub(crate) fn floats(dir: &Path, rows: u64, k: u64) -> (PathBuf, Vec<f32>) {
    let mut rng = Rng((rows << 20) ^ k);
    let values: Vec<f32> = (0..rows * k).map(|_| rng.float().powi(3)).collect();
    let mut header = format!(
        "{{\"w\":{{\"dtype\":\"F32\",\"shape\":[{rows},{k}],\"data_offsets\":[0,{}]}}}}",
        rows * k * 4
    );
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    let path = dir.join(format!("{rows}x{k}.safetensors"));
    std::fs::write(&path, bytes).unwrap();
    (path, values)
}

/// `expr` over `w`, which is encoded in `first` and held in `then`.
fn plan(checkpoint: &Checkpoint, expr: Expr, first: &Arc<Scheme>, then: &Arc<Scheme>) -> Plan {
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let mut resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    resolved.params[0].encode(Arc::clone(first));
    let target = Target { name: "w".into(), expr, scheme: Some(Arc::clone(then)) };
    crate::compile(checkpoint, &resolved, &[target])
}

fn load(plan: &Plan, threads: usize, memory: Option<u64>) -> Result<Loaded, Error> {
    let options = Options { memory, allow_overflow: true, ..Options::default() };
    plan.load_with(&mut Pool::new(threads), options)
}

fn planes(loaded: &Loaded) -> Vec<Vec<u8>> {
    loaded.get("w").unwrap().slots().iter().map(|slot| slot.bytes().to_vec()).collect()
}

/// Buffers for the planes of `[rows, k]`.
fn buffers(scheme: &Scheme, rows: usize, k: usize) -> Vec<Vec<u8>> {
    let shape = Shape::from([rows as u64, k as u64]);
    let bytes = |p| scheme.plane_bytes(p, &shape).unwrap() as usize;
    scheme.planes.iter().map(|p| vec![0xA5; bytes(p)]).collect()
}

fn encoded(scheme: &Scheme, values: &[f32], k: usize) -> Vec<Vec<u8>> {
    let mut out = buffers(scheme, values.len() / k, k);
    let mut planes: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    quant::codec(&scheme.name).unwrap().encoder().unwrap().encode(values, k, None, &mut planes);
    out
}

fn decoded(scheme: &Scheme, planes: &[Vec<u8>], rows: usize, k: usize) -> Vec<f32> {
    let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
    let mut out = vec![0.0; rows * k];
    quant::codec(&scheme.name).unwrap().decode(Matrix { planes: &planes, rows, k }, 0..rows, &mut out);
    out
}

fn repacked(from: &Scheme, to: &Scheme, planes: &[Vec<u8>], rows: usize, k: usize) -> Vec<Vec<u8>> {
    let mut out = buffers(to, rows, k);
    let src: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
    let mut dst: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    quant::repack(from, to, k, &src, &mut dst);
    out
}

/// Checks that the plan loads `wanted`, with all the memory and with the least that it can take.
fn loads(plan: &Plan, wanted: &[Vec<u8>], what: &str) -> Loaded {
    let Err(Error::LittleMemory { least, .. }) = load(plan, 1, Some(1)) else { panic!("{what}") };
    for (threads, memory) in [(3, Some(least)), (1, Some(4 * least)), (2, None)] {
        let loaded = load(plan, threads, memory).unwrap();
        let report = loaded.report();
        assert!(memory.is_none_or(|m| report.scratch_peak <= m), "{what}: {report:?}");
        assert!(report.scratch_peak <= report.scratch_predicted, "{what}: {report:?}");
        assert!(planes(&loaded) == wanted, "{what} of {threads} threads in {memory:?}");
    }
    load(plan, 2, None).unwrap()
}

/// Every scheme that can be encoded and interleaved, in shapes of one group and of many, moved in every way.
#[test]
fn encoding_and_interleaving_are_what_they_are_one_after_the_other() {
    let dir = folder();
    let mut pairs = 0;
    for (rows, k) in [(16u64, 256u64), (48, 512), (88, 1280)] {
        let (path, values) = floats(dir.path(), rows, k);
        let checkpoint = open(&path, Io::Pread);
        let (n, width) = (rows as usize, k as usize);
        for name in quant::names() {
            let scheme = quant::scheme(&name).unwrap();
            let encodes = quant::codec(&name).unwrap().encoder().is_some();
            for r in [8u64, 16] {
                let Some(form) = quant::interleaved(&name, r as usize).filter(|_| encodes) else { continue };
                // Rows that are no whole groups are padded, and padding is encoded as what it is.
                let padding = rows.next_multiple_of(r) - rows;
                let all = n + padding as usize;
                let padded = [&values[..], &vec![0.0; padding as usize * width]].concat();
                let joined = |expr: Expr| match padding {
                    0 => expr,
                    _ => Expr::concat(0, vec![expr, Expr::Zero([padding, k].into())]),
                };
                let between = encoded(&scheme, &padded, width);
                let wanted = repacked(&scheme, &form, &between, all, width);
                let straight = plan(&checkpoint, joined(Expr::source("w")), &scheme, &form);
                let what = format!("[{rows}, {k}] as {form}");
                let loaded = loads(&straight, &wanted, &what);
                let lost = loaded.report().differences["w"];
                let direct = Difference::of(&padded, &decoded(&scheme, &between, all, width));
                assert_eq!(
                    (lost.count, lost.max, lost.overflowed),
                    (direct.count, direct.max, direct.overflowed)
                );
                // The lower half above the upper one: movement comes first.
                if rows.is_multiple_of(2 * r) {
                    let half = |range| Expr::source("w").slice(0, range);
                    let swapped = Expr::concat(0, vec![half(rows / 2..rows), half(0..rows / 2)]);
                    let (upper, lower) = values.split_at(values.len() / 2);
                    let between = encoded(&scheme, &[lower, upper].concat(), width);
                    let wanted = repacked(&scheme, &form, &between, n, width);
                    loads(&plan(&checkpoint, swapped, &scheme, &form), &wanted, &what);
                }
                pairs += 1;
            }
        }
    }
    assert!(pairs > 40, "{pairs}");
}

/// A runtime that holds floats gets values that went through the encoding asked for.
#[test]
fn encoding_and_decoding_rounds_and_no_more() {
    let dir = folder();
    let (path, values) = floats(dir.path(), 32, 512);
    let checkpoint = open(&path, Io::Pread);
    let float = Scheme::plain(Dtype::F32);
    let mut schemes = 0;
    for name in quant::names() {
        let scheme = quant::scheme(&name).unwrap();
        if quant::codec(&name).unwrap().encoder().is_none() || *scheme == *float {
            continue;
        }
        let wanted = decoded(&scheme, &encoded(&scheme, &values, 512), 32, 512);
        let wanted = vec![wanted.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()];
        let plan = plan(&checkpoint, Expr::source("w"), &scheme, &float);
        assert_eq!(plan.params()[0].steps.len(), 2, "{name}");
        loads(&plan, &wanted, &name);
        schemes += 1;
    }
    assert!(schemes > 20, "{schemes}");
}

/// Blocks within blocks: a matrix of experts, whose scales are for squares of each.
#[test]
fn stacks_of_matrices_are_encoded_one_by_one() {
    let dir = folder();
    let (path, values) = floats(dir.path(), 6 * 48, 256);
    let checkpoint = open(&path, Io::Pread);
    let float = Scheme::plain(Dtype::F32);
    for name in ["fp8:e4m3,b128x128,f32", "bnb-int8", "q4_k"] {
        let scheme = quant::scheme(name).unwrap();
        let stacked = plan(&checkpoint, Expr::source("w").split(0, 48), &scheme, &float);
        assert_eq!(stacked.params()[0].shape, Shape::from([6, 48, 256]));
        let each = values.chunks(48 * 256).map(|m| decoded(&scheme, &encoded(&scheme, m, 256), 48, 256));
        let wanted: Vec<u8> = each.flatten().flat_map(f32::to_le_bytes).collect();
        loads(&stacked, &[wanted], name);
    }
}

/// No more than a band for each thread is ever in full precision.
#[test]
fn a_large_matrix_is_encoded_in_bounded_memory() {
    let dir = folder();
    let (path, _) = floats(dir.path(), 4096, 2048);
    let checkpoint = open(&path, Io::Pread);
    let (q, r16) = (quant::scheme("q8_0").unwrap(), quant::interleaved("q8_0", 16).unwrap());
    let plan = plan(&checkpoint, Expr::source("w"), &q, &r16);
    let free = load(&plan, 2, None).unwrap();
    // 32 MiB of floats; a band is about one.
    assert!(free.report().scratch_peak < 12 << 20, "{:?}", free.report());
    let bounded = load(&plan, 2, Some(2 << 20)).unwrap();
    assert!(bounded.report().scratch_peak <= 2 << 20, "{:?}", bounded.report());
    assert!(planes(&free) == planes(&bounded));
}
