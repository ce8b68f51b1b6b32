//! The order of Marlin: vLLM's own, band by band, on every rank, and refused by name.

use serde_json::Value;
use weighbridge::tensor::{Lines, Scheme, Stage, StageInput};
use weighbridge::vllm::LAYOUT;
use weighbridge::vllm::marlin::Marlin;
use weighbridge::{Mesh, Plan, PlanBuilder, Pool, Shape, load};

use crate::vllm::checkpoint;

/// Planes of a matrix `[out, in]` by the stage of its scheme, all at once.
fn whole(marlin: &Marlin, planes: &[&[u8]], [out, inputs]: [usize; 2]) -> Result<Vec<Vec<u8>>, String> {
    let shape = Shape::from([out as u64, inputs as u64]);
    marlin.fits(&shape)?;
    let gives = marlin.gives();
    let mut made: Vec<Vec<u8>> = gives
        .planes
        .iter()
        .map(|p| vec![0xA5; usize::try_from(gives.plane_bytes(p, &shape).unwrap()).unwrap()])
        .collect();
    let mut places: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
    let input = StageInput { planes, first: 0, rows: out, k: inputs, whole: [out, inputs] };
    marlin.apply(input, &mut places).map(|()| made)
}

/// A case of golden/marlin: scheme, `[out, in]`, planes before and after.
type Case = (String, [usize; 2], Vec<Vec<u8>>, Vec<Vec<u8>>);

fn cases() -> Vec<Case> {
    let cases: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("marlin/cases.json")).unwrap()).unwrap();
    let all = std::fs::read(testkit::golden("marlin/planes.bin")).unwrap();
    let mut rest = &all[..];
    let cases = cases.as_array().unwrap().iter().map(|case| {
        let number = |n: &Value| usize::try_from(n.as_u64().unwrap()).unwrap();
        let mut take = |key: &str| -> Vec<Vec<u8>> {
            let lengths = case[key].as_array().unwrap().iter();
            let planes = lengths.map(|len| {
                let (plane, after) = rest.split_at(number(len));
                rest = after;
                plane.to_vec()
            });
            planes.collect()
        };
        let (before, after) = (take("planes"), take("marlin"));
        (
            case["scheme"].as_str().unwrap().to_owned(),
            [number(&case["out"]), number(&case["in"])],
            before,
            after,
        )
    });
    let cases = cases.collect();
    assert!(rest.is_empty());
    cases
}

fn borrowed(planes: &[Vec<u8>]) -> Vec<&[u8]> {
    planes.iter().map(Vec::as_slice).collect()
}

fn stage(scheme: &str) -> Marlin {
    Marlin::of(&weighbridge::quant::scheme(scheme).unwrap()).unwrap()
}

#[test]
fn every_case_is_as_vllm_orders_it() {
    let cases = cases();
    assert!(cases.len() >= 10);
    for (scheme, size, before, after) in cases {
        let found = whole(&stage(&scheme), &borrowed(&before), size).unwrap();
        assert!(found == after, "{scheme} {size:?}");
    }
}

/// A band of columns is a run of bytes of each plane, before and after.
#[test]
fn bands_of_columns_give_the_bytes_of_the_whole() {
    for (scheme, [out, inputs], before, after) in cases() {
        let marlin = stage(&scheme);
        assert_eq!(marlin.lines(), Lines::Columns);
        let (takes, gives) = (marlin.takes(), marlin.gives());
        let unit =
            usize::try_from(weighbridge::tensor::band_unit(Lines::Columns, &takes, [&*gives], inputs as u64))
                .unwrap();
        let mut made: Vec<Vec<u8>> = vec![vec![]; after.len()];
        for first in (0..inputs).step_by(unit) {
            let band = first as u64..(first + unit).min(inputs) as u64;
            let part = |scheme: &Scheme, planes: &[Vec<u8>]| -> Vec<Vec<u8>> {
                let cut = |(i, plane): (usize, &Vec<u8>)| {
                    let bytes =
                        scheme.line_bytes(Lines::Columns, i, plane.len() as u64, inputs as u64, &band);
                    plane[usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()].to_vec()
                };
                planes.iter().enumerate().map(cut).collect()
            };
            let (from, mut to) = (part(&takes, &before), part(&gives, &after));
            for plane in &mut to {
                plane.fill(0);
            }
            let mut places: Vec<&mut [u8]> = to.iter_mut().map(Vec::as_mut_slice).collect();
            let k = usize::try_from(band.end - band.start).unwrap();
            let input = StageInput { planes: &borrowed(&from), first: 0, rows: out, k, whole: [out, inputs] };
            marlin.apply(input, &mut places).unwrap();
            made.iter_mut().zip(to).for_each(|(all, part)| all.extend(part));
        }
        assert!(made == after, "{scheme} in bands of {unit}");
    }
}

