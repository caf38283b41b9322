//! Certificates and certificate authorities, read from PEM and from the system, and when they end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};

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

/// The last second of a certificate's validity, since the Unix epoch; `None` if it cannot be read.
pub fn end(certificate: &CertificateDer<'_>) -> Option<u64> {
    match verify_at(certificate, u64::MAX)? {
        CertificateError::ExpiredContext { not_after, .. } => Some(not_after.as_secs()),
        _ => None,
    }
}

/// As [`end`], of the first certificate of a PEM text, which is the one that the others follow.
pub fn end_of_pem(pem: &[u8]) -> Option<u64> {
    end(&CertificateDer::from_pem_slice(pem).ok()?)
}

/// What is wrong with a certificate's validity at a time, in seconds since the Unix epoch; another error if
/// nothing is.
pub fn verify_at(certificate: &CertificateDer<'_>, time: u64) -> Option<CertificateError> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
    // Validity is checked before the signer, so an empty set of trusted roots is enough.
    let roots = RootCertStore::empty();
    match rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], time, algorithms.all) {
        Err(rustls::Error::InvalidCertificate(error)) => Some(error),
        Ok(()) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{end, end_of_pem};

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        assert_eq!(end(certificate.der()), Some(1_927_843_200));
        assert_eq!(end_of_pem(certificate.pem().as_bytes()), Some(1_927_843_200));
        assert_eq!(end_of_pem(b"none"), None);
    }
}
