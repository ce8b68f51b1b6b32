//! Families that programs add.

use std::collections::{BTreeMap, HashSet};
use std::sync::{PoisonError, RwLock};

use tensor::{Pattern, Presence};

use super::claim::{MULTIMODAL, claims};
use super::{FAMILIES, Family};
use crate::dialect::{Dialect, Rule};
use crate::module::{Declared, TwoOwners};
use crate::{DialectName, Error, FamilyProblem, Tree};

/// Families that programs have added.
static OWN: RwLock<Vec<&'static dyn Family>> = RwLock::new(Vec::new());

/// Returns every family: this crate's, then those that programs have added.
pub fn families() -> Vec<&'static dyn Family> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    FAMILIES.iter().chain(own.iter()).copied().collect()
}

/// Adds a family of your own: from now on, checkpoints of its architectures are described, planned, sharded, converted
/// and, if the engine has its layers, run like those of any other.
///
/// Each checkpoint has one family. So a name or an architecture of another family is rejected: a family cannot take
/// checkpoints from the families that are already known.
///
/// # Errors
/// Every problem of the family's declaration, as [`FamilyProblem`]. The family is not added then.
pub fn register(family: &'static dyn Family) -> Result<(), Error> {
    let mut problems = vec![];
    if family.gguf().is_empty() && family.hf().is_empty() {
        problems.push(FamilyProblem::ClaimsNothing);
    }
    for dialect in BOTH {
        match family.dialect(dialect) {
            Some(found) if found.name == dialect => problems.extend(wrong_rules(&found)),
            Some(found) => problems.push(FamilyProblem::OtherDialect { dialect, found: found.name }),
            None if claims(family, dialect).is_empty() => {}
            None => problems.push(FamilyProblem::NoDialect { dialect }),
        }
    }
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    let known: Vec<&dyn Family> = FAMILIES.iter().chain(own.iter()).copied().collect();
    if known.iter().any(|other| other.name() == family.name()) {
        problems.push(FamilyProblem::NameTaken);
    }
    problems.extend(BOTH.into_iter().flat_map(|dialect| claimed_twice(family, dialect, &known)));
    if problems.is_empty() {
        own.push(family);
        return Ok(());
    }
    Err(Error::Family { family: family.name(), problems })
}

const BOTH: [DialectName; 2] = [DialectName::Gguf, DialectName::Hf];

/// The architectures of `family` that another family claims in `dialect`.
fn claimed_twice(family: &dyn Family, dialect: DialectName, known: &[&dyn Family]) -> Vec<FamilyProblem> {
    let problem = |name: &&'static str| {
        let by = known.iter().find(|other| claims(**other, dialect).contains(name)).map(|other| other.name());
        let parts = dialect == DialectName::Hf && MULTIMODAL.contains(name);
        (by.is_some() || parts).then_some(FamilyProblem::Claimed { dialect, architecture: name, by })
    };
    claims(family, dialect).iter().filter_map(problem).collect()
}

/// Rules whose holes cannot be filled.
fn wrong_rules(dialect: &Dialect) -> Vec<FamilyProblem> {
    let problem = |rule: &Rule| {
        let (param, entry) = (rule.param(), rule.entry());
        let other = |text: &str, known: &[&str]| {
            let rest = known.iter().fold(text.to_owned(), |text, hole| text.replace(hole, ""));
            rest.contains(['{', '}'])
        };
        let why = if other(param, &["{n}"]) {
            "a parameter has no hole but `{n}`"
        } else if other(entry, &["{n}", "{e}"]) {
            "an entry has no holes but `{n}` and `{e}`"
        } else if entry.contains("{n}") && !param.contains("{n}") {
            "the entry has the number of a layer, and the parameter is in none"
        } else if entry.matches("{e}").count() > 1 {
            "`{e}` is there twice"
        } else {
            return None;
        };
        Some(FamilyProblem::Rule { dialect: dialect.name, param, entry, why })
    };
    dialect.rules().filter_map(problem).collect()
}

/// Returns the modules' declarations for one configuration if they agree with the rules of the checkpoint's dialect.
pub(crate) fn checked(
    tree: Result<Tree, Vec<TwoOwners>>,
    dialect: Option<&Dialect>,
) -> Result<Tree, Vec<FamilyProblem>> {
    let two = |TwoOwners { name, owners }| FamilyProblem::TwoOwners { name, owners };
    let tree = tree.map_err(|problems| problems.into_iter().map(two).collect::<Vec<_>>())?;
    let Some(dialect) = dialect else { return Ok(tree) };
    let named: HashSet<&str> = dialect.rules().map(Rule::param).collect();
    // Of each parameter that modules own, and whether a checkpoint must have it.
    let mut owned: BTreeMap<String, bool> = BTreeMap::new();
    for Declared { spec, .. } in tree.declared() {
        *owned.entry(Pattern::of(&spec.name).to_string()).or_default() |= spec.presence == Presence::Required;
    }
    let without = |param: &str| {
        dialect.without.iter().any(|(pattern, _)| *pattern == param || Pattern::new(*pattern).matches(param))
    };
    let unowned: Vec<&str> = named.iter().copied().filter(|param| !owned.contains_key(*param)).collect();
    let nameless = |(param, required): (&String, &bool)| {
        let lacks = *required && !named.contains(param.as_str()) && !without(param);
        let nearest = || tensor::nearest(param, unowned.iter().copied()).map(str::to_owned);
        lacks.then(|| FamilyProblem::Nameless {
            dialect: dialect.name,
            param: param.clone(),
            nearest: nearest(),
        })
    };
    let problems: Vec<FamilyProblem> = owned.iter().filter_map(nameless).collect();
    if problems.is_empty() { Ok(tree) } else { Err(problems) }
}
