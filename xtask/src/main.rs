//! The tasks of this repository: `cargo xtask help` lists them.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line tool talks on stdout")]

mod bench;
mod bench_load;
mod clients;
mod demo;
mod dist;
mod full;
mod platforms;
mod test;
mod tidy;
mod wheel;
mod workspace;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use lexopt::prelude::{Long, Short, Value, ValueExt};

/// Every task, as `cargo xtask NAME`, with its help line. `tidy` holds the documentation to this list.
pub(crate) const TASKS: &[(&str, &str)] = &[
    ("demo", "fetch the small model `smollm2` and run it"),
    ("test", "run every test, on each instruction set; tests fetch the models that they ask for"),
    ("tidy", "check crate order, circles of files, file sizes, names, words and documentation links"),
    ("models", "[NAME…] [--verify] [--list] fetch models into the cache folder; `--list` says their sizes"),
    (
        "bench",
        "[--peer NAME=PROGRAM]... [--before PROGRAM] [--model NAME|PATH|all]... [--table decode|prefill|beside]... \
         [--fixtures DIR] [--turns N] [--threads N] measure, in turns with `llama-bench` of others and an older program",
    ),
    ("fixture", "deepseek-v3|trillion|many-tensors DIR make a large checkpoint of holes"),
    ("fixture", "qwen2-1.5b|llama-8b|moe-1gb DIR make one of real shapes and random weights, and its Q4_K_M"),
    (
        "bench-load",
        "[--file PATH] [--rounds N] [--rest SECONDS] [--python PROGRAM] measure loading, beside memcpy, dd and safetensors",
    ),
    (
        "full",
        "[--python PROGRAM] [--llama-cpp DIR] [--llama-oracle PATH] [--llama-completion PATH] [--mlx-python PROGRAM] \
         [--serve-python PROGRAM] [--page-modules DIR] \
         [--remote-python PROGRAM] [--azurite PROGRAM] [--fuzz-runs N] [--kills N] \
         [PART OF A STEP'S NAME]... what takes long; writes docs/full-run.md",
    ),
    (
        "platforms",
        "[--rustc PROGRAM] [arm] [macos] [windows] test Linux on ARM by emulation, type-check the others: docs/platforms.md",
    ),
    (
        "dist",
        "[--install PREFIX] make one archive of the program, its manual pages and completions, and install from it",
    ),
    (
        "wheel",
        "[--dist] [--python PROGRAM]... build the Python package, and run its tests, with a Python that has torch and transformers \
         those too; --dist: the one that is given to others, with each Python",
    ),
    (
        "clients",
        "[--weighbridge PROGRAM] [--python PROGRAM] ask the server with the clients of OpenAI, Anthropic, Ollama, LangChain and the AI SDK",
    ),
    ("help", "this text"),
];

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let mut arguments = lexopt::Parser::from_env();
    let task = match arguments.next()? {
        Some(Value(task)) => task.string()?,
        Some(Long("help") | Short('h')) | None => "help".to_owned(),
        Some(other) => return Err(other.unexpected().into()),
    };
    match task.as_str() {
        "demo" => no_more(arguments).and_then(|()| demo::run()),
        "test" => no_more(arguments).and_then(|()| test::run()),
        "tidy" => no_more(arguments).and_then(|()| tidy::run()),
        "models" => models_task(arguments),
        "bench" => bench_task(arguments),
        "bench-load" => bench_load_task(arguments),
        "fixture" => fixture_task(arguments),
        "full" => full_task(arguments),
        "platforms" => platforms_task(arguments),
        "dist" => dist_task(arguments),
        "wheel" => wheel_task(arguments),
        "clients" => clients_task(arguments),
        "help" => {
            help();
            Ok(())
        }
        other => bail!("there is no task `{other}`\nhint: `cargo xtask help` lists them"),
    }
}

fn help() {
    println!("cargo xtask TASK\n");
    for (name, what) in TASKS {
        println!("  {name:<11}{what}");
    }
    println!("\nModels are kept in {}", testkit::cache_folder().display());
    println!("(WEIGHBRIDGE_MODELS names another folder).");
}

fn no_more(mut arguments: lexopt::Parser) -> Result<()> {
    match arguments.next()? {
        Some(unexpected) => Err(unexpected.unexpected().into()),
        None => Ok(()),
    }
}

fn dist_task(mut arguments: lexopt::Parser) -> Result<()> {
    let mut prefix = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("install") => prefix = Some(PathBuf::from(arguments.value()?)),
            other => return Err(other.unexpected().into()),
        }
    }
    dist::run(prefix.as_deref())
}

fn wheel_task(mut arguments: lexopt::Parser) -> Result<()> {
    let (mut pythons, mut is_dist) = (Vec::new(), false);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("python") => pythons.push(PathBuf::from(arguments.value()?)),
            Long("dist") => is_dist = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if is_dist {
        return wheel::dist(&pythons);
    }
    wheel::run(pythons.last().map(PathBuf::as_path))
}

fn clients_task(mut arguments: lexopt::Parser) -> Result<()> {
    let (mut program, mut python) = (None, None);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("weighbridge") => program = Some(PathBuf::from(arguments.value()?)),
            Long("python") => python = Some(PathBuf::from(arguments.value()?)),
            other => return Err(other.unexpected().into()),
        }
    }
    clients::run(program, python.as_deref())
}

