//! Multiple-choice tasks, as EleutherAI's lm-evaluation-harness scores them (golden/tasks.py).

use std::fs;

use serde_json::Value;
use weighbridge::engine::KvKind;
use weighbridge::engine::eval::{EncodedTask, Mean, Score, encode, parse, score};
use weighbridge::planner::Encoding;
use weighbridge::{Runtime, RuntimeOptions};

use crate::model;

/// The tasks `names` for `runtime`, with a context of `positions`.
fn encoded(runtime: &Runtime, names: &[&str], positions: usize) -> Vec<EncodedTask> {
    let text = |name: &&str| {
        let path = testkit::golden("tasks").join(format!("{name}.jsonl"));
        (path.display().to_string(), fs::read_to_string(path).unwrap())
    };
    let tasks = parse(&names.iter().map(text).collect::<Vec<_>>()).unwrap();
    assert!(tasks.iter().all(|task| task.unknown.is_empty()));
    encode(&tasks, runtime.tokenizer().unwrap(), positions).unwrap()
}

/// A figure of the harness beside ours.
fn same_figure(name: &str, found: &Mean, wanted: &Value) {
    for (what, found) in [("", found.mean()), ("_stderr", found.error())] {
        let wanted = wanted[format!("{name}{what}")].as_f64().unwrap();
        assert!((found - wanted).abs() < 1e-12, "{name}{what}: wanted {wanted}, found {found}");
    }
}

/// Each choice has the harness's log-likelihood, and each question its verdicts.
fn same(name: &str, found: &Score, wanted: &Value) {
    let questions = wanted["questions"].as_array().unwrap();
    assert_eq!(found.answers.len(), questions.len());
    let (mut right, mut right_norm) = (0.0, 0.0);
    for (n, (answer, question)) in found.answers.iter().zip(questions).enumerate() {
        let choices = question["log_likelihoods"].as_array().unwrap();
        assert_eq!(answer.log_likelihoods.len(), choices.len());
        for (found, wanted) in answer.log_likelihoods.iter().zip(choices) {
            let wanted = wanted.as_f64().unwrap();
            assert!((found / wanted - 1.0).abs() < 1e-3, "{name} {n}: wanted {wanted}, found {found}");
        }
        right += question["acc"].as_f64().unwrap();
        right_norm += question["acc_norm"].as_f64().unwrap_or_default();
    }
    let count = questions.len() as f64;
    assert!((found.acc.mean() - right / count).abs() < 1e-12, "{name}");
    assert!((found.acc_norm.unwrap_or_default().mean() - right_norm / count).abs() < 1e-12, "{name}");
    let figures = &wanted["figures"];
    // MMLU has a task for each subject in the harness, and so no figure of all.
    if figures.get("acc").is_some() {
        same_figure("acc", &found.acc, figures);
        assert_eq!(found.acc_norm.is_some(), figures.get("acc_norm").is_some(), "{name}");
    }
    if let Some(mean) = &found.acc_norm {
        same_figure("acc_norm", mean, figures);
    }
}

/// Runs the harness's runs of `name` with the weights decoded to f32, as it has them. Returns the number of truncated questions.
fn runs(name: &str) -> usize {
    let made = fs::read(testkit::golden("tasks").join("harness.json")).unwrap();
    let made: Vec<Value> = serde_json::from_slice(&made).unwrap();
    let encoding = Encoding { rules: vec!["*=f32".parse().unwrap()], ..Encoding::default() };
    let options =
        RuntimeOptions { encoding, context: Some(256), kv: Some(KvKind::F32), ..RuntimeOptions::default() };
    let mut runtime = Runtime::start(model(name), &options).unwrap();
    let mut truncated = 0;
    for run in made.iter().filter(|run| run["model"] == name) {
        let positions = run["positions"].as_u64().map_or(256, |n| usize::try_from(n).unwrap());
        let wanted = run["tasks"].as_object().unwrap();
        let names: Vec<&str> = wanted.keys().map(String::as_str).collect();
        for (name, task) in names.iter().zip(encoded(&runtime, &names, positions)) {
            assert!(task.positions() <= positions);
            truncated += task.truncated;
            let found = score(&mut runtime.predictor(), &task, &mut |_| ()).unwrap();
            same(name, &found, &wanted[*name]);
        }
    }
    truncated
}

#[test]
fn smollm2_answers_as_in_the_harness() {
    // In 40 positions: all of MMLU, one of ARC and one of HellaSwag.
    assert_eq!(runs("smollm2"), 14);
}

/// Its tokenizer puts a token before each text.
#[test]
fn gemma3_answers_as_in_the_harness() {
    assert_eq!(runs("gemma3"), 0);
}
