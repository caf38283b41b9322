//! What a request asks of Kubernetes, read as kube-apiserver reads it.
//!
//! In: method, raw path behind the prefix, raw query. Out: [`Attributes`].
//! Source: `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`.

use serde::Serialize;

/// Attributes of one request, in the words of SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attributes {
    /// Verb RBAC is asked about: `get`, `list`, `watch`, `create`, `update`,
    /// `patch`, `delete`, `deletecollection`; the method, lower case, for
    /// requests about no resource. Upgrades and `proxy` of nodes, pods and
    /// services that come by `GET` are `create`: they run programs.
    pub verb: String,
    /// What the method alone says, where that is another verb (`get` for an
    /// `exec` by WebSocket).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also_verb: Option<String>,
    /// Whether it is about a resource.
    pub resource_request: bool,
    /// API group; empty for the core group.
    pub api_group: String,
    /// API version.
    pub api_version: String,
    /// Resource, plural.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Namespace; of a namespace itself, its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path, decoded once, as the API server sees it.
    pub path: String,
    /// The protocol the connection is to be switched to, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<&'static str>,
}
