//! Reads from issuers' answers when a credential expires.
//!
//! Invariant: of several expiries the earliest counts.

use jiff::Timestamp;
use serde_json::Value;

use crate::{Instant, Secret};

/// 9999-12-31T23:59:59Z. Later instants are cut to it.
const LATEST: u64 = 253_402_300_799_000;

/// When a credential expires, and whether it may be used more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// When the credential expires. `None` if the issuer does not say.
    pub at: Option<Instant>,
    /// Whether the credential may be used more than once.
    pub cacheable: bool,
    /// A warning for the operator.
    pub warning: Option<String>,
}

impl Expiry {
    /// The expiry is unknown; the credential may be cached.
    pub fn unknown() -> Self {
        Self {
            at: None,
            cacheable: true,
            warning: None,
        }
    }

    /// Expires at `instant`. A credential that has expired by `now` is not cacheable.
    pub fn at(instant: Instant, now: Instant) -> Self {
        let end = instant.clamp(now, LATEST);
        Self {
            at: Some(end),
            cacheable: end > now,
            warning: None,
        }
    }

    /// Reads a member such as `expires_in`: seconds from `now`, as a number or a numeric string.
    /// With 0 or less the credential is not cacheable. Any other value is unknown, with a warning
    /// that names the member `name`.
    pub fn after(value: Option<&Value>, name: &str, now: Instant) -> Self {
        match value {
            None | Some(Value::Null) => Self::unknown(),
            Some(value) => match seconds(value) {
                Some(seconds) => Self::at(now.saturating_add(millis(seconds)), now),
                None => Self::unparseable(name),
            },
        }
    }

    /// Reads a member called `name` that is a date of RFC 3339.
    pub fn rfc3339(value: Option<&Value>, name: &str, now: Instant) -> Self {
        match value {
            None | Some(Value::Null) => Self::unknown(),
            Some(value) => match value.as_str().and_then(rfc3339) {
                Some(instant) => Self::at(instant, now),
                None => Self::unparseable(name),
            },
        }
    }

    /// Reads a member called `name` in either format of AWS: seconds since 1970, as a number or a
    /// numeric string, or a date of RFC 3339.
    pub fn epoch_or_rfc3339(value: Option<&Value>, name: &str, now: Instant) -> Self {
        match value.and_then(seconds) {
            Some(seconds) => Self::at(millis(seconds), now),
            None => Self::rfc3339(value, name, now),
        }
    }

    fn unparseable(name: &str) -> Self {
        Self {
            warning: Some(format!("{name} unparseable: the lifetime is unknown")),
            ..Self::unknown()
        }
    }

    /// The earlier of both expiries. Cacheable only if both are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let at = match (self.at, other.at) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Self {
            at,
            cacheable: self.cacheable && other.cacheable,
            warning: self.warning.or(other.warning),
        }
    }

    /// Not later than `exp` of `token`, if it is a JWT.
    #[must_use]
    pub fn shortened_by(self, token: &Secret, now: Instant) -> Self {
        match token.jwt_times().and_then(|times| times.expires_at) {
            Some(end) => self.and(Self::at(end, now)),
            None => self,
        }
    }
}

/// A finite number, or a string that contains one.
fn seconds(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => decimal(text.trim()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.filter(|number| number.is_finite())
}

/// Like `str::parse`, but refuses `inf` and `nan`.
fn decimal(text: &str) -> Option<f64> {
    let good = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.parse().ok().filter(|_| text.bytes().all(good))
}

/// Rounded to milliseconds. The cast saturates, so negative numbers become 0.
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

/// A date of RFC 3339 in milliseconds since 1970. `None` for earlier dates.
pub fn rfc3339(text: &str) -> Option<Instant> {
    let date: Timestamp = text.trim().parse().ok()?;
    u64::try_from(date.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_767_323_045_000;

    #[test]
    fn seconds_come_in_many_forms() {
        for (value, at, cacheable) in [
            (json!(3600), Some(NOW + 3_600_000), true),
            (json!("3600"), Some(NOW + 3_600_000), true),
            (json!(3.6e3), Some(NOW + 3_600_000), true),
            (json!("1799.5"), Some(NOW + 1_799_500), true),
            (json!(0), Some(NOW), false),
            (json!(-5), Some(NOW), false),
            (json!("-5"), Some(NOW), false),
            (json!(1e300), Some(LATEST), true),
            (json!(null), None, true),
        ] {
            let expiry = Expiry::after(Some(&value), "expires_in", NOW);
            assert_eq!(
                (expiry.at, expiry.cacheable, expiry.warning),
                (at, cacheable, None),
                "{value}"
            );
        }
        assert_eq!(Expiry::after(None, "expires_in", NOW), Expiry::unknown());
        for garbage in [
            json!("soon"),
            json!(""),
            json!([]),
            json!(true),
            json!("inf"),
            json!("NaN"),
        ] {
            let expiry = Expiry::after(Some(&garbage), "expires_in", NOW);
            assert_eq!((expiry.at, expiry.cacheable), (None, true), "{garbage}");
            assert!(
                expiry
                    .warning
                    .is_some_and(|text| text.starts_with("expires_in unparseable"))
            );
        }
    }

    #[test]
    fn dates_come_in_many_forms() {
        let hour = NOW + 3_600_000;
        for value in [
            json!("2026-01-02T04:04:05Z"),
            json!("2026-01-02T05:04:05+01:00"),
            json!(1_767_326_645),
            json!(1_767_326_645.0),
            json!(1.767_326_645E9),
            json!("1767326645"),
        ] {
            let expiry = Expiry::epoch_or_rfc3339(Some(&value), "Expiration", NOW);
            assert_eq!((expiry.at, expiry.warning), (Some(hour), None), "{value}");
        }
        let past = Expiry::rfc3339(Some(&json!("2020-01-01T00:00:00Z")), "expireTime", NOW);
        assert_eq!((past.at, past.cacheable), (Some(NOW), false));
        assert!(
            Expiry::rfc3339(Some(&json!("tomorrow")), "expireTime", NOW)
                .warning
                .is_some()
        );
    }

    #[test]
    fn the_earlier_end_counts() {
        let (early, late) = (Expiry::at(NOW + 1, NOW), Expiry::at(NOW + 2, NOW));
        assert_eq!(late.clone().and(early.clone()), early);
        assert_eq!(Expiry::unknown().and(late.clone()), late);
        assert!(!late.and(Expiry::at(NOW, NOW)).cacheable);
    }
}
