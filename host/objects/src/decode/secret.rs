//! Decodes Secrets, and the clusters that some of them describe.
//!
//! Security: no finding contains a value, not even one that cannot be decoded.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use zeroize::{Zeroize as _, Zeroizing};

use super::{Cluster, Object};
use crate::Secret;
use tollgate_core::diagnostic::Diagnostic;

/// Label that says what Argo CD uses a Secret for.
pub const TYPE_LABEL: &str = "argocd.argoproj.io/secret-type";

/// Decodes a Secret; also gives the number of bytes of its keys and values.
pub(super) fn secret(object: &Object<'_>) -> (Secret, usize) {
    let mut values = BTreeMap::new();
    for (key, text) in object.fields.text_map("data") {
        match decode(&text.value) {
            Ok(value) => drop(values.insert(key, value)),
            Err(NotText::Base64) => {
                let finding = Diagnostic::error(text.location, format!("`data.{key}` is not base64"));
                let finding = finding.with_hint("put plain text under `stringData`");
                object.fields.report(finding);
            }
            Err(NotText::Utf8) => {
                let message = format!("`data.{key}` is not UTF-8 text and is left out");
                object.fields.report(Diagnostic::warning(text.location, message));
            }
        }
    }
    // As the API server merges them: `stringData` wins.
    for (key, text) in object.fields.text_map("stringData") {
        values.insert(key, SecretString::from(text.value.as_ref()));
    }
    let size = |(key, value): (&String, &SecretString)| key.len().saturating_add(value.expose_secret().len());
    let bytes = values.iter().map(size).sum();
    let secret = Secret {
        labels: object.labels.clone(),
        values,
        location: object.fields.location(),
    };
    (secret, bytes)
}

pub(super) enum NotText {
    Base64,
    Utf8,
}

/// Decodes base64 as Go does: the standard alphabet, padded, line breaks ignored. No copy of the
/// value stays in memory.
pub(super) fn decode(text: &str) -> Result<SecretString, NotText> {
    let joined: Zeroizing<String> = Zeroizing::new(text.replace(['\n', '\r'], ""));
    let bytes = STANDARD.decode(&*joined).map_err(|_| NotText::Base64)?;
    String::from_utf8(bytes).map(SecretString::from).map_err(|refused| {
        refused.into_bytes().zeroize();
        NotText::Utf8
    })
}

/// The cluster that a cluster Secret describes. [`super::cluster`] reads how it is reached.
///
/// Source: Argo CD's cluster secrets; trailing slashes of the server are removed.
pub(super) fn cluster(secret: &Secret, object: &Object<'_>) -> Option<Cluster> {
    let server = secret.text("server").trim_end_matches('/');
    if server.is_empty() {
        let name = &object.name.name;
        object.warn(format!("cluster secret `{name}` has no `server` and is not used"));
        return None;
    }
    Some(Cluster {
        name: secret.text("name").to_owned(),
        server: server.to_owned(),
        project: secret.text("project").to_owned(),
    })
}
