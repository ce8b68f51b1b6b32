//! `/health`, `/v1/models`, and what moves models in and out of memory.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::fields::Fields;
use crate::fleet::{Entry, Fleet, Known, Standing};
use crate::guard::{body, is_trusted};
use crate::host::own_names;
use crate::metrics;
use crate::openapi;
use crate::refusal::Refusal;
use crate::shapes::{LoadedMeta, Meta, Model, Models, Status};

/// `GET /health`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    status: &'static str,
}

pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

pub(crate) async fn list(State(fleet): State<Arc<Fleet>>) -> Response {
    let entries =
        fleet.entries.iter().map(|entry| (entry, entry.known(), entry.standing())).collect::<Vec<_>>();
    let data = entries.iter().flat_map(|(entry, known, standing)| {
        own_names(&entry.offer.names).map(|name| model(&fleet, entry, known.as_ref(), *standing, name))
    });
    Json(Models { object: "list", data: data.collect() }).into_response()
}

pub(crate) async fn one(
    State(fleet): State<Arc<Fleet>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(|_| Refusal::wrong("the name of the model is not UTF-8"))?;
    let entry = fleet.find(None, &name)?;
    let (known, standing) = (entry.known(), entry.standing());
    Ok(Json(model(&fleet, entry, known.as_ref(), standing, &name)).into_response())
}

fn model<'a>(
    fleet: &Fleet,
    entry: &Entry,
    known: Option<&Known>,
    standing: Standing,
    name: &'a str,
) -> Model<'a> {
    let about = known.map(|known| &known.host.about);
    let meta = Meta {
        task: entry.offer.task.name(),
        parallel: entry.offer.parallel,
        of_loaded: about.map(|about| LoadedMeta {
            family: about.family,
            n_vocab: about.vocab,
            n_ctx: about.positions,
            n_ctx_train: about.trained,
            n_embd: about.width,
        }),
    };
    let status = Status { value: standing.name() };
    Model { id: name, object: "model", created: fleet.shared.started, owned_by: "weighbridge", status, meta }
}

/// `GET /metrics`.
pub(crate) async fn figures(State(fleet): State<Arc<Fleet>>) -> Result<Response, Refusal> {
    let text = fleet.shared.metrics.text().map_err(|_| Refusal::failed("the figures have no text"))?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(metrics::TYPE))], text).into_response())
}

/// `GET /openapi.json`: the routes of the server, and those of the models that it has loaded.
pub(crate) async fn api(State(fleet): State<Arc<Fleet>>) -> Response {
    let known = fleet.entries.iter().filter_map(|entry| entry.known()).map(|known| known.api);
    let parts: Vec<_> = fleet.api.get().cloned().into_iter().chain(known).collect();
    let document = openapi::document(&fleet.tasks(), &parts, !fleet.shared.keys.is_empty()).to_string();
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document).into_response()
}

/// The answer to a request that moved a model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Done {
    success: bool,
}

/// The answer to a request that had a model read anew.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Reloaded {
    success: bool,
    /// The number of its weights, as `system_fingerprint` has it.
    weights: u64,
}

/// Reads the name of the model that is to be moved.
pub(crate) fn asked(fields: &mut Fields) -> Option<String> {
    let name = fields.text("model");
    if name.is_none() && !fields.has_problems() {
        fields.problem("model", "wanted the name of a model");
    }
    name
}

/// The weights that answers get which are being made when a model is read anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are made by the old weights.
    Wait,
    /// They go on with the new ones.
    Keep,
}

/// Reads the mode. The names are those of vLLM's `/pause`.
pub(crate) fn mode(fields: &mut Fields) -> Mode {
    match fields.text("mode").as_deref() {
        None | Some("wait") => Mode::Wait,
        Some("keep") => Mode::Keep,
        Some(_) => {
            fields.problem("mode", "wanted `wait` or `keep`");
            Mode::Wait
        }
    }
}

/// The model that a request is to move, and what else `read` finds in the request. Only a server with keys lets it.
async fn moved<T>(
    fleet: &Fleet,
    request: Request,
    read: impl FnOnce(&mut Fields) -> T,
) -> Result<(Arc<Entry>, T), Refusal> {
    if fleet.shared.keys.is_empty() && !is_trusted(&request) {
        let message = "models are moved with a key or through a socket alone, and this server has no key";
        return Err(Refusal::forbidden(message));
    }
    let mut fields = Fields::of_body(&body(&fleet.shared, request).await?)?;
    let (name, more) = (asked(&mut fields), read(&mut fields));
    fields.end()?;
    Ok((Arc::clone(fleet.find(None, &name.unwrap_or_default())?), more))
}

/// `POST /models/load`, as llama.cpp's server has it.
pub(crate) async fn load(State(fleet): State<Arc<Fleet>>, request: Request) -> Result<Json<Done>, Refusal> {
    let (entry, ()) = moved(&fleet, request, |_| ()).await?;
    entry.forgive();
    fleet.held(&entry).await?;
    Ok(Json(Done { success: true }))
}

/// `POST /models/unload`, as llama.cpp's server has it.
pub(crate) async fn unload(State(fleet): State<Arc<Fleet>>, request: Request) -> Result<Json<Done>, Refusal> {
    let (entry, ()) = moved(&fleet, request, |_| ()).await?;
    // It goes on when the client leaves.
    let unloaded = tokio::spawn(async move { fleet.unload(&entry).await }).await;
    unloaded.map_err(|_| Refusal::stopping())?;
    Ok(Json(Done { success: true }))
}

/// `POST /models/reload`: its files have changed.
pub(crate) async fn reload(
    State(fleet): State<Arc<Fleet>>,
    request: Request,
) -> Result<Json<Reloaded>, Refusal> {
    let (entry, mode) = moved(&fleet, request, mode).await?;
    let (tell, told) = oneshot::channel();
    // It goes on when the client leaves.
    let own = Arc::clone(&entry);
    tokio::spawn(async move {
        match mode {
            Mode::Wait => fleet.reload(&own, tell).await,
            Mode::Keep => fleet.renew(&own, tell).await,
        }
    });
    told.await.unwrap_or_else(|_| Err(Refusal::stopping()))?;
    Ok(Json(Reloaded { success: true, weights: entry.weights() }))
}
