//! Calls and persistent ids: descriptions of tensors and storages, and objects without a meaning.
//!
//! Source: torch/_utils.py of torch 2.15 for the functions that are called, and torch/serialization.py for the
//! persistent ids.

use super::element_type::ElementType;
use super::global::Global;
use super::value::{Heap, Inert, Node, NodeId, Storage, Tensor, Value, Wrong};

/// Axes of a tensor. As many as torch's own iterators take.
const MOST_DIMS: usize = 64;

/// The result of `callee(*arguments)`, as data.
pub(super) fn call(
    heap: &mut Heap,
    callee: Value,
    arguments: Value,
    named: Option<Value>,
    at: usize,
) -> Result<Value, Wrong> {
    let Value::Node(id) = callee else {
        return Err(Wrong::broken(at, format!("wanted a class to call, found {}", heap.name(callee))));
    };
    if heap.tuple(arguments).is_none() {
        let found = heap.name(arguments);
        return Err(Wrong::broken(at, format!("wanted a tuple of arguments, found {found}")));
    }
    let inert = |heap: &mut Heap, class| {
        let holds = std::iter::once(arguments).chain(named).collect();
        heap.add(Node::Inert(Box::new(Inert { class, holds, at })))
    };
    match heap.get(id) {
        Some(Node::Global(global)) => match *global {
            Global::Dict => dictionary(heap, arguments, at),
            Global::Tensor => tensor(heap, arguments, false, at),
            Global::TypedTensor => tensor(heap, arguments, true, at),
            Global::FromType => from_type(heap, arguments, at),
            Global::Data => Ok(Value::Other),
            // These calls return their first argument.
            Global::Parameter | Global::Size => {
                let first = heap.tuple(arguments).and_then(|a| a.first()).copied();
                Ok(first.unwrap_or_else(|| inert(heap, id)))
            }
            Global::Storage(_) | Global::Dtype(_) | Global::OtherTensor { .. } | Global::Inert { .. } => {
                Ok(inert(heap, id))
            }
        },
        // A method of an object, or a class that an object stands for: as meaningless as that.
        Some(Node::Inert(object)) => {
            let class = object.class;
            Ok(inert(heap, class))
        }
        _ => Err(Wrong::broken(at, format!("wanted a class to call, found {}", heap.name(callee)))),
    }
}

/// `OrderedDict()`, or as Python 2 wrote it, `OrderedDict([[key, value], …])`; `defaultdict(factory)`.
fn dictionary(heap: &mut Heap, arguments: Value, at: usize) -> Result<Value, Wrong> {
    let first = heap.tuple(arguments).and_then(|a| a.first()).copied();
    let items: &[Value] = match first.and_then(|list| heap.node(list)) {
        Some(Node::List(items)) => items,
        _ => &[],
    };
    let pair = |value: &Value| match heap.node(*value) {
        Some(Node::List(items)) => <[Value; 2]>::try_from(&items[..]).ok(),
        Some(Node::Tuple(items)) => <[Value; 2]>::try_from(&items[..]).ok(),
        _ => None,
    };
    let pair = |value: &Value| pair(value).map(|[key, value]| (key, value));
    let pairs: Option<Vec<(Value, Value)>> = items.iter().map(pair).collect();
    let pairs = pairs.ok_or_else(|| Wrong::broken(at, "wanted pairs to make a dictionary of"))?;
    // A few bytes can ask for a long list again and again.
    heap.count(pairs.len(), at)?;
    Ok(heap.add(Node::Dict(pairs)))
}

/// `_rebuild_from_type_v2(function, class, arguments, state)`: the class changes no bytes.
fn from_type(heap: &mut Heap, arguments: Value, at: usize) -> Result<Value, Wrong> {
    let items = heap.tuple(arguments).unwrap_or_default();
    let [function, _, arguments, ..] = *items else {
        return Err(short(at, "a tensor of a subclass", items.len(), "3"));
    };
    // Itself would be called without end.
    if let Some(Node::Global(Global::FromType)) = heap.node(function) {
        return Err(Wrong::broken(at, "a tensor of a subclass is made by its own maker"));
    }
    call(heap, function, arguments, None, at)
}

fn short(at: usize, what: &str, found: usize, wants: &str) -> Wrong {
    Wrong::broken(at, format!("{what} is made of {found} values, wanted at least {wants}"))
}

/// `(storage, offset, size, stride, …)`, with the dtype as the seventh where it is `typed`, and the metadata
/// after that.
fn tensor(heap: &mut Heap, arguments: Value, typed: bool, at: usize) -> Result<Value, Wrong> {
    let items = heap.tuple(arguments).unwrap_or_default();
    let [storage, offset, size, stride, ..] = *items else {
        return Err(short(at, "a tensor", items.len(), "4"));
    };
    let metadata = items.get(if typed { 7 } else { 6 }).copied();
    let dtype = items.get(6).copied();
    let Value::Node(id) = storage else {
        return Err(Wrong::broken(
            at,
            format!("a tensor is made of {}, wanted a storage", heap.name(storage)),
        ));
    };
    let Some(Node::Storage(held)) = heap.get(id) else {
        return Err(Wrong::broken(
            at,
            format!("a tensor is made of {}, wanted a storage", heap.name(storage)),
        ));
    };
    let kind = if typed {
        match dtype.map(|dtype| (dtype, heap.node(dtype))) {
            Some((_, Some(Node::Global(Global::Dtype(kind))))) => *kind,
            Some((other, _)) => {
                let found = heap.name(other);
                return Err(Wrong::broken(at, format!("wanted the dtype of a tensor, found {found}")));
            }
            None => return Err(short(at, "a tensor with a dtype", items.len(), "7")),
        }
    } else {
        held.kind
    };
    let shape = numbers(heap, size, "the size of a tensor", at)?;
    let strides = numbers(heap, stride, "the strides of a tensor", at)?;
    if shape.len() != strides.len() {
        let why = format!("a tensor of {} axes has {} strides", shape.len(), strides.len());
        return Err(Wrong::broken(at, why));
    }
    let offset = number(heap, offset, "the offset of a tensor", at)?;
    heap.count(2 * shape.len(), at)?;
    // Bits that say that the values are the conjugates or negatives of what is stored.
    if let Some(Node::Dict(bits)) = metadata.and_then(|m| heap.node(m))
        && bits.iter().any(|(_, set)| *set != Value::Bool(false))
    {
        return Err(Wrong::unsupported(
            at,
            "a tensor whose values are the conjugates or negatives of what is stored: save it after \
             `resolve_conj()` and `resolve_neg()`",
        ));
    }
    Ok(heap.add(Node::Tensor(Box::new(Tensor { storage: id, kind, offset, shape, strides, at }))))
}

