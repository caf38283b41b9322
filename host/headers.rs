//! Which header fields leave for the upstream.
//!
//! In: the client's fields, the decision, the plugins' edits. Out: the outgoing
//! fields. Never: a field of the host's own that a client or plugin wrote.

use http::HeaderName;

/// Prefixes of field names only the gateway may write, lower case.
const HOST_PREFIXES: &[&str] = &[
    "argocd-",
    "impersonate-",
    "x-remote-",
    "x-forwarded-",
    "tollgate-",
    "proxy-",
];

/// Field names only the gateway may write, lower case: credentials, framing,
/// hop-by-hop fields (RFC 9110, section 7.6.1) and who is on the other side.
const HOST_NAMES: &[&str] = &[
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-real-ip",
];

/// Whether only the gateway itself may write the field `name` of a request to
/// an upstream. Neither a client nor a plugin can.
pub fn is_host_owned(name: &HeaderName) -> bool {
    let name = name.as_str();
    HOST_NAMES.binary_search(&name).is_ok() || HOST_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
