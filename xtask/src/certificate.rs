//! A certificate for servers on loopback, issued by a separate authority.

use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

/// A certificate for `127.0.0.1`.
#[derive(Debug)]
pub struct Certificate {
    /// Certificate of the authority, PEM.
    pub ca_pem: String,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Certificate {
    /// Issues a certificate.
    ///
    /// # Errors
    /// No key could be generated.
    pub fn issue() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
        Ok(Self {
            ca_pem,
            certificate,
            key,
        })
    }

    /// The certificate, PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The private key, PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// TLS of a server with this certificate, without client certificates.
    ///
    /// # Errors
    /// rustls refuses the certificate.
    pub fn server_config(&self) -> Result<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key)
            .context("the certificate of a server on loopback")
    }
}
