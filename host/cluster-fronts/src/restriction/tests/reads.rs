//! Which requests are reads, which need extra permissions, and what the gateway's own identity may
//! do.

use std::sync::Arc;

use crate::restriction::tests::{allow_all_except, attributes, check, project, read, read_as, rules, with, write_as};
use tollgate_objects::ResourceRules;
use tollgate_policy::application_request::{ActingIdentity, ExtraPermission, ObjectOperation, ReadOrWrite};
use tollgate_policy::impersonate::Impersonation;

#[test]
fn only_requests_that_change_nothing_are_reads() {
    for request in [
        "GET /api/v1/namespaces/n/pods/p",
        "HEAD /api/v1/namespaces/n/pods/p",
        "GET /api/v1/pods",
        "GET /api/v1/pods?watch=1",
        "GET+ws /api/v1/pods?watch=1",
        "GET /api/v1/namespaces/n/pods/p/log?follow=1",
        "GET+ws /api/v1/namespaces/n/pods/p/log",
        "GET /apis/apps/v1/namespaces/n/deployments/d/scale",
        "GET /",
        "HEAD /healthz",
        "OPTIONS /version",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
    ] {
        assert_eq!(
            ReadOrWrite::classify(&attributes(request)),
            ReadOrWrite::Read,
            "{request}"
        );
    }
    for request in [
        "POST /api/v1/namespaces/n/pods",
        "POST /api/v1/namespaces/n/pods?dryRun=All",
        "PATCH /api/v1/namespaces/n/pods/p?dryRun=All",
        "PUT /api/v1/namespaces/n/pods/p/status",
        "DELETE /api/v1/namespaces/n/pods/p",
        "DELETE /api/v1/namespaces/n/pods",
        "GET+ws /api/v1/namespaces/n/pods/p/exec",
        "GET /api/v1/namespaces/n/pods/p/exec",
        "POST /api/v1/namespaces/n/pods/p/attach",
        "GET+ws /api/v1/namespaces/n/pods/p/portforward",
        "GET+ws /apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console",
        "GET /api/v1/namespaces/n/pods/p/proxy/",
        "GET /api/v1/nodes/a/proxy/run",
        "GET /api/v1/proxy/nodes/a",
        "GET /api/v1/watch/pods",
        "DELETE /api/v1/watch/namespaces/n/pods/p",
        "GET /api/v1/watch",
        "WATCH /api/v1/watch",
        "OPTIONS /api/v1/pods",
        "GET+ws /healthz",
        "POST /version",
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
        "POST /apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews",
        "POST /apis/authentication.k8s.io/v1/tokenreviews",
        "POST /apis/evil.io/v1/selfsubjectaccessreviews",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x",
        "PUT /apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x",
    ] {
        assert_eq!(
            ReadOrWrite::classify(&attributes(request)),
            ReadOrWrite::Write,
            "{request}"
        );
    }
}

#[test]
fn logs_and_exec_need_extra_permissions() {
    for (request, expected) in [
        ("GET /api/v1/namespaces/n/pods/p/log", Some(ExtraPermission::Logs)),
        ("GET+ws /api/v1/namespaces/n/pods/p/log", Some(ExtraPermission::Logs)),
        ("GET+ws /api/v1/namespaces/n/pods/p/exec", Some(ExtraPermission::Exec)),
        ("POST /api/v1/namespaces/n/pods/p/exec", Some(ExtraPermission::Exec)),
        ("POST /api/v1/namespaces/n/pods/p/attach", Some(ExtraPermission::Exec)),
        (
            "POST /api/v1/namespaces/n/pods/p/portforward",
            Some(ExtraPermission::Exec),
        ),
        (
            "GET /api/v1/namespaces/n/services/s/proxy/x",
            Some(ExtraPermission::Exec),
        ),
        (
            "DELETE /api/v1/namespaces/n/services/s/proxy/x",
            Some(ExtraPermission::Exec),
        ),
        ("GET /api/v1/nodes/a/proxy/logs", Some(ExtraPermission::Exec)),
        (
            "GET+ws /apis/x.io/v1/namespaces/n/machines/v/console",
            Some(ExtraPermission::Exec),
        ),
        ("GET+ws /api/v1/pods?watch=1", None),
        ("GET /api/v1/namespaces/n/pods/p", None),
        ("POST /api/v1/namespaces/n/pods", None),
        ("GET /apis/x.io/v1/namespaces/n/pods/p/log", None),
    ] {
        assert_eq!(
            ExtraPermission::required_for(&attributes(request)),
            expected,
            "{request}"
        );
    }
    assert_eq!(ExtraPermission::Logs.rbac(), ("logs", "get"));
    assert_eq!(ExtraPermission::Exec.rbac(), ("exec", "create"));
}

