//! `/tokenize` and `/detokenize`, as llama.cpp's server has them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use serde_json::Value;
use weighbridge::engine::text::{EncodeOptions, SpecialText};

use crate::fields::Fields;
use crate::prepare::{ids, reading};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::shapes::{Content, Tokens};

pub(crate) async fn tokenize(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Json<Tokens>, Refusal> {
    reading(&service, request, |mut fields, service| {
        let (model, content, options) = text(&mut fields, service);
        fields.end()?;
        model.map_or(Ok(()), |name| service.is_served(&name))?;
        let tokens = service.tokenizer.encode(&content, options);
        Ok(Json(Tokens { tokens: tokens.map_err(|error| Refusal::wrong(error.to_string()))? }))
    })
    .await
}

pub(crate) async fn detokenize(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Json<Content>, Refusal> {
    reading(&service, request, |mut fields, service| {
        let (model, tokens) = list(&mut fields, service);
        fields.end()?;
        model.map_or(Ok(()), |name| service.is_served(&name))?;
        let content = service.tokenizer.decode(&tokens, SpecialText::Shown);
        Ok(Json(Content { content: content.map_err(|error| Refusal::wrong(error.to_string()))? }))
    })
    .await
}

/// Reads the name of a model, and a text.
pub(crate) fn text(fields: &mut Fields, _: &Service) -> (Option<String>, String, EncodeOptions) {
    let content = fields.text("content");
    fields.needed("content", content.as_slice(), "wanted a text");
    let options = EncodeOptions {
        add_special: fields.flag("add_special").unwrap_or(false),
        parse_special: fields.flag("parse_special").unwrap_or(true),
    };
    (fields.text("model"), content.unwrap_or_default(), options)
}

/// Reads the name of a model, and a list of tokens.
pub(crate) fn list(fields: &mut Fields, service: &Service) -> (Option<String>, Vec<u32>) {
    let tokens = fields.value("tokens").unwrap_or(Value::Null);
    let tokens = tokens.as_array().and_then(|list| ids(list, service.vocab));
    if tokens.is_none() {
        fields.problem("tokens", &format!("wanted a list of token ids below {}", service.vocab));
    }
    (fields.text("model"), tokens.unwrap_or_default())
}
