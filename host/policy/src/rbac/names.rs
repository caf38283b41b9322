//! Names of resources, actions and objects, as rows are matched against them.
//!
//! Invariant: the name of an object in the control plane's own namespace has no namespace part.
//!
//! Source: Argo CD `util/rbac`, `util/security/rbac.go`.

const CHANGES: &[&str] = &["create", "get", "update", "delete"];

/// Resources that Argo CD checks, with their actions. `preview` and `connect` exist only in the
/// gateway.
pub(super) const RESOURCES: [(&str, &[&str]); 12] = [
    (
        "applications",
        &[
            "create", "get", "update", "delete", "action", "override", "sync", "rollback",
        ],
    ),
    ("applicationsets", &["create", "get", "update", "delete", "preview"]),
    ("logs", &["get"]),
    ("exec", &["create"]),
    ("clusters", &["create", "get", "update", "delete", "connect"]),
    ("repositories", CHANGES),
    ("write-repositories", CHANGES),
    ("projects", CHANGES),
    ("accounts", &["create", "get", "update"]),
    ("certificates", &["create", "get", "delete"]),
    ("gpgkeys", &["create", "get", "delete"]),
    ("extensions", &["invoke"]),
];

/// Resources that only the gateway checks, with their actions. Argo CD ignores their rows.
pub(super) const OWN_RESOURCES: [(&str, &[&str]); 10] = [
    ("credentials", &["get"]),
    ("tokens", &["create", "get", "delete"]),
    ("sessions", &["get", "delete"]),
    ("people", &["lock"]),
    ("audit", &["get"]),
    ("decisions", &["get"]),
    ("rbac", &["get"]),
    ("policies", &["get", "eval"]),
    ("plugins", &["get"]),
    ("system", &["get"]),
];

pub(super) fn actions(resource: &str) -> Option<&'static [&'static str]> {
    let mut resources = RESOURCES.into_iter().chain(OWN_RESOURCES);
    resources.find_map(|(name, actions)| (name == resource).then_some(actions))
}

/// Whether objects of a resource start with a project, so that roles of that project count for
/// them.
pub fn is_project_scoped(resource: &str) -> bool {
    matches!(
        resource,
        "applications" | "applicationsets" | "logs" | "exec" | "clusters" | "repositories"
    )
}

/// The object of an Application or ApplicationSet: `project/name`, or `project/namespace/name`
/// outside the control plane's namespace. If the control plane's namespace is unknown (empty), the
/// short form is used. An empty project means `default`.
pub fn object_name(control_plane_namespace: &str, project: &str, namespace: &str, name: &str) -> String {
    let project = if project.is_empty() { "default" } else { project };
    if control_plane_namespace.is_empty() || namespace.is_empty() || namespace == control_plane_namespace {
        format!("{project}/{name}")
    } else {
        format!("{project}/{namespace}/{name}")
    }
}

/// The object of a repository or a cluster: the URL of the repository or of the cluster's API
/// server, preceded by its project if it has one. The name of a cluster is not an object.
pub fn url_object_name(project: &str, url: &str) -> String {
    if project.is_empty() {
        url.to_owned()
    } else {
        format!("{project}/{url}")
    }
}
