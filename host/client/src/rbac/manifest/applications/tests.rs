//! What is printed for the accounts of Applications, and what is refused.

use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

use super::super::super::Command;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

struct Folder(tempfile::TempDir);

const NEAR: &str = "https://near.example";
const FAR: &str = "https://far.example";

impl Folder {
    /// Clusters `near` and `far`; Applications of project `shop` in both.
    fn new(far: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for name in ["state", "policies/applications"] {
            std::fs::create_dir_all(folder.0.path().join(name)).unwrap();
        }
        for (name, server) in [("near", NEAR), ("far", FAR)] {
            folder.object(&json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {
                    "name": name, "namespace": "argocd",
                    "labels": {"argocd.argoproj.io/secret-type": "cluster"},
                },
                "stringData": {"name": name, "server": server, "config": "{}"},
            }));
        }
        let account = |server: &str, namespace: &str, account: &str| json!({"server": server, "namespace": namespace, "defaultServiceAccount": account});
        folder.object(&json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {
                "destinations": [{"server": "*", "namespace": "*"}],
                "destinationServiceAccounts": [
                    account(NEAR, "web", "web-deployer"),
                    account(NEAR, "api", "web:api-deployer"),
                    account(FAR, "*", "ops:deployer"),
                ],
            },
        }));
        let near = [("web", "web"), ("web-two", "web"), ("api", "api"), ("batch", "batch")];
        let all = near.map(|(name, namespace)| (name, namespace, NEAR));
        let far = far.iter().map(|(name, namespace)| (*name, *namespace, FAR));
        for (name, namespace, server) in all.into_iter().chain(far) {
            folder.object(&json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": name, "namespace": "argocd"},
                "spec": {"project": "shop", "destination": {"server": server, "namespace": namespace}},
            }));
        }
        folder.rules("extra: {t.example/user: principal.username, t.example/application: application.name}\n");
        let settings = json!({
            "state": {"directory": "state", "namespace": "argocd"},
            "policies": {"directory": "policies"},
            "authentication": {"argocdSessions": true},
            "applications": {},
        });
        std::fs::write(folder.0.path().join("tollgate.yaml"), settings.to_string()).unwrap();
        folder
    }

    fn object(&self, object: &Value) {
        let name = format!("state/{}-{}.yaml", object["kind"], object["metadata"]["name"]).replace('"', "");
        std::fs::write(self.0.path().join(name), object.to_string()).unwrap();
    }

    fn rules(&self, text: &str) {
        let path = self.0.path().join("policies/applications/impersonation.cel.yaml");
        std::fs::write(path, text).unwrap();
    }

    /// Exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (ExitCode, String, String) {
        let config = self.0.path().join("tollgate.yaml").display().to_string();
        let all = ["rbac", "manifest", "--applications", "--config", &config];
        let cli = Cli::try_parse_from(all.iter().chain(arguments)).unwrap_or_else(|error| panic!("{error}"));
        let (mut out, mut stderr) = (Vec::new(), Vec::new());
        let code = cli.command.run_with(&mut out, &mut stderr);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (code, text(out), text(stderr))
    }

    /// The printed objects, and standard error.
    fn objects(&self, arguments: &[&str]) -> (Vec<Value>, String) {
        let (code, text, stderr) = self.run(arguments);
        assert_eq!(code, ExitCode::SUCCESS, "{stderr}");
        let documents = text.split("\n---\n").skip(1);
        let objects = documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        (objects, stderr)
    }
}

fn labels() -> Value {
    json!({"tollgate.dev/roles": "applications"})
}

fn role(name: &str, namespace: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name, "namespace": namespace, "labels": labels()},
        "rules": rules,
    })
}

fn binding(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "tollgate", "namespace": "tollgate"}],
    })
}

fn rule(group: &str, names: &[&str], verb: &str) -> Value {
    json!({"apiGroups": [group], "resources": ["serviceaccounts"], "resourceNames": names, "verbs": [verb]})
}

