//! npz, written: stored members in the order of the tensors, data aligned for mapping.
//!
//! Source: APPNOTE.TXT 6.3.10 of PKWARE. Where each member lies is known before its bytes are, but its checksum is
//! not: that is what the [`Archive`] keeps.

use tensor::Shape;

use super::SUFFIX;
use crate::error::Error;
use crate::fault::Fault;
use crate::format::npy::header;
use crate::write::{Flat, Frame, Outgoing, Refusals};

/// Members start at multiples of this, as the data in them does.
const ALIGN: u64 = 64;
/// Beyond this a member needs zip64 (4.4.8: four bytes, all ones say "elsewhere").
const ZIP64: u64 = 0xffff_ffff;
/// Names are at most this long (4.4.10).
const MAX_NAME: u64 = 0xffff;
/// 1980-01-01, as numpy has it (4.4.6): the same input gives the same file.
const DATE: u16 = 0x21;
/// The version that is needed to read what is stored (4.4.3).
const VERSION: u16 = 20;
/// The version that is needed to read zip64.
const ZIP64_VERSION: u16 = 0x2d;
/// The version that made it: that of zip64, on Unix (4.4.2).
const MADE_BY: u16 = 0x0300 | ZIP64_VERSION;
/// The name is UTF-8 (4.4.4, bit 11).
const UTF8: u16 = 1 << 11;
/// Readable and writable by the owner: `0o100600`, where Unix has it (4.4.15).
const MODE: u32 = 0o100_600 << 16;
/// The id of an extra field that aligns data (as Android's zipalign and the Rust `zip` crate have it).
const PADDING: u16 = 0xa11e;

/// The members of an archive that is being written.
pub(crate) struct Archive {
    members: Vec<Member>,
    /// Where the last one ends.
    end: u64,
}

struct Member {
    name: String,
    header: Vec<u8>,
    /// Where its local header starts.
    start: u64,
    /// Bytes of the npy header and the data.
    bytes: u64,
    /// The extra field of the local header.
    extra: Vec<u8>,
    crc: u32,
}

/// The archive of `tensors`, and what depends on their bytes.
pub(crate) fn form(tensors: &[Outgoing]) -> Result<(Flat, Archive), Error> {
    let mut refused = Refusals::default();
    let mut archive = Archive { members: Vec::with_capacity(tensors.len()), end: 0 };
    let mut offsets = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let Outgoing { name, shape, scheme } = tensor;
        let Some(header) = scheme.dtype().and_then(|dtype| header::build(dtype, shape)) else {
            refused.scheme(tensor);
            continue;
        };
        let name = format!("{name}{SUFFIX}");
        if name.len() as u64 > MAX_NAME {
            let (what, found) = ("name length in bytes", name.len() as u64);
            refused.push(tensor, Fault::Limit { what, found, limit: MAX_NAME });
            continue;
        }
        let Some(data) = data(tensor, shape, &mut refused) else { continue };
        offsets.push(vec![archive.add(name, header, data)]);
    }
    refused.check(super::NAME, "a numpy dtype")?;
    let len = archive.end.saturating_add(archive.tail().len() as u64);
    Ok((Flat { head: vec![], between: vec![], offsets, len }, archive))
}

fn data(tensor: &Outgoing, shape: &Shape, refused: &mut Refusals) -> Option<u64> {
    let bytes = tensor.scheme.byte_len(shape);
    bytes.map_err(|why| refused.push(tensor, Fault::geometry(shape, &tensor.scheme, why))).ok()
}

impl Archive {
    /// Adds a member; gives where its data starts.
    fn add(&mut self, name: String, header: Vec<u8>, data: u64) -> u64 {
        let bytes = data.saturating_add(header.len() as u64);
        let mut extra = vec![];
        if bytes >= ZIP64 {
            // 4.5.3: of the local header both lengths.
            field(&mut extra, 1, &[bytes.to_le_bytes(), bytes.to_le_bytes()].concat());
        }
        // A field that aligns is at least its own four bytes and the alignment.
        let unaligned = self.end.saturating_add(30 + name.len() as u64 + extra.len() as u64);
        let mut pad = unaligned.next_multiple_of(ALIGN) - unaligned;
        if pad > 0 {
            pad += if pad < 6 { ALIGN } else { 0 };
            let mut padding = u16::try_from(ALIGN).unwrap_or_default().to_le_bytes().to_vec();
            padding.resize(usize::try_from(pad - 4).unwrap_or(0), 0);
            field(&mut extra, PADDING, &padding);
        }
        let start = self.end;
        let content = unaligned.saturating_add(pad);
        let at = content.saturating_add(header.len() as u64);
        self.end = content.saturating_add(bytes);
        self.members.push(Member { name, header, start, bytes, extra, crc: 0 });
        at
    }
}

impl Frame for Archive {
    fn lead(&mut self, index: usize, planes: &[&[u8]]) -> Vec<u8> {
        let Some(member) = self.members.get_mut(index) else { return vec![] };
        let mut crc = crc32fast::Hasher::new();
        crc.update(&member.header);
        for plane in planes {
            crc.update(plane);
        }
        member.crc = crc.finalize();
        // 4.3.7.
        let mut out = 0x0403_4b50u32.to_le_bytes().to_vec();
        member.put(&mut out, member.bytes >= ZIP64, &member.extra);
        out.extend(member.name.as_bytes());
        out.extend(&member.extra);
        out.extend(&member.header);
        out
    }

