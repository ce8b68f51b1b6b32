//! Walks from a value to the tensors in it, each named by the keys that lead to it.

use super::build::class_of;
use super::value::{Heap, Node, NodeId, Value, Wrong};
use crate::contents::Ignored;
use crate::fault::Fault;

/// A tensor and its name.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) tensor: NodeId,
}

/// The result.
#[derive(Default)]
pub(super) struct Found {
    /// In the order of the pickle.
    pub(super) tensors: Vec<Named>,
    /// Objects without a meaning.
    pub(super) ignored: Vec<Ignored>,
    /// Tensors of kinds that are not read: name, place, function that makes them.
    pub(super) refused: Vec<(String, usize, String)>,
}

/// Tensors of one file. A trillion parameters are some 100,000, in over a hundred files.
const MOST_TENSORS: usize = 1 << 16;
/// Bytes of one name, and of all.
const MOST_NAME: usize = 4096;
const MOST_NAMES: usize = 256 << 20;
/// Values looked at, again each time that another way leads to them.
const MOST_STEPS: u64 = 1 << 27;
/// Containers in one another. Python's own picklers stop at about 1000.
const MOST_DEPTH: usize = 1 << 10;
/// Objects that are listed.
const MOST_IGNORED: usize = 1 << 12;
/// The name of a file's only value.
const ALONE: &str = "tensor";

/// A container on the way, and how far it is looked through.
struct Level {
    node: NodeId,
    next: usize,
    /// Length of the name that leads to it.
    name: usize,
    /// Tensors found before it.
    found: usize,
}

/// Every tensor that `root` leads to through dictionaries, lists and tuples.
pub(super) fn walk(heap: &Heap, pickle: &[u8], root: Value) -> Result<Found, Wrong> {
    let mut walk = Walk {
        heap,
        pickle,
        found: Found::default(),
        names: 0,
        state: vec![State::New; heap.nodes().len()],
        path: String::new(),
        levels: Vec::new(),
        inside: Vec::new(),
    };
    walk.run(root)?;
    let held: Vec<u64> = walk.inside.iter().map(|object| lost(heap, *object, &mut walk.state)).collect();
    for (ignored, tensors) in walk.found.ignored.iter_mut().zip(held) {
        ignored.tensors = tensors;
    }
    Ok(walk.found)
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    /// On the path to the current node.
    Open,
    /// There is no tensor in it.
    Barren,
    /// A tensor that has a name, or one that was counted.
    Counted,
}

struct Walk<'a> {
    heap: &'a Heap,
    pickle: &'a [u8],
    found: Found,
    /// Bytes of all names so far.
    names: usize,
    state: Vec<State>,
    path: String,
    levels: Vec<Level>,
    /// The objects that are ignored.
    inside: Vec<NodeId>,
}

