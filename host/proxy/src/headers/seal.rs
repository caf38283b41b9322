//! Writes the fields that the host owns, as the last step from [`CleanedRequest`] to [`Outbound`].
//!
//! Security: only this stage writes them. A field that is already present is an error (500).

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONNECTION, HOST, TE, TRAILER, UPGRADE, VIA};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use hyper::upgrade::OnUpgrade;
use secrecy::ExposeSecret as _;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::clean::CleanedRequest;
use super::identity::{GroupEncoding, IdentityHeaders};
use super::resource::ResourceHeaders;
use super::upstream::{RequestHeader, Upstream};
use super::{Error, kubernetes};
use crate::client::Client;
use tollgate_core::header_names::is_host_owned;
use tollgate_core::upgrade::Protocol;
use tollgate_credential::{Credential, sensitive_header_value};
use tollgate_identity::sessions::EndSignal;
use tollgate_policy::impersonate::Impersonation;

const USER_ID: HeaderName = HeaderName::from_static("argocd-user-id");
const USERNAME: HeaderName = HeaderName::from_static("argocd-username");
const USER_GROUPS: HeaderName = HeaderName::from_static("argocd-user-groups");
const ASSERTION: HeaderName = HeaderName::from_static("tollgate-assertion");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The gateway's entry in `Via`.
pub(super) const PSEUDONYM: &str = "1.1 tollgate";

/// The fields that the gateway itself writes. All values were checked before.
#[derive(Clone, Copy, Debug)]
pub struct HostHeaders<'a> {
    /// Who calls.
    pub identity: &'a IdentityHeaders,
    /// How the caller's groups are written.
    pub groups: GroupEncoding,
    /// What the request is about.
    pub resource: &'a ResourceHeaders,
    /// Signed assertion, see [`crate::assertion`].
    pub assertion: Option<&'a HeaderValue>,
}

/// A value kept as long as an exchange: until the response's content or the tunnel has ended or
/// was dropped.
pub type HeldValue = Box<dyn Any + Send>;

/// The protocol that a client asks for, and its connection once the protocol is switched.
pub(crate) type PendingUpgrade = (Protocol, OnUpgrade);

/// A request that may leave. Only [`CleanedRequest`]'s `seal` methods make one.
#[derive(derive_more::Debug)]
// Without values: they may be secrets of a service.
#[debug("Outbound {{ method: {:?}, uri: {:?}, fields: {:?}, .. }}", self.request.method(), self.request.uri(), self.request.headers().len())]
pub struct Outbound {
    request: Request<()>,
    upgrade: Option<PendingUpgrade>,
    upstream: Arc<Upstream>,
    client: Arc<Client>,
    held: Vec<HeldValue>,
    /// When the caller's credential ends: no exchange outlives it.
    ends_at: Option<jiff::Timestamp>,
    /// Id of the decision that allowed the request, for the log.
    decision: Uuid,
    /// Signal that ends the exchange from outside.
    signal: Option<EndSignal>,
}

impl Outbound {
    /// Keeps `thing` until the exchange has ended: permits, the decision record.
    pub fn hold(&mut self, thing: impl Send + 'static) {
        self.held.push(Box::new(thing));
    }

    /// Ends the exchange with the caller's credential.
    ///
    /// - `decision`: id of the decision that allowed it.
    pub fn expire_with_credential(&mut self, credential_ends_at: Option<jiff::Timestamp>, decision: Uuid) {
        self.ends_at = credential_ends_at;
        self.decision = decision;
    }

    /// Ends the exchange on `signal`: the wait for the response, its content, the upload and the
    /// tunnel.
    pub fn terminate_on(&mut self, signal: EndSignal) {
        self.signal = Some(signal);
    }

    pub(crate) fn signal(&self) -> Option<&EndSignal> {
        self.signal.as_ref()
    }

    /// Id of the decision that allowed it.
    pub fn decision(&self) -> Uuid {
        self.decision
    }

    pub(crate) fn credential_time_left(&self) -> Option<Duration> {
        let left = self.ends_at?.duration_since(jiff::Timestamp::now());
        // An expired credential has no time left.
        Some(Duration::try_from(left).unwrap_or_default())
    }

    /// The head as it leaves, for tests and traces.
    pub fn head(&self) -> &Request<()> {
        &self.request
    }

