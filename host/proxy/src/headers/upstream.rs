//! The part of the header that all requests to one upstream share: a service's checked address and
//! fields.
//!
//! Security: it contains no field that the host owns.

use http::header::{AUTHORIZATION, COOKIE};
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue};

use tollgate_core::header_names::{HeaderOwner, owner};

/// Where requests go and what the operator adds to each. Made by the stage
/// that connects.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) host: HeaderValue,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) request_header: RequestHeader,
    /// Path of the service's URL, `/` or more, for [`crate::target::join`].
    pub base: String,
    pub(crate) responder: Responder,
}

/// Who answers at an upstream. It decides which header fields of its answers reach the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Responder {
    /// Anybody who can run something in a cluster.
    Cluster,
    /// A backend of the extension of this name.
    Extension(String),
    /// argocd-server, whose origin this is: its cookies are the sessions.
    Argocd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestHeader {
    Sent,
    Absent,
}

/// The scheme and authority of a URL.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
}

impl Upstream {
    /// Whether requests to both go to the same URL.
    pub fn has_same_url(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.authority == other.authority && self.base == other.base
    }

    /// - `base`: path of the service's URL, `/` or more.
    /// - `headers`: set on each request, checked by [`Upstream::may_configure`].
    pub(crate) fn new(
        origin: Origin,
        base: String,
        headers: Vec<(HeaderName, HeaderValue)>,
        request_header: RequestHeader,
    ) -> Result<Self, http::header::InvalidHeaderValue> {
        let Origin { scheme, authority } = origin;
        let host = HeaderValue::from_str(authority.as_str())?;
        Ok(Self {
            scheme,
            authority,
            host,
            headers,
            request_header,
            base,
            responder: Responder::Cluster,
        })
    }

    #[must_use]
    pub(crate) fn answered_by(self, responder: Responder) -> Self {
        Self { responder, ..self }
    }

    /// Whether an operator may set the field on all requests to a service. The service's own
    /// credentials are allowed, fields of the gateway are not.
    pub(crate) fn may_configure(name: &HeaderName) -> bool {
        name == AUTHORIZATION || name == COOKIE || owner(name.as_str()) != HeaderOwner::Host
    }
}
