//! `tollgate policy`: what it prints and with which exit code it ends.

use std::process::Command;

use crate::bundles::{CASES, POLICY, write};

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
