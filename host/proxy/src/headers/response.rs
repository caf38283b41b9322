//! Decides which fields of an upstream's response reach the client. Hop-by-hop fields are removed,
//! and so are fields that a browser would apply to the whole origin.
//!
//! Security: everything the gateway forwards is on one origin, that of the session cookie. So no
//! cookie of an upstream may replace, shadow or end a session, except of argocd-server, whose
//! origin and sessions they are. Backends of extensions are the operator's, and keep their own
//! fields except [`ORIGIN_WIDE`]. Behind a cluster, anybody may answer, so only
//! [`CLUSTER_RESPONSE_FIELDS`] pass.

use http::header::{CONTENT_SECURITY_POLICY, SET_COOKIE, STRICT_TRANSPORT_SECURITY, VIA, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::clean::{joined, remove_named_by_connection};
use super::kubernetes::via_after;
use super::upstream::Responder;
use tollgate_core::header_map::retain;
use tollgate_core::header_names::HOP_BY_HOP;

/// Starts of the names of cookies the gateway reads: Argo CD's session
/// (`argocd.token`, `argocd.token-1` and so on) and that of GitLab's pages.
const SESSION_COOKIES: [&str; 2] = ["argocd.token", "_gitlab_kas"];

/// Where an extension's pages are, before its name.
const EXTENSION_PATHS: [&str; 2] = ["/api/v1/extensions/", "/extensions/"];

/// Longest value of an attribute of a cookie that browsers look at, in bytes.
/// Source: RFC 6265bis, section 5.6.
const COOKIE_ATTRIBUTE_BYTES: usize = 1024;

/// Fields by which one response changes what a browser, or a proxy before the gateway,
/// does with others of the same origin; sorted.
///
/// - it stores something for the origin: `accept-ch`, `alt-svc`, `clear-site-data`,
///   `nel`, `report-to`, `set-login`, `strict-transport-security`, key pins, sessions
///   bound to devices, dictionaries, shared storage;
/// - it reports from the origin's pages: `reporting-endpoints`, `expect-ct`;
/// - it reaches beyond its own path: `service-worker-allowed`, `origin-agent-cluster`;
/// - it asks people for a password of this origin: `www-authenticate`. No password would
///   reach the upstream, because the gateway reads and removes `authorization`;
/// - it commands a proxy: `x-accel-redirect`, `x-sendfile` and their like.
const ORIGIN_WIDE: [&str; 31] = [
    "accept-ch",
    "accept-ch-lifetime",
    "activate-storage-access",
    "alt-svc",
    "clear-site-data",
    "critical-ch",
    "expect-ct",
    "expect-staple",
    "nel",
    "observe-browsing-topics",
    "origin-agent-cluster",
    "origin-isolation",
    "public-key-pins",
    "public-key-pins-report-only",
    "report-to",
    "reporting-endpoints",
    "sec-session-challenge",
    "sec-session-registration",
    "secure-session-challenge",
    "secure-session-registration",
    "service-worker-allowed",
    "set-cookie2",
    "set-login",
    "shared-storage-write",
    "strict-transport-security",
    "use-as-dictionary",
    "www-authenticate",
    "x-accel-redirect",
    "x-lighttpd-send-file",
    "x-reproxy-url",
    "x-sendfile",
];

/// Prefix of further such fields.
const ORIGIN_WIDE_PREFIX: &str = "attribution-reporting-";

/// Prefix of the gateway's own fields.
const OWN_PREFIX: &str = "tollgate-";

/// Fields of a cluster's response that pass, sorted: those that kube-apiserver itself sends, and
/// those needed to read the content. `connection` and `upgrade` are the gateway's own by then.
const CLUSTER_RESPONSE_FIELDS: [&str; 32] = [
    "accept-patch",
    "accept-ranges",
    "age",
    "allow",
    "audit-id",
    "cache-control",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "deprecation",
    "etag",
    "expires",
    "last-modified",
    "location",
    "pragma",
    "retry-after",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "upgrade",
    "vary",
    "via",
    "warning",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "x-stream-protocol-version",
];

/// Removes all fields but `CLUSTER_RESPONSE_FIELDS` from a cluster's response, and tells browsers
/// to treat the rest only as data.
///
/// Call it after `clean_response`.
pub fn restrict_cluster_response(fields: &mut HeaderMap) {
    retain(fields, |name| {
        CLUSTER_RESPONSE_FIELDS.binary_search(&name.as_str()).is_ok()
    });
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(via) = via_after(joined(fields, &VIA).as_ref()) {
        fields.insert(VIA, via);
    }
}

/// Removes the fields that `responder` may not send to the client.
///
/// `Trailer` stays, because trailers are forwarded. A malformed list in `Connection` removes no
/// other fields; `Connection` itself is always removed.
///
/// Source: RFC 9110, section 7.6.1; RFC 6265bis, section 5.6.
pub(crate) fn clean_response(fields: &mut HeaderMap, responder: &Responder) {
    // The backend is the operator's: a mistake there is not an attack.
    let _ = remove_named_by_connection(fields);
    let owns_origin = *responder == Responder::Argocd;
    retain(fields, |name| {
        let passes = match owns_origin {
            true => !is_own(name),
            false => !is_own(name) && !is_origin_wide(name),
        };
        passes && !HOP_BY_HOP.contains(&name.as_str())
    });
    match responder {
        Responder::Argocd => {}
        Responder::Cluster => drop(fields.remove(SET_COOKIE)),
        Responder::Extension(extension) => retain_cookies(fields, |cookie| is_cookie_of(extension, cookie)),
    }
}

/// Removes what a plugin may not add to the response of an extension: cookies that are not the extension's
/// own, and fields that change what a browser does with other responses of the origin. A plugin may ask for
/// TLS (`strict-transport-security`), as operators do by one.
///
/// Call it after the plugins. What the response had before was cleaned by the same rules.
pub fn clean_plugin_response(fields: &mut HeaderMap, extension: &str) {
    retain(fields, |name| {
        *name == STRICT_TRANSPORT_SECURITY || (!is_own(name) && !is_origin_wide(name))
    });
    retain_cookies(fields, |cookie| is_cookie_of(extension, cookie));
}

/// Removes the same fields from trailers, because proxies merge trailers into the fields. Cookies
/// in trailers are removed as well.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    retain(trailers, |name| {
        name != SET_COOKIE && !HOP_BY_HOP.contains(&name.as_str()) && !is_own(name) && !is_origin_wide(name)
    });
}

