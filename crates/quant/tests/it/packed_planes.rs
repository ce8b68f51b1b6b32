//! Schemes of several planes against vectors that their own implementations made: `golden/<scheme>/cases.json`.

use std::fs;

use half::{bf16, f16};
use quant::{Codes, Matrix};
use serde_json::Value;
use tensor::Shape;

/// One matrix of a folder of golden vectors.
pub(crate) struct Case {
    pub(crate) scheme: String,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    pub(crate) planes: Vec<Vec<u8>>,
    pub(crate) values: Vec<f32>,
    pub(crate) codes: Vec<u8>,
}

impl Case {
    pub(crate) fn all(folder: &str) -> Vec<Case> {
        let path = testkit::golden(folder);
        let read = |file: &str| fs::read(path.join(file));
        let (mut planes, mut values) = (read("planes.bin").unwrap(), read("values.bin").unwrap());
        let mut codes = read("codes.bin").unwrap_or_default();
        let take = |from: &mut Vec<u8>, n: usize| from.drain(..n).collect::<Vec<u8>>();
        let cases: Vec<Value> = serde_json::from_slice(&read("cases.json").unwrap()).unwrap();
        let cases = cases.iter().map(|case| {
            let number = |key: &str| case[key].as_u64().unwrap_or(0) as usize;
            let (rows, k) = (number("out"), number("in"));
            let lengths = case["planes"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize);
            let two = |b: &[u8]| [b[0], b[1]];
            let dtype = case["values"].as_str().unwrap();
            let raw = take(&mut values, rows * k * if dtype == "f32" { 4 } else { 2 });
            Case {
                scheme: case["scheme"].as_str().unwrap().to_owned(),
                rows,
                k,
                planes: lengths.map(|n| take(&mut planes, n)).collect(),
                values: match dtype {
                    "f16" => raw.chunks(2).map(|b| f16::from_le_bytes(two(b)).to_f32()).collect(),
                    "bf16" => raw.chunks(2).map(|b| bf16::from_le_bytes(two(b)).to_f32()).collect(),
                    "f32" => raw.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
                    other => panic!("values of {other}"),
                },
                codes: take(&mut codes, number("codes")),
            }
        });
        let cases: Vec<Case> = cases.collect();
        assert!(
            planes.is_empty() && values.is_empty() && codes.is_empty(),
            "`{folder}` has more than its cases"
        );
        cases
    }

    pub(crate) fn decode(&self, rows: std::ops::Range<usize>) -> Vec<f32> {
        let planes: Vec<&[u8]> = self.planes.iter().map(Vec::as_slice).collect();
        let mut out = vec![f32::NAN; rows.len() * self.k];
        let codec = quant::codec(&self.scheme).unwrap_or_else(|| panic!("`{}`", self.scheme));
        let matrix = Matrix { planes: &planes, rows: self.rows, k: self.k };
        assert_eq!(codec.check(matrix), Ok(()), "`{}`", self.scheme);
        codec.decode(matrix, rows, &mut out);
        out
    }

    fn check(&self) -> Result<(), String> {
        let planes: Vec<&[u8]> = self.planes.iter().map(Vec::as_slice).collect();
        let codec = quant::codec(&self.scheme).unwrap();
        codec.check(Matrix { planes: &planes, rows: self.rows, k: self.k }).map_err(|bad| bad.to_string())
    }

    fn shape(&self) -> Shape {
        Shape::from([self.rows as u64, self.k as u64])
    }
}

/// Decodes every case of a folder, at once, row by row and from the middle.
fn equals_the_reference(folder: &str) {
    for case in Case::all(folder) {
        let name = &case.scheme;
        let scheme = quant::scheme(name).unwrap_or_else(|| panic!("no scheme `{name}`"));
        let codec = quant::codec(name).unwrap();
        for (spec, plane) in scheme.planes.iter().zip(&case.planes) {
            let wants = scheme.plane_bytes(spec, &case.shape());
            assert_eq!(wants, Ok(plane.len() as u64), "`{name}`, plane `{}`", spec.role);
        }
        let parts = codec.parts(&case.shape());
        let bytes: Vec<u64> = parts.iter().map(|p| p.shape.elements().unwrap() * p.dtype.bytes()).collect();
        assert_eq!(bytes, case.planes.iter().map(|p| p.len() as u64).collect::<Vec<_>>(), "`{name}`");

        let all = case.decode(0..case.rows);
        for (i, (found, want)) in all.iter().zip(&case.values).enumerate() {
            let at = (i / case.k, i % case.k);
            assert_eq!(found.to_bits(), want.to_bits(), "`{name}` at {at:?}: {found}, wanted {want}");
        }
        let rows = 3..case.rows - 2;
        assert_eq!(case.decode(rows.clone()), all[rows.start * case.k..rows.end * case.k], "`{name}`");
        for row in [0, case.rows - 1] {
            assert_eq!(case.decode(row..row + 1), all[row * case.k..][..case.k], "`{name}`");
        }
    }
}

