//! TLS between replicas: certificates that sign themselves, known by their hash.

use std::collections::HashSet;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

/// The name in certificates. It says nothing.
const NAME: &str = "replica.tollgate.invalid";

/// SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CertificateHash(pub [u8; 32]);

impl CertificateHash {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

/// Why a process has no key for its peers.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaKeyError {
    /// No certificate can be made.
    #[error("no certificate for peers can be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// rustls does not take it.
    #[error("TLS with peers cannot be set up: {0}")]
    Tls(#[from] Error),
}

/// The key of this process, by which its peers know it. It is never stored.
#[derive(derive_more::Debug)]
#[debug("ReplicaKey")]
pub struct ReplicaKey {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ReplicaKey {
    /// Makes a key and a certificate.
    ///
    /// # Errors
    /// [`ReplicaKeyError`].
    pub fn generate() -> Result<Self, ReplicaKeyError> {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
            provider: Arc::new(aws_lc_rs::default_provider()),
        })
    }

    /// The hash of its certificate.
    pub fn certificate(&self) -> CertificateHash {
        CertificateHash::of(&self.certificate)
    }

    /// For connections to a peer.
    pub(crate) fn client_config(&self, peer: CertificateHash) -> Result<ClientConfig, Error> {
        // Its sender is dropped here, so this peer stays the only one.
        let allowed = watch::channel(HashSet::from([peer])).1;
        let chain = vec![self.certificate.clone()];
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(allowed))
            .with_client_auth_cert(chain, self.key.clone_key())?;
        config.enable_sni = false;
        Ok(config)
    }

    /// For connections of peers.
    pub(crate) fn server_config(
        &self,
        peers: watch::Receiver<HashSet<CertificateHash>>,
    ) -> Result<ServerConfig, Error> {
        let chain = vec![self.certificate.clone()];
        ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(self.verifier(peers))
            .with_single_cert(chain, self.key.clone_key())
    }

    fn verifier(&self, allowed: watch::Receiver<HashSet<CertificateHash>>) -> Arc<Pinned> {
        Arc::new(Pinned {
            allowed,
            algorithms: self.provider.signature_verification_algorithms,
        })
    }
}

/// Name of any peer in a handshake.
pub(crate) fn server_name() -> Option<ServerName<'static>> {
    ServerName::try_from(NAME).ok()
}

/// Accepts exactly these certificates, regardless of their content.
#[derive(Debug)]
struct Pinned {
    allowed: watch::Receiver<HashSet<CertificateHash>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match self.allowed.borrow().contains(&CertificateHash::of(certificate)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

/// What the verifiers of both ends, which speak only TLS 1.3, do with signatures.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General(
                "TLS 1.2 is not spoken between replicas".to_owned(),
            ))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // No authority signs these certificates, so there is none to name.
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}
