//! Backends that store objects, and the source that reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use tollgate_config::{Config, raw};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_objects::Resources;
use tollgate_state::source::{Source, open};
use tollgate_state::watch::Watch;

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::{PATIENCE, eventually};

/// A backend that stores objects.
pub(crate) trait StateBackend {
    /// The namespace of the control plane.
    fn namespace(&self) -> &str;
    /// Settings with this backend as the source of the state.
    fn config(&self) -> Config;
    /// Creates or replaces an object.
    async fn put(&self, object: &Value);
    /// Deletes an object.
    async fn delete(&self, object: &Value);
}

/// A folder of files.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, object: &Value) -> PathBuf {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let name = format!("{}-{}.json", text("/kind"), text("/metadata/name"));
        self.folder.path().join(name)
    }
}

impl StateBackend for Folder {
    fn namespace(&self) -> &str {
        "argocd"
    }

    fn config(&self) -> Config {
        settings(&json!({"directory": self.folder.path()}), "argocd")
    }

    async fn put(&self, object: &Value) {
        let beside = self.folder.path().join(".new");
        std::fs::write(&beside, format!("{object:#}\n")).unwrap();
        std::fs::rename(beside, self.file(object)).unwrap();
    }

    async fn delete(&self, object: &Value) {
        std::fs::remove_file(self.file(object)).unwrap();
    }
}

/// A namespace of a real cluster.
pub(crate) struct Namespace {
    pub(crate) cluster: &'static Cluster,
    pub(crate) namespace: String,
    /// The kubeconfig of the source.
    pub(crate) kubeconfig: PathBuf,
}

impl Namespace {
    pub(crate) async fn new(prefix: &str) -> Self {
        let cluster = Cluster::shared().await.with_crds().await;
        Self {
            namespace: cluster.namespace(prefix).await,
            kubeconfig: cluster.admin().kubeconfig(),
            cluster,
        }
    }
}

impl StateBackend for Namespace {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn config(&self) -> Config {
        of_cluster(&self.kubeconfig, &self.namespace)
    }

    async fn put(&self, object: &Value) {
        self.cluster.admin().apply(&object.to_string()).await;
    }

    async fn delete(&self, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap();
        let (kind, name) = (text("/kind").to_lowercase(), text("/metadata/name"));
        let namespace = format!("--namespace={}", self.namespace);
        let delete = ["delete", &kind, name, &namespace];
        self.cluster.admin().succeed(&delete).await;
    }
}

/// Settings of a control plane in a cluster.
pub(crate) fn of_cluster(kubeconfig: &Path, namespace: &str) -> Config {
    settings(&json!({"kubernetes": {"kubeconfig": kubeconfig}}), namespace)
}

