//! The contents of a pickle, as data: values that are as cheap to copy as a number, and the nodes they point to.
//!
//! Nodes point to each other by index, so what a pickle shares is shared here, and a value that contains itself
//! is only an index like any other.

use super::element_type::ElementType;
use super::global::Global;
use crate::fault::Fault;

/// Some bytes of the pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    /// The bytes, of the pickle that it is of.
    pub(super) fn of(self, pickle: &[u8]) -> &[u8] {
        pickle.get(self.start as usize..).and_then(|b| b.get(..self.len as usize)).unwrap_or(&[])
    }

    /// The same as text, for messages and keys.
    pub(super) fn text(self, pickle: &[u8]) -> String {
        String::from_utf8_lossy(self.of(pickle)).into_owned()
    }
}

/// A node, as an index into [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// Text, or the byte string that Python 2 wrote for it.
    Text(Span),
    /// A number that is no 64-bit integer, or bytes: nothing here needs it.
    Other,
    Node(NodeId),
}

/// The nodes that a value may point to.
#[derive(Debug)]
pub(super) enum Node {
    Tuple(Box<[Value]>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Global(Global),
    Storage(Box<Storage>),
    Tensor(Box<Tensor>),
    Inert(Box<Inert>),
}

/// The place of elements in a file: a record of the archive, or a part of one.
#[derive(Debug)]
pub(super) struct Storage {
    /// Its elements: their type, or bytes.
    pub(super) kind: ElementType,
    /// The name of its record.
    pub(super) key: Span,
    /// Its elements of that type.
    pub(super) elements: u64,
    /// Elements of the record before it, where it is only a part.
    pub(super) skip: u64,
}

/// A tensor, as the pickle says it is made: nothing of it is checked against its storage yet.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) storage: NodeId,
    pub(super) kind: ElementType,
    /// All in elements, none negative; as many axes as strides.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    pub(super) strides: Vec<u64>,
    /// Where the pickle says so.
    pub(super) at: usize,
}

/// An object of a class that means nothing here, and what it was given. It is never made.
#[derive(Debug)]
pub(super) struct Inert {
    /// The class, or the function that would have made it.
    pub(super) class: NodeId,
    pub(super) holds: Vec<Value>,
    /// Where the pickle says so.
    pub(super) at: usize,
}

/// All nodes of one pickle.
#[derive(Debug, Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
    /// Values made so far, and places of the memo filled.
    values: u64,
}

/// Values that one pickle may make. A checkpoint of 100,000 tensors makes 3 million.
const MOST_VALUES: u64 = 1 << 24;

impl Heap {
    /// Counts `more` values, made by byte `at` of the pickle. The number of values is bounded, since short opcodes can
    /// make many.
    pub(super) fn count(&mut self, more: usize, at: usize) -> Result<(), Wrong> {
        self.values = self.values.saturating_add(more as u64);
        if self.values <= MOST_VALUES {
            return Ok(());
        }
        let what = "number of values in the pickle";
        Err(Wrong { at, fault: Fault::Limit { what, found: self.values, limit: MOST_VALUES } })
    }

    /// Adds a node, which is counted before.
    pub(super) fn add(&mut self, node: Node) -> Value {
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node);
        Value::Node(NodeId(id))
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    /// The node that `value` points to.
    pub(super) fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(id) => self.get(id),
            _ => None,
        }
    }

    pub(super) fn node_mut(&mut self, value: Value) -> Option<&mut Node> {
        match value {
            Value::Node(NodeId(id)) => self.nodes.get_mut(id as usize),
            _ => None,
        }
    }

    /// All of them, in the order in which they were made.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The items of a tuple.
    pub(super) fn tuple(&self, value: Value) -> Option<&[Value]> {
        match self.node(value) {
            Some(Node::Tuple(items)) => Some(items),
            _ => None,
        }
    }

    /// The kind of `value`, in a word or two.
    pub(super) fn name(&self, value: Value) -> &'static str {
        match value {
            Value::None => "None",
            Value::Bool(_) => "a bool",
            Value::Int(_) => "an integer",
            Value::Text(_) => "text",
            Value::Other => "a number or bytes",
            Value::Node(_) => match self.node(value) {
                Some(Node::Tuple(_)) => "a tuple",
                Some(Node::List(_)) => "a list",
                Some(Node::Dict(_)) => "a dictionary",
                Some(Node::Global(_)) => "a class",
                Some(Node::Storage(_)) => "a storage",
                Some(Node::Tensor(_)) => "a tensor",
                Some(Node::Inert(_)) | None => "an object",
            },
        }
    }
}

impl NodeId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A problem of a pickle, and the byte where it is.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) fault: Fault,
}

impl Wrong {
    /// The pickle breaks a rule.
    pub(super) fn broken(at: usize, why: impl Into<String>) -> Wrong {
        Wrong { at, fault: Fault::Pickle { why: why.into() } }
    }

    /// The pickle is sound, but beyond what is read.
    pub(super) fn unsupported(at: usize, what: impl Into<String>) -> Wrong {
        Wrong { at, fault: Fault::Unsupported { what: what.into() } }
    }
}
