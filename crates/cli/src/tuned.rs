//! What `weighbridge tune` found, in the cache folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Map, Value, json};
use weighbridge::quant::{Access, Way};

use crate::cache;
use crate::whole_file::WholeFile;

/// Where it stands; `None` if the environment names no place.
pub(crate) fn path() -> Option<PathBuf> {
    Some(cache::folder()?.join("tune.json"))
}

/// Reads the result for this version, this processor and `threads` threads (all if `None`).
pub(crate) fn read(threads: Option<usize>) -> Result<Option<Access>, String> {
    let Some(path) = path() else { return Ok(None) };
    let wrong = |why: String| {
        format!("`{}`: {why}\nhint: `weighbridge tune` rewrites it, `--no-tune` ignores it", path.display())
    };
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| wrong(e.to_string()))?,
    };
    let all: Map<String, Value> = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let Some(found) = all.get(&key(threads)) else { return Ok(None) };
    let way = |of: &str| {
        let number = |key: &str| found[of][key].as_u64().and_then(|n| usize::try_from(n).ok());
        match (number("ahead"), number("streams")) {
            (Some(ahead), Some(streams @ 1..=2)) if ahead <= 1 << 16 => Ok(Way { ahead, streams }),
            _ => Err(wrong(format!(
                "wanted `ahead` up to 65536 and `streams` of 1 or 2 in `{of}`, found {found}"
            ))),
        }
    };
    Ok(Some(Access { bytes: way("bytes")?, others: way("others")? }))
}

/// Adds to the file. One that cannot be read is written anew.
pub(crate) fn write(path: &Path, threads: Option<usize>, access: Access) -> io::Result<()> {
    let named = |e: io::Error| {
        let why = format!(
            "cannot write `{}`: {e}\nhint: `--dry-run` prints the measurements and writes nothing",
            path.display()
        );
        io::Error::new(e.kind(), why)
    };
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut all: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    let way = |way: Way| json!({ "ahead": way.ahead, "streams": way.streams });
    all.insert(key(threads), json!({ "bytes": way(access.bytes), "others": way(access.others) }));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(named)?;
    }
    let written = WholeFile::create(path).and_then(|mut file| {
        writeln!(file, "{:#}", Value::Object(all))?;
        file.finish()
    });
    written.map_err(named)
}

/// The key of a result: version, processor, number of threads.
fn key(threads: Option<usize>) -> String {
    let threads = threads.unwrap_or_else(weighbridge::Pool::available);
    format!("{} · {} · threads {threads}", env!("CARGO_PKG_VERSION"), weighbridge::quant::processor())
}
