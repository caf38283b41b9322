//! A certificate for a gateway that is tried out. kubectl sends tokens only over TLS.
//!
//! Security: the authority's key is not kept, so it signs this one certificate and nothing else.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;

use tollgate_client::failure::Failure;

/// How long it is valid. `tollgate check` warns two weeks before its end.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);

/// PEM texts.
pub(super) struct Certificate {
    pub(super) authority: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

/// For `localhost`, the loopback addresses and `address`.
pub(super) fn for_address(address: IpAddr) -> Result<Certificate, Failure> {
    sign(address).map_err(|error| Failure::new("init.certificate", format_args!("no certificate can be made: {error}")))
}

fn sign(address: IpAddr) -> Result<Certificate, rcgen::Error> {
    let authority_key = KeyPair::generate()?;
    let mut authority = params(Vec::new(), "Tollgate, made by `tollgate init`")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if !address.is_loopback() && !address.is_unspecified() {
        names.push(address.to_string());
    }
    let mut server = params(names, "Tollgate")?;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok(Certificate {
        authority: authority_pem,
        certificate: server.signed_by(&key, &Issuer::new(authority, authority_key))?.pem(),
        key: key.serialize_pem(),
    })
}

fn params(names: Vec<String>, common_name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = Timestamp::now().as_second();
    let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| rcgen::Error::Time);
    params.not_before = at(now.saturating_sub(3600))?;
    params.not_after = at(now.saturating_add(LIFETIME.as_secs()))?;
    Ok(params)
}
