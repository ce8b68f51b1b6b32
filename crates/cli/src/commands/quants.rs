//! `weighbridge quants`: the table of schemes.

use std::io::Write;

use serde_json::json;
use weighbridge::quant::Quant;

use crate::args::QuantsArgs;
use crate::failure::Failure;
use crate::style;

pub(crate) fn run(args: &QuantsArgs) -> Result<(), Failure> {
    let quants = weighbridge::quant::quants();
    let mut out = std::io::stdout().lock();
    if args.json {
        let rows: Vec<_> = quants
            .iter()
            .map(|q| {
                json!({
                    "name": q.name,
                    "bits": q.bits,
                    "planes": q.planes,
                    "decodes": q.decodes,
                    "encodes": q.encodes,
                    "runs_on": q.runs_on,
                    "interleaved": q.interleaved,
                })
            })
            .collect();
        writeln!(out, "{:#}", json!(rows))?;
        return Ok(());
    }
    let heading = ["scheme", "bits", "decode", "encode", "run on", "interleaved", "planes"];
    let rows: Vec<Vec<String>> = quants.iter().map(row).collect();
    out.write_all(style::table(&heading, &rows, &[1]).as_bytes())?;
    Ok(())
}

fn row(q: &Quant) -> Vec<String> {
    let mark = |yes| if yes { "yes" } else { "–" }.to_owned();
    let list = |names: &[&str]| if names.is_empty() { "–".to_owned() } else { names.join(" ") };
    let forms: Vec<&str> = q.interleaved.iter().map(String::as_str).collect();
    vec![
        q.name.clone(),
        format!("{:.2}", q.bits),
        mark(q.decodes),
        mark(q.encodes),
        if q.runs_on.is_empty() { "as floats".to_owned() } else { q.runs_on.join(" ") },
        list(&forms),
        q.planes.join(" "),
    ]
}