    fn to(mut self, path: PathAndQuery) -> Result<Self, Error> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.upstream.scheme.clone());
        parts.authority = Some(self.upstream.authority.clone());
        parts.path_and_query = Some(path);
        *self.request.uri_mut() =
            Uri::from_parts(parts).map_err(|_| Error::Authority(crate::target::Error::TooLong))?;
        Ok(self)
    }

    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    pub(crate) fn into_parts(self) -> (Request<()>, Option<PendingUpgrade>, Arc<Client>, Vec<HeldValue>) {
        (self.request, self.upgrade, self.client, self.held)
    }
}

impl CleanedRequest {
    /// Writes the host's own fields and binds the request to its upstream.
    ///
    /// - `path`: from [`crate::target::join`] with the upstream's base.
    ///
    /// # Errors
    /// [`Error::Forbidden`] when a plugin left a field of the host's own,
    /// [`Error::Duplicate`] when the host would write one twice,
    /// [`Error::Value`] and [`Error::Nameless`].
    pub fn seal(
        self,
        upstream: &Arc<Upstream>,
        path: PathAndQuery,
        host_headers: &HostHeaders<'_>,
        client: &Arc<Client>,
    ) -> Result<Outbound, Error> {
        let mut sealed = self.begin(upstream, client)?;
        let fields = sealed.request.headers_mut();
        for (name, value) in host_headers.resource.fields() {
            put(fields, name.clone(), value.clone())?;
        }
        put_identity(fields, host_headers, upstream.request_header)?;
        sealed.to(path)
    }

    /// Writes the host's own fields and the caller's credentials, and binds the request to
    /// argocd-server. `Host` is the one that the client named, because argocd-server chooses the
    /// address of its sign-in by it.
    ///
    /// # Errors
    /// [`Error::Forbidden`] and [`Error::Duplicate`], as [`CleanedRequest::seal`].
    pub fn seal_for_argocd(
        mut self,
        upstream: &Arc<Upstream>,
        path: PathAndQuery,
        client: &Arc<Client>,
    ) -> Result<Outbound, Error> {
        let (host, credentials) = (self.host.clone(), std::mem::take(&mut self.credentials));
        let mut sealed = self.begin(upstream, client)?;
        let fields = sealed.request.headers_mut();
        fields.insert(HOST, host);
        for (name, value) in credentials {
            fields.append(name, value);
        }
        sealed.to(path)
    }

    /// Writes the host's own fields and a cluster's credential, and binds the
    /// request to the cluster.
    ///
    /// The cluster learns nothing about the caller. It authenticates the gateway by the credential.
    ///
    /// - `audit_id`: the cluster's audit log has it as `auditID`.
    ///
    /// # Errors
    /// As [`CleanedRequest::seal`]; [`Error::Credential`] when the credential cannot be
    /// sent.
    pub fn seal_for_cluster(
        self,
        upstream: &Arc<Upstream>,
        path: PathAndQuery,
        credential: &Credential,
        audit_id: Uuid,
        client: &Arc<Client>,
    ) -> Result<Outbound, Error> {
        let mut sealed = self.begin(upstream, client)?;
        let fields = sealed.request.headers_mut();
        put_credential(fields, credential)?;
        kubernetes::put_audit_id(fields, audit_id)?;
        sealed.to(path)
    }

    /// Writes the host's own fields, a cluster's credential and the identity to impersonate, and
    /// binds the request to the cluster.
    ///
    /// - `audit_id`: the cluster's audit log has it as `auditID`.
    ///
    /// # Errors
    /// As [`CleanedRequest::seal_for_cluster`]; [`Error::Impersonation`] when the cluster would
    /// attribute the request to somebody else.
    pub fn seal_for_kubernetes(
        mut self,
        upstream: &Arc<Upstream>,
        path: PathAndQuery,
        credential: &Credential,
        impersonation: &Impersonation,
        audit_id: Uuid,
        client: &Arc<Client>,
    ) -> Result<Outbound, Error> {
        kubernetes::remove_front_only_fields(&mut self.fields);
        // The API server has no use for trailers.
        (self.accepts_trailers, self.trailer) = (false, None);
        let via = self.via.take();
        let mut sealed = self.begin(upstream, client)?;
        let fields = sealed.request.headers_mut();
        if let Some(via) = kubernetes::via_after(via.as_ref()) {
            fields.insert(VIA, via);
        }
        put_credential(fields, credential)?;
        kubernetes::put_audit_id(fields, audit_id)?;
        kubernetes::put_impersonation(fields, impersonation)?;
        kubernetes::check_impersonation(fields, impersonation)?;
        sealed.to(path)
    }

