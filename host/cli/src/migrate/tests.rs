//! What `tollgate migrate argocd` says about a state in a folder.

use std::path::Path;

use clap::Parser as _;
use serde_json::{Value, json};

use super::Command;

const STATE: &str = "apiVersion: v1
kind: Secret
metadata: {name: prod, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: prod, server: 'https://prod', config: '{\"bearerToken\": \"the-secret-token\"}'}
---
apiVersion: v1
kind: Secret
metadata: {name: stage, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: stage, server: 'https://stage', config: '{\"proxyUrl\": \"https://tollgate\", \"bearerToken\": \"a\"}'}
---
apiVersion: v1
kind: Secret
metadata: {name: twin-1, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: twin, server: 'https://twin-1', config: '{}'}
---
apiVersion: v1
kind: Secret
metadata: {name: twin-2, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: twin, server: 'https://twin-2', config: '{}'}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop, namespace: argocd}
spec:
  destinations: [{server: 'https://prod', namespace: 'shop*'}]
  destinationServiceAccounts:
  - {server: 'https://prod', namespace: shop, defaultServiceAccount: deployer}
  - {server: 'https://prod', namespace: closed, defaultServiceAccount: deployer}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: cart, namespace: argocd}
spec: {project: shop, destination: {name: prod, namespace: shop}}
status:
  resources:
  - {group: apps, version: v1, kind: Deployment, namespace: shop, name: a}
  - {group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole, name: a}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, namespace: argocd}
spec: {project: shop, destination: {name: prod, namespace: shop}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: legacy, namespace: argocd}
spec: {project: shop, destination: {name: prod, namespace: shop-legacy}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: stray, namespace: argocd}
spec: {project: shop, destination: {name: prod, namespace: closed}}
";

/// - `argocd_cm`: `data`, as a flow mapping.
fn fixture(argocd_cm: &str, settings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for name in ["state", "policies/applications"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let cm = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm, namespace: argocd}}\ndata: {argocd_cm}\n"
    );
    write("state/cm.yaml", &cm);
    write("state/all.yaml", STATE);
    let rules = include_str!("../../../../policies/applications/impersonation.cel.yaml");
    write("policies/applications/impersonation.cel.yaml", rules);
    let base = "state: {directory: state, namespace: argocd}\npolicies: {directory: policies}\n\
                authentication: {argocdSessions: true}\napplications: {}\n";
    write("tollgate.yaml", &format!("{base}{settings}"));
    folder
}

#[derive(clap::Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn run(folder: &Path, more: &[&str]) -> Result<String, String> {
    let config = folder.join("tollgate.yaml").display().to_string();
    let arguments = ["tollgate", "argocd", "--config", &config];
    let cli = Cli::try_parse_from(arguments.iter().chain(more)).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let done = cli.command.run(&mut out);
    let text = String::from_utf8(out).unwrap();
    done.map(|()| text).map_err(|failure| failure.to_string())
}

