//! Speed of the kernels on this machine, in GB/s of weight bytes (medians of 5), against plain reads.
//!
//! ```text
//! cargo bench -p weighbridge-quant --bench kernels [-- [MATRIX_MB] [COLUMNS] [SCHEME]..]
//! ```
//!
//! With `sweep` before the schemes, it takes each way of asking for memory in turns, and gives shares of a plain read.
//!
//! `WEIGHBRIDGE_CPU` picks the instruction set. A plain read is the best of several ways, each in every turn: one, two and
//! four places at once, with prefetch and without. Products with one row of activations are bound by memory; with 64 rows
//! (a prompt) by arithmetic, and given in thousand million multiply-adds a second, beside the rate of bare products.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes that fit")]

extern crate weighbridge_quant as quant;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Barrier;
use std::time::Instant;

use quant::attention::{Attention, Block, Coded, POSITIONS, Partial, Room, Stored, attend};
use quant::ceiling::{self, ReadPattern};
use quant::{Activations, ColumnsMut, Forms, Isa, Kernel, Matrix, Way, vector};
use tensor::{Scheme, Shape};

const RUNS: usize = 5;
const THREADS: [usize; 2] = [1, 2];
const PROMPT: usize = 64;
/// Times that a product and a plain read take turns, of which the median ratio is shown.
const TURNS: usize = 15;

