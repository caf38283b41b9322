//! What is printed for which agents, and what is refused.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

use super::super::Command;

/// The shipped mapping with a uid for people.
const WITH_UID: &str = "
user: { username: user.username, uid: string(user.id), extra: { scopes: access.type } }
ci_job: { username: user.username, extra: { corp.example/job: string(job.id) } }
";

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// Agents `people` and `robots` of cluster `one`, `far` of cluster `two`.
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for name in ["state", "policies/kubernetes"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/kubernetes/impersonation.cel.yaml");
        folder.write(
            "policies/kubernetes/impersonation.cel.yaml",
            &std::fs::read_to_string(shipped).unwrap(),
        );
        let mut agents = String::new();
        for (id, name, cluster, mode) in [
            (7, "people", "one", "user"),
            (8, "robots", "one", "agent"),
            (9, "far", "two", "mapped"),
        ] {
            write!(
                agents,
                "---\napiVersion: tollgate.dev/v1alpha1\nkind: Agent\nmetadata: {{name: {name}, namespace: argocd}}\n\
                 spec: {{id: {id}, configProject: {{id: 1}}, cluster: {cluster}, \
                 config: {{user_access: {{access_as: {{{mode}: {{}}}}}}}}}}\n"
            )
            .unwrap();
        }
        folder.write("state/agents.yaml", &agents);
        folder.settings(&json!({}));
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn settings(&self, kubernetes: &Value) {
        let settings = json!({
            "state": {"directory": "state", "namespace": "argocd"},
            "policies": {"directory": "policies"},
            "authentication": {"argocdSessions": true},
            "kubernetes": kubernetes,
        });
        self.write("tollgate.yaml", &settings.to_string());
    }

    /// Exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (ExitCode, String, String) {
        let config = self.path().join("tollgate.yaml").display().to_string();
        let all = ["rbac", "manifest", "--config", &config];
        let cli = Cli::try_parse_from(all.iter().chain(arguments)).unwrap_or_else(|error| panic!("{error}"));
        let (mut out, mut stderr) = (Vec::new(), Vec::new());
        let code = cli.command.run_with(&mut out, &mut stderr);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (code, text(out), text(stderr))
    }

    /// The objects that are printed.
    fn objects(&self, arguments: &[&str]) -> Vec<Value> {
        let (code, text, stderr) = self.run(arguments);
        assert_eq!(code, ExitCode::SUCCESS, "{stderr}");
        let documents = text.split("\n---\n").skip(1);
        documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
    }
}

fn rule(group: &str, resources: &[&str], verb: &str) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": [verb]})
}

const EXTRA: [&str; 4] = [
    "userextras/agent.gitlab.com/access_type",
    "userextras/agent.gitlab.com/config_project_id",
    "userextras/agent.gitlab.com/id",
    "userextras/agent.gitlab.com/username",
];

#[test]
fn roles_for_people_cover_only_the_mapped_names() {
    let folder = Folder::new();
    for agents in [["--agent", "people", "robots"].as_slice(), &["--agent", "7"]] {
        let objects = folder.objects(agents);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "tollgate-impersonate"},
            "rules": [
                rule("", &["users", "groups"], "impersonate"),
                rule("authentication.k8s.io", &EXTRA, "impersonate"),
            ],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "tollgate-impersonate"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tollgate-impersonate",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "tollgate", "namespace": "tollgate"}],
        });
        assert_eq!(objects, [role, binding]);
    }
}

#[test]
fn constrained_impersonation_names_verbs_and_resources() {
    let folder = Folder::new();
    let objects = folder.objects(&[
        "--agent=people",
        "--mode=constrained",
        "--verbs=get,list",
        "--resources=pods,pods/log,deployments.apps",
        "--urls=/version",
        "--subject=group:gateways",
    ]);
    let on = ["impersonate-on:user-info:get", "impersonate-on:user-info:list"];
    let mut names = vec!["users", "groups"];
    names.extend(EXTRA);
    let expected = json!([
        rule("authentication.k8s.io", &names, "impersonate:user-info"),
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": on},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": on},
        {"nonResourceURLs": ["/version"], "verbs": ["impersonate-on:user-info:get"]},
    ]);
    assert_eq!(objects[0]["rules"], expected);
    assert_eq!(objects[1]["subjects"][0]["name"], "gateways");
    let everything = folder.objects(&["--agent=people", "--mode=both"]);
    assert_eq!(everything.len(), 4);
    assert_eq!(everything[2]["rules"][1]["resources"], json!(["*"]));
    assert_eq!(everything[2]["rules"][1]["apiGroups"], json!(["*"]));
}