fn report(folder: &Path, cluster: &str) -> Value {
    let text = run(folder, &["--cluster", cluster, "-o", "json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Number and state of each step.
fn states(report: &Value) -> Vec<&str> {
    let steps = report["clusters"][0]["steps"].as_array().unwrap();
    steps.iter().map(|step| step["state"].as_str().unwrap()).collect()
}

#[test]
fn a_cluster_that_argo_cd_reaches_by_itself_has_everything_left_to_do() {
    let folder = fixture("{}", "");
    let report = report(folder.path(), "prod");
    assert_eq!(
        (&report["impersonation"], &report["mode"]),
        (&json!("off"), &Value::Null)
    );
    let cluster = &report["clusters"][0];
    assert_eq!(cluster["route"], "direct");
    assert_eq!(
        cluster["accounts"],
        json!([{
            "namespace": "shop", "name": "deployer", "projects": ["shop"],
            "applications": ["argocd/cart", "argocd/web"],
            "needs": [
                {"namespace": "", "group": "rbac.authorization.k8s.io", "kind": "ClusterRole"},
                {"namespace": "shop", "group": "apps", "kind": "Deployment"},
            ],
            "grants_rights": true,
        }])
    );
    let without: Vec<_> = cluster["without_account"].as_array().unwrap().iter().collect();
    assert_eq!(without.len(), 2, "{without:?}");
    assert_eq!(without[0]["application"], "argocd/legacy");
    assert_eq!(without[1]["reason"], "its project does not permit its destination");
    assert_eq!(cluster["would_refuse"], Value::Null);
    let (open, unknown) = ("open", "unknown");
    let expected = [
        open, unknown, open, open, open, unknown, open, unknown, unknown, unknown,
    ];
    assert_eq!(states(&report), expected);
    assert_eq!(cluster["way_back"][0]["command"], "tollgate cluster release prod");
}

#[test]
fn what_is_done_is_marked() {
    let control_plane = "tls: {certificate: a.pem, key: a.key}\ncontrolPlane:\n  reader: tollgate:reader\n  \
                         callers: [{issuer: argocd, user: controller}]\n";
    let enabled = "{application.sync.impersonation.enabled: 'true'}";
    let folder = fixture(enabled, control_plane);
    let enrolled = report(folder.path(), "https://stage/");
    assert_eq!(enrolled["clusters"][0]["route"], "enrolled");
    let (done, unknown) = ("done", "unknown");
    let expected = [
        done, unknown, done, done, done, unknown, done, unknown, unknown, unknown,
    ];
    assert_eq!(states(&enrolled), expected);

    // Neither alone is enforced.
    let lax = "{application.sync.impersonation.enabled: 'true', application.sync.impersonation.enforced: 'false'}";
    for (argocd_cm, mode, impersonation) in [(lax, "enforce", "not_enforced"), (enabled, "audit", "enforced")] {
        let folder = fixture(argocd_cm, &format!("{control_plane}  mode: {mode}\n"));
        let report = report(folder.path(), "stage");
        assert_eq!(
            (&report["impersonation"], &report["mode"]),
            (&json!(impersonation), &json!(mode))
        );
        assert_eq!(states(&report)[6], "open", "{argocd_cm} {mode}");
    }
}

#[test]
fn what_audit_recorded_is_shown_for_its_cluster() {
    let folder = fixture("{}", "");
    let record = |server: &str, application: &str| {
        json!({
            "front": "control-plane", "timestamp": "2026-01-01T00:00:01.5Z", "application": application,
            "project": "shop", "destination": {"name": "x", "server": server},
            "notes": {"would_refuse_reason": "project_refused", "would_refuse": "no\u{1b}[2J"},
        })
    };
    let lines = format!(
        "{}\n{}\n",
        record("https://prod", "argocd:cart\u{1b}"),
        record("https://stage", "argocd:b")
    );
    let file = folder.path().join("decisions.jsonl");
    std::fs::write(&file, lines).unwrap();
    let file = file.display().to_string();
    let shown = run(folder.path(), &["--decisions", &file]).unwrap();
    let row = ["argocd/cart?", "shop", "project_refused", "1", "2026-01-01T00:00:01Z"];
    let is_row = |line: &str| line.split_whitespace().eq(row);
    assert!(shown.lines().any(is_row), "{shown}");
    assert!(shown.contains("Mode audit recorded nothing"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let one = run(
        folder.path(),
        &["--decisions", &file, "--cluster", "stage", "-o", "yaml"],
    )
    .unwrap();
    assert!(one.contains("argocd/b") && !one.contains("argocd/cart"), "{one}");
    // Security: of Secrets only names and servers are shown.
    for text in [shown, one] {
        assert!(!text.contains("the-secret-token"), "{text}");
    }
}

fn roles(folder: &Path, cluster: &str, whose: &str) -> Vec<Value> {
    let text = run(folder, &["--cluster", cluster, "--roles", whose]).unwrap();
    let documents = text.split("---\n").skip(1);
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

#[test]
fn roles_are_for_the_accounts_of_one_cluster() {
    let reader = "tls: {certificate: a.pem, key: a.key}\ncontrolPlane:\n  reader: tollgate:reader\n  \
                  callers: [{issuer: argocd, user: controller}]\n";
    let folder = fixture("{}", reader);
    let kinds = |objects: &[Value]| -> Vec<String> {
        let kinds = objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned());
        kinds.collect()
    };
    let objects = roles(folder.path(), "prod", "accounts");
    let expected = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ];
    assert_eq!(kinds(&objects), expected);
    assert_eq!(roles(folder.path(), "stage", "accounts"), Vec::<Value>::new());

    let objects = roles(folder.path(), "prod", "gateway");
    let rules: Vec<_> = objects.iter().filter_map(|object| object.get("rules")).collect();
    let rule = |name: &str| {
        json!([{
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [name],
            "verbs": ["impersonate"],
        }])
    };
    assert_eq!(rules, [&rule("deployer"), &rule("reader")]);
    let subject = json!([{"kind": "ServiceAccount", "name": "gateway", "namespace": "tollgate"}]);
    assert!(
        objects
            .iter()
            .all(|object| object.get("subjects").is_none_or(|subjects| *subjects == subject))
    );
    // Without the section there is no reader.
    let objects = roles(fixture("{}", "").path(), "prod", "gateway");
    assert_eq!(kinds(&objects), ["Role", "RoleBinding"]);
}

/// With impersonation off or enforced, what acts without an entry is only Tollgate's own fallback.
#[test]
fn an_account_that_no_project_names_does_not_count() {
    for argocd_cm in ["{}", "{application.sync.impersonation.enabled: 'true'}"] {
        let report = report(fixture(argocd_cm, "").path(), "prod");
        let legacy = &report["clusters"][0]["without_account"][0];
        assert_eq!(legacy["application"], "argocd/legacy", "{argocd_cm}");
        assert_eq!(legacy["reason"], "its project names no account for its destination");
    }
}

#[test]
fn the_cluster_that_argo_cd_runs_in_has_steps_of_its_own() {
    let folder = fixture("{}", "");
    let text = run(folder.path(), &["--cluster", "in-cluster"]).unwrap();
    for expected in [
        "Argo CD runs there, and uses the account of its pods",
        "have Argo CD's pods trust Tollgate",
        "tollgate cluster enroll in-cluster --credential-token-file FILE",
        "delete the ClusterRoleBindings of Argo CD's accounts",
        "tollgate cluster release in-cluster",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("whose credential Argo CD had"), "{text}");
}

#[test]
fn wrong_arguments_are_refused() {
    let folder = fixture("{}", "");
    for (arguments, expected) in [
        (
            &["--cluster", "nowhere"][..],
            "cluster_not_found: Argo CD has no cluster `nowhere` (there are in-cluster, ",
        ),
        (
            &["--cluster", "twin"],
            "cluster_ambiguous: 2 clusters have the name `twin` (name one by its server: ",
        ),
        (&["--kubeconfig", "a"], "migrate.kubeconfig: the state is a folder"),
        (
            &["--decisions", "/nowhere"],
            "migrate.decisions: `/nowhere` cannot be read",
        ),
        (
            &["--admin", "http://127.0.0.1:1"],
            "gateway.unreachable: the admin listener at",
        ),
        (&["--roles", "accounts"], "--cluster <CLUSTER>"),
        (&["--roles", "all", "--cluster", "prod"], "invalid value 'all'"),
        (
            &["--roles", "accounts", "--cluster", "prod", "-o", "json"],
            "cannot be used with",
        ),
        (
            &["--roles", "gateway", "--cluster", "prod", "--subject", "a"],
            "invalid value 'a'",
        ),
        (&["--admin", "a", "--decisions", "b"], "cannot be used with"),
    ] {
        let refused = run(folder.path(), arguments).unwrap_err();
        assert!(refused.contains(expected), "{arguments:?}: {refused}");
    }
    std::fs::write(folder.path().join("tollgate.yaml"), "state: {}\n").unwrap();
    assert!(run(folder.path(), &[]).unwrap_err().starts_with("config.load: "));
}
