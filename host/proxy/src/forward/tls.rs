//! The TLS client configuration for backends, from a [`TlsSpec`] or a cluster's [`ClusterTls`].
//! Certificates and keys that cannot be read are refused.
//!
//! Security: every connection is verified, except to a cluster whose Secret says `insecure`.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier};
use secrecy::{ExposeSecret, SecretString};

use super::backend::TlsIdentity;
use tollgate_credential::ClientCertificate;
use tollgate_objects::extensions::TlsSpec;
use tollgate_objects::{ClusterTls, TlsVerification};
use tollgate_runtime::certificates::{Error, certificates, roots_from_pem, system_roots};
use tollgate_runtime::followed::AuthorityFile;

/// A client configuration without ALPN; the connector adds it.
pub(super) fn client_config(spec: &TlsSpec) -> Result<ClientConfig, Error> {
    let builder = builder()?.with_root_certificates(roots(spec.ca_pem.as_deref())?);
    match (&spec.client_certificate_pem, &spec.client_key_pem) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => with_identity(builder, certificate, key),
        (Some(_), None) | (None, Some(_)) => Err(Error::IncompleteIdentity),
    }
}

/// Like [`client_config`], for a cluster, with the client certificate of its credential.
fn cluster_config(tls: &ClusterTls, certificate: Option<&ClientCertificate>) -> Result<ClientConfig, Error> {
    let builder = match tls.verification {
        TlsVerification::On => builder()?.with_root_certificates(roots(tls.ca_pem.as_deref())?),
        TlsVerification::Off => builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(aws_lc_rs::default_provider()))),
    };
    match certificate {
        None => Ok(builder.with_no_client_auth()),
        Some(ClientCertificate { chain_pem, key_pem }) => with_identity(builder, chain_pem, key_pem),
    }
}

/// The configuration for a server, with the name that its certificate must be for.
pub(super) fn identity(
    server: &url::Url,
    tls: &ClusterTls,
    certificate: Option<&ClientCertificate>,
) -> Result<TlsIdentity, Error> {
    let config = match server.scheme() {
        "https" => cluster_config(tls, certificate)?,
        _ => unused_config()?,
    };
    let server_name = server_name(tls.server_name.as_deref())?;
    Ok(TlsIdentity { config, server_name })
}

/// As [`identity`], for a server whose authorities are in a file of the settings; the system's are trusted
/// when it is absent.
pub(super) fn followed_identity(
    server: &url::Url,
    authorities: Option<&Arc<AuthorityFile>>,
    name: Option<&str>,
) -> Result<TlsIdentity, Error> {
    let config = match (server.scheme(), authorities) {
        ("https", Some(authorities)) => authorities.client_config(&[])?,
        ("https", None) => builder()?.with_root_certificates(system_roots()?).with_no_client_auth(),
        _ => unused_config()?,
    };
    let server_name = server_name(name)?;
    Ok(TlsIdentity { config, server_name })
}

/// A configuration for plain HTTP that trusts nobody. The connector never uses it, so reading the
/// system's authorities would be a waste.
pub(super) fn unused_config() -> Result<ClientConfig, Error> {
    let builder = builder()?.with_root_certificates(RootCertStore::empty());
    Ok(builder.with_no_client_auth())
}

fn roots(ca_pem: Option<&str>) -> Result<Arc<RootCertStore>, Error> {
    match ca_pem {
        Some(pem) => roots_from_pem(pem),
        None => system_roots(),
    }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?)
}

fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: &str,
    key: &SecretString,
) -> Result<ClientConfig, Error> {
    let chain = certificates("clientCertificate", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes()).map_err(|source| Error::Pem {
        what: "clientKey",
        source,
    })?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

/// Accepts any certificate, as `insecure` asks for. It still checks that the server holds the
/// certificate's key.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The name a backend's certificate must be for, when it is not the URL's host.
pub(super) fn server_name(name: Option<&str>) -> Result<Option<ServerName<'static>>, Error> {
    let Some(name) = name else { return Ok(None) };
    ServerName::try_from(name.to_owned())
        .map(Some)
        .map_err(|_| Error::ServerName(name.to_owned()))
}
