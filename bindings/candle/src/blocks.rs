//! GGML's blocks where they lie: in a mapped file, or in memory of the library's.

use std::borrow::Cow;
use std::marker::PhantomData;

use candle_core::quantized::k_quants::{
    self, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, BlockQ8_1, BlockQ8K,
};
use candle_core::quantized::{GgmlDType, GgmlType, QStorage, QuantizedType};
use candle_core::{CpuStorage, Device, Error, Result, Shape};
use half::{bf16, f16};
use weighbridge::Scheme;
use weighbridge::load::Slot;
use weighbridge::plan::PlannedParam;

/// Candle's name of a scheme; `None` if it has no such blocks.
pub(crate) fn dtype(scheme: &Scheme) -> Option<GgmlDType> {
    Some(match &*scheme.name {
        "f32" => GgmlDType::F32,
        "f16" => GgmlDType::F16,
        "bf16" => GgmlDType::BF16,
        "q4_0" => GgmlDType::Q4_0,
        "q4_1" => GgmlDType::Q4_1,
        "q5_0" => GgmlDType::Q5_0,
        "q5_1" => GgmlDType::Q5_1,
        "q8_0" => GgmlDType::Q8_0,
        "q8_1" => GgmlDType::Q8_1,
        "q2_k" => GgmlDType::Q2K,
        "q3_k" => GgmlDType::Q3K,
        "q4_k" => GgmlDType::Q4K,
        "q5_k" => GgmlDType::Q5K,
        "q6_k" => GgmlDType::Q6K,
        "q8_k" => GgmlDType::Q8K,
        _ => return None,
    })
}

/// The logical shape of a parameter, as candle counts.
pub(crate) fn shape(param: &PlannedParam) -> Result<Shape> {
    let extents = param.shape.iter().map(|n| usize::try_from(*n)).collect::<std::result::Result<Vec<_>, _>>();
    extents.map(Shape::from).map_err(Error::wrap)
}

/// A type of candle's whose values are blocks of a file.
///
/// # Safety
/// Every pattern of bytes is a value, without padding, and it holds no reference.
unsafe trait Block: GgmlType + 'static {}

/// Calls `$f::<T>` with the type `T` of the blocks of `$dtype`.
macro_rules! of_type {
    ($dtype:expr, $f:ident($($argument:expr),*)) => {
        match $dtype {
            GgmlDType::F32 => $f::<f32>($($argument),*),
            GgmlDType::F16 => $f::<f16>($($argument),*),
            GgmlDType::BF16 => $f::<bf16>($($argument),*),
            GgmlDType::Q4_0 => $f::<BlockQ4_0>($($argument),*),
            GgmlDType::Q4_1 => $f::<BlockQ4_1>($($argument),*),
            GgmlDType::Q5_0 => $f::<BlockQ5_0>($($argument),*),
            GgmlDType::Q5_1 => $f::<BlockQ5_1>($($argument),*),
            GgmlDType::Q8_0 => $f::<BlockQ8_0>($($argument),*),
            GgmlDType::Q8_1 => $f::<BlockQ8_1>($($argument),*),
            GgmlDType::Q2K => $f::<BlockQ2K>($($argument),*),
            GgmlDType::Q3K => $f::<BlockQ3K>($($argument),*),
            GgmlDType::Q4K => $f::<BlockQ4K>($($argument),*),
            GgmlDType::Q5K => $f::<BlockQ5K>($($argument),*),
            GgmlDType::Q6K => $f::<BlockQ6K>($($argument),*),
            GgmlDType::Q8K => $f::<BlockQ8K>($($argument),*),
        }
    };
}

macro_rules! blocks {
    ($($name:ty),*) => {
        // SAFETY: structures of `repr(C)`, of half-precision and single-precision numbers, of bytes and of small integers, or these
        // numbers themselves. Source: candle-core 0.11.1, src/quantized/k_quants.rs.
        $(unsafe impl Block for $name {})*
    };
}

blocks!(f32, f16, bf16, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1);
blocks!(BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K);

/// True if `bytes` begin where blocks of `dtype` may.
pub(crate) fn is_aligned(dtype: GgmlDType, bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(of_type!(dtype, align_of()))
}

/// Blocks of `dtype` for a device, which are whole and aligned in `slot`.
pub(crate) fn storage(dtype: GgmlDType, slot: Slot, device: &Device) -> Result<QStorage> {
    match device {
        Device::Cpu => Ok(QStorage::Cpu(of_type!(dtype, lent(slot)))),
        _ => QStorage::from_data(Cow::Borrowed(slot.bytes()), device, dtype),
    }
}

