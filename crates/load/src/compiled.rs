//! A plan, and the checkpoint that it was compiled against.

use std::sync::Arc;

use checkpoint::{ByteSource, Checkpoint};
use plan::{LoadPlan, PlannedParam, Problem, Problems, Resolved, Summary};
use tensor::{Arrangement, Target};

use crate::digest;
use crate::io::executor::execute_into;
use crate::lent;
use crate::schedule::cut::needs;
use crate::schedule::home::{Home, homes};
use crate::{Allocated, Codecs, Digest, Error, LoadReport, Loaded, Needs, Options, Pool, Sink};

/// How to fill every slot, and the checkpoint to fill it from. A plan runs on no other checkpoint.
///
/// It keeps the checkpoint's files open. A file that is no longer what it was when it was opened is an error, when reading
/// begins and when it ends.
#[derive(Clone, Debug)]
pub struct Plan {
    checkpoint: Checkpoint,
    pieces: LoadPlan,
    arrangement: Arrangement,
    nameless: Vec<String>,
}

impl Plan {
    /// Lowers `targets`, over the parameters of `resolved`, to pieces of `checkpoint`'s entries. Reads nothing.
    ///
    /// # Errors
    /// Every problem at once: see [`plan::compile`].
    pub fn compile(
        checkpoint: &Checkpoint,
        resolved: &Resolved,
        targets: &[Target],
        arrangement: Arrangement,
    ) -> Result<Plan, Problems> {
        let pieces = plan::compile(checkpoint.entries(), resolved, targets, &Codecs)?;
        Ok(Plan { checkpoint: checkpoint.clone(), pieces, arrangement, nameless: vec![] })
    }

    /// Returns the plan with each parameter in memory at a multiple of the bytes that `align` gives. A shared slot
    /// meets the alignment of all its parameters.
    #[must_use]
    pub fn aligned(mut self, align: impl Fn(&PlannedParam) -> u64) -> Plan {
        for i in 0..self.pieces.params.len() {
            let wanted = align(&self.pieces.params[i]);
            let root = self.pieces.params[i].tied_to.unwrap_or(i);
            for at in [i, root] {
                let param = &mut self.pieces.params[at];
                param.align = param.align.max(wanted);
            }
        }
        self
    }

