//! A model that runs, and a smaller one that guesses its tokens.

use checkpoint::Checkpoint;
use engine::draft::{ModelDraft, Vocab};
use planner::describe;

use super::{DEFAULT_CONTEXT, Runtime, RuntimeOptions};
use crate::Error;

impl Runtime {
    /// Starts the model of `checkpoint`, and that of `draft` to guess its tokens. The limit on memory in `options` is for both.
    ///
    /// The draft has room for as many positions as the model, but not for more than it was trained for.
    ///
    /// # Errors
    /// As [`Runtime::start`], for either. If the two have different vocabularies.
    pub fn start_with_draft(
        checkpoint: Checkpoint,
        options: &RuntimeOptions,
        draft: Checkpoint,
        draft_options: &RuntimeOptions,
    ) -> Result<(Runtime, ModelDraft), Error> {
        let context = |checkpoint: &Checkpoint| {
            let context = describe(checkpoint).ok()?.architecture().ok()?.decoder()?.context;
            usize::try_from(context).ok()
        };
        let usual = || context(&checkpoint).map(|n| n.min(usize::try_from(DEFAULT_CONTEXT).unwrap_or(n)));
        let positions = draft_options.context.or(options.context).or_else(usual);
        let positions = positions.map(|n| context(&draft).map_or(n, |most| n.min(most)));
        let mut draft_options = RuntimeOptions { context: positions, ..draft_options.clone() };
        draft_options.memory = draft_options.memory.or(options.memory);
        // The draft first: weights of the model may be read again for each token, those of a draft that is of use may not.
        let draft = Runtime::start_from(draft, &draft_options)?;
        let foreseen = draft.foreseen();
        let held = foreseen.private.saturating_add(foreseen.mapped);
        let memory = options.memory.map(|limit| limit.saturating_sub(held));
        let mut runtime = Runtime::start_from(checkpoint, &RuntimeOptions { memory, ..options.clone() })?;
        let draft = runtime.take_draft(draft)?;
        Ok((runtime, draft))
    }

    /// Makes a draft of the model that `draft` runs. What its start leaves to do for the next is done beside this model's tokens.
    fn take_draft(&mut self, draft: Runtime) -> Result<ModelDraft, Error> {
        self.draft_memory = draft.foreseen();
        let tokenizer = |of: &Runtime| of.tokenizer().ok().cloned();
        let (model_tokenizer, draft_tokenizer) = (tokenizer(self), tokenizer(&draft));
        let Runtime { runner, session, mut kept, .. } = draft;
        let model = Vocab { size: self.shared().vocab(), tokenizer: model_tokenizer.as_deref() };
        let draft = ModelDraft::new(runner, session, draft_tokenizer.as_deref(), model)?;
        self.draft_kept = kept.begin();
        Ok(draft)
    }
}
