//! `/openapi.json`: what the server answers, as OpenAPI 3.1.
//!
//! Nothing of it is written down twice. Paths come from the [routes](crate::routes), requests from the functions that read them
//! ([`Fields::describing`]), and answers from the types that are sent.
//!
//! Source: <https://spec.openapis.org/oas/v3.1.1>.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::fleet::Fleet;
use crate::refusal::ErrorBody;
use crate::routes::{Route, Serves, with_short};
use crate::table;

pub(crate) async fn answer(State(fleet): State<Arc<Fleet>>) -> Response {
    let document = of_fleet(&fleet).to_string();
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document).into_response()
}

/// Describes the routes of a server, and those of the models that it has loaded, the first of which says how a path is read that
/// several have.
fn of_fleet(fleet: &Fleet) -> Value {
    let mut schemas = generator();
    let mut paths = Map::new();
    for route in table::of_all() {
        add(&mut paths, &route, fleet, &mut schemas);
    }
    let mut schemas = schemas.take_definitions(true);
    for known in fleet.entries.iter().filter_map(|entry| entry.known()) {
        for (part, all) in [("paths", &mut paths), ("schemas", &mut schemas)] {
            let Some(Value::Object(own)) = known.api.get(part).cloned() else { continue };
            for (name, value) in own {
                all.entry(name).or_insert(value);
            }
        }
    }
    let mut document = json!({
        "openapi": "3.1.1",
        "info": {
            "title": "weighbridge serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("For {}. A field that is not described is refused by name.", fleet.tasks()),
        },
        "paths": paths,
        "components": {"schemas": schemas},
    });
    if !fleet.shared.keys.is_empty() {
        document["components"]["securitySchemes"] = json!({"key": {"type": "http", "scheme": "bearer"}});
        document["security"] = json!([{"key": []}]);
    }
    document
}

/// Describes the routes of a model: `paths`, and the `schemas` that they name.
pub(crate) fn document<S: Serves>(service: &S) -> Value {
    let mut schemas = generator();
    let mut paths = Map::new();
    for route in with_short(S::routes()) {
        add(&mut paths, &route, service, &mut schemas);
    }
    json!({"paths": paths, "schemas": schemas.take_definitions(true)})
}

fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.for_serialize().into_generator()
}

fn add<S: Send + Sync + 'static>(
    paths: &mut Map<String, Value>,
    route: &Route<S>,
    service: &S,
    schemas: &mut SchemaGenerator,
) {
    let content: Map<String, Value> = route
        .gives
        .iter()
        .map(|(kind, schema)| {
            // The texts of streams and of plain answers have no schema of JSON.
            let schema = if kind.contains("json") && !kind.contains("ndjson") {
                schema(schemas).to_value()
            } else {
                json!({"type": "string"})
            };
            ((*kind).to_owned(), json!({"schema": schema}))
        })
        .collect();
    let mut error = schemas.subschema_for::<ErrorBody<'_>>().to_value();
    if let Some(fails) = route.fails {
        // Those of keys and hosts are the same on all routes.
        error = json!({"anyOf": [fails(schemas), error]});
    }
    let error =
        json!({"description": "Why there is no answer", "content": {"application/json": {"schema": error}}});
    let mut operation = json!({
        "summary": route.what,
        "responses": {"200": {"description": "The answer", "content": content}, "default": error},
    });
    if let Some(reads) = route.reads {
        let mut fields = Fields::describing();
        reads(&mut fields, service);
        operation["requestBody"] =
            json!({"required": true, "content": {route.takes: {"schema": fields.schema()}}});
    }
    let named = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Value> = named
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    let method = if route.is_post { "post" } else { "get" };
    let path = paths.entry(route.path.trim_matches('*')).or_insert_with(|| json!({}));
    path[method] = operation;
}
