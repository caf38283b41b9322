//! Who may write a request header field.
//!
//! In: a field name. Out: its [`Owner`]. Never: tells `-`, `_` and `.` apart,
//! because servers that turn fields into variables do not (RFC 3875, section
//! 4.1.18): `Argocd_Username` is `Argocd-Username`.

/// Who may write a field of a request to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Only the gateway: identity, credentials, framing, hop-by-hop.
    Host,
    /// The operator, through a service's configuration or a plugin: backends
    /// act on it, so a client must not say it.
    Operator,
    /// Anyone.
    Client,
}

/// Fields with these prefixes are the gateway's, lower case.
const HOST_PREFIXES: [&str; 6] = [
    "argocd-",
    "impersonate-",
    "proxy-",
    "tollgate-",
    "x-forwarded-",
    "x-remote-",
];

/// Fields with these names are the gateway's, lower case and sorted:
/// credentials, framing, hop-by-hop (RFC 9110, section 7.6.1), who is on the
/// other side, and the id under which a cluster's audit log has the request.
/// `expect` is answered by the gateway itself.
pub(super) const HOST_NAMES: [&str; 18] = [
    "audit-id",
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-original-forwarded-for",
    "x-real-ip",
];

/// Fields with these prefixes tell backends who calls, by common custom.
const OPERATOR_PREFIXES: [&str; 5] = [
    "remote-",
    "ssl-client-",
    "x-auth-request-",
    "x-ssl-client-",
    "x-webauth-",
];

/// Fields with these names change the method, the path or the caller's address
/// for some backends, after the gateway decided on the ones it saw; sorted.
pub(super) const OPERATOR_NAMES: [&str; 10] = [
    "client-ip",
    "true-client-ip",
    "x-client-cert",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Longest of all names and prefixes above, in bytes, rounded up.
const COMPARED_BYTES: usize = 32;

/// Who may write the field `name` (lower case, as `HeaderName` has it).
pub fn owner(name: &str) -> Owner {
    // Letters that begin none of the names: most fields end here.
    match name.as_bytes().first() {
        Some(b'a' | b'c' | b'e' | b'f' | b'h' | b'i' | b'k' | b'p' | b'r' | b's' | b't' | b'u' | b'v' | b'x') => {}
        _ => return Owner::Client,
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return plain_owner(name);
    }
    let mut folded = [0_u8; COMPARED_BYTES];
    for (to, from) in folded.iter_mut().zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() { from } else { b'-' };
    }
    let length = name.len().min(COMPARED_BYTES);
    // A cut name is longer than every exact name and still has its prefix.
    folded
        .get(..length)
        .and_then(|folded| std::str::from_utf8(folded).ok())
        .map_or(Owner::Host, plain_owner)
}

/// Whether a cluster could take the field for one that says whom a request is
/// from.
pub(super) fn is_impersonation(name: &str) -> bool {
    let behind = name.strip_prefix("impersonate").map(str::as_bytes);
    matches!(behind, Some([first, ..]) if !first.is_ascii_alphanumeric())
}

fn plain_owner(name: &str) -> Owner {
    let prefixed = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if HOST_NAMES.binary_search(&name).is_ok() || prefixed(&HOST_PREFIXES) {
        Owner::Host
    } else if OPERATOR_NAMES.binary_search(&name).is_ok() || prefixed(&OPERATOR_PREFIXES) {
        Owner::Operator
    } else {
        Owner::Client
    }
}

/// Fields between two neighbors only, besides those `Connection` names.
/// Source: RFC 9110, section 7.6.1.
pub(super) const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];
