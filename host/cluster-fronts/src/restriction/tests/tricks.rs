//! Spellings of a request that must not bypass a deny list.

use crate::restriction::tests::{allow_all_except, attributes, check, kind, write};

/// Requests that some parser could read as a deletion or write of the pod `p` in `team-a`.
const POD: [&str; 24] = [
    "DELETE /api/v1/namespaces/team-a/pods/p",
    "DELETE /api/v1/namespaces/team-a/pods/p/",
    "DELETE /api/v1/namespaces/team-a/pods/",
    "DELETE //api/v1/namespaces/team-a/pods/p",
    "DELETE /api//v1/namespaces/team-a/pods/p",
    "DELETE /api/v1//namespaces/team-a/pods/p",
    "DELETE /api/v1/namespaces//team-a/pods/p",
    "DELETE /api/v1/namespaces/team-a//pods/p",
    "DELETE /api/v1/namespaces/team-a/Pods/p",
    "DELETE /api/v1/namespaces/team-a/PODS/p",
    "DELETE /API/v1/namespaces/team-a/pods/p",
    "DELETE /api/v1/namespaces/team-a/%70ods/p",
    "DELETE /api/v1/namespaces/team-a%2Fpods%2Fp",
    "DELETE /api%2Fv1%2Fnamespaces%2Fteam-a%2Fpods%2Fp",
    "DELETE /api/v1/namespaces/team-a/%2570ods/p",
    "DELETE /api/v1/watch/namespaces/team-a/pods/p",
    "POST /api/v1/proxy/namespaces/team-a/pods/p",
    "DELETE /api/v1/namespaces/team-a/pods/p/p",
    "DELETE /api/v1/namespaces/team-a/pods/p/status/x",
    "DELETE /api/v1/namespaces/team-a/../team-a/pods/p",
    "DELETE /api/v1/./namespaces/team-a/pods/p",
    "DELETE /api/v1/namespaces/team-a/pod/p",
    "DELETE /api/v1/namespaces/team-a/pods%00/p",
    "POST /api/v1/namespaces/team-a/bindings",
];

#[test]
fn no_spelling_writes_a_denied_kind() {
    for request in POD {
        let outcome = write(&allow_all_except(&[], &["/Pod"]), request, None);
        assert!(!outcome.is_empty(), "{request} passed");
    }
    // The list refuses them: well-formed requests pass if nothing is denied.
    check(
        &allow_all_except(&[], &[]),
        "DELETE /api/v1/namespaces/team-a/pods/p/",
        "",
    );
    check(
        &allow_all_except(&[], &[]),
        "DELETE /api/v1/namespaces/team-a%2Fpods%2Fp",
        "",
    );
}

#[test]
fn no_spelling_reaches_a_namespace_outside_the_project() {
    for request in POD {
        let request = request.replace("team-a", "kube-system");
        let outcome = write(&allow_all_except(&[], &[]), &request, None);
        assert!(!outcome.is_empty(), "{request} passed");
    }
    for request in [
        "DELETE /api/v1/namespaces/TEAM-A/pods/p",
        "DELETE /api/v1/namespaces/team-a%00/../kube-system/pods/p",
        "DELETE /api/v1/namespaces/%20team-a/pods/p",
        "POST /api/v1/namespaces/kube-system/pods?namespace=team-a",
        "DELETE /api/v1/pods?fieldSelector=metadata.namespace=team-a",
    ] {
        assert_ne!(
            write(&allow_all_except(&[], &[]), request, None),
            "",
            "{request} passed"
        );
    }
}

