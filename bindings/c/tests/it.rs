//! The header, and programs in C and C++ that use it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_sources() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(here()).with_config(config).generate().unwrap();
    let mut header = vec![];
    made.write(&mut header);
    let path = here().join("include").join("weighbridge.h");
    if std::env::var_os("WEIGHBRIDGE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &header).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert!(known == String::from_utf8(header).unwrap(), "WEIGHBRIDGE_BLESS=1 writes {}", path.display());
}

/// The library for C programs, as cargo builds it for them.
fn library() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--locked", "--package", "weighbridge-c", "--target-dir"])
        .arg(target);
    run(command.current_dir(here()));
    target.join("release")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

/// Compiles an example against the static library, or with `shared` against the other one.
fn compiled(compiler: &str, example: &str, out: &Path, shared: bool, flags: &[&str]) -> PathBuf {
    let libraries = library();
    let program = out.join(format!("{}-{compiler}-{shared}-{}", example.replace('.', "-"), flags.len()));
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"]).args(flags);
    command
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join("examples").join(example))
        .arg("-o")
        .arg(&program);
    if shared {
        command
            .arg("-L")
            .arg(&libraries)
            .arg("-lweighbridge_c")
            .arg(format!("-Wl,-rpath,{}", libraries.display()));
    } else {
        command.arg(libraries.join("libweighbridge_c.a")).args(["-lpthread", "-ldl", "-lm"]);
    }
    run(&mut command);
    program
}

fn said(program: &Path, arguments: &[&OsStr]) -> String {
    String::from_utf8(run(Command::new(program).args(arguments)).stdout).unwrap()
}

#[test]
fn examples_run_with_both_libraries_and_under_address_sanitizer() {
    let out = tempfile::tempdir().unwrap();
    let model = testkit::golden("models/llama-tiny");
    let gguf = model.join("model.gguf");
    let asan: &[&str] = &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"];
    let mut seen: Vec<String> = vec![];
    for (compiler, example, standard) in [("cc", "load.c", "-std=c11"), ("c++", "load.cpp", "-std=c++17")] {
        for (shared, sanitize) in [(false, true), (true, false), (true, true)] {
            let mut flags = vec![standard];
            flags.extend(if sanitize { asan } else { &[] });
            let program = compiled(compiler, example, out.path(), shared, &flags);
            let text = said(&program, &[gguf.as_os_str()]);
            assert!(
                text.contains("21 parameters") && text.contains("cannot be split across these ranks"),
                "{text}"
            );
            assert_eq!(text, said(&program, &[gguf.as_os_str()]));
            seen.push(text);
        }
    }
    // C and C++ say the same.
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
    // The sum of all values is that of the file.
    let plan = weighbridge_sum(&gguf);
    assert!(seen[0].contains(&format!("sum {plan:.3}")), "{} wanted {plan:.3}", seen[0]);
}

/// The sum of all values of a file.
fn weighbridge_sum(path: &Path) -> f64 {
    let checkpoint = weighbridge::open(path).unwrap();
    let model = weighbridge::describe(&checkpoint).unwrap();
    let plan = weighbridge::plan(&checkpoint, &model, weighbridge::LayoutKind::Canonical).unwrap();
    let loaded = plan.load(&mut weighbridge::Pool::new(1)).unwrap();
    let mut names: Vec<&str> =
        plan.params().iter().filter(|p| p.tied_to.is_none()).map(|p| p.name.as_str()).collect();
    names.dedup();
    names.iter().flat_map(|name| loaded.get(name).unwrap().as_f32()).map(|x| f64::from(*x)).sum()
}
