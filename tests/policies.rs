//! Every `cases.yaml` under `policies/`, through the loader the gateway uses.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate::authorize::rego::{
    Bundle, Checker, Coverage, Error, ExtensionInput, Front, Outcome, Prepared, Principal, Rbac, RbacRow, RbacVerdict,
    Request, Source, Verdicts,
};
use tollgate::diagnostic::{Diagnostic, Location};
use tollgate::state;

fn checker() -> Checker {
    Checker::new(PathBuf::from(env!("CARGO_BIN_EXE_tollgate")))
}

fn bundles() -> Vec<(PathBuf, Front)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<_> = entries
        .filter(|path| path.join("cases.yaml").is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (
                path,
                Front::from_name(&name).unwrap_or_else(|| panic!("`{name}` is no front")),
            )
        })
        .collect();
    assert!(!found.is_empty());
    found
}

#[test]
fn every_shipped_case_passes() {
    for (directory, front) in bundles() {
        let source = Source::read(&directory, front).value.unwrap();
        let report = checker().check(&source, Coverage::On);
        assert_eq!(report.diagnostics, vec![], "{}", directory.display());
        assert!(report.cases.len() > 10);
        assert!(report.cases.iter().all(|case| case.outcome == Outcome::Pass));
        let bundle = Bundle::load(&directory, front, &checker());
        assert!(bundle.value.is_some(), "{:?}", bundle.diagnostics);
        assert_eq!(bundle.value.unwrap().digest().len(), 64);
    }
}

fn principal() -> Principal {
    Principal::new(
        "1234",
        "ann@example.org",
        &["developers".into()],
        "https://idp.example.org",
        "oidc",
    )
}

fn prepared(permitted: bool) -> Prepared {
    let place = Location::new("state/objects.yaml", 1);
    let destination = state::Destination {
        name: "in-cluster".into(),
        server: String::new(),
        namespace: "checkout".into(),
    };
    let project = state::Project {
        name: "payments".into(),
        destinations: vec![destination.clone()],
        source_repos: vec![],
        source_namespaces: vec!["argocd".into()],
        permit_only_project_scoped_clusters: false,
        roles: vec![],
        location: place.clone(),
    };
    let application = state::Application {
        name: state::ObjectName {
            namespace: "argocd".into(),
            name: "checkout".into(),
        },
        project: "payments".into(),
        destination,
        labels: [("team".to_owned(), "payments".to_owned())].into(),
        location: place,
    };
    let cluster = state::Cluster {
        name: "in-cluster".into(),
        server: "https://kubernetes.default.svc".into(),
        project: String::new(),
    };
    Prepared::new("metrics", "application")
        .with_project(&project)
        .with_application(&application)
        .with_destination(&cluster, "checkout", permitted)
}

fn input(principal: &Principal, prepared: &Prepared, rows: &[RbacRow<'_>]) -> regorus::Value {
    let allowed = RbacVerdict {
        allow: true,
        rule: Some("policy.csv:3"),
        why: "allowed",
    };
    ExtensionInput {
        principal,
        request: Request {
            method: "GET",
            path: "/metrics",
            query: Some("a=b"),
            project: Some("payments"),
        },
        prepared,
        verdicts: &Verdicts::new(&Rbac {
            applications_get: Some(allowed),
            projects_get: None,
            extensions_invoke: allowed,
            candidates: rows,
        }),
    }
    .to_value()
}

const ROW: RbacRow<'static> = RbacRow {
    subject: "role:dev",
    resource: "extensions",
    action: "invoke",
    object: "metrics",
    effect: "allow",
};

#[test]
fn the_input_the_host_builds_fits_the_schema_and_is_decided() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let bundle = Bundle::load(&directory, Front::Extensions, &checker()).value.unwrap();
    let (principal, allowed, forbidden) = (principal(), prepared(true), prepared(false));
    let rows = vec![ROW; 200];
    let yes = input(&principal, &allowed, &rows);
    let json = serde_json::to_value(&yes).unwrap();
    jsonschema::validate(Front::Extensions.input_schema(), &json).unwrap();
    assert_eq!(json["rbac"]["candidates"].as_array().unwrap().len(), 64);
    let decision = bundle.decide(yes).unwrap();
    assert!(decision.allow);
    assert_eq!(decision.reason, "allowed");
    let no = bundle.decide(input(&principal, &forbidden, &[])).unwrap();
    assert!(!no.allow);
    assert_eq!(no.reason, "the project does not permit the destination");
    // An input from nowhere is not an allow.
    for nothing in [
        regorus::Value::Undefined,
        regorus::Value::Null,
        regorus::Value::new_object(),
    ] {
        let decision = bundle.decide(nothing);
        assert!(
            matches!(&decision, Ok(decision) if !decision.allow) || matches!(decision, Err(Error::Undefined)),
            "{decision:?}"
        );
    }
}

#[test]
fn many_threads_decide_at_once_on_small_stacks() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let bundle = Bundle::load(&directory, Front::Extensions, &checker()).value.unwrap();
    let (principal, allowed) = (principal(), prepared(true));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let work = || (0..200).all(|_| bundle.decide(input(&principal, &allowed, &[ROW])).unwrap().allow);
            let stack = tollgate::authorize::rego::STACK_BYTES;
            let thread = std::thread::Builder::new()
                .stack_size(stack)
                .spawn_scoped(scope, work)
                .unwrap();
            scope.spawn(move || assert!(thread.join().unwrap()));
        }
    });
}

