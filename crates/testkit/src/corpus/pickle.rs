//! Makes pickles opcode by opcode, and the files that they are in.

use super::archives::{Member, archive};

/// A pickle in the making.
#[derive(Debug, Clone, Default)]
pub struct Pickle(pub Vec<u8>);

impl Pickle {
    /// Protocol 2, as torch writes it.
    pub fn new() -> Pickle {
        Pickle(vec![0x80, 2])
    }

    /// With these bytes more.
    pub fn op(mut self, bytes: &[u8]) -> Pickle {
        self.0.extend_from_slice(bytes);
        self
    }

    /// With these bytes `n` times more.
    pub fn repeat(self, n: usize, bytes: &[u8]) -> Pickle {
        self.op(&bytes.repeat(n))
    }

    /// With a string more.
    pub fn text(self, text: &str) -> Pickle {
        self.op(b"X").op(&u32::try_from(text.len()).expect("short").to_le_bytes()).op(text.as_bytes())
    }

    /// With a name of a module more.
    pub fn global(self, module: &str, name: &str) -> Pickle {
        self.op(format!("c{module}\n{name}\n").as_bytes())
    }

    /// With a number more.
    pub fn int(self, n: i64) -> Pickle {
        self.op(b"\x8a\x08").op(&n.to_le_bytes())
    }

    /// A tuple of integers.
    pub fn ints(self, numbers: &[i64]) -> Pickle {
        numbers.iter().fold(self.op(b"("), |p, n| p.int(*n)).op(b"t")
    }

    /// A storage by its persistent id.
    pub fn storage(self, class: &str, key: &str, elements: i64) -> Pickle {
        self.op(b"(").text("storage").global("torch", class).text(key).text("cpu").int(elements).op(b"tQ")
    }

    /// A tensor of 4 f32 in a storage of `elements` elements.
    pub fn tensor(self, elements: i64, offset: i64, shape: &[i64], strides: &[i64]) -> Pickle {
        self.global("torch._utils", "_rebuild_tensor_v2")
            .op(b"(")
            .storage("FloatStorage", "0", elements)
            .int(offset)
            .ints(shape)
            .ints(strides)
            .op(b"\x89}tR")
    }

    /// A tensor that fits the record of [`zip`].
    pub fn fine(self) -> Pickle {
        self.tensor(4, 0, &[2, 2], &[2, 1])
    }

    /// `{name: what}` and the end.
    pub fn dict(name: &str, what: impl FnOnce(Pickle) -> Pickle) -> Pickle {
        what(Pickle::new().op(b"}").text(name)).op(b"s.")
    }
}

/// A file as torch writes it, with one storage `0` of 16 bytes.
pub fn zip(pickle: &Pickle) -> Vec<u8> {
    archive(&[
        Member::new("archive/data.pkl", pickle.0.clone()),
        Member::new("archive/byteorder", *b"little"),
        Member::new("archive/data/0", [7; 16]),
        Member::new("archive/version", *b"3\n"),
    ])
}

/// A file as torch wrote it before 1.6: the object, the list of keys, and what follows.
pub fn legacy(object: &Pickle, keys: &Pickle, storages: &[u8]) -> Vec<u8> {
    let magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    [&magic[..], b"\x80\x02M\xe9\x03.", b"\x80\x02}.", &object.0, &keys.0, storages].concat()
}
