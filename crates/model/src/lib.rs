//! Names and meaning, no bytes: what a model's configuration says, which parameters it has, how each
//! ecosystem names and stores them, and how a runtime wants them.
//!
//! - A **family** ([`Family`]) declares hyper-parameters, canonical parameters and the block that the
//!   engine runs. One file in `family/`, one line in [`FAMILIES`].
//! - A **dialect** ([`Dialect`]) says how an ecosystem names and lays out those parameters.
//! - A **layout** ([`Layout`]) says how a runtime wants them, as expressions over canonical names.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a configuration: f64 as read, f32 as run; counts are at most 2^32"
)]

mod architecture;
mod config;
mod dialect;
mod error;
mod facts;
mod family;
mod layout;
mod param;

pub use architecture::{Activation, Architecture, Attention, Norm, Positions, Rope, RopeOrder, RopeScaling};
pub use config::{Config, Field, Origin};
pub use dialect::{Dialect, DialectName, Rule};
pub use error::{ConfigProblem, Error};
pub use facts::{Fact, Facts};
pub use family::{FAMILIES, Family};
pub use layout::{Canonical, Export, InPlace, Layout, Named, Packed, Param, RuntimeLayout};
pub use param::{Axis, ParamSpec, Role};

/// A model as a checkpoint describes it: its family, its numbers, and the dialect it is stored in.
pub struct Model {
    /// The family.
    pub family: &'static dyn Family,
    /// The numbers, each with where it came from.
    pub config: Config,
    /// How the checkpoint names and lays out the parameters.
    pub dialect: DialectName,
}

impl Model {
    /// Finds the family and reads the configuration.
    ///
    /// # Errors
    /// If no family claims the architecture, or the configuration lacks or contradicts something: every
    /// problem at once.
    pub fn from_facts(facts: &dyn Facts) -> Result<Model, Error> {
        let (family, architecture) = family::find(facts)?;
        let mut reader = config::Reader::new(facts, &architecture);
        let config = family.config(&mut reader);
        let config = reader.finish(config)?;
        Ok(Model { family, config, dialect: facts.dialect() })
    }

    /// The canonical parameters, each as an expression over the entries of this dialect.
    pub fn bindings<'a>(&self, entries: impl Iterator<Item = &'a str> + Clone) -> tensor::Bindings {
        self.family.dialect(self.dialect).bindings(self.family, &self.config, entries)
    }

    /// What the engine runs.
    pub fn architecture(&self) -> Architecture {
        self.family.architecture(&self.config)
    }
}
