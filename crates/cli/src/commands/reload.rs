//! `weighbridge reload`: has a server read the files of a model anew.

use std::io::Write as _;
use std::time::Instant;

use serde_json::{Value, json};

use crate::args::ReloadArgs;
use crate::failure::Failure;
use crate::json::{self, real};

pub(crate) fn run(args: &ReloadArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let model = match &args.model {
        Some(model) => model.clone(),
        None => only(args)?,
    };
    let mode = if args.keep { "keep" } else { "wait" };
    let answer = ask(args, "/models/reload", Some(&json!({"model": model, "mode": mode})))?;
    let weights = answer["weights"].as_u64().unwrap_or_default();
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        return Ok(json::print(&json::Reload { model, weights, kept: args.keep, seconds: real(seconds) })?);
    }
    let whose = if args.keep { "answers go on" } else { "new answers are made" };
    Ok(writeln!(
        std::io::stdout().lock(),
        "`{model}` was read anew in {seconds:.1} s: {whose} with weights-{weights}"
    )?)
}

/// The name of the server's only model.
fn only(args: &ReloadArgs) -> Result<String, Failure> {
    let models = ask(args, "/v1/models", None)?;
    let names: Vec<&str> =
        models["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    match names[..] {
        [only] => Ok(only.to_owned()),
        _ => Err(Failure::Usage(format!(
            "the server has several names\nhint: give one of {}",
            names.join(", ")
        ))),
    }
}

/// The answer to a request.
fn ask(args: &ReloadArgs, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
    let socket = args.socket.display();
    let (status, answer) = server::ask(&args.socket, path, body).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                format!("\nhint: `weighbridge serve … --socket {socket}` listens there")
            }
            _ => String::new(),
        };
        Failure::Other(format!("no server answers on `{socket}`: {error}{hint}"))
    })?;
    if status == 200 {
        return Ok(answer);
    }
    let text = answer["error"]["message"].as_str().unwrap_or("the server gives no reason").to_owned();
    // A name or a mode that it does not have, and files of another model.
    if (400..500).contains(&status) { Err(Failure::Usage(text)) } else { Err(Failure::Other(text)) }
}
