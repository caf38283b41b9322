//! Settings that say where the Kubernetes objects come from.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Where the Kubernetes objects come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSource {
    /// A folder of YAML files.
    Directory(PathBuf),
    /// The API server of the control plane's cluster.
    Kubernetes(KubernetesState),
}

/// How the API server is reached, and what is asked of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesState {
    /// A kubeconfig file; the pod's own service account when absent.
    pub kubeconfig: Option<PathBuf>,
    /// The context in that file; its current context when absent.
    pub context: Option<String>,
    /// Where Applications are looked for.
    pub applications: ApplicationNamespaces,
    /// Namespace of the Secrets by which the gateway reaches clusters that Argo CD reaches through
    /// it; none are read when absent.
    pub credentials_namespace: Option<String>,
}

/// Namespaces in which Applications are looked for. The control plane's is always among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApplicationNamespaces {
    /// Only the control plane's, as Argo CD without `application.namespaces`.
    #[default]
    ControlPlane,
    /// Every namespace, with one watch of the whole cluster.
    All,
    /// These too, with one watch each.
    Listed(BTreeSet<String>),
}
