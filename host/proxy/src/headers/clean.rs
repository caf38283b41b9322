//! Removes the header fields that a client may not send to an upstream. The result is
//! [`CleanedRequest`].
//!
//! Security: a removed field never comes back, regardless of what `Connection` or a plugin says.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, request};
use hyper::upgrade::OnUpgrade;

use tollgate_core::upgrade::Protocol;

use super::Error;
use tollgate_core::header_map::{items, lists, retain};
use tollgate_core::header_names::{CONTENT_NAMES, HeaderOwner, owner};
use tollgate_core::subprotocol;

/// Which of a client's fields may reach an upstream. The gateway's own never do.
#[derive(Clone, Copy, Debug)]
pub enum ClientFields<'a> {
    /// All fields, except those that some backend attributes to somebody other than the client.
    NoAllowlist,
    /// Only these fields, and those needed to read the content.
    Allowlist(&'a [HeaderName]),
    /// As without an allowlist, and the caller's credentials: argocd-server authenticates callers
    /// itself.
    Argocd,
}

/// Prefixes of fields that argocd-server takes for metadata of gRPC. As `Grpc-Metadata-Token`, a
/// token takes precedence there over `Authorization` and the cookie.
const GRPC_METADATA_PREFIXES: [&str; 2] = ["grpc-metadata-", "grpcgateway-"];

impl ClientFields<'_> {
    fn contains(self, name: &HeaderName) -> bool {
        let name = name.as_str();
        match (self, owner(name)) {
            (_, HeaderOwner::Host) | (Self::NoAllowlist | Self::Argocd, HeaderOwner::Operator) => false,
            (Self::Argocd, HeaderOwner::Client) => {
                !GRPC_METADATA_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            }
            (Self::NoAllowlist, HeaderOwner::Client) => true,
            (Self::Allowlist(allowed), HeaderOwner::Operator | HeaderOwner::Client) => {
                CONTENT_NAMES.binary_search(&name).is_ok() || allowed.iter().any(|allowed_name| allowed_name == name)
            }
        }
    }
}

/// A request head with only the fields that the client may send. Plugins edit them, and
/// [`CleanedRequest::seal`] completes the head for sending.
#[derive(Clone, Debug)]
pub struct CleanedRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) fields: HeaderMap,
    /// Authority the client named, for `X-Forwarded-Host`.
    pub(super) host: HeaderValue,
    /// The protocol the client asks for, if supported.
    pub(super) upgrade: Option<(Protocol, OnUpgrade)>,
    pub(super) accepts_trailers: bool,
    /// Names of trailers the client announced and may send.
    pub(super) trailer: Option<HeaderValue>,
    /// Gateways the request came through before, in one line.
    pub(super) via: Option<HeaderValue>,
    /// `Authorization` and `Cookie`, if the upstream authenticates callers itself.
    pub(super) credentials: Vec<(HeaderName, HeaderValue)>,
}

impl CleanedRequest {
    /// The client's method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The client's target, as it was sent.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The fields that will leave, without the host's own.
    pub fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    /// The same, for plugins to edit. A field that the host owns makes [`CleanedRequest::seal`]
    /// fail.
    pub fn fields_mut(&mut self) -> &mut HeaderMap {
        &mut self.fields
    }

    /// The protocol this request wants the connection switched to.
    pub fn upgrade(&self) -> Option<Protocol> {
        self.upgrade.as_ref().map(|(protocol, _)| *protocol)
    }
}

/// As [`clean_for`], for an upstream without an allowlist.
///
/// # Errors
/// As [`clean_for`].
pub fn clean(head: request::Parts) -> Result<CleanedRequest, Error> {
    clean_for(head, ClientFields::NoAllowlist)
}

/// Removes credentials, identity and forwarding fields in every spelling, hop-by-hop fields, fields
/// that `Connection` names, and fields that `allowed` does not contain.
///
/// # Errors
/// [`Error::Authority`], [`Error::NotUtf8`], [`Error::ConnectionOption`],
/// [`Error::UpgradeContent`].
///
/// Source: RFC 9110, section 7.6.1.
pub fn clean_for(head: request::Parts, allowed: ClientFields<'_>) -> Result<CleanedRequest, Error> {
    let request::Parts {
        method,
        uri,
        version,
        headers: mut fields,
        mut extensions,
        ..
    } = head;
    crate::target::authority(&method, &uri, &fields)?;
    let host = match fields.remove(HOST) {
        Some(host) => host,
        None => HeaderValue::from_str(uri.authority().map_or("", |authority| authority.as_str()))
            .map_err(|_| crate::target::Error::HostInvalid)?,
    };
    // This and what follows is read before the fields that say it are removed.
    let upgrade = requested_upgrade(version, &method, &fields)?
        .and_then(|protocol| extensions.remove::<OnUpgrade>().map(|upgrade| (protocol, upgrade)));
    let accepts_trailers = lists(&fields, &TE, "trailers");
    let trailer = match allowed {
        ClientFields::NoAllowlist | ClientFields::Argocd => announced_trailers(&fields),
        // Servers merge trailers into the fields.
        ClientFields::Allowlist(_) => None,
    };
    remove_named_by_connection(&mut fields)?;
    let via = joined(&fields, &VIA);
    let credentials = match allowed {
        ClientFields::Argocd => credentials(&fields),
        ClientFields::NoAllowlist | ClientFields::Allowlist(_) => Vec::new(),
    };
    remove_foreign(&mut fields, allowed)?;
    subprotocol::strip(&mut fields);
    if upgrade.is_none() {
        fields.remove("sec-websocket-key");
        fields.remove("sec-websocket-version");
    }
    Ok(CleanedRequest {
        method,
        uri,
        fields,
        host,
        upgrade,
        accepts_trailers,
        trailer,
        via,
        credentials,
    })
}