#[test]
fn roles_for_mapped_agents_cover_the_claims_of_the_issuers() {
    let folder = Folder::new();
    let issuer = json!({
        "issuer": {"url": "https://id.example", "audiences": ["gate"]},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": "oidc:"},
            "uid": {"claim": "sub"},
            "extra": [{"key": "corp.example/dept", "valueExpression": "claims.dept"}],
        },
    });
    folder.settings(&json!({"jwt": [issuer]}));
    let rules = folder.objects(&["--agent=far"])[0]["rules"].clone();
    let names = ["uids", "userextras/corp.example/dept"];
    let expected = json!([
        rule("", &["users"], "impersonate"),
        rule("authentication.k8s.io", &names, "impersonate"),
    ]);
    assert_eq!(rules, expected);
}

#[test]
fn a_remote_authorizer_adds_the_extra_of_ci_jobs() {
    let folder = Folder::new();
    folder.write("policies/kubernetes/impersonation.cel.yaml", WITH_UID);
    let resources = |folder: &Folder| folder.objects(&["--agent=people"])[0]["rules"][1]["resources"].clone();
    assert_eq!(resources(&folder), json!(["uids", "userextras/scopes"]));
    folder.write("secret", "0123456789abcdef0123456789abcdef");
    folder.settings(&json!({"authorizer": {"remote": {"url": "https://gitlab.example", "secretFile": "secret"}}}));
    let with_jobs = json!(["uids", "userextras/corp.example/job", "userextras/scopes"]);
    assert_eq!(resources(&folder), with_jobs);
    let (_, _, stderr) = folder.run(&["--agent=people", "--mode=constrained"]);
    assert!(stderr.contains("`scopes` has no domain and path"), "{stderr}");
}

#[test]
fn only_named_service_accounts_are_included() {
    let folder = Folder::new();
    let objects = folder.objects(&["--agent=people", "--service-account=ci:deployer"]);
    assert_eq!(objects.len(), 4);
    assert_eq!(objects[2]["metadata"]["namespace"], "ci");
    let expected = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["deployer"], "verbs": ["impersonate"],
    }]);
    assert_eq!(objects[2]["rules"], expected);
    let (code, _, stderr) = folder.run(&["--agent=people", "--service-account=ci:deployer", "--mode=both"]);
    assert_eq!(code, ExitCode::from(64));
    assert!(stderr.contains("needs `--mode classic`"), "{stderr}");
}

#[test]
fn invalid_arguments_are_refused() {
    let folder = Folder::new();
    let (code, out, stderr) = folder.run(&[]);
    assert_eq!((code, out.as_str()), (ExitCode::from(64), ""));
    assert!(stderr.contains("name agents of one cluster"), "{stderr}");
    let (code, _, stderr) = folder.run(&["--agent", "nobody"]);
    assert_eq!(code, ExitCode::from(1));
    assert!(
        stderr.contains("there is no agent `nobody`; there are far, people, robots"),
        "{stderr}"
    );
    // Nothing is needed, so nothing is printed.
    let (code, out, _) = folder.run(&["--agent", "robots"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert_eq!(
        out,
        "# Cluster one: robots (8) act in nobody's name, so no role is needed.\n"
    );
    for wrong in [
        "tollgate",
        "user:",
        "robot:x",
        "serviceaccount:only",
        "serviceaccount:a:b:c",
    ] {
        let all = ["rbac", "manifest", "--subject", wrong];
        assert!(Cli::try_parse_from(all).is_err(), "{wrong}");
    }
}