/// Whether a field affects more than its own response.
fn is_origin_wide(name: &HeaderName) -> bool {
    let name = name.as_str();
    ORIGIN_WIDE.binary_search(&name).is_ok() || name.starts_with(ORIGIN_WIDE_PREFIX)
}

fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with(OWN_PREFIX)
}

fn retain_cookies(fields: &mut HeaderMap, passes: impl Fn(&HeaderValue) -> bool) {
    if fields.get_all(SET_COOKIE).iter().all(&passes) {
        return;
    }
    let all = fields.get_all(SET_COOKIE).iter();
    let kept: Vec<HeaderValue> = all.filter(|cookie| passes(cookie)).cloned().collect();
    fields.remove(SET_COOKIE);
    for cookie in kept {
        fields.append(SET_COOKIE, cookie);
    }
}

/// Whether a cookie is named after the extension and stays on its pages.
// SECURITY: without a valid path, a browser uses the folder of the page, which may be that of all
// extensions; with a domain, it shares the cookie with other hosts. Of several paths, the last one
// counts.
fn is_cookie_of(extension: &str, cookie: &HeaderValue) -> bool {
    let mut parts = cookie.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let pair = parts.next().and_then(assignment);
    if !pair.is_some_and(|(name, _)| is_name_of(extension, name)) {
        return false;
    }
    let mut has_path = false;
    for attribute in parts {
        let (name, value) = assignment(attribute).unwrap_or((attribute, b""));
        if name.eq_ignore_ascii_case(b"domain") {
            return false;
        }
        if name.eq_ignore_ascii_case(b"path") {
            if !is_path_of(extension, value) {
                return false;
            }
            has_path = true;
        }
    }
    has_path
}

/// `name` or `name` with a separator and more behind it.
fn is_name_of(extension: &str, name: &[u8]) -> bool {
    // The names overlap: `argocd.token` would belong to an extension named `argocd`.
    let is_session = SESSION_COOKIES.iter().any(|session| {
        name.get(..session.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(session.as_bytes()))
    });
    let behind = name.strip_prefix(extension.as_bytes());
    !is_session && matches!(behind, Some([] | [b'-' | b'_' | b'.', ..]))
}

fn is_path_of(extension: &str, path: &[u8]) -> bool {
    let within = |start: &str| {
        let behind = path
            .strip_prefix(start.as_bytes())
            .and_then(|path| path.strip_prefix(extension.as_bytes()));
        matches!(behind, Some([] | [b'/', ..]))
    };
    path.len() <= COOKIE_ATTRIBUTE_BYTES && EXTENSION_PATHS.iter().any(|start| within(start))
}

/// Name and value around the first `=`, without blanks.
fn assignment(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let (name, value) = text.split_at_checked(at)?;
    Some((name.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii()))
}

#[cfg(test)]
mod tests;
