//! The connections to one cluster, from its server, its TLS settings and a request's credential.
//!
//! Security: a connection opened with one client certificate is never used with another credential.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use url::Url;

use super::backend::{Backend, BuildError, origin};
use super::tls;
use crate::headers::{RequestHeader, Upstream};
use tollgate_agent::AgentClient;
use tollgate_credential::cache::Lease;
use tollgate_credential::{ClientCertificate, Credential, same_certificate};
use tollgate_objects::ClusterTls;
use tollgate_objects::extensions::ConnectionSpec;

/// Longest wait for a connection to a cluster, which may be far away.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A cluster's API server. Requests with a token share connections; a client certificate has
/// separate connections, and idle ones close when another certificate follows. Requests in progress
/// finish on them.
#[derive(derive_more::Debug)]
#[debug("ClusterBackend {{ server: {:?}, .. }}", self.server.as_str())]
pub struct ClusterBackend {
    server: Url,
    tls: ClusterTls,
    no_certificate: Arc<Backend>,
    certificate_backend: ArcSwapOption<CertificateBackend>,
}

struct CertificateBackend {
    credential: Arc<Credential>,
    backend: Arc<Backend>,
}

impl ClusterBackend {
    /// Checks the settings and makes an empty pool. Connects nowhere.
    ///
    /// # Errors
    /// [`BuildError`], for the first thing found.
    pub fn build(server: &str, tls: &ClusterTls) -> Result<Self, BuildError> {
        let server = Url::parse(server).map_err(|_| BuildError::Host)?;
        Ok(Self {
            no_certificate: Arc::new(build_backend(&server, tls, None)?),
            server,
            tls: tls.clone(),
            certificate_backend: ArcSwapOption::const_empty(),
        })
    }

    /// Sends through the agent of the cluster. Connects nowhere.
    ///
    /// - `server`: tells the cluster from others. Nothing is sent there.
    ///
    /// # Errors
    /// [`BuildError`]: `server` is no URL of `https` or `http`.
    pub fn through_agent(server: &str, agent: AgentClient) -> Result<Self, BuildError> {
        let server = Url::parse(server).map_err(|_| BuildError::Host)?;
        let upstream = Upstream::new(origin(&server)?, "/".to_owned(), Vec::new(), RequestHeader::Absent)
            .map_err(|_| BuildError::Host)?;
        Ok(Self {
            no_certificate: Arc::new(Backend::with_agent(upstream, agent)),
            server,
            tls: ClusterTls::default(),
            certificate_backend: ArcSwapOption::const_empty(),
        })
    }

    #[cfg(test)]
    pub(super) fn without_certificate(&self) -> Arc<Backend> {
        Arc::clone(&self.no_certificate)
    }

    /// Whether the connection is unencrypted.
    pub fn is_plain_text(&self) -> bool {
        self.server.scheme() != "https"
    }

    /// The connections for a credential.
    ///
    /// # Errors
    /// [`BuildError::Tls`]: its certificate cannot be used.
    pub fn for_credential(&self, lease: &Lease) -> Result<Arc<Backend>, BuildError> {
        let Some(certificate) = &lease.credential.certificate else {
            return Ok(Arc::clone(&self.no_certificate));
        };
        let present = self.certificate_backend.load();
        if let Some(present) = present
            .as_ref()
            // By the certificate: each slot counts its own generations, so equal numbers prove nothing.
            .filter(|it| same_certificate(&it.credential, &lease.credential))
        {
            return Ok(Arc::clone(&present.backend));
        }
        let backend = Arc::new(build_backend(&self.server, &self.tls, Some(certificate))?);
        // A request that still has the certificate before costs one handshake more.
        self.certificate_backend.store(Some(Arc::new(CertificateBackend {
            credential: Arc::clone(&lease.credential),
            backend: Arc::clone(&backend),
        })));
        Ok(backend)
    }
}

fn build_backend(
    server: &Url,
    settings: &ClusterTls,
    certificate: Option<&ClientCertificate>,
) -> Result<Backend, BuildError> {
    let origin = origin(server)?;
    crate::target::check_path(server.path()).map_err(BuildError::Path)?;
    let identity = tls::identity(server, settings, certificate)?;
    let upstream = Upstream::new(origin, server.path().to_owned(), Vec::new(), RequestHeader::Absent)
        .map_err(|_| BuildError::Host)?;
    // No idle timeout: a watch may be silent for long. TCP's own probes detect a server that is
    // gone.
    let connection = ConnectionSpec {
        connect_timeout: CONNECT_WITHIN,
        ..ConnectionSpec::default()
    };
    Ok(Backend::with_http2_pool(upstream, connection, &identity))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};
    use secrecy::SecretString;

    use super::ClusterBackend;
    use tollgate_credential::cache::Lease;
    use tollgate_credential::{ClientCertificate, Credential, Token};
    use tollgate_objects::{ClusterTls, TlsVerification};

    fn lease(generation: u64, certificate: Option<ClientCertificate>) -> Lease {
        let token = Token::parse("t0ken".to_owned()).unwrap();
        let credential = Credential {
            certificate,
            ..Credential::from_token(token)
        };
        Lease {
            credential: Arc::new(credential),
            generation,
        }
    }

    fn certificate() -> Option<ClientCertificate> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["gateway".to_owned()]).unwrap();
        Some(ClientCertificate {
            chain_pem: params.self_signed(&key).unwrap().pem(),
            key_pem: SecretString::from(key.serialize_pem()),
        })
    }

    #[test]
    fn connections_are_not_shared_between_client_certificates() {
        let tls = ClusterTls {
            verification: TlsVerification::Off,
            ..ClusterTls::default()
        };
        let cluster = ClusterBackend::build("https://k8s.example", &tls).unwrap();
        let of = |lease: &Lease| cluster.for_credential(lease).unwrap();
        // Credentials without a certificate share connections.
        assert!(Arc::ptr_eq(&of(&lease(1, None)), &of(&lease(2, None))));
        let (first, second) = (lease(3, certificate()), lease(4, certificate()));
        let before = of(&first);
        assert!(Arc::ptr_eq(&before, &of(&first)));
        assert!(!Arc::ptr_eq(&before, &of(&lease(1, None))));
        let after = of(&second);
        assert!(!Arc::ptr_eq(&before, &after));
        // Only this test still holds the connections of the first certificate.
        assert_eq!(Arc::strong_count(&before), 1);
        // A late request with the first credential gets connections with its own certificate.
        let late = of(&first);
        assert!(!Arc::ptr_eq(&late, &after));
        assert!(!Arc::ptr_eq(&of(&second), &late));
        // Each slot counts its own generations, so the certificate decides, not the number.
        let other = lease(4, certificate());
        let current = of(&second);
        assert!(!Arc::ptr_eq(&of(&other), &current));
    }

    #[test]
    fn an_invalid_client_certificate_is_refused() {
        let cluster = ClusterBackend::build(
            "https://k8s.example",
            &ClusterTls {
                verification: TlsVerification::Off,
                ..ClusterTls::default()
            },
        );
        let broken = ClientCertificate {
            chain_pem: "none".to_owned(),
            key_pem: SecretString::from("none"),
        };
        assert!(cluster.unwrap().for_credential(&lease(1, Some(broken))).is_err());
        assert!(ClusterBackend::build("not a url", &ClusterTls::default()).is_err());
    }
}
