//! The filters that make mel bands of the frequencies of a window.

use audio::{FrontEnd, LogMel};
use checkpoint::MelFilters;
use model::Model;

use super::FFT;
use crate::Error;
use crate::carry::narrow;

/// Those of every Whisper with as many bands as `model`.
pub(super) fn usual(model: &Model) -> Result<MelFilters, Error> {
    let wrong = |e: audio::Error| Error::Convert { what: e.to_string().into() };
    let mels = model.config().encoder.as_ref().map_or(0, |encoder| *encoder.mels);
    let bands = usize::try_from(mels).unwrap_or(usize::MAX);
    let mel = LogMel::new(FrontEnd::whisper(bands)).map_err(wrong)?;
    let frequencies = FFT / 2 + 1;
    let bins = usize::try_from(frequencies).unwrap_or(0);
    let factors = (0..bands).flat_map(|band| (0..bins).map(move |bin| (band, bin)));
    let factors = factors.map(|(band, bin)| narrow(mel.factor(band, bin))).collect();
    Ok(MelFilters { bands: mels, frequencies, factors })
}

/// Whether `own` are not the usual ones, but for rounding.
pub(super) fn differ(own: &MelFilters, model: &Model) -> Result<bool, Error> {
    let usual = usual(model)?;
    let alike = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
    Ok(own.bands != usual.bands
        || own.frequencies != usual.frequencies
        || !own.factors.iter().zip(&usual.factors).all(alike))
}