/// Median seconds of `RUNS` runs of `work(thread, state)` on as many threads as there are states.
fn seconds<S: Send>(states: &mut [S], work: impl Fn(usize, &mut S) + Sync) -> f64 {
    let barrier = Barrier::new(states.len());
    let run = |thread: usize, state: &mut S| -> Vec<f64> {
        let time = |_| {
            barrier.wait();
            let start = Instant::now();
            work(thread, state);
            barrier.wait();
            start.elapsed().as_secs_f64()
        };
        (0..=RUNS).map(time).collect()
    };
    let times = std::thread::scope(|s| {
        let run = &run;
        let spawn = |(i, state)| s.spawn(move || run(i, state));
        let threads: Vec<_> = states.iter_mut().enumerate().map(spawn).collect();
        threads.into_iter().map(|t| t.join().unwrap()).next().unwrap()
    });
    // The first run warms up.
    let mut times = times[1..].to_vec();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

/// Which of `rows` thread `i` of `n` takes, in whole groups of 16.
fn share(rows: usize, i: usize, n: usize) -> Range<usize> {
    let at = |i: usize| if i == n { rows } else { rows / 16 * i / n * 16 };
    at(i)..at(i + 1)
}

/// A product's seconds on `threads` threads.
fn product(kernel: Kernel, w: Matrix<'_>, x: &Activations, threads: usize) -> f64 {
    let rows = w.rows;
    let mut y = vec![0.0; rows * x.rows()];
    let mut rest = Some(ColumnsMut::new(&mut y, x.rows(), rows));
    let mut parts: Vec<ColumnsMut<'_>> = (0..threads)
        .map(|i| {
            let (part, others) = rest.take().unwrap().split_at(share(rows, i, threads).len());
            rest = Some(others);
            part
        })
        .collect();
    seconds(&mut parts, |i, y| kernel.run(w, share(rows, i, threads), x, y.reborrow()))
}

/// GB/s of reading all of `bytes` on `threads` threads, the fastest way.
fn read_ceiling(isa: Isa, bytes: &[u8], threads: usize) -> f64 {
    ReadPattern::ways().map(|how| plain_read(isa, bytes, threads, how)).fold(0.0, f64::max)
}

/// GB/s of reading all of `bytes` on `threads` threads.
fn plain_read(isa: Isa, bytes: &[u8], threads: usize, how: ReadPattern) -> f64 {
    let part = bytes.len() / threads;
    let t = seconds(&mut vec![(); threads], |i, ()| {
        black_box(ceiling::read(isa, how, &bytes[i * part..][..part]));
    });
    bytes.len() as f64 / t / 1e9
}

/// Gmac/s of bare products on `threads` threads.
fn bare_products(isa: Isa, threads: usize) -> f64 {
    const ROUNDS: usize = 100_000;
    let mut macs = vec![0; threads];
    let t = seconds(&mut macs, |_, macs| *macs = ceiling::multiply(isa, ROUNDS));
    macs.iter().sum::<u64>() as f64 / t / 1e9
}

fn main() {
    // Cargo adds an option of its own.
    let given: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut numbers = given.iter().filter_map(|a| a.parse().ok());
    let (bytes, k) = (numbers.next().unwrap_or(96) * 1_000_000, numbers.next().unwrap_or(1536));
    let only: Vec<&String> = given.iter().filter(|a| a.parse::<usize>().is_err()).collect();
    let isa = Isa::detect().unwrap();
    println!("{}, matrices of about {} MB and {k} columns", isa.name(), bytes / 1_000_000);

    let buffer = vec![1u8; bytes];
    for how in ReadPattern::ways() {
        let ([one, two], ReadPattern { streams, ahead }) =
            (THREADS.map(|n| plain_read(isa, &buffer, n, how)), how);
        println!(
            "plain read, {streams} stream(s) a thread, {ahead} ahead: GB/s {one:6.1} {two:6.1}   (1 and 2 threads)"
        );
    }
    let [one, two] = THREADS.map(|n| bare_products(isa, n));
    println!("bare products: Gmac/s {one:6.1} {two:6.1}");

    let x: Vec<f32> = (0..PROMPT * k).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let plain = ["f16", "bf16", "f32"].map(str::to_owned);
    if let Some(at) = only.iter().position(|name| *name == "sweep") {
        only[at + 1..].iter().for_each(|name| sweep(name, isa, &buffer, k, &x));
        return;
    }
    let names = quant::names().filter(|name| quant::interleaved(name, 16).is_some()).chain(plain);
    for name in names.filter(|name| only.is_empty() || only.contains(&name)) {
        scheme(&name, isa, &buffer, k, &x);
    }
    if only.is_empty() || only.iter().any(|name| *name == "attention") {
        attention(isa);
        vectors(isa);
    }
}

/// One row of activations with an interleaved matrix, by each way of asking for memory, in turns with plain reads.
fn sweep(name: &str, isa: Isa, buffer: &[u8], k: usize, x: &[f32]) {
    let stored = quant::scheme(name).unwrap();
    let form = isa.interleave().and_then(|r| quant::interleaved(name, r)).unwrap();
    let shape = |rows: usize| Shape::from([rows as u64, k as u64]);
    let rows = buffer.len() / stored.byte_len(&shape(1)).unwrap() as usize / 32 * 32;
    let len = |plane| form.plane_bytes(plane, &shape(rows)).unwrap() as usize;
    let planes: Vec<Vec<u8>> = form.planes.iter().map(|plane| vec![0x11; len(plane)]).collect();
    let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
    let bytes = planes.iter().map(|plane| plane.len()).sum::<usize>() as f64;
    let ways =
        [1, 2].into_iter().flat_map(|streams| [0, 1024, 4096, 6144].map(|ahead| Way { ahead, streams }));
    let ways: Vec<Way> = ways.collect();
    let mut found = vec![[vec![], vec![]]; ways.len()];
    for _ in 0..TURNS {
        for threads in THREADS {
            let read = read_ceiling(isa, buffer, threads);
            for (way, found) in ways.iter().zip(&mut found) {
                let kernel = quant::kernel_with(&form, isa, *way).unwrap();
                let mut acts = Activations::new(1, k);
                acts.fill(isa, &x[..k], 1, k, kernel.forms);
                let t = product(kernel, Matrix { planes: &planes, rows, k }, &acts, threads);
                found[threads - 1].push((bytes / t / 1e9 / read, bytes / t / 1e9));
            }
        }
    }
    for (way, found) in ways.iter().zip(&mut found) {
        let [one, two] = found.each_mut().map(|found| {
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            found[TURNS / 2]
        });
        println!(
            "{:28} {} stream(s), {:4} ahead: GB/s {:6.1} {:6.1}, of a read {:4.0} % {:4.0} %",
            form.name,
            way.streams,
            way.ahead,
            one.1,
            two.1,
            100.0 * one.0,
            100.0 * two.0
        );
    }
}

/// Rows `rows` of a matrix of `of` rows.
fn part<'a>(w: &[&'a [u8]], of: usize, rows: Range<usize>) -> Vec<&'a [u8]> {
    w.iter().map(|plane| &plane[plane.len() / of * rows.start..plane.len() / of * rows.end]).collect()
}

