//! Certificate authorities of a cluster.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// An authority nobody else knows.
pub struct Authority {
    /// Its own certificate.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key, PKCS #8.
    pub key: String,
}

impl Authority {
    /// A new one with this common name.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name = subject(name, None);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A server's certificate for host names or IP addresses.
    pub fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.sign(
            CertificateParams::new(names).unwrap(),
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// A client's certificate; Kubernetes reads the common name as user and the
    /// organization as group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = subject(user, group);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Pair {
        let key = KeyPair::generate().unwrap();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject
}
