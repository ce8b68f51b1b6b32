//! How fast blocks become floats on one thread, beside ggml's `dequantize_row_*` and candle's `to_float`, taken in
//! turns: medians of 15, in million values a second, and the ratio of ours to theirs.
//!
//! ```text
//! GGML_LIBRARY=.../libggml-base.so cargo bench --manifest-path benches/decode/Cargo.toml
//! ```
//!
//! `libggml-base` is what llama.cpp builds with `-DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON`. Without it ggml's column is
//! left out. Every result is compared with ours bit for bit before it is timed.

use std::hint::black_box;
use std::time::Instant;

use candle_core::quantized::GgmlType;
use candle_core::quantized::k_quants as c;
use libloading::{Library, Symbol};

const RUNS: usize = 15;
/// Values of one call: the result and its blocks stay in the second-level cache.
const VALUES: usize = 1 << 16;
/// Calls that are timed together.
const CALLS: usize = 8;

type Row = unsafe extern "C" fn(*const u8, *mut f32, i64);

struct Scheme {
    name: &'static str,
    ggml: &'static str,
    candle: Option<fn(&[u8], &mut [f32])>,
}

/// Candle's decoder of blocks `B`.
fn candle<B: GgmlType>(blocks: &[u8], out: &mut [f32]) {
    // SAFETY: candle's blocks are `repr(C)` of bytes and binary16; the vector that holds ours is aligned for them.
    let (head, blocks, tail) = unsafe { blocks.align_to::<B>() };
    assert!(head.is_empty() && tail.is_empty());
    B::to_float(blocks, out);
}

const fn row(name: &'static str, ggml: &'static str, candle: Option<fn(&[u8], &mut [f32])>) -> Scheme {
    Scheme { name, ggml, candle }
}

const SCHEMES: &[Scheme] = &[
    row("q4_0", "q4_0", Some(candle::<c::BlockQ4_0>)),
    row("q4_1", "q4_1", Some(candle::<c::BlockQ4_1>)),
    row("q5_0", "q5_0", Some(candle::<c::BlockQ5_0>)),
    row("q5_1", "q5_1", Some(candle::<c::BlockQ5_1>)),
    row("q8_0", "q8_0", Some(candle::<c::BlockQ8_0>)),
    row("q2_k", "q2_K", Some(candle::<c::BlockQ2K>)),
    row("q3_k", "q3_K", Some(candle::<c::BlockQ3K>)),
    row("q4_k", "q4_K", Some(candle::<c::BlockQ4K>)),
    row("q5_k", "q5_K", Some(candle::<c::BlockQ5K>)),
    row("q6_k", "q6_K", Some(candle::<c::BlockQ6K>)),
    row("iq4_nl", "iq4_nl", None),
    row("iq4_xs", "iq4_xs", None),
    row("mxfp4", "mxfp4", None),
    row("tq1_0", "tq1_0", None),
    row("tq2_0", "tq2_0", None),
    row("iq2_xxs", "iq2_xxs", None),
    row("iq2_xs", "iq2_xs", None),
    row("iq2_s", "iq2_s", None),
    row("iq3_xxs", "iq3_xxs", None),
    row("iq3_s", "iq3_s", None),
    row("iq1_s", "iq1_s", None),
    row("iq1_m", "iq1_m", None),
    row("nvfp4", "nvfp4", None),
    row("q1_0", "q1_0", None),
    row("q2_0", "q2_0", None),
];

/// Blocks of noise whose scales are ordinary numbers.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // No binary16 of all ones in its exponent.
            (state >> 33) as u8 & 0x3F
        })
        .collect()
}

/// Room for the values, from a cache line's start on: a store that crosses one costs double, and luck should not
/// decide who pays.
fn room() -> Vec<Line> {
    vec![Line([0.0; 16]); VALUES / 16]
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read through `floats`")] [f32; 16]);

fn floats(lines: &mut [Line]) -> &mut [f32] {
    // SAFETY: a line is sixteen floats and nothing else.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), 16 * lines.len()) }
}

fn seconds(f: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| f());
    start.elapsed().as_secs_f64() / CALLS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let ggml = std::env::var_os("GGML_LIBRARY").map(|path| {
        // SAFETY: it is the library that the user names; ggml's initialisers are plain.
        unsafe { Library::new(&path) }.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    });
    println!("{}", quant::Isa::detect().map_or("scalar", quant::Isa::name));
    println!(
        "{:10} {:>10} {:>10} {:>7} {:>10} {:>7}",
        "M values/s", "ours", "ggml", "ratio", "candle", "ratio"
    );
    for scheme in SCHEMES {
        let Some(codec) = quant::codec(scheme.name) else { continue };
        let blocks = noise(VALUES / codec.per() * codec.cell_bytes());
        let symbol: Option<Symbol<'_, Row>> = ggml.as_ref().and_then(|l| {
            // SAFETY: ggml-quants.h declares them all so.
            unsafe { l.get(format!("dequantize_row_{}", scheme.ggml)) }.ok()
        });
        let (mut mine, mut theirs, mut out) = (room(), room(), room());
        let (mine, theirs, out) = (floats(&mut mine), floats(&mut theirs), floats(&mut out));
        let mut ours = || codec.decode_blocks(black_box(&blocks), black_box(&mut *mine));
        ours();
        let mut by_ggml = symbol.as_ref().map(|row| {
            || {
                // SAFETY: as many values as the blocks have.
                unsafe { row(black_box(blocks.as_ptr()), black_box(theirs.as_mut_ptr()), VALUES as i64) }
            }
        });
        let mut by_candle = scheme.candle.map(|f| {
            let (blocks, out) = (&blocks, &mut *out);
            move || f(black_box(blocks), black_box(&mut *out))
        });
        let (mut a, mut b, mut c) = (vec![], vec![], vec![]);
        for _ in 0..RUNS {
            a.push(seconds(&mut ours));
            b.extend(by_ggml.as_mut().map(|f| seconds(f)));
            c.extend(by_candle.as_mut().map(|f| seconds(f)));
        }
        let rate = |t: f64| VALUES as f64 / t / 1e6;
        let (us, has_ggml, has_candle) = (rate(median(a)), !b.is_empty(), !c.is_empty());
        let peer = |times: Vec<f64>| match times.is_empty() {
            true => format!("{:>10} {:>7}", "-", "-"),
            false => {
                let them = rate(median(times));
                format!("{them:10.0} {:6.2}x", us / them)
            }
        };
        println!("{:10} {us:10.0} {} {}", scheme.name, peer(b), peer(c));
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(!has_ggml || bits(mine) == bits(theirs), "`{}`: ggml gives other values", scheme.name);
        assert!(!has_candle || bits(mine) == bits(out), "`{}`: candle gives other values", scheme.name);
    }
}
