//! The page about the model that is served.

use server::ModelPage;
use weighbridge::load;
use weighbridge::tensor::Bytes;
use weighbridge::{PlanBuilder, Pool, Runtime, RuntimeOptions};

use super::super::inspect::shown;
use crate::failure::Failure;
use crate::keys::Doubts;
use crate::pages::{self, PlanPage};

/// Makes the page about the model of `runtime`, which was started with `options`. `running` are lines on how it runs.
///
/// It is made once, from headers: the plan is compiled again, since the runtime keeps what it has loaded and not how.
pub(super) fn page(
    runtime: &Runtime,
    options: &RuntimeOptions,
    name: &str,
    doubts: &Doubts,
    running: Vec<String>,
) -> Result<ModelPage, Failure> {
    let checkpoint = runtime.checkpoint();
    let planned = PlanBuilder::new(checkpoint).model(runtime.model()).layout(runtime.layout());
    let planned = planned.encoding(options.encoding.clone()).loras(options.loras.iter().cloned()).build()?;
    let threads = options.threads.unwrap_or_else(Pool::available);
    let needs = planned.needs(load::Options::default(), threads)?;
    let model = weighbridge::describe(checkpoint);
    let foreseen = runtime.foreseen();
    let memory = format!(
        "memory that was planned: {} of its own, {} mapped from files",
        Bytes(foreseen.private),
        Bytes(foreseen.mapped)
    );
    let backend = format!("backend: {}", runtime.backend());
    let copy = "loaded from the copy that an earlier start has kept; the picture shows how that was made";
    let copy = runtime.is_from_cache().then(|| copy.to_owned());
    let html = pages::model_html(&pages::ModelPage {
        name,
        inspect: shown(checkpoint, &model, Some(doubts)),
        plan: PlanPage {
            name: &checkpoint.location().file_name(),
            what: format!("{} layout", runtime.layout().name()),
            plan: &planned,
            summary: &planned.summary(),
            needs: &needs,
            borrowed: &planned.borrowed(load::Options::default())?,
        },
        running: running.into_iter().chain(copy).chain([memory, backend]).collect(),
    });
    Ok(ModelPage { html, style: pages::model_style(), script: pages::model_script() })
}