impl Walk<'_> {
    fn run(&mut self, root: Value) -> Result<(), Wrong> {
        self.visit(root)?;
        let mut steps = 0u64;
        while let Some(level) = self.levels.last_mut() {
            steps += 1;
            if steps > MOST_STEPS {
                return Err(too_many("number of ways through the values", steps, MOST_STEPS));
            }
            let at = level.next;
            level.next += 1;
            self.path.truncate(level.name);
            let (node, found) = (level.node, level.found);
            let child = match self.heap.get(node) {
                Some(Node::Dict(pairs)) => pairs.get(at).map(|(key, value)| (*value, Some(*key))),
                Some(Node::List(items)) => items.get(at).map(|value| (*value, None)),
                Some(Node::Tuple(items)) => items.get(at).map(|value| (*value, None)),
                _ => None,
            };
            let Some((value, key)) = child else {
                let barren = self.found.tensors.len() == found;
                self.mark(node, if barren { State::Barren } else { State::New });
                self.levels.pop();
                continue;
            };
            if !self.worth(value) {
                continue;
            }
            self.name(key, at)?;
            self.visit(value)?;
        }
        Ok(())
    }

    /// Whether something may be found in `value`.
    fn worth(&self, value: Value) -> bool {
        let Value::Node(id) = value else { return false };
        let state = self.state.get(id.index()).copied().unwrap_or(State::Barren);
        state != State::Barren
            && !matches!(self.heap.get(id), Some(Node::Global(_) | Node::Storage(_)) | None)
    }

    fn mark(&mut self, node: NodeId, state: State) {
        if let Some(place) = self.state.get_mut(node.index()) {
            *place = state;
        }
    }

    /// Lengthens the path by a key, or by a position in a list.
    fn name(&mut self, key: Option<Value>, at: usize) -> Result<(), Wrong> {
        use std::fmt::Write;
        if !self.levels.is_empty() && self.levels.len() > 1 {
            self.path.push('.');
        }
        // Writing to a `String` cannot fail.
        let _ = match key {
            None => write!(self.path, "{at}"),
            Some(Value::Int(n)) => write!(self.path, "{n}"),
            Some(Value::Bool(b)) => write!(self.path, "{}", if b { "True" } else { "False" }),
            Some(Value::None) => write!(self.path, "None"),
            Some(Value::Text(span)) => match std::str::from_utf8(span.of(self.pickle)) {
                Ok(text) => write!(self.path, "{text}"),
                Err(e) => {
                    let fault = Fault::NotUtf8 { what: "key of a dictionary", valid: e.valid_up_to() };
                    return Err(Wrong { at: span.start as usize, fault });
                }
            },
            // The key matters only if it leads to a tensor; another tensor may then have the same name.
            Some(Value::Other | Value::Node(_)) => write!(self.path, "({at})"),
        };
        if self.path.len() > MOST_NAME {
            return Err(too_many("length of a name in bytes", self.path.len() as u64, MOST_NAME as u64));
        }
        Ok(())
    }

    /// Takes the value that the path leads to.
    fn visit(&mut self, value: Value) -> Result<(), Wrong> {
        let Value::Node(id) = value else { return Ok(()) };
        match self.heap.get(id) {
            Some(Node::Tensor(_)) => {
                let name = if self.levels.is_empty() { ALONE } else { &self.path };
                self.names += name.len();
                if self.found.tensors.len() == MOST_TENSORS {
                    return Err(too_many("number of tensors", MOST_TENSORS as u64 + 1, MOST_TENSORS as u64));
                }
                if self.names > MOST_NAMES {
                    return Err(too_many(
                        "length of all names in bytes",
                        self.names as u64,
                        MOST_NAMES as u64,
                    ));
                }
                self.found.tensors.push(Named { name: name.to_owned(), tensor: id });
                self.mark(id, State::Counted);
            }
            Some(Node::Inert(object)) => {
                let (class, tensor) = class_of(self.heap, self.pickle, object.class);
                if tensor {
                    if self.found.refused.len() < MOST_IGNORED {
                        self.found.refused.push((self.path.clone(), object.at, class));
                    }
                } else if self.inside.len() < MOST_IGNORED {
                    self.found.ignored.push(Ignored { name: self.path.clone(), class, tensors: 0 });
                    self.inside.push(id);
                }
                // Once is enough.
                self.mark(id, State::Barren);
            }
            Some(Node::Dict(_) | Node::List(_) | Node::Tuple(_)) => {
                if self.state.get(id.index()) == Some(&State::Open) {
                    return Err(Wrong::broken(0, format!("`{}` contains itself", self.path)));
                }
                if self.levels.len() == MOST_DEPTH {
                    let depth = MOST_DEPTH as u64;
                    return Err(too_many("depth of containers in one another", depth + 1, depth));
                }
                self.mark(id, State::Open);
                let (name, found) = (self.path.len(), self.found.tensors.len());
                self.levels.push(Level { node: id, next: 0, name, found });
            }
            _ => {}
        }
        Ok(())
    }
}

fn too_many(what: &'static str, found: u64, limit: u64) -> Wrong {
    Wrong { at: 0, fault: Fault::Limit { what, found, limit } }
}

/// Tensors that only `object` leads to, and no object before it.
fn lost(heap: &Heap, object: NodeId, state: &mut [State]) -> u64 {
    let mut lost = 0;
    let mut work = vec![object];
    while let Some(id) = work.pop() {
        let mut follow = |value: &Value| {
            if let Value::Node(id) = value
                && let Some(place) = state.get_mut(id.index())
                && *place != State::Counted
            {
                *place = State::Counted;
                work.push(*id);
            }
        };
        match heap.get(id) {
            Some(Node::Tensor(_)) => lost += 1,
            Some(Node::Inert(object)) => object.holds.iter().for_each(&mut follow),
            Some(Node::List(items)) => items.iter().for_each(&mut follow),
            Some(Node::Tuple(items)) => items.iter().for_each(&mut follow),
            Some(Node::Dict(pairs)) => pairs.iter().for_each(|(key, value)| {
                follow(key);
                follow(value);
            }),
            Some(Node::Global(_) | Node::Storage(_)) | None => {}
        }
    }
    lost
}