#[test]
fn no_spelling_writes_a_denied_namespace() {
    let denied = allow_all_except(&["/Namespace"], &[]);
    for request in [
        "POST /api/v1/namespaces",
        "POST /api/v1/namespaces/",
        "DELETE /api/v1/namespaces",
        "PUT /api/v1/namespaces/team-a",
        "DELETE /api/v1/namespaces/team-a/",
        "PUT /api/v1/namespaces/team-a/finalize",
        "PUT /api/v1/namespaces/team-a/status",
        "PUT /api/v1/namespaces/team-a/finalize/",
        "PUT /api/v1/namespaces/team-a/finalize/pods/p",
        "PUT /api/v1/namespaces/team-a/namespaces/team-a",
        "PUT /api/v1/namespaces/team-a/namespaces/team-b",
        "PUT /api/v1/namespaces/team-a/Finalize",
        "PUT /api/v1/namespaces/team-a%2Ffinalize",
        "PUT /api/v1/%6Eamespaces/team-a",
        "DELETE /api/v1/watch/namespaces/team-a",
    ] {
        assert_ne!(write(&denied, request, None), "", "{request} passed");
    }
    check(
        &allow_all_except(&[], &[]),
        "PUT /api/v1/namespaces/team-a/finalize",
        "",
    );
}

#[test]
fn a_namespace_in_the_path_does_not_make_a_kind_namespaced() {
    let open = allow_all_except(&[], &[]);
    for request in [
        "DELETE /api/v1/namespaces/team-a/nodes/a",
        "DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/clusterroles/admin",
        // A custom kind whose resource is called `namespaces`.
        "DELETE /apis/example.com/v1/namespaces/team-a",
        "PUT /api/v1/namespaces/team-a/namespaces/team-b",
    ] {
        check(&open, request, "is not namespaced");
    }
    check(&open, "DELETE /api/v1/nodes/a", "");
    check(&open, "PUT /api/v1/namespaces/team-a/namespaces/team-a", "");
}

/// kube-apiserver reads such a path as a request about the namespace.
#[test]
fn resources_named_like_namespace_subresources_are_read_as_those() {
    let read = attributes("PUT /apis/example.com/v1/namespaces/team-a/status");
    assert_eq!(&*kind(&read).unwrap().kind, "Namespace");
    check(
        &allow_all_except(&[], &[]),
        "PUT /apis/example.com/v1/namespaces/team-a/status",
        "is not namespaced",
    );
}

#[test]
fn the_group_of_the_path_decides() {
    let denied = allow_all_except(&[], &["/Pod"]);
    check(&denied, "DELETE /apis/metrics.k8s.io/v1/namespaces/team-a/pods/p", "");
    check(
        &denied,
        "DELETE /apis//v1/namespaces/team-a/pods/p",
        "resource Pod is not permitted",
    );
    let denied = allow_all_except(&[], &["metrics.k8s.io/PodMetrics"]);
    check(
        &denied,
        "DELETE /apis/metrics.k8s.io/v1/namespaces/team-a/pods/p",
        "namespaceResourceBlacklist",
    );
}

#[test]
fn a_kind_of_another_group_is_refused() {
    use super::super::{RequestObject, Restrictions, TargetCluster, Violation};
    use tollgate_policy::application_request::ActingIdentity;
    let read = attributes("DELETE /apis/apps/v1/namespaces/team-a/deployments/d");
    let mut kind = kind(&read).unwrap();
    kind.group = "batch".into();
    let cluster = crate::restriction::tests::cluster();
    let target = TargetCluster {
        cluster: &cluster,
        clusters: &[],
    };
    let object = RequestObject {
        attributes: &read,
        kind: Some(&kind),
        name: None,
    };
    let restrictions = Restrictions::of(&allow_all_except(&[], &[]).into());
    let resource = "deployments.apps".to_owned();
    assert_eq!(
        restrictions.check_write(target, object, &ActingIdentity::Gateway),
        Err(Violation::UnknownKind { resource })
    );
}

#[test]
fn text_of_the_caller_is_shortened_to_one_line() {
    let long = "x".repeat(5000);
    for request in [
        format!("DELETE /api/v1/namespaces/{long}/pods/p"),
        "DELETE /api/v1/namespaces/a%0Ab%1B[2J/pods/p".to_owned(),
        format!("POST /apis/{long}%0A/v1/namespaces/a/things"),
        format!("POST /{long}"),
    ] {
        let outcome = write(&allow_all_except(&[], &[]), &request, None);
        assert!(outcome.len() < 600 && !outcome.contains(char::is_control), "{outcome}");
    }
}