fn plan(
    source: &weighbridge::Checkpoint,
    tp: u64,
    rank: u64,
    stages: &[(&str, &str)],
) -> Result<Plan, String> {
    let mesh = Mesh { tp, ..Mesh::default() };
    let of = PlanBuilder::new(source).layout(LAYOUT).mesh(mesh).rank(rank);
    let of = stages.iter().fold(of, |of, (pattern, scheme)| {
        let scheme = weighbridge::quant::scheme(scheme).unwrap();
        of.stage(pattern, Marlin::stage(&scheme).unwrap())
    });
    of.build().map_err(|error| error.to_string())
}

const QKV: &str = "model.layers.{n}.self_attn.qkv_proj.weight";
const DOWN: &str = "model.layers.{n}.mlp.down_proj.weight";

/// Fused, shared out, and then brought into order: what each rank holds is what it would make of its own weights.
#[test]
fn every_rank_orders_its_own_share() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("vllm/llama-awq4.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = checkpoint(&golden, folder.path());
    let scheme = "awq:g128,f16";
    let mut ordered = 0;
    for tp in [1, 2, 4] {
        for rank in 0..tp {
            let before = plan(&source, tp, rank, &[]).unwrap();
            let staged = plan(&source, tp, rank, &[(QKV, scheme), (DOWN, scheme)]).unwrap();
            assert_ne!(before.digest(), staged.digest());
            let (moved, found) =
                (before.load(&mut Pool::new(1)).unwrap(), staged.load(&mut Pool::new(2)).unwrap());
            for param in staged.params().iter().filter(|p| p.scheme.name.starts_with("marlin-")) {
                let said = staged.explain(&param.name).unwrap();
                assert!(said.contains("by marlin (exact)"), "{said}");
                let own = moved.get(&param.name).unwrap();
                let size = [own.rows(), own.width()];
                let planes = own.planes();
                let planes: Vec<&[u8]> = planes.iter().map(|plane| &**plane).collect();
                let wanted = whole(&stage(scheme), &planes, size).unwrap();
                let made = found.get(&param.name).unwrap();
                assert!(
                    made.planes().iter().zip(&wanted).all(|(a, b)| **a == **b),
                    "{} {rank} of {tp}",
                    param.name
                );
                ordered += 1;
            }
            // Bands fit into less memory than a matrix takes.
            let largest =
                staged.params().iter().map(weighbridge::plan::PlannedParam::slot_bytes).max().unwrap();
            let needs = staged.needs(load::Options::default(), 1).unwrap();
            assert!(needs.least_scratch < largest, "{} and {largest}", needs.least_scratch);
            let options = load::Options { memory: Some(needs.least_scratch), ..load::Options::default() };
            let little = staged.load_with(&mut Pool::new(1), options).unwrap();
            for name in found.names() {
                let (a, b) = (found.get(name).unwrap(), little.get(name).unwrap());
                assert!(a.planes().iter().zip(b.planes().iter()).all(|(a, b)| **a == **b), "{name}");
            }
        }
    }
    assert_eq!(ordered, (1 + 2 + 4) * 2, "ranks, matrices");
}

#[test]
fn what_has_no_such_order_is_refused_by_name() {
    let scheme = |name: &str| weighbridge::quant::scheme(name).unwrap();
    for (name, why) in [
        ("q4_0", "neither gptq nor awq"),
        ("gptq:b3,g128,f16", "4 bits and 8"),
        ("gptq:b4,g128,f32", "scales of 16 bits"),
        ("gptq:b4,g48,f16", "groups of 32, 64 and 128"),
        ("gptq:b4,act32,f16", "order of inputs"),
    ] {
        let refused = Marlin::of(&scheme(name)).unwrap_err();
        assert!(refused.contains(name) && refused.contains(why), "{refused}");
    }
    let marlin = stage("gptq:b4,g128,f16");
    for (shape, why) in
        [([96, 128], "no whole tiles"), ([64, 64], "no whole tiles"), ([128, 64], "no whole groups of 128")]
    {
        let refused = marlin.fits(&Shape::from(shape)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    assert!(marlin.fits(&Shape::from([2, 64, 128])).unwrap_err().contains("one matrix"));
    assert!(stage("gptq:b4,g64,f16").fits(&Shape::from([128, 64])).is_ok());
}

/// Zero points are in the data: vLLM would take others for the middle.
#[test]
fn weights_with_zero_points_of_their_own_are_refused_when_they_are_loaded() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("vllm/llama-gptq4.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = checkpoint(&golden, folder.path());
    let staged = plan(&source, 1, 0, &[(DOWN, "gptq:b4,g128,f16")]).unwrap();
    let refused = staged.load(&mut Pool::new(1)).unwrap_err().to_string();
    assert!(
        refused.contains("down_proj") && refused.contains("the stage `marlin` cannot change it"),
        "{refused}"
    );
    assert!(refused.contains("symmetric"), "{refused}");
    // A norm is no matrix.
    let norm = ("model.layers.{n}.input_layernorm.weight", "gptq:b4,g128,f16");
    let refused = plan(&source, 1, 0, &[norm]).unwrap_err();
    assert!(refused.contains("input_layernorm") && refused.contains("needs at least 2 axes"), "{refused}");
}
