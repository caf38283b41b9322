//! Lists of resources and destinations, each allow with its deny twin.

use crate::restriction::tests::{allow_all_except, check, project, rules, with, write};
use tollgate_objects::{Cluster, Destination, ResourceRules};

const NAMESPACED_DENIED: &str = "is not permitted in project guest: namespaceResourceBlacklist";

#[test]
fn every_way_to_write_an_object_is_a_write_of_its_kind() {
    let deployment = "/apis/apps/v1/namespaces/team-a/deployments";
    let pod = "/api/v1/namespaces/team-a/pods";
    let account = "/api/v1/namespaces/team-a/serviceaccounts/robot";
    for (request, kind) in [
        (format!("POST {deployment}"), "apps/Deployment"),
        (format!("POST {deployment}?dryRun=All"), "apps/Deployment"),
        (format!("PUT {deployment}/web"), "apps/Deployment"),
        (format!("PATCH {deployment}/web"), "apps/Deployment"),
        (
            format!("PATCH {deployment}/web?fieldManager=x&force=true"),
            "apps/Deployment",
        ),
        (format!("DELETE {deployment}/web"), "apps/Deployment"),
        (format!("DELETE {deployment}"), "apps/Deployment"),
        (format!("PUT {deployment}/web/status"), "apps/Deployment"),
        (format!("PATCH {deployment}/web/scale"), "apps/Deployment"),
        (format!("POST {pod}/web/eviction"), "Pod"),
        (format!("POST {pod}/web/binding"), "Pod"),
        (format!("PATCH {pod}/web/ephemeralcontainers"), "Pod"),
        (format!("POST {pod}/web/exec?command=sh"), "Pod"),
        (format!("GET+ws {pod}/web/exec?command=sh"), "Pod"),
        (format!("GET {pod}/web/proxy/metrics"), "Pod"),
        ("POST /api/v1/namespaces/team-a/bindings".to_owned(), "Pod"),
        (format!("POST {account}/token"), "ServiceAccount"),
    ] {
        let (group, name) = kind.split_once('/').unwrap_or(("", kind));
        let denied = allow_all_except(&[], &[&format!("{group}/{name}")]);
        check(&denied, &request, &format!("resource {kind} {NAMESPACED_DENIED}"));
        check(&allow_all_except(&[], &["other/*", "*/Other"]), &request, "");
    }
}

#[test]
fn lists_of_namespaced_resources_are_evaluated_as_in_argo_cd() {
    let request = "POST /apis/apps/v1/namespaces/team-a/deployments";
    let allowing = |allowed: Option<&[&str]>| {
        with(ResourceRules {
            namespaced_allowed: allowed.map(rules),
            ..ResourceRules::default()
        })
    };
    let refused = "resource apps/Deployment is not permitted in project guest: namespaceResourceWhitelist";
    for (allowed, expected) in [
        (None, ""),
        (Some(&[][..]), refused),
        (Some(&["apps/Deployment"]), ""),
        (Some(&["*/*"]), ""),
        (Some(&["a??s/D*t"]), ""),
        (Some(&["[a-b]pps/[^a-z]*"]), ""),
        (Some(&["/Pod", "apps/*"]), ""),
        (Some(&["/Deployment"]), refused),
        (Some(&["apps/deployment"]), refused),
        (Some(&["apps/"]), refused),
        (Some(&["apps/Deploy"]), refused),
        (Some(&["{apps}/*"]), refused),
        (Some(&["!batch/*"]), refused),
        (Some(&["apps/[A-"]), refused),
        // These lists ignore names.
        (Some(&["apps/Deployment/other"]), ""),
    ] {
        check(&allowing(allowed), request, expected);
    }
    let both = with(ResourceRules {
        namespaced_allowed: Some(rules(&["*/*"])),
        namespaced_denied: rules(&["apps/Deploy*"]),
        ..ResourceRules::default()
    });
    check(&both, request, NAMESPACED_DENIED);
    check(&both, "POST /api/v1/namespaces/team-a/pods", "");
}

#[test]
fn a_malformed_deny_rule_denies() {
    let request = "POST /apis/apps/v1/namespaces/team-a/deployments";
    check(&allow_all_except(&[], &["apps/[A-"]), request, NAMESPACED_DENIED);
    check(&allow_all_except(&[], &["[/Deployment"]), request, NAMESPACED_DENIED);
    check(&allow_all_except(&[], &["batch/[A-", "[/Job"]), request, "");
}

