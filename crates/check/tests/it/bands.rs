//! Bands of the schemes that there are.

use std::ops::Range;

use tensor::Bands;

fn bands(scheme: &str, shape: &[u64], bytes: u64) -> Vec<(u64, Vec<Range<u64>>)> {
    let scheme = quant::scheme(scheme).unwrap();
    let bands = Bands::of(&scheme, &shape.to_vec().into()).unwrap();
    let planes = 0..scheme.planes.len();
    (0..bands.matrices)
        .flat_map(|m| bands.cut(bytes).map(move |rows| (m, rows)))
        .map(|(m, rows)| (m, planes.clone().map(|p| bands.bytes(p, m, &rows)).collect()))
        .collect()
}

/// The bands of every plane that is cut lie one after the other and end where it ends.
#[test]
fn bands_are_the_whole() {
    for (name, shape, bytes) in [
        ("f32", &[5, 7][..], 16),
        ("q4_k", &[5, 512], 300),
        ("mlx-affine:b4,g64,bf16", &[3, 40, 128], 1000),
        ("fp8:e4m3,b128x128,f32", &[2, 300, 200], 30_000),
        ("bnb-int8", &[9, 32], 64),
    ] {
        let scheme = quant::scheme(name).unwrap();
        let all = bands(name, shape, bytes);
        assert!(all.len() > 2, "{name}");
        for (plane, spec) in scheme.planes.iter().enumerate() {
            let ends: Vec<_> = all.iter().map(|(_, planes)| planes[plane].clone()).collect();
            assert!(ends.windows(2).all(|w| w[0].end == w[1].start), "{name} {ends:?}");
            let size = scheme.plane_bytes(spec, &shape.to_vec().into()).unwrap();
            assert_eq!((ends[0].start, ends[ends.len() - 1].end), (0, size), "{name}");
        }
    }
}

#[test]
fn what_cannot_be_cut_stays_whole() {
    let gptq = bands("gptq:b4,g32,f16", &[16, 64], 1);
    assert_eq!(gptq.len(), 1, "the rows of a GPTQ weight lie across its words");
    assert!(Bands::of(&quant::scheme("f32").unwrap(), &[3, 0].into()).is_none());
    let scalar = bands("f32", &[], 1);
    assert_eq!((scalar.len(), scalar[0].1[0].clone()), (1, 0..4));
}
