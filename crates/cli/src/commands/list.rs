//! `weighbridge list`: the models on this machine.

use std::io::Write;

use hub::Hub;
use hub::local::{LocalModel, Store, cached, lm_studio, ollama};
use weighbridge::tensor::{Bytes, counted};

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::json;
use crate::style;

pub(crate) fn run(args: &ListArgs) -> Result<(), Failure> {
    let hub = Hub::from_env()?;
    let mut models = cached(hub.cache());
    models.extend(ollama());
    models.extend(lm_studio());
    if args.json {
        return Ok(json::print(&json::List::of(hub.cache(), &models))?);
    }
    let rows: Vec<Vec<String>> = models.iter().map(row).collect();
    let heading = ["model", "from", "weights", "size", "revision", "path"];
    let table = if rows.is_empty() { String::new() } else { style::table(&heading, &rows, &[3]) };
    let summary =
        format!("{}; the hub's cache is `{}`", counted(models.len(), "model"), hub.cache().display());
    Ok(writeln!(std::io::stdout().lock(), "{table}{summary}")?)
}

fn row(model: &LocalModel) -> Vec<String> {
    let commit = model.commit.as_deref().and_then(|commit| commit.get(..12)).unwrap_or_default();
    let revision = if model.revisions.is_empty() { commit.to_owned() } else { model.revisions.join(", ") };
    let weights = json::weights(model.weights);
    vec![
        model.name.clone(),
        from(model.store).to_owned(),
        model.quant.as_ref().map_or(weights.to_owned(), |quant| format!("{weights} {quant}")),
        Bytes(model.bytes).to_string(),
        revision,
        model.path.display().to_string(),
    ]
}

/// A store as people call it.
fn from(store: Store) -> &'static str {
    match store {
        Store::Hub => "hub",
        Store::Ollama => "Ollama",
        Store::LmStudio => "LM Studio",
    }
}
