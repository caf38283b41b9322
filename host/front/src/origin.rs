//! Decides which pages of other origins may call (CORS:
//! <https://fetch.spec.whatwg.org/#http-cors-protocol>), and makes [`Cors`], the header fields
//! that every response gets. Other origins get 403, unless the caller sends a token.
//!
//! Security: `Origin` protects the credential that a browser adds by itself, which is the cookie.
//! It decides nothing for a request whose only credential is a token: a page can send one only if
//! it knows it. An origin must equal an allowed one to get `Access-Control-*` fields; those of the
//! cluster are not passed on.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::Denial;
use tollgate_core::subprotocol::is_websocket;
use tollgate_identity::authenticate::k8s_proxy;

/// Methods that pages may use (GitLab's agent server allows the same).
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH");
/// Seconds for which a browser caches the response to a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("86400");
/// Response fields that scripts may read: who sent a 401, the ids of the request in both audit
/// logs, warnings of the cluster, and when to retry.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("Audit-Id, Gitlab-Unauthorized, Retry-After, Tollgate-Decision-Id, Warning");
/// Most characters of an origin that a refusal repeats.
const MAX_ORIGIN_CHARS: usize = 100;

/// Why a page may not call.
#[expect(missing_docs, reason = "the text of each says what it is")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// The origin, shortened, is not listed.
    #[error("origin `{seen}` is not allowed")]
    Origin { seen: String },
    #[error("{observed} `Origin` fields, one is allowed")]
    MultipleOrigins { observed: usize },
    /// A request for a WebSocket without an `Origin`, which browsers always send. The cookie alone
    /// does not say where it comes from.
    #[error("a WebSocket with the session cookie needs `Origin`")]
    NoOrigin,
}

/// The header fields that say what a page may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The allowed origin that sent the request, if any.
    origin: Option<HeaderValue>,
    /// Whether responses differ by origin at all.
    varies: bool,
}

/// Lets requests of allowed origins pass, those without an origin, and those whose only
/// credential is a token. Clients other than browsers send `Origin`, too: WebSocket libraries
/// write the host that they call, and proxies pass on that of a page.
///
/// SECURITY: the same-origin policy does not hold for WebSockets, and browsers add
/// the cookie to them: there, a cookie needs an allowed `Origin` beside it. A request with both a
/// cookie and a token is judged as one with the cookie.
///
/// - `allowed`: compared byte by byte with the one `Origin` field.
///
/// # Errors
/// Every [`Forbidden`] is a 403 without CORS fields.
pub fn check(head: &Parts, allowed: &[String]) -> Result<Cors, Forbidden> {
    match judge(head, allowed) {
        Err(_) if k8s_proxy::has_only_token(&head.headers) => Ok(Cors {
            origin: None,
            varies: !allowed.is_empty(),
        }),
        judged => judged,
    }
}

fn judge(head: &Parts, allowed: &[String]) -> Result<Cors, Forbidden> {
    let mut origins = head.headers.get_all(ORIGIN).iter();
    let origin = origins.next();
    let observed = origins.count().saturating_add(1);
    // A browser sends one. Which of several counts would be a guess.
    if observed > 1 {
        return Err(Forbidden::MultipleOrigins { observed });
    }
    let varies = !allowed.is_empty();
    let Some(origin) = origin else {
        let rides_on_cookie = is_websocket(&head.headers) && k8s_proxy::has_cookie(&head.headers);
        let cors = Cors { origin: None, varies };
        return (!rides_on_cookie).then_some(cors).ok_or(Forbidden::NoOrigin);
    };
    if allowed.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
        let origin = Some(origin.clone());
        return Ok(Cors { origin, varies });
    }
    let seen = String::from_utf8_lossy(origin.as_bytes());
    let seen = seen.chars().filter(|c| !c.is_control()).take(MAX_ORIGIN_CHARS);
    Err(Forbidden::Origin { seen: seen.collect() })
}

impl Cors {
    /// The complete response to `OPTIONS`, which the gateway sends without a credential, CORS
    /// fields included. `None` for other methods.
    pub fn preflight(&self, head: &Parts) -> Option<Response<Bytes>> {
        if head.method != Method::OPTIONS {
            return None;
        }
        let mut response = Response::new(Bytes::new());
        let fields = response.headers_mut();
        self.apply(fields);
        if self.origin.is_some() {
            // In a preflight response there is nothing for a script to read.
            fields.remove(ACCESS_CONTROL_EXPOSE_HEADERS);
            fields.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            fields.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
            for wanted in head.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
                // With credentials, `*` is no wildcard (Fetch standard), so the names are repeated.
                fields.append(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
            }
        }
        Some(response)
    }

    /// Writes the CORS fields of any response, refusals included. They replace those of the
    /// cluster. Adds `Origin` to `Vary`.
    pub fn apply(&self, fields: &mut HeaderMap) {
        let is_foreign = |name: &&HeaderName| name.as_str().starts_with("access-control-");
        let foreign: Vec<HeaderName> = fields.keys().filter(is_foreign).cloned().collect();
        for name in foreign {
            fields.remove(name);
        }
        if self.varies {
            vary_by_origin(fields);
        }
        if let Some(origin) = &self.origin {
            fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            fields.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

/// Merges `Origin` into `Vary`, on one line (RFC 9110, section 12.5.5).
fn vary_by_origin(fields: &mut HeaderMap) {
    let mut merged = b"Origin".to_vec();
    for line in fields.get_all(VARY) {
        for name in line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            // `*` covers `Origin` already.
            if name == b"*" {
                return;
            }
            if !name.is_empty() && !name.eq_ignore_ascii_case(b"origin") {
                merged.extend_from_slice(b", ");
                merged.extend_from_slice(name);
            }
        }
    }
    // Parts of valid values, joined by commas, form a valid value.
    if let Ok(merged) = HeaderValue::from_bytes(&merged) {
        fields.insert(VARY, merged);
    }
}

impl From<Forbidden> for Denial {
    fn from(error: Forbidden) -> Self {
        Self::denied(StatusCode::FORBIDDEN, "origin_not_allowed", error.to_string()).caused_by(error)
    }
}

#[cfg(test)]
mod tests;
