//! Products against a naive oracle, and against each other bit for bit.

use std::ops::Range;

use quant::{Activations, ColumnsMut, Forms, Isa, Matrix};

use crate::{Noise, Planes, packable, scales, unit};

/// Returns the values of the activations' codes: the documented quantisation, written naively.
fn quantised(x: &[f32]) -> Vec<f32> {
    let block = |x: &[f32]| {
        let max = x.iter().fold(0f32, |m, x| m.max(x.abs()));
        let code = |x: &f32| (x * (127.0 / max)).round_ties_even() * (max / 127.0);
        x.iter().map(code).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(block).collect()
}

/// `y` and the scale of its rounding errors, `Σ |w| |x|`, in f64.
fn oracle(w: &[f32], x: &[f32], k: usize) -> Vec<(f64, f64)> {
    let dot = |w: &[f32], x: &[f32]| {
        let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
        products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
    };
    x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| dot(w, x))).collect()
}

fn product(isa: Isa, scheme: &str, w: &Planes, k: usize, rows: &Range<usize>, x: &[f32]) -> Vec<f32> {
    let (name, scheme) = (scheme, quant::scheme(scheme).unwrap());
    let kernel = quant::kernel(&scheme, isa).unwrap();
    let tokens = x.len() / k;
    // As many rows as the first plane has, in groups as the name says.
    let group: usize = name.rsplit_once(".r").map_or(1, |(_, r)| r.parse().unwrap());
    let shape = tensor::Shape::from([group as u64, k as u64]);
    let total = w.0[0].len() / scheme.plane_bytes(&scheme.planes[0], &shape).unwrap() as usize * group;
    let mut acts = Activations::new(tokens, k);
    acts.fill(isa, x, tokens, k, kernel.forms);
    let mut y = vec![f32::NAN; tokens * rows.len()];
    kernel.run(
        Matrix { planes: &w.get(), rows: total, k },
        rows.clone(),
        &acts,
        ColumnsMut::new(&mut y, tokens, rows.len()),
    );
    y
}

fn check(what: &str, y: &[f32], want: &[(f64, f64)]) {
    for (i, (y, (want, size))) in y.iter().zip(want).enumerate() {
        let error = (f64::from(*y) - want).abs();
        assert!(error <= 1e-6 * size + 1e-30, "{what}: value {i} is {y}, not {want} (Σ|w||x| = {size})");
    }
}

