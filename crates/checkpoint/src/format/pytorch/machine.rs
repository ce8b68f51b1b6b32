//! A pickle machine that makes data and runs nothing.
//!
//! It takes the opcodes that torch writes with protocols 1 to 5 of pickle. A name is kept as a name. Calling a name
//! that tensors are made of makes a description of the tensor; calling any other makes an inert object that holds its
//! arguments.
//!
//! Source: Lib/pickle.py and Lib/pickletools.py of Python 3.14; torch/_weights_only_unpickler.py of torch 2.15,
//! which takes fewer opcodes (those of protocol 2) and classes.

use std::collections::HashMap;

use super::build;
use super::global::Global;
use super::opcode as op;
use super::value::{Heap, Node, Span, Value, Wrong};
use crate::fault::Fault;

/// The objects that a pickle describes.
pub(super) struct Described {
    pub(super) root: Value,
    pub(super) heap: Heap,
    /// The first byte after the pickle.
    pub(super) end: usize,
}

/// Runs the pickle that starts at byte `at` of `pickle`.
pub(super) fn run(pickle: &[u8], at: usize) -> Result<Described, Wrong> {
    let mut machine = Machine {
        pickle,
        at,
        op: at,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        heap: Heap::default(),
    };
    let root = loop {
        if let Some(root) = machine.step()? {
            break root;
        }
    };
    Ok(Described { root, heap: machine.heap, end: machine.at })
}

struct Machine<'p> {
    pickle: &'p [u8],
    /// The next byte.
    at: usize,
    /// The opcode at work.
    op: usize,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    heap: Heap,
}

