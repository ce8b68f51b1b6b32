//! Names and meaning, no bytes: a model's configuration, its parameters, their names and form in each ecosystem, and
//! their layout in a runtime.
//!
//! - A **family** ([`Family`]) declares hyper-parameters and modules: the parameters of each, and what it computes.
//!   One file and one line in `family/`; [`register`] adds one from outside.
//! - A **dialect** ([`Dialect`]) describes how an ecosystem names and lays out those parameters.
//! - A **layout** ([`Layout`]) describes how a runtime wants them, as expressions over canonical names.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a configuration: f64 as read, f32 as run; counts are at most 2^32"
)]

// The derive of `Module` names the crate that users add.
extern crate self as weighbridge;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod activation;
mod architecture;
mod computes;
pub mod config;
pub mod dialect;
mod ecosystem;
mod error;
mod facts;
pub mod family;
mod layout;
mod mesh;
pub mod module;
mod param;
mod rope;

pub use activation::Activation;
pub use architecture::{Architecture, MatrixNames};
pub use computes::{Computes, Norm, NotRun};
pub use config::describe::{Description, Loss};
pub use config::{Config, Delta, Encoder, Field, KeyVerdict, Latent, Moe, NotFollowed, Origin, Verdict};
pub use dialect::{Ambiguous, Dialect, Fit, How, Rule, add_one, better_fit};
pub use ecosystem::DialectName;
pub use error::{ConfigProblem, Error, FamilyProblem};
pub use facts::{Fact, Facts};
pub use family::{Family, families, register};
pub use layout::{Canonical, InPlace, Layout, Mlx, Modules, Named, Packed, Param, RuntimeLayout};
pub use mesh::{Ends, ExpertPlacement, Holding, Mesh, Rank, Share, Undivided, VOCAB_PADDING};
pub use module::{Module, Tree};
pub use param::{Along, Axis, Contract, ParamSpec, PipelinePlace, Role};
pub use rope::{Rope, RopeScaling, Yarn};

/// A model as a checkpoint describes it: its family, its numbers, and the dialect it is stored in.
#[derive(Clone)]
pub struct Model {
    /// The family.
    pub family: &'static dyn Family,
    config: Config,
    /// How the checkpoint names and lays out the parameters.
    pub dialect: DialectName,
    /// The verdicts on the keys that the configuration was read from.
    noted: BTreeMap<String, Verdict>,
    /// The declarations and parameters of its modules.
    tree: Arc<Tree>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("family", &self.family.name())
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Finds the family and reads the configuration.
    ///
    /// # Errors
    /// If no family claims the architecture, or the configuration lacks or contradicts something: every
    /// problem at once. If the family's modules and names contradict each other.
    pub fn from_facts(facts: &dyn Facts) -> Result<Model, Error> {
        let (family, architecture) = family::find(facts)?;
        let mut reader = config::Reader::new(facts, &architecture);
        let config = family.config(&mut reader);
        let (config, noted) = reader.finish(config)?;
        Model::of(family, config, facts.dialect(), noted)
    }

    fn of(
        family: &'static dyn Family,
        config: Config,
        dialect: DialectName,
        noted: BTreeMap<String, Verdict>,
    ) -> Result<Model, Error> {
        let tree = Tree::canonical(&*family.module(&config));
        let tree = family::checked(tree, family::dialect(family, dialect).as_ref())
            .map_err(|problems| Error::Family { family: family.name(), problems })?;
        Ok(Model { family, config, dialect, noted, tree: Arc::new(tree) })
    }

    /// The same model with another configuration.
    ///
    /// # Errors
    /// If the family's modules and names contradict each other then.
    pub fn with_config(&self, config: Config) -> Result<Model, Error> {
        Model::of(self.family, config, self.dialect, self.noted.clone())
    }

    /// The numbers, each with where it came from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The verdict on every key of `facts`, from which the model was read.
    pub fn verdicts(&self, facts: &dyn Facts) -> Vec<KeyVerdict> {
        config::verdict::verdicts(facts, &self.noted, self.family.without_effect(facts.dialect()))
    }

    /// The family that claims what the facts call the architecture, and the ecosystem, if one does.
    pub fn claimed(facts: &dyn Facts) -> Option<(&'static str, DialectName)> {
        family::find(facts).ok().map(|(family, _)| (family.name(), facts.dialect()))
    }

    /// Returns the metadata of this model in a checkpoint of `dialect`; `own` as in [`Family::describe`].
    /// [`Model::from_facts`] reads back the same configuration.
    pub fn describe(&self, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let mut description = self.family.describe(&self.config, dialect, own);
        for value in &self.config.not_followed {
            let what = format!("it is written as {}, which gives other results", value.wanted);
            description.lose(&value.key, "not_followed", what);
        }
        description
    }

    /// Returns the fields that differ from those of `other`: name, this model's value, the other's. Empty if both run
    /// alike.
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
        let (own, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (of(self).into_iter().collect(), of(other).into_iter().collect());
        let absent = || "absent".to_owned();
        unlike.extend(
            own.iter().map(|(name, value)| {
                (*name, value.clone(), theirs.get(name).cloned().unwrap_or_else(absent))
            }),
        );
        let only_theirs = theirs.iter().filter(|(name, _)| !own.contains_key(*name));
        unlike.extend(only_theirs.map(|(name, value)| (*name, absent(), value.clone())));
        // Said in other words in each ecosystem.
        unlike.retain(|(name, a, b)| a != b && !matches!(*name, "tied" | "attention_bias" | "ffn_bias"));
        unlike
    }

