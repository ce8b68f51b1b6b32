//! `/health` and `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::host::Host;
use crate::refusal::Refusal;
use crate::shapes::{Meta, Model, Models};

/// `GET /health`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    status: &'static str,
}

pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

pub(crate) async fn list(State(host): State<Arc<Host>>) -> Response {
    let data = host.names().map(|name| model(&host, name)).collect();
    Json(Models { object: "list", data }).into_response()
}

pub(crate) async fn one(
    State(host): State<Arc<Host>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(|_| Refusal::wrong("the name of the model is not UTF-8"))?;
    host.is_served(&name)?;
    Ok(Json(model(&host, &name)).into_response())
}

fn model<'a>(host: &'a Host, name: &'a str) -> Model<'a> {
    let meta = Meta {
        family: host.about.family,
        task: host.about.task.name(),
        n_vocab: host.about.vocab,
        n_ctx: host.about.positions,
        n_ctx_train: host.about.trained,
        n_embd: host.about.width,
        parallel: host.options.parallel,
    };
    Model { id: name, object: "model", created: host.started, owned_by: "weighbridge", meta }
}
