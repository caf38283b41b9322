//! What only happens with an API server: interrupted connections, and missing rights and
//! definitions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_config::{ApplicationNamespaces, KubernetesState};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_objects::Resources;
use tollgate_state::source::{KubernetesSource, Source};
use tollgate_state::write::Writer;

use crate::state::backend::{ARGO, Namespace, Reader, StateBackend, application, fill, object, of_cluster, to_text};
use crate::state::tcp_proxy::TcpProxy;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::kubectl::Credential;
use test_support::kubernetes::{PATIENCE, crds, eventually};
use test_support::programs;

/// How long a first load may wait that is refused.
const BOUND: Duration = Duration::from_secs(5);

/// Starts a source and loads once, within `bound`.
async fn first(
    settings: KubernetesState,
    namespace: &str,
    bound: Duration,
) -> (KubernetesSource, Loaded<Arc<Resources>>) {
    let source = KubernetesSource::start(settings, namespace, bound);
    tokio::task::spawn_blocking(move || {
        let loaded = source.load();
        (source, loaded)
    })
    .await
    .unwrap()
}

/// Starts a source whose loads are refused, until it says so with these findings. On a busy machine it lists
/// some kinds only after [`BOUND`].
async fn refused(
    settings: KubernetesState,
    namespace: &str,
    is_wanted: impl Fn(&[Diagnostic]) -> bool,
) -> Vec<Diagnostic> {
    let (source, _) = first(settings, namespace, BOUND).await;
    eventually("the load is refused as expected", async || {
        // After the bound, it waits for nothing.
        let loaded = source.load();
        assert!(loaded.value.is_none());
        is_wanted(&loaded.diagnostics).then_some(loaded.diagnostics)
    })
    .await
}

