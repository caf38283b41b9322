//! Whether the policy lets a request into the cluster.
//!
//! In: [`crate::access::Access`], what the request asks of Kubernetes. Out:
//! [`KubernetesPermit`], which only this file makes. Refuses: 403. Never: a verb
//! read otherwise than kube-apiserver reads it.

use std::sync::Arc;

use crate::access::Access;
use crate::impersonate::Impersonation;

pub mod attributes;

pub use attributes::Attributes;

/// Proof that the policy allowed one request to a cluster.
#[derive(Debug)]
pub struct KubernetesPermit {
    access: Arc<Access>,
    attributes: Attributes,
    impersonation: Arc<Impersonation>,
}

impl KubernetesPermit {
    /// Who may use which agent.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// What is asked of the cluster.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// As whom.
    pub fn impersonation(&self) -> &Arc<Impersonation> {
        &self.impersonation
    }
}
