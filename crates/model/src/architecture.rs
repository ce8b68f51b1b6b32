//! The description that the engine runs: what each module computes, by its path.

mod shapes;

use std::collections::BTreeMap;

use crate::computes::{AudioEncoder, Computes, Decoder, Encoder, NotRun};
use crate::module::Tree;
use crate::param::Role;

/// A model, as the engine runs it. Biases are not said: a matrix has one if and only if it is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    whole: Whole,
    modules: BTreeMap<String, Computes>,
    matrices: BTreeMap<String, MatrixNames>,
}

/// What the module that holds all others computes.
#[derive(Clone, Debug, PartialEq)]
enum Whole {
    Decoder(Decoder),
    Encoder(Encoder),
}

/// The matrix that a module holds, by the names that layouts give it: fused, or each part on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixNames {
    /// Its parts, one below the other, if it is fused, or itself: names without `.weight`, and their output features.
    pub parts: Vec<(String, u64)>,
    /// Input features.
    pub input: u64,
}

impl Architecture {
    /// Returns the computations of the modules of `tree`.
    ///
    /// # Errors
    /// If a module computes something that the engine does not run, does not declare its computation, or owns
    /// parameters of other shapes than that needs: every reason.
    pub fn of(tree: &Tree) -> Result<Architecture, NotRun> {
        let mut modules = BTreeMap::new();
        let mut reasons: Vec<&str> = vec![];
        for (path, computes) in tree.computed() {
            match computes {
                Ok(computes) => drop(modules.insert(path.clone(), computes.clone())),
                Err(NotRun { why }) if !reasons.contains(&&**why) => reasons.push(why),
                Err(_) => {}
            }
        }
        if !reasons.is_empty() {
            return Err(NotRun::new(reasons.join(", ")));
        }
        let whole = match modules.get("") {
            Some(Computes::Decoder(decoder)) => Whole::Decoder(decoder.clone()),
            Some(Computes::Encoder(encoder)) => Whole::Encoder(encoder.clone()),
            _ => return Err(NotRun::new("its modules do not say what they compute")),
        };
        let architecture = Architecture { whole, modules, matrices: matrices(tree) };
        if let Some(path) = architecture.unsaid() {
            return Err(NotRun::new(format!("`{path}` does not say what it computes")));
        }
        let wrong = shapes::wrong(&architecture, tree);
        if wrong.is_empty() { Ok(architecture) } else { Err(NotRun::new(wrong.join(", "))) }
    }

    /// The whole, if it gives logits.
    pub fn decoder(&self) -> Option<&Decoder> {
        match &self.whole {
            Whole::Decoder(decoder) => Some(decoder),
            Whole::Encoder(_) => None,
        }
    }

    /// The whole, if it gives vectors.
    pub fn encoder(&self) -> Option<&Encoder> {
        match &self.whole {
            Whole::Decoder(_) => None,
            Whole::Encoder(encoder) => Some(encoder),
        }
    }

    /// The module that gives the decoder vectors of sound, if it transcribes: [`AUDIO_ENCODER`](Self::AUDIO_ENCODER).
    pub fn audio_encoder(&self) -> Option<&AudioEncoder> {
        match self.get(Self::AUDIO_ENCODER) {
            Some(Computes::AudioEncoder(encoder)) => Some(encoder),
            _ => None,
        }
    }

    /// The path of the module that gives vectors of sound.
    pub const AUDIO_ENCODER: &'static str = "enc";

    /// The paths of all layers, those of sound first.
    fn layer_paths(&self) -> impl Iterator<Item = String> {
        let heard = self.audio_encoder().map_or(0, |encoder| encoder.layers);
        let heard = (0..heard).map(|n| format!("{}.layers.{n}", Self::AUDIO_ENCODER));
        heard.chain((0..self.layers()).map(|n| format!("layers.{n}")))
    }

    /// Tokens in the vocabulary.
    pub fn vocab(&self) -> u64 {
        match &self.whole {
            Whole::Decoder(decoder) => decoder.vocab,
            Whole::Encoder(encoder) => encoder.vocab,
        }
    }

