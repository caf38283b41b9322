//! When certificates end.

use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

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
        Err(Error::InvalidCertificate(error)) => Some(error),
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
