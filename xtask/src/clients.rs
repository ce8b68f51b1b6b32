//! `cargo xtask clients`: the server, asked by the clients that its users have.
//!
//! Their packages come from the registries of Python and npm, and go below the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::wheel::install;
use crate::workspace::{self, Build};

/// Clients of Python that go together.
const CLIENTS: &[&str] = &["anthropic==2.14.0", "ollama==0.6.3", "openai==3.57.0"];

/// LangChain, which wants an older client of OpenAI.
const LANGCHAIN: &[&str] = &["langchain-openai==1.4.2"];

const NPM: &[&str] =
    &["@ai-sdk/openai-compatible@2.0.92", "ai@6.0.326", "ollama@0.6.4", "openai@7.57.0", "zod@4.6.7"];

/// Asks `program`, or the one that is built for it, with `python`, which needs pip alone, and with node where there is one.
pub(crate) fn run(program: Option<PathBuf>, python: Option<&Path>) -> Result<()> {
    let program = match program {
        Some(program) => program.canonicalize()?,
        None => workspace::build_weighbridge(Build::Release)?,
    };
    let python = python.unwrap_or(Path::new("python3"));
    let folder = workspace::target_dir()?.join("clients");
    for model in ["smollm2", "minilm"] {
        testkit::fetch(testkit::find(model)?, testkit::Check::Stamp)?;
    }
    let (model, embedder) = (testkit::model("smollm2"), testkit::model("minilm"));
    let template = testkit::golden("tools.jinja");
    let (clients, langchain) = (folder.join("clients"), folder.join("langchain"));
    install(python, &clients, CLIENTS)?;
    install(python, &langchain, LANGCHAIN)?;
    for (script, packages, with) in [
        ("openai", &clients, vec![&model]),
        ("anthropic", &clients, vec![&model]),
        ("ollama", &clients, vec![&model, &embedder]),
        ("langchain", &langchain, vec![&model, &embedder, &template]),
    ] {
        let mut command = Command::new(python);
        command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg(format!("golden/serve_{script}.py")).arg(&program).args(with);
        workspace::step(command.current_dir(workspace::root()))?;
    }
    if !Command::new("npm").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("npm's clients have not asked it: there is no npm");
        return Ok(());
    }
    let modules = folder.join("npm");
    std::fs::create_dir_all(&modules)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&modules).args(NPM);
    if let Err(error) = workspace::step(&mut npm) {
        println!("npm's clients have not asked it: their packages are not to be had ({error})");
        return Ok(());
    }
    let mut node = Command::new("node");
    node.arg("golden/serve_npm.mjs").args([&program, &model, &modules]);
    workspace::step(node.current_dir(workspace::root()))
}