/// Packs the codes of every case that has some.
fn packs_as_the_reference(folder: &str) {
    let cases: Vec<Case> = Case::all(folder).into_iter().filter(|c| !c.codes.is_empty()).collect();
    assert!(!cases.is_empty());
    for case in cases {
        let (codes, zeros) = case.codes.split_at(case.rows * case.k);
        let g_idx: Option<Vec<u32>> = case
            .planes
            .get(3)
            .map(|p| p.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect());
        let given = Codes {
            rows: case.rows,
            k: case.k,
            codes,
            scales: &vec![1.0; zeros.len()],
            zeros,
            g_idx: g_idx.as_deref(),
        };
        let assembler = quant::codec(&case.scheme).and_then(quant::Codec::assembler).unwrap();
        assert_eq!(assembler.assemble(&given).unwrap(), case.planes, "`{}`", case.scheme);
    }
}

#[test]
fn gptq_equals_gptqmodel() {
    equals_the_reference("gptq");
    packs_as_the_reference("gptq");
}

#[test]
fn awq_equals_autoawq() {
    equals_the_reference("awq");
    packs_as_the_reference("awq");
}

#[test]
fn ct_equals_compressed_tensors() {
    equals_the_reference("ct");
}

#[test]
fn nvfp4_equals_modelopt() {
    equals_the_reference("modelopt");
}

#[test]
fn bnb_equals_bitsandbytes() {
    equals_the_reference("bnb");
}

#[test]
fn bnb_encodes_as_bitsandbytes() {
    let cases: Vec<Case> = Case::all("bnb").into_iter().filter(|c| !c.codes.is_empty()).collect();
    assert!(cases.len() >= 3);
    for case in cases {
        let values: Vec<f32> =
            case.codes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let encoder = quant::codec(&case.scheme).and_then(quant::Codec::encoder).unwrap();
        let mut planes: Vec<Vec<u8>> = case.planes.iter().map(|p| vec![0xEE; p.len()]).collect();
        let mut borrowed: Vec<&mut [u8]> = planes.iter_mut().map(Vec::as_mut_slice).collect();
        encoder.encode(&values, case.k, None, &mut borrowed);
        assert!(planes == case.planes, "`{}`", case.scheme);
    }
}

/// The same blocks, where 256 of them span rows, columns, or the matrix has just one shape.
#[test]
fn bnb_nested_factors_are_found_in_every_layout() {
    let mut noise = crate::Noise(8);
    for (rows, k, span) in [(5, 32768, "c16384"), (5, 16384, "r1"), (9, 8192, "r2"), (40, 1024, "r16")] {
        let blocks = rows * k / 64;
        let floats = |noise: &mut crate::Noise, n| -> Vec<u8> {
            noise.floats(n).iter().flat_map(|x| x.to_le_bytes()).collect()
        };
        let planes = [
            noise.bytes(rows * k / 2),
            noise.bytes(blocks),
            floats(&mut noise, blocks.div_ceil(256)),
            floats(&mut noise, 256),
        ];
        let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
        let [mut one, mut other] = [vec![0.0; rows * k], vec![1.0; rows * k]];
        let matrix = Matrix { planes: &planes, rows, k };
        let codec = |layout: &str| quant::codec(&format!("bnb-nf4:b64,f32,{layout},o3d4ccccd")).unwrap();
        codec(span).decode(matrix, 0..rows, &mut one);
        codec(&format!("{rows}x{k}")).decode(matrix, 0..rows, &mut other);
        assert!(one == other, "`{span}`");
        let shape = Shape::from([rows as u64, k as u64]);
        let scheme = codec(span).scheme();
        let bytes = scheme.planes.iter().map(|p| scheme.plane_bytes(p, &shape).unwrap() as usize);
        assert!(bytes.eq(planes.iter().map(|p| p.len())), "`{span}`");
    }
}