fn models_task(mut arguments: lexopt::Parser) -> Result<()> {
    let (mut names, mut verify) = (Vec::new(), false);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("verify") => verify = true,
            Long("list") => {
                list();
                return Ok(());
            }
            Value(name) => names.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let rows = if names.is_empty() {
        testkit::TABLE.iter().collect()
    } else {
        names.iter().map(|name| testkit::find(name)).collect::<Result<Vec<_>>>()?
    };
    let check = if verify { testkit::Check::Digest } else { testkit::Check::Stamp };
    for model in rows {
        println!("{}", testkit::fetch(model, check)?.display());
    }
    Ok(())
}

/// Prints the table of models.
fn list() {
    for model in testkit::TABLE {
        let size = testkit::megabytes(model.download_bytes());
        println!("{:<16} {size:>8} {:<88} {}", model.name, model.what, model.licence);
    }
}

fn fixture_task(mut arguments: lexopt::Parser) -> Result<()> {
    let mut word = || match arguments.next()? {
        Some(Value(word)) => Ok(word),
        _ => bail!("wanted a name and a directory: `cargo xtask fixture deepseek-v3 DIR`"),
    };
    let (name, dir) = (word()?.string()?, PathBuf::from(word()?));
    if let Some(decoder) = testkit::fixture::DECODERS.iter().find(|decoder| decoder.name == name) {
        no_more(arguments)?;
        return decoder_fixture(decoder, &dir);
    }
    let make = match name.as_str() {
        "deepseek-v3" => testkit::fixture::deepseek_v3,
        "trillion" => testkit::fixture::trillion,
        "many-tensors" => testkit::fixture::many_tensors,
        other => bail!(
            "there is no fixture `{other}`\nhint: there are `deepseek-v3`, `trillion`, `many-tensors`, `qwen2-1.5b`, `llama-8b` and `moe-1gb`"
        ),
    };
    no_more(arguments)?;
    let held = make(&dir)?;
    println!("{}: {} tensors, {} bytes, {} files", dir.display(), held.tensors, held.bytes, held.files);
    Ok(())
}

fn full_task(mut arguments: lexopt::Parser) -> Result<()> {
    let mut options = full::Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("python") => options.python = Some(arguments.value()?.into()),
            Long("llama-completion") => options.llama_completion = Some(arguments.value()?.into()),
            Long("llama-cpp") => options.llama_cpp = Some(arguments.value()?.into()),
            Long("llama-oracle") => options.llama_oracle = Some(arguments.value()?.into()),
            Long("mlx-python") => options.mlx_python = Some(arguments.value()?.into()),
            Long("serve-python") => options.serve_python = Some(arguments.value()?.into()),
            Long("page-modules") => options.page_modules = Some(arguments.value()?.into()),
            Long("remote-python") => options.remote_python = Some(arguments.value()?.into()),
            Long("azurite") => options.azurite = Some(arguments.value()?.into()),
            Long("fuzz-runs") => options.fuzz_runs = arguments.value()?.parse()?,
            Long("kills") => options.kills = arguments.value()?.parse()?,
            Value(name) => options.only.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    full::run(&options)
}

fn platforms_task(mut arguments: lexopt::Parser) -> Result<()> {
    let mut options = platforms::Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("rustc") => options.rustc = Some(arguments.value()?.into()),
            Value(name) => options.only.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    platforms::run(&options)
}

/// The model in BF16, in a directory, and beside it its GGUF in Q4_K_M.
fn decoder_fixture(decoder: &testkit::fixture::Decoder, dir: &Path) -> Result<()> {
    let program = workspace::build_weighbridge(workspace::Build::Release)?;
    let (source, to) = (dir.join(decoder.name), decoder.quantised(dir));
    let held = decoder.write(&source)?;
    println!("{}: {} tensors, {} bytes", source.display(), held.tensors, held.bytes);
    let mut convert = std::process::Command::new(program);
    convert.arg("convert").args([&source, &to]).args(["--preset", "q4_k_m", "--force"]);
    workspace::step(&mut convert)
}

fn bench_load_task(mut arguments: lexopt::Parser) -> Result<()> {
    let mut options = bench_load::Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("file") => options.file = arguments.value()?.into(),
            Long("rounds") => options.rounds = arguments.value()?.parse()?,
            Long("python") => options.python = Some(arguments.value()?.into()),
            Long("rest") => options.rest = Some(std::time::Duration::from_secs(arguments.value()?.parse()?)),
            other => return Err(other.unexpected().into()),
        }
    }
    bench_load::run(&options)
}

fn bench_task(mut arguments: lexopt::Parser) -> Result<()> {
    let mut options = bench::Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("peer") => {
                let value = arguments.value()?.string()?;
                let Some((name, path)) = value.split_once('=') else {
                    bail!("`--peer` wants NAME=PROGRAM, as in `--peer llama.cpp=build/bin/llama-bench`");
                };
                options.peers.push((name.into(), path.into()));
            }
            Long("before") => options.before = Some(arguments.value()?.into()),
            Long("model") => match arguments.value()?.string()?.as_str() {
                "all" => options.models.extend(bench::all_models()),
                name => options.models.push(name.into()),
            },
            Long("table") => options.tables.push(bench::Table::named(&arguments.value()?.string()?)?),
            Long("fixtures") => options.fixtures = arguments.value()?.into(),
            Long("turns") => options.turns = arguments.value()?.parse()?,
            Long("threads") => options.threads = arguments.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if options.models.is_empty() {
        options.models.push("smollm2".into());
    }
    if options.tables.is_empty() {
        options.tables.extend([bench::Table::Decode, bench::Table::Prefill]);
    }
    bench::run(&options)
}
