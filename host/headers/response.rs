//! Which fields of a backend's response reach the client.
//!
//! In: a backend's response head. Out: the same without fields between two
//! neighbors and without attacks on the session. Never: a cookie by which a
//! backend replaces or ends the caller's session.

use http::header::{CONNECTION, CONTENT_SECURITY_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::clean::remove_named_by_connection;
use super::names::HOP_BY_HOP;

/// Start of the names of Argo CD's session cookies: `argocd.token`,
/// `argocd.token-1` and so on.
const SESSION_COOKIE: &str = "argocd.token";

/// Would let a page of a pod answer for more than its own path.
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker-allowed");

/// Takes from a cluster's answer what would make it more than data in a browser:
/// any pod can be behind a cluster's path, and the gateway's origin has cookies.
pub fn contain(fields: &mut HeaderMap) {
    for name in [SET_COOKIE, SERVICE_WORKER] {
        fields.remove(name);
    }
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Takes away what a backend cannot say to the client.
///
/// `Trailer` stays, trailers are forwarded. A list in `Connection` that is not
/// one removes nothing further; `Connection` itself is always removed.
///
/// Source: RFC 9110, section 7.6.1; RFC 6265, section 5.2.
pub fn clean_response(fields: &mut HeaderMap) {
    if fields.contains_key(CONNECTION) {
        // The backend is the operator's: a mistake there is not an attack.
        let _ = remove_named_by_connection(fields);
    }
    // Looking is cheaper than removing what is not there.
    let mut foreign = Vec::new();
    for name in fields.keys() {
        if HOP_BY_HOP.contains(&name.as_str()) || name.as_str() == "clear-site-data" {
            foreign.push(name.clone());
        }
    }
    for name in foreign {
        fields.remove(name);
    }
    remove_session_cookies(fields);
}

fn remove_session_cookies(fields: &mut HeaderMap) {
    if !fields.get_all(SET_COOKIE).iter().any(is_session_cookie) {
        return;
    }
    let kept: Vec<HeaderValue> = fields
        .get_all(SET_COOKIE)
        .iter()
        .filter(|cookie| !is_session_cookie(cookie))
        .cloned()
        .collect();
    fields.remove(SET_COOKIE);
    for cookie in kept {
        fields.append(SET_COOKIE, cookie);
    }
}

/// Whether a browser would send this cookie back as a session cookie.
// SECURITY: browsers send a cookie without a name as its bare value, so
// `Set-Cookie: =argocd.token=x` comes back as `argocd.token=x`.
fn is_session_cookie(cookie: &HeaderValue) -> bool {
    let bytes = cookie.as_bytes();
    let pair = bytes.split(|byte| *byte == b';').next().unwrap_or_default();
    let Some(equals) = pair.iter().position(|byte| *byte == b'=') else {
        return true;
    };
    let name = pair.get(..equals).unwrap_or_default().trim_ascii();
    let prefix = SESSION_COOKIE.as_bytes();
    name.is_empty()
        || name
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
