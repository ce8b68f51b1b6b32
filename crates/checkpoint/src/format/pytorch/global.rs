//! The meaning of the names in a pickle. Nothing is ever looked up, imported or called: a name is one that tensors are
//! made of, one that no checkpoint has a use for, or unknown and ignored.

use super::element_type::ElementType;
use super::value::Span;

/// A name of a module and something in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// `collections.OrderedDict`, `defaultdict` and `dict`: dictionaries, whatever their arguments.
    Dict,
    /// `torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`.
    Tensor,
    /// `torch._utils._rebuild_tensor_v3`, which is given a dtype.
    TypedTensor,
    /// `torch._utils._rebuild_parameter`, `_rebuild_parameter_with_state` and `torch.nn.Parameter`: the tensor
    /// they are given.
    Parameter,
    /// `torch._tensor._rebuild_from_type_v2`: calls what it is given, for a subclass of tensors.
    FromType,
    /// A function that makes tensors of a kind that is not read: sparse, quantised, without data.
    OtherTensor { name: Span },
    /// A class of storages.
    Storage(ElementType),
    /// A dtype.
    Dtype(ElementType),
    /// `torch.Size`: the tuple that it is given.
    Size,
    /// Plain data of Python and torch: `bytes`, `set`, `complex`, `torch.device`.
    Data,
    /// Anything else. It stays a name.
    Inert { module: Span, name: Span },
}

/// Modules that no checkpoint needs, and that malicious pickles use: the parts of Python that run code, start
/// processes, or reach files and the network. Source: picklescan (mmaitre314/picklescan, scanner.py,
/// `_unsafe_globals`), and more.
static MODULES: &[&str] = &[
    "_aix_support",
    "_io",
    "_osx_support",
    "_pickle",
    "_posixsubprocess",
    "_socket",
    "bdb",
    "cProfile",
    "code",
    "codeop",
    "commands",
    "doctest",
    "ftplib",
    "httplib",
    "imp",
    "linecache",
    "marshal",
    "nt",
    "ntpath",
    "operator",
    "_operator",
    "pdb",
    "pickle",
    "cPickle",
    "pkgutil",
    "popen2",
    "posix",
    "posixpath",
    "profile",
    "pty",
    "pydoc",
    "runpy",
    "shelve",
    "shutil",
    "signal",
    "site",
    "smtplib",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "timeit",
    "trace",
    "urllib2",
    "uu",
    "webbrowser",
    "winreg",
    "zipimport",
];

/// The same, with all that is below them.
static PACKAGES: &[&str] = &[
    "_pyrepl",
    "aiohttp",
    "asyncio",
    "ctypes",
    "distutils",
    "ensurepip",
    "http",
    "idlelib",
    "importlib",
    "lib2to3",
    "multiprocessing",
    "os",
    "pip",
    "requests",
    "urllib",
    "venv",
    "torch.hub",
    "torch.package",
    "torch.utils.cpp_extension",
];

/// The names of Python's builtins that pickles use: types of values.
static BUILTINS: &[&str] = &[
    "bool",
    "bytearray",
    "bytes",
    "complex",
    "dict",
    "float",
    "frozenset",
    "int",
    "list",
    "long",
    "object",
    "range",
    "set",
    "slice",
    "str",
    "tuple",
    "type",
    "unicode",
    "xrange",
];

