//! `weighbridge quants`: the table of schemes.

use std::io::Write;

use weighbridge::quant::Quant;

use crate::args::QuantsArgs;
use crate::failure::Failure;
use crate::json;
use crate::style;

pub(crate) fn run(args: &QuantsArgs) -> Result<(), Failure> {
    let quants = weighbridge::quant::quants();
    if args.json {
        return Ok(json::print(&json::Quants::of(&quants))?);
    }
    let heading = ["scheme", "bits", "decode", "encode", "run on", "interleaved", "planes"];
    let rows: Vec<Vec<String>> = quants.iter().map(row).collect();
    Ok(std::io::stdout().lock().write_all(style::table(&heading, &rows, &[1]).as_bytes())?)
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
