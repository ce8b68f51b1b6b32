//! Limits on the tokens that may come.

/// Decides which tokens may come next, before any sampler: a grammar, for example.
pub trait Constraint: Send {
    /// Begins another text.
    fn begin(&mut self);

    /// Takes the token that was sampled. If it was not allowed, [`Constraint::allowed`] fails from here on.
    fn accept(&mut self, token: u32);

    /// Returns the tokens that may come next, one bit each: token `t` is bit `t % 32` of word `t / 32`. Tokens after the last word may not.
    ///
    /// # Errors
    /// If no token may come, or the constraint cannot say; the message says why.
    fn allowed(&mut self) -> Result<&[u32], String>;
}