fn lent<T: Block>(slot: Slot) -> Box<dyn QuantizedType> {
    Box::new(Blocks::<T>::Lent(slot, PhantomData))
}

/// Blocks of one tensor.
enum Blocks<T> {
    /// Where they were loaded. A slot never moves.
    Lent(Slot, PhantomData<T>),
    /// Those that were quantised over them.
    Own(Vec<T>),
}

impl<T: Block> Blocks<T> {
    /// The blocks; none if they are not whole or not aligned, which [`storage`] rules out.
    fn all(&self) -> &[T] {
        match self {
            Blocks::Own(blocks) => blocks,
            Blocks::Lent(slot, _) => {
                let bytes = slot.bytes();
                let first = bytes.as_ptr().cast::<T>();
                if !first.is_aligned() || !bytes.len().is_multiple_of(size_of::<T>()) {
                    return &[];
                }
                // SAFETY: that many values of `T` lie there, aligned; every pattern of bytes is a value of a `Block`. The slot, which is
                // borrowed as long as they are, keeps the memory.
                unsafe { std::slice::from_raw_parts(first, bytes.len() / size_of::<T>()) }
            }
        }
    }
}

impl<T: Block> QuantizedType for Blocks<T> {
    fn dtype(&self) -> GgmlDType {
        T::DTYPE
    }

    fn matmul_t(&self, mkn: (usize, usize, usize), lhs: &[f32], dst: &mut [f32]) -> Result<()> {
        k_quants::matmul(mkn, lhs, self.all(), dst)
    }

    fn matmul_t_f16(&self, mkn: (usize, usize, usize), lhs: &[f16], dst: &mut [f16]) -> Result<()> {
        k_quants::matmul_f16(mkn, lhs, self.all(), dst)
    }

    fn embedding(&self, ids: &[u32], rows: usize, hidden: usize) -> Result<CpuStorage> {
        let (blocks, row) = (self.all(), hidden / T::BLCK_SIZE);
        if !hidden.is_multiple_of(T::BLCK_SIZE) || rows.checked_mul(row) != Some(blocks.len()) {
            let found = blocks.len();
            candle_core::bail!(
                "wanted {rows} rows of {hidden} values, found {found} blocks of {}",
                T::BLCK_SIZE
            );
        }
        let mut values = vec![0f32; ids.len() * hidden];
        for (id, out) in ids.iter().zip(values.chunks_exact_mut(hidden.max(1))) {
            let at = *id as usize;
            let Some(blocks) = (at < rows).then(|| &blocks[at * row..(at + 1) * row]) else {
                candle_core::bail!("wanted an id below {rows}, found {id}");
            };
            T::to_float(blocks, out);
        }
        Ok(CpuStorage::F32(values))
    }

    fn dequantize(&self, elem_count: usize) -> Result<CpuStorage> {
        let mut values = vec![0f32; elem_count];
        T::to_float(self.all(), &mut values);
        Ok(CpuStorage::F32(values))
    }

    fn storage_size_in_bytes(&self) -> usize {
        size_of_val(self.all())
    }

    fn as_ptr(&self) -> *const u8 {
        self.all().as_ptr().cast()
    }

    fn block_size(&self) -> usize {
        T::BLCK_SIZE
    }

    fn from_float(&mut self, xs: &[f32]) {
        let mut own = vec![T::zeros(); self.all().len()];
        T::from_float(xs, &mut own);
        *self = Blocks::Own(own);
    }

    fn from_float_imatrix(&mut self, xs: &[f32], imatrix_weights: &[f32], n_per_row: usize) {
        let mut own = vec![T::zeros(); self.all().len()];
        T::from_float_imatrix(xs, &mut own, imatrix_weights, n_per_row);
        *self = Blocks::Own(own);
    }

    fn size(&self) -> usize {
        self.storage_size_in_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_candle_are_those_of_the_library() {
        for name in
            ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k"]
        {
            let ours = weighbridge::quant::scheme(name).unwrap();
            let theirs = dtype(&ours).unwrap();
            let one = [theirs.block_size() as u64].into();
            assert_eq!(ours.byte_len(&one), Ok(theirs.type_size() as u64), "{name}");
        }
        assert_eq!(dtype(&weighbridge::quant::scheme("iq4_nl").unwrap()), None);
    }
}