#[test]
fn operations_on_single_objects_are_recognized() {
    for (expected, requests) in [
        (
            ObjectOperation::Discover,
            &[
                "GET /version",
                "GET /apis/apps/v1",
                "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            ][..],
        ),
        (
            ObjectOperation::Get,
            &[
                "GET /api/v1/namespaces/n/pods/p",
                "HEAD /api/v1/namespaces/n/pods/p",
                "GET /api/v1/namespaces/n/pods/p?watch=true",
                "GET /api/v1/namespaces/n/pods/p/log?follow=true",
                "GET /api/v1/namespaces/n",
                "GET /apis/apps/v1/namespaces/n/deployments/d/scale",
                "GET /apis/apps/v1/namespaces/n/deployments/d/status",
                "GET /apis/example.org/v1/namespaces/n/secrets/s",
            ],
        ),
        (
            ObjectOperation::Run,
            &[
                "GET+ws /api/v1/namespaces/n/pods/p/exec",
                "POST /api/v1/namespaces/n/pods/p/exec",
                "POST /api/v1/namespaces/n/pods/p/attach",
                "GET+ws /api/v1/namespaces/n/pods/p/portforward",
            ],
        ),
        (
            ObjectOperation::Update,
            &[
                "PATCH /apis/apps/v1/namespaces/n/deployments/d?dryRun=All",
                "PUT /apis/apps/v1/namespaces/n/deployments/d",
                "PATCH /apis/apps/v1/namespaces/n/deployments/d/scale",
            ],
        ),
        (
            ObjectOperation::Delete,
            &["DELETE /apis/apps/v1/namespaces/n/deployments/d"],
        ),
        (
            ObjectOperation::Other,
            &[
                "POST /api/v1/namespaces/n/pods",
                "POST /api/v1/namespaces/n/pods/p",
                "GET /api/v1/namespaces/n/pods",
                "GET /api/v1/namespaces/n/pods?fieldSelector=metadata.name=p",
                "GET /api/v1/namespaces/n/pods?watch=true&fieldSelector=metadata.name=p",
                "DELETE /api/v1/namespaces/n/pods",
                "DELETE /api/v1/namespaces/n/pods?fieldSelector=metadata.name=p",
                "GET /api/v1/namespaces/n/secrets/s",
                "PATCH /api/v1/namespaces/n/secrets/s",
                "DELETE /api/v1/namespaces/n/secrets/s",
                "POST /api/v1/namespaces/n/pods/p/eviction",
                "POST /api/v1/namespaces/n/serviceaccounts/a/token",
                "PATCH /api/v1/namespaces/n/pods/p/ephemeralcontainers",
                "PUT /apis/apps/v1/namespaces/n/deployments/d/status",
                "PUT /api/v1/namespaces/n/finalize",
                "GET /api/v1/namespaces/n/pods/p/proxy/x",
                "GET /api/v1/namespaces/n/services/s/proxy/x",
                "GET+ws /apis/x.io/v1/namespaces/n/machines/v/console",
                "GET /apis/x.io/v1/namespaces/n/machines/v/anything",
                "POST /apis/x.io/v1/namespaces/n/pods/p/exec",
                "GET /api/v1/watch/namespaces/n/pods/p",
                "DELETE /api/v1/watch/namespaces/n/pods/p",
                "GET+ws /apis/x.io/v1/watch/namespaces/n/pods/p/exec",
                "OPTIONS /api/v1/namespaces/n/pods/p",
                "POST /healthz",
                "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
            ],
        ),
    ] {
        for request in requests {
            assert_eq!(ObjectOperation::classify(&attributes(request)), expected, "{request}");
        }
    }
}

#[test]
fn a_service_account_reads_only_what_the_project_permits() {
    let account = ActingIdentity::ServiceAccount(Arc::new(Impersonation::Nobody));
    for (request, expected) in [
        ("GET /api/v1/namespaces/team-a/pods", ""),
        ("GET /api/v1/namespaces/team-a/secrets", ""),
        ("GET /version", ""),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""),
        ("GET /metrics", "path /metrics is not permitted"),
        ("GET /api/v1/pods", "one namespace at a time"),
        ("GET /api/v1/nodes", "resource Node is not permitted"),
        (
            "GET /api/v1/namespaces/kube-system/pods",
            "namespace kube-system is not permitted",
        ),
    ] {
        let outcome = read_as(&account, &project(), request);
        assert!(
            outcome.contains(expected) && outcome.is_empty() == expected.is_empty(),
            "{request}: `{outcome}`"
        );
    }
}

