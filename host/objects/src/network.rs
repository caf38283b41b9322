//! Objects that say who can connect to argocd-server: Services, Ingresses and NetworkPolicies of the
//! control plane's namespace. No request is decided by them.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::diagnostic::Location;

/// A `Service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// `metadata.name`.
    pub name: String,
    /// `spec.selector`: labels that its pods have.
    pub selector: BTreeMap<String, String>,
    /// From where it can be reached.
    pub exposure: ServiceExposure,
    /// Where the object starts.
    pub location: Location,
}

/// From where a Service can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceExposure {
    /// From within the cluster.
    Cluster,
    /// By a port of every node (`NodePort`).
    Nodes,
    /// By a load balancer (`LoadBalancer`).
    LoadBalancer,
    /// By addresses from outside (`externalIPs`).
    ExternalAddresses,
}

/// An `Ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// `metadata.name`.
    pub name: String,
    /// Names of the Services behind it.
    pub services: BTreeSet<String>,
    /// Where the object starts.
    pub location: Location,
}

/// A `NetworkPolicy`, as far as it is about connections to pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// `metadata.name`.
    pub name: String,
    /// `spec.podSelector`.
    pub pods: LabelSelector,
    /// `spec.ingress`; `None` if the policy is not about connections to pods.
    pub ingress: Option<Vec<IngressRule>>,
    /// Where the object starts.
    pub location: Location,
}

/// Connections that a NetworkPolicy admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressRule {
    /// `from`; everybody if it is empty.
    pub from: Vec<NetworkPeer>,
    /// Numbers of `ports`. `None` if there are none, and so all are admitted, or if one is a name or
    /// a range.
    pub ports: Option<BTreeSet<i64>>,
}

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkPeer {
    /// `ipBlock`.
    Addresses,
    /// Pods.
    Pods {
        /// `namespaceSelector`; `None` for the policy's own namespace.
        namespaces: Option<LabelSelector>,
        /// `podSelector`; `None` for all pods.
        pods: Option<LabelSelector>,
    },
}

/// A selector of objects by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// `matchLabels`.
    pub labels: BTreeMap<String, String>,
    /// Whether there are `matchExpressions`, which are not read.
    pub has_expressions: bool,
}

/// Whether a selector selects an object of which only some labels are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// It does.
    Yes,
    /// It depends on the other labels.
    Perhaps,
    /// It does not.
    No,
}

impl LabelSelector {
    /// Whether it selects an object with these labels and perhaps others.
    pub fn selects(&self, known: &BTreeMap<String, String>) -> Selection {
        let differs = |(key, value): (&String, &String)| known.get(key).is_some_and(|known| known != value);
        let is_known = |(key, value): (&String, &String)| known.get(key) == Some(value);
        if self.labels.iter().any(differs) {
            Selection::No
        } else if !self.has_expressions && self.labels.iter().all(is_known) {
            Selection::Yes
        } else {
            Selection::Perhaps
        }
    }
}
