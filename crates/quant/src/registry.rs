//! The tables of schemes.
//!
//! To add a scheme of one size, write its file under `scheme/` and add one line to [`CODECS`]; for one that
//! comes in many sizes, add it to [`FAMILIES`].

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use tensor::{Dtype, Scheme};

use crate::Error;
use crate::codec::{Codec, SchemeFamily};
use crate::interleave;
use crate::scheme as s;

/// Schemes of one size.
const CODECS: &[&dyn Codec] = &[
    #[cfg(test)]
    &s::Toy,
    &s::F32,
    &s::F16,
    &s::BF16,
    &s::Q1_0,
    &s::Q2_0,
    &s::F64,
    &s::F32_BE,
    &s::F16_BE,
    &s::BF16_BE,
    &s::F64_BE,
    &s::F8E4M3,
    &s::F8E5M2,
    &s::F8E8M0,
    &s::F8E4M3FNUZ,
    &s::F8E5M2FNUZ,
    &s::Q4_0,
    &s::Q4_1,
    &s::Q5_0,
    &s::Q5_1,
    &s::Q8_0,
    &s::Q8_1,
    &s::Q2K,
    &s::Q3K,
    &s::Q4K,
    &s::Q5K,
    &s::Q6K,
    &s::Q8K,
    &s::IQ1S,
    &s::IQ1M,
    &s::IQ2XXS,
    &s::IQ2XS,
    &s::IQ2S,
    &s::IQ3XXS,
    &s::IQ3S,
    &s::IQ4NL,
    &s::IQ4XS,
    &s::TQ1_0,
    &s::TQ2_0,
    &s::MXFP4,
    &s::NVFP4,
    &s::MLX_MXFP4,
    &s::MLX_NVFP4,
    &s::MLX_MXFP8,
    &s::Mxfp4Split,
    &s::BnbInt8,
    &s::CT_NVFP4,
    &s::CT_MXFP4,
    &s::CT_MXFP8,
];

/// Schemes that come in many sizes.
const FAMILIES: &[&dyn SchemeFamily] = &[
    &s::MlxAffine,
    &s::Fp8,
    &s::BitNet,
    &s::SquishInt8,
    &s::SquishQ4,
    &s::SquishQ4a,
    &s::GptqFamily(s::GptqVersion::V1),
    &s::GptqFamily(s::GptqVersion::V2),
    &s::AwqFamily,
    &s::BnbFamily(s::BnbTable::Nf4),
    &s::BnbFamily(s::BnbTable::Fp4),
    &s::CtIntFamily(s::CtStore::Packed),
    &s::CtIntFamily(s::CtStore::Bytes),
    &s::CtFp8,
    &s::CTranslate2Int8,
    &s::CTranslate2Int16,
    &s::ModeloptNvfp4,
];

/// All schemes of one size, made once, so that equal names share one `Arc`.
static SCHEMES: LazyLock<Vec<Arc<Scheme>>> = LazyLock::new(|| {
    let plain = Dtype::ALL.iter().map(|d| Scheme::plain(*d));
    let blocks = CODECS.iter().map(|c| c.scheme()).filter(|s| s.dtype().is_none());
    plain.chain(blocks).collect()
});

/// The members of families that were asked for. They live as long as the process: names are few, since each
/// is a valid combination of parameters that some tensor has.
static MEMBERS: LazyLock<Mutex<HashMap<String, Member>>> = LazyLock::new(Mutex::default);

#[derive(Clone)]
struct Member {
    codec: &'static dyn Codec,
    scheme: Arc<Scheme>,
}

/// The member of a family called `name`.
fn member(name: &str) -> Option<Member> {
    let (family, params) = name.split_once(':')?;
    let family = FAMILIES.iter().find(|f| f.name() == family)?;
    let mut members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(member) = members.get(name) {
        return Some(member.clone());
    }
    let codec: &'static dyn Codec = Box::leak(family.parse(params)?);
    debug_assert_eq!(codec.name(), name, "one spelling for each scheme");
    let member = Member { codec, scheme: codec.scheme() };
    members.insert(name.to_owned(), member.clone());
    Some(member)
}

/// The geometry of the scheme called `name`, whether or not it can be decoded.
pub fn scheme(name: &str) -> Option<Arc<Scheme>> {
    let one = SCHEMES.iter().find(|s| s.name == name).cloned();
    let one = one.or_else(|| interleave::form(name).map(Codec::scheme));
    one.or_else(|| member(name).map(|m| m.scheme)).or_else(|| own(name).map(|m| m.scheme))
}

/// Schemes that programs have added.
static OWN: RwLock<Vec<Member>> = RwLock::new(Vec::new());

/// The scheme called `name` that a program has added.
fn own(name: &str) -> Option<Member> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    own.iter().find(|member| member.codec.name() == name).cloned()
}

/// Adds a scheme of the caller's own: from now on it is found by its name, in every part of the program, and is planned,
/// sharded, decoded and, if it has an encoder, encoded as any other. Kernels multiply it as floats.
///
/// Its name is one that no scheme here has; a prefix such as `acme-` keeps it so in later versions.
///
/// # Errors
/// If a scheme has that name already.
pub fn register(codec: &'static dyn Codec) -> Result<(), Error> {
    let name = codec.name();
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    if own.iter().any(|member| member.codec.name() == name)
        || SCHEMES.iter().any(|s| s.name == name)
        || member(name).is_some()
        || interleave::form(name).is_some()
    {
        return Err(Error::Taken { name: name.to_owned() });
    }
    own.push(Member { codec, scheme: codec.scheme() });
    Ok(())
}

/// The codec of the scheme called `name`, if it can be decoded.
pub fn codec(name: &str) -> Option<&'static dyn Codec> {
    interleave::form(name).map(|f| f as &dyn Codec).or_else(|| stored(name))
}

/// The same but for interleaved forms.
pub(crate) fn stored(name: &str) -> Option<&'static dyn Codec> {
    let one = CODECS.iter().copied().find(|c| c.name() == name);
    one.or_else(|| member(name).map(|m| m.codec)).or_else(|| own(name).map(|m| m.codec))
}

/// Returns the names of all schemes that can be decoded except interleaved forms: the schemes of one size, and the
/// usual members of each family.
pub fn names() -> impl Iterator<Item = String> {
    let one = CODECS.iter().map(|c| c.name().to_owned());
    let usual = |f: &&'static dyn SchemeFamily| {
        let family = f.name();
        f.usual().iter().map(move |params| format!("{family}:{params}"))
    };
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    let own: Vec<String> = own.iter().map(|member| member.codec.name().to_owned()).collect();
    one.chain(FAMILIES.iter().flat_map(usual)).chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_codec_has_a_geometry() {
        for (i, s) in SCHEMES.iter().enumerate() {
            assert!(SCHEMES[..i].iter().all(|t| t.name != s.name), "`{s}` is there twice");
        }
        for name in names() {
            let (scheme, codec) = (scheme(&name).unwrap(), codec(&name).unwrap());
            assert_eq!(scheme.name, name);
            assert_eq!(codec.name(), name);
            assert_eq!(*scheme, *codec.scheme(), "`{name}`");
        }
    }

    #[test]
    fn a_scheme_that_cannot_be_decoded_can_still_be_measured() {
        let i64 = scheme("i64").unwrap();
        assert_eq!(i64.byte_len(&tensor::Shape::from([2, 64])), Ok(2 * 64 * 8));
        assert!(codec("i64").is_none());
        assert!(scheme("q4_2").is_none() && scheme("mlx-affine:b7").is_none());
    }
}
