//! The head of a call: its errors, and the token of Argo CD's clients.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::Code;
use crate::Denial;

/// Field in which Argo CD's clients send their token.
const TOKEN: &str = "token";

/// What is wrong with the head of a call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No such method is served here. (`UNIMPLEMENTED`)
    #[error("this server has no `{path}`")]
    NoMethod {
        /// The method.
        path: String,
    },
    /// A call for argocd-server, sent to the host that the console has for itself.
    #[error(
        "this host has no `{path}`: `{host}` is the console's own, by `console.url` of the settings; \
         Argo CD is on every other host name of the gateway{}",
        .argocd.as_ref().map(|url| format!(", such as that of `{url}`")).unwrap_or_default()
    )]
    ConsoleHost {
        /// The method.
        path: String,
        /// The console's own host.
        host: String,
        /// Argo CD's own `url`, if it has one.
        argocd: Option<String>,
    },
    /// A call of gRPC over HTTP/1. (`FAILED_PRECONDITION`)
    #[error("gRPC needs HTTP/2; gRPC-Web does not")]
    Http1,
    /// The token cannot be read, or there are two. (`UNAUTHENTICATED`)
    #[error("`token` must occur once and consist of visible ASCII characters")]
    Token,
}

impl CallError {
    /// The gRPC status code, the corresponding HTTP status for records, and the stable reason for programs.
    pub fn answer(&self) -> (Code, StatusCode, &'static str) {
        match self {
            Self::NoMethod { .. } | Self::ConsoleHost { .. } => {
                (Code::Unimplemented, StatusCode::NOT_FOUND, "not_found")
            }
            Self::Http1 => (
                Code::FailedPrecondition,
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "wrong_protocol",
            ),
            Self::Token => (Code::Unauthenticated, StatusCode::UNAUTHORIZED, "malformed_token"),
        }
    }
}

impl From<CallError> for Denial {
    fn from(error: CallError) -> Self {
        let (code, status, reason) = error.answer();
        let mut denial = Self::of_api(status, reason, error.to_string());
        denial.grpc = Some(code);
        denial.caused_by(error)
    }
}

/// Moves the token of Argo CD's clients to `Authorization`, unless that field is present.
pub fn token_as_bearer(fields: &mut HeaderMap) -> Result<(), CallError> {
    let mut tokens = fields.get_all(TOKEN).iter();
    let (first, second) = (tokens.next(), tokens.next());
    // The gateway and argocd-server could each take another one.
    if second.is_some() {
        return Err(CallError::Token);
    }
    // Clients without a token send an empty one.
    let token = first.filter(|token| !token.is_empty());
    let bearer = token.map(|token| {
        let token = token.to_str().map_err(|_| CallError::Token)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| CallError::Token)?;
        bearer.set_sensitive(true);
        Ok::<_, CallError>(bearer)
    });
    let bearer = bearer.transpose()?;
    // argocd-server prefers `token` to `Authorization`, and must not see one that the gateway did not verify.
    fields.remove(TOKEN);
    if let (Some(bearer), false) = (bearer, fields.contains_key(AUTHORIZATION)) {
        fields.insert(AUTHORIZATION, bearer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
    use http::{HeaderMap, Method as HttpMethod};

    use super::token_as_bearer;
    use crate::grpc::Transport;

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
