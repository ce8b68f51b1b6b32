//! `cargo xtask wheel`: builds the Python package, installs it aside, and runs its tests with it.
//!
//! What the tests need comes from Python's registry and goes below the target folder: no Python is changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The tools that build and check a wheel.
const TOOLS: &[&str] = &[
    "maturin==1.16.0",
    "ml_dtypes==0.6.0",
    "mypy==2.4.1",
    "numpy==2.4.6",
    "pytest==9.2.0",
    "safetensors==0.8.0",
    "typing_extensions==4.16.0",
];

/// The tools that build and check a wheel for other machines, beside [`TOOLS`].
const DIST_TOOLS: &[&str] = &["auditwheel==6.8.2", "twine==7.0.0", "ziglang==0.17.1"];

/// Models that its tests run.
const MODELS: &[&str] = &["smollm2", "minilm", "whisper-base"];

/// The oldest C library that the wheel may ask for: that of manylinux_2_28.
const OLDEST: &str = "manylinux_2_28";

/// Builds the wheel that is given to others, for every Linux since [`OLDEST`]; checks it as the registry does, and runs its tests with each
/// of `pythons`, which needs pip alone.
pub(crate) fn dist(pythons: &[PathBuf]) -> Result<()> {
    let folder = workspace::target_dir()?.join("wheel");
    let package = workspace::root().join("bindings").join("python");
    let pythons = if pythons.is_empty() { vec![PathBuf::from("python3")] } else { pythons.to_vec() };
    for model in MODELS {
        testkit::fetch(testkit::find(model)?, testkit::Check::Stamp)?;
    }
    let (tools, built) = (folder.join("dist-tools"), folder.join("dist"));
    install(&pythons[0], &tools, &[TOOLS, DIST_TOOLS].concat())?;
    remove(&built)?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut maturin = Command::new(tools.join("bin").join("maturin"));
    maturin.args(["build", "--release", "--locked", "--zig", "--compatibility", OLDEST, "--target", &target]);
    maturin.arg("--interpreter").arg(&pythons[0]).arg("--out").arg(&built);
    workspace::step(maturin.env("PYTHONPATH", &tools).current_dir(&package))?;
    let wheel = only(&built)?;
    let tool = |arguments: &[&str]| {
        let mut command = Command::new(&pythons[0]);
        command.arg("-m").args(arguments).arg(&wheel).env("PYTHONPATH", &tools);
        command
    };
    workspace::step(&mut tool(&["twine", "check", "--strict"]))?;
    let shown = tool(&["auditwheel", "show"]).output().context("auditwheel does not run")?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    println!("{}", shown.trim());
    if !shown.contains(&format!("\"{OLDEST}_")) {
        bail!("auditwheel does not call it a wheel of {OLDEST}");
    }
    for (n, python) in pythons.iter().enumerate() {
        let packages = folder.join(format!("dist-packages-{n}"));
        remove(&packages)?;
        let wheel = wheel.to_string_lossy();
        install(python, &packages, &["ml_dtypes", "numpy", "pytest", "safetensors", &wheel])?;
        let mut pytest = Command::new(python);
        pytest.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&folder);
        pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "--config-file"]);
        pytest.arg(package.join("pyproject.toml")).arg(package.join("tests"));
        workspace::step(pytest.arg("--ignore").arg(package.join("tests").join("torch")))?;
    }
    println!("{} passed every test with {}", wheel.display(), pythons.len());
    Ok(())
}

/// Builds the wheel and runs its tests with `python`; those of torch and transformers too if it has them.
pub(crate) fn run(python: Option<&Path>) -> Result<()> {
    let python = python.unwrap_or(Path::new("python3"));
    let folder = workspace::target_dir()?.join("wheel");
    let package = workspace::root().join("bindings").join("python");
    let tests = package.join("tests");
    for model in MODELS {
        testkit::fetch(testkit::find(model)?, testkit::Check::Stamp)?;
    }

    let tools = folder.join("tools");
    install(python, &tools, TOOLS)?;
    let built = folder.join("built");
    remove(&built)?;
    let mut maturin = Command::new(tools.join("bin").join("maturin"));
    maturin.args(["build", "--release", "--locked", "--interpreter"]).arg(python).arg("--out").arg(&built);
    workspace::step(maturin.current_dir(&package))?;
    let wheel = only(&built)?;
    let installed = folder.join("installed");
    remove(&installed)?;
    let wheel = wheel.to_string_lossy().into_owned();
    install(python, &installed, &["--no-deps", &wheel])?;

    // Of a Python that has torch, only the wheel is put before its own packages.
    let has_torch = Command::new(python)
        .args(["-c", "import torch, transformers, pytest"])
        .output()
        .is_ok_and(|output| output.status.success());
    let path = if has_torch { vec![installed.clone()] } else { vec![installed.clone(), tools.clone()] };
    let run = |path: &[PathBuf], arguments: &[&str]| -> Result<()> {
        let mut command = Command::new(python);
        command.env("PYTHONPATH", std::env::join_paths(path)?).env("PYTHONDONTWRITEBYTECODE", "1");
        // Elsewhere: the sources of the package must not be what is imported.
        workspace::step(command.args(arguments).current_dir(&folder))
    };
    let configuration = package.join("pyproject.toml").to_string_lossy().into_owned();
    let with_tools = [installed.clone(), tools];
    if !has_torch {
        let cache = folder.join("types").to_string_lossy().into_owned();
        run(
            &with_tools,
            &["-m", "mypy.stubtest", "weighbridge._weighbridge", "--mypy-config-file", &configuration],
        )?;
        let ours = ["__init__.py", "_errors.py", "numpy.py"];
        let ours = ours.map(|name| installed.join("weighbridge").join(name).to_string_lossy().into_owned());
        let mut arguments = vec!["-m", "mypy", "--config-file", &configuration, "--cache-dir", &cache];
        arguments.extend(ours.iter().map(String::as_str));
        run(&with_tools, &arguments)?;
    }
    let mut arguments = vec!["-m", "pytest", "-p", "no:cacheprovider", "--config-file", &configuration];
    let (all, torch) =
        (tests.to_string_lossy().into_owned(), tests.join("torch").to_string_lossy().into_owned());
    arguments.push(&all);
    if !has_torch {
        arguments.extend(["--ignore", &torch]);
        println!(
            "the tests of torch and transformers are not run: this Python has none; `--python` names another"
        );
    }
    run(&path, &arguments)
}

/// Puts packages below `folder`.
pub(crate) fn install(python: &Path, folder: &Path, packages: &[&str]) -> Result<()> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--disable-pip-version-check", "--target"]);
    workspace::step(pip.arg(folder).args(packages))
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// The one file in `folder`.
fn only(folder: &Path) -> Result<PathBuf> {
    let mut files = std::fs::read_dir(folder)?;
    let first = files.next().context("there is no wheel")??;
    if files.next().is_some() {
        bail!("`{}` has more than one file", folder.display());
    }
    Ok(first.path())
}
