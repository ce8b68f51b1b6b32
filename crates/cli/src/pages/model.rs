//! The page of `serve` about its model: what the file holds, and what of it is in memory.

use maud::html;

use super::draw::inline_style;
use super::html::{SCRIPT, served, style as page_style};
use super::inspect::{InspectPage, parts_of, tensors};
use super::plan::{PlanPage, picture};
use super::text::{NAME, shown};

/// What the page shows.
pub(crate) struct ModelPage<'a> {
    /// The name under which it is served.
    pub(crate) name: &'a str,
    pub(crate) inspect: InspectPage<'a>,
    pub(crate) plan: PlanPage<'a>,
    /// Lines on how it runs here.
    pub(crate) running: Vec<String>,
}

/// Writes the page, whose style sheet is [`style`] and whose script is [`script`].
pub(crate) fn html(of: &ModelPage<'_>) -> String {
    let name = shown(of.name, NAME);
    let lines = |lines: &[String]| -> Vec<String> {
        lines.iter().flat_map(|line| line.lines()).map(|line| shown(line, 4 * NAME)).collect()
    };
    let body = html! {
        nav aria-label="Pages" { a href="./" { "Chat" } }
        main {
            h1 { (name) }
            @for line in lines(&of.inspect.facts) { p { (line) } }
            h2 { "in memory" }
            @for line in lines(&of.running) { p { (line) } }
            div class="scroll" tabindex="0" role="region" aria-label="What is moved where" { (picture(&of.plan).inline()) }
            (parts_of(&of.inspect))
        }
    };
    served(&format!("{name} – Weighbridge"), &body, &tensors(of.inspect.checkpoint.entries()))
}

/// The style sheet of the page.
pub(crate) fn style() -> String {
    page_style()
        + "nav{margin-bottom:14px}nav a{color:inherit}svg.picture{max-width:none;display:block;margin-top:8px}\n"
        + &inline_style()
}

/// The script of the page.
pub(crate) fn script() -> String {
    SCRIPT.to_owned()
}