#[test]
fn each_account_is_named_in_its_namespace() {
    let folder = Folder::new(&[]);
    let (objects, stderr) = folder.objects(&[]);
    let name = "tollgate-applications";
    let extra = ["userextras/t.example/application", "userextras/t.example/user"];
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "tollgate-applications-extra", "labels": labels()},
        "rules": [{"apiGroups": ["authentication.k8s.io"], "resources": extra, "verbs": ["impersonate"]}],
    });
    // `batch` has no entry: the account `default` of its namespace acts.
    assert_eq!(
        objects[..5],
        [
            role(name, "batch", &[rule("", &["default"], "impersonate")]),
            binding(name, "batch"),
            role(
                name,
                "web",
                &[rule("", &["api-deployer", "web-deployer"], "impersonate")]
            ),
            binding(name, "web"),
            cluster_role,
        ]
    );
    assert_eq!(objects[5]["kind"], "ClusterRoleBinding");
    assert_eq!(objects[5]["roleRef"]["name"], "tollgate-applications-extra");
    assert_eq!((objects.len(), stderr.as_str()), (6, ""));
    assert_eq!(folder.run(&[]), folder.run(&["--cluster", "near"]));
    let (_, text, _) = folder.run(&[]);
    assert!(text.starts_with("# Cluster near: "), "{text}");
    assert!(text.contains("take over the cluster"), "{text}");
}

#[test]
fn no_rule_covers_all_service_accounts() {
    let folder = Folder::new(&[("far", "any")]);
    for cluster in ["near", "far", NEAR, FAR] {
        for mode in ["classic", "constrained", "both"] {
            for check in [&[][..], &["--with-account-check"]] {
                let arguments = [&["--cluster", cluster, "--mode", mode], check].concat();
                let (objects, _) = folder.objects(&arguments);
                let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
                let on_accounts = |rule: &&Value| {
                    let verbs = rule["verbs"].as_array().unwrap();
                    let is_impersonate_on = verbs
                        .iter()
                        .any(|verb| verb.as_str().unwrap().starts_with("impersonate-on:"));
                    rule["resources"]
                        .as_array()
                        .is_some_and(|all| all.contains(&json!("serviceaccounts")))
                        && !is_impersonate_on
                };
                let mut count = 0;
                for rule in rules.filter(on_accounts) {
                    assert!(!rule["resourceNames"].as_array().unwrap().is_empty(), "{rule}");
                    assert_ne!(rule["verbs"], json!(["*"]));
                    count += 1;
                }
                assert!(count > 0, "{arguments:?}");
            }
        }
    }
}

#[test]
fn the_account_check_is_granted_only_on_request() {
    let folder = Folder::new(&[]);
    let (objects, _) = folder.objects(&["--with-account-check"]);
    let expected = [rule("", &["default"], "impersonate"), rule("", &["default"], "get")];
    assert_eq!(objects[0], role("tollgate-applications", "batch", &expected));
}

#[test]
fn constrained_impersonation_names_accounts_verbs_and_resources() {
    let folder = Folder::new(&[]);
    let (objects, stderr) = folder.objects(&[
        "--mode=constrained",
        "--verbs=get,patch",
        "--resources=deployments.apps",
        "--urls=/version",
        "--subject=user:gate",
    ]);
    assert_eq!(objects.len(), 6);
    let verb = "impersonate:serviceaccount";
    assert_eq!(
        objects[0]["rules"],
        json!([rule("authentication.k8s.io", &["default"], verb)])
    );
    assert_eq!(objects[1]["subjects"][0]["name"], "gate");
    let on = [
        "impersonate-on:serviceaccount:get",
        "impersonate-on:serviceaccount:patch",
    ];
    let scope_rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": on},
        {"nonResourceURLs": ["/version"], "verbs": [on[0]]},
    ]);
    assert_eq!(
        (&objects[4]["kind"], &objects[4]["rules"]),
        (&json!("ClusterRole"), &scope_rules)
    );
    assert!(stderr.contains("takes no `extra`"), "{stderr}");
    let (both, _) = folder.objects(&["--mode=both"]);
    assert_eq!(both.len(), 12);
}