    /// The same, with the canonical parameters that the layout has no name for.
    #[must_use]
    pub fn with_nameless(self, nameless: Vec<String>) -> Plan {
        Plan { nameless, ..self }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the pieces of each parameter, and the entries without any.
    pub fn pieces(&self) -> &LoadPlan {
        &self.pieces
    }

    /// The parameters, in the order of the layout.
    pub fn params(&self) -> &[PlannedParam] {
        &self.pieces.params
    }

    /// The parameter called `name`.
    pub fn find(&self, name: &str) -> Option<&PlannedParam> {
        self.pieces.find(name).map(|(_, param)| param)
    }

    /// How the layout holds its parameters, as far as names, shapes and schemes do not say it.
    pub fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    /// Canonical parameters that the layout has no name for.
    pub fn nameless(&self) -> &[String] {
        &self.nameless
    }

    /// A digest of the plan. Equal headers, layout, mesh, encodings and revisions give equal digests on every machine and in
    /// every run. It covers neither the identities of the files nor the importance that a caller gives to a load.
    pub fn digest(&self) -> Digest {
        digest::of(&self.arrangement, self.checkpoint.entries(), self.params())
    }

    /// A summary: the bytes that the plan moves, changes and reads.
    pub fn summary(&self) -> Summary {
        plan::summary(&self.pieces, self.checkpoint.entries())
    }

    /// Describes how the parameter called `name` is made, as text for people.
    ///
    /// # Errors
    /// [`Problem::Unknown`] if there is no such parameter.
    pub fn explain(&self, name: &str) -> Result<String, Box<Problem>> {
        plan::explain(&self.pieces, self.checkpoint.entries(), name).map_err(Box::new)
    }

    /// The plan of the parameter at `index` alone; of the one whose slot it shares, if it shares one.
    ///
    /// # Panics
    /// If there is no parameter at `index`.
    #[must_use]
    pub fn one(&self, index: usize) -> Plan {
        let param = &self.params()[index];
        let root = param.tied_to.map_or(param, |root| &self.params()[root]);
        self.part(vec![root.clone()])
    }

    /// Returns the plan without the parameters that `keep` rejects. A parameter that shares the slot of a removed one
    /// gets its own.
    #[must_use]
    pub fn retain(&self, keep: impl Fn(&PlannedParam) -> bool) -> Plan {
        let mut params: Vec<PlannedParam> = vec![];
        // Where the slot of each parameter is now.
        let mut at: Vec<Option<usize>> = vec![None; self.params().len()];
        for (i, param) in self.params().iter().enumerate().filter(|(_, param)| keep(param)) {
            let root = param.tied_to.unwrap_or(i);
            let kept = match at[root] {
                Some(root) => PlannedParam { tied_to: Some(root), ..param.clone() },
                None => PlannedParam { name: param.name.clone(), ..self.params()[root].clone() },
            };
            at[root].get_or_insert(params.len());
            params.push(kept);
        }
        Plan { pieces: LoadPlan { params, ..self.pieces.clone() }, ..self.clone() }
    }

    /// The parameters `params` of this plan.
    pub(crate) fn part(&self, params: Vec<PlannedParam>) -> Plan {
        Plan {
            checkpoint: self.checkpoint.clone(),
            pieces: LoadPlan { params, ..LoadPlan::default() },
            arrangement: self.arrangement.clone(),
            nameless: vec![],
        }
    }

    /// Runs it: every slot filled once.
    ///
    /// # Errors
    /// If a file cannot be read, or has changed; if memory runs out, sources that must agree do not, a
    /// scheme's data cannot be meant, or an encoding cannot hold the values.
    pub fn load(&self, pool: &mut Pool) -> Result<Loaded, Error> {
        self.load_with(pool, Options::default())
    }

    /// As [`Plan::load`], with options: memory of its own for all parameters, a limit on buffers, someone to tell how far
    /// it is, who may end it.
    ///
    /// # Errors
    /// As [`Plan::load`], and if the caller ends it or allows too little memory.
    pub fn load_with(&self, pool: &mut Pool, options: Options<'_>) -> Result<Loaded, Error> {
        self.allocate(options)?.fill(pool)
    }

    /// Takes the parameters that a load would give memory of their own as they lie in `source`, which is mapped: each plane from
    /// the offset on that `at` gives for its parameter, by its place in the plan, and for the plane. All others are borrowed from the
    /// checkpoint, as [`Plan::borrowed`] says. Nothing is read. `None` if the source is not mapped, ends before, or does not
    /// hold a plane as it must be aligned.
    ///
    /// The bytes must be those of a load of this plan: what they are is not looked at.
    pub fn lent(
        &self,
        source: &Arc<dyn ByteSource>,
        at: impl Fn(usize, usize) -> Option<u64>,
    ) -> Option<Loaded> {
        lent::lent(&self.pieces, &self.checkpoint, &self.arrangement, source, at)
    }

    /// Allocates a place for each parameter. Reads nothing.
    ///
    /// # Errors
    /// If memory runs out, or no codec makes a change that the plan needs.
    pub fn allocate<'a, 'o>(&'a self, options: Options<'o>) -> Result<Allocated<'a, 'o>, Error> {
        Allocated::new(&self.pieces, &self.checkpoint, Some(&self.arrangement), options)
    }

    /// The needs of a load on `threads` threads. Reads and allocates nothing.
    ///
    /// The bytes of buffers are the most that threads can hold at once; if less than `least_scratch` is allowed, the load
    /// is refused. A caller's sink may lend memory that begins elsewhere within huge pages: work may then be cut elsewhere, and
    /// each thread may take up to 1 MiB more or less (4 MiB from a server).
    ///
    /// # Errors
    /// If a codec is missing, or sizes are beyond what this machine addresses.
    pub fn needs(&self, options: Options<'_>, threads: usize) -> Result<Needs, Error> {
        needs(&self.pieces, &self.checkpoint, options, threads, false)
    }

    /// The same for [`Plan::load_into`] a sink that takes all bytes by `write`: they wait in buffers until they are written.
    ///
    /// # Errors
    /// As [`Plan::needs`].
    pub fn needs_written(&self, options: Options<'_>, threads: usize) -> Result<Needs, Error> {
        needs(&self.pieces, &self.checkpoint, options, threads, true)
    }

    /// Returns for each parameter whether a load with `options` borrows it from a map. One that shares a slot is not.
    ///
    /// # Errors
    /// If a codec is missing.
    pub fn borrowed(&self, options: Options<'_>) -> Result<Vec<bool>, Error> {
        let homes = homes(&self.pieces, &self.checkpoint, !options.owned)?;
        Ok(homes.iter().map(|home| matches!(home, Home::Borrowed(_))).collect())
    }

    /// Runs it into `sink`: into memory that it lends, or by its `write`. Nothing is borrowed from a map.
    ///
    /// # Errors
    /// As [`Plan::load_with`], and if the sink refuses or fails. Only the parameters that the sink was told of are whole then;
    /// none is if a file has changed.
    pub fn load_into(
        &self,
        sink: &mut dyn Sink<'_>,
        pool: &mut Pool,
        options: Options<'_>,
    ) -> Result<LoadReport, Error> {
        execute_into(&self.pieces, &self.checkpoint, sink, pool, options)
    }
}