fn settings(source: &Value, namespace: &str) -> Config {
    let mut state = source.clone();
    state["namespace"] = json!(namespace);
    let text = json!({"state": state, "policies": {"directory": "policies"}}).to_string();
    let loaded = raw::parse(&text, "tollgate.yaml", Path::new("/nowhere"));
    loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

/// A source that is loaded again after its signals.
pub(crate) struct Reader {
    pub(crate) source: Arc<dyn Source>,
    watch: Watch,
}

impl Reader {
    /// Opens the source of these settings.
    pub(crate) async fn of(config: &Config) -> Self {
        let source = open(config);
        let watch = source.watch().await;
        Self { source, watch }
    }

    /// Loads the current state.
    pub(crate) async fn load(&self) -> Loaded<Arc<Resources>> {
        let source = Arc::clone(&self.source);
        tokio::task::spawn_blocking(move || source.load()).await.unwrap()
    }

    /// Loads the current state, which must be valid.
    pub(crate) async fn good(&self) -> Arc<Resources> {
        let loaded = self.load().await;
        loaded.value.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
    }

    /// Waits for signals until the loaded state satisfies `is_so`. It loads only after a signal.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Loaded<Arc<Resources>>) -> bool,
    ) -> Loaded<Arc<Resources>> {
        let waited = timeout(PATIENCE, async {
            loop {
                self.watch.changed().await.expect("the watch ended");
                let loaded = self.load().await;
                if is_so(&loaded) {
                    return loaded;
                }
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("in time, there was no signal after which {what}"))
    }

    /// Whether there was a signal within `time`.
    pub(crate) async fn is_signaled(&mut self, time: Duration) -> bool {
        timeout(time, self.watch.changed()).await.is_ok()
    }

    /// Consumes the signals of earlier changes.
    pub(crate) async fn calm(&mut self) {
        while self.is_signaled(Duration::from_millis(1500)).await {}
    }

    /// Waits until the health satisfies `is_so`.
    pub(crate) async fn until_health(&self, what: &str, is_so: impl Fn(&[Diagnostic]) -> bool) {
        eventually(what, async || is_so(&self.source.health()).then_some(())).await;
    }
}

/// Diagnostics as text.
pub(crate) fn to_text(findings: &[Diagnostic]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// An object in the namespace of the backend's control plane.
#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
pub(crate) fn object(backend: &impl StateBackend, (version, kind, name): (&str, &str, &str), body: Value) -> Value {
    let mut object = json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": backend.namespace()},
    });
    let members = body.as_object().unwrap().clone();
    for (key, value) in members {
        match key.as_str() {
            "labels" | "annotations" => object["metadata"][key] = value,
            _ => object[key] = value,
        }
    }
    object
}

pub(crate) const ARGO: &str = "argoproj.io/v1alpha1";
pub(crate) const OWN: &str = "tollgate.dev/v1alpha1";

pub(crate) fn application(backend: &impl StateBackend, name: &str, project: &str) -> Value {
    let spec = json!({
        "project": project,
        "source": {"repoURL": "https://git.example.org/r", "path": "."},
        "destination": {"server": "https://one.example.org", "namespace": "web"},
    });
    object(
        backend,
        (ARGO, "Application", name),
        json!({"spec": spec, "labels": {"team": "a"}}),
    )
}

pub(crate) fn project(backend: &impl StateBackend, name: &str, roles: &[&str]) -> Value {
    let role = |name: &&str| {
        let policy = format!("p, proj:shop:{name}, applications, get, shop/*, allow");
        json!({"name": name, "policies": [policy], "groups": ["devs"]})
    };
    let roles: Vec<Value> = roles.iter().map(role).collect();
    let spec = json!({
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "web-*"}],
        "namespaceResourceWhitelist": [{"group": "apps", "kind": "Deployment"}],
        "syncWindows": [{"kind": "allow", "schedule": "* * * * *", "duration": "1h", "applications": ["*"]}],
        "roles": roles,
    });
    object(backend, (ARGO, "AppProject", name), json!({"spec": spec}))
}

pub(crate) fn cluster_secret(backend: &impl StateBackend, name: &str, (server, token): (&str, &str)) -> Value {
    let config = json!({"bearerToken": token}).to_string();
    let values = json!({
        "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        "annotations": {"team": "shop"},
        "stringData": {"name": name, "server": server, "config": config},
    });
    object(backend, ("v1", "Secret", name), values)
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
pub(crate) fn config_map(backend: &impl StateBackend, name: &str, data: Value) -> Value {
    object(backend, ("v1", "ConfigMap", name), json!({"data": data}))
}

/// One object of each kind.
pub(crate) fn sample(backend: &impl StateBackend) -> Vec<Value> {
    let agent = json!({"spec": {
        "id": 7, "configProject": {"id": 1}, "cluster": "one",
        "config": {"user_access": {"access_as": {"user": {}}, "projects": [{"id": "group/app"}]}},
    }});
    let people = json!({"spec": {
        "users": [{"id": 1, "username": "alice"}],
        "groups": [],
        "projects": [{"id": 1, "path": "group/app", "members": [{"username": "alice", "role": "developer"}]}],
    }});
    let extension = json!({"spec": {
        "sources": [{"git": {"url": "https://git.example.org/ext.git"}}],
        "backend": {"serviceName": "metrics:8080", "endpoint": "/api"},
    }});
    vec![
        config_map(
            backend,
            "argocd-cm",
            json!({"url": "https://cd.example.org", "accounts.ci": "apiKey"}),
        ),
        config_map(
            backend,
            "argocd-rbac-cm",
            json!({"policy.csv": "g, devs, role:readonly\n", "policy.default": ""}),
        ),
        object(
            backend,
            ("v1", "Secret", "argocd-secret"),
            json!({"stringData": {"server.secretkey": "hunter2"}}),
        ),
        cluster_secret(backend, "one", ("https://one.example.org", "hunter3")),
        project(backend, "shop", &["ci", "dev"]),
        application(backend, "guestbook", "shop"),
        application(backend, "web", "default"),
        object(backend, (ARGO, "ArgoCDExtension", "metrics"), extension),
        object(backend, (OWN, "Agent", "edge"), agent),
        object(backend, (OWN, "UserDirectory", "people"), people),
    ]
}

/// Stores [`sample`].
pub(crate) async fn fill(backend: &impl StateBackend) {
    for object in sample(backend) {
        backend.put(&object).await;
    }
}
