//! Errors state the problem; the hint is separate from it, and never speaks of a command line.

use checkpoint::OpenOptions;
use tensor::Diagnostic;
use weighbridge::Error;
use weighbridge::{check, checkpoint, convert, engine, load, model, plan, planner, quant, tensor};

/// Holds an error of one crate, as it is and through the façade's, which passes on what is beneath.
fn holds(display: String, debug: &str, hints: &[String]) {
    assert!(!hints.is_empty(), "{display}");
    for said in [&display].into_iter().chain(hints) {
        assert!(!said.contains("hint:") && !said.contains("--"), "{said}");
    }
    // The message, in its order, and each hint on a line of its own.
    let lines: Vec<&str> = debug.lines().collect();
    let (said, messages): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("hint: "));
    assert_eq!(messages.join("\n"), display);
    assert_eq!(said, hints.iter().map(|hint| format!("hint: {hint}")).collect::<Vec<_>>());
}

macro_rules! hold {
    ($($error:expr),+ $(,)?) => { $({
        let error = $error;
        holds(error.to_string(), &format!("{error:?}"), &error.hints());
    })+ };
}

macro_rules! hold_passed_on {
    ($($error:expr),+ $(,)?) => { $({
        let error = $error;
        let hints = error.hints();
        let all = Error::from(error);
        holds(all.to_string(), &format!("{all:?}"), &hints);
    })+ };
}

fn missing() -> checkpoint::Error {
    checkpoint::open_with(crate::golden().join("llama-tinny"), &OpenOptions::default()).unwrap_err()
}

fn unsupported() -> model::Error {
    model::Error::Unsupported { name: "nope".into(), why: None, known: "llama, gpt2".into() }
}

fn misfit() -> plan::Problems {
    let unknown = plan::Problem::Unknown { param: "a".into(), name: "b".into(), nearest: Some("c".into()) };
    unknown.into()
}

fn mapping() -> planner::Error {
    let checkpoint = weighbridge::open(crate::golden().join("llama-tiny/model.gguf")).unwrap();
    let rules = "rule = [{ from = \"blk.0.attn_q.wait\", to = \"b\" }]";
    let adapter = planner::Adapter {
        mapping: Some(planner::parse_rules("rules", rules).unwrap()),
        ..planner::Adapter::default()
    };
    let plan = planner::PlanBuilder::new(&checkpoint).adapter(adapter).build();
    plan.err().unwrap()
}

fn diagnostic() -> Diagnostic {
    Diagnostic::new("it cannot be").with_hint("do another thing".to_owned())
}

#[test]
fn hints_stand_beside_the_message_in_every_crate() {
    let load = || load::Error::LittleMemory { param: "a".into(), wanted: 2, memory: 1, least: 2 };
    hold!(
        quant::Error::IsaUnknown { name: "mmx".into() },
        unsupported(),
        misfit(),
        planner::parse_rules("rules", "rules = []").unwrap_err(),
    );
    hold_passed_on!(
        missing(),
        // A planner's error gives the hints of the model's, of the plan's and of the rules'.
        planner::Error::Model { path: "a".into(), source: unsupported(), fit: None },
        planner::Error::Ambiguous {
            path: "a".into(),
            family: "llama",
            source: Box::new(model::Ambiguous::Entries(["a".into(), "b".into()]))
        },
        planner::Error::Isa(quant::Error::IsaUnknown { name: "mmx".into() }),
        planner::Error::Misfit {
            path: "a".into(),
            family: "llama",
            problems: misfit(),
            fit: None,
            backbone: true
        },
        mapping(),
        planner::Error::Mesh { what: diagnostic() },
        weighbridge::layout("canonica").unwrap_err(),
        planner::Preset::known("q4_k_n").unwrap_err(),
        "*=q4_kk".parse::<planner::EncodeRule>().unwrap_err(),
        "*=iq1_s".parse::<planner::EncodeRule>().unwrap_err(),
        load(),
        load::Error::Changed(missing()),
        load::Error::Update {
            obstacles: vec![load::Obstacle::InUse, load::Obstacle::Borrowed { name: "a".into() }]
        },
        check::Error::Load(load()),
        check::Error::Checkpoint(missing()),
        convert::Error::Convert { what: diagnostic().into() },
        convert::Error::Diff { what: diagnostic() },
        convert::Error::Imatrix { path: "a".into(), what: "it is empty".into() },
        convert::Error::from(planner::Error::Refused { what: diagnostic().into() }),
        convert::Error::Plan(planner::Error::Mesh { what: diagnostic() }),
        engine::Error::NoKernel { scheme: "q4_1".into() },
        engine::Error::Text {
            path: "a".into(),
            source: engine::text::Error::Unsupported {
                what: "tokenizer model",
                found: "t5".into(),
                supported: "llama".into()
            }
        },
        engine::Error::Sampler(engine::sampler::Error::NotNumbers { count: 1, vocab: 2 }),
    );
    hold!(Error::NotRunnable { layout: "gguf" });
}
