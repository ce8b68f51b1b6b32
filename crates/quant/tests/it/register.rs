//! Schemes that a program adds.

use std::ops::Range;
use std::sync::Arc;

use quant::{Codec, Error, Matrix};
use tensor::{Scheme, Shape};

/// Half of a byte, for each value.
struct Halves;

impl Codec for Halves {
    fn name(&self) -> &'static str {
        "acme-halves"
    }

    fn scheme(&self) -> Arc<Scheme> {
        Scheme::blocks("acme-halves", 1, 1)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [bytes] = matrix.planes();
        for (out, byte) in out.iter_mut().zip(&bytes[rows.start * matrix.k..]) {
            *out = f32::from(*byte) / 2.0;
        }
    }
}

/// A name that a scheme has.
struct Q80;

impl Codec for Q80 {
    fn name(&self) -> &'static str {
        "q8_0"
    }

    fn scheme(&self) -> Arc<Scheme> {
        Scheme::blocks("q8_0", 1, 1)
    }

    fn decode(&self, _: Matrix<'_>, _: Range<usize>, _: &mut [f32]) {}
}

#[test]
fn a_scheme_is_found_once_it_is_added() {
    assert!(quant::scheme("acme-halves").is_none() && quant::codec("acme-halves").is_none());
    assert_eq!(quant::register(&Halves), Ok(()));
    let scheme = quant::scheme("acme-halves").unwrap();
    assert_eq!(scheme.byte_len(&Shape::from([3, 5])), Ok(15));
    assert!(quant::names().any(|name| name == "acme-halves"));
    let mut out = [0.0; 4];
    let matrix = Matrix { planes: &[&[1, 2, 3, 4, 5, 6, 7, 8]], rows: 2, k: 4 };
    quant::codec("acme-halves").unwrap().decode(matrix, 1..2, &mut out);
    assert_eq!(out, [2.5, 3.0, 3.5, 4.0]);

    let taken = |name: &str| Err(Error::Taken { name: name.to_owned() });
    assert_eq!(quant::register(&Halves), taken("acme-halves"));
    assert_eq!(quant::register(&Q80), taken("q8_0"));
}
