//! Reads what client-go tells its exec plugins.

use serde_json::Value;

use crate::failure::Failure;
use tollgate_credential::exec::ExecCredentialVersion;

/// The protocol version that client-go requests; the latest if the command is called by hand.
///
/// # Errors
/// The text has no version, or one that is not known.
///
/// Source: Kubernetes, client authentication plugins: `KUBERNETES_EXEC_INFO`.
pub fn version(info: Option<&str>) -> Result<ExecCredentialVersion, Failure> {
    let Some(info) = info.filter(|info| !info.is_empty()) else {
        return Ok(ExecCredentialVersion::default());
    };
    let parsed: Option<Value> = serde_json::from_str(info).ok();
    let text = parsed.as_ref().and_then(|info| info.get("apiVersion")?.as_str());
    let text = text.ok_or_else(|| Failure::new("exec.info", "`KUBERNETES_EXEC_INFO` names no `apiVersion`"))?;
    ExecCredentialVersion::try_from(text).map_err(|_| {
        let [v1, beta] = [ExecCredentialVersion::V1, ExecCredentialVersion::V1Beta1].map(<&str>::from);
        Failure::new(
            "exec.version",
            format_args!("`apiVersion` of `KUBERNETES_EXEC_INFO`: `{text}` is not one of `{v1}`, `{beta}`"),
        )
        .with_hint("write one of them as `apiVersion` of `exec` in the kubeconfig")
    })
}

#[cfg(test)]
mod tests {
    use super::{ExecCredentialVersion, version};

    #[test]
    fn the_version_that_client_go_requests_is_used() {
        let info = |version: &str| format!(r#"{{"kind":"ExecCredential","apiVersion":"{version}","spec":{{}}}}"#);
        for known in [ExecCredentialVersion::V1, ExecCredentialVersion::V1Beta1] {
            assert_eq!(version(Some(&info(known.into()))).unwrap(), known);
        }
        assert_eq!(version(None).unwrap(), ExecCredentialVersion::V1);
        assert_eq!(version(Some("")).unwrap(), ExecCredentialVersion::V1);
        let alpha = version(Some(&info("client.authentication.k8s.io/v1alpha1"))).unwrap_err();
        assert!(alpha.to_string().starts_with("exec.version: "), "{alpha}");
        let nothing = version(Some("{}")).unwrap_err();
        assert!(nothing.to_string().starts_with("exec.info: "), "{nothing}");
    }
}
