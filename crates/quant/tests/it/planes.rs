//! Schemes of several planes against vectors that the reference implementations made: `golden/*_planes.py`.

use std::collections::HashMap;
use std::fs;

use quant::{Codec, Matrix};
use serde_json::Value;
use tensor::Shape;

/// The schemes that have vectors, and how many groups these have at least.
const SCHEMES: &[&str] = &[
    "mlx-affine:b1,g64,bf16",
    "mlx-affine:b2,g64,bf16",
    "mlx-affine:b3,g32,f16",
    "mlx-affine:b3,g64,bf16",
    "mlx-affine:b4,g32,bf16",
    "mlx-affine:b4,g32,f32",
    "mlx-affine:b4,g64,bf16",
    "mlx-affine:b4,g64,f16",
    "mlx-affine:b4,g128,f16",
    "mlx-affine:b5,g64,bf16",
    "mlx-affine:b6,g64,bf16",
    "mlx-affine:b8,g32,f32",
    "mlx-affine:b8,g64,bf16",
    "mlx-mxfp4",
    "mlx-nvfp4",
    "mlx-mxfp8",
    "f8_e4m3",
    "f8_e5m2",
    "f8_e8m0",
    "f8_e4m3fnuz",
    "f8_e5m2fnuz",
    "f64",
    "fp8:e4m3,b4x8,f32",
    "fp8:e4m3,b4x6,f32",
    "fp8:e4m3,b4x8,f8_e8m0",
    "fp8:e5m2,b4x4,f32",
    "fp8:e4m3,row,f32",
    "fp8:e4m3,row,bf16",
    "fp8:e5m2,row,f16",
    "fp8:e4m3,tensor,f32",
    "fp8:e4m3,tensor,bf16",
    "mxfp4-split",
    "bitnet:64x72,bf16,mul",
    "bitnet:64x72,bf16,div",
    "bitnet:64x72,f32,div",
    "squish-int8:row",
    "squish-int8:g64",
    "squish-q4:g64",
    "squish-q4a:g12",
    "squish-q4a:g32",
    "squish-q4a:g64",
    "squish-q4a:g256",
];

/// One array of a file of vectors.
struct Array {
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    /// The values of a float array.
    fn floats(&self) -> Vec<f32> {
        let wide = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let two = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        match &*self.dtype {
            "F32" => self.bytes.chunks(4).map(|b| f32::from_bits(wide(b))).collect(),
            "F16" => self.bytes.chunks(2).map(|b| half::f16::from_bits(two(b)).to_f32()).collect(),
            "BF16" => self.bytes.chunks(2).map(|b| half::bf16::from_bits(two(b)).to_f32()).collect(),
            other => panic!("values are {other}"),
        }
    }
}

/// The vectors of the scheme called `name`.
struct Vectors {
    codec: &'static dyn Codec,
    arrays: HashMap<String, Array>,
}

impl Vectors {
    fn open(name: &str) -> Vectors {
        let file = if name.contains(':') { name.replace(':', "/") } else { format!("{name}/vectors") };
        let path = testkit::golden(&format!("{file}.safetensors"));
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let (header, data) = bytes[8..].split_at(len);
        let header: HashMap<String, Value> = serde_json::from_slice(header).unwrap();
        let numbers = |v: &Value| -> Vec<usize> {
            v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
        };
        let arrays = header.into_iter().map(|(name, info)| {
            let at = numbers(&info["data_offsets"]);
            let dtype = info["dtype"].as_str().unwrap().to_owned();
            let bytes = data[at[0]..at[1]].to_vec();
            (name, Array { dtype, shape: numbers(&info["shape"]), bytes })
        });
        let codec = quant::codec(name).unwrap_or_else(|| panic!("no codec is called `{name}`"));
        Vectors { codec, arrays: arrays.collect() }
    }

    /// Rows, columns and values of `which`, `decode` or `encode`.
    fn values(&self, which: &str) -> (usize, usize, Vec<f32>) {
        let values = &self.arrays[&format!("{which}.values")];
        let (k, rows) = values.shape.split_last().unwrap();
        (rows.iter().product(), *k, values.floats())
    }

    fn planes(&self, which: &str) -> Vec<&[u8]> {
        let scheme = self.codec.scheme();
        scheme.planes.iter().map(|p| &*self.arrays[&format!("{which}.{}", p.role)].bytes).collect()
    }
}

fn decoded(codec: &dyn Codec, planes: &[&[u8]], rows: usize, k: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows * k];
    codec.decode(Matrix { planes, rows, k }, 0..rows, &mut out);
    out
}