/// The administrator's kubeconfig with the address of the proxy.
fn through(cluster: &Cluster, proxy: &TcpProxy, folder: &std::path::Path) -> std::path::PathBuf {
    let text = std::fs::read_to_string(cluster.admin().kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", proxy.address));
    let file = folder.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

#[tokio::test]
async fn the_last_state_stays_while_the_server_is_unreachable() {
    let mut backend = Namespace::new("away").await;
    let proxy = TcpProxy::to(backend.cluster.url().strip_prefix("https://").unwrap()).await;
    let folder = tempfile::tempdir().unwrap();
    backend.kubeconfig = through(backend.cluster, &proxy, folder.path());
    fill(&backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    let before = reader.good().await;
    assert_eq!(to_text(&reader.source.health()), "");
    reader.calm().await;
    proxy.disable();
    let all_broken = |health: &[Diagnostic]| health.len() == 13 && health.iter().all(Diagnostic::is_error);
    reader.until_health("every watch is broken", all_broken).await;
    let health = to_text(&reader.source.health());
    assert!(
        health.contains("error: what is known stays, and may be old: applications.argoproj.io cannot be watched"),
        "{health}"
    );
    assert!(
        reader.is_signaled(Duration::from_secs(10)).await,
        "broken watches are not signaled"
    );
    assert!(Arc::ptr_eq(&before, &reader.good().await), "the last good state stays");
    // Meanwhile one object changes, one is deleted and one is created.
    backend.put(&application(&backend, "guestbook", "default")).await;
    backend.delete(&application(&backend, "web", "default")).await;
    backend.put(&application(&backend, "fresh", "shop")).await;
    assert!(Arc::ptr_eq(&before, &reader.good().await));
    proxy.enable();
    let names = |resources: &Resources| {
        let named = resources.applications.iter();
        let named = named.map(|(name, application)| format!("{} {}", name.name, application.project));
        named.collect::<Vec<_>>()
    };
    let loaded = reader
        .until("everything is caught up", |loaded| {
            let resources = loaded.value.as_deref().expect("no load is refused");
            // A new list replaces the old one as a whole, so no object is missing in between.
            assert!(resources.applications.len() >= 2 && !resources.projects.is_empty());
            names(resources) == ["fresh shop", "guestbook default"]
        })
        .await;
    let after = loaded.value.unwrap();
    assert!(Arc::ptr_eq(&before.projects["shop"], &after.projects["shop"]));
    reader.until_health("nothing is wrong", <[Diagnostic]>::is_empty).await;
}

#[tokio::test]
async fn a_status_is_no_change() {
    let backend = Namespace::new("status").await;
    fill(&backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    reader.good().await;
    reader.calm().await;
    let mut reconciled = application(&backend, "guestbook", "shop");
    reconciled["status"] = json!({"reconciledAt": "2024-01-01T00:00:00Z"});
    backend.put(&reconciled).await;
    assert!(!reader.is_signaled(Duration::from_secs(2)).await);
    backend.put(&application(&backend, "guestbook", "default")).await;
    assert!(
        reader.is_signaled(Duration::from_secs(10)).await,
        "a change is signaled"
    );
}

#[tokio::test]
async fn a_status_of_a_set_is_no_change() {
    let backend = Namespace::new("set-status").await;
    fill(&backend).await;
    let spec = |go: bool| {
        json!({"goTemplate": go, "generators": [], "template": {
            "metadata": {"name": "a"}, "spec": {"project": "shop", "destination": {}},
        }})
    };
    let set = |spec: &Value| object(&backend, (ARGO, "ApplicationSet", "flapping"), json!({"spec": spec}));
    backend.put(&set(&spec(true))).await;
    let mut reader = Reader::of(&backend.config()).await;
    let before = reader.good().await;
    reader.calm().await;
    let namespace = format!("--namespace={}", backend.namespace());
    for status in ["True", "False", "True"] {
        let condition = json!({"status": {"conditions": [{
            "type": "ErrorOccurred", "status": status, "message": "m", "reason": "r",
        }]}});
        let condition = condition.to_string();
        let patch = [
            "patch",
            "applicationset",
            "flapping",
            "--subresource=status",
            "--type=merge",
            &namespace,
        ];
        let patch = [&patch[..], &["--patch", &condition]].concat();
        backend.cluster.admin().succeed(&patch).await;
    }
    assert!(!reader.is_signaled(Duration::from_secs(2)).await);
    assert!(
        Arc::ptr_eq(&before, &reader.good().await),
        "a status makes no new generation"
    );
    backend.put(&set(&spec(false))).await;
    assert!(
        reader.is_signaled(Duration::from_secs(10)).await,
        "a change is signaled"
    );
}

#[tokio::test]
async fn a_deeply_nested_set_does_not_block_the_others() {
    let backend = Namespace::new("deep-set").await;
    fill(&backend).await;
    let set = |name: &str, element: Value| {
        let spec = json!({"generators": [{"list": {"elements": [{"value": element}]}}], "template": {
            "metadata": {"name": "a"}, "spec": {"project": "shop", "destination": {}},
        }});
        object(&backend, (ARGO, "ApplicationSet", name), json!({"spec": spec}))
    };
    let nested = (0..500).fold(json!(1), |inner, _| json!({"inner": inner}));
    backend.put(&set("deep", nested)).await;
    backend.put(&set("flat", json!("text"))).await;
    let mut reader = Reader::of(&backend.config()).await;
    let listed = reader.good().await;
    let names = |resources: &Resources| -> Vec<String> {
        let names = resources.application_sets.keys().map(|name| name.name.clone());
        names.filter(|name| name == "deep" || name == "flat").collect()
    };
    assert_eq!(names(&listed), ["flat"]);
    let mistakes: Vec<&str> = listed
        .invalid_objects
        .iter()
        .map(|object| object.mistake.as_str())
        .collect();
    assert_eq!(mistakes, ["it is nested too deeply, at most 100 levels are read"]);
    // The same for a single event of the watch.
    backend
        .put(&set("flat", (0..500).fold(json!(1), |inner, _| json!([inner]))))
        .await;
    let is_set_aside = |loaded: &Loaded<Arc<Resources>>| loaded.value.as_ref().is_some_and(|all| names(all).is_empty());
    reader.until("`flat` is set aside", is_set_aside).await;
    reader.until_health("nothing is wrong", <[Diagnostic]>::is_empty).await;
}

#[tokio::test]
async fn a_missing_right_is_reported_with_its_rule() {
    let backend = Namespace::new("rights").await;
    fill(&backend).await;
    let (cluster, namespace) = (backend.cluster, backend.namespace());
    let token = cluster.service_account(namespace, "gate").await;
    let kubectl = cluster.kubectl(Credential::Token(token));
    let settings = KubernetesState {
        kubeconfig: Some(kubectl.kubeconfig()),
        ..KubernetesState::default()
    };
    let role = |resources: &[(&str, &str)]| {
        let rule = |(group, resource): &(&str, &str)| json!({"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]});
        let rules: Vec<Value> = resources.iter().map(rule).collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "gate", "namespace": namespace}, "rules": rules,
        })
    };
    let most = [("", "secrets"), ("", "configmaps"), ("argoproj.io", "appprojects")];
    cluster.admin().apply(&role(&most).to_string()).await;
    let bind = ["create", "rolebinding", "gate", "--role=gate", "--namespace", namespace];
    let account = format!("--serviceaccount={namespace}:gate");
    cluster.admin().succeed(&[&bind[..], &[&account]].concat()).await;
    let is_forbidden = |findings: &[Diagnostic]| findings.len() == 1 && to_text(findings).contains("is forbidden");
    let text = to_text(&refused(settings.clone(), namespace, is_forbidden).await);
    for part in [
        "error: applications.argoproj.io may not be watched: ",
        "is forbidden",
        &format!("grant it by a Role in namespace `{namespace}` with the rule"),
        "{apiGroups: [\"argoproj.io\"], resources: [applications], verbs: [list, watch]}",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // With this right, and without the optional ones.
    let all = [&most[..], &[("argoproj.io", "applications")]].concat();
    cluster.admin().apply(&role(&all).to_string()).await;
    let (source, loaded) = first(settings.clone(), namespace, PATIENCE).await;
    let resources = loaded
        .value
        .unwrap_or_else(|| panic!("{}", to_text(&loaded.diagnostics)));
    assert_eq!(resources.applications.len(), 2);
    assert!(resources.agents.is_empty() && resources.extensions.is_empty());
    let health = source.health();
    assert_eq!(health.len(), 7, "{}", to_text(&health));
    assert!(health.iter().all(|finding| !finding.is_error()));
    assert!(to_text(&health).contains("warning: agents.tollgate.dev may not be watched"));
    assert!(matches!(source.writer(), Ok(Writer::Cluster(_))));
    // Applications of all namespaces need another right.
    let everywhere = KubernetesState {
        applications: ApplicationNamespaces::All,
        ..settings
    };
    let needs_cluster_role =
        |findings: &[Diagnostic]| to_text(findings).contains("grant it by a ClusterRole with the rule");
    refused(everywhere, namespace, needs_cluster_role).await;
}

#[tokio::test]
async fn applications_are_read_where_the_settings_say() {
    let (backend, other) = (Namespace::new("home").await, Namespace::new("team").await);
    fill(&backend).await;
    other.put(&application(&other, "theirs", "shop")).await;
    let with = |applications| KubernetesState {
        kubeconfig: Some(backend.kubeconfig.clone()),
        applications,
        ..KubernetesState::default()
    };
    let has = async |applications: ApplicationNamespaces| {
        let (_, loaded) = first(with(applications), backend.namespace(), PATIENCE).await;
        let resources = loaded
            .value
            .unwrap_or_else(|| panic!("{}", to_text(&loaded.diagnostics)));
        let of = |name: &str| resources.applications.keys().any(|key| key.namespace == name);
        assert!(of(backend.namespace()));
        of(other.namespace())
    };
    assert!(
        !has(ApplicationNamespaces::ControlPlane).await,
        "Applications of another namespace were read"
    );
    let listed = [other.namespace().to_owned()].into();
    assert!(has(ApplicationNamespaces::Listed(listed)).await);
    assert!(has(ApplicationNamespaces::All).await);
}

#[tokio::test]
async fn missing_definitions_are_reported_unless_optional() {
    let cluster = Cluster::start().await;
    cluster.admin().succeed(&["create", "namespace", "argocd"]).await;
    let settings = || KubernetesState {
        kubeconfig: Some(cluster.admin().kubeconfig()),
        ..KubernetesState::default()
    };
    let are_missing = |findings: &[Diagnostic]| {
        let missing = findings.iter().filter(|one| one.to_string().contains("there are no"));
        findings.len() == 2 && missing.count() == 2
    };
    let text = to_text(&refused(settings(), "argocd", are_missing).await);
    for name in ["applications.argoproj.io", "appprojects.argoproj.io"] {
        let line = format!("error: there are no {name}: their definition is not installed");
        assert!(text.contains(&line), "{text}");
        assert!(
            text.contains(&format!("install the CustomResourceDefinition `{name}`")),
            "{text}"
        );
    }
    // Argo CD's definitions are enough.
    let of_argo = |file: &&std::path::PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap();
        programs::CRDS.contains(&name)
    };
    for file in crds::files().iter().filter(of_argo) {
        let file = format!("--filename={}", file.display());
        cluster.admin().succeed(&["apply", "--server-side", &file]).await;
    }
    let mut reader = Reader::of(&of_cluster(&cluster.admin().kubeconfig(), "argocd")).await;
    let resources = reader.good().await;
    assert!(resources.agents.is_empty());
    // The source looks for the other kinds of Argo CD again, each after its own delay.
    reader
        .until_health("only Tollgate's kinds and the extension are missing", |health| {
            health.len() == 3 && health.iter().all(|finding| !finding.is_error())
        })
        .await;
    for file in crds::files() {
        let file = format!("--filename={}", file.display());
        cluster.admin().succeed(&["apply", "--server-side", &file]).await;
    }
    let agent = json!({
        "apiVersion": "tollgate.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": "edge", "namespace": "argocd"},
        "spec": {"id": 7, "configProject": {"id": 1}, "cluster": "in-cluster"},
    });
    // The API server accepts objects of a new definition with a delay.
    eventually("the agent can be created", async || {
        let apply = ["apply", "--filename=-"];
        let run = cluster.admin().run_with(&apply, &agent.to_string()).await;
        run.status.success().then_some(())
    })
    .await;
    reader
        .until("the agent is there", |loaded| {
            loaded
                .value
                .as_deref()
                .is_some_and(|resources| resources.agents.contains_key("edge"))
        })
        .await;
    reader
        .until_health("all kinds are there", <[Diagnostic]>::is_empty)
        .await;
}

#[tokio::test]
async fn an_unreachable_server_is_reported_in_time() {
    let settings = KubernetesState {
        kubeconfig: Some("/nowhere/kubeconfig".into()),
        ..KubernetesState::default()
    };
    let (source, refused) = first(settings, "argocd", BOUND).await;
    let text = to_text(&refused.diagnostics);
    assert!(refused.value.is_none());
    assert!(
        text.contains(
            "the API server of the control plane cannot be reached: the kubeconfig `/nowhere/kubeconfig` cannot be used"
        ),
        "{text}"
    );
    assert!(source.writer().is_err());
}
