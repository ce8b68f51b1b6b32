//! `docs/json/`: a schema for each document, made from its type.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::json;

/// Every field is in the schema: an object has no others.
fn close(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
}

fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(close));
    settings.into_generator().into_root_schema_for::<T>()
}

/// `WEIGHBRIDGE_BLESS=1` writes the files anew.
#[test]
fn the_schemas_in_docs_are_those_of_the_documents() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json");
    let bless = std::env::var_os("WEIGHBRIDGE_BLESS").is_some();
    for (name, schema) in [
        ("inspect", schema::<super::Inspect<'_>>()),
        ("plan", schema::<super::Plan<'_>>()),
        ("plan-all-ranks", schema::<super::Ranks<'_>>()),
        ("load", schema::<super::Load<'_>>()),
        ("run", schema::<super::Run<'_>>()),
        ("embed", schema::<super::Embed<'_>>()),
        #[cfg(all(unix, feature = "serve"))]
        ("reload", schema::<super::Reload>()),
        ("rerank", schema::<super::Rerank<'_>>()),
        #[cfg(feature = "speech")]
        ("transcribe", schema::<super::Transcribe<'_>>()),
        ("bench", schema::<super::Bench<'_>>()),
        ("eval", schema::<super::Eval>()),
        ("calibrate", schema::<super::Calibrate<'_>>()),
        ("cache", schema::<super::Cache>()),
        ("cache-status", schema::<super::CacheStatus>()),
        ("tune", schema::<super::Tune>()),
        ("compress", schema::<super::Compress<'_>>()),
        ("convert", schema::<super::Convert<'_>>()),
        ("check", schema::<super::Check<'_>>()),
        ("diff", schema::<super::Diff<'_>>()),
        ("tokenize", schema::<super::Tokenize<'_>>()),
        ("quants", schema::<super::Quants<'_>>()),
        #[cfg(feature = "hub")]
        ("pull", schema::<super::Pull>()),
        #[cfg(feature = "hub")]
        ("list", schema::<super::List<'_>>()),
        ("error", schema::<super::Error<'_>>()),
    ] {
        let (path, made) = (folder.join(format!("{name}.json")), format!("{:#}\n", schema.to_value()));
        if bless {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "{} is another: WEIGHBRIDGE_BLESS=1 writes it anew", path.display());
    }
}
