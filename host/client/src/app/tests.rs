//! What `tollgate app identity` prints.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::Identity;
use crate::format::Format;

const STATE: &str = "apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: team, namespace: argocd}
spec:
  destinations: [{server: '*', namespace: '*'}]
  destinationServiceAccounts:
  - server: https://elsewhere
    namespace: guestbook
    defaultServiceAccount: a
  - server: https://kubernetes.default.svc
    namespace: guestbook
    defaultServiceAccount: deployer
  - server: '*'
    namespace: 'broken'
    defaultServiceAccount: '*'
  sourceRepos: ['https://git.example/*', '!https://git.example/private']
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: guestbook, namespace: argocd}
spec: {project: team, destination: {name: in-cluster, namespace: guestbook}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: broken, namespace: argocd}
spec: {project: team, destination: {name: in-cluster, namespace: broken}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: other, namespace: argocd}
spec: {project: team, destination: {name: in-cluster, namespace: other}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: stray, namespace: elsewhere}
spec: {project: team, destination: {name: in-cluster, namespace: guestbook}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: private, namespace: argocd}
spec:
  project: team
  destination: {name: in-cluster, namespace: guestbook}
  source: {repoURL: 'https://git.example/private', path: .}
";

fn fixture(enabled: &str, rules: &str, settings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir_all(folder.path().join("state")).unwrap();
    std::fs::create_dir_all(folder.path().join("policies/applications")).unwrap();
    let cm = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm, namespace: argocd}}\ndata:\n  \
         application.sync.impersonation.enabled: '{enabled}'\n"
    );
    write("state/cm.yaml", &cm);
    write("state/team.yaml", STATE);
    write("policies/applications/impersonation.cel.yaml", rules);
    let base = "state: {directory: state, namespace: argocd}\npolicies: {directory: policies}\n\
                authentication: {argocdSessions: true}\n";
    write("tollgate.yaml", &format!("{base}{settings}"));
    folder
}

fn run(folder: &Path, application: &str, output: Format) -> (ExitCode, String, String) {
    let identity = Identity {
        application: application.to_owned(),
        settings: crate::answer::SettingsArgs {
            config: folder.join("tollgate.yaml"),
        },
        output,
    };
    let (mut out, mut stderr) = (Vec::new(), Vec::new());
    let code = identity.run_with(&mut out, &mut stderr);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(stderr))
}

fn json(folder: &Path, application: &str) -> (ExitCode, Value) {
    let (code, out, stderr) = run(folder, application, Format::Json);
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{stderr}")))
}

const RULES: &str = "fallback: deny\nextra:\n  tollgate.dev/user: principal.username\n";
const OPEN: &str = "applications: {}\n";

#[test]
fn the_account_is_printed_with_its_entry() {
    let folder = fixture("true", RULES, OPEN);
    for application in ["guestbook", "argocd/guestbook"] {
        let (code, answer) = json(folder.path(), application);
        assert_eq!(code, ExitCode::SUCCESS);
        assert_eq!(answer["account"], json!({"namespace": "guestbook", "name": "deployer"}));
        assert_eq!(answer["mode"], "enforce");
        assert_eq!(answer["refused"], false);
        assert_eq!(
            answer["impersonates"]["user"],
            "system:serviceaccount:guestbook:deployer"
        );
        assert_eq!(answer["impersonates"]["extra_keys"], json!(["tollgate.dev/user"]));
        assert_eq!(answer["decided_by"]["entry"]["index"], 1);
        assert_eq!(answer["decided_by"]["entry"]["location"]["line"], 10);
        assert_eq!(answer["destination"]["server"], "https://kubernetes.default.svc");
        let why: Vec<_> = answer["tried"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tried| &tried["why"])
            .collect();
        assert_eq!(why, ["the server does not match", "server and namespace match"]);
    }
    let (code, out, _) = run(folder.path(), "guestbook", Format::Table);
    assert_eq!(code, ExitCode::SUCCESS);
    for part in [
        "Acts as      system:serviceaccount:guestbook:deployer",
        "Decided by   entry 1 at ",
        "team.yaml:10",
        "the server does not match",
    ] {
        assert!(out.contains(part), "{out}");
    }
    let (_, out, _) = run(folder.path(), "guestbook", Format::Yaml);
    let yaml: Value = serde_saphyr::from_str(&out).unwrap();
    assert_eq!(yaml["account"]["name"], "deployer");
}

