//! Settings of the front through which Argo CD's own components reach clusters.

use serde::Deserialize;

/// How Argo CD's application controller and server reach clusters through the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Who they are. Nobody else may use the front; at least one.
    pub callers: Vec<ControlPlaneCaller>,
    /// The service account that reads in each cluster where they do not impersonate.
    pub reader: ReaderAccount,
    /// Whether writes that fit no Application are refused.
    pub mode: ControlPlaneMode,
}

/// What happens to a write of Argo CD that fits no Application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ControlPlaneMode {
    /// It is refused.
    #[default]
    Enforce,
    /// It is sent, with the gateway's own identity if it names no account; the decision record says why
    /// `enforce` would refuse it.
    Audit,
}

/// A credential of Argo CD's components.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneCaller {
    /// `iss` of the component's tokens: `argocd` for an account of Argo CD, or an issuer of
    /// `authentication.jwt`, such as an API server (docs/enrolled-clusters.md#serviceaccount-tokens).
    pub issuer: String,
    /// Name of the account, or the username that the issuer's mapping returns.
    pub user: String,
}

/// A service account that every cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderAccount {
    /// A name that a namespace can have.
    pub namespace: String,
    /// A name that a service account can have.
    pub name: String,
}

impl ReaderAccount {
    /// Its username: `system:serviceaccount:<namespace>:<name>`.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}
