//! Settings of where the Kubernetes objects come from.
//!
//! In: `state` of the settings. Out: [`StateSource`]. Never: two sources, or none.

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
    /// The context of that file; its current one when absent.
    pub context: Option<String>,
    /// Where Applications are looked for.
    pub applications: ApplicationNamespaces,
}

/// Namespaces Applications are looked for in, the control plane's always among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApplicationNamespaces {
    /// The control plane's alone, as Argo CD without `application.namespaces`.
    #[default]
    ControlPlane,
    /// Every namespace, by one watch of the whole cluster.
    All,
    /// These too, by a watch each.
    Listed(BTreeSet<String>),
}
