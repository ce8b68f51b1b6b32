//! Forms with files: `multipart/form-data`.
//!
//! A page of another origin can send a form without asking first, as it cannot with JSON. So a form of another origin is refused
//! here unless `--cors` names it: browsers say in `Origin` where it comes from.
//!
//! Source: RFC 7578.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fields::Fields;
use crate::guard::allowed_origin;
use crate::host::{Host, Shared};
use crate::refusal::Refusal;

/// Bytes of a field that is not a file, and fields of a form at most.
const TEXT: usize = 1 << 16;
const PARTS: usize = 64;
/// How long a client may take for a form, and be silent while it sends one.
pub(crate) const WHOLE: Duration = Duration::from_mins(10);
const SILENT: Duration = Duration::from_mins(1);
/// Bytes of a permit.
pub(crate) const UNIT: usize = 1024;

/// A form, and the right to keep its files in memory.
pub(crate) struct Form {
    pub(crate) fields: Fields,
    pub(crate) memory: Option<OwnedSemaphorePermit>,
}

/// Reads a form of at most `most` bytes, whose files take their room from `memory`.
pub(crate) async fn form(
    host: &Host,
    request: Request,
    most: usize,
    memory: &Arc<Semaphore>,
) -> Result<Form, Refusal> {
    let headers = request.headers();
    check(host, headers, most)?;
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(text(header::CONTENT_TYPE)).map_err(|_| {
        let message = "wanted the header `Content-Type: multipart/form-data; boundary=…`";
        Refusal::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    })?;
    let limit = SizeLimit::new().whole_stream(most as u64);
    let stream = request.into_body().into_data_stream();
    let parts = Multipart::with_constraints(stream, boundary, Constraints::new().size_limit(limit));
    tokio::time::timeout(WHOLE, read(host, parts, most, memory)).await.map_err(|_| late())?
}

async fn read(
    host: &Host,
    mut parts: Multipart<'_>,
    most: usize,
    memory: &Arc<Semaphore>,
) -> Result<Form, Refusal> {
    let wrong = |error: multer::Error| match error {
        multer::Error::StreamSizeExceeded { .. } => too_large(most),
        error => Refusal::wrong(format!("the form is broken: {error}")),
    };
    let (mut texts, mut files, mut held) = (Map::new(), vec![], None::<OwnedSemaphorePermit>);
    let mut count = 0;
    while let Some(mut part) =
        tokio::time::timeout(SILENT, parts.next_field()).await.map_err(|_| late())?.map_err(wrong)?
    {
        count += 1;
        let name = part.name().unwrap_or_default().to_owned();
        if count > PARTS || name.len() > 256 {
            return Err(Refusal::wrong(format!("wanted a form of at most {PARTS} fields with short names")));
        }
        let is_file = part.file_name().is_some();
        let mut bytes = vec![];
        while let Some(chunk) =
            tokio::time::timeout(SILENT, part.chunk()).await.map_err(|_| late())?.map_err(wrong)?
        {
            if is_file {
                let units = u32::try_from(chunk.len().div_ceil(UNIT)).unwrap_or(u32::MAX);
                let more = Arc::clone(memory).try_acquire_many_owned(units).map_err(|_| host.busy())?;
                match &mut held {
                    Some(held) => held.merge(more),
                    None => held = Some(more),
                }
            } else if bytes.len() + chunk.len() > TEXT {
                return Err(Refusal::wrong(format!("`{name}`: wanted at most {TEXT} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        if is_file {
            files.push((name, Bytes::from(bytes)));
            continue;
        }
        let text = String::from_utf8(bytes).map_err(|_| Refusal::wrong(format!("`{name}`: not UTF-8")))?;
        add(&mut texts, name, text);
    }
    Ok(Form { fields: Fields::of_form(texts, files), memory: held })
}

/// Adds a text. One whose name ends with `[]`, or that comes again, is one of a list.
fn add(texts: &mut Map<String, Value>, name: String, text: String) {
    let is_list = name.ends_with("[]");
    match texts.get_mut(&name) {
        Some(Value::Array(list)) => list.push(Value::String(text)),
        Some(known) => *known = Value::Array(vec![known.take(), Value::String(text)]),
        None if is_list => drop(texts.insert(name, Value::Array(vec![Value::String(text)]))),
        None => drop(texts.insert(name, Value::String(text))),
    }
}

fn too_large(most: usize) -> Refusal {
    Refusal::http(StatusCode::PAYLOAD_TOO_LARGE, format!("the form is larger than {most} bytes"))
}

pub(crate) fn late() -> Refusal {
    Refusal::http(StatusCode::REQUEST_TIMEOUT, "the form takes too long to come")
}

/// Refuses a form that a page of another origin sends, as a browser says, and one that says that it is larger than `most`.
pub(crate) fn check(shared: &Shared, headers: &HeaderMap, most: usize) -> Result<(), Refusal> {
    if is_of_other_origin(shared, headers) {
        let message = "a page of another origin has sent the form, and this server allows none";
        return Err(Refusal::http(StatusCode::FORBIDDEN, message));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > most as u64 => Err(too_large(most)),
        _ => Ok(()),
    }
}

fn is_of_other_origin(shared: &Shared, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let own = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    let named = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    allowed_origin(shared, headers).is_none() && named.is_none_or(|(_, named)| named.as_bytes() != own)
}
