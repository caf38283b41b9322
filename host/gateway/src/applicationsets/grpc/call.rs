//! Reads the head of a call into a [`Call`], and moves the caller's token to the field where
//! every other client has it. A call with two tokens is refused.

use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Version, request};
use tokio::time::Instant;

use crate::applicationsets::grpc::Error;
use tollgate_front::grpc::Transport;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Field in which Argo CD's clients send their token.
const TOKEN: &str = "token";

/// Longest duration of a unary call.
const MAX_UNARY_DURATION: Duration = Duration::from_secs(300);

/// Longest timeout a client may give. A longer one counts as none.
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
            return Err(Error::Http1);
        }
        let path = head.uri.path();
        let served = Method::PATHS.into_iter().find(|(served, _)| *served == path);
        let (path, method) = served.ok_or_else(|| Error::NoMethod {
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

/// Moves the token of Argo CD's clients to `Authorization`, unless that field is present.
pub(crate) fn token_as_bearer(fields: &mut HeaderMap) -> Result<(), Error> {
    let mut tokens = fields.get_all(TOKEN).iter();
    let (first, second) = (tokens.next(), tokens.next());
    if second.is_some() {
        return Err(Error::Token);
    }
    // Clients without a token send an empty one.
    let token = first.filter(|token| !token.is_empty());
    let bearer = token.map(|token| {
        let token = token.to_str().map_err(|_| Error::Token)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Token)?;
        bearer.set_sensitive(true);
        Ok::<_, Error>(bearer)
    });
    let bearer = bearer.transpose()?;
    fields.remove(TOKEN);
    if let (Some(bearer), false) = (bearer, fields.contains_key(AUTHORIZATION)) {
        fields.insert(AUTHORIZATION, bearer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
    use http::{HeaderMap, Method as HttpMethod};

    use super::{Transport, timeout, token_as_bearer};

    #[test]
    fn calls_are_recognized_by_path_and_content_type() {
        let of = |method: HttpMethod, path, kind| {
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            Transport::of(&method, path, &fields)
        };
        let path = "/a.B/C";
        assert_eq!(of(HttpMethod::POST, path, "application/grpc"), Some(Transport::Grpc));
        assert_eq!(
            of(HttpMethod::POST, path, "application/grpc-web+proto"),
            Some(Transport::Web)
        );
        assert_eq!(
            of(HttpMethod::POST, path, "application/grpc-web-text; x=y"),
            Some(Transport::WebText)
        );
        for (method, path, kind) in [
            (HttpMethod::GET, path, "application/grpc"),
            (HttpMethod::POST, path, "application/grpc+json"),
            (HttpMethod::POST, path, "application/json"),
            (HttpMethod::POST, "/api/v1/extensions", "application/grpc"),
            (HttpMethod::POST, "/extensions/a.b", "application/grpc"),
            (HttpMethod::POST, "/a.B/C/D", "application/grpc"),
            (HttpMethod::POST, "/a.B/", "application/grpc"),
        ] {
            assert_eq!(of(method, path, kind), None, "{path} {kind}");
        }
    }

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

    #[test]
    fn the_token_field_is_used_only_without_authorization() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in fields {
                map.append(*name, HeaderValue::from_static(value));
            }
            token_as_bearer(&mut map).ok()?;
            assert!(!map.contains_key("token"));
            let value = map
                .get(AUTHORIZATION)
                .map(|value| value.to_str().expect("text").to_owned());
            Some(value.unwrap_or_default())
        };
        assert_eq!(of(&[("token", "abc")]).as_deref(), Some("Bearer abc"));
        assert_eq!(of(&[("token", "")]).as_deref(), Some(""));
        assert_eq!(of(&[]).as_deref(), Some(""));
        let both = [("token", "abc"), ("authorization", "Bearer def")];
        assert_eq!(of(&both).as_deref(), Some("Bearer def"));
        assert_eq!(of(&[("token", "abc"), ("token", "abc")]), None);
        let mut foreign = HeaderMap::new();
        foreign.insert("token", HeaderValue::from_bytes(b"\xe4").expect("a value"));
        assert!(token_as_bearer(&mut foreign).is_err());
    }
}
