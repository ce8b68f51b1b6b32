//! `weighbridge completions` and `weighbridge man`.

use clap::CommandFactory;

use crate::args::Args;
use crate::failure::Failure;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "weighbridge", &mut script);
    write(&script)
}

pub(crate) fn man() -> Result<(), Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page)?;
    write(&page)
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    Ok(std::io::stdout().lock().write_all(bytes)?)
}