#[test]
fn decode_equals_the_reference_bit_for_bit() {
    for name in SCHEMES {
        let vectors = Vectors::open(name);
        let (rows, k, want) = vectors.values("decode");
        let scheme = vectors.codec.scheme();
        let planes = vectors.planes("decode");
        for (plane, bytes) in scheme.planes.iter().zip(&planes) {
            let wants = scheme.plane_bytes(plane, &Shape::from([rows as u64, k as u64]));
            assert_eq!(wants, Ok(bytes.len() as u64), "`{name}`, plane `{}`", plane.role);
        }
        let out = decoded(vectors.codec, &planes, rows, k);
        for (i, (found, want)) in out.iter().zip(&want).enumerate() {
            let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
            assert!(same, "`{name}`, row {}, column {}: {found:e}, wanted {want:e}", i / k, i % k);
        }

        // Any rows alone are what they are among all.
        let (from, to) = (rows / 3, rows - rows / 4);
        let mut part = vec![0.0; (to - from) * k];
        vectors.codec.decode(Matrix { planes: &planes, rows, k }, from..to, &mut part);
        let same = part.iter().zip(&out[from * k..to * k]).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "`{name}`, rows {from}..{to}");
    }
}

#[test]
fn encode_equals_the_reference_bit_for_bit() {
    for name in SCHEMES {
        let vectors = Vectors::open(name);
        let Some(encoder) = vectors.codec.encoder() else { continue };
        let (rows, k, values) = vectors.values("encode");
        let want = vectors.planes("encode");
        let mut planes: Vec<Vec<u8>> = want.iter().map(|p| vec![0xaa; p.len()]).collect();
        let mut out: Vec<&mut [u8]> = planes.iter_mut().map(|p| &mut p[..]).collect();
        match rows {
            1 => encoder.encode_vector(&values, None, &mut out),
            _ => encoder.encode(&values, k, None, &mut out),
        }
        let scheme = vectors.codec.scheme();
        for ((spec, found), want) in scheme.planes.iter().zip(&planes).zip(&want).rev() {
            let cell = spec.cell_bytes as usize;
            let differ = found.chunks(cell).zip(want.chunks(cell)).position(|(f, w)| f != w);
            if let Some(at) = differ {
                let bytes = at * cell..(at + 1) * cell;
                panic!(
                    "`{name}`, plane `{}`, cell {at}: {:02x?}, wanted {:02x?}",
                    spec.role,
                    &found[bytes.clone()],
                    &want[bytes]
                );
            }
        }
    }
}

/// Squish clips the rows of a matrix where that is nearer to most values, a vector never: one row is no vector.
#[test]
fn a_row_is_encoded_as_a_row_however_few_there_are() {
    let codec = quant::codec("squish-q4a:g32").unwrap();
    let (scheme, encoder) = (codec.scheme(), codec.encoder().unwrap());
    let mut values = crate::Noise(3).floats(4 * 64);
    values.iter_mut().step_by(64).for_each(|x| *x = 40.0);
    let planes = |rows: u64| -> Vec<Vec<u8>> {
        let bytes = |p| scheme.plane_bytes(p, &Shape::from([rows, 64])).unwrap() as usize;
        scheme.planes.iter().map(|p| vec![0u8; bytes(p)]).collect()
    };
    let mut all = planes(4);
    encoder.encode(&values, 64, None, &mut all.iter_mut().map(|p| &mut p[..]).collect::<Vec<_>>());
    let mut vector = planes(1);
    encoder.encode_vector(
        &values[..64],
        None,
        &mut vector.iter_mut().map(|p| &mut p[..]).collect::<Vec<_>>(),
    );
    for row in 0..4 {
        let mut one = planes(1);
        let values = &values[64 * row..64 * (row + 1)];
        encoder.encode(values, 64, None, &mut one.iter_mut().map(|p| &mut p[..]).collect::<Vec<_>>());
        for (one, all) in one.iter().zip(&all) {
            assert_eq!(one[..], all[one.len() * row..one.len() * (row + 1)], "row {row}");
        }
        assert!(row > 0 || one != vector, "a vector is not clipped");
    }
}

/// For every member of every family, and every scheme of several planes, encoded values decode to nearly the same.
#[test]
fn what_is_encoded_decodes_to_nearly_the_same() {
    // Whole words of zero points of any width.
    const ROWS: usize = 32;
    let mut noise = crate::Noise(7);
    for name in quant::names() {
        let codec = quant::codec(&name).unwrap();
        let (scheme, shape) = (codec.scheme(), Shape::from([ROWS as u64, 256]));
        let Some(encoder) = codec.encoder().filter(|_| scheme.planes.len() > 1) else { continue };
        let values = noise.floats(ROWS * 256);
        let bytes = |p| scheme.plane_bytes(p, &shape).unwrap() as usize;
        let mut planes: Vec<Vec<u8>> = scheme.planes.iter().map(|p| vec![0x55; bytes(p)]).collect();
        let mut out: Vec<&mut [u8]> = planes.iter_mut().map(|p| &mut p[..]).collect();
        encoder.encode(&values, 256, None, &mut out);
        let planes: Vec<&[u8]> = planes.iter().map(|p| &p[..]).collect();
        let back = decoded(codec, &planes, ROWS, 256);
        assert_eq!(codec.check(Matrix { planes: &planes, rows: ROWS, k: 256 }), Ok(()));
        let cosine = quant::Difference::of(&values, &back).cosine();
        assert!(cosine > if name.contains(":b1,") { 0.6 } else { 0.9 }, "`{name}`: {cosine}");
    }
}

