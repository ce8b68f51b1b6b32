//! Pages and pictures: what a command says, to be looked at. Each is one file that needs no network.

mod axis;
mod colour;
mod compress;
mod diff;
mod draw;
mod eval;
mod file;
mod flow;
mod groups;
mod html;
mod inspect;
mod layers;
#[cfg(feature = "serve")]
mod model;
mod moved;
mod plan;
mod plot;
mod ranks;
mod report;
mod shares;
mod text;

pub(crate) use compress::{CompressPage, html as compress_html};
pub(crate) use diff::{DiffPage, html as diff_html};
pub(crate) use eval::html as eval_html;
pub(crate) use file::Output;
pub(crate) use inspect::{InspectPage, html as inspect_html};
#[cfg(feature = "serve")]
pub(crate) use model::{ModelPage, html as model_html, script as model_script, style as model_style};
pub(crate) use plan::{PlanPage, svg as plan_svg};
pub(crate) use ranks::{RanksPage, svg as ranks_svg};
pub(crate) use report::html as report_html;
pub(crate) use shares::Shares;
