//! What `tollgate policy explain` says was not true.

use serde_json::{Value, json};

use crate::policies::bundles::write;
use crate::policies::shell::tollgate;

const POLICY: &str = r#"package tollgate.extensions

default decision := {"allow": false, "reason": "no"}

decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "yes"} if {
	reads
	known
}

deny contains "blocked" if {
	some group in input.principal.groups
	group in data.blocked.groups
}

reads if input.request.method in {"GET", "HEAD"}

known if {
	"dev" in input.principal.groups
	every group in input.principal.groups {
		startswith(group, "d")
	}
	long(input.request.path)
}

long(path) if {
	count(path) > 3
}

# Nobody asks for it.
unused if input.request.method == "POST"
"#;

const CASES: &str = r#"base:
  principal: {id: "1", username: a, groups: [dev], issuer: i, kind: oidc}
  request: {method: GET, path: /long}
  extension: {name: e, scope: global}
  rbac: {extensions_invoke: {allow: true, why: allowed}, candidates: []}
cases:
  - note: get
    want: {allow: true}
  - note: post
    input: {request: {method: POST}}
    want: {allow: false}
"#;

const BLOCKED: &str = "groups: [evil]\n";

const CONDITIONS: &str = r#"matchConditions:
  - name: our-issuer
    expression: input.principal.issuer == 'i'
    message: only ours
  - name: hours
    message: not now
    expression: >-
      input.principal.username != 'x && y' &&
      (input.request.method == 'GET' || input.principal.id == '1') &&
      (has(input.request.path) && input.request.path != '/secret')
"#;

fn input(method: &str, path: &str, groups: &[&str]) -> Value {
    json!({
        "principal": {"id": "1", "username": "a", "groups": groups, "issuer": "i", "kind": "oidc"},
        "request": {"method": method, "path": path}, "extension": {"name": "e", "scope": "global"},
        "rbac": {"extensions_invoke": {"allow": true, "why": "allowed"}, "candidates": []},
    })
}

struct Explainer(tempfile::TempDir);

impl Explainer {
    fn new(conditions: &str) -> Self {
        Self::of(POLICY, conditions)
    }

    fn of(policy: &str, conditions: &str) -> Self {
        Self(write(&[
            ("extensions/policy.rego", policy),
            ("extensions/cases.yaml", CASES),
            ("extensions/data/blocked.yaml", BLOCKED),
            ("extensions/hours.cel.yaml", conditions),
        ]))
    }

    /// Exit code and output.
    fn run(&self, input: &Value, output: &str) -> (i32, String) {
        let file = self.0.path().join("input.json");
        std::fs::write(&file, input.to_string()).unwrap();
        let bundle = self.0.path().join("extensions");
        let bundle = bundle.to_str().unwrap();
        tollgate(&[
            "policy",
            "explain",
            bundle,
            "--input",
            file.to_str().unwrap(),
            "-o",
            output,
        ])
    }

    /// The explanation, with paths below the bundle.
    fn explain(&self, input: &Value) -> Value {
        let (code, text) = self.run(input, "json");
        assert_eq!(code, 0, "{text}");
        let folder = format!("{}/", self.0.path().join("extensions").display());
        serde_json::from_str(&text.replace(&folder, "")).unwrap()
    }
}

fn untrue(explained: &Value) -> Vec<(String, u64, String)> {
    let rows = explained["untrue"].as_array().unwrap().iter();
    rows.map(|row| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let place = format!("{}:{}", text("file"), row["line"]);
        (
            format!("{place} {}", text("rule")),
            row["line"].as_u64().unwrap(),
            text("text"),
        )
    })
    .collect()
}

