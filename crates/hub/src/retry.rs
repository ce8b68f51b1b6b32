//! How long to wait before a request is made again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest that a server may ask to wait. The limits of the hub are for windows of five minutes.
pub(crate) const LONGEST: Duration = Duration::from_mins(6);

/// How often, and how long to wait between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Tries that bring nothing, in a row.
    pub(crate) tries: u32,
    /// The wait after the first; it doubles.
    pub(crate) first: Duration,
}

impl Patience {
    /// The wait after the try number `tried`, counted from 1, or what the server asks for. Half to all of it, at random, so that
    /// clients that failed together do not come back together.
    pub(crate) fn wait(&self, tried: u32, asked: Option<Duration>) -> Duration {
        let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
        match asked {
            Some(asked) => asked + self.first.mul_f64(random),
            None => {
                let whole = self.first.saturating_mul(1 << tried.saturating_sub(1).min(6));
                whole.mul_f64(0.5 + random / 2.0)
            }
        }
    }
}

/// Reads the header `Retry-After`: seconds, or a date.
pub(crate) fn after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    // `Wed, 21 Oct 2015 07:28:00 GMT`, RFC 9110, 5.6.7.
    let (_, date) = value.split_once(", ")?;
    let mut words = date.split([' ', ':']);
    let mut number = || words.next()?.parse::<u64>().ok();
    let day = number()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let name = date.split(' ').nth(1)?;
    let month = 1 + months.iter().position(|month| *month == name)? as u64;
    let mut rest = date.split([' ', ':']).skip(2);
    let mut number = || rest.next()?.parse::<u64>().ok();
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    if !(1970..10_000).contains(&year) || day > 31 || hour > 24 || minute > 60 || second > 60 {
        return None;
    }
    // Days since 1970: years that begin in March put the leap day last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = (365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day).checked_sub(719_469)?;
    let then = UNIX_EPOCH + Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second);
    Some(then.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_say_when_to_come_back() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_480 - 90); // 07:26:30
        assert_eq!(after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(after(" 0.5 ", now), Some(Duration::from_millis(500)));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(90)));
        assert_eq!(after("Wed, 21 Oct 2015 07:26:00 GMT", now), Some(Duration::ZERO));
        let leap = UNIX_EPOCH + Duration::from_hours(24 * 11_016); // 2000-02-29
        assert_eq!(after("Wed, 01 Mar 2000 00:00:01 GMT", leap), Some(Duration::from_secs(86_401)));
        for wrong in
            ["", "soon", "-1", "NaN", "1e300", "Wed, 21 Foo 2015 07:28:00 GMT", "Wed, 21 Oct 99999 0:0:0 GMT"]
        {
            assert_eq!(after(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn waits_grow_and_differ() {
        let patience = Patience { tries: 5, first: Duration::from_millis(100) };
        for (tried, least, most) in [(1, 50, 100), (2, 100, 200), (4, 400, 800), (40, 3200, 6400)] {
            let wait = patience.wait(tried, None).as_millis();
            assert!((least..=most).contains(&wait), "{tried}: {wait}");
        }
        let waits: std::collections::BTreeSet<_> = (0..8).map(|_| patience.wait(3, None)).collect();
        assert!(waits.len() > 1);
        assert!(patience.wait(1, Some(Duration::from_secs(3))) >= Duration::from_secs(3));
    }
}
