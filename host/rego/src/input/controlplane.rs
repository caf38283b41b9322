//! Builds the input of the policy of the control-plane front, `data.tollgate.controlplane.decision`: the
//! component of Argo CD, the time, the cluster, the request, and who is to act there.
//!
//! Security: the input contains no credential and nothing of the request's content.

use regorus::Value;

use super::kubernetes::{identity_json, request};
use super::{PrincipalFacts, existing_application, object};
use tollgate_core::attributes::Attributes;
use tollgate_objects::{Application, Cluster};
use tollgate_policy::application_request::ReadOrWrite;
use tollgate_policy::impersonate::Impersonation;

/// Input of `data.tollgate.controlplane.decision`. The schema is
/// [`Front::input_schema`](crate::Front::input_schema); docs/policies.md explains it.
#[derive(Clone, Copy, Debug)]
pub struct ControlPlaneInput<'a> {
    /// The component of Argo CD.
    pub principal: &'a PrincipalFacts,
    /// When the request arrived, in UTC as RFC 3339.
    pub time: &'a str,
    /// The cluster that the request is for.
    pub cluster: &'a Cluster,
    /// The request to the cluster.
    pub attributes: &'a Attributes,
    /// Whether it can change something.
    pub access: ReadOrWrite,
    /// Whether the cluster is to store nothing of it.
    pub dry_run: bool,
    /// The identity that the cluster is to see for the request.
    pub identity: &'a Impersonation,
    /// The Application that the request acts for, if it is known.
    pub application: Option<&'a Application>,
}

impl ControlPlaneInput<'_> {
    /// The value on which a bundle decides.
    pub fn to_value(&self) -> Value {
        let identity = match self.identity {
            Impersonation::Nobody => serde_json::Value::Null,
            Impersonation::As(identity) => identity_json(identity),
        };
        let cluster = object([
            ("name", self.cluster.name.as_str().into()),
            ("server", self.cluster.server.as_str().into()),
        ]);
        object([
            ("principal", self.principal.0.clone()),
            ("time", self.time.into()),
            ("cluster", cluster),
            ("request", request(self.attributes)),
            ("access", self.access.as_ref().into()),
            ("dryRun", self.dry_run.into()),
            ("identity", identity.into()),
            (
                "application",
                self.application.map_or(Value::Undefined, existing_application),
            ),
        ])
    }
}