/// Repacking and products of one scheme, in both forms.
fn scheme(name: &str, isa: Isa, buffer: &[u8], k: usize, x: &[f32]) {
    let bytes = buffer.len();
    let stored = quant::scheme(name).unwrap();
    let rows = bytes / stored.byte_len(&Shape::from([1, k as u64])).unwrap() as usize / 32 * 32;
    let planes = |scheme: &Scheme, rows: usize, byte: fn(usize) -> u8| -> Vec<Vec<u8>> {
        let shape = Shape::from([rows as u64, k as u64]);
        let len = |plane| scheme.plane_bytes(plane, &shape).unwrap() as usize;
        scheme.planes.iter().map(|plane| (0..len(plane)).map(byte).collect()).collect()
    };
    // Small scales, so that nothing overflows; the codes do not matter.
    let w = planes(&stored, rows, |i| if i % 2 == 0 { 0x11 } else { 0x12 });
    let w: Vec<&[u8]> = w.iter().map(Vec::as_slice).collect();
    forms(name, isa, &w, rows, k, x, buffer);

    let Some(form) = isa.interleave().and_then(|r| quant::interleaved(name, r)) else { return };
    if form.byte_len(&Shape::from([rows as u64, k as u64])).is_err() {
        return;
    }
    for threads in THREADS {
        let mut parts: Vec<_> = (0..threads)
            .map(|i| {
                let rows_of = share(rows, i, threads);
                (part(&w, rows, rows_of.clone()), planes(&form, rows_of.len(), |_| 0))
            })
            .collect();
        let t = seconds(&mut parts, |_, (w, packed)| {
            let mut packed: Vec<&mut [u8]> = packed.iter_mut().map(Vec::as_mut_slice).collect();
            quant::repack(&stored, &form, k, w, &mut packed);
        });
        let bytes = w.iter().map(|w| w.len()).sum::<usize>();
        println!("{:28} repack, {threads} thread(s) GB/s {:6.1}", form.name, bytes as f64 / t / 1e9);
        if let [(_, packed)] = &*parts {
            let packed: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
            forms(&form.name, isa, &packed, rows, k, x, buffer);
        }
    }
}

/// Products with one row of activations, in turns with plain reads of `buffer`, and with a prompt.
fn forms(name: &str, isa: Isa, w: &[&[u8]], rows: usize, k: usize, x: &[f32], buffer: &[u8]) {
    let kernel = quant::kernel(&quant::scheme(name).unwrap(), isa).unwrap();
    let mut acts = Activations::new(PROMPT, k);
    acts.fill(isa, &x[..k], 1, k, kernel.forms);
    let bytes = w.iter().map(|w| w.len()).sum::<usize>();
    let rate = |threads| bytes as f64 / product(kernel, Matrix { planes: w, rows, k }, &acts, threads) / 1e9;
    let one = rate(1);
    let mut turns = [(); TURNS].map(|()| {
        let (ours, read) = (rate(2), read_ceiling(isa, buffer, 2));
        (ours / read, ours)
    });
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, two) = turns[TURNS / 2];
    acts.fill(isa, x, PROMPT, k, kernel.forms);
    // A part of the rows is enough for a figure.
    let few = (rows / 8).next_multiple_of(32).min(rows);
    let w = part(w, rows, 0..few);
    let macs = (PROMPT * few * k) as f64;
    let many = THREADS.map(|n| macs / product(kernel, Matrix { planes: &w, rows: few, k }, &acts, n) / 1e9);
    println!(
        "{name:28} one row     GB/s {one:6.1} {two:6.1} {:4.0} % of a read   {PROMPT} rows, Gmac/s {:6.1} {:6.1}",
        100.0 * ratio,
        many[0],
        many[1]
    );
}

/// Positions of a span.
const SPAN: usize = 256;

