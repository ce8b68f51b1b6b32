//! Zip archives as the table of their members: names and places, without reading their contents.
//!
//! Source: APPNOTE.TXT 6.3.10, which the `zip` crate reads. Beyond its checks, this rejects a name twice, a local
//! header whose name differs from the directory's, and members that overlap or leave the file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use storage::{ByteSource, Location, Reader};
use zip::{CompressionMethod, ZipArchive};

use crate::error::{Error, Problem, Quoted, Subject};
use crate::fault::Fault;

/// One member.
pub(super) struct Member {
    /// Its path in the archive. Never a path on a disk.
    pub(super) name: String,
    /// Its bytes in the file, inside it and shared with no other member.
    pub(super) data: Range<u64>,
    /// Whether these are its content: neither compressed nor encrypted.
    pub(super) stored: bool,
}

/// Bytes of a local header before the name.
const LOCAL: u64 = 30;

/// The name of the first member of an archive that starts with `head`; `None` if that is no archive, or holds
/// nothing.
pub(super) fn first_name(head: &[u8]) -> Option<&[u8]> {
    let [b'P', b'K', 3, 4, rest @ ..] = head else { return None };
    let length = rest.get(22..).and_then(|h| h.first_chunk())?;
    rest.get(26..)?.get(..usize::from(u16::from_le_bytes(*length)))
}

/// The members of `source`, the file at `location`, in the order of the directory.
pub(super) fn members(location: &Location, source: &Arc<dyn ByteSource>) -> Result<Vec<Member>, Error> {
    let broken = |at, subject, e| match e {
        zip::result::ZipError::Io(e) if e.kind() != io::ErrorKind::UnexpectedEof => {
            Error::io(location, "read", e)
        }
        e => Problem { at, subject, fault: Fault::Zip { why: e.to_string() } }.of(location),
    };
    let wrong =
        |at, why| Problem { at: Some(at), subject: Subject::Whole, fault: Fault::Zip { why } }.of(location);
    let reader = io::BufReader::new(Reader::new(Arc::clone(source), 0));
    // The directory is read from its end, which is the end of the file.
    let mut archive = ZipArchive::new(reader).map_err(|e| broken(Some(source.len()), Subject::Whole, e))?;
    if archive.has_duplicate_names() {
        return Err(wrong(source.len(), "two members have the same name".to_owned()));
    }
    let mut members = Vec::new();
    let mut spans = Vec::new();
    for i in 0..archive.len() {
        let called = match archive.name_for_index(i) {
            Some(Ok(name)) => Subject::Key(name.into_owned()),
            _ => Subject::Whole,
        };
        let broken = |e| broken(None, called.clone(), e);
        let member = archive.by_index_raw(i).map_err(broken)?;
        let name = member.name().map_err(broken)?.into_owned();
        let header = member.header_start();
        let start = member.data_start().unwrap_or_default();
        let stored = member.compression() == CompressionMethod::Stored && !member.encrypted();
        let len = member.compressed_size();
        let raw = member.name_raw().to_vec();
        drop(member);
        let data = start..start.saturating_add(len);
        if data.end > source.len() {
            let (wants, found) = (len, source.len().saturating_sub(start));
            let fault = Fault::Ends { what: "a member of the archive", wants, found };
            return Err(Problem { at: Some(start), subject: Subject::Key(name), fault }.of(location));
        }
        let mut local = vec![0; raw.len()];
        // A name that does not fit before its data is not the one that is there.
        let fits = header.checked_add(LOCAL + raw.len() as u64).is_some_and(|end| end <= start);
        if !fits || source.read_at(header + LOCAL, &mut local).is_err() || local != raw {
            let why = format!("{} has another name in its own header", Quoted(&name));
            return Err(wrong(header, why));
        }
        spans.push((header..data.end, members.len()));
        members.push(Member { name, data, stored });
    }
    spans.sort_by_key(|(span, _)| span.start);
    for pair in spans.windows(2) {
        if let [(a, i), (b, j)] = pair
            && a.end > b.start
        {
            let name = |i: &usize| members.get(*i).map_or("", |m| m.name.as_str());
            return Err(wrong(b.start, format!("{} overlaps {}", Quoted(name(j)), Quoted(name(i)))));
        }
    }
    Ok(members)
}
