//! Which header fields leave for the upstream, and which come back.
//!
//! In: the client's head, the plugins' edits, what the gateway knows. Out:
//! [`Outbound`], which only this stage makes. Refuses: 400 for fields with two
//! readings, 500 for a broken invariant. Never: a field of the host's own that
//! a client or plugin wrote.
//!
//! The order is the type: [`clean()`] takes everything away that is not the
//! client's to say, plugins edit [`Cleaned::fields_mut`], and
//! [`Cleaned::seal`] writes the host's own fields last, refusing to overwrite:
//! a name that is already there is an error, never two fields.

use http::HeaderName;

mod clean;
mod identity;
mod kubernetes;
mod response;
mod seal;
mod subject;
mod upstream;

pub use clean::{Cleaned, ClientFields, clean, clean_for};
pub use identity::{Caller, Identity};
pub use kubernetes::client_impersonates;
pub(crate) use response::clean_trailers;
pub use response::{clean_response, contain_response};
pub use seal::{Held, Outbound, Own};
pub use subject::{About, Subject};
pub(crate) use upstream::RequestHeader;
pub use upstream::Upstream;

/// Why a request's fields are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A client's field has bytes that are not UTF-8: readers differ. (400)
    #[error("header `{name}` is not UTF-8")]
    NotUtf8 {
        /// Its name.
        name: HeaderName,
    },
    /// `Connection` lists something that is no field name. (400)
    #[error("header `connection` lists something that is not a header name")]
    ConnectionOption,
    /// An upgrade request announces content, which a tunnel cannot carry. (400)
    #[error("a request to switch protocols has content")]
    UpgradeContent,
    /// The request's authority is missing or refused. (400)
    #[error(transparent)]
    Authority(#[from] crate::route::Error),
    /// A plugin left a field only the gateway writes. (500)
    #[error("header `{name}` is the gateway's own and was set by a plugin")]
    Forbidden {
        /// Its name.
        name: HeaderName,
    },
    /// Two parts of the gateway write the same field. (500)
    #[error("header `{name}` would be sent twice")]
    Duplicate {
        /// Its name.
        name: HeaderName,
    },
    /// A part of the caller's identity cannot be said in a header without
    /// meaning something else. (403)
    #[error("`{part}` of the caller has characters a header cannot carry")]
    Identity {
        /// Which part.
        part: &'static str,
    },
    /// A value of the gateway's own cannot be a header value. (500)
    #[error("value of header `{name}` has characters a header cannot carry")]
    Value {
        /// Its name.
        name: HeaderName,
    },
    /// A cluster's credential is no header value, or is several. (500)
    #[error("the cluster's credential cannot be sent in a header")]
    Credential,
    /// A cluster would take the request for somebody else's than the policy
    /// said. (500)
    #[error("the request would not reach the cluster as whom it should")]
    Impersonation,
    /// The upstream expects `X-Remote-User` and the identity has none. (403)
    #[error("the caller has no name to give in `x-remote-user`")]
    Nameless,
}

#[cfg(test)]
mod tests;
