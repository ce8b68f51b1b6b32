//! What a module wants, compared with what there is, before a tensor is read. Burn's own [`Applier`](burn::store::Applier) reads a tensor
//! and then looks at its shape, when others are in the module already.

use std::collections::{BTreeMap, HashSet};

use burn::module::{Module, ModuleVisitor, Param};
use burn::store::burn_pack::Tensor as PackTensor;
use burn::store::{ApplyError, ApplyResult, ModuleAdapter, ModuleContext, PathFilter};
use burn::tensor::{Bool, DType, Device, Int, Shape, Tensor};

/// Compares the parameters of `module` with `tensors`, after `adapter`.
pub(crate) fn fit<M: Module>(
    module: &M,
    tensors: &BTreeMap<String, PackTensor>,
    adapter: &dyn ModuleAdapter,
    filter: Option<&PathFilter>,
    skip_enum_variants: bool,
) -> ApplyResult {
    let found =
        ApplyResult { applied: vec![], skipped: vec![], missing: vec![], unused: vec![], errors: vec![] };
    let mut fit = Fit {
        tensors,
        adapter,
        filter,
        skip_enum_variants,
        path: vec![],
        containers: vec![],
        used: HashSet::new(),
        found,
    };
    module.visit(&mut fit);
    let Fit { used, mut found, .. } = fit;
    found.unused = tensors.keys().filter(|name| !used.contains(name.as_str())).cloned().collect();
    found
}

struct Fit<'a> {
    tensors: &'a BTreeMap<String, PackTensor>,
    adapter: &'a dyn ModuleAdapter,
    filter: Option<&'a PathFilter>,
    skip_enum_variants: bool,
    /// Names of the modules that are entered, and of the parameter.
    path: Vec<String>,
    /// Types of these modules.
    containers: Vec<String>,
    used: HashSet<&'a str>,
    found: ApplyResult,
}

/// The kinds of parameters.
#[derive(Clone, Copy)]
enum Kind {
    Float,
    Int,
    Bool,
}

impl Kind {
    /// True if burn loads data of `dtype` into such a parameter.
    fn takes(self, dtype: DType) -> bool {
        match self {
            Kind::Float => dtype.is_float(),
            Kind::Int => dtype.is_int() || dtype.is_uint(),
            Kind::Bool => dtype.is_bool() || matches!(dtype, DType::U8 | DType::U32),
        }
    }

    /// The type that a device has for it.
    fn of(self, device: &Device) -> DType {
        let settings = device.settings();
        match self {
            Kind::Float => settings.float_dtype.into(),
            Kind::Int => settings.int_dtype.into(),
            Kind::Bool => settings.bool_dtype.into(),
        }
    }
}

impl<'a> Fit<'a> {
    /// The name of the tensor for the parameter that is visited: the parameter's, or the one that the adapter knows it by.
    fn source(&self, context: ModuleContext<'_>) -> Option<(&'a str, &'a PackTensor)> {
        let named =
            |name: &str| self.tensors.get_key_value(name).map(|(name, tensor)| (name.as_str(), tensor));
        named(&self.path.join(".")).or_else(|| {
            let (last, modules) = self.path.split_last()?;
            let other = self.adapter.get_alternative_param_name(last, context.module_type()?)?;
            named(&modules.iter().map(String::as_str).chain([other.as_str()]).collect::<Vec<_>>().join("."))
        })
    }

    fn compare(&mut self, kind: Kind, wanted: Shape, device: &Device) {
        let path = self.path.join(".");
        let context = ModuleContext::new(&self.containers);
        let source = self.source(context);
        let Some((name, tensor)) = source else {
            self.found.missing.push((path, self.containers.join(".")));
            return;
        };
        self.used.insert(name);
        if self.filter.is_some_and(|f| !f.matches_with_container_path(&self.path, &self.containers)) {
            self.found.skipped.push(path);
            return;
        }
        // Data stay unread: an adapter says what it will make of them.
        let mut tensor = tensor.clone();
        tensor.name.clone_from(&path);
        let tensor = self.adapter.adapt(tensor, context);
        if !kind.takes(tensor.dtype) {
            let (expected, found) = (kind.of(device), tensor.dtype);
            self.found.errors.push(ApplyError::DTypeMismatch { path, expected, found });
        } else if tensor.shape != wanted {
            let found = tensor.shape;
            self.found.errors.push(ApplyError::ShapeMismatch { path, expected: wanted, found });
        } else {
            self.found.applied.push(path);
        }
    }
}

impl ModuleVisitor for Fit<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.containers.push(container_type.to_owned());
        if !(self.skip_enum_variants && container_type.starts_with("Enum:")) {
            self.path.push(name.to_owned());
        }
    }

    fn exit_module(&mut self, _: &str, container_type: &str) {
        self.containers.pop();
        if !(self.skip_enum_variants && container_type.starts_with("Enum:")) {
            self.path.pop();
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.compare(Kind::Float, param.lazy_shape(), &param.lazy_device());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.compare(Kind::Int, param.lazy_shape(), &param.lazy_device());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.compare(Kind::Bool, param.lazy_shape(), &param.lazy_device());
    }
}
