//! Gets a credential from a running gateway, as an `ExecCredential` of the requested version. Any
//! other document is an error.

use serde_json::Value;
use zeroize::Zeroizing;

use super::{ExecCredentialVersion, Failure, Server};

pub(super) fn fetch(
    server: &Server,
    cluster: &str,
    version: ExecCredentialVersion,
) -> Result<Zeroizing<String>, Failure> {
    let bytes = server.get(&["clusters", cluster, "credential"], hint).send()?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Failure::new("gateway.answer", "the answer is no text"))?;
    with_api_version(text, version)
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("it needs `clusters, get` and `credentials, get` on the cluster's server"),
        "credential_unavailable" => Some("an operator sees why with `tollgate credential explain`"),
        _ => None,
    }
}

/// Sets the requested `apiVersion`. The gateway answers in the latest, and the versions differ in
/// nothing else.
fn with_api_version(text: &str, version: ExecCredentialVersion) -> Result<Zeroizing<String>, Failure> {
    let mut document = super::parse(text)?;
    if document.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(Failure::new("gateway.answer", "the answer is no ExecCredential")
            .with_hint("`--server` is the gateway's public listener"));
    }
    if let Some(api) = document.get_mut("apiVersion") {
        *api = version.as_str().into();
    }
    let written = serde_json::to_string(&document).map(Zeroizing::new);
    super::erase(&mut document);
    Ok(written.map_err(std::io::Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::{ExecCredentialVersion, with_api_version};

    #[test]
    fn an_answer_is_said_in_the_version_asked_for() {
        let text = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
        let said = with_api_version(text, ExecCredentialVersion::V1Beta1).unwrap();
        assert!(said.contains(r#""client.authentication.k8s.io/v1beta1""#) && said.contains(r#""token":"t""#));
        for other in ["{}", "<html>", r#"{"kind":"Status"}"#] {
            assert!(with_api_version(other, ExecCredentialVersion::V1).is_err(), "{other}");
        }
    }
}