impl Machine<'_> {
    /// Runs one opcode; the last one returns the value of the whole.
    fn step(&mut self) -> Result<Option<Value>, Wrong> {
        self.op = self.at;
        let code = self.byte()?;
        match code {
            op::PROTO => {
                let version = self.byte()?;
                if version > 5 {
                    return Err(Wrong::unsupported(self.op, format!("protocol {version} of pickle")));
                }
            }
            op::FRAME => {
                let len = self.number(8)?;
                self.left("a frame", len)?;
            }
            op::STOP => return self.pop().map(Some),

            op::MARK => {
                self.heap.count(1, self.op)?;
                self.marks.push(self.stack.len());
            }
            op::POP => drop(self.pop()?),
            op::POP_MARK => drop(self.pop_mark()?),

            op::NONE => self.push(Value::None)?,
            op::NEWTRUE => self.push(Value::Bool(true))?,
            op::NEWFALSE => self.push(Value::Bool(false))?,
            op::BININT => {
                let n = self.number(4)?;
                self.push(Value::Int(i64::from(u32::try_from(n).unwrap_or(0).cast_signed())))?;
            }
            op::BININT1 => self.small(1)?,
            op::BININT2 => self.small(2)?,
            op::LONG1 => self.long(1)?,
            op::LONG4 => self.long(4)?,
            op::INT | op::LONG => self.decimal(code)?,
            op::BINFLOAT => {
                self.number(8)?;
                self.push(Value::Other)?;
            }
            op::SHORT_BINSTRING | op::SHORT_BINUNICODE => self.text(1)?,
            op::BINSTRING | op::BINUNICODE => self.text(4)?,
            op::BINUNICODE8 => self.text(8)?,
            op::SHORT_BINBYTES => self.bytes(1)?,
            op::BINBYTES => self.bytes(4)?,
            op::BINBYTES8 | op::BYTEARRAY8 => self.bytes(8)?,

            op::EMPTY_TUPLE => self.make(Node::Tuple(Box::default()))?,
            op::TUPLE1 => self.tuple(1)?,
            op::TUPLE2 => self.tuple(2)?,
            op::TUPLE3 => self.tuple(3)?,
            op::TUPLE => {
                let items = self.pop_mark()?;
                self.make(Node::Tuple(items.into()))?;
            }
            // A set is a list whose order means nothing.
            op::EMPTY_LIST | op::EMPTY_SET => self.make(Node::List(Vec::new()))?,
            op::FROZENSET => {
                let items = self.pop_mark()?;
                self.make(Node::List(items))?;
            }
            op::APPEND => {
                let item = self.pop()?;
                self.extend(&[item])?;
            }
            op::APPENDS | op::ADDITEMS => {
                let items = self.pop_mark()?;
                self.extend(&items)?;
            }
            op::EMPTY_DICT => self.make(Node::Dict(Vec::new()))?,
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])?;
            }
            op::SETITEMS => {
                let items = self.pop_mark()?;
                self.set(&items)?;
            }

            op::BINPUT => self.put(1)?,
            op::LONG_BINPUT => self.put(4)?,
            op::MEMOIZE => {
                let index = u32::try_from(self.memo.len()).unwrap_or(u32::MAX);
                self.remember(index)?;
            }
            op::BINGET => self.get(1)?,
            op::LONG_BINGET => self.get(4)?,

            op::GLOBAL => {
                let module = self.line()?;
                let name = self.line()?;
                self.global(module, name)?;
            }
            op::STACK_GLOBAL => {
                let name = self.pop()?;
                let module = self.pop()?;
                let (Value::Text(module), Value::Text(name)) = (module, name) else {
                    let found = self.heap.name(if matches!(module, Value::Text(_)) { name } else { module });
                    return Err(self.broken(format!("the name of a class is {found}")));
                };
                self.global(module, name)?;
            }
            op::REDUCE | op::NEWOBJ => {
                let arguments = self.pop()?;
                let callee = self.pop()?;
                self.call(callee, arguments, None)?;
            }
            op::NEWOBJ_EX => {
                let named = self.pop()?;
                let arguments = self.pop()?;
                let callee = self.pop()?;
                self.call(callee, arguments, Some(named))?;
            }
            op::BUILD => {
                let state = self.pop()?;
                self.state(state)?;
            }
            op::BINPERSID => {
                let id = self.pop()?;
                self.heap.count(1, self.op)?;
                let value = build::persistent(&mut self.heap, self.pickle, id, self.op)?;
                self.stack.push(value);
            }
            _ => return Err(self.refuse(code)),
        }
        Ok(None)
    }

    // The bytes of the pickle.

    /// Checks that `len` more bytes are there.
    fn left(&self, what: &'static str, len: u64) -> Result<usize, Wrong> {
        let left = self.pickle.len() - self.at;
        match usize::try_from(len) {
            Ok(len) if len <= left => Ok(len),
            _ => Err(Wrong { at: self.op, fault: Fault::Ends { what, wants: len, found: left as u64 } }),
        }
    }

    fn take(&mut self, what: &'static str, len: u64) -> Result<Span, Wrong> {
        let len = self.left(what, len)?;
        let start = self.at;
        self.at += len;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Span { start: number(start), len: number(len) })
    }

    fn byte(&mut self) -> Result<u8, Wrong> {
        let span = self.take("the pickle", 1)?;
        Ok(span.of(self.pickle).first().copied().unwrap_or_default())
    }

    /// A little-endian number of `len` bytes.
    fn number(&mut self, len: u64) -> Result<u64, Wrong> {
        let span = self.take("the pickle", len)?;
        Ok(span.of(self.pickle).iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// Up to the end of the line, which is skipped.
    fn line(&mut self) -> Result<Span, Wrong> {
        /// Python's own readers have no limit; no name or number is longer.
        const MOST: usize = 4096;
        let rest = self.pickle.get(self.at..).unwrap_or_default();
        let end = rest.iter().take(MOST).position(|b| *b == b'\n');
        let end = match end {
            Some(end) => end,
            None if rest.len() >= MOST => return Err(self.broken(format!("a line of over {MOST} bytes"))),
            // Refused: there is less.
            None => self.left("a line", rest.len() as u64 + 1)?,
        };
        let span = self.take("a line", end as u64)?;
        self.at += 1;
        Ok(span)
    }

    // The stack.

    fn broken(&self, why: impl Into<String>) -> Wrong {
        Wrong::broken(self.op, why)
    }

    fn push(&mut self, value: Value) -> Result<(), Wrong> {
        self.heap.count(1, self.op)?;
        self.stack.push(value);
        Ok(())
    }

    fn make(&mut self, node: Node) -> Result<(), Wrong> {
        self.heap.count(1, self.op)?;
        let value = self.heap.add(node);
        self.stack.push(value);
        Ok(())
    }

    fn empty(&self) -> Wrong {
        let name = op::name(self.pickle.get(self.op).copied().unwrap_or_default());
        self.broken(format!("`{name}` wants a value, but the stack is empty"))
    }

    /// Pops a value, but none from below a mark.
    fn pop(&mut self) -> Result<Value, Wrong> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.empty());
        }
        self.stack.pop().ok_or_else(|| self.empty())
    }

    fn top(&self) -> Result<Value, Wrong> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.get(floor..).and_then(|s| s.last()).copied().ok_or_else(|| self.empty())
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>, Wrong> {
        let mark = self.marks.pop().ok_or_else(|| self.broken("there is no mark to go back to"))?;
        Ok(self.stack.split_off(mark))
    }

    // Numbers and text.

    fn small(&mut self, len: u64) -> Result<(), Wrong> {
        let n = self.number(len)?;
        self.push(Value::Int(n.cast_signed()))
    }

    /// A number in two's complement.
    fn long(&mut self, len: u64) -> Result<(), Wrong> {
        let len = self.number(len)?;
        let span = self.take("a number", len)?;
        let bytes = span.of(self.pickle);
        let value = match bytes.last() {
            None => Value::Int(0),
            Some(last) if bytes.len() <= 8 => {
                let fill = if *last >= 0x80 { -1 } else { 0 };
                Value::Int(bytes.iter().rev().fold(fill, |n: i64, b| n << 8 | i64::from(*b)))
            }
            Some(_) => Value::Other,
        };
        self.push(value)
    }

    /// Reads a number in decimal digits, the form that protocol 1 has for numbers of more than 32 bits, or a bool.
    fn decimal(&mut self, code: u8) -> Result<(), Wrong> {
        let line = self.line()?.of(self.pickle);
        let digits = line.strip_suffix(b"L").filter(|_| code == op::LONG).unwrap_or(line);
        let value = match line {
            b"00" if code == op::INT => Value::Bool(false),
            b"01" if code == op::INT => Value::Bool(true),
            _ => {
                let plain = digits.strip_prefix(b"-").unwrap_or(digits);
                if plain.is_empty() || !plain.iter().all(u8::is_ascii_digit) {
                    return Err(self.broken("a number that is not written in digits"));
                }
                let parsed = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
                parsed.map_or(Value::Other, Value::Int)
            }
        };
        self.push(value)
    }

    fn text(&mut self, len: u64) -> Result<(), Wrong> {
        let len = self.number(len)?;
        let span = self.take("text", len)?;
        self.push(Value::Text(span))
    }

    fn bytes(&mut self, len: u64) -> Result<(), Wrong> {
        let len = self.number(len)?;
        self.take("bytes", len)?;
        self.push(Value::Other)
    }

    // Containers.

    fn tuple(&mut self, n: usize) -> Result<(), Wrong> {
        let mut items = (0..n).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        self.make(Node::Tuple(items.into()))
    }

    fn extend(&mut self, items: &[Value]) -> Result<(), Wrong> {
        let list = self.top()?;
        match self.heap.node_mut(list) {
            Some(Node::List(held)) => held.extend_from_slice(items),
            // A subclass of lists.
            Some(Node::Inert(object)) => object.holds.extend_from_slice(items),
            _ => {
                return Err(
                    self.broken(format!("wanted a list to append to, found {}", self.heap.name(list)))
                );
            }
        }
        Ok(())
    }

    /// Sets keys and values by turns.
    fn set(&mut self, items: &[Value]) -> Result<(), Wrong> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.broken("a key without a value"));
        }
        let dict = self.top()?;
        match self.heap.node_mut(dict) {
            Some(Node::Dict(held)) => held.extend(pairs.iter().map(|[key, value]| (*key, *value))),
            // A subclass of dictionaries.
            Some(Node::Inert(object)) => object.holds.extend_from_slice(items),
            _ => {
                let found = self.heap.name(dict);
                return Err(self.broken(format!("wanted a dictionary to set items of, found {found}")));
            }
        }
        Ok(())
    }

    // The memo.

    fn remember(&mut self, index: u32) -> Result<(), Wrong> {
        let top = self.top()?;
        self.heap.count(1, self.op)?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn put(&mut self, len: u64) -> Result<(), Wrong> {
        let index = self.number(len)?;
        self.remember(u32::try_from(index).unwrap_or(u32::MAX))
    }

    fn get(&mut self, len: u64) -> Result<(), Wrong> {
        let index = self.number(len)?;
        let known = u32::try_from(index).ok().and_then(|i| self.memo.get(&i)).copied();
        let value = known.ok_or_else(|| self.broken(format!("nothing was kept under number {index}")))?;
        self.push(value)
    }

    // Objects.

    fn global(&mut self, module: Span, name: Span) -> Result<(), Wrong> {
        if let Some(global) = Global::of(self.pickle, module, name) {
            return self.make(Node::Global(global));
        }
        let name = format!("{}.{}", module.text(self.pickle), name.text(self.pickle));
        Err(Wrong { at: self.op, fault: Fault::Harmful { name } })
    }

    fn call(&mut self, callee: Value, arguments: Value, named: Option<Value>) -> Result<(), Wrong> {
        self.heap.count(1, self.op)?;
        let value = build::call(&mut self.heap, callee, arguments, named, self.op)?;
        self.stack.push(value);
        Ok(())
    }

    /// Sets the attributes of the object on top. Inert objects keep them, dictionaries and tensors ignore them, and others
    /// may not have any.
    fn state(&mut self, state: Value) -> Result<(), Wrong> {
        let object = self.top()?;
        match self.heap.node_mut(object) {
            Some(Node::Inert(object)) => object.holds.push(state),
            // `_metadata` of a state dict, attributes of a parameter.
            Some(Node::Dict(_) | Node::Tensor(_)) => {}
            _ => {
                let found = self.heap.name(object);
                return Err(self.broken(format!("wanted an object to give a state, found {found}")));
            }
        }
        Ok(())
    }

    fn refuse(&self, code: u8) -> Wrong {
        match op::name(code) {
            "" => self.broken(format!("{code:#04x} is no opcode")),
            name => Wrong::unsupported(
                self.op,
                format!("the pickle uses the opcode `{name}`, which torch does not write"),
            ),
        }
    }
}
