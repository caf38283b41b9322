//! Advice for `awsAuthConfig` and `execProviderConfig`: which provider to write instead.
//!
//! Security: no program is run, and the advice contains none of their values.

use serde::Deserialize;

use super::raw_object::RawObject;

const EKS: &str = r#""provider": {"name": "aws-eks", "config": {"region": "<region>", "clusterName": "<clusterName>", "credentials": "ambient:eks-pod-identity"}}"#;
const EKS_ROLE: &str = r#""provider": {"name": "aws-eks", "config": {"region": "<region>", "clusterName": "<clusterName>", "credentials": "ambient:eks-pod-identity", "roleArn": "<roleARN>"}}"#;

/// Reports `awsAuthConfig` and the provider that replaces it. It is not converted, because it has
/// no region and its identity is whatever the SDK finds first.
pub(super) fn aws(config: &RawObject<'_>) {
    let known = ["clusterName", "roleARN", "profile"];
    let Some(object) = config.child("awsAuthConfig", &known) else {
        return;
    };
    if object.is_set("profile") {
        object.mistake("`awsAuthConfig.profile` names a file of the pod's, which no provider reads");
    }
    let instead = if object.is_set("roleARN") { EKS_ROLE } else { EKS };
    object.mistake(format!("`awsAuthConfig` is not used; write `{instead}` instead"));
}

#[derive(Deserialize)]
struct Exec {
    #[serde(default)]
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

/// Reports `execProviderConfig` and, for a known command, the provider that replaces it.
pub(super) fn exec(config: &RawObject<'_>) {
    let Some(json) = config.raw("execProviderConfig") else {
        return;
    };
    let Ok(exec) = serde_json::from_str::<Exec>(json) else {
        return config.mistake("`execProviderConfig` has no `command` that is text");
    };
    let never = "`execProviderConfig` is not used: the gateway runs no programs";
    config.mistake(match replacement(&exec) {
        Some((command, instead)) => format!("{never}; for `{command}` write `{instead}` instead"),
        None => format!("{never}; write `\"provider\": {{\"name\": \"<plugin>\", \"config\": {{…}}}}` instead"),
    });
}

fn replacement(exec: &Exec) -> Option<(&'static str, &'static str)> {
    const GKE: &str = r#""provider": {"name": "gcp-gke", "config": {…}}"#;
    const AKS: &str = r#""provider": {"name": "azure-aks", "config": {…}}"#;
    const UPBOUND: &str = r#""provider": {"name": "upbound", "config": {"organization": "<organization>"}}"#;
    const VAULT: &str = r#""provider": {"name": "vault", "config": {…}}"#;
    const OAUTH: &str = r#""provider": {"name": "oauth2", "config": {…}}"#;
    let program = exec.command.rsplit(['/', '\\']).next().unwrap_or_default();
    let program = program.strip_suffix(".exe").unwrap_or(program);
    let first = exec.args.iter().find(|arg| !arg.starts_with('-')).map(String::as_str);
    Some(match (program, first) {
        ("argocd-k8s-auth", Some("aws")) => ("argocd-k8s-auth aws", EKS),
        ("argocd-k8s-auth", Some("gcp")) => ("argocd-k8s-auth gcp", GKE),
        ("argocd-k8s-auth", Some("azure")) => ("argocd-k8s-auth azure", AKS),
        ("aws", _) => ("aws", EKS),
        ("aws-iam-authenticator", _) => ("aws-iam-authenticator", EKS),
        ("gke-gcloud-auth-plugin", _) => ("gke-gcloud-auth-plugin", GKE),
        ("gcloud", _) => ("gcloud", GKE),
        ("kubelogin", _) => ("kubelogin", AKS),
        ("up", _) => ("up", UPBOUND),
        ("vault", _) => ("vault", VAULT),
        ("kubectl-oidc_login", _) => ("kubectl-oidc_login", OAUTH),
        _ => return None,
    })
}