    fn tail(&self) -> Vec<u8> {
        let mut out = vec![];
        for member in &self.members {
            let mut extra = vec![];
            let wide = |n: u64| (n >= ZIP64).then(|| n.to_le_bytes());
            let fields: Vec<_> =
                [member.bytes, member.bytes, member.start].into_iter().filter_map(wide).collect();
            if !fields.is_empty() {
                field(&mut extra, 1, &fields.concat());
            }
            // 4.3.12.
            out.extend(0x0201_4b50u32.to_le_bytes());
            out.extend(MADE_BY.to_le_bytes());
            member.put(&mut out, !fields.is_empty(), &extra);
            // No comment, the first disk, no internal attributes.
            out.extend([0; 6]);
            out.extend(MODE.to_le_bytes());
            out.extend(short(member.start).to_le_bytes());
            out.extend(member.name.as_bytes());
            out.extend(extra);
        }
        let (count, bytes) = (self.members.len() as u64, out.len() as u64);
        let many = u16::try_from(count).ok().filter(|n| *n < u16::MAX);
        if many.is_none() || self.end >= ZIP64 || bytes >= ZIP64 {
            // 4.3.14 and 4.3.15: the end in eight bytes a number, and where that is.
            let at = self.end.saturating_add(bytes);
            out.extend(0x0606_4b50u32.to_le_bytes());
            out.extend(44u64.to_le_bytes());
            out.extend(MADE_BY.to_le_bytes());
            out.extend(ZIP64_VERSION.to_le_bytes());
            out.extend([0; 8]);
            out.extend([count, count, bytes, self.end].map(u64::to_le_bytes).concat());
            out.extend(0x0706_4b50u32.to_le_bytes());
            out.extend([0; 4]);
            out.extend(at.to_le_bytes());
            out.extend(1u32.to_le_bytes());
        }
        // 4.3.16.
        let many = many.unwrap_or(u16::MAX);
        out.extend(0x0605_4b50u32.to_le_bytes());
        out.extend([0; 4]);
        out.extend([many, many].map(u16::to_le_bytes).concat());
        out.extend([short(bytes), short(self.end)].map(u32::to_le_bytes).concat());
        out.extend([0; 2]);
        out
    }
}

impl Member {
    /// The part that the local and the central header share: from the version to the length of the extra field.
    fn put(&self, out: &mut Vec<u8>, zip64: bool, extra: &[u8]) {
        let flags = if self.name.is_ascii() { 0 } else { UTF8 };
        // Stored, at midnight.
        let version = if zip64 { ZIP64_VERSION } else { VERSION };
        out.extend([version, flags, 0, 0, DATE].map(u16::to_le_bytes).concat());
        out.extend([self.crc, short(self.bytes), short(self.bytes)].map(u32::to_le_bytes).concat());
        // Names were measured, and extra fields are short.
        for n in [self.name.len(), extra.len()] {
            out.extend(u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes());
        }
    }
}

fn field(out: &mut Vec<u8>, id: u16, content: &[u8]) {
    out.extend(id.to_le_bytes());
    out.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(content);
}

/// A number in four bytes, or all ones.
fn short(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths that no test can write: headers are compared with a reader's rules.
    #[test]
    fn members_and_archives_over_4_gib_are_zip64() {
        let mut archive = Archive { members: vec![], end: 0 };
        let at = archive.add("a.npy".into(), vec![7; 128], 5 << 30);
        assert_eq!((at % ALIGN, archive.end), (0, at + (5 << 30)));
        archive.add("ü.npy".into(), vec![7; 128], 10);
        let lead = archive.lead(0, &[]);
        assert_eq!(lead.len() as u64, at);
        assert_eq!(&lead[18..26], [0xff; 8], "both lengths are elsewhere");
        assert_eq!(&lead[35..39], [1, 0, 16, 0]);
        assert_eq!(lead[39..47], (128u64 + (5 << 30)).to_le_bytes());
        let tail = archive.tail();
        let second = tail.windows(4).rposition(|w| w == [0x50, 0x4b, 1, 2]).unwrap();
        // The second is short, but starts beyond 4 GiB.
        assert_eq!(tail[second + 8..second + 10], UTF8.to_le_bytes());
        assert_eq!(&tail[second + 42..second + 46], [0xff; 4]);
        let extra = second + 46 + "ü.npy".len();
        assert_eq!(&tail[extra..extra + 4], [1, 0, 8, 0]);
        assert_eq!(tail[extra + 4..extra + 12], archive.members[1].start.to_le_bytes());
        let ends = tail.windows(4).position(|w| w == [0x50, 0x4b, 6, 6]).unwrap();
        assert_eq!(tail[ends + 48..ends + 56], archive.end.to_le_bytes());
        let locator = ends + 56;
        assert_eq!(tail[locator + 8..locator + 16], (archive.end + ends as u64).to_le_bytes());
        assert_eq!(tail.len(), locator + 20 + 22);
    }
}
