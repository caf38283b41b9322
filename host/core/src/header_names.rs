//! Decides who may write a request header field: its [`HeaderOwner`].
//!
//! Security: `-`, `_` and `.` are equal in names, because servers that turn fields into variables
//! do not tell them apart (RFC 3875, section 4.1.18): `Argocd_Username` is `Argocd-Username`.

use http::HeaderName;

/// Who may write a field of a request to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOwner {
    /// Only the gateway: identity, credentials, framing, hop-by-hop.
    Host,
    /// The operator, through a service's configuration or a plugin. Backends act on such a field,
    /// so clients must not set it.
    Operator,
    /// Anyone.
    Client,
}

/// Prefixes of the gateway's own fields, in lower case.
const HOST_PREFIXES: [&str; 6] = [
    "argocd-",
    "impersonate-",
    "proxy-",
    "tollgate-",
    "x-forwarded-",
    "x-remote-",
];

/// Names of the gateway's own fields, lower case and sorted: credentials, framing, hop-by-hop (RFC
/// 9110, section 7.6.1), fields that say who is on the other side, and the id under which a
/// cluster's audit log has the request. `expect` is here because the gateway answers it itself.
pub const HOST_NAMES: [&str; 18] = [
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

/// Prefixes of fields with which one proxy or another tells backends who calls, where from or what
/// for.
const OPERATOR_PREFIXES: [&str; 31] = [
    "cf-access-",
    "cf-connecting-",
    "l5d-",
    "mellon-",
    "oidc-",
    "remote-",
    "shib-",
    "ssl-client-",
    "tailscale-user-",
    "wl-proxy-",
    "x-amzn-oidc-",
    "x-appengine-",
    "x-auth-request-",
    "x-authenticated-",
    "x-authentik-",
    "x-consumer-",
    "x-credential-",
    "x-endpoint-api-",
    "x-envoy-",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-ms-client-principal",
    "x-ms-token-",
    "x-okta-",
    "x-original-",
    "x-pomerium-",
    "x-scope-",
    "x-ssl-client-",
    "x-token-user-",
    "x-vouch-",
    "x-webauth-",
];

/// Names of fields that say who calls, or that make some backends use another method, path or
/// caller's address than those the gateway decided on; sorted.
pub const OPERATOR_NAMES: [&str; 36] = [
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "true-client-ip",
    "x-auth-user",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-cert",
    "x-client-dn",
    "x-client-ip",
    "x-client-verify",
    "x-cluster-client-ip",
    "x-email",
    "x-grafana-user",
    "x-groups",
    "x-http-method",
    "x-http-method-override",
    "x-jwt-assertion",
    "x-method-override",
    "x-org-id",
    "x-orgid",
    "x-proxyuser-ip",
    "x-rewrite-url",
    "x-role",
    "x-roles",
    "x-tenant",
    "x-tenant-id",
    "x-user",
    "x-user-email",
    "x-user-groups",
    "x-user-id",
    "x-user-name",
    "x-user-roles",
    "x-userid",
    "x-userinfo",
    "x-username",
];

/// Names of client fields that only say how content is to be read and sent, not who the client is;
/// sorted. They pass where an extension lists the fields that may pass.
pub const CONTENT_NAMES: [&str; 25] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "origin",
    "pragma",
    "range",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "traceparent",
    "tracestate",
    "user-agent",
];

/// Longest of all names and prefixes above, in bytes, rounded up.
const COMPARED_BYTES: usize = 32;

/// Who may write the field `name` (lower case, as `HeaderName` has it).
pub fn owner(name: &str) -> HeaderOwner {
    // No name begins with these letters, so most fields end here.
    if let Some(b'b' | b'd' | b'g' | b'j' | b'n' | b'q' | b'y' | b'z') = name.as_bytes().first() {
        return HeaderOwner::Client;
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return plain_owner(name);
    }
    let mut folded = [0_u8; COMPARED_BYTES];
    for (to, from) in folded.iter_mut().zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() { from } else { b'-' };
    }
    let length = name.len().min(COMPARED_BYTES);
    // A cut name is longer than every exact name and keeps its prefix.
    folded
        .get(..length)
        .and_then(|folded| std::str::from_utf8(folded).ok())
        .map_or(HeaderOwner::Host, plain_owner)
}

/// Whether only the gateway itself may write the field `name` of a request to an upstream, and
/// neither a client nor a plugin.
pub fn is_host_owned(name: &HeaderName) -> bool {
    owner(name.as_str()) == HeaderOwner::Host
}

/// Whether a cluster could read the field as an impersonation header.
pub fn is_impersonation(name: &str) -> bool {
    let behind = name.strip_prefix("impersonate").map(str::as_bytes);
    matches!(behind, Some([first, ..]) if !first.is_ascii_alphanumeric())
}

fn plain_owner(name: &str) -> HeaderOwner {
    let prefixed = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if HOST_NAMES.binary_search(&name).is_ok() || prefixed(&HOST_PREFIXES) {
        HeaderOwner::Host
    } else if OPERATOR_NAMES.binary_search(&name).is_ok() || prefixed(&OPERATOR_PREFIXES) {
        HeaderOwner::Operator
    } else {
        HeaderOwner::Client
    }
}

/// Fields that concern only two adjacent hops, besides those that `Connection` names.
/// Source: RFC 9110, section 7.6.1.
pub const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];