#[test]
fn clusters_are_never_mixed() {
    let folder = Folder::new(&[("far", "any")]);
    let (code, out, stderr) = folder.run(&[]);
    assert_eq!((code, out.as_str()), (ExitCode::from(64), ""));
    assert!(stderr.contains("name one with --cluster, of far, near"), "{stderr}");
    let (objects, _) = folder.objects(&["--cluster", "far"]);
    let expected = [rule("", &["deployer"], "impersonate")];
    assert_eq!(objects[0], role("tollgate-applications", "ops", &expected));
    let (code, _, stderr) = folder.run(&["--cluster", "none"]);
    assert_eq!(code, ExitCode::from(1));
    assert!(stderr.contains("there is no cluster `none`"), "{stderr}");
    let (code, out, _) = folder.run(&["--cluster", "in-cluster"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(out.contains("act as no service account there"), "{out}");
    for wrong in [
        &["--applications", "--agent", "a"][..],
        &["--applications", "--service-account", "a:b"],
        &["--cluster", "near"],
        &["--with-account-check"],
    ] {
        let all = [&["rbac", "manifest"], wrong].concat();
        assert!(Cli::try_parse_from(all).is_err(), "{wrong:?}");
    }
}

#[test]
fn privileged_service_accounts_are_warned_about() {
    let folder = Folder::new(&[]);
    folder.rules("{}\n");
    folder.object(&json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "odd", "namespace": "argocd"},
        "spec": {"project": "shop", "destination": {"server": FAR, "namespace": "any"}},
    }));
    let (objects, stderr) = folder.objects(&["--cluster=far", "--subject=serviceaccount:ops:deployer"]);
    assert_eq!(objects.len(), 2, "without `extra` keys there is no role for them");
    assert!(stderr.contains("`ops:deployer` is the gateway's own"), "{stderr}");
    folder.object(&json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": "shop", "namespace": "argocd"},
        "spec": {
            "destinations": [{"server": "*", "namespace": "*"}],
            "destinationServiceAccounts": [
                {"server": FAR, "namespace": "*", "defaultServiceAccount": "kube-system:deployer"},
            ],
        },
    }));
    let (_, stderr) = folder.objects(&["--cluster=far"]);
    assert!(
        stderr.contains("`kube-system:deployer` is of a namespace of Kubernetes' own"),
        "{stderr}"
    );
}

/// Otherwise a user who may create an Application could choose the gateway's permissions.
#[test]
fn destinations_outside_the_project_grant_nothing() {
    let folder = Folder::new(&[]);
    let project = |destinations: &Value| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {"destinations": destinations},
        })
    };
    let namespaces = |folder: &Folder| {
        let (objects, _) = folder.objects(&["--cluster=near"]);
        let roles = objects.iter().filter(|object| object["kind"] == "Role");
        let names: Vec<String> = roles.map(|role| role["metadata"]["namespace"].to_string()).collect();
        names.join(" ")
    };
    folder.object(&project(&json!([{"server": "*", "namespace": "*"}])));
    assert_eq!(namespaces(&folder), r#""api" "batch" "web""#);
    folder.object(&project(&json!([
        {"server": NEAR, "namespace": "*"},
        {"server": NEAR, "namespace": "!batch"},
    ])));
    assert_eq!(namespaces(&folder), r#""api" "web""#);
    folder.object(&project(&json!([{"server": FAR, "namespace": "*"}])));
    let (code, out, _) = folder.run(&["--cluster=near"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(out.contains("act as no service account there"), "{out}");
}
