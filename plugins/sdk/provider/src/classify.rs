//! Derives the error class from an HTTP status, and the wait from `Retry-After`.

use core::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::Class;

/// The longest wait an issuer can ask for. Longer ones are cut to it.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The class of a status that is not 2xx.
pub fn status(status: u16) -> Class {
    match status {
        408 | 425 | 429 => Class::Retryable,
        401 | 403 => Class::Denied,
        501 | 505 => Class::Permanent,
        300..=499 => Class::Config,
        500..=599 => Class::Retryable,
        _ => Class::Permanent,
    }
}

/// The wait of a `Retry-After` field in either form (RFC 9110, section 10.2.3), from `now`
/// (milliseconds since 1970).
pub fn retry_after(value: &str, now: u64) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
    } else {
        Duration::from_millis(http_date(value)?.saturating_sub(now))
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// An HTTP date (RFC 9110, section 5.6.7, preferred form) in milliseconds since 1970.
fn http_date(text: &str) -> Option<u64> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let date: Timestamp = PARSER.parse_timestamp(text).ok()?;
    u64::try_from(date.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_class() {
        let cases: [(&[u16], Class); 4] = [
            (&[408, 425, 429, 500, 502, 503, 504, 520], Class::Retryable),
            (&[401, 403], Class::Denied),
            (
                &[300, 301, 302, 303, 307, 308, 400, 404, 405, 410, 415, 422],
                Class::Config,
            ),
            (&[501, 505], Class::Permanent),
        ];
        for (statuses, class) in cases {
            for code in statuses {
                assert_eq!(status(*code), class, "{code}");
            }
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        // 2026-01-02T03:04:05Z
        let now = 1_767_323_045_000;
        for (value, expected) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("601", Some(600)),
            ("99999999999999999999999", Some(600)),
            ("Fri, 02 Jan 2026 03:04:35 GMT", Some(30)),
            ("Fri, 02 Jan 2026 05:04:35 GMT", Some(600)),
            ("Fri, 02 Jan 2026 03:00:00 GMT", Some(0)),
            ("-7", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, now), expected.map(Duration::from_secs), "{value}");
        }
    }
}
