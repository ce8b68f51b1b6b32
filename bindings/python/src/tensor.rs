//! Tensors in memory, which Python reads where they lie.

use std::ffi::{CStr, c_int, c_void};
use std::os::raw::c_char;
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule, PyTuple};
use weighbridge::load;
use weighbridge::tensor::Dtype;

use crate::dlpack;

/// A parameter in memory: its shape, how it is encoded, and its bytes, which stay where they are as long as anything of Python's
/// refers to them.
///
/// A plain one (`dtype` is not None) is a buffer and speaks DLPack, without a copy. One in blocks, as of GGUF's quantised types, has
/// `planes` of bytes; plan it with an `encode` of a plain dtype to have values.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Tensor {
    name: String,
    tensor: load::Tensor,
}

impl Tensor {
    pub(crate) fn new(name: &str, tensor: load::Tensor) -> Tensor {
        Tensor { name: name.to_owned(), tensor }
    }

    pub(crate) fn inner(&self) -> &load::Tensor {
        &self.tensor
    }

    pub(crate) fn shape_i64(&self) -> Vec<i64> {
        // A shape whose bytes are in memory has no such extents.
        self.tensor.shape().iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect()
    }

    fn is_writable(&self) -> bool {
        self.tensor.slots().iter().all(|slot| slot.writable().is_some() || slot.bytes().is_empty())
    }
}

#[pymethods]
impl Tensor {
    /// The name that it was loaded under.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The extents, slowest axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape().iter())
    }

    /// How it is encoded: `bf16`, `q4_k`.
    #[getter]
    fn scheme(&self) -> &str {
        &self.tensor.scheme().name
    }

    /// The type of its elements, if it is plain; else None.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.tensor.scheme().dtype().map(Dtype::name)
    }

    /// Bytes of all planes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.slots().iter().map(|slot| slot.bytes().len()).sum()
    }

    /// True if its bytes lie in a mapped file. The system reads them when they are touched.
    #[getter]
    fn borrowed(&self) -> bool {
        self.tensor.slots().iter().any(load::Slot::is_borrowed)
    }

    /// True if its memory may be written to. Writes to a mapped file stay in this process.
    #[getter]
    fn writable(&self) -> bool {
        self.is_writable()
    }

    /// Its bytes: of a plain tensor one plane, of others one for each part of the encoding, by name (`blocks`, `scales`).
    #[getter]
    fn planes(&self) -> Vec<(&'static str, Plane)> {
        let specs = self.tensor.scheme().planes.iter();
        let slots = self.tensor.slots().iter();
        specs.zip(slots).map(|(spec, slot)| (spec.role, Plane { slot: slot.clone() })).collect()
    }

    /// An array of numpy's, where it lies if `copy` is not asked for. Of bf16 and fp8, of the types of `ml_dtypes`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let array = py.import("weighbridge.numpy")?.call_method1("array", (slf,))?;
        let kind = match dtype {
            Some(dtype) => dtype,
            None => array.getattr("dtype")?,
        };
        let options = [("copy", copy == Some(true))].into_py_dict(py)?;
        array.call_method("astype", (kind,), Some(&options))
    }

    /// The kind of device, and its number: always the CPU.
    #[expect(clippy::unused_self, reason = "the protocol's")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }

    /// A capsule with the tensor where it lies, as the array API standard says.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() || dl_device.is_some_and(|device| device != (dlpack::CPU, 0)) {
            return Err(PyBufferError::new_err("the tensor is in the memory of the CPU"));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("no copy is made: copy what takes the tensor"));
        }
        let this = slf.get();
        let Some(dtype) = this.tensor.scheme().dtype() else {
            return Err(PyBufferError::new_err(encoded(&this.name, this.scheme())));
        };
        let versioned = max_version.is_some_and(|version| version.0 >= 1);
        dlpack::capsule(slf, dtype, &this.shape_i64(), versioned, !this.is_writable())
    }

    /// # Safety
    /// As of CPython's `getbufferproc`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let Some(dtype) = this.tensor.scheme().dtype() else {
            return Err(PyBufferError::new_err(encoded(&this.name, this.scheme())));
        };
        let Some(format) = format(dtype) else {
            let what = format!("`{}` is {dtype}, which buffers have no format for", this.name);
            return Err(PyBufferError::new_err(what));
        };
        let shape: Vec<isize> =
            this.tensor.shape().iter().map(|n| isize::try_from(*n).unwrap_or(isize::MAX)).collect();
        let item = dtype.bytes().cast_signed().try_into().unwrap_or(1);
        let slot = this.tensor.slots().first();
        let bytes = slot.map_or(&[][..], load::Slot::bytes);
        let readonly = !this.is_writable();
        // SAFETY: CPython gives a view to fill; the bytes live as long as `slf`, which the view keeps.
        unsafe { fill(slf.clone().into_any(), view, flags, &View { bytes, readonly, item, format, shape }) }
    }

    /// # Safety
    /// As of CPython's `releasebufferproc`: `view` is one that `__getbuffer__` has filled.
    #[expect(clippy::unused_self, reason = "the protocol's")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `fill` put it there.
        drop(unsafe { Box::from_raw((*view).internal.cast::<Extents>()) });
    }

    fn __repr__(&self) -> String {
        format!("<weighbridge.Tensor {} {} {}>", self.name, self.tensor.shape(), self.tensor.scheme())
    }
}