#[test]
fn a_refusal_exits_with_1_and_its_reason() {
    let folder = fixture("true", RULES, OPEN);
    for (application, reason) in [
        ("other", "no-service-account"),
        ("broken", "invalid-service-account"),
        ("elsewhere/stray", "no-project"),
    ] {
        let (code, answer) = json(folder.path(), application);
        assert_eq!(code, ExitCode::from(1), "{application}");
        assert_eq!(answer["error"]["code"], reason);
        assert_eq!(answer["refused"], true);
        assert_eq!(answer["impersonates"]["user"], Value::Null);
        let (_, out, _) = run(folder.path(), application, Format::Table);
        assert!(out.contains("nobody: requests are refused"), "{out}");
    }
}

#[test]
fn a_fallback_is_reported_as_such() {
    let folder = fixture("true", "fallback: controller\n", OPEN);
    let (code, answer) = json(folder.path(), "other");
    assert_eq!(code, ExitCode::SUCCESS);
    assert_eq!(answer["decided_by"], json!({"fallback": "controller"}));
    assert_eq!(answer["account"], Value::Null);
    let (_, out, _) = run(folder.path(), "other", Format::Table);
    assert!(out.contains("the gateway's own identity in the cluster"), "{out}");
    let folder = fixture("true", "extra: {}\n", OPEN);
    let (code, answer) = json(folder.path(), "other");
    assert_eq!(code, ExitCode::SUCCESS);
    assert_eq!(answer["impersonates"]["user"], "system:serviceaccount:other:default");
    assert_eq!(answer["decided_by"], json!({"fallback": "default-service-account"}));
}

#[test]
fn modes_off_and_audit_impersonate_nobody() {
    for mode in ["off", "audit"] {
        let folder = fixture(mode, RULES, OPEN);
        let (code, answer) = json(folder.path(), "guestbook");
        assert_eq!((code, &answer["mode"]), (ExitCode::SUCCESS, &json!(mode)));
        assert_eq!(answer["impersonates"]["user"], Value::Null);
        // The account that would act, and why requests would be refused, are still reported.
        assert_eq!(answer["account"]["name"], "deployer");
        let (code, answer) = json(folder.path(), "other");
        assert_eq!(code, ExitCode::SUCCESS);
        assert_eq!(
            (&answer["refused"], &answer["error"]["code"]),
            (&json!(false), &json!("no-service-account"))
        );
        let (code, answer) = json(folder.path(), "elsewhere/stray");
        assert_eq!((code, &answer["refused"]), (ExitCode::from(1), &json!(true)));
    }
}

#[test]
fn the_compatibility_setting_applies() {
    let folder = fixture("true", "extra: {}\n", "applications: {compat: argocd}\n");
    let (code, answer) = json(folder.path(), "other");
    assert_eq!(code, ExitCode::from(1));
    assert_eq!(answer["error"]["code"], "no-service-account");
}

#[test]
fn failures_have_an_exit_code_and_a_message() {
    let folder = fixture("true", RULES, OPEN);
    let failure = |application: &str| {
        let (code, out, stderr) = run(folder.path(), application, Format::Table);
        assert_eq!(out, "");
        (code, stderr)
    };
    for application in ["", "/guestbook", "argocd/", "a/b/c"] {
        assert_eq!(failure(application).0, ExitCode::from(64), "{application}");
    }
    let (code, stderr) = failure("none");
    assert_eq!(code, ExitCode::from(69));
    assert!(
        stderr.contains("there is no application `none` in namespace `argocd`"),
        "{stderr}"
    );
    let closed = fixture("true", RULES, "");
    let (code, _, stderr) = run(closed.path(), "guestbook", Format::Table);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(stderr.contains("the front is closed"), "{stderr}");
    let broken = fixture("true", "fallback: nobody\n", OPEN);
    let (code, _, stderr) = run(broken.path(), "guestbook", Format::Table);
    assert_eq!(code, ExitCode::from(69));
    assert!(stderr.contains("the configuration is refused"), "{stderr}");
}

#[test]
fn a_source_that_the_project_does_not_permit_is_reported() {
    for enabled in ["true", "false"] {
        let folder = fixture(enabled, RULES, OPEN);
        let (code, answer) = json(folder.path(), "private");
        assert_eq!(code, ExitCode::from(1));
        assert_eq!(
            (&answer["refused"], &answer["account"]["name"]),
            (&json!(true), &json!("deployer"))
        );
        assert_eq!(answer["impersonates"]["user"], Value::Null);
        assert_eq!(answer["error"]["code"], "source_refused");
        let (_, out, _) = run(folder.path(), "private", Format::Table);
        for part in [
            "Acts as      nobody: requests are refused",
            "`https://git.example/private`: sourceRepos",
        ] {
            assert!(out.contains(part), "{out}");
        }
    }
}
