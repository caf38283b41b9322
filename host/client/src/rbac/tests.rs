//! Commands end to end, on files.

use clap::Parser;

use serde_json::{Value, json};

use super::*;
use crate::EXIT_USAGE;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

const POLICY: &str = "p, role:user, applications, get, */*, allow\np, role:user, applications, get, secret/*, deny\n\
                      p, org:team, logs, get, p/a, allow\ng, alice, role:user\n";

/// Runs a line with `{file}` replaced; returns exit code, standard output and standard error.
fn run(content: &str, name: &str, line: &str) -> (ExitCode, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, content).unwrap();
    let line = line.replace("{file}", file.to_str().unwrap());
    let parsed = Line::try_parse_from(std::iter::once("rbac").chain(line.split(' '))).unwrap();
    let (mut out, mut stderr) = (Vec::new(), Vec::new());
    let code = parsed.command.run_with(&mut out, &mut stderr);
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

#[test]
fn can_prints_yes_or_no() {
    let (code, out, _) = run(POLICY, "policy.csv", "can alice get app p/x --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::SUCCESS, "Yes\n"));
    let (code, out, _) = run(POLICY, "policy.csv", "can alice get app secret/x --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::from(EXIT_NO), "No\n"));
    let (code, out, stderr) = run(POLICY, "policy.csv", "can alice fly app p/x --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::from(EXIT_USAGE), ""));
    assert!(
        stderr.contains("'fly' is not a valid action for applications"),
        "{stderr}"
    );
    let (code, _, _) = run(
        POLICY,
        "policy.csv",
        "can alice fly app p/x --strict=false --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(EXIT_NO));
}

#[test]
fn can_prints_warnings_unless_quiet() {
    let (code, out, stderr) = run(POLICY, "policy.csv", "can org:team get logs p/a --policy-file {file}");
    assert_eq!((code, out.as_str()), (ExitCode::SUCCESS, "Yes\n"));
    assert!(stderr.contains("`org:team` is a group with its own rows"), "{stderr}");
    let (code, out, stderr) = run(
        POLICY,
        "policy.csv",
        "can org:team get logs p/a -q --policy-file {file}",
    );
    assert_eq!((code, out.as_str(), stderr.as_str()), (ExitCode::SUCCESS, "", ""));
}

#[test]
fn default_role_and_builtin_policy_are_options() {
    let line = "can bob get cert * --default-role role:readonly --policy-file {file}";
    assert_eq!(run(POLICY, "policy.csv", line).0, ExitCode::SUCCESS);
    assert_eq!(
        run(POLICY, "policy.csv", &format!("{line} --use-builtin-policy=false")).0,
        ExitCode::from(EXIT_NO)
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
    assert_eq!(
        run(&elsewhere, "argocd-rbac-cm.yaml", line).0,
        ExitCode::from(EXIT_NO_ANSWER)
    );
}

#[test]
fn explain_names_the_row() {
    let (code, out, _) = run(
        POLICY,
        "policy.csv",
        "explain alice get applications secret/x --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(EXIT_NO));
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
    assert_eq!(code, ExitCode::from(EXIT_NO));
    assert!(out.contains("group-without-grant"), "{out}");
    let line = "explain x get logs p/a -g org:team --semantics strict --policy-file {file}";
    assert_eq!(run(POLICY, "policy.csv", line).0, ExitCode::SUCCESS);
}

#[test]
fn validate_reports_every_line() {
    let (code, out, _) = run("p, a\nx\n", "policy.csv", "validate --policy-file {file}");
    assert_eq!(code, ExitCode::from(EXIT_NO));
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
        ExitCode::from(EXIT_NO)
    );
    assert_eq!(
        run(typo, "policy.csv", "validate --semantics strict --policy-file {file}").0,
        ExitCode::from(EXIT_NO)
    );
    assert_eq!(
        run("", "policy.csv", "validate --policy-file {file}x").0,
        ExitCode::from(EXIT_NO_ANSWER)
    );
}

#[test]
fn diff_lists_requests_that_semantics_decide_differently() {
    let (code, out, _) = run(
        POLICY,
        "policy.csv",
        "diff --use-builtin-policy=false -o json --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(EXIT_DIFFERENT));
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
    assert_eq!(code, ExitCode::from(EXIT_DIFFERENT));
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
    let (code, _, stderr) = run(
        typo,
        "policy.csv",
        "diff --use-builtin-policy=false --policy-file {file}",
    );
    assert_eq!(code, ExitCode::SUCCESS, "{stderr}");
    assert!(stderr.contains("strict semantics refuse the policy"), "{stderr}");
}

#[test]
fn swapped_action_and_resource_are_explained() {
    let (code, _, stderr) = run(
        POLICY,
        "policy.csv",
        "can a applications get shop/cart --policy-file {file}",
    );
    assert_eq!(code, ExitCode::from(EXIT_USAGE));
    assert!(stderr.contains("the action comes before the resource"), "{stderr}");
    let (code, _, stderr) = run(POLICY, "policy.csv", "can a get nonsense --policy-file {file}");
    assert_eq!(code, ExitCode::from(EXIT_USAGE));
    assert!(!stderr.contains("comes before"), "{stderr}");
}

#[test]
fn at_most_one_policy_source_is_named() {
    assert!(Line::try_parse_from(["rbac", "validate", "--state", "a", "--policy-file", "b"]).is_err());
}

/// A folder with a project, a local account and one row of policy.
fn state(policy: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm, namespace: argocd}}\ndata: {{accounts.alice: \
         apiKey}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-rbac-cm, namespace: argocd}}\ndata:\n  \
         policy.csv: |\n    {}\n---\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {{name: shop, \
         namespace: argocd}}\nspec:\n  roles:\n  - name: reader\n    policies: [\"p, proj:shop:reader, applications, get, \
         shop/*, allow\"]\n",
        policy.replace('\n', "\n    ")
    );
    std::fs::write(folder.path().join("state.yaml"), text).unwrap();
    folder
}

fn run_on_state(folder: &std::path::Path, line: &str) -> (ExitCode, String, String) {
    let line = format!("{line} --state {}", folder.display());
    let parsed = Line::try_parse_from(std::iter::once("rbac").chain(line.split(' '))).unwrap();
    let (mut out, mut stderr) = (Vec::new(), Vec::new());
    let code = parsed.command.run_with(&mut out, &mut stderr);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(stderr))
}

#[test]
fn can_and_explain_agree() {
    let folder = state("p, alice, applications, get, */*, allow\np, bob, applications, get, dev/*, allow");
    for (question, allowed) in [
        ("proj:shop:reader get applications shop/guestbook", true),
        ("proj:shop:reader get applications dev/guestbook", false),
        ("alice get applications shop/guestbook", true),
        ("alice get applications", true),
        ("alice get app *", true),
        ("bob get applications dev/guestbook", true),
        ("bob get applications", false),
        ("role:readonly get applications shop/guestbook", true),
        ("role:readonly sync applications shop/guestbook", false),
        ("nobody get applications shop/guestbook", false),
    ] {
        for semantics in ["argocd", "strict"] {
            let code = if allowed {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(EXIT_NO)
            };
            for command in ["can", "explain"] {
                let (observed, out, _) =
                    run_on_state(folder.path(), &format!("{command} {question} --semantics {semantics}"));
                assert_eq!(observed, code, "{command} {question} {semantics}: {out}");
            }
        }
    }
    // Somebody else's `alice` is not the account.
    let line = "explain alice get applications shop/guestbook --local=false --semantics strict";
    assert_eq!(run_on_state(folder.path(), line).0, ExitCode::from(EXIT_NO));
}

#[test]
fn a_question_without_an_answer_is_no_no() {
    for line in [
        "can a get applications p/x --state /nonexistent",
        "explain a get applications p/x --state /nonexistent",
        "validate --state /nonexistent",
        "diff --state /nonexistent",
        "can a get applications p/x --policy-file {file}",
        "explain a get applications p/x --policy-file {file}",
        "diff --policy-file {file}",
    ] {
        let (code, out, stderr) = run("p, a\n", "policy.csv", line);
        assert_eq!(
            (code, out.as_str()),
            (ExitCode::from(EXIT_NO_ANSWER), ""),
            "{line}: {stderr}"
        );
        assert!(!stderr.is_empty(), "{line}");
    }
}

#[test]
fn validate_and_can_accept_the_same_actions() {
    let policy = "p, role:a, projects, read, *, allow\np, role:a, invoke, htpbin, *, allow\np, role:a, applications, \
                  action/apps/Deployment/restart, */*, allow\np, role:a, applications, *, */*, allow\np, role:a, logs, \
                  get/x, */*, allow\n";
    let (code, out, _) = run(policy, "policy.csv", "validate --policy-file {file}");
    assert_eq!(code, ExitCode::SUCCESS);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    for (line, (place, text)) in lines.iter().zip([
        ("policy.csv:1: warning", "'read' is not a valid action for projects"),
        ("policy.csv:2: warning", "no resource is called `invoke`"),
        ("policy.csv:5: warning", "'get/x' is not a valid action for logs"),
    ]) {
        assert!(line.contains(place) && line.contains(text), "{out}");
    }
}

#[test]
fn diff_lists_each_row_once_with_possible_callers() {
    let folder = state(
        "p, role:dev, applications, *, shop/*, allow\np, role:dev, applications, delete, shop/prod-*, deny\ng, alice, \
         role:dev\ng, my-org:dev, role:dev\np, my-org:ops, applications, sync, */*, allow",
    );
    let (code, out, _) = run_on_state(folder.path(), "diff -o json");
    assert_eq!(code, ExitCode::from(EXIT_DIFFERENT));
    let answer: Value = serde_json::from_str(&out).unwrap();
    let found = answer["differences"].as_array().unwrap();
    // One for the group without a grant, and one for each local name that an identity provider
    // could also issue.
    assert!(found.len() < 20, "{out}");
    for one in found {
        let texts = ["resource", "action", "object"].map(|key| one[key].as_str().unwrap());
        assert!(
            texts.iter().all(|text| text.split('/').all(|part| !part.is_empty())),
            "{one}"
        );
        let (user, groups) = (one["user"].as_str().unwrap(), one["groups"].as_array().unwrap());
        // A person who signs in as alice has the same rights under both.
        assert!(
            !(user == "alice" && groups.is_empty() && one["issuer"] == "argocd"),
            "{one}"
        );
    }
    let of_group = |group: &str| found.iter().filter(|one| one["groups"] == json!([group])).count();
    assert_eq!(of_group("my-org:ops"), 1, "{out}");
    assert_eq!(of_group("my-org:dev"), 0, "{out}");
    let (_, table, _) = run_on_state(folder.path(), "diff");
    assert!(!table.contains(", , "), "{table}");
}
