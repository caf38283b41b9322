//! Requests against the restrictions of projects.

mod lists;
mod model;
mod names;
mod reads;
mod tricks;

use std::sync::Arc;

use http::Method;

use crate::restriction::{BodyName, RequestObject, Restrictions, TargetCluster, resource};
use tollgate_cluster::discovery::{ResourceKind, ResourceScope};
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::Location;
use tollgate_core::upgrade::Protocol;
use tollgate_objects::{Cluster, Destination, Project, ResourceRule, ResourceRules};
use tollgate_policy::application_request::ActingIdentity;
use tollgate_policy::impersonate::Impersonation;

/// What the cluster of these tests serves.
const SERVED: [(&str, &str, &str, ResourceScope); 16] = [
    ("", "pods", "Pod", ResourceScope::Namespaced),
    ("", "services", "Service", ResourceScope::Namespaced),
    ("", "secrets", "Secret", ResourceScope::Namespaced),
    ("", "configmaps", "ConfigMap", ResourceScope::Namespaced),
    ("", "serviceaccounts", "ServiceAccount", ResourceScope::Namespaced),
    ("", "bindings", "Binding", ResourceScope::Namespaced),
    ("", "namespaces", "Namespace", ResourceScope::Cluster),
    ("", "nodes", "Node", ResourceScope::Cluster),
    ("apps", "deployments", "Deployment", ResourceScope::Namespaced),
    ("batch", "jobs", "Job", ResourceScope::Namespaced),
    (
        "rbac.authorization.k8s.io",
        "clusterroles",
        "ClusterRole",
        ResourceScope::Cluster,
    ),
    (
        "rbac.authorization.k8s.io",
        "rolebindings",
        "RoleBinding",
        ResourceScope::Namespaced,
    ),
    ("example.com", "namespaces", "Namespace", ResourceScope::Cluster),
    ("example.com", "status", "Status", ResourceScope::Namespaced),
    ("metrics.k8s.io", "pods", "PodMetrics", ResourceScope::Namespaced),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        ResourceScope::Cluster,
    ),
];

fn kind(attributes: &Attributes) -> Option<ResourceKind> {
    let (group, _, resource) = resource(attributes)?;
    let served = SERVED.iter().find(|served| (served.0, served.1) == (group, resource));
    served.map(|(group, _, kind, scope)| ResourceKind {
        group: (*group).into(),
        kind: (*kind).into(),
        scope: *scope,
    })
}

/// `METHOD path?query`, with `+ws` after the method for a WebSocket.
fn attributes(request: &str) -> Attributes {
    let (method, target) = request.split_once(' ').unwrap();
    let (method, upgrade) = match method.split_once("+ws") {
        Some((method, _)) => (method, Some(Protocol::WebSocket)),
        None => (method, None),
    };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    Attributes::read(&method, path, query, upgrade)
}

/// `group/Kind` or `group/Kind/name`; a group may be empty.
fn rules(rules: &[&str]) -> Vec<ResourceRule> {
    let rule = |text: &&str| {
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        ResourceRule {
            group: parts.next().unwrap(),
            kind: parts.next().unwrap(),
            name: parts.next().unwrap_or_default(),
        }
    };
    rules.iter().map(rule).collect()
}

/// A project that permits every namespaced resource in `team-*`.
fn project() -> Project {
    let destination = |namespace: &str| Destination {
        name: "prod".to_owned(),
        server: "https://prod".to_owned(),
        namespace: namespace.to_owned(),
    };
    Project {
        name: "guest".to_owned(),
        destinations: vec![destination("team-*")],
        location: Location::new("projects.yaml", 7),
        ..Project::default()
    }
}

fn with(resources: ResourceRules) -> Project {
    Project { resources, ..project() }
}

/// Permits everything except these cluster-scoped and namespaced resources.
fn allow_all_except(cluster: &[&str], namespaced: &[&str]) -> Project {
    with(ResourceRules {
        cluster_allowed: rules(&["*/*"]),
        cluster_denied: rules(cluster),
        namespaced_denied: rules(namespaced),
        ..ResourceRules::default()
    })
}

fn cluster() -> Cluster {
    Cluster {
        name: "prod".to_owned(),
        server: "https://prod".to_owned(),
        project: String::new(),
    }
}

/// The refusal of a write by a service account; empty if it is permitted.
fn write(project: &Project, request: &str, name: Option<&BodyName>) -> String {
    let account = ActingIdentity::ServiceAccount(Arc::new(Impersonation::Nobody));
    write_as(&account, project, request, name)
}

fn write_as(acting_identity: &ActingIdentity, project: &Project, request: &str, name: Option<&BodyName>) -> String {
    let attributes = attributes(request);
    let kind = kind(&attributes);
    let object = RequestObject {
        attributes: &attributes,
        kind: kind.as_ref(),
        name,
    };
    let cluster = cluster();
    let target = TargetCluster {
        cluster: &cluster,
        clusters: std::slice::from_ref(&cluster),
    };
    let outcome = Restrictions::of(&Arc::new(project.clone())).check_write(target, object, acting_identity);
    outcome.err().map(|refusal| refusal.to_string()).unwrap_or_default()
}

/// The refusal of a read by the gateway's own identity; empty if it is permitted.
fn read(project: &Project, request: &str) -> String {
    read_as(&ActingIdentity::Gateway, project, request)
}

fn read_as(acting_identity: &ActingIdentity, project: &Project, request: &str) -> String {
    let attributes = attributes(request);
    let kind = kind(&attributes);
    let object = RequestObject {
        attributes: &attributes,
        kind: kind.as_ref(),
        name: None,
    };
    let cluster = cluster();
    let target = TargetCluster {
        cluster: &cluster,
        clusters: std::slice::from_ref(&cluster),
    };
    let outcome = Restrictions::of(&Arc::new(project.clone())).check_read(target, object, acting_identity);
    outcome.err().map(|refusal| refusal.to_string()).unwrap_or_default()
}

/// `expected` is part of the refusal; empty means it is permitted.
fn check(project: &Project, request: &str, expected: &str) {
    let outcome = write(project, request, None);
    assert!(
        outcome.contains(expected) && outcome.is_empty() == expected.is_empty(),
        "{request}: `{outcome}`, not `{expected}`"
    );
}
