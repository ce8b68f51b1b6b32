//! Axes of plots: from values to places, and round numbers along the way.

use weighbridge::tensor::Bytes;

/// A direction of a plot.
pub(super) struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
    ticks: Vec<(f64, String)>,
}

/// Marks along an axis, about.
const TICKS: f64 = 5.0;

impl Axis {
    /// From the least of `values` to the largest, with some room on both sides, and marks as `shown`.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>) -> Axis {
        let (least, most) = range(values, |_| true).unwrap_or((0.0, 1.0));
        let room = (most - least).max(most.abs() * 1e-3).max(1e-9) * 0.08;
        Axis::of(least - room, most + room)
    }

    /// From 0 to the largest of `values`.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>) -> Axis {
        let (_, most) = range(values, |value| value > 0.0).unwrap_or((0.0, 1.0));
        Axis::of(0.0, most * 1.05)
    }

    /// Shares: from the least of `values` to 1, in percent.
    pub(super) fn shares(values: impl IntoIterator<Item = f64>) -> Axis {
        let (least, _) = range(values, |_| true).unwrap_or((0.0, 1.0));
        let least = least.min(1.0);
        let room = (1.0 - least).max(1e-3) * 0.08;
        let percent = Axis::of((100.0 * (least - room)).max(0.0), 100.0);
        let ticks = percent.ticks.into_iter().map(|(at, text)| (at / 100.0, format!("{text} %"))).collect();
        Axis { from: percent.from / 100.0, to: 1.0, is_log: false, ticks }
    }

    /// Bytes: with some room on both sides.
    pub(super) fn bytes(values: impl IntoIterator<Item = f64>) -> Axis {
        let (least, most) = range(values, |_| true).unwrap_or((0.0, 1.0));
        let room = (most - least).max(most * 0.05).max(1.0) * 0.1;
        let (from, to) = ((least - room).max(0.0), most + room);
        let mut unit = 1.0;
        while to / unit >= 1024.0 && unit < 1e12 {
            unit *= 1024.0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size, rounded to be shown"
        )]
        let shown = |at: f64| Bytes(at.round() as u64).to_string();
        let ticks = steps(from / unit, to / unit).into_iter().map(|at| at * unit);
        Axis { from, to, is_log: false, ticks: ticks.map(|at| (at, shown(at))).collect() }
    }

    /// By powers of ten, over the values above 0. Others are at its start.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Axis {
        let (least, most) = range(values, |value| value > 0.0).unwrap_or((0.1, 10.0));
        let (from, to) = (least / 1.5, most * 1.5);
        let all = tens(from, to, &[1, 2, 5]);
        let ticks = if all.len() > 7 { tens(from, to, &[1]) } else { all };
        Axis { from, to, is_log: true, ticks: ticks.into_iter().map(|at| (at, at.to_string())).collect() }
    }

    fn of(from: f64, to: f64) -> Axis {
        let ticks = steps(from, to);
        let step = ticks.get(1).zip(ticks.first()).map_or(1.0, |(b, a)| b - a);
        let digits = (0..9).find(|digits| step * 10f64.powi(*digits) > 0.999).unwrap_or(9);
        let shown = |at: &f64| format!("{at:.0$}", usize::try_from(digits).unwrap_or(0));
        Axis { from, to, is_log: false, ticks: ticks.iter().map(|at| (*at, shown(at))).collect() }
    }

    /// Where `value` is, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// The places of round numbers, with their text.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().map(|(at, text)| (self.place(*at), text.as_str()))
    }
}

/// The least and the largest of the values that are finite and that `counts` takes.
fn range(values: impl IntoIterator<Item = f64>, counts: fn(f64) -> bool) -> Option<(f64, f64)> {
    let values = values.into_iter().filter(|value| value.is_finite() && counts(*value));
    values.map(|value| (value, value)).reduce(|(least, most), (value, _)| (least.min(value), most.max(value)))
}

/// Multiples of 1, 2 or 5 times a power of ten, between the two.
fn steps(from: f64, to: f64) -> Vec<f64> {
    let raw = (to - from) / TICKS;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= raw * 0.99);
    let step = step.unwrap_or(10.0 * power);
    let first = (from / step).ceil();
    // A tick is a multiple, not a sum: nothing adds up.
    (0..20).map(|n| (first + f64::from(n)) * step).take_while(|at| *at <= to + step * 1e-9).collect()
}

/// `heads` times powers of ten, between the two.
fn tens(from: f64, to: f64, heads: &[u32]) -> Vec<f64> {
    // Parsed, so that it is the number that its text says.
    let all = (-12..12).flat_map(|power| heads.iter().map(move |head| format!("{head}e{power}")));
    all.filter_map(|text| text.parse::<f64>().ok()).filter(|at| (from..=to).contains(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|(_, text)| text).collect()
    }

    #[test]
    fn marks_are_round_and_in_their_place() {
        assert_eq!(texts(&Axis::from_zero([3.0, 7.9])), ["0", "2", "4", "6", "8"]);
        assert_eq!(texts(&Axis::linear([20.1, 20.4])), ["20.1", "20.2", "20.3", "20.4"]);
        assert_eq!(texts(&Axis::shares([0.62, 0.9])), ["60 %", "70 %", "80 %", "90 %", "100 %"]);
        assert_eq!(texts(&Axis::log([0.002, 0.3])), ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]);
        assert_eq!(texts(&Axis::log([0.00002, 30.0])), ["0.0001", "0.001", "0.01", "0.1", "1", "10"]);
        let mib = f64::from(1 << 20);
        assert_eq!(
            texts(&Axis::bytes([70.0 * mib, 100.0 * mib])),
            ["70.0 MiB", "80.0 MiB", "90.0 MiB", "100 MiB"]
        );
        let axis = Axis::log([1.0, 100.0]);
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(
            [axis.place(0.0), axis.place(f64::NAN), axis.place(1e9)].map(|p| p > 0.5),
            [false, false, true]
        );
    }

    #[test]
    fn any_values_have_an_axis() {
        for values in [&[][..], &[0.0], &[5.0, 5.0], &[f64::NAN, f64::INFINITY], &[-3.0, 1e-300], &[1e18]] {
            let all = || values.iter().copied();
            for axis in [
                Axis::linear(all()),
                Axis::from_zero(all()),
                Axis::log(all()),
                Axis::bytes(all()),
                Axis::shares(all()),
            ] {
                assert!(axis.ticks().all(|(place, _)| (0.0..=1.0).contains(&place)));
                assert!(axis.from < axis.to && axis.ticks.len() < 25, "{values:?}");
                assert!(all().all(|value| (0.0..=1.0).contains(&axis.place(value))));
            }
        }
    }
}
