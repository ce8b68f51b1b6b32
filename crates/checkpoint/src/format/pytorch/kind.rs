//! The types of elements, by the names that torch gives them.

use tensor::Dtype;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One that there is a scheme for.
    Plain(Dtype),
    /// Bytes, whose type the tensor says.
    Untyped,
    /// One without a scheme: torch's name for it.
    Other(&'static str),
}

/// dtype, and the class of storages that held it before storages had no type.
///
/// Source: torch/storage.py of torch 2.15, `_dtype_to_storage_type_map` and `_new_dtypes`.
static KINDS: &[(&str, &str, Kind)] = &[
    ("float64", "DoubleStorage", Kind::Plain(Dtype::F64)),
    ("float32", "FloatStorage", Kind::Plain(Dtype::F32)),
    ("float16", "HalfStorage", Kind::Plain(Dtype::F16)),
    ("bfloat16", "BFloat16Storage", Kind::Plain(Dtype::BF16)),
    ("int64", "LongStorage", Kind::Plain(Dtype::I64)),
    ("int32", "IntStorage", Kind::Plain(Dtype::I32)),
    ("int16", "ShortStorage", Kind::Plain(Dtype::I16)),
    ("int8", "CharStorage", Kind::Plain(Dtype::I8)),
    ("uint8", "ByteStorage", Kind::Plain(Dtype::U8)),
    ("bool", "BoolStorage", Kind::Plain(Dtype::Bool)),
    ("complex64", "ComplexFloatStorage", Kind::Plain(Dtype::C64)),
    ("complex128", "ComplexDoubleStorage", Kind::Other("complex128")),
    ("qint8", "QInt8Storage", Kind::Other("qint8")),
    ("qint32", "QInt32Storage", Kind::Other("qint32")),
    ("quint8", "QUInt8Storage", Kind::Other("quint8")),
    ("quint4x2", "QUInt4x2Storage", Kind::Other("quint4x2")),
    ("quint2x4", "QUInt2x4Storage", Kind::Other("quint2x4")),
    ("uint16", "", Kind::Plain(Dtype::U16)),
    ("uint32", "", Kind::Plain(Dtype::U32)),
    ("uint64", "", Kind::Plain(Dtype::U64)),
    ("float8_e4m3fn", "", Kind::Plain(Dtype::F8E4M3)),
    ("float8_e5m2", "", Kind::Plain(Dtype::F8E5M2)),
    ("float8_e8m0fnu", "", Kind::Plain(Dtype::F8E8M0)),
    ("float8_e4m3fnuz", "", Kind::Plain(Dtype::F8E4M3FNUZ)),
    ("float8_e5m2fnuz", "", Kind::Plain(Dtype::F8E5M2FNUZ)),
    ("complex32", "", Kind::Other("complex32")),
    ("float4_e2m1fn_x2", "", Kind::Other("float4_e2m1fn_x2")),
    ("bits8", "", Kind::Other("bits8")),
    ("bits16", "", Kind::Other("bits16")),
    ("bits1x8", "", Kind::Other("bits1x8")),
    ("bits2x4", "", Kind::Other("bits2x4")),
    ("bits4x2", "", Kind::Other("bits4x2")),
];

impl Kind {
    /// The dtype `torch.NAME`.
    pub(super) fn of_dtype(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(dtype, ..)| *dtype == name).map(|(.., kind)| *kind)
    }

    /// The elements of `torch.NAME` or `torch.cuda.NAME`, a class of storages.
    pub(super) fn of_storage(name: &str) -> Option<Kind> {
        if name == "UntypedStorage" {
            return Some(Kind::Untyped);
        }
        KINDS.iter().find(|(_, storage, _)| *storage == name && !name.is_empty()).map(|(.., kind)| *kind)
    }

    /// Bytes of an element, if they are known.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Kind::Plain(dtype) => Some(dtype.bytes()),
            Kind::Other("complex128") => Some(16),
            Kind::Other("qint32") => Some(4),
            Kind::Untyped | Kind::Other("qint8" | "quint8" | "quint4x2" | "quint2x4") => Some(1),
            Kind::Other(_) => None,
        }
    }

    /// The dtype of a tensor of these elements: a storage without a type is of bytes.
    pub(super) fn dtype(self) -> Result<Dtype, &'static str> {
        match self {
            Kind::Plain(dtype) => Ok(dtype),
            Kind::Untyped => Ok(Dtype::U8),
            Kind::Other(name) => Err(name),
        }
    }
}
