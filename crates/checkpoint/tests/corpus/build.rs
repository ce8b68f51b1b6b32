//! Makes GGUF and safetensors files, sound ones and, field by field, broken ones.

/// Value type ids (gguf.h).
pub(crate) mod kind {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I8: u32 = 1;
    pub(crate) const U16: u32 = 2;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const F32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STR: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const U64: u32 = 10;
    pub(crate) const I64: u32 = 11;
    pub(crate) const F64: u32 = 12;
}

/// Tensor type ids (ggml.h).
pub(crate) const F32: u32 = 0;
pub(crate) const Q4_0: u32 = 2;

/// A GGUF file to be. Every field can be set to a lie before [`Gguf::build`].
#[derive(Clone, Debug)]
pub(crate) struct Gguf {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    /// Instead of the true counts.
    pub(crate) tensor_count: Option<u64>,
    pub(crate) pair_count: Option<u64>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    /// Instead of the true length of the key.
    pub(crate) key_len: Option<u64>,
    pub(crate) kind: u32,
    /// The value as it is written.
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: Vec<u8>,
    /// Fastest first, as the file has them.
    pub(crate) dims: Vec<u64>,
    /// Instead of the true number of dimensions.
    pub(crate) rank: Option<u32>,
    pub(crate) kind: u32,
    /// Instead of the true offset.
    pub(crate) offset: Option<u64>,
    /// Bytes of data.
    pub(crate) bytes: u64,
}

/// A length and bytes, as GGUF writes a string.
pub(crate) fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// An array value: element type, length, elements.
pub(crate) fn array(element: u32, len: u64, elements: impl AsRef<[u8]>) -> Vec<u8> {
    [&element.to_le_bytes()[..], &len.to_le_bytes(), elements.as_ref()].concat()
}

impl Gguf {
    pub(crate) fn new() -> Gguf {
        Gguf {
            magic: *b"GGUF",
            version: 3,
            alignment: 32,
            tensor_count: None,
            pair_count: None,
            pairs: Vec::new(),
            tensors: Vec::new(),
        }
    }

    pub(crate) fn pair(mut self, key: impl AsRef<[u8]>, kind: u32, value: impl AsRef<[u8]>) -> Gguf {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.pairs.push(Pair { key, key_len: None, kind, value });
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Gguf {
        self.pair(key, kind::U32, value.to_le_bytes())
    }

    pub(crate) fn str(self, key: &str, value: impl AsRef<[u8]>) -> Gguf {
        self.pair(key, kind::STR, string(value))
    }

    pub(crate) fn strs(self, key: &str, values: &[&str]) -> Gguf {
        let elements: Vec<u8> = values.iter().flat_map(string).collect();
        self.pair(key, kind::ARRAY, array(kind::STR, values.len() as u64, elements))
    }

    /// Sets the alignment, and the key that says so.
    pub(crate) fn align(mut self, alignment: u32) -> Gguf {
        self.alignment = alignment.into();
        self.u32("general.alignment", alignment)
    }

    /// An F32 tensor of torch shape `shape`.
    pub(crate) fn f32(self, name: &str, shape: &[u64]) -> Gguf {
        let bytes = 4 * shape.iter().product::<u64>();
        self.tensor(name, shape, F32, bytes)
    }

    /// A tensor of torch shape `shape`.
    pub(crate) fn tensor(mut self, name: impl AsRef<[u8]>, shape: &[u64], kind: u32, bytes: u64) -> Gguf {
        let (name, dims) = (name.as_ref().to_vec(), shape.iter().rev().copied().collect());
        self.tensors.push(Tensor { name, dims, rank: None, kind, offset: None, bytes });
        self
    }

    /// The same with one change.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Gguf)) -> Gguf {
        change(&mut self);
        self
    }

    /// Everything before the padding and the data.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.pair_count.unwrap_or(self.pairs.len() as u64).to_le_bytes());
        for pair in &self.pairs {
            out.extend(pair.key_len.unwrap_or(pair.key.len() as u64).to_le_bytes());
            out.extend(&pair.key);
            out.extend(pair.kind.to_le_bytes());
            out.extend(&pair.value);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            out.extend(string(&tensor.name));
            let rank = u32::try_from(tensor.dims.len()).expect("a small number");
            out.extend(tensor.rank.unwrap_or(rank).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next += tensor.bytes.next_multiple_of(self.alignment);
        }
        out
    }

    /// The whole file; each tensor is filled with its number, counted from 1.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = self.header();
        let alignment = usize::try_from(self.alignment).expect("a small number");
        for (tensor, fill) in self.tensors.iter().zip((1..=u8::MAX).cycle()) {
            out.resize(out.len().next_multiple_of(alignment), 0);
            let bytes = usize::try_from(tensor.bytes).expect("a small number");
            out.resize(out.len() + bytes, fill);
        }
        out
    }
}

/// A safetensors file: a header as given, and that many bytes of data.
pub(crate) fn safetensors(header: impl AsRef<[u8]>, data: usize) -> Vec<u8> {
    let header = header.as_ref();
    [&(header.len() as u64).to_le_bytes()[..], header, &vec![7; data]].concat()
}

/// A tensor of safetensors: name, dtype, shape, and its bytes if they are not zeros.
pub(crate) type Plane = (&'static str, &'static str, &'static [u64], Option<Vec<u8>>);

/// A safetensors file of these tensors.
pub(crate) fn safetensors_of(tensors: &[Plane]) -> Vec<u8> {
    let (mut infos, mut data) = (vec![], vec![]);
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        let width = match *dtype {
            "F32" | "I32" | "U32" => 4,
            "F16" | "BF16" | "I16" => 2,
            _ => 1,
        };
        let len = usize::try_from(shape.iter().product::<u64>()).expect("small") * width;
        data.extend(bytes.clone().unwrap_or_else(|| vec![0; len]));
        let end = data.len();
        infos.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", infos.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}
