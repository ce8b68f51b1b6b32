//! How text is read and shown.

/// Options of [`Tokenizer::encode`](super::Tokenizer::encode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put BOS before and EOS after, where the model does so.
    ///
    /// Leave it off for what a chat template wrote: the template writes them itself.
    pub add_special: bool,
    /// Read `<|im_start|>` and the like in the text as the tokens that they name. Only for trusted text: such
    /// tokens can forge turns.
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
