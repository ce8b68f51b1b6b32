//! The header of an array: magic, version, and a Python dictionary of three keys.

use std::sync::Arc;

use tensor::{Dtype, Scheme, Shape};

use crate::error::Quoted;
use crate::fault::Fault;
use crate::format;

/// A header is at most this long. Real ones have 128 bytes.
pub(crate) const MOST: u64 = 16 << 10;

/// numpy's own limit (`NPY_MAXDIMS`, numpy/_core/include/numpy/ndarraytypes.h of numpy 2.4).
const MAX_AXES: usize = 64;

pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Data starts at a multiple of this (`ARRAY_ALIGN`).
const ALIGN: usize = 64;

/// dtypes by `descr`. `V2` is how numpy saves the bfloat16 of `ml_dtypes`, and MLX its own.
static DTYPES: &[(&str, Dtype)] = &[
    ("<f4", Dtype::F32),
    ("<f2", Dtype::F16),
    ("<V2", Dtype::BF16),
    ("<f8", Dtype::F64),
    ("|b1", Dtype::Bool),
    ("|u1", Dtype::U8),
    ("|i1", Dtype::I8),
    ("<u2", Dtype::U16),
    ("<i2", Dtype::I16),
    ("<u4", Dtype::U32),
    ("<i4", Dtype::I32),
    ("<u8", Dtype::U64),
    ("<i8", Dtype::I64),
    ("<c8", Dtype::C64),
    // The same, as other writers spell them.
    ("|V2", Dtype::BF16),
    ("bfloat16", Dtype::BF16),
    ("<b1", Dtype::Bool),
    ("<u1", Dtype::U8),
    ("<i1", Dtype::I8),
];

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: Dtype,
    /// Whether each element has its most significant byte first.
    pub(crate) big: bool,
    /// Slowest axis first.
    pub(crate) shape: Shape,
    /// Whether the first axis lies closest together, instead of the last.
    pub(crate) fortran: bool,
}

impl Header {
    pub(crate) fn scheme(&self) -> Arc<Scheme> {
        let scheme = Scheme::plain(self.dtype);
        if self.big { format::big_endian(&scheme) } else { scheme }
    }

    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> Result<u64, Fault> {
        let scheme = self.scheme();
        scheme.byte_len(&self.shape).map_err(|why| Fault::geometry(&self.shape, &scheme, why))
    }
}

/// The header of an array, as numpy writes it; `None` if no numpy dtype stands for `dtype`.
pub(crate) fn build(dtype: Dtype, shape: &Shape) -> Option<Vec<u8>> {
    let (descr, _) = DTYPES.iter().find(|(_, d)| *d == dtype)?;
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let axes =
        if axes.len() == 1 { format!("({},)", axes.concat()) } else { format!("({})", axes.join(", ")) };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {axes}, }}");
    let start = MAGIC.len() + 2 + 2;
    let len = (start + text.len() + 1).next_multiple_of(ALIGN);
    text.push_str(&" ".repeat(len - start - text.len() - 1));
    text.push('\n');
    let bytes = u16::try_from(text.len()).ok()?;
    Some([&MAGIC[..], &[1, 0], &bytes.to_le_bytes(), text.as_bytes()].concat())
}

