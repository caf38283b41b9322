//! `tollgate policy` with the bundle of the Applications front.

use crate::policies::bundles::write;
use crate::policies::shell::{self, tollgate};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/applications");

/// The input for a caller who may override `guestbook`, without a request.
const ANN: &str = "{principal: {id: '1', username: ann, groups: [], issuer: i, kind: oidc}, \
     application: {namespace: argocd, name: guestbook, project: p, labels: {}}, project: {name: p, labels: {}}, \
     destination: {name: in-cluster, server: 'https://kubernetes.default.svc', namespace: shop, permitted: true}, \
     restriction: {permitted: true, reason: ''}, identity: {mode: enforce, acts: account}, \
     rbac: {applications_get: {allow: true, why: allowed}, applications_sync: {allow: true, why: allowed}, \
     applications_override: {allow: true, why: allowed}, \
     logs_get: {allow: false, why: no-rule}, exec_create: {allow: false, why: no-rule}}}";

/// Runs `tollgate policy test` on the shipped bundle with one text of one file replaced.
fn changed(name: &str, from: &str, to: &str) -> (i32, String) {
    shell::changed("test", "applications", (name, from, to))
}

#[test]
fn accompanying_files_are_tested_with_the_bundle() {
    let rules = "impersonation.cel.yaml";
    for to in [
        "fallback: deny",
        "fallback: controller",
        "fallback: default-service-account",
    ] {
        let (code, text) = changed(rules, "# fallback: deny", to);
        assert_eq!(code, 0, "{text}");
    }
    for (from, to, expected) in [
        ("# fallback: deny", "fallback: nobody", "unknown variant"),
        (
            "principal.username",
            "principal.username + '!'",
            "`extra` is not as wanted",
        ),
        (
            "principal.username",
            "principal.nickname",
            "wanted an identity, got the refusal",
        ),
        ("principal.username", "agent.name", "agent"),
        ("tollgate.dev/user: ", "Tollgate.dev/user: ", "Tollgate.dev/user"),
    ] {
        let (code, text) = changed(rules, from, to);
        assert_eq!(code, 1, "{to}: {text}");
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (code, text) = changed(
        "cases.yaml",
        "tollgate.dev/user: [\"proj:payments:ci\"]",
        "tollgate.dev/user: [ann]",
    );
    assert_eq!((code, text.contains("`extra` is not as wanted")), (1, true), "{text}");
    // Without this line, the bundle shows Secrets to everyone with read access; a case fails.
    let (code, text) = changed("data/resources.yaml", "  - secrets\n", "");
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("who may only look sees no secrets: FAIL") && text.contains("FAIL: 3/"),
        "{text}"
    );
}

#[test]
fn a_bundle_without_its_rules_is_not_used() {
    let texts = ["policy.rego", "cases.yaml"].map(|file| std::fs::read_to_string(format!("{SHIPPED}/{file}")).unwrap());
    let [policy, cases] = &texts;
    let folder = write(&[("applications/policy.rego", policy), ("applications/cases.yaml", cases)]);
    let (code, text) = tollgate(&["policy", "check", folder.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(text.contains("there is no `impersonation.cel.yaml`"), "{text}");
}

#[test]
fn a_request_in_the_name_of_an_application_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("ann.yaml");
    std::fs::write(&input, ANN).unwrap();
    let explain = |request: &str, also: &[&str]| {
        let arguments = [
            "policy",
            "explain",
            SHIPPED,
            "--input",
            input.to_str().unwrap(),
            "-o",
            "json",
        ];
        let (code, text) = tollgate(&[&arguments[..], &["--request", request], also].concat());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        (code, json)
    };
    for (request, also, access, reason) in [
        ("GET /api/v1/namespaces/n/secrets", &[][..], "read", "allowed"),
        (
            "PATCH /apis/apps/v1/namespaces/n/deployments/web",
            &[],
            "write",
            "allowed",
        ),
        (
            "GET /api/v1/namespaces/n/pods/web/log",
            &[],
            "read",
            "you may not read logs of this application",
        ),
        (
            "GET /api/v1/namespaces/n/pods/web/exec?command=sh",
            &["--upgrade", "websocket"],
            "write",
            "you may not run programs in this application",
        ),
    ] {
        let (code, explanation) = explain(request, also);
        assert_eq!(
            (code, &explanation["decision"]["reason"]),
            (0, &reason.into()),
            "{request}: {explanation}"
        );
        assert_eq!(explanation["decision"]["allow"], reason == "allowed");
        assert_eq!(explanation["input"]["access"], access, "{request}");
    }
}
