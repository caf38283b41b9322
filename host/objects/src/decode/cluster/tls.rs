//! Decodes `tlsClientConfig` into [`ClusterTls`] and the client's certificate. Text that is not PEM
//! and a certificate or key without the other are mistakes.
//!
//! Security: no mistake contains a value.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::raw_object::RawObject;
use crate::cluster::are_certificates;
use crate::decode::secret::decode;
use crate::{ClusterTls, TlsVerification};

/// How the server is verified, and the client's chain and key if both are present.
pub(super) type Tls = (ClusterTls, Option<(String, SecretString)>);

/// Reads `tlsClientConfig`.
///
/// Source: Argo CD's `TLSClientConfig`, whose data is base64 in JSON, and
/// client-go, which refuses authorities beside `insecure`.
pub(super) fn tls(config: &RawObject<'_>) -> Tls {
    let known = ["insecure", "serverName", "caData", "certData", "keyData"];
    let Some(object) = config.child("tlsClientConfig", &known) else {
        return Tls::default();
    };
    let server_name = object.text("serverName");
    let is_name = |name: &String| ServerName::try_from(name.as_str()).is_ok();
    if !server_name.as_ref().is_none_or(is_name) {
        object.mistake("`tlsClientConfig.serverName` is neither a name nor an address");
    }
    let ca_pem = certificates(&object, "caData");
    let verification = match object.boolean("insecure") {
        true => TlsVerification::Off,
        false => TlsVerification::On,
    };
    if verification == TlsVerification::Off && object.is_set("caData") {
        object.mistake("`tlsClientConfig` has `caData` and `insecure`, which excludes it");
    }
    let chain = certificates(&object, "certData");
    let key = key(&object);
    // By what is written: a value that cannot be read has a mistake of its kind already.
    if object.is_set("certData") != object.is_set("keyData") {
        object.mistake("`tlsClientConfig.certData` needs `keyData`, and the other way around");
    }
    let server = ClusterTls {
        verification,
        server_name,
        ca_pem,
    };
    (server, chain.zip(key))
}

fn certificates(object: &RawObject<'_>, key: &str) -> Option<String> {
    let pem = pem(object, key)?;
    if are_certificates(pem.expose_secret()) {
        return Some(pem.expose_secret().to_owned());
    }
    object.mistake(format!("`{}` holds no PEM certificate", object.name(key)));
    None
}

fn key(object: &RawObject<'_>) -> Option<SecretString> {
    let pem = pem(object, "keyData")?;
    if PrivateKeyDer::from_pem_slice(pem.expose_secret().as_bytes()).is_ok() {
        return Some(pem);
    }
    object.mistake("`tlsClientConfig.keyData` holds no PEM key");
    None
}

fn pem(object: &RawObject<'_>, key: &str) -> Option<SecretString> {
    let text = Zeroizing::new(object.text(key)?);
    let decoded = decode(&text).ok();
    if decoded.is_none() {
        object.mistake(format!("`{}` is not base64 of PEM text", object.name(key)));
    }
    decoded
}
