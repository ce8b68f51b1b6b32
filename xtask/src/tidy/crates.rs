//! The order of crates: a dependency points up the list only.

use serde_json::Value;

use super::{Problem, Text};

/// From the one that knows nothing to the one that a user runs.
const ORDER: &[&str] = &[
    "derive",
    "tensor",
    "quant",
    "storage",
    "checkpoint",
    "remote",
    "model",
    "plan",
    "load",
    "store",
    "lora",
    "audio",
    "engine",
    "planner",
    "vllm",
    "check",
    "convert",
    "weighbridge",
    "server",
    "hub",
    "cli",
];

/// Crates that a crate may not use although they are below it: `storage` knows no tensors, `plan` neither files nor
/// names, servers have files of any kind, loading and checking compile no engine, and the hub opens no checkpoints.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("storage", &["tensor", "quant"]),
    ("remote", &["tensor", "quant"]),
    ("plan", &["storage", "checkpoint", "model", "load"]),
    ("lora", &["engine", "store"]),
    ("planner", &["engine"]),
    ("check", &["engine"]),
    ("store", &["model"]),
    ("hub", &["checkpoint", "engine", "weighbridge", "server"]),
];

/// Crates without `unsafe`.
const SAFE: &[&str] = &["derive", "tensor", "remote", "plan", "hub", "audio"];

/// The crate that tests ask for models; users' builds do not need it.
const FOR_TESTS: &str = "weighbridge-testkit";

/// Checks the manifests that `cargo metadata` shows, and the crates that forbid `unsafe`.
pub(super) fn check(metadata: &Value, texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for package in packages {
        let Some(from) = place(package["name"].as_str().unwrap_or_default()) else { continue };
        let manifest = format!("{}/Cargo.toml", folder(ORDER[from]));
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies {
            let name = dependency["name"].as_str().unwrap_or_default();
            if name == FOR_TESTS && dependency["kind"] != "dev" {
                let line = line_of(texts, &manifest, "testkit");
                let what = "`testkit` is for tests: it goes into `[dev-dependencies]`";
                problems.push(Problem::new(&manifest, line, what));
            }
            let Some(to) = place(name) else { continue };
            // Its own features, which its tests ask for.
            if to == from && dependency["kind"] == "dev" {
                continue;
            }
            let line = line_of(texts, &manifest, ORDER[to]);
            if to >= from {
                let what = format!(
                    "`{}` must not depend on `{}`: dependencies point up the list {}",
                    ORDER[from],
                    ORDER[to],
                    ORDER.join(" < ")
                );
                problems.push(Problem::new(&manifest, line, what));
            }
            let forbidden = FORBIDDEN.iter().find(|(name, _)| *name == ORDER[from]);
            if to < from && forbidden.is_some_and(|(_, names)| names.contains(&ORDER[to])) {
                let what = format!("`{}` must know nothing of `{}`", ORDER[from], ORDER[to]);
                problems.push(Problem::new(&manifest, line, what));
            }
        }
    }
    for name in SAFE {
        let path = format!("{}/src/lib.rs", folder(name));
        let Some(text) = texts.iter().find(|text| text.path == path) else {
            problems.push(Problem::new(&path, 0, "is missing"));
            continue;
        };
        if !text.content.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
            problems.push(Problem::new(&path, 0, "must say `#![forbid(unsafe_code)]`"));
        }
    }
    problems
}

/// Returns the folder of a crate; those for other runtimes alone are apart.
fn folder(name: &str) -> String {
    if name == "vllm" { format!("crates/targets/{name}") } else { format!("crates/{name}") }
}

/// Where a package stands in [`ORDER`].
fn place(package: &str) -> Option<usize> {
    let name = package.strip_prefix("weighbridge-").unwrap_or(package);
    ORDER.iter().position(|known| *known == name)
}

/// The line of a manifest that names the dependency; 0 if it cannot be told.
fn line_of(texts: &[Text], manifest: &str, dependency: &str) -> usize {
    let Some(text) = texts.iter().find(|text| text.path == manifest) else { return 0 };
    let is_it = |line: &str| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
            || line.starts_with(&format!("weighbridge-{dependency}"))
    };
    text.content.lines().position(is_it).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(packages: &str) -> Vec<String> {
        let metadata: Value = serde_json::from_str(packages).unwrap();
        let safe = |name: &str| Text {
            path: format!("crates/{name}/src/lib.rs"),
            content: "//! Doc.\n#![forbid(unsafe_code)]\n".into(),
        };
        let manifest = Text {
            path: "crates/plan/Cargo.toml".into(),
            content: "[dependencies]\ntensor.workspace = true\nmodel.workspace = true\n".into(),
        };
        let texts: Vec<Text> = SAFE.iter().copied().map(safe).chain([manifest]).collect();
        let problems = check(&metadata, &texts);
        problems.iter().map(|problem| format!("{}:{} {}", problem.path, problem.line, problem.what)).collect()
    }

    #[test]
    fn up_the_list_is_fine() {
        let packages = r#"{"packages": [
            {"name": "weighbridge-load", "dependencies": [{"name": "weighbridge-plan"}, {"name": "serde"}]},
            {"name": "weighbridge", "dependencies": [{"name": "weighbridge-tensor"}]},
            {"name": "weighbridge-quant", "dependencies": [{"name": "weighbridge-quant", "kind": "dev"}]},
            {"name": "xtask", "dependencies": [{"name": "weighbridge-tensor"}]}]}"#;
        assert_eq!(found(packages), [""; 0]);
    }

    #[test]
    fn down_the_list_and_past_a_wall_is_not() {
        let packages = r#"{"packages": [
            {"name": "weighbridge-quant", "dependencies": [{"name": "weighbridge"}]},
            {"name": "weighbridge-plan", "dependencies": [{"name": "weighbridge-model"}]}]}"#;
        let order = ORDER.join(" < ");
        let down = format!(
            "crates/quant/Cargo.toml:0 `quant` must not depend on `weighbridge`: dependencies point up the list {order}"
        );
        let past = "crates/plan/Cargo.toml:3 `plan` must know nothing of `model`".to_owned();
        assert_eq!(found(packages), [down, past]);
    }

    #[test]
    fn what_is_for_tests_is_a_dependency_of_tests_alone() {
        let packages = |kind: &str| {
            format!(
                r#"{{"packages": [{{"name": "weighbridge-plan", "dependencies": [
                {{"name": "weighbridge-testkit", "kind": {kind}}}]}}]}}"#
            )
        };
        assert_eq!(found(&packages("\"dev\"")), [""; 0]);
        assert_eq!(found(&packages("null")).len(), 1);
    }

    #[test]
    fn unsafe_must_be_forbidden_in_so_many_words() {
        let text = Text { path: "crates/tensor/src/lib.rs".into(), content: "#![deny(unsafe_code)]".into() };
        let problems = check(&serde_json::json!({}), &[text]);
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        let wanted: Vec<_> = SAFE.iter().map(|name| format!("crates/{name}/src/lib.rs")).collect();
        assert_eq!(paths, wanted);
    }
}
