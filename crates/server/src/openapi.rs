//! `/openapi.json`: what the server answers, as OpenAPI 3.1.
//!
//! Nothing of it is written down twice. Paths come from the [routes](crate::routes), requests from the functions that read them
//! ([`Fields::describing`]), and answers from the types that are sent.
//!
//! Source: <https://spec.openapis.org/oas/v3.1.1>.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::refusal::ErrorBody;
use crate::routes::Route;

/// Describes routes: their `paths`, and the `schemas` that these name.
pub(crate) fn described<S: Send + Sync + 'static>(routes: &[Route<S>], service: &S) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut schemas = settings.for_serialize().into_generator();
    let mut paths = Map::new();
    for route in routes {
        add(&mut paths, route, service, &mut schemas);
    }
    json!({"paths": paths, "schemas": schemas.take_definitions(true)})
}

/// The description of a server for `tasks`, made of those of its routes: where two have a path, the first says how it is read.
pub(crate) fn document(tasks: &str, parts: &[Value], has_keys: bool) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for part in parts {
        for (name, all) in [("paths", &mut paths), ("schemas", &mut schemas)] {
            let Some(Value::Object(own)) = part.get(name) else { continue };
            for (name, value) in own {
                all.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
    let mut document = json!({
        "openapi": "3.1.1",
        "info": {
            "title": "weighbridge serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("For {tasks}. A field that is not described is refused by name."),
        },
        "paths": paths,
        "components": {"schemas": schemas},
    });
    if has_keys {
        document["components"]["securitySchemes"] = json!({"key": {"type": "http", "scheme": "bearer"}});
        document["security"] = json!([{"key": []}]);
    }
    document
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
