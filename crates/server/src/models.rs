//! `/health` and `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::service::Service;
use crate::shapes::{Meta, Model, Models};

pub(crate) async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

pub(crate) async fn list(State(service): State<Arc<Service>>) -> Response {
    let data = service.options.names.iter().map(|name| model(&service, name)).collect();
    Json(Models { object: "list", data }).into_response()
}

pub(crate) async fn one(
    State(service): State<Arc<Service>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(|_| Refusal::wrong("the name of the model is not UTF-8"))?;
    is_served(&service, &name)?;
    Ok(Json(model(&service, &name)).into_response())
}

fn model<'a>(service: &'a Service, name: &'a str) -> Model<'a> {
    let meta = Meta {
        family: service.family,
        n_vocab: service.vocab,
        n_ctx: service.positions,
        n_ctx_train: service.trained,
        parallel: service.options.parallel,
    };
    Model { id: name, object: "model", created: service.started, owned_by: "weighbridge", meta }
}

/// Refuses other models than the one that is here.
pub(crate) fn is_served(service: &Service, name: &str) -> Result<(), Refusal> {
    if service.options.names.iter().any(|own| own == name) {
        return Ok(());
    }
    let shown: String = name.chars().take(60).collect();
    Err(Refusal::no_model(format!("the model `{shown}` is not served here: `{}` is", service.name())))
}