    /// Returns the fields that read from `description` differ from this model's, except those whose loss the
    /// description names.
    ///
    /// # Errors
    /// If nothing can be read from it.
    pub fn unsaid(&self, description: &Description) -> Result<Vec<(&'static str, String, String)>, Error> {
        let again = Model::from_facts(description)?;
        let lost = |field: &str| description.accounts_for(field);
        let mut unlike = self.unlike(&again);
        let windows = lost("window");
        unlike.retain(|(name, _, _)| !(lost(name) || windows && *name == "windowed"));
        Ok(unlike)
    }

    /// Every field of the configuration that its modules compute with, with its value and origin, for people.
    pub fn fields(&self) -> Vec<(&'static str, String, &Origin)> {
        let rotates = |what: &Result<Computes, NotRun>| match what {
            Ok(Computes::Attention(attention)) => attention.rope.is_some(),
            Ok(_) => false,
            Err(_) => true,
        };
        let rotates = self.tree.computed().iter().any(|(_, what)| rotates(what));
        let mut fields = self.config.fields();
        fields.retain(|(name, ..)| rotates || !name.starts_with("rope_"));
        fields
    }

    /// The declarations and parameters of its modules.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The canonical parameters, with logical axes.
    pub fn params(&self) -> impl Iterator<Item = &ParamSpec> {
        self.tree.declared().iter().map(|declared| &declared.spec)
    }

    /// Returns the canonical parameters as expressions over the entries of this dialect, whatever wrapper is around
    /// their names.
    ///
    /// # Errors
    /// If the names match the model's twice.
    pub fn bindings<'a>(
        &self,
        entries: impl Iterator<Item = &'a str>,
    ) -> Result<tensor::Bindings, Ambiguous> {
        self.bindings_in(self.dialect, entries)
    }

    /// The same over the entries of another ecosystem than the checkpoint's, such as those that an adapter changes.
    ///
    /// # Errors
    /// As [`Model::bindings`].
    pub fn bindings_in<'a>(
        &self,
        dialect: DialectName,
        entries: impl Iterator<Item = &'a str>,
    ) -> Result<tensor::Bindings, Ambiguous> {
        // A checkpoint of a dialect that the family is not in does not claim to be of the family.
        let Some(dialect) = family::dialect(self.family, dialect) else {
            return Ok(tensor::Bindings::default());
        };
        dialect.bindings(self.params(), &self.config, entries)
    }

    /// The part of the first axis of the entry called `name` that must be zero, and the number of equal parts: the model has no
    /// parameter for it.
    pub fn zeros_in(&self, name: &str) -> Option<(u64, u64)> {
        let dialect = family::dialect(self.family, self.dialect)?;
        let zeros = dialect.zeros.iter().find(|zeros| tensor::Pattern::new(zeros.entry).matches(name))?;
        Some((zeros.part, zeros.of))
    }

    /// Why files of `dialect` leave out the canonical parameter called `name`, if they do.
    pub fn left_out(&self, dialect: DialectName, name: &str) -> Option<&'static str> {
        let dialect = family::dialect(self.family, dialect)?;
        let fits = |(pattern, _): &&(&str, &str)| tensor::Pattern::new(*pattern).matches(name);
        dialect.without.iter().find(fits).map(|(_, why)| *why)
    }

    /// The entry of files of `dialect` that holds the canonical parameter called `name` and nothing else, if there is one.
    pub fn entry(&self, dialect: DialectName, name: &str) -> Option<String> {
        let dialect = family::dialect(self.family, dialect)?;
        let written = dialect.written(self.params(), &self.config, false).bindings;
        written.into_iter().find(|binding| binding.name == name).and_then(|binding| match binding.expr {
            tensor::Expr::Source(entry) => Some(entry),
            _ => None,
        })
    }

    /// Why files of `dialect` leave out a part of the canonical parameter called `name`, if they do.
    pub fn cut(&self, dialect: DialectName, name: &str) -> Option<&'static str> {
        let dialect = family::dialect(self.family, dialect)?;
        dialect.cut.iter().find(|(param, _)| *param == name).map(|(_, why)| *why)
    }

    /// Whether mlx-lm's names of some parameters differ from those of transformers.
    pub fn differs_in_mlx(&self) -> bool {
        self.family.dialect(DialectName::Hf).is_some_and(|dialect| dialect.differs_in_mlx())
    }

    /// Whether one of `names` is one that only mlx-lm has.
    pub fn is_named_as_mlx<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        self.family.dialect(DialectName::Hf).is_some_and(|dialect| dialect.is_named_as_mlx(names))
    }

    /// The description that the engine runs.
    ///
    /// # Errors
    /// If it does not run the model: why.
    pub fn architecture(&self) -> Result<Architecture, NotRun> {
        let architecture = Architecture::of(&self.tree)?;
        match &self.config.not_followed[..] {
            [] => Ok(architecture),
            list => Err(NotRun::new(list.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
        }
    }
}
