//! Decodes Secrets, and the clusters that some of them describe.
//!
//! Security: no finding contains a value, not even one that cannot be decoded.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroize;

use super::{Cluster, Object};
use crate::Secret;
use tollgate_core::diagnostic::{Diagnostic, Location};

/// Label that says what Argo CD uses a Secret for.
pub(super) const TYPE_LABEL: &str = "argocd.argoproj.io/secret-type";

/// Decodes a Secret; also gives the number of bytes of its keys and values.
pub(super) fn secret(object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> (Secret, usize) {
    let mut values = BTreeMap::new();
    for (key, text) in object.fields.text_map("data", findings) {
        let path = object.fields.path_of("data");
        if let Some(value) = decode(&text.value, &format!("{path}.{key}"), text.location, findings) {
            values.insert(key, value);
        }
    }
    for (key, text) in object.fields.text_map("stringData", findings) {
        values.insert(key, SecretString::from(text.value.as_ref()));
    }
    let size = |(key, value): (&String, &SecretString)| key.len().saturating_add(value.expose_secret().len());
    let bytes = values.iter().map(size).sum();
    (
        Secret {
            labels: object.labels.clone(),
            values,
            location: object.fields.location(),
        },
        bytes,
    )
}

/// Decodes base64 as Go does: the standard alphabet, padded, line breaks ignored.
fn decode(text: &str, path: &str, location: Location, findings: &mut Vec<Diagnostic>) -> Option<SecretString> {
    let mut joined: String = text.chars().filter(|symbol| !matches!(symbol, '\n' | '\r')).collect();
    let bytes = STANDARD.decode(&joined);
    joined.zeroize();
    let Ok(bytes) = bytes else {
        let finding = Diagnostic::error(location, format!("`{path}` is not base64"));
        findings.push(finding.with_hint("put plain text under `stringData`"));
        return None;
    };
    match String::from_utf8(bytes) {
        Ok(value) => Some(SecretString::from(value)),
        Err(refused) => {
            refused.into_bytes().zeroize();
            findings.push(Diagnostic::warning(
                location,
                format!("`{path}` is not UTF-8 text and is left out"),
            ));
            None
        }
    }
}

/// The cluster that a cluster Secret describes. [`super::cluster`] reads how it is reached.
///
/// Source: Argo CD's cluster secrets; trailing slashes of the server are removed.
pub(super) fn cluster(secret: &Secret, name: &str, findings: &mut Vec<Diagnostic>) -> Option<Cluster> {
    let value = |key: &str| secret.values.get(key).map_or("", |value| value.expose_secret());
    let server = value("server").trim_end_matches('/');
    if server.is_empty() {
        let message = format!("cluster secret `{name}` has no `server` and is not used");
        findings.push(Diagnostic::warning(secret.location.clone(), message));
        return None;
    }
    Some(Cluster {
        name: value("name").to_owned(),
        server: server.to_owned(),
        project: value("project").to_owned(),
    })
}
