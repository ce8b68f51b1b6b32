//! What OpenAI's files of Whisper say beside their weights, which whisper.cpp keeps.

/// The sizes of a model of OpenAI, and what whisper.cpp puts beside them.
#[derive(Clone, Debug, Default)]
pub struct OpenaiMetadata {
    pub(super) dims: Vec<(String, i64)>,
    pub(super) tokens: Vec<Vec<u8>>,
    pub(super) filters: Option<MelFilters>,
}

/// The filters that make mel bands of frequencies, as whisper.cpp's files hold them.
#[derive(Clone, Debug, PartialEq)]
pub struct MelFilters {
    /// Mel bands.
    pub bands: u64,
    /// Frequencies.
    pub frequencies: u64,
    /// A factor for each frequency of each band.
    pub factors: Vec<f32>,
}

impl OpenaiMetadata {
    /// Creates the metadata of a new file of whisper.cpp: sizes without the file's type, the bytes of each token by id, and the filters.
    pub fn new(dims: Vec<(String, i64)>, tokens: Vec<Vec<u8>>, filters: MelFilters) -> OpenaiMetadata {
        OpenaiMetadata { dims, tokens, filters: Some(filters) }
    }

    /// The sizes, such as `n_audio_layer`, in the order of the file.
    pub fn dims(&self) -> impl Iterator<Item = (&str, i64)> {
        self.dims.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The size called `name`.
    pub fn dim(&self, name: &str) -> Option<i64> {
        self.dims().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The bytes of each token, by id, without tokens of a meaning; none in PyTorch's files.
    pub fn tokens(&self) -> &[Vec<u8>] {
        &self.tokens
    }

    /// The filters for sound, which PyTorch's files do not hold.
    pub fn filters(&self) -> Option<&MelFilters> {
        self.filters.as_ref()
    }
}

/// Sizes that a Whisper has, and no other model does.
pub(super) const SIGNS: [&str; 2] = ["n_audio_state", "n_text_state"];