    fn begin(self, upstream: &Arc<Upstream>, client: &Arc<Client>) -> Result<Outbound, Error> {
        let Self {
            method,
            uri: _,
            mut fields,
            host,
            upgrade,
            accepts_trailers,
            trailer,
            via: _,
            credentials: _,
        } = self;
        // INVARIANT: below this line no field of the host's own is in `fields`
        // unless this file put it there, once.
        if let Some(name) = fields.keys().find(|name| is_host_owned(name)) {
            return Err(Error::Forbidden(name.clone()));
        }
        fields.reserve(16 + upstream.headers.len());
        // A plugin may have set a field that is configured for the service; the configured one wins.
        // Before the host's own fields, so that `put` refuses a configured name that is among them.
        for (name, value) in &upstream.headers {
            fields.insert(name.clone(), value.clone());
        }
        put(&mut fields, HOST, upstream.host.clone())?;
        put(&mut fields, VIA, HeaderValue::from_static(PSEUDONYM))?;
        put(&mut fields, FORWARDED_FOR, client.forwarded_for().clone())?;
        put(&mut fields, FORWARDED_HOST, host)?;
        put(&mut fields, FORWARDED_PROTO, HeaderValue::from_static(client.scheme()))?;
        if accepts_trailers {
            put(&mut fields, TE, HeaderValue::from_static("trailers"))?;
        }
        if let Some(trailer) = trailer {
            put(&mut fields, TRAILER, trailer)?;
        }
        if let Some((protocol, _)) = &upgrade {
            put(&mut fields, CONNECTION, HeaderValue::from_static("upgrade"))?;
            put(&mut fields, UPGRADE, HeaderValue::from_static(protocol.into()))?;
        }
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.headers_mut() = fields;
        Ok(Outbound {
            request,
            upgrade,
            upstream: upstream.clone(),
            client: client.clone(),
            held: Vec::new(),
            ends_at: None,
            decision: Uuid::nil(),
            signal: None,
        })
    }
}

fn put_credential(fields: &mut HeaderMap, credential: &Credential) -> Result<(), Error> {
    for (name, value) in &credential.headers {
        // The credential's fields replace the client's.
        if is_host_owned(name) {
            return Err(Error::Forbidden(name.clone()));
        }
        let value = sensitive_header_value("", value.expose_secret()).ok_or(Error::Credential)?;
        fields.insert(name.clone(), value);
    }
    match authorization(credential)? {
        Some(value) => put(fields, AUTHORIZATION, value),
        None => Ok(()),
    }
}

/// The credential's `Authorization`. A certificate alone needs none.
fn authorization(credential: &Credential) -> Result<Option<HeaderValue>, Error> {
    let value = match (&credential.token, &credential.basic) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => None,
        (Some(token), None) => token.to_authorization(),
        (None, Some(basic)) => {
            let pair = Zeroizing::new(format!("{}:{}", basic.username, basic.password.expose_secret()));
            sensitive_header_value("Basic ", &Zeroizing::new(STANDARD.encode(pair.as_bytes())))
        }
    };
    value.map(Some).ok_or(Error::Credential)
}

fn put_identity(
    fields: &mut HeaderMap,
    host_headers: &HostHeaders<'_>,
    request_header: RequestHeader,
) -> Result<(), Error> {
    let IdentityHeaders {
        user_id,
        username,
        groups,
        joined_groups,
        remote,
    } = host_headers.identity;
    let groups = match host_headers.groups {
        GroupEncoding::Escaped => groups,
        GroupEncoding::Argocd => &joined_groups.clone().transpose()?,
    };
    for (name, value) in [(USER_ID, user_id), (USERNAME, username), (USER_GROUPS, groups)] {
        if let Some(value) = value {
            put(fields, name, value.clone())?;
        }
    }
    if let Some(assertion) = host_headers.assertion {
        put(fields, ASSERTION, assertion.clone())?;
    }
    match request_header {
        RequestHeader::Absent => Ok(()),
        // A backend that finds no user there could take the gateway, whose certificate it sees, for the caller.
        RequestHeader::Sent if remote.is_empty() => Err(Error::Nameless),
        RequestHeader::Sent => {
            // One name may have several lines, so this appends; the names were
            // free before.
            for (name, value) in remote {
                fields.append(name.clone(), value.clone());
            }
            Ok(())
        }
    }
}

/// Writes a field that must not be there yet.
pub(super) fn put(fields: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<(), Error> {
    match fields.entry(name) {
        http::header::Entry::Vacant(vacant) => {
            vacant.insert(value);
            Ok(())
        }
        http::header::Entry::Occupied(present) => Err(Error::Duplicate(present.key().clone())),
    }
}
