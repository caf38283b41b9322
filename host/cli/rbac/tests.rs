//! Commands end to end, on files.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    command: RbacCommand,
}

const POLICY: &str = "p, role:user, applications, get, */*, allow\np, role:user, applications, get, secret/*, deny\n\
                      p, org:team, logs, get, p/a, allow\ng, alice, role:user\n";

/// Runs a line with `{file}` replaced; gives exit code, output, complaints.
fn run(content: &str, name: &str, line: &str) -> (ExitCode, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, content).unwrap();
    let line = line.replace("{file}", file.to_str().unwrap());
    let parsed = Line::try_parse_from(std::iter::once("rbac").chain(line.split(' '))).unwrap();
    let (mut out, mut complaints) = (Vec::new(), Vec::new());
    let code = parsed.command.run_with(&mut out, &mut complaints);
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(complaints).unwrap(),
    )
}

#[test]
fn can_says_yes_and_no() {
    let (code, out, _) = run(POLICY, "policy.csv", "can alice get app p/x --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::SUCCESS, "Yes\n"));
    let (code, out, _) = run(POLICY, "policy.csv", "can alice get app secret/x --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::from(NO), "No\n"));
    let (code, out, complaints) = run(POLICY, "policy.csv", "can alice fly app p/x --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::from(USAGE), ""));
    assert!(
        complaints.contains("'fly' is not a valid action for applications"),
        "{complaints}"
    );
    let (code, _, _) = run(
        POLICY,
        "policy.csv",
        "can alice fly app p/x --strict=false --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(NO));
}

#[test]
fn can_warns_and_is_quiet_when_told() {
    let (code, out, complaints) = run(POLICY, "policy.csv", "can org:team get logs p/a --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::SUCCESS, "Yes\n"));
    assert!(
        complaints.contains("`org:team` is a group with rows of its own"),
        "{complaints}"
    );
    let (code, out, complaints) = run(
        POLICY,
        "policy.csv",
        "can org:team get logs p/a -q --policy-file {file}",
    );
    assert_eq!((code, out.as_str(), complaints.as_str()), (ExitCode::SUCCESS, "", ""));
}

#[test]
fn default_role_and_builtin_policy_are_options() {
    let line = "can bob get cert * --default-role role:readonly --policy-file {file}";
    assert_eq!(run(POLICY, "policy.csv", line).0, ExitCode::SUCCESS);
    assert_eq!(
        run(POLICY, "policy.csv", &format!("{line} --use-builtin-policy=false")).0,
        ExitCode::from(NO)
    );
}

#[test]
fn a_configmap_is_read_with_its_settings() {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-rbac-cm\n  namespace: argocd\ndata:\n  \
                  policy.default: role:x\n  policy.csv: |\n    p, role:x, applications, get, */*, allow\n";
    let line = "can anyone get applications p/x -o json --policy-file {file}";
    let (code, out, _) = run(object, "argocd-rbac-cm.yaml", line);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["allowed"], json!(true));
    assert!(
        answer["rule"]["location"]
            .as_str()
            .unwrap()
            .contains("argocd-rbac-cm.yaml:"),
        "{out}"
    );
    let elsewhere = object.replace("namespace: argocd", "namespace: other");
    assert_eq!(run(&elsewhere, "argocd-rbac-cm.yaml", line).0, ExitCode::from(NO));
}

#[test]
fn explain_names_the_row() {
    let (code, out, _) = run(
        POLICY,
        "policy.csv",
        "explain alice get applications secret/x --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(NO));
    assert!(
        out.starts_with("No: applications, get, secret/x: denied by a row\n"),
        "{out}"
    );
    assert!(
        out.contains("policy.csv:2: p, role:user, applications, get, secret/*, deny"),
        "{out}"
    );
    let (code, out, _) = run(
        POLICY,
        "policy.csv",
        "explain x get logs p/a -g org:team -o yaml --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(NO));
    assert!(out.contains("group-without-grant"), "{out}");
    let line = "explain x get logs p/a -g org:team --semantics strict --policy-file {file}";
    assert_eq!(run(POLICY, "policy.csv", line).0, ExitCode::SUCCESS);
}

#[test]
fn validate_reports_every_line() {
    let (code, out, _) = run("p, a\nx\n", "policy.csv", "validate --policy-file {file}");
    assert_eq!(code, ExitCode::from(NO));
    assert!(
        out.contains("policy.csv:1: error: ") && out.contains("policy.csv:2: error: "),
        "{out}"
    );
    assert_eq!(
        run(POLICY, "policy.csv", "validate --policy-file {file}").0,
        ExitCode::SUCCESS
    );
    let typo = "p, a, applications, get, *, Allow\n";
    assert_eq!(
        run(typo, "policy.csv", "validate --policy-file {file}").0,
        ExitCode::SUCCESS
    );
    assert_eq!(
        run(typo, "policy.csv", "validate --deny-warnings --policy-file {file}").0,
        ExitCode::from(NO)
    );
    assert_eq!(
        run(typo, "policy.csv", "validate --semantics strict --policy-file {file}").0,
        ExitCode::from(NO)
    );
    assert_eq!(
        run("", "policy.csv", "validate --policy-file {file}x").0,
        ExitCode::from(NO)
    );
}

#[test]
fn diff_finds_what_semantics_change() {
    let (code, out, _) = run(
        POLICY,
        "policy.csv",
        "diff --use-builtin-policy=false -o json --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(DIFFERENT));
    let answer: Value = serde_json::from_str(&out).unwrap();
    let groups: Vec<&Value> = answer["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["groups"])
        .collect();
    assert!(groups.contains(&&json!(["org:team"])), "{out}");
    let all = groups.len();
    let (code, table, _) = run(
        POLICY,
        "policy.csv",
        "diff --use-builtin-policy=false --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(DIFFERENT));
    assert!(table.starts_with(" USER") && table.contains("org:team"), "{table}");
    assert!(
        table.ends_with(&format!("Requests judged differently: {all}; `-o json` lists each.\n")),
        "{table}"
    );
    let line = "diff --use-builtin-policy=false --policy-file {file} --other-policy-file {file}";
    let (code, out, _) = run(POLICY, "policy.csv", line);
    assert_eq!(
        (code, out.as_str()),
        (ExitCode::SUCCESS, "No request is judged differently.\n")
    );
    let typo = "p, a, applications, get, *, Allow\n";
    let (code, _, complaints) = run(
        typo,
        "policy.csv",
        "diff --use-builtin-policy=false --policy-file {file}",
    );
    assert_eq!(code, ExitCode::SUCCESS, "{complaints}");
    assert!(
        complaints.contains("strict semantics refuse the policy"),
        "{complaints}"
    );
}

#[test]
fn arguments_in_the_order_of_policy_csv_are_explained() {
    let (code, _, complaints) = run(
        POLICY,
        "policy.csv",
        "can a applications get shop/cart --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(USAGE));
    assert!(
        complaints.contains("the action comes before the resource"),
        "{complaints}"
    );
    let (code, _, complaints) = run(POLICY, "policy.csv", "can a get nonsense --policy-file {file}");
    assert_eq!(code, ExitCode::from(USAGE));
    assert!(!complaints.contains("comes before"), "{complaints}");
}

#[test]
fn exactly_one_policy_is_named() {
    assert!(Line::try_parse_from(["rbac", "validate"]).is_err());
    assert!(Line::try_parse_from(["rbac", "validate", "--state", "a", "--policy-file", "b"]).is_err());
}