/// Each rule that was tried, and in it the first condition that was not true.
#[test]
fn a_denial_names_what_was_not_true() {
    let explainer = Explainer::new("matchConditions: []\n");
    let no_deny = [
        ("policy.rego:6 decision", "count(deny) > 0"),
        ("policy.rego:14 deny", "group in data.blocked.groups"),
    ];
    let (known, reads) = (("policy.rego:9 decision", "known"), ("policy.rego:8 decision", "reads"));
    let reads_rule = ("policy.rego:17 reads", "input.request.method in {\"GET\", \"HEAD\"}");
    let every = "every group in input.principal.groups { startswith(group, \"d\") }";
    for (input, reason, expected) in [
        (
            input("POST", "/long", &["dev"]),
            "no",
            vec![no_deny[0], reads, no_deny[1], reads_rule],
        ),
        (
            input("GET", "/long", &["ops"]),
            "no",
            vec![
                no_deny[0],
                known,
                no_deny[1],
                ("policy.rego:20 known", "\"dev\" in input.principal.groups"),
            ],
        ),
        (
            input("GET", "/long", &["dev", "ops"]),
            "no",
            vec![no_deny[0], known, no_deny[1], ("policy.rego:21 known", every)],
        ),
        // What a function says depends on its arguments, so the call is named.
        (
            input("GET", "/s", &["dev"]),
            "no",
            vec![
                no_deny[0],
                known,
                no_deny[1],
                ("policy.rego:24 known", "long(input.request.path)"),
            ],
        ),
        // Without a group no group is tried.
        (
            input("GET", "/long", &[]),
            "no",
            vec![
                no_deny[0],
                known,
                ("policy.rego:13 deny", "some group in input.principal.groups"),
                ("policy.rego:20 known", "\"dev\" in input.principal.groups"),
            ],
        ),
        // The rule that denied held, and nothing else was asked.
        (input("GET", "/long", &["dev", "evil"]), "blocked", vec![]),
    ] {
        let explained = explainer.explain(&input);
        assert_eq!(
            explained["decision"],
            json!({"allow": false, "reason": reason}),
            "{input}"
        );
        let found = untrue(&explained);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(place, _, text)| (place.as_str(), text.as_str()))
            .collect();
        assert_eq!(found, expected, "{input}");
        assert_eq!(explained["findings"], json!([]));
    }
    // The twin: an allow has nothing that is to be explained by what was not true.
    let explained = explainer.explain(&input("GET", "/long", &["dev"]));
    assert_eq!(explained["decision"], json!({"allow": true, "reason": "yes"}));
    assert_eq!(explained["untrue"], json!([]));
}

#[test]
fn the_table_has_a_line_for_each() {
    let explainer = Explainer::new("matchConditions: []\n");
    let (code, text) = explainer.run(&input("GET", "/long", &["ops"]), "table");
    let file = explainer.0.path().join("extensions/policy.rego").display().to_string();
    let blank = " ".repeat(file.len());
    let expected = format!(
        " allow    false \n reason   no    \n NOT TRUE{}   RULE       CONDITION                         \n \
         {file}:6    decision   count(deny) > 0                   \n \
         {file}:9    decision   known                             \n \
         {file}:14   deny       group in data.blocked.groups      \n \
         {file}:20   known      \"dev\" in input.principal.groups \n\
         {file}\n    3  default decision := {{\"allow\": false, \"reason\": \"no\"}}\n",
        blank.get(5..).unwrap(),
    );
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(code, 0);
    assert!(
        trimmed(&text).starts_with(trimmed(&expected).as_str()),
        "{text}\n{expected}"
    );
}

/// Match conditions come first. When one denies, no rule decided.
#[test]
fn a_match_condition_names_the_part_that_was_false() {
    let explainer = Explainer::new(CONDITIONS);
    let mut other = input("GET", "/long", &["dev"]);
    other["principal"]["issuer"] = json!("j");
    let mut nobody = input("POST", "/long", &["dev"]);
    nobody["principal"]["id"] = json!("2");
    let mut missing = input("GET", "/long", &["dev"]);
    missing["principal"]["username"] = json!("x && y");
    for (input, reason, place, text) in [
        (
            other,
            "only ours",
            "hours.cel.yaml:3 our-issuer",
            "input.principal.issuer == 'i'",
        ),
        (
            missing,
            "not now",
            "hours.cel.yaml:8 hours",
            "input.principal.username != 'x && y'",
        ),
        (
            nobody,
            "not now",
            "hours.cel.yaml:8 hours",
            "input.request.method == 'GET' || input.principal.id == '1'",
        ),
        (
            input("GET", "/secret", &["dev"]),
            "not now",
            "hours.cel.yaml:8 hours",
            "input.request.path != '/secret'",
        ),
    ] {
        let explained = explainer.explain(&input);
        assert_eq!(explained["decision"], json!({"allow": false, "reason": reason}));
        let [found] = untrue(&explained).try_into().unwrap();
        assert_eq!((found.0.as_str(), found.2.as_str()), (place, text));
        assert_eq!(explained["reached"], json!([]));
    }
    // The twin: all are true, and the rules decide.
    let explained = explainer.explain(&input("GET", "/long", &["dev"]));
    assert_eq!(
        (&explained["decision"]["allow"], &explained["untrue"]),
        (&json!(true), &json!([]))
    );
    let explained = explainer.explain(&input("POST", "/long", &["dev"]));
    assert_eq!(untrue(&explained).len(), 4, "{explained}");
}
