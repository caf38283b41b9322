//! Reads from the environment what Kubernetes and AWS tell a pod about its own identities:
//! addresses and files. Tokens themselves are not read here.

use std::path::{Path, PathBuf};

use crate::{Ambient, EksPodIdentity, KubernetesApi};

/// Where Kubernetes mounts the files of a pod's own ServiceAccount.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Addresses of the EKS Pod Identity agent. No other host may be asked over plain HTTP.
/// Source: eks-pod-identity-agent, its link-local addresses.
const EKS_AGENT_URLS: [&str; 2] = ["http://169.254.170.23/", "http://[fd00:ec2::23]/"];

pub(super) fn ambient() -> Ambient {
    Ambient {
        service_account_tokens: std::collections::BTreeMap::new(),
        kubernetes: KubernetesApi::of_pod(),
        eks_pod_identity: eks(),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the settings are where the environment is read"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl KubernetesApi {
    /// The one of the pod that this process runs in; `None` outside a pod.
    ///
    /// Source: client-go, `rest.InClusterConfig`.
    pub fn of_pod() -> Option<Self> {
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        // As in client-go (`net.JoinHostPort`): an IPv6 address needs brackets in a URL.
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Some(Self {
            server: format!("https://{host}:{port}"),
            token_file: Path::new(SERVICE_ACCOUNT_DIR).join("token"),
            ca_file: Path::new(SERVICE_ACCOUNT_DIR).join("ca.crt"),
        })
    }
}

fn eks() -> Option<EksPodIdentity> {
    let url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")?;
    let token_file = PathBuf::from(variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")?);
    // SECURITY: the pod's token goes to this URL without TLS, so only the agent's own addresses are accepted.
    let known = EKS_AGENT_URLS.iter().any(|agent| url.starts_with(agent));
    known.then_some(EksPodIdentity { url, token_file })
}