#[test]
fn factors_that_are_no_numbers_are_refused() {
    for (folder, scheme, plane, at) in [
        ("awq", "awq:g32,f16", 2, 12),
        ("bnb", "bnb-nf4:b64,f32", 1, 3),
        ("bnb", "bnb-int8", 1, 63),
        ("bnb", "bnb-fp4:b32,f16,13x800,", 2, 0),
        ("bnb", "bnb-fp4:b32,f16,13x800,", 3, 255),
        ("ct", "ct-pack:b4,g32,bf16", 1, 7),
        ("ct", "ct-int8:row,z,f16", 1, 63),
        ("ct", "ct-fp8:row,bf16", 1, 5),
        ("ct", "ct-nvfp4", 1, 17),
        ("ct", "ct-nvfp4", 2, 0),
        ("ct", "ct-mxfp4", 1, 127),
        ("modelopt", "modelopt-nvfp4:bf16", 2, 0),
    ] {
        let mut case = Case::all(folder).into_iter().find(|c| c.scheme.starts_with(scheme)).unwrap();
        assert_eq!(case.check(), Ok(()));
        let bytes = quant::scheme(&case.scheme).unwrap().planes[plane].cell_bytes;
        let (nan, found): (&[u8], _) = match bytes {
            1 if scheme.contains("mx") => (&[0xFF], "0xff, which is no number"),
            1 => (&[0x7F], "0x7f, which is no number"),
            // No number of either sixteen bits.
            2 => (&[0xFF, 0x7F], "NaN"),
            _ => (&[0, 0, 0xC0, 0x7F], "NaN"),
        };
        case.planes[plane][at * nan.len()..][..nan.len()].copy_from_slice(nan);
        let role = quant::scheme(&case.scheme).unwrap().planes[plane].role;
        let wanted = format!("plane `{role}`: a scale at cell {at}, wanted a finite number, found {found}");
        assert_eq!(case.check(), Err(wanted), "`{scheme}`");
    }
}

#[test]
fn gptq_refuses_what_cannot_be_meant() {
    let mut case = Case::all("gptq").into_iter().find(|c| c.scheme == "gptq:b4,act5,f16").unwrap();
    let sound = case.planes[3].clone();
    for (group, found) in [(5i32, "5"), (-1, "-1"), (i32::MAX, "2147483647")] {
        case.planes[3][4 * 7..][..4].copy_from_slice(&group.to_le_bytes());
        let wants = "one of the 5 groups, 0 to 4";
        assert_eq!(
            case.check(),
            Err(format!("plane `g_idx`: a group index at cell 7, wanted {wants}, found {found}"))
        );
        // Decoding rejected data gives meaningless values, but does no harm.
        let planes: Vec<&[u8]> = case.planes.iter().map(Vec::as_slice).collect();
        let matrix = Matrix { planes: &planes, rows: case.rows, k: case.k };
        let mut out = vec![0.0; case.rows * case.k];
        quant::codec(&case.scheme).unwrap().decode(matrix, 0..case.rows, &mut out);
    }
    case.planes[3] = sound;
    for (scale, found) in [(f16::NAN, "NaN"), (f16::NEG_INFINITY, "-inf")] {
        case.planes[2][2 * 9..][..2].copy_from_slice(&scale.to_le_bytes());
        assert_eq!(
            case.check(),
            Err(format!("plane `scales`: a scale at cell 9, wanted a finite number, found {found}"))
        );
    }
}

#[test]
fn ct_refuses_what_cannot_be_meant() {
    let mut case = Case::all("ct").into_iter().find(|c| c.scheme == "ct-pack:b4,act4,z,f16").unwrap();
    for group in [4i32, -1, i32::MIN] {
        case.planes[3][4 * 9..][..4].copy_from_slice(&group.to_le_bytes());
        let wants = "one of the 4 groups, 0 to 3";
        assert_eq!(
            case.check(),
            Err(format!("plane `weight_g_idx`: a group index at cell 9, wanted {wants}, found {group}"))
        );
        // Decoding rejected data gives meaningless values, but does no harm.
        let planes: Vec<&[u8]> = case.planes.iter().map(Vec::as_slice).collect();
        let matrix = Matrix { planes: &planes, rows: case.rows, k: case.k };
        quant::codec(&case.scheme).unwrap().decode(matrix, 0..case.rows, &mut vec![0.0; case.rows * case.k]);
    }
    let mut case = Case::all("ct").into_iter().find(|c| c.scheme == "ct-nvfp4").unwrap();
    case.planes[2].fill(0);
    let wanted = "plane `weight_global_scale`: a scale at cell 0, wanted a number to divide by, found 0";
    assert_eq!(case.check(), Err(wanted.to_owned()));
}

