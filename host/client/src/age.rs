//! Formats durations as kubectl does, such as `5m30s`, `3h` or `12d`: at most two units.

use jiff::Timestamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Time since `then`; `0s` if it is in the future.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second());
    human_duration(u64::try_from(seconds).unwrap_or_default())
}

/// Time until `then`, or `expired`.
pub(crate) fn time_left(then: Timestamp, now: Timestamp) -> String {
    let seconds = then.as_second().saturating_sub(now.as_second());
    match u64::try_from(seconds) {
        Ok(0) | Err(_) => "expired".to_owned(),
        Ok(seconds) => human_duration(seconds),
    }
}

/// Source: Kubernetes, `apimachinery/pkg/util/duration.HumanDuration`.
fn human_duration(seconds: u64) -> String {
    let two = |large: u64, unit: &str, small: u64, next: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{next}"),
    };
    let (minutes, hours, days) = (seconds / MINUTE, seconds / HOUR, seconds / DAY);
    match seconds {
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % MINUTE, "s"),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2_920 => two(seconds / YEAR, "y", days % 365, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{DAY, HOUR, MINUTE, YEAR, age, human_duration, time_left};

    #[test]
    fn durations_are_abbreviated_as_in_kubectl() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (5 * MINUTE + 30, "5m30s"),
            (10 * MINUTE + 30, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR + 20 * MINUTE, "3h20m"),
            (8 * HOUR + MINUTE, "8h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR + DAY, "8y"),
        ] {
            assert_eq!(human_duration(seconds), expected);
        }
    }

    #[test]
    fn a_time_in_the_past_has_expired() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(
            (time_left(at(10), at(5)), time_left(at(5), at(5))),
            ("5s".into(), "expired".into())
        );
        assert_eq!((age(at(5), at(10)), age(at(10), at(5))), ("5s".into(), "0s".into()));
    }
}