/// The values of `w`, `[rows, k]`, before any rounding of the result to 16 bits (MLX).
fn decoded(scheme: &str, w: &Planes, rows: usize, k: usize) -> Vec<f32> {
    let (scheme, w) = match scheme.strip_prefix("mlx-affine:").and_then(|params| params.rsplit_once(',')) {
        Some((params, real)) => {
            let mut w = w.clone();
            let real = quant::codec(real).unwrap();
            for plane in &mut w.0[1..] {
                let mut values = vec![0.0; plane.len() / real.cell_bytes()];
                real.decode_blocks(plane, &mut values);
                *plane = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            }
            (format!("mlx-affine:{params},f32"), w)
        }
        None => (scheme.to_owned(), w.clone()),
    };
    let mut values = vec![0.0; rows * k];
    let matrix = Matrix { planes: &w.get(), rows, k };
    quant::codec(&scheme).unwrap().decode(matrix, 0..rows, &mut values);
    values
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

#[test]
fn quantised_products_are_right_and_the_same_in_every_form() {
    let mut noise = Noise(11);
    for name in &packable() {
        for (rows, units, tokens) in [
            (16, 1, 1),
            (48, 3, 1),
            (32, 27, 1),
            (48, 7, 6),
            (32, 3, 4),
            (16, 30, 9),
            (32, 2, 15),
            (16, 2, 20),
        ] {
            let k = units * unit(name);
            let w = noise.matrix(name, rows, k);
            let x: Vec<f32> = noise.floats(tokens * k);
            let want = oracle(&decoded(name, &w, rows, k), &quantised(&x), k);

            let reference = product(Isa::Scalar, name, &w, k, &(0..rows), &x);
            check(&format!("`{name}` [{rows}, {k}] x {tokens}"), &reference, &want);
            for isa in Isa::available() {
                let stored = product(isa, name, &w, k, &(0..rows), &x);
                assert_eq!(
                    bits(&stored),
                    bits(&reference),
                    "`{name}` [{rows}, {k}] x {tokens}, {}",
                    isa.name()
                );
                for r in [8, 16] {
                    let form = quant::interleaved(name, r).unwrap();
                    let mut packed = Planes::of(&form, rows, k, 0);
                    let stored = quant::scheme(name).unwrap();
                    quant::repack(&stored, &form, k, &w.get(), &mut packed.get_mut());
                    let y = product(isa, &form.name, &packed, k, &(0..rows), &x);
                    assert_eq!(
                        bits(&y),
                        bits(&reference),
                        "`{form}` [{rows}, {k}] x {tokens}, {}",
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn stored_products_take_any_rows_and_any_blocks() {
    let mut noise = Noise(12);
    for name in &packable() {
        let per = quant::kernel(&quant::scheme(name).unwrap(), Isa::Scalar).unwrap().k_multiple;
        for (rows, blocks, tokens) in [(1, 1, 1), (7, 3, 1), (37, 3, 5), (21, 1, 2), (53, 27, 3), (18, 2, 15)]
        {
            let k = blocks * per;
            let w = noise.matrix(name, rows, k);
            let x: Vec<f32> = noise.floats(tokens * k);
            let reference = product(Isa::Scalar, name, &w, k, &(0..rows), &x);
            check(name, &reference, &oracle(&decoded(name, &w, rows, k), &quantised(&x), k));
            for isa in Isa::available() {
                // Any split of the rows gives the same bits, in or out of groups.
                for cut in [0, rows / 3, rows / 2 + 1, rows] {
                    let cut = cut.min(rows);
                    let (a, b) = (
                        product(isa, name, &w, k, &(0..cut), &x),
                        product(isa, name, &w, k, &(cut..rows), &x),
                    );
                    for t in 0..tokens {
                        let (y, rest) = (&a[t * cut..][..cut], &b[t * (rows - cut)..][..rows - cut]);
                        assert_eq!(
                            [bits(y), bits(rest)].concat(),
                            bits(&reference[t * rows..][..rows]),
                            "`{name}` [{rows}, {k}] cut at {cut}, {}",
                            isa.name()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn plain_products_are_right_for_any_shape_and_the_same_everywhere() {
    let mut noise = Noise(13);
    for (rows, k, tokens) in [(1, 1, 1), (3, 31, 1), (5, 100, 6), (16, 576, 1), (9, 1000, 4), (2, 16, 9)] {
        let w: Vec<f32> = noise.floats(rows * k);
        let x: Vec<f32> = noise.floats(tokens * k);
        let stored = [
            ("f32", w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>()),
            ("f16", w.iter().flat_map(|w| half::f16::from_f32(*w).to_le_bytes()).collect()),
            ("bf16", w.iter().flat_map(|w| half::bf16::from_f32(*w).to_le_bytes()).collect()),
        ];
        for (name, w) in stored {
            let w = Planes(vec![w]);
            let want = oracle(&decoded(name, &w, rows, k), &x, k);
            let reference = product(Isa::Scalar, name, &w, k, &(0..rows), &x);
            check(&format!("`{name}` [{rows}, {k}] x {tokens}"), &reference, &want);
            for isa in Isa::available() {
                let y = product(isa, name, &w, k, &(0..rows), &x);
                assert_eq!(bits(&y), bits(&reference), "`{name}` [{rows}, {k}] x {tokens}, {}", isa.name());
                let one = product(isa, name, &w, k, &(rows - 1..rows), &x);
                assert!((0..tokens).all(|t| one[t].to_bits() == reference[t * rows + rows - 1].to_bits()));
            }
        }
    }
}

#[test]
fn nasty_codes_and_activations_keep_every_instruction_set_equal() {
    // All codes at their ends, scales up to the largest, activations of one sign, tiny, huge, or absent.
    let activations = [1.0, -1.0, 1e-38, 3e38, 0.0, f32::MIN_POSITIVE];
    for name in &packable() {
        let (scheme, k) = (quant::scheme(name).unwrap(), 512);
        for fill in [0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0] {
            let mut w = Planes::of(&scheme, 16, k, fill);
            if let [blocks] = &mut *w.0 {
                for block in blocks.chunks_exact_mut(scheme.planes[0].cell_bytes as usize) {
                    if matches!(&**name, "q2_k" | "q3_k" | "q6_k") || fill & 0x7F == 0x7F {
                        for (at, scale) in scales(name).iter().zip([[0xFF, 0x7B], [0x01, 0x80]]) {
                            block[*at..at + 2].copy_from_slice(&scale);
                        }
                    }
                }
            } else if fill & 0x7F == 0x7F {
                // Largest and smallest numbers of each kind.
                for (plane, real) in
                    w.0[1..].iter_mut().zip([[0x01, 0x80, 0xFF, 0x7B], [0xFF, 0x7B, 0x01, 0x80]])
                {
                    plane.iter_mut().zip(real.into_iter().cycle()).for_each(|(to, byte)| *to = byte);
                }
            }
            for x in activations {
                let x = vec![x; 5 * k];
                let reference = product(Isa::Scalar, name, &w, k, &(0..16), &x);
                for isa in Isa::available() {
                    let y = product(isa, name, &w, k, &(0..16), &x);
                    assert_eq!(
                        bits(&y),
                        bits(&reference),
                        "`{name}` of {fill:#x} x {}, {}",
                        x[0],
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn activations_that_are_not_numbers_show_in_the_result() {
    let mut noise = Noise(14);
    let w = noise.matrix("q8_0", 16, 64);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for isa in Isa::available() {
            let mut x: Vec<f32> = noise.floats(64);
            x[40] = bad;
            assert!(product(isa, "q8_0", &w, 64, &(0..16), &x).iter().all(|y| y.is_nan()), "{bad}");
        }
    }
}

#[test]
fn activations_filled_in_parts_are_those_filled_at_once() {
    let (tokens, k) = (23, 96);
    let x: Vec<f32> = Noise(15).floats(tokens * k);
    let w = Noise(16).matrix("q5_1", 8, k);
    let kernel = quant::kernel(&quant::scheme("q5_1").unwrap(), Isa::Scalar).unwrap();
    let run = |acts: &Activations| {
        let mut y = vec![0.0; tokens * 8];
        kernel.run(Matrix { planes: &w.get(), rows: 8, k }, 0..8, acts, ColumnsMut::new(&mut y, tokens, 8));
        bits(&y)
    };
    let mut whole = Activations::new(tokens, k);
    whole.fill(Isa::Scalar, &x, tokens, k, Forms::INT8);
    for isa in Isa::available() {
        let mut parts = Activations::new(tokens + 3, k + 32);
        let (first, rest) = parts.begin(tokens, k, Forms::INT8.union(Forms::F32)).split_at(8);
        std::thread::scope(|s| {
            s.spawn(|| first.fill(isa, &x[..8 * k]));
            s.spawn(|| rest.fill(isa, &x[8 * k..]));
        });
        assert_eq!(run(&parts), run(&whole), "{}", isa.name());
    }
}

#[test]
fn activations_filled_by_columns_and_rows_are_those_filled_at_once() {
    let k = 96;
    let kernels = [("q5_1", Isa::Scalar), ("f32", Isa::Scalar)];
    for tokens in [1, 3, 4, 7, 8, 12, 23] {
        let x: Vec<f32> = Noise(18).floats(tokens * k);
        let forms = Forms::INT8.union(Forms::F32);
        let products = |acts: &Activations| {
            kernels.map(|(scheme, isa)| {
                let w = Noise(19).matrix(scheme, 8, k);
                let kernel = quant::kernel(&quant::scheme(scheme).unwrap(), isa).unwrap();
                let mut y = vec![0.0; tokens * 8];
                let y_columns = ColumnsMut::new(&mut y, tokens, 8);
                kernel.run(Matrix { planes: &w.get(), rows: 8, k }, 0..8, acts, y_columns);
                bits(&y)
            })
        };
        let mut whole = Activations::new(tokens, k);
        whole.fill(Isa::Scalar, &x, tokens, k, forms);
        for isa in Isa::available() {
            let mut parts = Activations::new(tokens, k);
            let (left, right) = parts.begin(tokens, k, forms).split_at_column(64);
            assert_eq!((left.columns(), right.columns(), right.rows()), (64, 32, tokens));
            for (mut part, columns) in [(right, 64..96), (left, 0..64)] {
                for first in (0..tokens).step_by(4).rev() {
                    let rows = x[first * k..].chunks_exact(k).take(4);
                    let values: Vec<f32> = rows.flat_map(|row| &row[columns.clone()]).copied().collect();
                    part.fill_rows(isa, first, &values);
                }
            }
            assert_eq!(products(&parts), products(&whole), "{tokens} rows, {}", isa.name());
        }
    }
}

#[test]
#[should_panic(expected = "the rows 4..7")]
fn part_of_a_tile_is_refused() {
    let mut some = Activations::new(8, 32);
    some.begin(8, 32, Forms::INT8).fill_rows(Isa::Scalar, 4, &[0.0; 3 * 32]);
}

#[test]
#[should_panic(expected = "in groups of 16")]
fn part_of_an_interleaved_group_is_refused() {
    product(Isa::Scalar, "q4_0.r16", &Planes(vec![vec![0; 2 * 576]]), 64, &(0..8), &[0.0; 64]);
}

#[test]
#[should_panic(expected = "bytes are not 1 rows of 64 columns")]
fn a_matrix_cut_short_is_refused() {
    product(Isa::Scalar, "q4_0", &Planes(vec![vec![0; 36 + 35]]), 64, &(0..1), &[0.0; 64]);
}

#[test]
#[should_panic(expected = "are not 16 rows of 64 columns")]
fn planes_of_different_matrices_are_refused() {
    let mut w = Noise(17).matrix("squish-int8:g64", 16, 64);
    w.0[1].truncate(15 * 4);
    product(Isa::Scalar, "squish-int8:g64", &w, 64, &(0..1), &[0.0; 64]);
}

#[test]
fn an_exponent_that_is_no_number_shows_in_the_result_as_in_the_values() {
    for (name, is_nan) in [("mxfp4", false), ("mlx-mxfp4", true), ("mxfp4-split", true)] {
        let mut w = Noise(18).matrix(name, 1, 64);
        let plane = w.0.len() - 1;
        w.0[plane][0] = 255;
        assert_eq!(decoded(name, &w, 1, 64)[0].is_nan(), is_nan, "`{name}`");
        for isa in Isa::available() {
            let y = product(isa, name, &w, 64, &(0..1), &[1e-30; 64]);
            assert_eq!(y[0].is_nan(), is_nan, "`{name}`, {}", isa.name());
        }
    }
}

/// Schemes without arithmetic of their own are decoded on the way, and multiplied as floats.
#[test]
fn whatever_decodes_can_be_multiplied() {
    let packable = packable();
    let others = quant::names().filter(|name| {
        let plain = ["f32", "f16", "bf16"].contains(&name.as_str());
        !plain && !packable.contains(name)
    });
    let (mut tried, mut noise) = (0, Noise(21));
    for name in others {
        let (scheme, codec) = (quant::scheme(&name).unwrap(), quant::codec(&name).unwrap());
        let (rows, k, tokens) = (37, 512, 3);
        let shape = tensor::Shape::from([rows as u64, k as u64]);
        // Some sizes are in the names of schemes, and their last rows may not be whole.
        let rows = if scheme.byte_len(&shape).is_ok() { rows } else { 32 };
        if scheme.byte_len(&tensor::Shape::from([rows as u64, k as u64])).is_err() {
            continue;
        }
        let w = Planes::of(&scheme, rows, k, 0x11);
        if codec.check(Matrix { planes: &w.get(), rows, k }).is_err() {
            continue;
        }
        let mut values = vec![0.0; rows * k];
        codec.decode(Matrix { planes: &w.get(), rows, k }, 0..rows, &mut values);
        let x: Vec<f32> = noise.floats(tokens * k);
        let want = oracle(&values, &x, k);
        let run = |isa: Isa, some: Range<usize>| {
            let kernel = quant::kernel(&scheme, isa).unwrap();
            let mut acts = Activations::new(tokens, k);
            acts.fill(isa, &x, tokens, k, kernel.forms);
            let mut y = vec![f32::NAN; tokens * some.len()];
            let out = ColumnsMut::new(&mut y, tokens, some.len());
            kernel.run(Matrix { planes: &w.get(), rows, k }, some, &acts, out);
            y
        };
        let all = run(Isa::Scalar, 0..rows);
        check(&name, &all, &want);
        for isa in Isa::available() {
            assert_eq!(bits(&run(isa, 0..rows)), bits(&all), "`{name}` {}", isa.name());
            let last = run(isa, 5..rows);
            for t in 0..tokens {
                let (part, whole) = (&last[t * (rows - 5)..][..rows - 5], &all[t * rows + 5..][..rows - 5]);
                assert_eq!(bits(part), bits(whole), "`{name}` {}", isa.name());
            }
        }
        tried += 1;
    }
    assert!(tried > 20, "{tried} schemes");
}