#[test]
fn integers_are_packed_and_come_back() {
    let mut noise = crate::Noise(5);
    for (name, bits, groups) in [
        ("gptq:b2,g32,f16", 2, 2),
        ("gptq:b3,g64,bf16", 3, 1),
        ("gptq-v2:b4,g16,f16", 4, 4),
        ("gptq:b8,row,f32", 8, 1),
        ("gptq-v2:b3,act3,f16", 3, 3),
        ("awq:g16,f16", 4, 4),
        ("awq:row,bf16", 4, 1),
    ] {
        let (rows, k) = (32, 64);
        let mut codes = |n: usize| noise.bytes(n).iter().map(|b| b >> (8 - bits)).collect::<Vec<u8>>();
        let (codes, mut zeros) = (codes(rows * k), codes(rows * groups));
        zeros[..2].copy_from_slice(&[0, ((1u16 << bits) - 1) as u8]);
        let scales: Vec<f32> = (0..rows * groups).map(|i| (i % 8) as f32 * 0.5 - 3.0).collect();
        let g_idx: Vec<u32> =
            (0..k).map(|i| if name.contains("act") { i % 3 } else { i * groups / k } as u32).collect();
        let given = Codes {
            rows,
            k,
            codes: &codes,
            scales: &scales,
            zeros: &zeros,
            g_idx: name.contains("act").then_some(&g_idx[..]),
        };
        let codec = quant::codec(name).unwrap();
        let planes = codec.assembler().unwrap().assemble(&given).unwrap();
        let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
        let mut out = vec![0.0; rows * k];
        codec.decode(Matrix { planes: &planes, rows, k }, 0..rows, &mut out);
        for (i, x) in out.iter().enumerate() {
            let g = i / k * groups + g_idx[i % k] as usize;
            let wanted = scales[g] * (f32::from(codes[i]) - f32::from(zeros[g]));
            assert_eq!(*x, wanted, "`{name}`, value {i}");
        }
    }
}

#[test]
fn integers_without_a_place_are_refused() {
    let (codes, zeros, scales) = (vec![3; 32 * 32], vec![1; 32], vec![1.0; 32]);
    let given = Codes { rows: 32, k: 32, codes: &codes, scales: &scales, zeros: &zeros, g_idx: None };
    let pack = |name: &str, given: &Codes<'_>| {
        quant::codec(name).unwrap().assembler().unwrap().assemble(given).map(|_| ()).unwrap_err().to_string()
    };
    let name = "gptq:b2,g32,f16";
    assert_eq!(pack("gptq:b2,g16,f16", &given), "`scales`: wanted 64 values, found 32");
    assert_eq!(pack("gptq:b2,act1,f16", &given), "`g_idx`: wanted 32 values, found 0");
    assert_eq!(
        pack(name, &Codes { zeros: &[4; 32], ..given }),
        "plane `zeros`: a zero point at cell 0, wanted at most 3, found 4"
    );
    assert_eq!(
        pack(name, &Codes { scales: &[1e6; 32], ..given }),
        "plane `scales`: a scale at cell 0, wanted a finite number, found inf"
    );
    let narrow = Codes { k: 20, codes: &codes[..32 * 20], ..given };
    assert_eq!(
        pack(name, &narrow),
        "`gptq:b2,g32,f16` of [32, 20]: axis 1 has 20 elements, not a multiple of the 16 that a block packs"
    );
}

#[test]
fn names_have_one_spelling() {
    for name in [
        "gptq:b7,g128,f16",
        "gptq:b4,g0,f16",
        "gptq:b4,g-1,f16",
        "gptq:b04,g128,f16",
        "gptq:b4,g128",
        "gptq:b4,g128,f16,",
        "gptq:b4,g128,f64",
        "gptq:b4,g+128,f16",
        "gptq:b4,act0,f16",
        "gptq-v3:b4,g128,f16",
        "awq:act4,f16",
        "awq:g128,f32",
        "awq:g64",
        "bnb-nf4:b48,bf16",
        "bnb-nf4:b64",
        "bnb-nf4:b64,bf16,r4",
        "bnb-nf4:b64,bf16,r3,o3d4ccccd",
        "bnb-nf4:b64,bf16,c64,o3d4ccccd",
        "bnb-nf4:b64,bf16,o3d4ccccd",
        "bnb-nf4:b64,bf16,r4,o3D4CCCCD",
        "bnb-nf4:b64,bf16,r4,o7fc00000",
        "bnb-nf4:b64,bf16,0x64",
        "bnb-nf4:b64,bf16,9999999999999x9999999999999",
        "bnb-nf4:b64,bf16,7x9,r4,o3d4ccccd",
        "ct-pack:b5,g128,bf16",
        "ct-pack:b4,g0128,bf16",
        "ct-pack:b4,tensor,z,bf16",
        "ct-pack:b4,b8x16,bf16",
        "ct-pack:g128,bf16",
        "ct-int8:act4,bf16",
        "ct-int8:row,z",
        "ct-fp8:row,f32",
        "ct-fp8:g32,bf16",
        "ct-nvfp4:bf16",
        "modelopt-nvfp4",
        "modelopt-nvfp4:f64",
    ] {
        assert!(quant::scheme(name).is_none(), "`{name}`");
    }
}
