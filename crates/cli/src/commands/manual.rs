//! `weighbridge completions` and `weighbridge man`.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Args;
use crate::failure::Failure;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "weighbridge", &mut script);
    write(&script)
}

pub(crate) fn man(command: Option<&str>, all: Option<&Path>) -> Result<(), Failure> {
    let mut whole = Args::command();
    if let Some(folder) = all {
        return Ok(clap_mangen::generate_to(whole, folder)?);
    }
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => {
            let names: Vec<String> = whole.get_subcommands().map(|c| c.get_name().to_owned()).collect();
            let missing =
                || Failure::Usage(format!("no command is called `{name}`: there are {}", names.join(", ")));
            whole.find_subcommand(name).cloned().ok_or_else(missing)?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    write(&text)
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    Ok(std::io::stdout().lock().write_all(bytes)?)
}
