use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::decode::load_text;
use crate::{ClusterAuth, Resources};

fn secret(more: &str) -> Resources {
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: prod\n  namespace: argocd\n  labels: \
         {{argocd.argoproj.io/secret-type: cluster}}\nstringData:\n  name: prod\n{more}"
    );
    load_text(&text, "prod.yaml", "argocd").value.unwrap()
}

fn kubeconfig(user: &Value) -> String {
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://k8s.example:6443", "tls-server-name": "k8s"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
            {"name": "nobody", "context": {"cluster": "c", "user": ""}},
            {"name": "broken", "context": {"cluster": "none", "user": "u"}},
        ],
    });
    format!("  kubeconfig: '{document}'\n")
}

fn auth(resources: &Resources) -> &ClusterAuth {
    &resources.cluster_configs["https://k8s.example:6443"].auth
}

#[test]
fn a_kubeconfig_replaces_server_and_config() {
    let resources = secret(&kubeconfig(&json!({"token": "t0ken"})));
    let ClusterAuth::Bearer(token) = auth(&resources) else {
        panic!("{:?}", auth(&resources));
    };
    assert_eq!(token.expose_secret(), "t0ken");
    let config = &resources.cluster_configs["https://k8s.example:6443"];
    assert_eq!(config.tls.server_name.as_deref(), Some("k8s"));
    // `context` selects another context of the kubeconfig.
    let other = secret(&(kubeconfig(&json!({"token": "t0ken"})) + "  context: nobody\n"));
    assert_eq!(auth(&other).as_ref(), "anonymous");
}

#[test]
fn unusable_kubeconfigs_leave_the_cluster_out_with_a_warning() {
    for (more, wanted) in [
        (
            kubeconfig(&json!({"exec": {"command": "aws", "apiVersion": "v1"}})),
            "no program is run here",
        ),
        (kubeconfig(&json!({"tokenFile": "/var/run/token"})), "--flatten"),
        (
            kubeconfig(&json!({"token": "t", "as": "admin"})),
            "impersonates somebody",
        ),
        (
            kubeconfig(&json!({"token": "t"})) + "  context: broken\n",
            "is not in `kubeconfig`",
        ),
        (
            kubeconfig(&json!({"token": "t"})) + "  context: missing\n",
            "has no context `missing`",
        ),
        (
            kubeconfig(&json!({"token": "t"})) + "  server: https://other.example\n",
            "keep one",
        ),
        ("  kubeconfig: '{{'\n".to_owned(), "is not a kubeconfig"),
    ] {
        let text = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: prod\n  namespace: argocd\n  labels: \
             {{argocd.argoproj.io/secret-type: cluster}}\nstringData:\n  name: prod\n{more}"
        );
        let loaded = load_text(&text, "prod.yaml", "argocd");
        let lines: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}: {lines:?}");
        let resources = loaded.value.expect("an unusable cluster does not refuse the load");
        assert!(!resources.cluster_configs.contains_key("https://k8s.example:6443"));
    }
}

/// SECURITY: a user whose credential stands below another key would be a user without one.
#[test]
fn an_entry_is_read_by_its_own_key_only() {
    let user = |entry: &Value| {
        let document = json!({
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": "https://k8s.example:6443"}, "user": {"a": "b"}}],
            "users": [entry],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}, "cluster": "other"}],
        });
        let text = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: prod\n  namespace: argocd\n  labels: \
             {{argocd.argoproj.io/secret-type: cluster}}\nstringData:\n  name: prod\n  kubeconfig: '{document}'\n"
        );
        load_text(&text, "prod.yaml", "argocd")
    };
    for key in ["cluster", "context", "content", "User"] {
        let loaded = user(&json!({"name": "u", key: {"token": "t"}}));
        let lines: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        let wanted = "the user of context `c` is not in `kubeconfig`";
        assert!(lines.iter().any(|line| line.contains(wanted)), "{key}: {lines:?}");
        let configs = loaded.value.unwrap().cluster_configs;
        assert!(!configs.contains_key("https://k8s.example:6443"));
    }
    // Other keys beside the right one are ignored, as kubectl does.
    let loaded = user(&json!({"name": "u", "user": {"token": "t"}, "context": {"a": "b"}}));
    assert_eq!(auth(&loaded.value.unwrap()).as_ref(), "bearer");
}