/// The header at the start of `bytes`, and where the data starts.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Header, u64), Fault> {
    let ends = |wants: usize| Fault::Ends {
        what: "the header of an array",
        wants: wants as u64,
        found: bytes.len() as u64,
    };
    if bytes.get(..6) != Some(MAGIC) {
        let found = format!("{:02x?}", bytes.get(..6).unwrap_or(bytes));
        return Err(Fault::Value { wants: "an array that starts with `\\x93NUMPY`", found });
    }
    let (len, start) = match bytes.get(6) {
        Some(1) => {
            let len = bytes.get(8..).and_then(|b| b.first_chunk()).ok_or_else(|| ends(10))?;
            (usize::from(u16::from_le_bytes(*len)), 10)
        }
        Some(2 | 3) => {
            let len = bytes.get(8..).and_then(|b| b.first_chunk()).ok_or_else(|| ends(12))?;
            (usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX), 12)
        }
        Some(version) => {
            let what = format!("version {version} of the array format");
            return Err(Fault::Unsupported { what });
        }
        None => return Err(ends(8)),
    };
    let end = len.saturating_add(start);
    if end as u64 > MOST {
        return Err(Fault::Limit { what: "header length in bytes", found: end as u64, limit: MOST });
    }
    let text = bytes.get(start..end).ok_or_else(|| ends(end))?;
    let text = std::str::from_utf8(text)
        .map_err(|e| Fault::NotUtf8 { what: "header of an array", valid: e.valid_up_to() })?;
    Ok((dictionary(text)?, end as u64))
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` and nothing else: keys in any order.
fn dictionary(text: &str) -> Result<Header, Fault> {
    let wrong = || Fault::Value {
        wants: "a header with `descr`, `fortran_order` and `shape`",
        found: Quoted(text.trim_end()).to_string(),
    };
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(wrong)?;
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut rest = inner.trim_start();
    while !rest.is_empty() {
        let (key, value) = rest.split_once(':').ok_or_else(wrong)?;
        let value = value.trim_start();
        let end = match value.as_bytes().first() {
            Some(b'(') => value.find(')').map(|i| i + 1),
            Some(b'\'' | b'"') => value.get(1..).and_then(|v| v.find(['\'', '"'])).map(|i| i + 2),
            _ => value.find(',').or(Some(value.len())),
        };
        let (value, after) = end.and_then(|end| value.split_at_checked(end)).ok_or_else(wrong)?;
        let slot = match key.trim().trim_matches(['\'', '"']) {
            "descr" => &mut descr,
            "fortran_order" => &mut fortran,
            "shape" => &mut shape,
            _ => return Err(wrong()),
        };
        if slot.replace(value.trim()).is_some() {
            return Err(wrong());
        }
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if after.is_empty() => after,
            None => return Err(wrong()),
        };
    }
    let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else { return Err(wrong()) };
    let axes = shape.strip_prefix('(').and_then(|s| s.strip_suffix(')')).ok_or_else(wrong)?;
    let axes = axes.split(',').map(str::trim).filter(|s| !s.is_empty());
    // Python 2 wrote long integers with an `L`.
    let axes = axes.map(|s| s.trim_end_matches('L').parse::<u64>().map_err(|_| wrong()));
    let axes = axes.collect::<Result<Vec<u64>, Fault>>()?;
    if axes.len() > MAX_AXES {
        let (found, limit) = (axes.len() as u64, MAX_AXES as u64);
        return Err(Fault::Limit { what: "number of dimensions", found, limit });
    }
    let shape = Shape::from(axes);
    let name = descr.trim_matches(['\'', '"']);
    // `>f4` is `<f4` in the other order. A complex number is two, and what `V` holds is not known.
    let big = name.starts_with('>') && !name.contains(['c', 'V']);
    let little = if big { name.replacen('>', "<", 1) } else { name.to_owned() };
    let known = DTYPES.iter().find(|(d, _)| *d == little);
    let dtype = known.map(|(_, dtype)| *dtype).ok_or_else(|| Fault::TypeUnsupported {
        name: name.chars().take(64).collect::<String>().escape_debug().to_string(),
    })?;
    let fortran = match fortran {
        "False" => false,
        // With at most one axis that is longer than 1 both orders are the same, and of nothing.
        "True" => shape.iter().filter(|n| **n != 1).count() > 1 && !shape.contains(&0),
        _ => return Err(wrong()),
    };
    Ok(Header { dtype, big: big && dtype.bytes() > 1, shape, fortran })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_numpys_and_reads_back() {
        // numpy.lib.format.write_array_header_1_0(f, {"descr": "<f4", "fortran_order": False, "shape": (2, 3)})
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let built = build(Dtype::F32, &[2, 3].into()).unwrap();
        assert_eq!(built.len(), 128);
        assert_eq!(&built[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(&built[10..10 + text.len()], text.as_bytes());
        assert_eq!(built.last(), Some(&b'\n'));
        for shape in [&[][..], &[7], &[0, 4], &[2, 3, 5]] {
            for dtype in Dtype::ALL {
                let Some(bytes) = build(*dtype, &shape.to_vec().into()) else { continue };
                let header =
                    Header { dtype: *dtype, big: false, shape: shape.to_vec().into(), fortran: false };
                assert_eq!(parse(&bytes).unwrap(), (header, bytes.len() as u64));
            }
        }
        assert!(build(Dtype::F8E4M3, &[1].into()).is_none());
    }

    #[test]
    fn what_is_not_meant_is_refused() {
        let parsed = |text: &str| dictionary(text).map_err(|f| f.to_string());
        let fine = "{'shape': (4L, 2), 'fortran_order': False, 'descr': \"<i8\"}";
        assert_eq!(
            parsed(fine),
            Ok(Header { dtype: Dtype::I64, big: false, shape: [4, 2].into(), fortran: false })
        );
        for wrong in [
            "",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}",
            "{'descr': '<f4', 'fortran_order': Perhaps, 'shape': (2, 3)}",
            "{'descr': '>V2', 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': '>c8', 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': '>', 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let swapped = parsed("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}").unwrap();
        assert_eq!((swapped.big, &*swapped.scheme().name), (true, "f32.be"));
        let version = b"\x93NUMPY\x09\x00\x76\x00";
        assert!(parse(version).is_err() && parse(b"\x93NUMPY\x01").is_err() && parse(b"PK").is_err());
    }
}
