//! Moving quantised weights is moving their values: with the codecs' own geometries, through a whole plan.

use plan::{Bindings, Codecs, Fidelity, Target, compile, resolve};
use quant::Matrix;
use tensor::{Dtype, Expr, Scheme, Shape, Step};

use crate::moves::s;
use crate::oracle::{Planes, Rng, load, random_bytes, tensors};
use crate::problems::binding;

/// Nothing is re-encoded here.
struct None1;
impl Codecs for None1 {
    fn fidelity(&self, _: &Scheme, _: &Scheme) -> Option<Fidelity> {
        None
    }
}

fn decoded(name: &str, planes: &Planes, rows: usize, k: usize) -> Vec<u32> {
    let planes: Vec<&[u8]> = planes.iter().map(|p| &p[..]).collect();
    let mut out = vec![0.0; rows * k];
    quant::codec(name).unwrap().decode(Matrix { planes: &planes, rows, k }, 0..rows, &mut out);
    out.iter().map(|x: &f32| x.to_bits()).collect()
}

#[test]
fn what_is_moved_decodes_to_what_was_decoded_and_moved() {
    let mut rng = Rng(5);
    for name in [
        "mlx-affine:b3,g64,bf16",
        "mlx-affine:b4,g32,f16",
        "mlx-mxfp8",
        "fp8:e4m3,b16x32,f32",
        "fp8:e4m3,row,bf16",
        "mxfp4-split",
        "squish-q4a:g32",
    ] {
        let src = tensors(&quant::scheme(name).unwrap(), &[&[32, 256], &[16, 256]]);
        let data: Vec<Planes> = src.iter().map(|t| random_bytes(&mut rng, t)).collect();
        let bindings = src.iter().map(|e| binding(&e.name, &e.shape, Expr::source(&e.name))).collect();
        let resolved = resolve(&src, &Bindings { bindings, drops: vec![] }).unwrap();
        let expr = Expr::concat(0, vec![s(0).slice(0, 16..32), s(1)]).slice(1, 64..192);
        let targets = [Target { name: "w".into(), expr, scheme: None }];
        let plan = compile(&src, &resolved, &targets, &None1).unwrap();
        let found = decoded(name, &load(&plan.params[0].planes, &data), 32, 128);

        let whole = [decoded(name, &data[0], 32, 256), decoded(name, &data[1], 16, 256)].concat();
        let wanted: Vec<u32> = whole[16 * 256..].chunks(256).flat_map(|row| &row[64..192]).copied().collect();
        assert!(found == wanted, "`{name}`");
    }
}

/// Numbers that a layout has of its own are exact where every float holds them, and rounded where one may not.
#[test]
fn constants_are_exact_where_floats_hold_them() {
    struct Rounds;
    impl Codecs for Rounds {
        fn fidelity(&self, _: &Scheme, _: &Scheme) -> Option<Fidelity> {
            Some(Fidelity::Lossy("rounded".into()))
        }
    }
    let resolved = resolve(&[], &Bindings { bindings: vec![], drops: vec![] }).unwrap();
    let is_exact = |n: i32, to: &str| {
        let expr = Expr::Zero(Shape::from([])).encode(Step::Add(n));
        let scheme = Dtype::ALL.iter().find(|d| d.name() == to).map(|d| Scheme::plain(*d));
        let targets = [Target { name: "scale".into(), expr, scheme }];
        let plan = compile(&[], &resolved, &targets, &Rounds).unwrap();
        plan.params[0].fidelity == Fidelity::Exact
    };
    assert!(is_exact(1, "f32") && is_exact(-1, "bf16") && is_exact(256, "f16"));
    assert!(!is_exact(257, "bf16") && !is_exact(i32::MAX, "f32") && !is_exact(1, "f8_e4m3"));
}
