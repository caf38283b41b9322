//! `tollgate policy` with the bundle of the ApplicationSet front.

use crate::policies::shell::{self, tollgate};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/applicationsets");

/// The input for a permitted preview of a set.
const ANN: &str = "{principal: {id: '1', username: ann, groups: [], issuer: i, kind: oidc}, operation: generate, \
     stage: set, set: {namespace: argocd, name: web, project: dev, projects: [dev], labels: {}, generators: [git]}, \
     rbac: {permitted: true, checks: []}}";

/// Runs `tollgate policy COMMAND` on the shipped bundle with one text of one file replaced.
fn changed(command: &str, name: &str, from: &str, to: &str) -> (i32, String) {
    shell::changed(command, "applicationsets", (name, from, to))
}

#[test]
fn every_finding_affects_the_decision() {
    let (code, text) = changed("test", "policy.rego", "package", "package");
    assert_eq!(code, 0, "{text}");
    for finding in ["object", "ownership", "project", "namespace", "source", "destination"] {
        // A policy that ignores a finding fails a case.
        let rule = format!("\tinput.{finding}.permitted\n");
        let (code, text) = changed("test", "policy.rego", &rule, "");
        assert_eq!(code, 1, "{finding}: {text}");
        assert!(text.contains("wanted denied, got allowed"), "{finding}: {text}");
    }
}

#[test]
fn unknown_keys_are_refused() {
    let allowed = "\"reason\": \"allowed\"}";
    let logged = "\"reason\": \"allowed\", \"log\": {\"a\": \"b\"}}";
    let (code, text) = changed("test", "policy.rego", allowed, logged);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("the decision has the unknown key `log`"), "{text}");
    let (code, text) = changed(
        "check",
        "cases.yaml",
        "\ncases:\n",
        "\nidentities: [{note: n, want: {}}]\ncases:\n",
    );
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("the bundle of applicationsets has no `identities`"),
        "{text}"
    );
}

#[test]
fn an_input_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("ann.yaml");
    for (text, code, reason) in [
        (ANN.to_owned(), 0, "allowed"),
        (
            ANN.replace("permitted: true", "permitted: false, reason: no right"),
            0,
            "no right",
        ),
        (
            ANN.replace("stage: set", "stage: elsewhere"),
            1,
            "does not fit the schema",
        ),
    ] {
        std::fs::write(&input, &text).unwrap();
        let arguments = [
            "policy",
            "eval",
            SHIPPED,
            "--input",
            input.to_str().unwrap(),
            "-o",
            "json",
        ];
        let (observed, output) = tollgate(&arguments);
        assert_eq!((observed, output.contains(reason)), (code, true), "{text}: {output}");
    }
}
