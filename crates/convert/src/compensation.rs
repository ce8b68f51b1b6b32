//! Encoding that makes the errors of columns good by the columns after them, as GPTQ does.
//!
//! How the columns of an input go together is a table of `k × k` numbers. The tables of all inputs of a large model do not fit into
//! memory: they are made when a matrix is encoded, as many at once as there is room for, and dropped when other matrices come. Each time
//! the model is run on the text again.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use checkpoint::Checkpoint;
use engine::calibrate::SharedInput;
use planner::{Adapter, describe};
use quant::{Feedback, Gram};
use tensor::{Bytes, Diagnostic};

use crate::names::Names;
use crate::{Error, Imatrix, Scaling};

/// The share of the mean square of all inputs that is added to the square of each. GPTQ adds the same.
const DAMPING: f64 = 0.01;

/// The canonical name of the table of tokens, which is the output matrix of some models.
const TABLE: &str = "token_embedding.weight";

/// Runs the model on the text and sums the products of some inputs, in their order.
pub type Summing<'a> = dyn FnMut(&[&SharedInput]) -> Result<Vec<Gram>, Error> + 'a;

/// Gives the feedback of each matrix that is encoded.
pub trait Feedbacks {
    /// The number of columns of each matrix in which errors are made good, by the name of GGUF.
    fn columns(&self) -> Vec<(&str, usize)>;

    /// The feedback of the first of `coming`, matrices by their names in GGUF. If it must be made, it may be made together with those of
    /// the next ones.
    ///
    /// # Errors
    /// If the model cannot be run, inputs are not numbers, or memory runs out.
    fn feedback(&self, coming: &mut dyn Iterator<Item = &str>) -> Result<Option<Arc<Feedback>>, Error>;

    /// Identifies these feedbacks.
    fn identity(&self) -> &str;
}

/// How the errors of columns make each other good, for each matrix.
pub struct Compensation<'a> {
    inputs: Vec<Input>,
    /// The input of each matrix, by the name of GGUF.
    of: HashMap<String, usize>,
    /// Bytes for all tables together.
    room: u64,
    threads: usize,
    identity: String,
    state: RefCell<State<'a>>,
}

struct Input {
    shared: SharedInput,
    /// The weight of an error that counts alone.
    lookup: f64,
    /// By what its columns are divided.
    factors: Option<Vec<f32>>,
}

struct State<'a> {
    /// By the places of inputs.
    ready: BTreeMap<usize, Arc<Feedback>>,
    sum: Box<Summing<'a>>,
    passes: usize,
}

impl fmt::Debug for Compensation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compensation").field("matrices", &self.of.len()).finish_non_exhaustive()
    }
}

/// The text, and what may be taken to make tables of it.
#[derive(Clone, Debug)]
pub struct CompensationOptions {
    /// Bytes for all tables together.
    pub room: u64,
    /// Threads that factor them.
    pub threads: usize,
    /// Identifies the text, and the way in which it is run.
    pub text: Vec<u8>,
}

