//! The output and exit codes of `tollgate policy`.

use crate::policies::bundles::{CASES, POLICY, write};
use crate::policies::shell::tollgate;

#[test]
fn commands_report_results_by_output_and_exit_code() {
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

    // Every case passes, but the bundle is refused.
    let line = "FAIL: the bundle would not be used, regardless of its cases";
    let one_way = CASES.lines().filter(|line| !line.contains("allow: false"));
    let one_way = one_way.collect::<Vec<_>>().join("\n");
    let unused = write(&[("extensions/policy.rego", POLICY), ("extensions/cases.yaml", &one_way)]);
    let (code, text) = tollgate(&["policy", "test", unused.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        text.contains("no case is denied") && text.contains("PASS: 1/1\n") && text.contains(line),
        "{text}"
    );
    assert!(!tollgate(&["policy", "test", place]).1.contains("FAIL"));
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

/// The input of a person with access to an agent's cluster, without a request.
const PERSON: &str = "{user: {id: 101, username: ann}, \
     agent: {id: 9999, name: example-read-only, config_project: 1234, cluster: production}, \
     access: {type: personal_access_token, as: user, projects: [], \
     groups: [{id: 2, path: g, roles: [reporter, developer]}]}}";

#[test]
fn a_request_to_a_cluster_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("person.yaml");
    std::fs::write(&input, PERSON).unwrap();
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/kubernetes");
    let explain = |also: &[&str]| {
        let input = ["policy", "explain", bundle, "--input", input.to_str().unwrap()];
        tollgate(&[&input[..], also].concat())
    };
    let json = |also: &[&str]| {
        let (code, text) = explain(&[also, &["-o", "json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        (code, json)
    };
    let (code, looked) = json(&["--request", "GET /api/v1/namespaces/n/pods?watch=1"]);
    assert_eq!((code, &looked["decision"]["allow"]), (0, &true.into()), "{looked}");
    assert_eq!(looked["input"]["request"]["verb"], "watch");
    assert_eq!(looked["input"]["identity"]["username"], "gitlab:user:ann");
    let exec = "GET /api/v1/namespaces/n/pods/p/exec?command=sh";
    let (code, shell) = json(&["--request", exec, "--upgrade", "websocket"]);
    assert_eq!((code, &shell["decision"]["allow"]), (0, &false.into()), "{shell}");
    assert_eq!(shell["decision"]["reason"], "the agent does not allow this verb");
    assert_eq!(shell["input"]["request"]["verbs"], serde_json::json!(["create", "get"]));
    let reached = shell["reached"][0]["lines"].as_array().unwrap();
    let has = |text: &str| reached.iter().any(|line| line["text"].as_str().unwrap().contains(text));
    assert!(has("deny contains \"the agent does not allow this verb\""), "{shell}");
    assert!(!has("namespace_allowed if"), "{shell}");
    let (code, text) = explain(&["--request", exec, "--upgrade", "websocket"]);
    assert_eq!(code, 0);
    for part in [
        "the agent does not allow this verb",
        "policy.rego",
        "not listed(verb",
        "gitlab:user:ann",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without a request, the input is incomplete.
    let (code, text) = explain(&[]);
    assert_eq!((code, text.contains("does not fit the schema")), (1, true), "{text}");
    assert_eq!(explain(&["--request", "GET"]).0, 64);
    std::fs::write(&input, PERSON.replace("ann", "\"ann \"")).unwrap();
    let (code, text) = explain(&["--request", exec]);
    assert_eq!(code, 1);
    assert!(text.contains("the username starts or ends with a blank"), "{text}");
}

#[test]
fn failing_identity_cases_report_the_observed_value() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/kubernetes");
    let read = |name: &str| std::fs::read_to_string(format!("{shipped}/{name}")).unwrap();
    let check = |name: &str, from: &str, to: &str| {
        let mut files: Vec<(String, String)> = [
            "policy.rego",
            "cases.yaml",
            "impersonation.cel.yaml",
            "data/agents.yaml",
        ]
        .iter()
        .map(|file| (format!("kubernetes/{file}"), read(file)))
        .collect();
        let file = files.iter_mut().find(|(path, _)| path.ends_with(name)).unwrap();
        assert!(file.1.contains(from), "{from}");
        file.1 = file.1.replace(from, to);
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let folder = write(&files);
        tollgate(&["policy", "test", folder.path().to_str().unwrap()])
    };
    let mapping = "impersonation.cel.yaml";
    let (code, text) = check(mapping, "# Agents", "# People");
    assert_eq!(code, 0, "{text}");
    for (from, to, expected) in [
        (
            "'gitlab:user:' +",
            "'corp:' +",
            "`username` is not as wanted, got \"corp:ann\"",
        ),
        ("- \"'gitlab:user'\"", "- \"'x'\"", "`groups` is not as wanted"),
        (
            "agent.gitlab.com/access_type: access.type",
            "{}",
            "`extra` is not as wanted",
        ),
        (
            "username: \"'gitlab:ci_job:' +",
            "name: \"'gitlab:ci_job:' +",
            "unknown field `name`",
        ),
        ("'gitlab:user:' +", "'system:' +", "wanted an identity, got the refusal"),
    ] {
        let to = if to == "{}" { "" } else { to };
        let (code, text) = check(mapping, from, to);
        assert_eq!(code, 1, "{from}: {text}");
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (code, text) = check("cases.yaml", "refused: the username starts", "refused: the name starts");
    assert_eq!(code, 1);
    assert!(
        text.contains("got `the username starts or ends with a blank`"),
        "{text}"
    );
    let only = write(&[
        ("kubernetes/policy.rego", &read("policy.rego")),
        ("kubernetes/cases.yaml", &read("cases.yaml")),
    ]);
    let (code, text) = tollgate(&["policy", "check", only.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(text.contains("there is no `impersonation.cel.yaml`"), "{text}");
}