impl Global {
    /// The meaning of `module.name`; `None` if no checkpoint has a use for it.
    pub(super) fn of(pickle: &[u8], module: Span, name: Span) -> Option<Global> {
        let inert = Global::Inert { module, name };
        let (Ok(m), Ok(n)) = (std::str::from_utf8(module.of(pickle)), std::str::from_utf8(name.of(pickle)))
        else {
            return Some(inert);
        };
        // Python 2 has other names for the same.
        let m = if m == "__builtin__" { "builtins" } else { m };
        let harmful = match m {
            // A dotted name is a walk through attributes: `str.__class__.…`.
            "builtins" => !BUILTINS.contains(&n),
            "torch.storage" => n == "_load_from_bytes",
            "torch" | "torch.serialization" => matches!(n, "load" | "save" | "_load" | "_legacy_load"),
            "types" => n != "SimpleNamespace",
            "io" => !matches!(n, "BytesIO" | "StringIO"),
            _ => {
                let below = |package: &&str| {
                    m.strip_prefix(*package).is_some_and(|r| r.is_empty() || r.starts_with('.'))
                };
                MODULES.contains(&m) || PACKAGES.iter().any(below)
            }
        };
        if harmful {
            return None;
        }
        Some(match (m, n) {
            ("collections", "OrderedDict" | "defaultdict") | ("builtins", "dict") => Global::Dict,
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Global::Tensor,
            ("torch._utils", "_rebuild_tensor_v3") => Global::TypedTensor,
            ("torch.nn.parameter", "Parameter" | "Buffer")
            | ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => Global::Parameter,
            // torch/serialization.py, `load_module_mapping`: the module was called otherwise once.
            ("torch._tensor" | "torch.tensor", "_rebuild_from_type_v2") => Global::FromType,
            ("torch._utils" | "torch._tensor" | "torch.tensor", n) if n.starts_with("_rebuild_") => {
                Global::OtherTensor { name }
            }
            ("torch", "Size") => Global::Size,
            // Protocol 2 has no bytes: it encodes text.
            ("torch", "device") | ("_codecs", "encode") => Global::Data,
            ("builtins", n) if !matches!(n, "list" | "tuple" | "object" | "type") => Global::Data,
            ("torch" | "torch.cuda" | "torch.storage", n) => {
                let storage = ElementType::of_storage(n).map(Global::Storage);
                let dtype = || ElementType::of_dtype(n).filter(|_| m == "torch").map(Global::Dtype);
                storage.or_else(dtype).unwrap_or(inert)
            }
            _ => inert,
        })
    }
}

#[cfg(test)]
mod tests {
    use tensor::Dtype;

    use super::*;

    fn of(module: &str, name: &str) -> Option<Global> {
        let pickle = format!("{module}{name}");
        let span = |start: usize, len: usize| Span {
            start: u32::try_from(start).unwrap(),
            len: u32::try_from(len).unwrap(),
        };
        Global::of(pickle.as_bytes(), span(0, module.len()), span(module.len(), name.len()))
    }

    #[test]
    fn names_mean_what_torch_means() {
        assert_eq!(of("torch", "HalfStorage"), Some(Global::Storage(ElementType::Plain(Dtype::F16))));
        assert_eq!(of("torch.cuda", "FloatStorage"), Some(Global::Storage(ElementType::Plain(Dtype::F32))));
        assert_eq!(of("torch.storage", "UntypedStorage"), Some(Global::Storage(ElementType::Untyped)));
        assert_eq!(of("torch", "float8_e5m2"), Some(Global::Dtype(ElementType::Plain(Dtype::F8E5M2))));
        assert_eq!(of("collections", "OrderedDict"), Some(Global::Dict));
        assert!(matches!(of("torch._utils", "_rebuild_qtensor"), Some(Global::OtherTensor { .. })));
        for (module, name) in
            [("torch", ""), ("torch", "layout"), ("__main__", "Config"), ("osgeo", "x"), ("notos", "system")]
        {
            assert!(matches!(of(module, name), Some(Global::Inert { .. })), "{module}.{name}");
        }
    }

    #[test]
    fn what_runs_code_means_harm() {
        for (module, name) in [
            ("os", "system"),
            ("os.path", "join"),
            ("posix", "system"),
            ("nt", "system"),
            ("builtins", "eval"),
            ("__builtin__", "getattr"),
            ("builtins", "str.__class__"),
            ("subprocess", "Popen"),
            ("sys", "modules"),
            ("torch.storage", "_load_from_bytes"),
            ("importlib.machinery", "SourceFileLoader"),
        ] {
            assert_eq!(of(module, name), None, "{module}.{name}");
        }
    }
}
