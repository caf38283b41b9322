//! Fuzz targets of Kubernetes objects: the objects of the state, kubeconfigs, settings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use tollgate_core::diagnostic::Loaded;
use tollgate_fuzz::{Target, files, inputs, strings, text};
use tollgate_objects::Resources;
use tollgate_objects::decode::load_text;

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "state_yaml",
        run: state_yaml,
        seeds: objects,
    },
    Target {
        name: "agent_config",
        run: agent_config,
        seeds: agent_configs,
    },
    Target {
        name: "kubeconfig",
        run: kubeconfig,
        seeds: kubeconfigs,
    },
    Target {
        name: "cluster_secret",
        run: cluster_secret,
        seeds: cluster_configs,
    },
];

fn objects() -> Vec<Vec<u8>> {
    let mut seeds = files("tests/data/state", &[".yaml", ".yml"]);
    seeds.extend(files("deploy", &[".yaml"]));
    seeds.push(b"a: &x [1, *x]\n".to_vec());
    seeds.push(
        b"kind: Application\napiVersion: argoproj.io/v1alpha1\nmetadata: {name: a}\nspec: {project: 5}\n".to_vec(),
    );
    seeds
}

/// The same text always gives the same objects and findings.
fn loads(text: &str, name: &str) -> Loaded<Resources> {
    let loaded = load_text(text, name, "argocd");
    let again = load_text(text, name, "argocd");
    assert_eq!(
        format!("{:?}", loaded.diagnostics),
        format!("{:?}", again.diagnostics),
        "the same text has other findings"
    );
    loaded
}

fn state_yaml(data: &[u8]) {
    let Some(text) = text(data) else { return };
    drop(loads(text, "objects.yaml"));
}

fn agent_configs() -> Vec<Vec<u8>> {
    inputs([
        "user_access:\n  access_as:\n    agent: {}\n  projects:\n    - id: group/project\n",
        "user_access:\n  access_as: {user: {}}\n  groups: [{id: g}]\n",
        "ci_access: {projects: [{id: a/b, default_namespace: n}]}\n",
    ])
}

fn agent_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    drop(loads(text, ".gitlab/agents/edge/config.yaml"));
}

/// A Secret with `value` under `key`; nothing in a finding may quote the value.
fn secret(key: &str, value: &[u8]) {
    let encoded = STANDARD.encode(value);
    let server = match key {
        "config" => "stringData: {name: edge, server: 'https://edge.example'}\n",
        _ => "stringData: {name: edge}\n",
    };
    let object = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: edge\n  labels: {{argocd.argoproj.io/secret-type: cluster}}\n\
         {server}data: {{{key}: {encoded}}}\n"
    );
    drop(loads(&object, "secret.yaml"));
}

fn kubeconfigs() -> Vec<Vec<u8>> {
    inputs([
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://c.example', insecure-skip-tls-verify: true}}]\n\
         users: [{name: u, user: {token: secret}}]\n",
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://c.example', certificate-authority: /etc/passwd}}]\n\
         users: [{name: u, user: {exec: {command: sh}}}]\n",
    ])
}

fn kubeconfig(data: &[u8]) {
    secret("kubeconfig", data);
}

fn cluster_configs() -> Vec<Vec<u8>> {
    let mut seeds = inputs(strings(&["tests/cases/providers.yaml"], &["config"]));
    seeds.extend(inputs([
        r#"{"bearerToken":"t","tlsClientConfig":{"insecure":false,"caData":"aGk="}}"#,
        r#"{"username":"a","password":"b"}"#,
        r#"{"webAPIProviderConfig":{"method":"POST","url":"https://a/${x}","tokenPath":"$.t"}}"#,
        r#"{"provider":{"plugin":"vault","config":{}}}"#,
    ]));
    seeds
}

fn cluster_secret(data: &[u8]) {
    secret("config", data);
}
