//! Tensors for other libraries, by DLPack 1.1 (<https://dmlc.github.io/dlpack/latest/c_api.html>).

use std::ffi::{CStr, c_void};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use weighbridge::tensor::Dtype;

use crate::tensor::Tensor;

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;
const READ_ONLY: u64 = 1;
const VERSION: Version = Version { major: 1, minor: 1 };

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct ManagedVersioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// The owner of a capsule's memory, and the extents that the capsule points to.
struct Context {
    _owner: Py<Tensor>,
    extents: Vec<i64>,
}

/// A capsule of `owner`, a plain tensor of `dtype`.
///
/// # Errors
/// If it is read-only and the taker's version cannot be told, or the dtype has no code.
pub(crate) fn capsule<'py>(
    owner: &Bound<'py, Tensor>,
    dtype: Dtype,
    shape: &[i64],
    versioned: bool,
    readonly: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    if readonly && !versioned {
        let what = "the tensor is read-only, which DLPack says from version 1 on: pass max_version=(1, 0)";
        return Err(PyBufferError::new_err(what));
    }
    let py = owner.py();
    let bytes = owner.get().inner().bytes();
    // Strides, in elements, follow the extents.
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = shape[axis].max(1).saturating_mul(strides[axis]);
    }
    let extents = [shape, &strides].concat();
    let context = Box::new(Context { _owner: owner.clone().unbind(), extents });
    let start = context.extents.as_ptr().cast_mut();
    let tensor = DlTensor {
        data: if bytes.is_empty() { ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast() },
        device_type: CPU,
        device_id: 0,
        ndim: i32::try_from(shape.len()).unwrap_or(i32::MAX),
        dtype: code(dtype),
        shape: start,
        // Inside the vector, or at its end where there are no axes.
        strides: start.wrapping_add(shape.len()),
        byte_offset: 0,
    };
    let context = Box::into_raw(context).cast::<c_void>();
    let (pointer, name): (*mut c_void, &CStr) = if versioned {
        let flags = if readonly { READ_ONLY } else { 0 };
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut ManagedVersioned));
        let managed = ManagedVersioned { version: VERSION, context, deleter, flags, tensor };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
    } else {
        let deleter = Some(delete as unsafe extern "C" fn(*mut Managed));
        (Box::into_raw(Box::new(Managed { tensor, context, deleter })).cast(), PLAIN)
    };
    // SAFETY: the pointer is not null and the name lives forever. Who takes the tensor renames the capsule and calls the deleter;
    // a capsule that nobody took does so itself.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destruct));
        Ok(Bound::from_owned_ptr_or_err(py, capsule)?.cast_into_unchecked())
    }
}

/// Deletes the tensor of a capsule that nobody took.
///
/// # Safety
/// `capsule` is one that [`capsule`] made.
unsafe extern "C" fn destruct(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule holds what its name says, until a taker has renamed it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// # Safety
/// `managed` is one that [`capsule`] made, and is not used again.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `Box::into_raw`.
    unsafe { forget(Box::from_raw(managed).context) };
}

/// # Safety
/// As of [`delete`].
unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: made by `Box::into_raw`.
    unsafe { forget(Box::from_raw(managed).context) };
}

/// Drops the context, with the interpreter: takers may be on any thread.
///
/// # Safety
/// `context` is one that [`capsule`] made, and is not used again.
unsafe fn forget(context: *mut c_void) {
    // SAFETY: made by `Box::into_raw`.
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    // Once the interpreter has gone, so has all that it kept: then nobody looks whether this was given back.
    let mut context = Some(context);
    if Python::try_attach(|_| drop(context.take())).is_none() {
        std::mem::forget(context);
    }
}

/// `DLDataType` of a dtype.
fn code(dtype: Dtype) -> DataType {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const COMPLEX: u8 = 5;
    const BOOL: u8 = 6;
    const F8_E4M3FN: u8 = 10;
    const F8_E4M3FNUZ: u8 = 11;
    const F8_E5M2: u8 = 12;
    const F8_E5M2FNUZ: u8 = 13;
    const F8_E8M0FNU: u8 = 14;
    let (code, bits) = match dtype {
        Dtype::Bool => (BOOL, 8),
        Dtype::U8 => (UINT, 8),
        Dtype::U16 => (UINT, 16),
        Dtype::U32 => (UINT, 32),
        Dtype::U64 => (UINT, 64),
        Dtype::I8 => (INT, 8),
        Dtype::I16 => (INT, 16),
        Dtype::I32 => (INT, 32),
        Dtype::I64 => (INT, 64),
        Dtype::F16 => (FLOAT, 16),
        Dtype::F32 => (FLOAT, 32),
        Dtype::F64 => (FLOAT, 64),
        Dtype::BF16 => (BFLOAT, 16),
        Dtype::C64 => (COMPLEX, 64),
        Dtype::F8E4M3 => (F8_E4M3FN, 8),
        Dtype::F8E4M3FNUZ => (F8_E4M3FNUZ, 8),
        Dtype::F8E5M2 => (F8_E5M2, 8),
        Dtype::F8E5M2FNUZ => (F8_E5M2FNUZ, 8),
        Dtype::F8E8M0 => (F8_E8M0FNU, 8),
    };
    DataType { code, bits, lanes: 1 }
}
