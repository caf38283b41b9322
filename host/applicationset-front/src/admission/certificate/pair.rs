//! Certificates with their authorities, and when they are to be replaced.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret as _, SecretString};
use time::OffsetDateTime;

use super::{CLOCK_SKEW, LIFETIME, OVERLAP, RENEWAL};

/// End of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----\n";

/// A certificate, its key and its authorities, all PEM.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: SecretString,
    /// Its own authority first.
    pub(super) authorities: String,
}

/// What the Secret contains.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    /// The pair that is served.
    pub(super) current: Option<Pair>,
    /// The pair that will be served.
    pub(super) next: Option<Pair>,
}

impl Stored {
    /// What the Secret is to contain now, and why; `None` if it is as it should be.
    ///
    /// - `next_is_trusted`: whether API servers know the authority of the next pair.
    ///
    /// # Errors
    /// No pair can be made.
    pub(super) fn due(
        &self,
        server_name: &str,
        next_is_trusted: bool,
        now: Timestamp,
    ) -> Result<Option<(Self, &'static str)>, rcgen::Error> {
        let is_valid = |pair: &&Pair, at: Timestamp| pair.is_valid(server_name, at);
        let current = self.current.as_ref().filter(|pair| is_valid(pair, now));
        let next = self.next.as_ref().filter(|pair| is_valid(pair, now));
        let promoted = |next: &Pair| Self {
            current: Some(next.after(current)),
            next: None,
        };
        let due = match (current, next) {
            // Nothing else can be served, and `caBundle` gets its authority right after this.
            (None, Some(next)) => (promoted(next), "the former one cannot be used"),
            (None, None) => {
                let stored = Self {
                    current: Some(Pair::issue(server_name, now)?),
                    next: None,
                };
                (stored, "there was none that can be used")
            }
            (Some(_), Some(next)) => {
                // Nothing says when a pair was made, but `not_before` is `CLOCK_SKEW` earlier: if it was valid that
                // long ago, API servers have had `OVERLAP` to learn of it.
                let is_known = is_valid(&next, before(now, OVERLAP + CLOCK_SKEW));
                if !(next_is_trusted && is_known) {
                    return Ok(None);
                }
                (promoted(next), "the next one is in use now")
            }
            (Some(current), None) => {
                let ends_soon = !is_valid(&current, after(now, RENEWAL));
                // A next pair that is not valid counts as none here, and is removed.
                if !ends_soon && self.next.is_none() {
                    return Ok(None);
                }
                let stored = Self {
                    current: Some(current.clone()),
                    next: ends_soon.then(|| Pair::issue(server_name, now)).transpose()?,
                };
                (stored, "the next one is prepared")
            }
        };
        Ok(Some(due))
    }

    /// The authorities that API servers are to trust.
    pub(super) fn bundle(&self) -> String {
        let pairs = self.current.iter().chain(&self.next);
        pairs.map(|pair| pair.authorities.as_str()).collect()
    }
}

impl Pair {
    /// Makes a pair and an authority for it.
    fn issue(server_name: &str, now: Timestamp) -> Result<Self, rcgen::Error> {
        let (from, until) = (before(now, CLOCK_SKEW), after(now, LIFETIME));
        let params = |common_name: String| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.not_before = moment(from);
            params.not_after = moment(until);
            params
        };
        // Each authority has another name, so that nobody confuses two of them.
        let mut authority = params(format!("Tollgate's admission webhook, {now:.0}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate()?;
        let root = authority.self_signed(&authority_key)?;
        let mut leaf = params(server_name.to_owned());
        leaf.subject_alt_names = vec![rcgen::SanType::DnsName(server_name.try_into()?)];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &Issuer::new(authority, authority_key))?;
        Ok(Self {
            certificate: unix_lines(&certificate.pem()),
            key: SecretString::from(key.serialize_pem()),
            authorities: unix_lines(&root.pem()),
        })
    }

    /// Whether it can be served at that time, and an API server that trusts the authorities accepts it.
    fn is_valid(&self, server_name: &str, at: Timestamp) -> bool {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(self.key.expose_secret().as_bytes());
        let (Ok(certificate), Ok(key)) = (certificate, key) else {
            return false;
        };
        let (Ok(parsed), Ok(name)) = (
            ParsedCertificate::try_from(&certificate),
            ServerName::try_from(server_name),
        ) else {
            return false;
        };
        let mut roots = RootCertStore::empty();
        let authorities = CertificateDer::pem_slice_iter(self.authorities.as_bytes());
        roots.add_parsable_certificates(authorities.filter_map(Result::ok));
        let time = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap_or(0)));
        let algorithms = provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], time, algorithms).is_ok()
            && rustls::client::verify_server_name(&parsed, &name).is_ok()
            && CertifiedKey::from_der(vec![certificate.clone()], key, &provider).is_ok()
    }

    /// This pair as the current one. The authority of the former one stays known, for replicas that still
    /// serve that.
    fn after(&self, former: Option<&Self>) -> Self {
        // Only its own authority, the first one. Otherwise the list would grow with every renewal.
        let former = former.and_then(|former| former.authorities.split_inclusive(END).next());
        Self {
            authorities: [&self.authorities, former.unwrap_or_default()].concat(),
            ..self.clone()
        }
    }
}

fn before(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}

fn after(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn moment(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// PEM as it is compared with what an API server stored.
fn unix_lines(pem: &str) -> String {
    pem.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests;
