//! Decides which header fields go to the upstream and which come back. Only this stage makes
//! [`Outbound`]. Fields that can be read in two ways get 400, and a broken invariant gets 500.
//!
//! Security: the types enforce the order. [`clean()`] removes everything that a client may not
//! send, plugins edit [`CleanedRequest::fields_mut`], and [`CleanedRequest::seal`] writes the
//! host's own fields last. It never overwrites: a name that is already present is an error, so a
//! client or plugin cannot write a field that the host owns.

use http::HeaderName;

mod clean;
mod identity;
mod kubernetes;
mod resource;
mod response;
mod seal;
mod upstream;

pub use clean::{CleanedRequest, ClientFields, clean, clean_for};
pub use identity::{GroupEncoding, IdentityHeaders, UserInfo};
pub use kubernetes::client_impersonates;
pub use resource::{ResourceHeaders, ResourceNames};
pub(crate) use response::clean_response;
pub(crate) use response::clean_trailers;
pub use response::{clean_plugin_response, restrict_cluster_response};
pub use seal::{HeldValue, HostHeaders, Outbound};
pub use upstream::Upstream;
pub(crate) use upstream::{Origin, RequestHeader, Responder};

/// Why a request's fields are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A client's field has bytes that are not UTF-8: readers differ. (400)
    #[error("header `{0}` is not UTF-8")]
    NotUtf8(HeaderName),
    /// `Connection` lists something that is no field name. (400)
    #[error("header `connection` lists something that is not a header name")]
    ConnectionOption,
    /// An upgrade request announces content, which a tunnel cannot carry. (400)
    #[error("a request to switch protocols has content")]
    UpgradeContent,
    /// The request's authority is missing or refused. (400)
    #[error(transparent)]
    Authority(#[from] crate::target::Error),
    /// A plugin set a field that only the gateway writes. (500)
    #[error("header `{0}` is the gateway's own and was set by a plugin")]
    Forbidden(HeaderName),
    /// Two parts of the gateway write the same field. (500)
    #[error("header `{0}` would be sent twice")]
    Duplicate(HeaderName),
    /// A part of the caller's identity cannot be sent in a header unchanged. (403)
    #[error("`{0}` of the caller has characters a header cannot carry")]
    Identity(&'static str),
    /// A value of the gateway's own cannot be a header value. (500)
    #[error("value of header `{0}` has characters a header cannot carry")]
    Value(HeaderName),
    /// A cluster's credential is not a valid header value, or more than one. (500)
    #[error("the cluster's credential cannot be sent in a header")]
    Credential,
    /// A cluster would attribute the request to a different user than the policy did. (500)
    #[error("the cluster would attribute the request to another user than the one decided on")]
    Impersonation,
    /// The upstream expects `X-Remote-User`, and the caller has no name for it. (403)
    #[error("the caller has no name to give in `x-remote-user`")]
    Nameless,
}

#[cfg(test)]
mod tests;
