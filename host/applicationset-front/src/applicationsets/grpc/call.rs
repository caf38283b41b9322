//! Reads the head of a call into a [`Call`], and moves the caller's token to the field where
//! every other client has it. A call with two tokens is refused.

use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderValue, Version, request};
use tokio::time::Instant;

use crate::applicationsets::grpc::Error;
use tollgate_front::grpc::{CallError, Transport};

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Longest duration of a unary call.
const MAX_UNARY_DURATION: Duration = Duration::from_secs(300);

/// Longest timeout a client may give. A longer one is cut to this.
const MAX_CLIENT_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Returns the version of the program, to anybody.
    Version,
    UserInfo,
    Get,
    List,
    Create,
    Generate,
    Delete,
    ResourceTree,
    Events,
    Watch,
}

impl Method {
    /// The methods that are served, by their paths.
    pub(crate) const PATHS: [(&'static str, Self); 10] = [
        ("/version.VersionService/Version", Self::Version),
        ("/session.SessionService/GetUserInfo", Self::UserInfo),
        ("/applicationset.ApplicationSetService/Get", Self::Get),
        ("/applicationset.ApplicationSetService/List", Self::List),
        ("/applicationset.ApplicationSetService/Create", Self::Create),
        ("/applicationset.ApplicationSetService/Generate", Self::Generate),
        ("/applicationset.ApplicationSetService/Delete", Self::Delete),
        ("/applicationset.ApplicationSetService/ResourceTree", Self::ResourceTree),
        ("/applicationset.ApplicationSetService/ListResourceEvents", Self::Events),
        ("/applicationset.ApplicationSetService/Watch", Self::Watch),
    ];
}

impl Method {
    /// Whether the path is that of a method.
    pub(crate) fn is_served(path: &str) -> bool {
        Self::PATHS.into_iter().any(|(served, _)| served == path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) transport: Transport,
    pub(crate) deadline: Option<Instant>,
}

impl Call {
    /// Reads the head of a request that [`Transport::of`] recognized as a call.
    pub(crate) fn read(head: &request::Parts, transport: Transport) -> Result<Self, Error> {
        if transport == Transport::Grpc && head.version < Version::HTTP_2 {
            return Err(CallError::Http1.into());
        }
        let path = head.uri.path();
        let served = Method::PATHS.into_iter().find(|(served, _)| *served == path);
        let (path, method) = served.ok_or_else(|| CallError::NoMethod {
            path: path.trim_start_matches('/').to_owned(),
        })?;
        let given = head.headers.get(TIMEOUT).map(timeout).transpose()?;
        let bound = match method {
            Method::Watch => given,
            _ => Some(given.unwrap_or(MAX_UNARY_DURATION).min(MAX_UNARY_DURATION)),
        };
        Ok(Self {
            method,
            path,
            transport,
            deadline: bound.map(|bound| Instant::now() + bound),
        })
    }
}

fn timeout(value: &HeaderValue) -> Result<Duration, Error> {
    let text = value.to_str().map_err(|_| Error::Timeout)?;
    let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    // `parse` alone would accept a sign.
    let fits = (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| fits).ok_or(Error::Timeout)?;
    let given = match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(Error::Timeout),
    };
    Ok(given.min(MAX_CLIENT_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::timeout;

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        let of = |text| timeout(&HeaderValue::from_static(text)).ok();
        assert_eq!(of("250m"), Some(Duration::from_millis(250)));
        assert_eq!(of("10u"), Some(Duration::from_micros(10)));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(7 * 24 * 3600)));
        for wrong in ["", "5", "S", "-5S", "1.5S", "123456789S", "5s", "5SS", "5 S"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