/// A bundle in a temporary folder.
fn write(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const POLICY: &str = "package tollgate.extensions\n\ndefault decision := {\"allow\": false, \"reason\": \"no\"}\n\ndecision := {\"allow\": true, \"reason\": \"yes\"} if input.request.method == \"GET\"\n";
const CASES: &str = r#"
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
    let principal = principal();
    let prepared = Prepared::new("e", "global");
    let decision = bundle.decide(input(&principal, &prepared, &[])).unwrap();
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
    let prepared = Prepared::new("e", "global");
    let good = Principal::new("a", "a", &[], "i", "oidc");
    assert!(bundle.decide(input(&good, &prepared, &[])).unwrap().allow);
    let bad = Principal::new("a", "a", &[], "j", "oidc");
    let denied = bundle.decide(input(&bad, &prepared, &[])).unwrap();
    assert!(!denied.allow);
    assert_eq!(denied.reason, "only from our issuer");
    // Cannot be evaluated: denied as well.
    let failing = Principal::new("a", "a", &[], "i", "oidc");
    let folder = write(&files(
        "matchConditions:\n  - {name: n, expression: \"!has(input.project) || input.project.nothing == 'x'\", message: m}\n",
    ));
    let bundle = Bundle::load(folder.path(), Front::Extensions, &checker())
        .value
        .unwrap();
    assert!(
        matches!(bundle.decide(input(&failing, &self::prepared(true), &[])), Err(Error::Condition { name, .. }) if name == "n")
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
            .digest()
            .to_owned()
    };
    assert_eq!(digest(POLICY), digest(POLICY));
    assert_ne!(digest(POLICY), digest(&format!("{POLICY}# more\n")));
}

fn tollgate(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_command_line_says_what_it_found() {
    let good = write(&[("extensions/policy.rego", POLICY), ("extensions/cases.yaml", CASES)]);
    let place = good.path().to_str().unwrap();
    let (code, text) = tollgate(&["policy", "test", place, "--coverage"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("get: PASS (") && text.contains("PASS: 2/2") && text.contains("COVERAGE: 100%"),
        "{text}"
    );
    assert_eq!(
        tollgate(&["policy", "test", &format!("{place}/extensions/cases.yaml")]).0,
        0
    );
    let (code, text) = tollgate(&["policy", "test", place, "-o", "json"]);
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["passed"], true);
    assert_eq!(json["bundles"][0]["cases"][1]["note"], "post");

    let failing = CASES.replace("allow: false", "allow: true");
    let bad = write(&[("extensions/policy.rego", POLICY), ("extensions/cases.yaml", &failing)]);
    let (code, text) = tollgate(&["policy", "test", bad.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        text.contains("post: FAIL (") && text.contains("wanted allowed, got denied") && text.contains("FAIL: 1/2"),
        "{text}"
    );
    let (code, text) = tollgate(&["policy", "check", bad.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(text.contains("refused"), "{text}");
    let (code, text) = tollgate(&["policy", "check", place]);
    assert_eq!((code, text.contains("accepted, 2 cases")), (0, true), "{text}");

    let input = good.path().join("input.yaml");
    let base: serde_json::Value = serde_json::json!({
        "principal": {"id": "a", "username": "a", "groups": [], "issuer": "i", "kind": "oidc"},
        "request": {"method": "PUT", "path": "/"}, "extension": {"name": "e", "scope": "global"},
        "rbac": {"extensions_invoke": {"allow": true, "why": "w"}, "candidates": []}
    });
    std::fs::write(&input, base.to_string()).unwrap();
    let bundle = format!("{place}/extensions");
    let evaluate = |output: &str| {
        tollgate(&[
            "policy",
            "eval",
            &bundle,
            "--input",
            input.to_str().unwrap(),
            "-o",
            output,
        ])
    };
    let (code, text) = evaluate("json");
    assert_eq!(
        (code, serde_json::from_str::<serde_json::Value>(&text).unwrap()),
        (0, serde_json::json!({"allow": false, "reason": "no"}))
    );
    assert!(evaluate("yaml").1.contains("allow: false"));
    assert!(evaluate("table").1.contains("reason"));
    std::fs::write(&input, "{\"request\": {}}").unwrap();
    let (code, text) = evaluate("table");
    assert_eq!(code, 1);
    assert!(text.contains("does not fit the schema"), "{text}");

    assert_eq!(tollgate(&["policy", "test", "/nowhere"]).0, 64);
    assert_eq!(tollgate(&["policy", "test", place, "--front", "nothing"]).0, 64);
    assert_eq!(tollgate(&["policy", "tset"]).0, 64);
}

/// Far above the target, which the benchmark holds: this one catches a decision
/// that parses or copies its data.
#[test]
fn a_decision_does_not_prepare_anything() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let bundle = Bundle::load(&directory, Front::Extensions, &checker()).value.unwrap();
    let (principal, allowed) = (principal(), prepared(true));
    let decide = || assert!(bundle.decide(input(&principal, &allowed, &[])).unwrap().allow);
    decide();
    let started = std::time::Instant::now();
    (0..10_000).for_each(|_| decide());
    let took = started.elapsed();
    println!("{:?} a decision with its input", took / 10_000);
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
}