    /// Elements of the residual stream.
    pub fn hidden(&self) -> u64 {
        match &self.whole {
            Whole::Decoder(decoder) => decoder.hidden,
            Whole::Encoder(encoder) => encoder.hidden,
        }
    }

    /// Positions that the model was trained for.
    pub fn context(&self) -> u64 {
        match &self.whole {
            Whole::Decoder(decoder) => decoder.context,
            Whole::Encoder(encoder) => encoder.context,
        }
    }

    /// The number of layers.
    pub fn layers(&self) -> u64 {
        match &self.whole {
            Whole::Decoder(decoder) => decoder.layers,
            Whole::Encoder(encoder) => encoder.layers,
        }
    }

    /// The computations of modules, by path.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &Computes)> {
        self.modules.iter().map(|(path, computes)| (path.as_str(), computes))
    }

    /// The computation of the module at `path`: of `layers.0.attention`, its attention.
    pub fn get(&self, path: &str) -> Option<&Computes> {
        self.modules.get(path)
    }

    /// The matrices that modules hold, by path.
    pub fn matrices(&self) -> impl Iterator<Item = (&str, &MatrixNames)> {
        self.matrices.iter().map(|(path, matrix)| (path.as_str(), matrix))
    }

    /// The matrix that the module at `path` holds.
    pub fn matrix(&self, path: &str) -> Option<&MatrixNames> {
        self.matrices.get(path)
    }

    /// Returns the first path that every such model has and for which no module declares a computation.
    fn unsaid(&self) -> Option<String> {
        let said = |path: &str, is: fn(&Computes) -> bool| self.get(path).is_some_and(is);
        let norm = |path: &str| said(path, |computes| matches!(computes, Computes::Norm(_)));
        let layer = |path: &str| {
            said(path, |computes| {
                matches!(
                    computes,
                    Computes::Attention(_)
                        | Computes::CrossAttention(_)
                        | Computes::LatentAttention(_)
                        | Computes::GatedDelta(_)
                        | Computes::FeedForward(_)
                        | Computes::Mixture(_)
                )
            })
        };
        if !said("token_embedding", |computes| matches!(computes, Computes::Embedding { .. })) {
            return Some("token_embedding".to_owned());
        }
        for path in self.layer_paths() {
            let Some(Computes::Residual(branches)) = self.get(&path) else { return Some(path) };
            for branch in branches {
                let at = |child: &str| format!("{path}.{child}");
                let norms = [branch.norm, branch.post_norm, branch.sum_norm].into_iter().flatten();
                let unsaid = norms.map(at).find(|path| !norm(path));
                if let Some(path) = unsaid.or_else(|| Some(at(branch.layer)).filter(|path| !layer(path))) {
                    return Some(path);
                }
            }
        }
        self.decoder()?;
        Some("output_norm".to_owned()).filter(|path| !norm(path))
    }
}

/// Every matrix that the modules of `tree` hold, by path.
fn matrices(tree: &Tree) -> BTreeMap<String, MatrixNames> {
    let specs = tree.declared().iter().map(|declared| (&*declared.spec.name, &declared.spec));
    let specs: BTreeMap<_, _> = specs.filter(|(_, spec)| spec.role == Role::Matrix).collect();
    let matrix = |names: Vec<&str>| {
        let mut matrix = MatrixNames { parts: vec![], input: 0 };
        for name in names {
            let [out, input] = &specs.get(name)?.axes[..] else { return None };
            // Matrices that are joined row by row need rows of one length.
            if !matrix.parts.is_empty() && matrix.input != input.extent {
                return None;
            }
            matrix.parts.push((name.strip_suffix(".weight")?.to_owned(), out.extent));
            matrix.input = input.extent;
        }
        Some(matrix)
    };
    let held = tree.held().iter();
    held.filter_map(|held| Some((held.name.strip_suffix(".weight")?.to_owned(), matrix(held.parts())?)))
        .collect()
}
