//! Certificates and certificate authorities, read from PEM and from the system.

use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Why TLS to a server cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Text that is not valid PEM.
    #[error("`{what}` is not PEM")]
    Pem {
        /// Which setting.
        what: &'static str,
        /// What the reader said.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The PEM text of this setting has no certificate.
    #[error("`{0}` has no certificate")]
    NoCertificate(&'static str),
    /// A certificate without its key, or the other way around.
    #[error("a client certificate needs its key, and a key its certificate")]
    IncompleteIdentity,
    /// The server name is neither a DNS name nor an address.
    #[error("server name `{0}` is neither a DNS name nor an address")]
    ServerName(String),
    /// rustls refuses the parts.
    #[error("certificate and key cannot be used")]
    Rustls(#[from] rustls::Error),
    /// The system's authorities cannot be read.
    #[error("the system has no certificate authorities")]
    NoSystemRoots,
}

/// The certificates of a PEM text, in order. `what` is the setting, for the error.
///
/// # Errors
/// [`Error::Pem`] and [`Error::NoCertificate`].
pub fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Pem { what, source })?;
    if chain.is_empty() {
        Err(Error::NoCertificate(what))
    } else {
        Ok(chain)
    }
}

/// The authorities of a PEM text, and no others.
///
/// # Errors
/// Those of [`certificates`], and [`Error::Rustls`] for a certificate that is no authority.
pub fn roots_from_pem(pem: &str) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("certificateAuthority", pem)? {
        roots.add(certificate)?;
    }
    Ok(Arc::new(roots))
}

/// The system's authorities, read once: there are hundreds.
///
/// # Errors
/// [`Error::NoSystemRoots`].
pub fn system_roots() -> Result<Arc<RootCertStore>, Error> {
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
