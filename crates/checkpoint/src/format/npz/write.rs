//! npz, written: stored members in the order of the tensors, data aligned for mapping.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::SUFFIX;
use crate::error::Error;
use crate::fault::Fault;
use crate::format::npy::header;
use crate::write::{Fill, Outgoing, Refusals};

/// Members start at multiples of this, as the data in them does.
const ALIGN: u16 = 64;
/// Beyond this a member needs zip64 (APPNOTE.TXT 4.4.8: four bytes, all ones say "elsewhere").
const ZIP64: u64 = 0xffff_ffff;

/// An archive to be.
pub(crate) struct Form {
    members: Vec<Member>,
    bytes: u64,
}

struct Member {
    name: String,
    header: Vec<u8>,
    large: bool,
}

impl Form {
    pub(crate) fn new(tensors: &[Outgoing]) -> Result<Form, Error> {
        let mut refused = Refusals::default();
        let (mut members, mut bytes) = (Vec::with_capacity(tensors.len()), 0u64);
        for tensor in tensors {
            let header = tensor.scheme.dtype().and_then(|dtype| header::build(dtype, &tensor.shape));
            let Some(header) = header else {
                refused.scheme(tensor);
                continue;
            };
            let name = format!("{}{SUFFIX}", tensor.name);
            let data = match tensor.scheme.byte_len(&tensor.shape) {
                Ok(data) => data.saturating_add(header.len() as u64),
                Err(why) => {
                    refused.push(tensor, Fault::geometry(&tensor.shape, &tensor.scheme, why));
                    continue;
                }
            };
            // The local and the central header, the name in both, extra fields, padding.
            let around = 2 * name.len() as u64 + 30 + 46 + 64 + u64::from(ALIGN);
            bytes = bytes.saturating_add(data).saturating_add(around);
            members.push(Member { name, header, large: data >= ZIP64 });
        }
        refused.check(super::NAME, "a dtype that numpy has")?;
        // The end of the archive, in both forms.
        Ok(Form { members, bytes: bytes.saturating_add(22 + 56 + 20) })
    }
}

impl crate::write::Form for Form {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn start(self: Box<Self>, file: File) -> io::Result<Box<dyn Fill>> {
        let archive = ZipWriter::new(BufWriter::with_capacity(1 << 20, file));
        Ok(Box::new(Filling { archive, members: self.members }))
    }
}

struct Filling {
    archive: ZipWriter<BufWriter<File>>,
    members: Vec<Member>,
}

impl Fill for Filling {
    fn tensor(&mut self, index: usize, planes: &[&[u8]]) -> io::Result<()> {
        let Some(member) = self.members.get(index) else { return Ok(()) };
        // The time of a member is 1980-01-01, as numpy has it: the same input gives the same file.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::DEFAULT)
            .unix_permissions(0o600)
            .large_file(member.large)
            .with_alignment(ALIGN);
        self.archive.start_file(&*member.name, options)?;
        self.archive.write_all(&member.header)?;
        planes.iter().try_for_each(|plane| self.archive.write_all(plane))
    }

    fn end(self: Box<Self>) -> io::Result<File> {
        let out = self.archive.finish()?;
        out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}