#[test]
fn the_gateways_own_identity_reads_only_what_the_project_permits() {
    let project = with(ResourceRules {
        cluster_allowed: rules(&["rbac.authorization.k8s.io/ClusterRole/team-*", "/Node"]),
        namespaced_denied: rules(&["batch/*"]),
        ..ResourceRules::default()
    });
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (request, expected) in [
        ("GET /api/v1/namespaces/team-a/pods".to_owned(), ""),
        ("GET /api/v1/namespaces/team-a/pods/p/log".to_owned(), ""),
        ("GET /api/v1/namespaces/team-a/pods?watch=1".to_owned(), ""),
        ("GET /api/v1/pods".to_owned(), "one namespace at a time"),
        (
            "GET /api/v1/pods?fieldSelector=metadata.namespace=team-a".to_owned(),
            "one namespace at a time",
        ),
        (
            "GET /api/v1/namespaces/kube-system/pods".to_owned(),
            "namespace kube-system is not permitted",
        ),
        (
            "GET /apis/batch/v1/namespaces/team-a/jobs".to_owned(),
            "namespaceResourceBlacklist",
        ),
        ("GET /api/v1/namespaces/team-a/configmaps/c".to_owned(), ""),
        (
            "GET /api/v1/namespaces/team-a/secrets/c".to_owned(),
            "secrets are not shown",
        ),
        (
            "GET /api/v1/namespaces/team-a/secrets?watch=1".to_owned(),
            "secrets are not shown",
        ),
        ("GET /api/v1/nodes".to_owned(), ""),
        ("GET /api/v1/nodes/a".to_owned(), ""),
        (
            "GET /api/v1/namespaces/team-a".to_owned(),
            "resource Namespace is not permitted",
        ),
        (format!("GET {roles}/team-a"), ""),
        (format!("GET {roles}?fieldSelector=metadata.name=team-a"), ""),
        (
            format!("GET {roles}?fieldSelector=metadata.name=admin"),
            "clusterResourceWhitelist",
        ),
        (format!("GET {roles}/admin"), "clusterResourceWhitelist"),
        (format!("GET {roles}"), "is permitted by name"),
        (
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            "would report the gateway's own permissions",
        ),
        (
            "GET /api/v1/watch/namespaces/team-a/pods".to_owned(),
            "this method and path",
        ),
        ("GET /api/v1/watch".to_owned(), "this method and path"),
        (
            "GET /apis/unknown.io/v1/namespaces/team-a/things".to_owned(),
            "the kind of",
        ),
    ] {
        let outcome = read(&project, &request);
        assert!(
            outcome.contains(expected) && outcome.is_empty() == expected.is_empty(),
            "{request}: `{outcome}`"
        );
    }
}

#[test]
fn of_non_resource_paths_only_discovery_is_readable() {
    for path in [
        "/api",
        "/api/",
        "/apis",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3/apis/apps/v1",
        "/version",
        "/version/",
    ] {
        assert_eq!(read(&project(), &format!("GET {path}")), "", "{path}");
    }
    for path in [
        "/",
        "/healthz",
        "/metrics",
        "/logs/kube.log",
        "/debug/pprof/",
        "/versions",
        "/version/x",
        "/API",
        "/apis/..%2Fmetrics",
        "/openapi//x",
        "/.well-known/openid-configuration",
        "//metrics",
    ] {
        let outcome = read(&project(), &format!("GET {path}"));
        assert!(
            outcome.contains("is not permitted in project guest"),
            "{path}: `{outcome}`"
        );
    }
    let outcome = read(&allow_all_except(&[], &[]), "POST /version");
    assert_eq!(outcome, "path /version is not permitted in project guest");
}

#[test]
fn the_gateways_own_identity_writes_without_disclosing_secrets() {
    let stored = "secrets can only be created: other writes are answered with what is stored; turn impersonation on";
    let token = "tokens of service accounts are not issued without impersonation";
    let secrets = "/api/v1/namespaces/team-a/secrets";
    let accounts = "/api/v1/namespaces/team-a/serviceaccounts";
    for (request, expected) in [
        (format!("POST {secrets}"), ""),
        (format!("POST {secrets}?dryRun=All"), ""),
        (format!("POST {secrets}/db"), stored),
        (format!("PATCH {secrets}/db"), stored),
        (format!("PATCH {secrets}/db?dryRun=All&fieldManager=x"), stored),
        (format!("PUT {secrets}/db"), stored),
        (format!("DELETE {secrets}/db"), stored),
        (format!("DELETE {secrets}/db?dryRun=All"), stored),
        (format!("DELETE {secrets}"), stored),
        (format!("POST {accounts}/default/token"), token),
        (format!("POST {accounts}"), ""),
        (format!("PATCH {accounts}/default"), ""),
        ("PATCH /api/v1/namespaces/team-a/configmaps/db".to_owned(), ""),
        ("DELETE /api/v1/namespaces/team-a/configmaps".to_owned(), ""),
    ] {
        let outcome = write_as(&ActingIdentity::Gateway, &project(), &request, None);
        assert!(
            outcome.contains(expected) && outcome.is_empty() == expected.is_empty(),
            "{request}: `{outcome}`, not `{expected}`"
        );
        // For a service account, the cluster's RBAC decides.
        check(&project(), &request, "");
    }
}
