//! Names of the parts of a split checkpoint: `PREFIX-00002-of-00005SUFFIX`.
//!
//! Source: `llama_split_path` of llama.cpp@0c1e57098 (src/llama.cpp, `"%s-%05d-of-%05d.gguf"`), and
//! `split_torch_state_dict_into_shards_factory` of huggingface_hub (`serialization/_base.py`), which numbers the
//! same way.

/// A name with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Numbered<'n> {
    /// The text before the numbers.
    pub(crate) prefix: &'n str,
    /// The text after them.
    pub(crate) suffix: &'n str,
    /// How many parts there are.
    pub(crate) count: u32,
    /// Which one it is, from 1.
    pub(crate) no: u32,
}

impl<'n> Numbered<'n> {
    /// The parts of a file name, if it has them.
    pub(crate) fn parse(name: &'n str) -> Option<Numbered<'n>> {
        let (before, after) = name.rsplit_once("-of-")?;
        let (prefix, no) = before.rsplit_once('-')?;
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let (count, suffix) = after.split_at_checked(digits)?;
        Some(Numbered { prefix, suffix, count: number(count)?, no: number(no)? })
    }

    /// The name of another part.
    pub(crate) fn part(&self, no: u32) -> String {
        let Numbered { prefix, suffix, count, .. } = self;
        format!("{prefix}-{no:05}-of-{count:05}{suffix}")
    }

    /// Whether both are parts of one whole.
    pub(crate) fn same_whole(&self, other: &Numbered<'_>) -> bool {
        (self.prefix, self.suffix, self.count) == (other.prefix, other.suffix, other.count)
    }
}

/// A number of five digits, or of more that start with no zero.
fn number(digits: &str) -> Option<u32> {
    let padded = digits.len() == 5 || (digits.len() > 5 && !digits.starts_with('0'));
    let plain = padded && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_parts() {
        let two = Numbered::parse("a-b-00002-of-00005.gguf").unwrap();
        assert_eq!(two, Numbered { prefix: "a-b", suffix: ".gguf", count: 5, no: 2 });
        assert_eq!(two.part(2), "a-b-00002-of-00005.gguf");
        assert_eq!(two.part(4), "a-b-00004-of-00005.gguf");
        let variant = Numbered::parse("model-00001-of-00002.fp16.safetensors").unwrap();
        assert_eq!((variant.suffix, variant.no), (".fp16.safetensors", 1));
        assert_eq!(Numbered::parse("x-123456-of-123457.gguf").unwrap().count, 123_457);
        assert!(two.same_whole(&Numbered::parse("a-b-00005-of-00005.gguf").unwrap()));
        assert!(!two.same_whole(&Numbered::parse("a-c-00005-of-00005.gguf").unwrap()));
    }

    #[test]
    fn other_names() {
        for name in ["model.gguf", "a-1-of-2.gguf", "a-00001-of-.gguf", "-of-00002", "a-0x001-of-00002", ""] {
            assert_eq!(Numbered::parse(name), None, "{name}");
        }
        assert_eq!(Numbered::parse("a-00001-of-99999999999.gguf"), None);
        assert_eq!(Numbered::parse("a-000001-of-000002.gguf"), None);
    }
}
