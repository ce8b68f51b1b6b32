//! How text is read and shown.

/// What [`Tokenizer::encode`](super::Tokenizer::encode) makes of a text beside its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put BOS before and EOS after, where the model does so.
    ///
    /// Leave it off for what a chat template wrote: the template writes them itself.
    pub add_special: bool,
    /// Take `<|im_start|>` and its like in the text for the tokens that they name. Only for text that is not
    /// a stranger's: whoever may write them may write turns.
    pub parse_special: bool,
}

/// Whether tokens that steer the model (BOS, end of turn) show in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialText {
    /// They are no text.
    Hidden,
    /// They show as they are named.
    Shown,
}
