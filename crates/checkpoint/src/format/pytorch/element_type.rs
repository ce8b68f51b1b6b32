//! The types of elements, by the names that torch gives them.

use tensor::Dtype;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
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
static KINDS: &[(&str, &str, ElementType)] = &[
    ("float64", "DoubleStorage", ElementType::Plain(Dtype::F64)),
    ("float32", "FloatStorage", ElementType::Plain(Dtype::F32)),
    ("float16", "HalfStorage", ElementType::Plain(Dtype::F16)),
    ("bfloat16", "BFloat16Storage", ElementType::Plain(Dtype::BF16)),
    ("int64", "LongStorage", ElementType::Plain(Dtype::I64)),
    ("int32", "IntStorage", ElementType::Plain(Dtype::I32)),
    ("int16", "ShortStorage", ElementType::Plain(Dtype::I16)),
    ("int8", "CharStorage", ElementType::Plain(Dtype::I8)),
    ("uint8", "ByteStorage", ElementType::Plain(Dtype::U8)),
    ("bool", "BoolStorage", ElementType::Plain(Dtype::Bool)),
    ("complex64", "ComplexFloatStorage", ElementType::Plain(Dtype::C64)),
    ("complex128", "ComplexDoubleStorage", ElementType::Other("complex128")),
    ("qint8", "QInt8Storage", ElementType::Other("qint8")),
    ("qint32", "QInt32Storage", ElementType::Other("qint32")),
    ("quint8", "QUInt8Storage", ElementType::Other("quint8")),
    ("quint4x2", "QUInt4x2Storage", ElementType::Other("quint4x2")),
    ("quint2x4", "QUInt2x4Storage", ElementType::Other("quint2x4")),
    ("uint16", "", ElementType::Plain(Dtype::U16)),
    ("uint32", "", ElementType::Plain(Dtype::U32)),
    ("uint64", "", ElementType::Plain(Dtype::U64)),
    ("float8_e4m3fn", "", ElementType::Plain(Dtype::F8E4M3)),
    ("float8_e5m2", "", ElementType::Plain(Dtype::F8E5M2)),
    ("float8_e8m0fnu", "", ElementType::Plain(Dtype::F8E8M0)),
    ("float8_e4m3fnuz", "", ElementType::Plain(Dtype::F8E4M3FNUZ)),
    ("float8_e5m2fnuz", "", ElementType::Plain(Dtype::F8E5M2FNUZ)),
    ("complex32", "", ElementType::Other("complex32")),
    ("float4_e2m1fn_x2", "", ElementType::Other("float4_e2m1fn_x2")),
    ("bits8", "", ElementType::Other("bits8")),
    ("bits16", "", ElementType::Other("bits16")),
    ("bits1x8", "", ElementType::Other("bits1x8")),
    ("bits2x4", "", ElementType::Other("bits2x4")),
    ("bits4x2", "", ElementType::Other("bits4x2")),
];

impl ElementType {
    /// The dtype `torch.NAME`.
    pub(super) fn of_dtype(name: &str) -> Option<ElementType> {
        KINDS.iter().find(|(dtype, ..)| *dtype == name).map(|(.., kind)| *kind)
    }

    /// The elements of `torch.NAME` or `torch.cuda.NAME`, a class of storages.
    pub(super) fn of_storage(name: &str) -> Option<ElementType> {
        if name == "UntypedStorage" {
            return Some(ElementType::Untyped);
        }
        KINDS.iter().find(|(_, storage, _)| *storage == name && !name.is_empty()).map(|(.., kind)| *kind)
    }

    /// Bytes of an element, if they are known.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            ElementType::Plain(dtype) => Some(dtype.bytes()),
            ElementType::Other("complex128") => Some(16),
            ElementType::Other("qint32") => Some(4),
            ElementType::Untyped | ElementType::Other("qint8" | "quint8" | "quint4x2" | "quint2x4") => {
                Some(1)
            }
            ElementType::Other(_) => None,
        }
    }

    /// The dtype of a tensor of these elements: a storage without a type is of bytes.
    pub(super) fn dtype(self) -> Result<Dtype, &'static str> {
        match self {
            ElementType::Plain(dtype) => Ok(dtype),
            ElementType::Untyped => Ok(Dtype::U8),
            ElementType::Other(name) => Err(name),
        }
    }
}
