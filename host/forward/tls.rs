//! TLS to backends.
//!
//! In: a [`TlsSpec`]. Out: a client configuration. Refuses: certificates and
//! keys that cannot be read. Never: a connection without verification.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::ExposeSecret;

use crate::front::extensions::config::TlsSpec;

/// Why TLS to a backend cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// PEM text that is none.
    #[error("`{what}` is not PEM")]
    Pem {
        /// Which setting.
        what: &'static str,
        /// What the reader said.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// PEM text without a certificate.
    #[error("`{what}` has no certificate")]
    NoCertificate {
        /// Which setting.
        what: &'static str,
    },
    /// A certificate without its key, or the other way around.
    #[error("a client certificate needs its key, and a key its certificate")]
    HalfIdentity,
    /// The server name is neither a DNS name nor an address.
    #[error("server name `{name}` is neither a DNS name nor an address")]
    ServerName {
        /// The name.
        name: String,
    },
    /// rustls refuses the parts.
    #[error("certificate and key cannot be used")]
    Rustls(#[from] rustls::Error),
    /// The system's authorities cannot be read.
    #[error("the system has no certificate authorities")]
    NoSystemRoots,
}

/// A client configuration without ALPN; the connector adds it.
pub(super) fn client_config(spec: &TlsSpec) -> Result<ClientConfig, Error> {
    let roots = match &spec.ca_pem {
        Some(pem) => own_roots(pem)?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    match (&spec.client_certificate_pem, &spec.client_key_pem) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let chain = certificates("clientCertificate", certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes()).map_err(|source| Error::Pem {
                what: "clientKey",
                source,
            })?;
            Ok(builder.with_client_auth_cert(chain, key)?)
        }
        (Some(_), None) | (None, Some(_)) => Err(Error::HalfIdentity),
    }
}

/// The name a backend's certificate must be for, when it is not the URL's host.
pub(super) fn server_name(spec: &TlsSpec) -> Result<Option<ServerName<'static>>, Error> {
    let Some(name) = &spec.server_name else { return Ok(None) };
    ServerName::try_from(name.clone())
        .map(Some)
        .map_err(|_| Error::ServerName { name: name.clone() })
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Pem { what, source })?;
    if chain.is_empty() {
        Err(Error::NoCertificate { what })
    } else {
        Ok(chain)
    }
}

/// The authorities of a PEM text, and no others.
pub(crate) fn own_roots(pem: &str) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("certificateAuthority", pem)? {
        roots.add(certificate)?;
    }
    Ok(Arc::new(roots))
}

/// The system's authorities, read once: there are hundreds.
pub(crate) fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // Old systems carry certificates rustls cannot read; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        Err(Error::NoSystemRoots)
    } else {
        Ok(roots.clone())
    }
}
