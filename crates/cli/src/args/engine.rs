//! How a model is run, whatever it is run for.

use clap::{Args as ClapArgs, ValueEnum};
use weighbridge::RuntimeOptions;
use weighbridge::runtime::BackendKind;

use super::encoding::EncodingArgs;
use super::number::whole;
use super::size::size;
use super::{CacheArg, LayoutArg, LoraArgs, OpenArgs};
use crate::failure::Failure;
use crate::tuned;

/// The engine and the form of the weights.
#[derive(ClapArgs)]
pub(crate) struct EngineArgs {
    /// The backend that runs the model
    #[arg(long, value_enum, default_value_t = BackendArg::Cpu)]
    backend: BackendArg,
    /// The layout of the parameters in memory [default: the fastest for the backend]
    #[arg(long, value_enum)]
    layout: Option<LayoutArg>,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    lora: LoraArgs,
    /// Threads [default: all]
    #[arg(long, short, value_parser = whole(1u16, Some(1024u16)))]
    threads: Option<u16>,
    /// Ignore the settings that `weighbridge tune` saved
    #[arg(long)]
    no_tune: bool,
}

/// How a model is started that keeps no texts: its engine, its memory and its files.
#[derive(ClapArgs)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// Limit weights to SIZE [default: what the system has available]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    #[command(flatten)]
    open: OpenArgs,
    /// Copies of loaded weights that make the next start fast [default: write]
    #[arg(long, value_enum)]
    cache: Option<CacheArg>,
}

impl StartArgs {
    /// The options of the library, with its defaults for all else.
    pub(crate) fn options(&self) -> Result<RuntimeOptions, Failure> {
        let open = self.open.options();
        let cache = CacheArg::mode(self.cache, CacheArg::Write, open.io).map_err(Failure::Usage)?;
        Ok(RuntimeOptions { memory: self.memory, open, cache, ..self.engine.options()? })
    }
}

/// A backend by name.
#[derive(Clone, Copy, ValueEnum)]
enum BackendArg {
    /// SIMD kernels on all threads
    Cpu,
    /// Plain f32 on one thread. Slow; tells a wrong weight from a wrong kernel
    Reference,
}

impl EngineArgs {
    /// The options of the library, with its defaults for all else.
    pub(crate) fn options(&self) -> Result<RuntimeOptions, Failure> {
        let threads = self.threads.map(usize::from);
        Ok(RuntimeOptions {
            backend: match self.backend {
                BackendArg::Cpu => BackendKind::Cpu,
                BackendArg::Reference => BackendKind::Reference,
            },
            layout: self.layout.map(LayoutArg::kind).transpose().map_err(Failure::Usage)?,
            threads,
            encoding: self.encoding.encoding(),
            loras: self.lora.read()?,
            access: if self.no_tune { None } else { tuned::read(threads).map_err(Failure::Usage)? },
            ..RuntimeOptions::default()
        })
    }
}
