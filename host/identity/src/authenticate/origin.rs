//! Refuses cross-site requests of callers who authenticate with a cookie
//! ([`Error::CrossSite`]).
//!
//! Bearer callers are not checked.
//!
//! Security: a caller with a cookie needs the gateway's own origin for everything but plain reads. What a
//! request does decides, not its method alone.

use http::header::{HOST, ORIGIN, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};

use super::Safety;
use super::error::Error;

/// Most characters of a field repeated in a refusal.
const SHOWN: usize = 100;

/// Accepts a request that is safe, or that provably comes from a trusted origin or the one it was
/// sent to.
///
/// `Sec-Fetch-Site` decides if the browser sends it, since no script can set it. Otherwise, and
/// for trusted origins, `Origin` decides. A WebSocket or other upgrade counts as a change:
/// browsers open those across sites, and the same-origin policy does not apply to what comes
/// back.
///
/// The scheme of `Origin` is not compared, since TLS may end before the gateway.
pub(super) fn check(head: &Parts, safety: Safety, trusted: &[String]) -> Result<(), Error> {
    if is_safe(head, safety) {
        return Ok(());
    }
    let origin = sole(&head.headers, ORIGIN.as_str());
    if let Some(origin) = origin
        && trusted.iter().any(|trusted| trusted.eq_ignore_ascii_case(origin))
    {
        return Ok(());
    }
    let site = head.headers.get_all("sec-fetch-site").iter().count();
    let (passes, seen) = match (site, sole(&head.headers, "sec-fetch-site"), origin) {
        (1, Some(site), _) => (site == "same-origin", format!("`Sec-Fetch-Site: {}`", shorten(site))),
        (0, _, Some(origin)) => (is_same_origin(head, origin), format!("`Origin: {}`", shorten(origin))),
        (0, _, None) if !head.headers.contains_key(ORIGIN) => {
            (false, "neither `Origin` nor `Sec-Fetch-Site`".to_owned())
        }
        (_, _, _) => {
            let seen = "an unreadable or repeated `Origin` or `Sec-Fetch-Site`";
            (false, seen.to_owned())
        }
    };
    passes.then_some(()).ok_or_else(|| Error::CrossSite {
        seen,
        allowed: allowed(trusted),
    })
}

/// Checks that the request names this machine as its host. Required of anonymous callers;
/// otherwise any page could reach a loopback listener through a DNS name it owns.
pub(super) fn check_loopback_host(head: &Parts) -> Result<(), Error> {
    let host = host(&head.uri, &head.headers).unwrap_or_default();
    let name = split_port(host).0;
    let address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback()) {
        return Ok(());
    }
    Err(Error::CrossSite {
        seen: format!("`Host: {}`", shorten(host)),
        allowed: "`Host: localhost` or a loopback address, for callers without credential".to_owned(),
    })
}

fn is_safe(head: &Parts, safety: Safety) -> bool {
    let by_method = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method);
    match safety {
        Safety::Unsafe => false,
        Safety::ByMethod => by_method && !head.headers.contains_key(UPGRADE),
    }
}

/// Whether `origin` has the host and port the request was sent to.
fn is_same_origin(head: &Parts, origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let default_port = match scheme {
        "https" => "443",
        "http" => "80",
        _ => return false,
    };
    let Some(host) = host(&head.uri, &head.headers) else {
        return false;
    };
    let (ours, our_port) = split_port(host);
    let (theirs, their_port) = split_port(authority);
    !ours.is_empty()
        && ours.eq_ignore_ascii_case(theirs)
        // The scheme of the request is not known, so the default port of the origin's scheme counts for both.
        && our_port.unwrap_or(default_port) == their_port.unwrap_or(default_port)
}

/// The authority of the request target (HTTP/2), else the only `Host` field.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => sole(headers, HOST.as_str()),
    }
}

/// Splits `host:port`; brackets of an IPv6 address stay with the host.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(port)),
        Some(_) | None => (authority, None),
    }
}

fn sole<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut fields = headers.get_all(name).iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => field.to_str().ok(),
        (_, _) => None,
    }
}

fn allowed(trusted: &[String]) -> String {
    let mut allowed = "`Sec-Fetch-Site: same-origin` or the origin the request was sent to".to_owned();
    if !trusted.is_empty() {
        allowed.push_str(&format!(", or `{}`", trusted.join("`, `")));
    }
    allowed
}

fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}
