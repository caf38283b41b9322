//! The connections to argocd-server: HTTP/2 for gRPC, and HTTP/1.1 for everything else.
//!
//! argocd-server takes both on one port. It decides by the first request of a connection what the
//! connection is for, and closes an HTTP/2 connection whose first request is not gRPC (source:
//! `server/server.go`, `newListeners`).

use std::sync::Arc;
use std::time::Duration;

use super::backend::{Backend, BuildError, origin};
use super::tls;
use crate::headers::{RequestHeader, Responder, Upstream};
use tollgate_objects::extensions::ConnectionSpec;
use tollgate_runtime::followed::AuthorityFile;

/// Unused HTTP/1.1 connections that are kept. A browser's page alone takes several at once.
const MAX_IDLE_CONNECTIONS: usize = 200;

/// argocd-server. Dropping it closes its idle connections.
#[derive(Debug)]
pub struct ArgocdBackend {
    http1: Backend,
    grpc: Backend,
}

/// What a connection to argocd-server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgocdProtocol {
    /// Everything but gRPC, gRPC-Web and WebSockets included.
    Http1,
    /// gRPC, whose content type is exactly `application/grpc`.
    Grpc,
}

impl ArgocdBackend {
    /// Checks the settings and makes empty pools. Connects nowhere.
    ///
    /// - `authorities`: the system's when absent.
    /// - `name`: the name that its certificate must be for, if not its host.
    /// - `root_path`: the path below which it serves everything but gRPC, `/` or more.
    ///
    /// # Errors
    /// [`BuildError`], for the first thing found.
    pub fn build(
        server: &url::Url,
        authorities: Option<&Arc<AuthorityFile>>,
        name: Option<&str>,
        root_path: &str,
    ) -> Result<Self, BuildError> {
        let origin = origin(server)?;
        let identity = tls::followed_identity(server, authorities, name)?;
        let upstream = |base: &str| {
            let upstream = Upstream::new(origin.clone(), base.to_owned(), Vec::new(), RequestHeader::Absent);
            upstream
                .map(|upstream| upstream.answered_by(Responder::Argocd))
                .map_err(|_| BuildError::Host)
        };
        // No idle timeout: streams may be silent for long. TCP's own probes detect a server that is
        // gone.
        let connection = ConnectionSpec {
            connect_timeout: Duration::from_secs(5),
            max_idle_connections: MAX_IDLE_CONNECTIONS,
            ..ConnectionSpec::default()
        };
        Ok(Self {
            http1: Backend::with_http1(upstream(root_path)?, &connection, identity.clone()),
            grpc: Backend::with_http2(upstream("/")?, connection, identity),
        })
    }

    /// The connections for `protocol`.
    pub fn connections(&self, protocol: ArgocdProtocol) -> &Backend {
        match protocol {
            ArgocdProtocol::Http1 => &self.http1,
            ArgocdProtocol::Grpc => &self.grpc,
        }
    }
}