fn encoded(name: &str, scheme: &str) -> String {
    format!("`{name}` is encoded as {scheme}: plan it with an encoding of a plain dtype, or take its planes")
}

/// The bytes of one plane of a tensor: a buffer of bytes.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Plane {
    slot: load::Slot,
}

#[pymethods]
impl Plane {
    /// The address of the first byte; 0 if there is none.
    #[getter]
    fn address(&self) -> usize {
        let bytes = self.slot.bytes();
        if bytes.is_empty() { 0 } else { bytes.as_ptr().addr() }
    }

    fn __len__(&self) -> usize {
        self.slot.bytes().len()
    }

    /// # Safety
    /// As of CPython's `getbufferproc`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let bytes = this.slot.bytes();
        let readonly = this.slot.writable().is_none() && !bytes.is_empty();
        let shape = vec![isize::try_from(bytes.len()).unwrap_or(isize::MAX)];
        let view_of = View { bytes, readonly, item: 1, format: c"B", shape };
        // SAFETY: CPython gives a view to fill; the bytes live as long as `slf`, which the view keeps.
        unsafe { fill(slf.clone().into_any(), view, flags, &view_of) }
    }

    /// # Safety
    /// As of CPython's `releasebufferproc`: `view` is one that `__getbuffer__` has filled.
    #[expect(clippy::unused_self, reason = "the protocol's")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `fill` put it there.
        drop(unsafe { Box::from_raw((*view).internal.cast::<Extents>()) });
    }
}

/// Rows of numbers, as a buffer of f32: `numpy.asarray` takes it without a copy.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Array {
    rows: usize,
    width: usize,
    values: Vec<f32>,
}

impl Array {
    /// `rows` rows of `width` values.
    pub(crate) fn of(rows: usize, width: usize, values: Vec<f32>) -> Array {
        Array { rows, width, values }
    }

    fn extents(&self) -> [usize; 2] {
        [self.rows, self.width]
    }
}

