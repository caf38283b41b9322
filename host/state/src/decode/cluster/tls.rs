//! Decodes `tlsClientConfig` into [`ClusterTls`] and the client's certificate. Text that is not PEM
//! and a certificate or key without the other are mistakes.
//!
//! Security: no mistake contains a value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::SecretString;
use zeroize::{Zeroize as _, Zeroizing};

use super::raw_object::RawObject;
use crate::{ClusterTls, TlsVerification};

/// The settings of `tlsClientConfig`.
#[derive(Default)]
pub(super) struct Tls {
    pub(super) server: ClusterTls,
    /// Chain and key, if both are present.
    pub(super) client: Option<(String, SecretString)>,
}

/// Reads `tlsClientConfig`.
///
/// Source: Argo CD's `TLSClientConfig`, whose data is base64 in JSON, and
/// client-go, which refuses authorities beside `insecure`.
pub(super) fn tls(json: &str, mistakes: &mut Vec<String>) -> Tls {
    let known = ["insecure", "serverName", "caData", "certData", "keyData"];
    let Some(object) = RawObject::open(json, "tlsClientConfig", &known, mistakes) else {
        return Tls::default();
    };
    let server_name = object.text("serverName", mistakes);
    if server_name
        .as_ref()
        .is_some_and(|name| ServerName::try_from(name.as_str()).is_err())
    {
        mistakes.push("`tlsClientConfig.serverName` is neither a name nor an address".to_owned());
    }
    let ca_pem = certificates(&object, "caData", mistakes);
    let verification = match object.boolean("insecure", mistakes) {
        true => TlsVerification::Off,
        false => TlsVerification::On,
    };
    if verification == TlsVerification::Off && object.raw("caData").is_some_and(|data| data != r#""""#) {
        mistakes.push("`tlsClientConfig` has `caData` and `insecure`, which excludes it".to_owned());
    }
    let chain = certificates(&object, "certData", mistakes);
    let key = key(&object, mistakes);
    let written = |key: &str| object.raw(key).is_some_and(|data| data != r#""""#);
    if written("certData") != written("keyData") {
        mistakes.push("`tlsClientConfig.certData` needs `keyData`, and the other way around".to_owned());
    }
    Tls {
        server: ClusterTls {
            verification,
            server_name,
            ca_pem,
        },
        client: chain.zip(key),
    }
}

fn certificates(object: &RawObject<'_>, key: &str, mistakes: &mut Vec<String>) -> Option<String> {
    let pem = pem(object, key, mistakes)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    if chain.is_ok_and(|chain| !chain.is_empty()) {
        return Some(pem.as_str().to_owned());
    }
    mistakes.push(format!("`{}` holds no PEM certificate", object.name(key)));
    None
}

fn key(object: &RawObject<'_>, mistakes: &mut Vec<String>) -> Option<SecretString> {
    let pem = pem(object, "keyData", mistakes)?;
    if PrivateKeyDer::from_pem_slice(pem.as_bytes()).is_ok() {
        return Some(SecretString::from(pem.as_str()));
    }
    mistakes.push("`tlsClientConfig.keyData` holds no PEM key".to_owned());
    None
}

/// Decodes base64 as Go's JSON decoder does: the standard alphabet, padded, line breaks ignored.
fn pem(object: &RawObject<'_>, key: &str, mistakes: &mut Vec<String>) -> Option<Zeroizing<String>> {
    let mut text = Zeroizing::new(object.text(key, mistakes)?);
    text.retain(|symbol| !matches!(symbol, '\n' | '\r'));
    let decoded = STANDARD.decode(text.as_bytes()).ok().and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|refused| refused.into_bytes().zeroize())
            .ok()
    });
    if decoded.is_none() {
        let name = object.name(key);
        mistakes.push(format!("`{name}` is not base64 of PEM text"));
    }
    decoded.map(Zeroizing::new)
}
