//! Requests inside a tunnel (`CONNECT`) to a cluster's API server: the authority that the tunnel was
//! opened for, and the raw path. Refusals get 400.
//!
//! Security: the API server reads the path exactly as the permit did.

use http::Uri;
use http::uri::Authority;

use tollgate_proxy::target::{Error, check_cluster_path};

/// A request inside a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TunnelTarget {
    /// Host and port of the cluster's server, the host in lower case.
    pub(crate) authority: Authority,
    uri: Uri,
}

impl TunnelTarget {
    pub(crate) fn read(authority: &Authority, uri: &Uri) -> Result<Self, Error> {
        check_cluster_path(uri.path())?;
        Ok(Self {
            authority: authority.clone(),
            uri: uri.clone(),
        })
    }

    /// The whole path, encoded as the client sent it. It begins with the path of the cluster's server, if that has one.
    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    /// What follows `?`, as the client sent it.
    pub(crate) fn query(&self) -> Option<&str> {
        self.uri.query()
    }
}
