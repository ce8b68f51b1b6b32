//! The form of an answer of `run`.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use weighbridge::engine::grammar::Source;

use crate::failure::Failure;

/// Options for the form of an answer.
#[derive(ClapArgs)]
#[command(next_help_heading = "Structured output")]
pub(crate) struct StructureArgs {
    /// Answer with JSON that a JSON Schema describes: the schema itself, or the file with it
    #[arg(long, value_name = "FILE|JSON", group = "structure")]
    json_schema: Option<String>,
    /// Answer with a text of the grammar in FILE (Lark, as llguidance reads it)
    #[arg(long, value_name = "FILE", group = "structure")]
    grammar: Option<PathBuf>,
}

impl StructureArgs {
    /// The schema or the grammar, if one is given.
    ///
    /// # Errors
    /// If a file cannot be read, or a schema is not JSON.
    pub(crate) fn source(&self) -> Result<Option<Source>, Failure> {
        if let Some(schema) = &self.json_schema {
            let inline = schema.trim_start().starts_with('{');
            let (text, of) = if inline {
                (schema.clone(), "the schema".to_owned())
            } else {
                (read(Path::new(schema))?, format!("`{schema}`"))
            };
            let schema =
                serde_json::from_str(&text).map_err(|e| Failure::Usage(format!("{of} is not JSON: {e}")))?;
            return Ok(Some(Source::JsonSchema(schema)));
        }
        let Some(path) = &self.grammar else { return Ok(None) };
        let text = read(path)?;
        if text.contains("::=") {
            return Err(Failure::Usage(format!(
                "`{}` is a grammar in GBNF, wanted Lark\nhint: write `name: \"text\" | other` for `name ::= \"text\" | other`, and `start` \
                 for `root` (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)",
                path.display()
            )));
        }
        Ok(Some(Source::Lark(text)))
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| Failure::Other(format!("cannot read `{shown}`: {e}")))?;
    String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("`{shown}` is not UTF-8")))
}