#[pymethods]
impl Array {
    /// Rows, and the values of each.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.extents().into()
    }

    /// As lists of floats.
    fn tolist(&self) -> Vec<Vec<f32>> {
        self.values.chunks(self.extents()[1].max(1)).map(<[f32]>::to_vec).collect()
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    /// # Safety
    /// As of CPython's `getbufferproc`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let shape = this.extents().map(|n| isize::try_from(n).unwrap_or(isize::MAX)).to_vec();
        let (at, len) = (this.values.as_ptr().cast::<u8>(), size_of_val(&this.values[..]));
        // SAFETY: the same bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at, len) };
        // SAFETY: CPython gives a view to fill; the values live as long as `slf`, which the view keeps.
        unsafe {
            fill(
                slf.clone().into_any(),
                view,
                flags,
                &View { bytes, readonly: true, item: 4, format: c"f", shape },
            )
        }
    }

    /// # Safety
    /// As of CPython's `releasebufferproc`: `view` is one that `__getbuffer__` has filled.
    #[expect(clippy::unused_self, reason = "the protocol's")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `fill` put it there.
        drop(unsafe { Box::from_raw((*view).internal.cast::<Extents>()) });
    }

    fn __repr__(&self) -> String {
        let [rows, width] = self.extents();
        format!("<weighbridge.Array [{rows}, {width}]>")
    }
}

/// The content of a buffer.
struct View<'a> {
    bytes: &'a [u8],
    readonly: bool,
    item: isize,
    format: &'static CStr,
    shape: Vec<isize>,
}

/// Shape and strides of a view, which lives as long as it does.
struct Extents {
    shape: Vec<isize>,
    strides: Vec<isize>,
}

/// Fills `view` with what `owner` keeps alive.
///
/// # Safety
/// `view` is null or may be written to, and the bytes live as long as `owner`.
unsafe fn fill(
    owner: Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    of: &View<'_>,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && of.readonly {
        return Err(PyBufferError::new_err("the bytes are read-only"));
    }
    let columns = flags & ffi::PyBUF_F_CONTIGUOUS == ffi::PyBUF_F_CONTIGUOUS;
    if columns && of.shape.iter().filter(|n| **n != 1).count() > 1 {
        return Err(PyBufferError::new_err("the elements lie row by row"));
    }
    let mut strides = vec![of.item; of.shape.len()];
    for axis in (1..of.shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(of.shape[axis].max(1));
    }
    let extents = Box::new(Extents { shape: of.shape.clone(), strides });
    let wants = |flag: c_int| flags & flag == flag;
    let (mut shape, mut strides) = (ptr::null_mut(), ptr::null_mut());
    if wants(ffi::PyBUF_ND) {
        shape = extents.shape.as_ptr().cast_mut();
    }
    if wants(ffi::PyBUF_STRIDES) {
        strides = extents.strides.as_ptr().cast_mut();
    }
    // Who asks for no shape gets bytes in a row.
    let axes = if wants(ffi::PyBUF_ND) { extents.shape.len() } else { 1 };
    let format =
        if wants(ffi::PyBUF_FORMAT) { of.format.as_ptr().cast_mut() } else { ptr::null_mut::<c_char>() };
    // SAFETY: the caller's.
    unsafe {
        (*view).buf = of.bytes.as_ptr().cast_mut().cast::<c_void>();
        (*view).len = isize::try_from(of.bytes.len()).unwrap_or(isize::MAX);
        (*view).readonly = c_int::from(of.readonly);
        (*view).itemsize = of.item;
        (*view).format = format;
        (*view).ndim = c_int::try_from(axes).unwrap_or(c_int::MAX);
        (*view).shape = shape;
        (*view).strides = strides;
        (*view).suboffsets = ptr::null_mut();
        (*view).internal = Box::into_raw(extents).cast::<c_void>();
        (*view).obj = owner.into_ptr();
    }
    Ok(())
}

/// The format of a dtype in the words of Python's module `struct`; None for those that it does not know.
pub(crate) fn format(dtype: Dtype) -> Option<&'static CStr> {
    Some(match dtype {
        Dtype::Bool => c"?",
        Dtype::U8 => c"B",
        Dtype::I8 => c"b",
        Dtype::U16 => c"H",
        Dtype::I16 => c"h",
        Dtype::U32 => c"I",
        Dtype::I32 => c"i",
        Dtype::U64 => c"Q",
        Dtype::I64 => c"q",
        Dtype::F16 => c"e",
        Dtype::F32 => c"f",
        Dtype::F64 => c"d",
        Dtype::C64 => c"Zf",
        _ => return None,
    })
}