impl<'a> Compensation<'a> {
    /// Compensates in the matrices of `checkpoint` with these `inputs`, whose products `sum` gives, with their columns divided as
    /// `scaling` says. The output matrix of some models is their table of tokens too: an error in it also counts alone, as much as
    /// `imatrix` says. If `imatrix` does not say it, that matrix is left out.
    ///
    /// # Errors
    /// If the family has no names in GGUF, or there is no room for the largest input.
    pub fn new(
        checkpoint: &Checkpoint,
        inputs: Vec<SharedInput>,
        imatrix: Option<&Imatrix>,
        scaling: Option<&Scaling>,
        options: CompensationOptions,
        sum: Box<Summing<'a>>,
    ) -> Result<Compensation<'a>, Error> {
        let CompensationOptions { room, threads, text } = options;
        Compensation::check(&inputs, room)?;
        let names = Names::canonical(checkpoint, &describe(checkpoint)?, &Adapter::default())?;
        let (mut kept, mut of) = (vec![], HashMap::new());
        let mut identity = blake3::hash(&text).to_hex().to_string();
        for shared in inputs {
            let sensitivities = shared.names.iter().filter_map(|name| imatrix?.sensitivity(names.of(name)));
            let by = sensitivities.reduce(|a, b| if b.lookup > a.lookup { b } else { a });
            let looked_up = shared.names.iter().any(|name| names.of(name) == names.of(TABLE));
            let lookup = match by {
                _ if !looked_up => 0.0,
                Some(by) if by.lookup > 0.0 && by.product > 0.0 => {
                    by.lookup / by.product / shared.rows as f64
                }
                _ => continue,
            };
            let factors = shared.names.iter().find_map(|name| scaling?.factors(names.of(name)));
            of.extend(shared.names.iter().map(|name| (names.of(name).to_owned(), kept.len())));
            // Writing to a `String` cannot fail.
            let _ = write!(identity, "\n{} {:016x}", shared.names.join(" "), lookup.to_bits());
            kept.push(Input { lookup, factors: factors.map(<[f32]>::to_vec), shared });
        }
        let state = RefCell::new(State { ready: BTreeMap::new(), sum, passes: 0 });
        Ok(Compensation { inputs: kept, of, room, threads, identity, state })
    }

    /// Checks that `room` bytes are enough for the largest of `inputs` alone.
    ///
    /// # Errors
    /// If they are not, with the numbers.
    pub fn check(inputs: &[SharedInput], room: u64) -> Result<(), Error> {
        let Some(largest) = inputs.iter().max_by_key(|input| input.k) else { return Ok(()) };
        let wanted = wanted(&[largest.k]);
        if wanted <= room {
            return Ok(());
        }
        let (name, k) = (largest.names.first().map_or("", String::as_str), largest.k);
        let (wanted, room) = (Bytes(wanted), Bytes(room));
        let what = format!(
            "errors of `{name}`, of {k} columns, need {wanted} to be made good; {room} are available"
        );
        let what = Diagnostic::new(what).with_hint("do without GPTQ, or allow more memory".to_owned());
        Err(Error::Convert { what: what.into() })
    }

    /// The most bytes that all tables together take.
    pub fn most_bytes(&self) -> u64 {
        let ks: Vec<usize> = self.inputs.iter().map(|input| input.shared.k).collect();
        wanted(&ks).min(self.room)
    }

    /// How often the text was run so far.
    pub fn passes(&self) -> usize {
        self.state.borrow().passes
    }
}

impl Feedbacks for Compensation<'_> {
    fn columns(&self) -> Vec<(&str, usize)> {
        self.of.iter().map(|(name, input)| (name.as_str(), self.inputs[*input].shared.k)).collect()
    }

    fn feedback(&self, coming: &mut dyn Iterator<Item = &str>) -> Result<Option<Arc<Feedback>>, Error> {
        let mut coming = coming.map(|name| self.of.get(name).copied());
        let Some(Some(first)) = coming.next() else { return Ok(None) };
        let mut state = self.state.borrow_mut();
        if let Some(ready) = state.ready.get(&first) {
            return Ok(Some(Arc::clone(ready)));
        }
        let mut chosen = vec![first];
        for input in coming.flatten() {
            if chosen.contains(&input) {
                continue;
            }
            chosen.push(input);
            let ks: Vec<usize> = chosen.iter().map(|input| self.inputs[*input].shared.k).collect();
            if wanted(&ks) > self.room {
                chosen.pop();
                break;
            }
        }
        state.ready.retain(|input, _| chosen.contains(input));
        chosen.retain(|input| !state.ready.contains_key(input));
        let inputs: Vec<&SharedInput> = chosen.iter().map(|input| &self.inputs[*input].shared).collect();
        let grams = (state.sum)(&inputs)?;
        state.passes += 1;
        for (place, gram) in chosen.into_iter().zip(grams) {
            let feedback = self.inputs[place].factored(gram, self.threads)?;
            state.ready.insert(place, Arc::new(feedback));
        }
        Ok(state.ready.get(&first).map(Arc::clone))
    }

    fn identity(&self) -> &str {
        &self.identity
    }
}

impl Input {
    fn factored(&self, mut gram: Gram, threads: usize) -> Result<Feedback, Error> {
        if let Some(factors) = &self.factors {
            gram.divide(factors);
        }
        Feedback::of(&gram, DAMPING, self.lookup, threads).ok_or_else(|| {
            let of = self.shared.names.join("`, `");
            Error::Convert {
                what: Diagnostic::new(format!("the inputs of `{of}` cannot be factored")).into(),
            }
        })
    }
}

/// The most bytes that tables of inputs of these lengths take, while they are made one after the other: a table of floats for each, and
/// beside them what the largest takes to be factored, a table of doubles and one of floats.
fn wanted(ks: &[usize]) -> u64 {
    let all = ks.iter().map(|k| Gram::bytes(*k)).fold(0, u64::saturating_add);
    let largest = ks.iter().map(|k| Gram::bytes(*k)).max().unwrap_or(0);
    all.saturating_add(largest.saturating_mul(3))
}