/// The tensors that hold the planes of a weight are as long as its planes.
#[test]
fn parts_are_as_long_as_planes() {
    for name in quant::names() {
        // bitsandbytes quantises single matrices; its doubly quantised members are for 4096 columns.
        let shape =
            if name.starts_with("bnb") { Shape::from([256, 4096]) } else { Shape::from([2, 256, 512]) };
        let codec = quant::codec(&name).unwrap();
        let (scheme, parts) = (codec.scheme(), codec.parts(&shape));
        for (plane, part) in scheme.planes.iter().zip(&parts) {
            let plain = tensor::Scheme::plain(part.dtype).byte_len(&part.shape);
            assert_eq!(plain, scheme.plane_bytes(plane, &shape), "`{name}`, `{}`", part.suffix);
        }
        assert!(parts.is_empty() || parts.len() == scheme.planes.len(), "`{name}`");
    }
}

/// Scales that are no numbers are refused by name.
#[test]
fn bad_scales_are_refused() {
    let refused = |name: &str, planes: &[&[u8]]| {
        let codec = quant::codec(name).unwrap();
        codec.check(Matrix { planes, rows: 1, k: 64 }).map_err(|e| e.to_string())
    };
    let wrong = |role: &str, what: &str, found: &str| {
        Err(format!("plane `{role}`: {what}, wanted a finite number, found {found}"))
    };
    let (one, nan) = (0x3f80u16.to_le_bytes(), 0x7fc0u16.to_le_bytes());
    let affine =
        |scales: &[u8], biases: &[u8]| refused("mlx-affine:b4,g64,bf16", &[&[0; 32], scales, biases]);
    assert_eq!(affine(&one, &one), Ok(()));
    assert_eq!(affine(&nan, &one), wrong("scales", "a scale at cell 0", "NaN"));
    assert_eq!(affine(&one, &nan), wrong("biases", "a bias at cell 0", "NaN"));
    let (hex, inf) = ("0xff, which is no number", f32::INFINITY.to_le_bytes());
    let fp8 = |span: &str, scales: &[u8]| refused(&format!("fp8:e4m3,{span}"), &[&[0; 64], scales]);
    assert_eq!(fp8("b128x64,f32", &inf), wrong("scales", "a scale at cell 0", "inf"));
    assert_eq!(fp8("row,bf16", &nan), wrong("scales", "a scale at cell 0", "NaN"));
    assert_eq!(fp8("tensor,f8_e8m0", &[255]), wrong("scales", "a scale at cell 0", hex));
    assert_eq!(refused("mxfp4-split", &[&[0; 32], &[127, 255]]), wrong("scales", "a scale at cell 1", hex));
    assert_eq!(refused("squish-int8:row", &[&[0; 64], &inf]), wrong("scales", "a scale at cell 0", "inf"));
    let minima = refused("squish-q4a:g64", &[&[0; 32], &[0; 4], &inf]);
    assert_eq!(minima, wrong("minima", "a minimum at cell 0", "inf"));
    let zero = Err("plane `scale`: a scale at cell 0, wanted a number to divide by, found 0".to_owned());
    assert_eq!(refused("bitnet:4x16,bf16,div", &[&[0; 16], &[0, 0]]), zero);
    assert_eq!(refused("bitnet:4x16,bf16,mul", &[&[0; 16], &[0, 0]]), Ok(()));
    assert_eq!(refused("mlx-mxfp4", &[&[0; 32], &[127, 255]]), wrong("scales", "a scale at cell 1", hex));
    assert_eq!(refused("mlx-mxfp8", &[&[0; 64], &[255, 1]]), wrong("scales", "a scale at cell 0", hex));
    assert_eq!(refused("mlx-nvfp4", &[&[0; 32], &[1, 2, 3, 255]]), wrong("scales", "a scale at cell 3", hex));
}

/// Names have one spelling, and sizes that no kernel has are no schemes.
#[test]
fn names_are_canonical() {
    for name in [
        "mlx-affine:b7,g64,bf16",
        "mlx-affine:b4,g48,bf16",
        "mlx-affine:b4,g64,f64",
        "mlx-affine:b04,g64,bf16",
        "mlx-affine:b4,g64",
        "mlx-affine:b4,g64,bf16,",
        "mlx-affine:",
        "fp8:e4m3,b0x128,f32",
        "fp8:e4m3,b128,f32",
        "fp8:e4m3,b+1x1,f32",
        "fp8:e3m4,row,f32",
        "fp8:e4m3,row,f64",
        "bitnet:6x16,bf16,mul",
        "bitnet:0x16,bf16,mul",
        "bitnet:4294967296x4294967296,bf16,mul",
        "bitnet:4x16,bf16,add",
        "squish-int8:g0",
        "squish-int8:g7",
        "squish-q4:row",
    ] {
        assert!(quant::codec(name).is_none(), "`{name}`");
    }
}