fn numbers(heap: &Heap, value: Value, what: &str, at: usize) -> Result<Vec<u64>, Wrong> {
    let items = match heap.node(value) {
        Some(Node::Tuple(items)) => &**items,
        Some(Node::List(items)) => items,
        _ => return Err(Wrong::broken(at, format!("{what} is {}, wanted a tuple", heap.name(value)))),
    };
    if items.len() > MOST_DIMS {
        return Err(Wrong::broken(
            at,
            format!("{what} has {} axes, over the limit of {MOST_DIMS}", items.len()),
        ));
    }
    items.iter().map(|item| number(heap, *item, what, at)).collect()
}

fn number(heap: &Heap, value: Value, what: &str, at: usize) -> Result<u64, Wrong> {
    match value {
        Value::Int(n) => {
            u64::try_from(n).map_err(|_| Wrong::broken(at, format!("{what} holds {n}, which is negative")))
        }
        _ => Err(Wrong::broken(at, format!("{what} holds {}, wanted an integer", heap.name(value)))),
    }
}

/// Resolves a persistent id: `('storage', class, key, device, elements)`, in the old form with
/// `(key of a part, offset, elements)` or `None` at the end; `('module', class, …)` is the class.
pub(super) fn persistent(heap: &mut Heap, pickle: &[u8], id: Value, at: usize) -> Result<Value, Wrong> {
    let Some(items) = heap.tuple(id) else {
        return Err(Wrong::broken(at, format!("a persistent id is {}, wanted a tuple", heap.name(id))));
    };
    let kind = match items.first() {
        Some(Value::Text(text)) => text.of(pickle),
        _ => return Err(Wrong::broken(at, "a persistent id says nothing of what it stands for")),
    };
    match (kind, items) {
        (b"storage", &[_, class, key, _, elements, ref rest @ ..]) => {
            let kind = match heap.node(class) {
                Some(Node::Global(Global::Storage(kind))) => *kind,
                _ => {
                    let why = format!(
                        "a storage is of {}, wanted a class of storages",
                        class_name(heap, pickle, class)
                    );
                    return Err(Wrong::broken(at, why));
                }
            };
            let Value::Text(key) = key else {
                let found = heap.name(key);
                return Err(Wrong::broken(at, format!("the key of a storage is {found}, wanted text")));
            };
            let elements = number(heap, elements, "a storage", at)?;
            let part = rest.first().and_then(|view| heap.tuple(*view));
            let (skip, elements) = match part {
                None => (0, elements),
                Some(&[_, offset, part]) => {
                    let skip = number(heap, offset, "a part of a storage", at)?;
                    let part = number(heap, part, "a part of a storage", at)?;
                    if skip.checked_add(part).is_none_or(|end| end > elements) {
                        let why = format!(
                            "a part of {part} elements from {skip} on leaves its storage of {elements}"
                        );
                        return Err(Wrong::broken(at, why));
                    }
                    (skip, part)
                }
                Some(other) => return Err(short(at, "a part of a storage", other.len(), "3")),
            };
            Ok(heap.add(Node::Storage(Box::new(Storage { kind, key, elements, skip }))))
        }
        (b"storage", _) => Err(short(at, "a storage", items.len(), "5")),
        (b"module", &[_, class, ..]) => Ok(class),
        (other, _) => {
            let name = String::from_utf8_lossy(other);
            Err(Wrong::broken(
                at,
                format!("a persistent id of a `{}`, wanted a storage", name.escape_debug()),
            ))
        }
    }
}

/// The name of a class, or its stand-in.
pub(super) fn class_name(heap: &Heap, pickle: &[u8], class: Value) -> String {
    match heap.node(class) {
        Some(Node::Global(Global::Inert { module, name })) => {
            format!("{}.{}", module.text(pickle), name.text(pickle))
        }
        Some(Node::Global(Global::OtherTensor { name })) => format!("torch._utils.{}", name.text(pickle)),
        Some(Node::Global(Global::Dtype(ElementType::Plain(dtype)))) => format!("the dtype {dtype}"),
        _ => heap.name(class).to_owned(),
    }
}

/// The class of an object that means nothing here, and whether it is a tensor of a kind that is not read.
pub(super) fn class_of(heap: &Heap, pickle: &[u8], class: NodeId) -> (String, bool) {
    let other = matches!(heap.get(class), Some(Node::Global(Global::OtherTensor { .. })));
    (class_name(heap, pickle, Value::Node(class)), other)
}
