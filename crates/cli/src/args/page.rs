//! Pages and pictures that a command writes beside what it prints.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::failure::Failure;
use crate::pages::Output;

/// A picture.
#[derive(ClapArgs)]
pub(crate) struct SvgArgs {
    /// Also draw the plan to FILE; with `-`, print the picture instead of the text
    #[arg(long, value_name = "FILE", conflicts_with = "explain", value_parser = super::written())]
    svg: Option<PathBuf>,
    /// Replace FILE if weighbridge wrote it
    #[arg(long, requires = "svg")]
    force: bool,
}

impl SvgArgs {
    /// Where the picture goes, if one is asked for.
    pub(crate) fn output(&self, json: bool) -> Result<Option<Output>, Failure> {
        output(self.svg.as_ref(), self.force, json, "svg")
    }
}

/// A page.
#[derive(ClapArgs)]
pub(crate) struct HtmlArgs {
    /// Also write an HTML page to FILE; with `-`, print the page instead of the text
    #[arg(long, value_name = "FILE", value_parser = super::written())]
    html: Option<PathBuf>,
    /// Replace FILE if weighbridge wrote it
    #[arg(long, requires = "html")]
    force: bool,
}

impl HtmlArgs {
    /// Where the page goes, if one is asked for.
    pub(crate) fn output(&self, json: bool) -> Result<Option<Output>, Failure> {
        output(self.html.as_ref(), self.force, json, "html")
    }
}

/// A page of a command whose own `--force` replaces its destination: it replaces the page too.
#[derive(ClapArgs)]
pub(crate) struct HtmlFileArgs {
    /// Also write an HTML page to FILE; with `-`, print the page instead of the text. `--force` replaces FILE if weighbridge
    /// wrote it
    #[arg(long, value_name = "FILE", value_parser = super::written())]
    html: Option<PathBuf>,
}

impl HtmlFileArgs {
    /// Where the page goes, if one is asked for.
    pub(crate) fn output(&self, force: bool, json: bool) -> Result<Option<Output>, Failure> {
        output(self.html.as_ref(), force, json, "html")
    }
}

fn output(file: Option<&PathBuf>, force: bool, json: bool, flag: &str) -> Result<Option<Output>, Failure> {
    let output = file.map(|file| Output::new(file, flag, force)).transpose()?;
    if json && output.as_ref().is_some_and(Output::is_stdout) {
        return Err(Failure::Usage(format!(
            "`--json` and `--{flag} -` both write to standard output\nhint: give `--{flag}` a file"
        )));
    }
    Ok(output)
}
