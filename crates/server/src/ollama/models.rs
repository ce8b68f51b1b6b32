//! What there is to say about the models: `/api/tags`, `/api/ps`, `/api/show` and `/api/version`.
//!
//! Source: <https://github.com/ollama/ollama/blob/v0.12.6/docs/api.md>; the command `ollama` itself, cmd/cmd.go at
//! fb30760996871fa9460115c753afd2c60d4ab0f7.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use weighbridge::Task;

use super::{Refused, Wrong};
use crate::fields::Fields;
use crate::fleet::{Entry, Fleet, Standing};
use crate::guard::body;
use crate::host::{Host, now, own_names};
use crate::refusal::Refusal;
use crate::routes::Route;

/// The version of Ollama whose API this is: clients ask for it before they use a part of the API.
const VERSION: &str = "0.12.6";
/// Clients show more than twenty years from now as "forever".
const FOREVER: Duration = Duration::from_hours(100 * 365 * 24);

/// Routes of all models.
pub(crate) fn routes() -> Vec<Route<Fleet>> {
    vec![
        Route::get("/api/tags", "The models, for clients of Ollama's API", tags).gives::<Tags<'_>>(),
        Route::get("/api/ps", "The models in memory, for clients of Ollama's API", ps)
            .gives::<Processes<'_>>(),
        Route::get("/api/version", "The version of Ollama whose API is followed", version).gives::<Version>(),
        Route::post("/api/show", "The model, for clients of Ollama's API", show, |fields, _| {
            asked_show(fields);
        })
        .gives::<Value>()
        .fails::<Wrong>(),
    ]
}

async fn version() -> Json<Version> {
    Json(Version { version: VERSION })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Version {
    version: &'static str,
}

async fn tags(State(fleet): State<Arc<Fleet>>) -> Response {
    let known: Vec<_> = fleet.entries.iter().map(|entry| (entry, entry.known())).collect();
    let models = known.iter().flat_map(|(entry, known)| {
        let host = known.as_ref().map(|known| &*known.host);
        own_names(&entry.offer.names).map(move |name| (name.as_str(), *entry, host))
    });
    let models = models.map(|(name, entry, host)| Tag {
        name,
        model: name,
        modified_at: time(fleet.shared.started),
        size: host.map_or(0, |host| host.about.files.bytes),
        digest: digest(entry),
        details: host.map(details).unwrap_or_default(),
        capabilities: capabilities(entry.offer.task, host.is_some_and(|host| host.about.has_tools)),
    });
    Json(Tags { models: models.collect() }).into_response()
}

/// The models that are in memory.
async fn ps(State(fleet): State<Arc<Fleet>>) -> Response {
    let loaded = fleet.entries.iter().filter(|entry| entry.standing() == Standing::Loaded);
    let known: Vec<_> = loaded.filter_map(|entry| Some((entry, entry.known()?))).collect();
    let models = known.iter().map(|(entry, known)| Running {
        name: entry.name(),
        model: entry.name(),
        size: known.bytes,
        size_vram: 0,
        digest: digest(entry),
        details: details(&known.host),
        expires_at: time(
            now().saturating_add(entry.stays(fleet.shared.options.idle).unwrap_or(FOREVER).as_secs()),
        ),
        context_length: known.host.about.positions,
    });
    Json(Processes { models: models.collect() }).into_response()
}

/// The digest of a model. `ollama list` and `ollama ps` print the first twelve digits, and fail if there are fewer.
fn digest(entry: &Entry) -> String {
    blake3::hash(entry.name().as_bytes()).to_string()
}

#[derive(Debug, Serialize, JsonSchema)]
struct Processes<'a> {
    models: Vec<Running<'a>>,
}

/// A model in memory.
#[derive(Debug, Serialize, JsonSchema)]
struct Running<'a> {
    name: &'a str,
    model: &'a str,
    /// Bytes in memory.
    size: u64,
    /// Bytes of them on a GPU.
    size_vram: u64,
    /// 64 hexadecimal digits made of the model's first name: files are not hashed.
    digest: String,
    details: Details,
    /// When it leaves memory if nobody uses it; a time far ahead if it stays.
    expires_at: String,
    /// Positions of a request.
    context_length: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tags<'a> {
    models: Vec<Tag<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tag<'a> {
    name: &'a str,
    model: &'a str,
    /// When the server started.
    modified_at: String,
    /// Bytes.
    size: u64,
    /// 64 hexadecimal digits made of the model's first name: files are not hashed.
    digest: String,
    details: Details,
    capabilities: &'static [&'static str],
}

/// Empty until the model was loaded.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Details {
    parent_model: &'static str,
    format: String,
    family: &'static str,
    families: Vec<&'static str>,
    parameter_size: String,
    quantization_level: String,
}

fn details(host: &Host) -> Details {
    let about = &host.about;
    let files = &about.files;
    let parameters = match files.parameters {
        n if n >= 1_000_000_000 => format!("{:.1}B", n as f64 / 1e9),
        n => format!("{:.1}M", n as f64 / 1e6),
    };
    let bits = files.bytes as f64 * 8.0 / files.parameters.max(1) as f64;
    Details {
        parent_model: "",
        format: files.format.clone(),
        family: about.family,
        families: vec![about.family],
        parameter_size: parameters,
        quantization_level: format!("{bits:.1} bits"),
    }
}

fn capabilities(task: Task, has_tools: bool) -> &'static [&'static str] {
    match task {
        Task::Text if has_tools => &["completion", "tools"],
        Task::Text => &["completion"],
        Task::Vectors => &["embedding"],
        Task::Scores | Task::Speech => &[],
    }
}

/// Reads the name of a model.
fn asked_show(fields: &mut Fields) -> Option<String> {
    // Nothing more is known of it here.
    fields.without_effect(&["verbose", "system", "template", "options"]);
    // Its old name.
    let old = fields.text("name");
    fields.text("model").or(old)
}

async fn show(State(fleet): State<Arc<Fleet>>, request: Request) -> Result<Response, Refused> {
    let mut fields = Fields::of_body(&body(&fleet.shared, request).await?)?;
    let name = asked_show(&mut fields);
    fields.end()?;
    let entry = match name {
        Some(name) => fleet.find(None, &name)?,
        None => fleet.entries.first().ok_or_else(|| Refusal::failed("there is no model"))?,
    };
    let host = match entry.known() {
        Some(known) => known.host,
        // Only loading tells.
        None => Arc::clone(&fleet.held(entry).await?.0.host),
    };
    let about = &host.about;
    let family = about.family;
    let mut info = json!({"general.architecture": family, "general.parameter_count": about.files.parameters});
    info[format!("{family}.context_length")] = json!(about.trained);
    if let Some(width) = about.width {
        info[format!("{family}.embedding_length")] = json!(width);
    }
    Ok(Json(json!({
        "modelfile": "", "parameters": "", "template": "", "details": details(&host), "model_info": info,
        "capabilities": capabilities(about.task, about.has_tools), "modified_at": time(host.started),
    }))
    .into_response())
}

/// A time as RFC 3339 has it, of seconds since 1970.
///
/// Source: <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
pub(super) fn time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_764_167_471), "2025-11-26T14:31:11Z");
    }
}