#[test]
fn cluster_scoped_resources_need_an_allow_rule() {
    let request = "PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/reader";
    let closed = with(ResourceRules {
        namespaced_allowed: Some(rules(&["*/*"])),
        ..ResourceRules::default()
    });
    let refused = "ClusterRole is not permitted in project guest: clusterResourceWhitelist";
    check(&closed, request, refused);
    for (allowed, denied, expected) in [
        ("*/*", "none/none", ""),
        ("rbac.authorization.k8s.io/ClusterRole/read*", "none/none", ""),
        ("rbac.authorization.k8s.io/ClusterRole/write*", "none/none", refused),
        ("rbac.authorization.k8s.io/ClusterRole/[", "none/none", refused),
        ("*/*", "*/ClusterRole", "clusterResourceBlacklist"),
        ("*/*", "*/ClusterRole/reader", "clusterResourceBlacklist"),
        ("*/*", "*/ClusterRole/[", "clusterResourceBlacklist"),
        ("*/*", "*/ClusterRole/writer", ""),
    ] {
        let project = with(ResourceRules {
            cluster_allowed: rules(&[allowed]),
            cluster_denied: rules(&[denied]),
            ..ResourceRules::default()
        });
        check(&project, request, expected);
    }
}

#[test]
fn a_namespace_is_a_cluster_scoped_resource() {
    let request = "DELETE /api/v1/namespaces/team-a";
    check(&project(), request, "resource Namespace is not permitted");
    check(&project(), "PUT /api/v1/namespaces/team-a/finalize", "Namespace");
    let project = with(ResourceRules {
        cluster_allowed: rules(&["/Namespace/team-a"]),
        ..ResourceRules::default()
    });
    for path in ["team-a", "team-a/status", "team-a/finalize"] {
        check(&project, &format!("PUT /api/v1/namespaces/{path}"), "");
    }
    check(&project, "DELETE /api/v1/namespaces/team-b", "clusterResourceWhitelist");
}

#[test]
fn the_namespace_must_be_a_destination_of_the_project() {
    let refused = |namespace| format!("namespace {namespace} is not permitted in project guest: destinations");
    let mut with_exceptions = project();
    with_exceptions.destinations.extend([
        Destination {
            namespace: "!team-x".to_owned(),
            ..with_exceptions.destinations[0].clone()
        },
        Destination {
            namespace: "!kube-*".to_owned(),
            ..with_exceptions.destinations[0].clone()
        },
    ]);
    for method in ["POST", "DELETE"] {
        let request = |namespace| format!("{method} /api/v1/namespaces/{namespace}/configmaps");
        check(&project(), &request("team-a"), "");
        check(&project(), &request("kube-system"), &refused("kube-system"));
        check(&with_exceptions, &request("team-a"), "");
        check(&with_exceptions, &request("team-x"), &refused("team-x"));
        check(&with_exceptions, &request("kube-system"), &refused("kube-system"));
    }
}

#[test]
fn a_project_may_permit_only_its_own_clusters() {
    let mut project = project();
    let request = "POST /api/v1/namespaces/team-a/pods";
    assert_eq!(write(&project, request, None), "");
    project.permit_only_project_scoped_clusters = true;
    check(&project, request, "namespace team-a is not permitted");
    let own = Cluster {
        project: "guest".to_owned(),
        ..crate::restriction::tests::cluster()
    };
    let destinations = tollgate_objects::destination::CompiledDestinations::of(&project);
    assert!(destinations.permit(&own, "team-a", std::slice::from_ref(&own)));
    assert!(!destinations.permit(&own, "kube-system", std::slice::from_ref(&own)));
}

#[test]
fn writes_in_all_namespaces_are_refused() {
    for request in [
        "DELETE /apis/apps/v1/deployments",
        "POST /api/v1/pods",
        "DELETE /api/v1/pods/web",
    ] {
        check(
            &allow_all_except(&[], &[]),
            request,
            "requests for one namespace at a time",
        );
    }
    check(
        &allow_all_except(&[], &[]),
        "DELETE /apis/apps/v1/namespaces/team-a/deployments",
        "",
    );
}

#[test]
fn unknown_kinds_are_refused() {
    let open = allow_all_except(&[], &[]);
    check(
        &open,
        "POST /apis/unknown.io/v1/namespaces/team-a/things",
        "the kind of resource things.unknown.io is not known",
    );
    check(
        &open,
        "POST /api/v1/namespaces/team-a/things",
        "the kind of resource things is not known",
    );
}

#[test]
fn writes_of_non_resource_paths_are_refused() {
    let open = allow_all_except(&[], &[]);
    for request in [
        "POST /healthz",
        "POST /api",
        "DELETE /",
        "GET+ws /logs",
        "POST /api/v1/watch",
    ] {
        check(&open, request, "permits writes of resources only");
    }
    for request in ["OPTIONS", "PROPFIND"] {
        check(
            &open,
            &format!("{request} /api/v1/namespaces/team-a/pods"),
            "this method and path",
        );
    }
}
