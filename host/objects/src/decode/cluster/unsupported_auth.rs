//! `awsAuthConfig` and `execProviderConfig`, which only Argo CD uses: the one program that may be
//! named there, and otherwise which provider to write instead.
//!
//! Security: no program is run, and the advice contains none of their values.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw_object::RawObject;
use crate::Cluster;

const EKS: &str = r#""provider": {"name": "aws-eks", "config": {"region": "<region>", "clusterName": "<clusterName>", "credentials": "ambient:eks-pod-identity"}}"#;
const EKS_ROLE: &str = r#""provider": {"name": "aws-eks", "config": {"region": "<region>", "clusterName": "<clusterName>", "credentials": "ambient:eks-pod-identity", "roleArn": "<roleARN>"}}"#;

/// Reports `awsAuthConfig` and the provider that replaces it, and returns whether it is there. It is
/// not converted, because it has no region and its identity is the first one that the SDK finds.
pub(super) fn aws(config: &RawObject<'_>) -> bool {
    let known = ["clusterName", "roleARN", "profile"];
    let Some(object) = config.child("awsAuthConfig", &known) else {
        // With a wrong type, which is reported, it is still one of several ways of authentication.
        return config.raw("awsAuthConfig").is_some();
    };
    if object.is_set("profile") {
        object.mistake("`awsAuthConfig.profile` names a file of the pod's, which no provider reads");
    }
    let instead = if object.is_set("roleARN") { EKS_ROLE } else { EKS };
    object.mistake(format!("`awsAuthConfig` is not used; write `{instead}` instead"));
    true
}

/// What `execProviderConfig` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecProgram {
    /// `tollgate credential exec`: Argo CD gets the credential from the gateway.
    OwnHelper,
    /// Anything else, which has been reported.
    Other,
}

#[derive(Default)]
struct Exec {
    command: String,
    args: Vec<String>,
}

/// The members that are read, each of any type.
#[derive(Deserialize)]
struct RawExec<'a> {
    #[serde(borrow, default)]
    command: Option<&'a RawValue>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

impl Exec {
    /// Reports which member cannot be read.
    fn read(json: &str, config: &RawObject<'_>) -> Option<Self> {
        let Ok(RawExec { command, args }) = serde_json::from_str(json) else {
            config.mistake("`execProviderConfig` is no object, or has a member twice");
            return None;
        };
        let mut exec = Self::default();
        match command.map(|command| serde_json::from_str(command.get())) {
            None => {}
            Some(Ok(command)) => exec.command = command,
            Some(Err(_)) => config.mistake("`execProviderConfig.command` must be text"),
        }
        match args.map(|args| serde_json::from_str::<Option<_>>(args.get())) {
            None => {}
            Some(Ok(args)) => exec.args = args.unwrap_or_default(),
            Some(Err(_)) => config.mistake("`execProviderConfig.args` must be a list of texts"),
        }
        Some(exec)
    }

    /// The name of the program, without its folder.
    fn program(&self) -> &str {
        let program = self.command.rsplit(['/', '\\']).next().unwrap_or_default();
        program.strip_suffix(".exe").unwrap_or(program)
    }

    /// The arguments of `tollgate credential exec`; `None` for other programs.
    fn helper_arguments(&self) -> Option<&[String]> {
        match self.args.as_slice() {
            [first, second, rest @ ..] if first == "credential" && second == "exec" && self.program() == "tollgate" => {
                Some(rest)
            }
            _ => None,
        }
    }
}

/// Reads `execProviderConfig`. Reports every program but the gateway's own helper and, for a known
/// one, the provider that replaces it.
///
/// - `cluster`: whose credential the helper must ask for; `None` if that is not known.
pub(super) fn exec(config: &RawObject<'_>, cluster: Option<&Cluster>) -> Option<ExecProgram> {
    let json = config.raw("execProviderConfig")?;
    let Some(exec) = Exec::read(json, config) else {
        return Some(ExecProgram::Other);
    };
    if let Some(arguments) = exec.helper_arguments() {
        // SECURITY: Argo CD would present the credential of another cluster to this one.
        if let Some(cluster) = cluster.filter(|cluster| !names(arguments, cluster)) {
            config.mistake(format!(
                "`execProviderConfig` asks for the credential of another cluster; its third argument must be `{}`",
                cluster.name
            ));
        }
        return Some(ExecProgram::OwnHelper);
    }
    let never = "`execProviderConfig` is not used: the gateway runs no programs";
    config.mistake(match replacement(&exec) {
        Some((command, instead)) => format!("{never}; for `{command}` write `{instead}` instead"),
        None => format!("{never}; write `\"provider\": {{\"name\": \"<plugin>\", \"config\": {{…}}}}` instead"),
    });
    Some(ExecProgram::Other)
}

/// Whether an argument is the name or the server of a cluster. Their order is not known here.
fn names(arguments: &[String], cluster: &Cluster) -> bool {
    let server = cluster.server.trim_end_matches('/');
    let mut arguments = arguments.iter().map(|argument| argument.trim_end_matches('/'));
    arguments.any(|argument| argument == cluster.name || argument == server)
}

fn replacement(exec: &Exec) -> Option<(&'static str, &'static str)> {
    const GKE: &str = r#""provider": {"name": "gcp-gke", "config": {…}}"#;
    const AKS: &str = r#""provider": {"name": "azure-aks", "config": {…}}"#;
    const UPBOUND: &str = r#""provider": {"name": "upbound", "config": {"organization": "<organization>"}}"#;
    const VAULT: &str = r#""provider": {"name": "vault", "config": {…}}"#;
    const OAUTH: &str = r#""provider": {"name": "oauth2", "config": {…}}"#;
    let first = exec.args.iter().find(|arg| !arg.starts_with('-')).map(String::as_str);
    Some(match (exec.program(), first) {
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
