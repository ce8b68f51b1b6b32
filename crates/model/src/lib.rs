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

// The derive of `Module` names the crate that users add.
extern crate self as weighbridge;

mod architecture;
mod config;
mod dialect;
mod error;
mod facts;
mod family;
mod layout;
mod mesh;
pub mod module;
mod param;

pub use architecture::{
    Activation, Architecture, Attention, Norm, NotRun, Positions, Rope, RopeOrder, RopeScaling, Yarn,
};
pub use config::describe::Description;
pub use config::{Config, Encoder, Field, Latent, Moe, Origin};
pub use dialect::{Ambiguous, Dialect, DialectName, Fit, Rule, better_fit};
pub use error::{ConfigProblem, Error};
pub use facts::{Fact, Facts, Noting};
pub use family::{FAMILIES, Family};
pub use layout::{
    Canonical, Export, InPlace, Layout, Modules, Named, Packed, Param, RuntimeLayout, ShardedState, Vllm,
};
pub use mesh::{Ends, ExpertPlacement, Holding, Mesh, Rank, Share, Undivided, VOCAB_PADDING};
pub use module::{Module, Tree};
pub use param::{Along, Axis, ParamSpec, Place, Role};

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

    /// The family that claims what the facts call the architecture, and the ecosystem, if one does.
    pub fn claimed(facts: &dyn Facts) -> Option<(&'static str, DialectName)> {
        family::find(facts).ok().map(|(family, _)| (family.name(), facts.dialect()))
    }

    /// What a checkpoint of `dialect` says of this model; `own` as in [`Family::describe`]. [`Model::from_facts`]
    /// makes the same numbers of it.
    pub fn describe(&self, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        self.family.describe(&self.config, dialect, own)
    }

    /// The fields that differ from those of `other`: name, this model's value, the other's. None if both run alike.
    pub fn unlike(&self, other: &Model) -> Vec<(&'static str, String, String)> {
        let same_family = self.family.name() == other.family.name();
        if let (true, Ok(one), Ok(another)) = (same_family, self.architecture(), other.architecture())
            && one == another
        {
            return vec![];
        }
        let mut unlike = vec![("family", self.family.name().to_owned(), other.family.name().to_owned())];
        let of = |model: &Model| {
            model.config.fields().into_iter().map(|(name, value, _)| (name, value)).collect::<Vec<_>>()
        };
        let theirs: std::collections::HashMap<_, _> = of(other).into_iter().collect();
        unlike.extend(of(self).into_iter().map(|(name, value)| {
            (name, value, theirs.get(name).cloned().unwrap_or_else(|| "absent".to_owned()))
        }));
        // Said in other words in each ecosystem.
        unlike.retain(|(name, a, b)| a != b && *name != "tied");
        unlike
    }

    /// What its modules declare and hold.
    pub fn tree(&self) -> Tree {
        self.family.tree(&self.config)
    }

    /// The canonical parameters, each as an expression over the entries of this dialect, whatever wrapper stands around
    /// their names.
    ///
    /// # Errors
    /// If the names are the model's twice.
    pub fn bindings<'a>(
        &self,
        entries: impl Iterator<Item = &'a str>,
    ) -> Result<tensor::Bindings, Ambiguous> {
        // A checkpoint of a dialect that the family is not in does not claim to be of the family.
        let Some(dialect) = self.family.dialect(self.dialect) else { return Ok(tensor::Bindings::default()) };
        dialect.bindings(self.family, &self.config, entries)
    }

    /// Why files of `dialect` leave out the canonical parameter called `name`, if they do.
    pub fn left_out(&self, dialect: DialectName, name: &str) -> Option<&'static str> {
        let dialect = self.family.dialect(dialect)?;
        let fits = |(pattern, _): &&(&str, &str)| tensor::Pattern::new(*pattern).matches(name);
        dialect.without.iter().find(fits).map(|(_, why)| *why)
    }

    /// What the engine runs.
    ///
    /// # Errors
    /// If it does not run the model: why.
    pub fn architecture(&self) -> Result<Architecture, NotRun> {
        self.family.architecture(&self.config)
    }
}
