//! Names of resources, actions and objects.
//!
//! In: what a request is about. Out: the texts rows are matched against.
//! Never: a namespace for objects of the control plane's own namespace.
//!
//! Source: Argo CD `util/rbac`, `util/security/rbac.go`.

/// Resources Argo CD checks.
pub(super) const RESOURCES: [&str; 12] = [
    "applications",
    "applicationsets",
    "logs",
    "exec",
    "clusters",
    "repositories",
    "write-repositories",
    "projects",
    "accounts",
    "certificates",
    "gpgkeys",
    "extensions",
];

/// Resources only the gateway checks; Argo CD does nothing with their rows.
pub(super) const OWN_RESOURCES: [&str; 4] = ["credentials", "tokens", "sessions", "audit"];

/// Whether objects of a resource start with a project, so that roles of that
/// project count for them.
pub fn is_project_scoped(resource: &str) -> bool {
    matches!(
        resource,
        "applications" | "applicationsets" | "logs" | "exec" | "clusters" | "repositories"
    )
}

/// The object of an Application or ApplicationSet: `project/name`, or
/// `project/namespace/name` outside the control plane's namespace. An unknown
/// (empty) control-plane namespace also gives the short form; no project is
/// the project `default`.
pub fn object_name(control_plane_namespace: &str, project: &str, namespace: &str, name: &str) -> String {
    let project = if project.is_empty() { "default" } else { project };
    if control_plane_namespace.is_empty() || namespace.is_empty() || namespace == control_plane_namespace {
        format!("{project}/{name}")
    } else {
        format!("{project}/{namespace}/{name}")
    }
}

/// The object of a cluster: the URL of its API server, behind its project if it
/// has one. Its name is no object.
pub fn cluster_object_name(project: &str, server: &str) -> String {
    repository_object_name(project, server)
}

/// The object of a repository: its URL, behind its project if it has one.
pub fn repository_object_name(project: &str, repository: &str) -> String {
    if project.is_empty() {
        repository.to_owned()
    } else {
        format!("{project}/{repository}")
    }
}