/// `Authorization` as it came, and `Cookie` in one line, because HTTP/2 splits it (RFC 9113,
/// section 8.2.3).
fn credentials(fields: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let authorization = fields.get_all(AUTHORIZATION).iter().cloned();
    let mut credentials: Vec<_> = authorization.map(|value| (AUTHORIZATION, value)).collect();
    let cookies: Vec<&[u8]> = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Joining values gives a value.
    if let (false, Ok(cookie)) = (cookies.is_empty(), HeaderValue::try_from(cookies.join(&b"; "[..]))) {
        credentials.push((COOKIE, cookie));
    }
    for (_, value) in &mut credentials {
        value.set_sensitive(true);
    }
    credentials
}

/// All lines of the list field `name`, joined into one. `None` without a readable line.
pub(super) fn joined(fields: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = fields.get_all(name).iter().filter(|line| !line.is_empty());
    let first = lines.next()?;
    let rest: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    let first = first.to_str().ok()?;
    HeaderValue::try_from([&[first], rest.as_slice()].concat().join(", ")).ok()
}

fn remove_foreign(fields: &mut HeaderMap, allowed: ClientFields<'_>) -> Result<(), Error> {
    retain(fields, |name| allowed.contains(name));
    // Only of the fields that are left, because the others are not forwarded.
    let is_utf8 = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).is_ok();
    match fields.iter().find(|(_, value)| !is_utf8(value)) {
        Some((name, _)) => Err(Error::NotUtf8(name.clone())),
        None => Ok(()),
    }
}

/// Removes the fields that any line of `Connection` names. Identity fields are not affected,
/// because they are written later.
pub(super) fn remove_named_by_connection(fields: &mut HeaderMap) -> Result<(), Error> {
    let lines: Vec<HeaderValue> = fields.get_all(CONNECTION).iter().cloned().collect();
    for line in &lines {
        let line = line.to_str().map_err(|_| Error::ConnectionOption)?;
        for option in line.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            if option.eq_ignore_ascii_case("keep-alive") || option.eq_ignore_ascii_case("close") {
                continue;
            }
            let name = HeaderName::try_from(option).map_err(|_| Error::ConnectionOption)?;
            fields.remove(name);
        }
    }
    Ok(())
}

fn requested_upgrade(version: Version, method: &Method, fields: &HeaderMap) -> Result<Option<Protocol>, Error> {
    let mut lines = fields.get_all(UPGRADE).iter();
    // A server may ignore `Upgrade`, so what is not supported is an ordinary request. Source: RFC 9110,
    // section 7.8.
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Ok(None);
    };
    let Some(protocol) = line.to_str().ok().and_then(|line| Protocol::try_from(line.trim()).ok()) else {
        return Ok(None);
    };
    if version != Version::HTTP_11 || !lists(fields, &CONNECTION, "upgrade") {
        return Ok(None);
    }
    // Source: RFC 6455, section 4.1. SPDY has no such rule, and clients open it with `POST`.
    if protocol == Protocol::WebSocket && method != Method::GET {
        return Ok(None);
    }
    let sized = fields
        .get(CONTENT_LENGTH)
        .is_some_and(|length| length.as_bytes().iter().any(|byte| *byte != b'0'));
    if sized || fields.contains_key(TRANSFER_ENCODING) {
        return Err(Error::UpgradeContent);
    }
    Ok(Some(protocol))
}

/// The announced trailers that may be forwarded, as one list.
fn announced_trailers(fields: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<HeaderName> = items(fields, &TRAILER)
        .filter_map(|name| HeaderName::try_from(name).ok())
        .filter(|name| owner(name.as_str()) == HeaderOwner::Client)
        .collect();
    let list = names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
    Some(list).filter(|list| !list.is_empty())?.try_into().ok()
}
