//! How a checkpoint is opened.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::OpenOptions;
use weighbridge::checkpoint::{Io, More, Output};
#[cfg(feature = "http")]
use weighbridge::storage::Resolver as _;
use weighbridge::storage::url_scheme;

/// How a checkpoint is opened and read.
#[derive(ClapArgs)]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    also: AlsoArgs,
    /// How to read the files
    #[arg(long, value_enum, default_value_t = IoArg::Auto)]
    io: IoArg,
}

impl OpenArgs {
    /// The options of the library.
    pub(crate) fn options(&self) -> OpenOptions {
        self.also.options(self.io.io())
    }

    /// The options of the library, for a command that reads headers alone.
    pub(crate) fn looking(&self) -> OpenOptions {
        self.also.with(looking(self.io.io()))
    }
}

/// What else belongs to a checkpoint.
#[derive(ClapArgs)]
pub(crate) struct AlsoArgs {
    /// Add the tensors of a second checkpoint, with PREFIX before their names. Repeat it for more. The configuration
    /// comes from the first. Write a PATH that contains `=` as `=PATH`
    #[arg(long, value_name = "[PREFIX=]PATH", value_parser = more)]
    also: Vec<More>,
}

impl AlsoArgs {
    /// The options of the library, with files reached as `io` says.
    pub(crate) fn options(&self, io: Io) -> OpenOptions {
        self.with(open_options(io))
    }

    fn with(&self, options: OpenOptions) -> OpenOptions {
        self.also.iter().fold(options, |options, more| options.with_more(&more.prefix, &more.path))
    }
}

/// The options of the library with files reached as `io` says, and with URLs and names of the hub where this build knows them.
pub(crate) fn open_options(io: Io) -> OpenOptions {
    resolving(io, false)
}

/// As [`open_options`], for a command that reads headers alone: a model of the hub is not downloaded for it.
pub(crate) fn looking(io: Io) -> OpenOptions {
    resolving(io, true)
}

fn resolving(io: Io, looks: bool) -> OpenOptions {
    let options = OpenOptions::with_io(io);
    #[cfg(feature = "http")]
    let options = options.with_resolver(std::sync::Arc::new(weighbridge::remote::Servers::from_env()));
    #[cfg(feature = "hub")]
    let options = options.with_resolver(std::sync::Arc::new(crate::pulling::HubPaths { io, looks }));
    #[cfg(not(feature = "hub"))]
    let _ = looks;
    options
}

/// Returns true for a URL and for a name of the hub.
pub(crate) fn is_elsewhere(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("hf:") || url_scheme(text).is_some())
}

/// The path of something that is written, which is on this machine.
pub(crate) fn written() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if is_elsewhere(&path) { Err("results are written to this machine: wanted a path") } else { Ok(path) }
    })
}

/// The path of a checkpoint that is written to this machine, or the URL of one that is written to a bucket.
pub(crate) fn written_or_bucket() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        #[cfg(feature = "http")]
        let (is_bucket, wanted) = (
            path.to_str().is_some_and(weighbridge::remote::is_bucket),
            "results are written to this machine or to a bucket: wanted a path, or a URL of s3, gs or az",
        );
        #[cfg(not(feature = "http"))]
        let (is_bucket, wanted) = (false, "results are written to this machine: wanted a path");
        if is_elsewhere(&path) && !is_bucket { Err(wanted) } else { Ok(path) }
    })
}

/// Where the result that is called `path` is written to.
#[cfg_attr(not(feature = "http"), expect(clippy::unnecessary_wraps, reason = "a bucket may be refused"))]
pub(crate) fn output(path: &Path) -> Result<Output, weighbridge::Error> {
    #[cfg(feature = "http")]
    if let Some(url) = path.to_str()
        && let Some(bucket) = weighbridge::remote::Servers::from_env().bucket(url)
    {
        let (bucket, name) = bucket.map_err(weighbridge::checkpoint::Error::from)?;
        return Ok(Output::Bucket { bucket, name });
    }
    Ok(Output::from(path))
}

/// `PATH`, or `PREFIX=PATH`.
fn more(text: &str) -> Result<More, String> {
    let (prefix, path) = match text.split_once('=') {
        // A URL has its own.
        Some(parts) if !is_elsewhere(Path::new(text)) => parts,
        _ => ("", text),
    };
    if path.is_empty() { Err("wanted PATH or PREFIX=PATH".to_owned()) } else { Ok(More::new(prefix, path)) }
}

/// A way to read by name.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum IoArg {
    /// `mmap` on a local file system, `pread` on others
    Auto,
    /// Map the file into memory
    Mmap,
    /// Read the file, without a map. `read` means the same
    #[value(alias = "read")]
    Pread,
    /// Read past the page cache, where the file system supports it. Fastest from a cold disk, but caches nothing
    Direct,
}

impl IoArg {
    /// The library's.
    pub(crate) fn io(self) -> Io {
        match self {
            IoArg::Auto => Io::Auto,
            IoArg::Mmap => Io::Mmap,
            IoArg::Pread => Io::Pread,
            IoArg::Direct => Io::Direct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_the_first_equals_sign() {
        for (text, prefix, path) in
            [("a/b", "", "a/b"), ("x.=a", "x.", "a"), ("=a=b", "", "a=b"), ("x=a=b", "x", "a=b")]
        {
            assert_eq!(more(text), Ok(More::new(prefix, path)));
        }
        assert_eq!(more("https://host/a?x=1"), Ok(More::new("", "https://host/a?x=1")));
        assert_eq!(more("x.=s3://a/b=c"), Ok(More::new("x.", "s3://a/b=c")));
        assert!(more("").is_err() && more("x=").is_err());
    }
}