fn attention(isa: Isa) {
    for (rows, heads, d, n) in [
        (1, 3, 64, 4096),
        (1, 3, 64, 262_144),
        (1, 1, 64, 4096),
        (1, 4, 128, 4096),
        (4, 3, 64, 512),
        (4, 3, 64, 4096),
        (4, 4, 128, 4096),
        (8, 1, 256, 4096),
    ] {
        let (q, k) = (vec![0.01; rows * heads * d], vec![0.02f32; n * d]);
        let halves = vec![half::f16::from_f32(0.02).to_bits(); n * d];
        let (codes, ranges) = (vec![0x35u8; n * d], vec![0.01f32; 2 * n * d / POSITIONS]);
        let page = POSITIONS * d;
        let (of_page, visible) = (2 * page / POSITIONS, vec![0..SPAN; rows]);
        let how = Attention { heads, scale: 0.1, soft_cap: None, relative: None, next: None };
        let queries = rows * heads;
        let coded = |bits: u32, i: usize| {
            let bytes = page * bits as usize / 8;
            let ranges = &ranges[i * of_page..][..of_page];
            Stored::Coded(Coded { bits, codes: &codes[i * bytes..][..bytes], ranges })
        };
        for (kind, bytes) in [("f32", 4.0), ("f16", 2.0), ("int8", 1.0), ("int4", 0.5)] {
            let stored = |i: usize| match kind {
                "f32" => Stored::F32(&k[i * page..][..page]),
                "f16" => Stored::F16(&halves[i * page..][..page]),
                "int8" => coded(8, i),
                _ => coded(4, i),
            };
            let blocks: Vec<Block> =
                (0..n / POSITIONS).map(|i| Block { keys: stored(i), values: Some(stored(i)) }).collect();
            let room = Room::new(queries, SPAN / POSITIONS, d, d);
            let mut state = [(room, vec![0.0; Partial::room(queries, d)])];
            let t = seconds(&mut state, |_, (room, out)| {
                let mut out = Partial::within(out, queries);
                for blocks in blocks.chunks(SPAN / POSITIONS) {
                    attend(isa, how, &q, blocks, &visible, room, &mut out);
                }
            });
            println!(
                "attention, {rows} row(s) of {heads} heads of {d} at {n}, {kind}: {:.1} µs, {:.1} Gmac/s, {:.1} GB/s of keys and values",
                t * 1e6,
                (2 * rows * heads * d * n) as f64 / t / 1e9,
                bytes * (2 * d * n) as f64 / t / 1e9
            );
        }
    }
}

/// Vector operations, in values a nanosecond, on vectors that stay in the cache.
fn vectors(isa: Isa) {
    const N: usize = 2048;
    let x: Vec<f32> = (0..N).map(|i| (i % 97) as f32 / 50.0 - 1.0).collect();
    let w = x.clone();
    let (cos, sin) = (vec![0.8; N / 2], vec![0.6; N / 2]);
    let show = |name: &str, f: &mut (dyn FnMut(&mut [f32]) + Send)| {
        let mut state = [(f, x.clone())];
        let t = seconds(&mut state, |_, (f, out)| (0..2000).for_each(|_| f(black_box(out)))) / 2000.0;
        println!("{name:16} {:6.2} values/ns", N as f64 / t / 1e9);
    };
    show("add", &mut |out| vector::add(isa, out, &x));
    show("dot", &mut |out| _ = black_box(vector::dot(isa, out, &x)));
    show("rms_norm", &mut |out| vector::rms_norm(isa, &x, &w, 1e-5, out));
    show("layer_norm", &mut |out| vector::layer_norm(isa, &x, &w, Some(&w), 1e-5, out));
    show("silu_mul", &mut |out| vector::silu_mul(isa, &x, &w, out));
    show("gelu_tanh_mul", &mut |out| vector::gelu_tanh_mul(isa, &x, &w, out));
    show("rope_half", &mut |out| vector::rope_half(isa, out, &cos, &sin));
    show("rope_interleaved", &mut |out| vector::rope_interleaved(isa, out, &cos, &sin));
    show("weights of scores", &mut |out| {
        black_box(vector::weigh(isa, out, 0.3, None));
    });
    show("weights of scores, capped", &mut |out| {
        black_box(vector::weigh(isa, out, 0.3, Some(5.0)));
    });
    show("argmax", &mut |out| _ = black_box(vector::argmax(isa, out)));
    let mut acts = Activations::new(1, N);
    show("quantising", &mut |out| acts.fill(isa, out, 1, N, Forms::INT8));
}
