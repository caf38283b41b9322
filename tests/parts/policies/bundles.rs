//! Which bundles are accepted, and how their decisions are read.

use tollgate_core::diagnostic::Diagnostic;
use tollgate_rego::{Bundle, Error, ExtensionFacts, Front, PrincipalFacts};

use crate::policies::checker;
use test_support::policy_input::{input, principal, verdicts};

/// A bundle in a temporary folder.
pub(crate) fn write(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

pub(crate) const POLICY: &str = "package tollgate.extensions\n\ndefault decision := {\"allow\": false, \"reason\": \"no\"}\n\ndecision := {\"allow\": true, \"reason\": \"yes\"} if input.request.method == \"GET\"\n";
pub(crate) const CASES: &str = r#"
base:
  principal: {id: a, username: a, groups: [], issuer: i, kind: oidc}
  request: {method: GET, path: /}
  extension: {name: e, scope: global}
  rbac: {extensions_invoke: {allow: true, why: w}, candidates: []}
cases:
  - {note: get, want: {allow: true}, reason: "yes"}
  - {note: post, input: {request: {method: POST}}, want: {allow: false}, reason: "no"}
"#;

fn errors(files: &[(&str, &str)]) -> Vec<String> {
    let folder = write(files);
    let loaded = Bundle::load(folder.path(), Front::Extensions, &checker());
    let errors: Vec<String> = loaded
        .diagnostics
        .iter()
        .filter(|finding| finding.is_error())
        .map(Diagnostic::to_string)
        .collect();
    assert_eq!(loaded.value.is_none(), !errors.is_empty());
    errors
}

#[track_caller]
fn refused(files: &[(&str, &str)], because: &str) {
    let errors = errors(files);
    assert!(
        errors.iter().any(|error| error.contains(because)),
        "wanted `{because}`, got {errors:#?}"
    );
}

#[test]
fn a_good_bundle_is_accepted() {
    assert_eq!(
        errors(&[("policy.rego", POLICY), ("cases.yaml", CASES)]),
        Vec::<String>::new()
    );
}

#[test]
fn a_bundle_without_good_cases_is_refused() {
    refused(&[("policy.rego", POLICY)], "there is no `cases.yaml`");
    refused(&[("cases.yaml", CASES)], "there is no `policy.rego`");
    refused(&[("policy.rego", POLICY), ("cases.yaml", "")], "cases.yaml");
    refused(
        &[("policy.rego", POLICY), ("cases.yaml", "cases: []\n")],
        "no case is allowed",
    );
    let only_allow = CASES
        .lines()
        .filter(|line| !line.contains("post"))
        .collect::<Vec<_>>()
        .join("\n");
    refused(
        &[("policy.rego", POLICY), ("cases.yaml", &only_allow)],
        "no case is denied",
    );
    let only_deny = CASES
        .lines()
        .filter(|line| !line.contains("note: get"))
        .collect::<Vec<_>>()
        .join("\n");
    refused(
        &[("policy.rego", POLICY), ("cases.yaml", &only_deny)],
        "no case is allowed",
    );
    refused(
        &[
            ("policy.rego", POLICY),
            ("cases.yaml", &CASES.replace("allow: false", "allow: true")),
        ],
        "wanted allowed, got denied (`no`)",
    );
    refused(
        &[
            ("policy.rego", POLICY),
            ("cases.yaml", &CASES.replace("reason: \"no\"", "reason: nope")),
        ],
        "wanted the reason `nope`, got `no`",
    );
    refused(
        &[
            ("policy.rego", POLICY),
            ("cases.yaml", &CASES.replace("note: get,", "note: get, wnat: {},")),
        ],
        "wnat",
    );
    refused(
        &[
            ("policy.rego", POLICY),
            ("cases.yaml", &CASES.replace("kind: oidc", "kind: magic")),
        ],
        "does not fit the schema",
    );
}

#[test]
fn only_true_allows() {
    for (value, because) in [
        (
            r#"{"allow": "true", "reason": ""}"#,
            "`allow` of the decision is of type `string`",
        ),
        (r#"{"allow": 1, "reason": ""}"#, "of type `number`"),
        (r#"{"reason": "x"}"#, "of type `undefined`"),
        ("true", "the decision is of type `boolean`"),
        (
            r#"{"allow": true, "reason": 7}"#,
            "`reason` of the decision is not a text",
        ),
        (r#"{"allow": true, "reason": "a\nb"}"#, "has control characters"),
        (r#"{"allow": true, "reasons": "a"}"#, "unknown key `reasons`"),
        (
            r#"{"allow": true, "headers": {"set": {"Argocd-Username": "root"}}}"#,
            "only the gateway may write",
        ),
        (
            r#"{"allow": true, "headers": {"set": {"Authorization": "x"}}}"#,
            "only the gateway may write",
        ),
        (
            r#"{"allow": true, "headers": {"remove": ["Host"]}}"#,
            "only the gateway may write",
        ),
        (
            r#"{"allow": true, "headers": {"add": {}}}"#,
            "other than `set` and `remove`",
        ),
        (r#"{"allow": true, "headers": {"set": {"a b": "x"}}}"#, "no header name"),
        (
            r#"{"allow": true, "headers": {"set": {"x-a": "a\r\nb"}}}"#,
            "control characters",
        ),
        (
            r#"{"allow": true, "log": {"a": 1}}"#,
            "of type `number`, a text is expected",
        ),
        (r#"{"allow": true, "log": "a"}"#, "is not an object"),
    ] {
        let policy = POLICY.replace(r#"{"allow": true, "reason": "yes"}"#, value);
        refused(&[("policy.rego", &policy), ("cases.yaml", CASES)], because);
    }
    let undefined = POLICY
        .lines()
        .filter(|line| !line.starts_with("default"))
        .collect::<Vec<_>>()
        .join("\n");
    refused(
        &[("policy.rego", &undefined), ("cases.yaml", CASES)],
        "gives no decision",
    );
}

#[test]
fn obligations_reach_the_host() {
    let policy = POLICY.replace(
        r#"{"allow": true, "reason": "yes"}"#,
        r#"{"allow": true, "reason": "yes", "headers": {"set": {"X-Team": "blue"}, "remove": ["X-Debug"]}, "log": {"team": "blue"}}"#,
    );
    let cases = CASES.replace(
        "{allow: true}",
        "{allow: true, headers: {set: {X-Team: blue}, remove: [X-Debug]}, log: {team: blue}}",
    );
    let folder = write(&[("policy.rego", &policy), ("cases.yaml", &cases)]);
    let loaded = Bundle::load(folder.path(), Front::Extensions, &checker());
    let bundle = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let principal = principal(&["developers".into()]);
    let prepared = ExtensionFacts::new("e", "global");
    let decision = bundle
        .decide(input(&principal, &prepared, &verdicts(true, &[])).to_value())
        .unwrap();
    assert!(decision.allow);
    assert_eq!(
        decision.set_headers,
        vec![("x-team".parse().unwrap(), "blue".parse().unwrap())]
    );
    assert_eq!(
        decision.remove_headers,
        vec!["x-debug".parse::<http::HeaderName>().unwrap()]
    );
    assert_eq!(decision.log["team"], "blue");
    assert_eq!(decision.obligations.len(), 2);
    refused(
        &[
            ("policy.rego", &policy),
            ("cases.yaml", &cases.replace("team: blue", "team: red")),
        ],
        "`log` is not as wanted",
    );
}

#[test]
fn conditions_in_cel_can_only_deny() {
    let conditions = "matchConditions:\n  - name: office\n    expression: input.principal.issuer == 'i'\n    message: only from our issuer\n";
    let files = |conditions: &'static str| {
        [
            ("policy.rego", POLICY),
            ("cases.yaml", CASES),
            ("issuer.cel.yaml", conditions),
        ]
    };
    assert_eq!(errors(&files(conditions)), Vec::<String>::new());
    let folder = write(&files(conditions));
    let bundle = Bundle::load(folder.path(), Front::Extensions, &checker())
        .value
        .unwrap();
    let prepared = ExtensionFacts::new("e", "global");
    let good = PrincipalFacts::new("a", "a", &[], "i", "oidc");
    assert!(
        bundle
            .decide(input(&good, &prepared, &verdicts(true, &[])).to_value())
            .unwrap()
            .allow
    );
    let bad = PrincipalFacts::new("a", "a", &[], "j", "oidc");
    let denied = bundle
        .decide(input(&bad, &prepared, &verdicts(true, &[])).to_value())
        .unwrap();
    assert!(!denied.allow);
    assert_eq!(denied.reason, "only from our issuer");
    // A condition that cannot be evaluated denies.
    let failing = PrincipalFacts::new("a", "a", &[], "i", "oidc");
    let folder = write(&files(
        "matchConditions:\n  - {name: n, expression: \"!has(input.project) || input.project.nothing == 'x'\", message: m}\n",
    ));
    let bundle = Bundle::load(folder.path(), Front::Extensions, &checker())
        .value
        .unwrap();
    assert!(
        matches!(bundle.decide(input(&failing, &test_support::policy_input::prepared(true), &verdicts(true, &[])).to_value()), Err(Error::Condition { name, .. }) if name == "n")
    );

    refused(
        &files("matchConditions:\n  - {name: n, expression: \"inptu.x\", message: m}\n"),
        "issuer.cel.yaml:2: error: condition `n`: `inptu` is not known here",
    );
    refused(
        &files("matchConditions:\n  - {name: n, expression: \"1\", message: m}\n"),
        "condition `n`: the result is of type `int`",
    );
    refused(
        &files("matchConditions:\n  - {name: n, expression: \"false\", message: m}\n"),
        "wanted allowed, got denied (`m`)",
    );
    refused(&files("conditions: []\n"), "issuer.cel.yaml");
}

#[test]
fn data_files_are_tables() {
    let policy = POLICY.replace(
        "input.request.method == \"GET\"",
        "input.request.method in data.methods.reading",
    );
    let files = |name: &'static str, data: &'static str| {
        [
            ("policy.rego", policy.clone()),
            ("cases.yaml", CASES.to_owned()),
            (name, data.to_owned()),
        ]
    };
    let check =
        |files: [(&'static str, String); 3]| errors(&files.each_ref().map(|(name, text)| (*name, text.as_str())));
    assert_eq!(
        check(files("data/methods.yaml", "reading: [GET]")),
        Vec::<String>::new()
    );
    assert_eq!(
        check(files("data/methods.json", "{\"reading\": [\"GET\"]}")),
        Vec::<String>::new()
    );
    assert!(check(files("data/methods.yaml", "reading: [PUT]"))[0].contains("wanted allowed, got denied"));
    assert!(check(files("data/methods.yaml", "reading: [GET"))[0].contains("data/methods.yaml:"));
    assert!(check(files("data/tollgate.yaml", "a: 1"))[0].contains("data must not have the name"));
}

#[test]
fn a_change_of_a_file_changes_the_digest() {
    let digest = |policy: &str| {
        let folder = write(&[("policy.rego", policy), ("cases.yaml", CASES)]);
        Bundle::load(folder.path(), Front::Extensions, &checker())
            .value
            .unwrap()
            .digest
    };
    assert_eq!(digest(POLICY), digest(POLICY));
    assert_ne!(digest(POLICY), digest(&format!("{POLICY}# more\n")));
}
