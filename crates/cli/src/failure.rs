//! Why a command fails.

/// Lists the commands that work on a model that no family claims.
pub(crate) const UNKNOWN: &str = "its tensors can be had all the same: `inspect`, `check` and `diff` look at them, `plan` and `load` take \
                       them with `--layout source`, `convert` writes them under their own names as npz, safetensors or npy-dir";

/// Why a command failed.
pub(crate) enum Failure {
    /// The model or a file is wrong.
    Model(weighbridge::Error),
    /// The command line asks for what cannot be.
    Usage(String),
    /// The same, as a message.
    Other(String),
    /// What was asked about is wrong, and the output says so.
    Found,
    /// Standard output or input failed.
    Io(std::io::Error),
}

/// The errors of all steps are a model's.
macro_rules! failures {
    ($($error:ty),+ $(,)?) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::Model(error.into())
            }
        }
    )+ };
}

failures! {
    weighbridge::Error,
    weighbridge::checkpoint::Error,
    weighbridge::planner::Error,
    weighbridge::load::Error,
    weighbridge::check::Error,
    weighbridge::convert::Error,
    weighbridge::engine::Error,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Io(error)
    }
}
