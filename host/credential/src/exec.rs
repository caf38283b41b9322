//! Encodes a credential as an `ExecCredential` for client-go's exec plugins. Credentials that
//! this format cannot express are refused.
//!
//! Invariant: it expires no later than the gateway itself stops using the credential.
//!
//! Source: Kubernetes, `client.authentication.k8s.io/v1`.

use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::Credential;

/// Versions of the protocol. The documents made here differ in nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
pub enum ExecCredentialVersion {
    /// `client.authentication.k8s.io/v1`.
    #[default]
    #[strum(serialize = "client.authentication.k8s.io/v1")]
    V1,
    /// `client.authentication.k8s.io/v1beta1`.
    #[strum(serialize = "client.authentication.k8s.io/v1beta1")]
    V1Beta1,
}

/// The document. `None` if the credential is neither a token nor a certificate, or needs additional
/// header fields in each request.
pub fn exec_credential(
    credential: &Credential,
    until: Option<Timestamp>,
    version: ExecCredentialVersion,
) -> Option<Zeroizing<String>> {
    let portable = credential.headers.is_empty() && credential.basic.is_none();
    if !portable || (credential.token.is_none() && credential.certificate.is_none()) {
        return None;
    }
    let mut document = json!({
        "kind": "ExecCredential",
        "apiVersion": <&str>::from(version),
        "spec": { "interactive": false },
        "status": {},
    });
    let status = document.get_mut("status").and_then(Value::as_object_mut)?;
    if let Some(until) = until {
        // Times in Kubernetes have whole seconds.
        let seconds = Timestamp::from_second(until.as_second()).unwrap_or(until);
        status.insert("expirationTimestamp".to_owned(), seconds.to_string().into());
    }
    if let Some(token) = &credential.token {
        status.insert("token".to_owned(), token.expose().into());
    }
    if let Some(certificate) = &credential.certificate {
        status.insert(
            "clientCertificateData".to_owned(),
            certificate.chain_pem.as_str().into(),
        );
        let key = certificate.key_pem.expose_secret();
        status.insert("clientKeyData".to_owned(), key.into());
    }
    let text = Zeroizing::new(document.to_string());
    erase(&mut document);
    Some(text)
}

/// Overwrites every text of a document that is no longer needed.
pub fn erase(value: &mut Value) {
    use zeroize::Zeroize as _;
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(erase),
        Value::Object(members) => members.values_mut().for_each(erase),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::{ExecCredentialVersion, exec_credential};
    use crate::{BasicAuth, ClientCertificate, Credential, Token};

    fn token() -> Credential {
        Credential::from_token(Token::parse("t0ken".to_owned()).unwrap())
    }

    fn document(credential: &Credential, until: Option<&str>, version: ExecCredentialVersion) -> Option<Value> {
        let until = until.map(|until| until.parse().unwrap());
        exec_credential(credential, until, version).map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_token_is_written_in_both_versions() {
        for (version, api) in [
            (ExecCredentialVersion::V1, "client.authentication.k8s.io/v1"),
            (ExecCredentialVersion::V1Beta1, "client.authentication.k8s.io/v1beta1"),
        ] {
            let expected = json!({
                "kind": "ExecCredential", "apiVersion": api, "spec": { "interactive": false },
                "status": { "token": "t0ken", "expirationTimestamp": "2026-01-02T03:04:05Z" },
            });
            assert_eq!(
                document(&token(), Some("2026-01-02T03:04:05.9Z"), version),
                Some(expected)
            );
            assert_eq!(ExecCredentialVersion::try_from(api), Ok(version));
        }
        assert!(ExecCredentialVersion::try_from("client.authentication.k8s.io/v1alpha1").is_err());
    }

    #[test]
    fn a_certificate_is_written_with_its_key() {
        let credential = Credential {
            token: None,
            certificate: Some(ClientCertificate {
                chain_pem: "chain".to_owned(),
                key_pem: SecretString::from("key"),
            }),
            ..token()
        };
        let written = document(&credential, None, ExecCredentialVersion::V1).unwrap();
        assert_eq!(
            written["status"],
            json!({ "clientCertificateData": "chain", "clientKeyData": "key" })
        );
    }

    #[test]
    fn credentials_that_clients_cannot_present_are_refused() {
        let basic = Credential {
            token: None,
            basic: Some(BasicAuth {
                username: "u".to_owned(),
                password: SecretString::from("p"),
            }),
            ..token()
        };
        let fields = Credential {
            headers: vec![(http::HeaderName::from_static("x-id"), SecretString::from("i"))],
            ..token()
        };
        let nothing = Credential { token: None, ..token() };
        for credential in [basic, fields, nothing] {
            assert_eq!(document(&credential, None, ExecCredentialVersion::V1), None);
        }
    }
}
