//! Makes GGUF and safetensors files, sound ones and, field by field, broken ones.

/// Value type ids (gguf.h).
pub mod kind {
    /// An unsigned byte.
    pub const U8: u32 = 0;
    /// A signed byte.
    pub const I8: u32 = 1;
    /// Two bytes, unsigned.
    pub const U16: u32 = 2;
    /// Four bytes, unsigned.
    pub const U32: u32 = 4;
    /// Four bytes, signed.
    pub const I32: u32 = 5;
    /// A float of four bytes.
    pub const F32: u32 = 6;
    /// A flag.
    pub const BOOL: u32 = 7;
    /// A string.
    pub const STR: u32 = 8;
    /// A list.
    pub const ARRAY: u32 = 9;
    /// Eight bytes, unsigned.
    pub const U64: u32 = 10;
    /// Eight bytes, signed.
    pub const I64: u32 = 11;
    /// A float of eight bytes.
    pub const F64: u32 = 12;
}

/// Tensor type ids (ggml.h).
pub const F32: u32 = 0;
/// The number of `q4_0` among the types of tensors.
pub const Q4_0: u32 = 2;

/// A GGUF file to be. Every field can be set to a lie before [`Gguf::build`].
#[derive(Clone, Debug)]
pub struct Gguf {
    /// What the file begins with.
    pub magic: [u8; 4],
    /// The version of the format.
    pub version: u32,
    /// The alignment of data in bytes.
    pub alignment: u64,
    /// Instead of the true number of tensors.
    pub tensor_count: Option<u64>,
    /// Instead of the true number of pairs.
    pub pair_count: Option<u64>,
    /// The metadata.
    pub pairs: Vec<Pair>,
    /// The tensors.
    pub tensors: Vec<Tensor>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// Instead of the true length of the key.
    pub key_len: Option<u64>,
    /// The type of the value.
    pub kind: u32,
    /// The value as it is written.
    pub value: Vec<u8>,
}

/// A tensor and its data.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name.
    pub name: Vec<u8>,
    /// Fastest first, as the file has them.
    pub dims: Vec<u64>,
    /// Instead of the true number of dimensions.
    pub rank: Option<u32>,
    /// The type of its elements.
    pub kind: u32,
    /// Instead of the true offset.
    pub offset: Option<u64>,
    /// Bytes of data.
    pub bytes: u64,
}

/// A length and bytes, as GGUF writes a string.
pub fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// An array value: element type, length, elements.
pub fn array(element: u32, len: u64, elements: impl AsRef<[u8]>) -> Vec<u8> {
    [&element.to_le_bytes()[..], &len.to_le_bytes(), elements.as_ref()].concat()
}

impl Gguf {
    /// A sound file without metadata or tensors.
    pub fn new() -> Gguf {
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

    /// With a pair more, whose value is of type `kind`.
    pub fn pair(mut self, key: impl AsRef<[u8]>, kind: u32, value: impl AsRef<[u8]>) -> Gguf {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.pairs.push(Pair { key, key_len: None, kind, value });
        self
    }

    /// With a number more.
    pub fn u32(self, key: &str, value: u32) -> Gguf {
        self.pair(key, kind::U32, value.to_le_bytes())
    }

    /// With a string more.
    pub fn str(self, key: &str, value: impl AsRef<[u8]>) -> Gguf {
        self.pair(key, kind::STR, string(value))
    }

    /// With a list of strings more.
    pub fn strs(self, key: &str, values: &[&str]) -> Gguf {
        let elements: Vec<u8> = values.iter().flat_map(string).collect();
        self.pair(key, kind::ARRAY, array(kind::STR, values.len() as u64, elements))
    }

    /// Sets the alignment, and the key that says so.
    pub fn align(mut self, alignment: u32) -> Gguf {
        self.alignment = alignment.into();
        self.u32("general.alignment", alignment)
    }

    /// An F32 tensor of torch shape `shape`.
    pub fn f32(self, name: &str, shape: &[u64]) -> Gguf {
        let bytes = 4 * shape.iter().product::<u64>();
        self.tensor(name, shape, F32, bytes)
    }

    /// A tensor of torch shape `shape`.
    pub fn tensor(mut self, name: impl AsRef<[u8]>, shape: &[u64], kind: u32, bytes: u64) -> Gguf {
        let (name, dims) = (name.as_ref().to_vec(), shape.iter().rev().copied().collect());
        self.tensors.push(Tensor { name, dims, rank: None, kind, offset: None, bytes });
        self
    }

    /// The same with one change.
    pub fn with(mut self, change: impl FnOnce(&mut Gguf)) -> Gguf {
        change(&mut self);
        self
    }

    /// Everything before the padding and the data.
    pub fn header(&self) -> Vec<u8> {
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
    pub fn build(&self) -> Vec<u8> {
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
pub fn safetensors(header: impl AsRef<[u8]>, data: usize) -> Vec<u8> {
    let header = header.as_ref();
    [&(header.len() as u64).to_le_bytes()[..], header, &vec![7; data]].concat()
}

/// A tensor of safetensors: name, dtype, shape, and its bytes if they are not zeros.
pub type Plane = (&'static str, &'static str, &'static [u64], Option<Vec<u8>>);

/// A safetensors file of these tensors.
pub fn safetensors_of(tensors: &[Plane]) -> Vec<u8> {
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
