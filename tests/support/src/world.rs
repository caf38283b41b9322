//! Runs a whole gateway in the test process, on loopback, with its files in a temporary folder.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_config::raw;
use tollgate_console::Console;
use tollgate_gateway::running::RunningGateway;
use tollgate_rego::Checker;

use super::record::assert_record;
use super::token;

/// The key that signs the sessions of test gateways.
pub const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";
/// The default namespace of the control plane.
pub const CONTROL_PLANE: &str = "argocd";

/// Settings, objects and plugins of a test gateway. By default, the account `alice` may get
/// Applications of the project `shop` and invoke every extension, and `bob` has no permissions.
#[derive(Clone, Debug)]
pub struct Setup {
    /// `data` of `argocd-cm`.
    pub argocd_cm: BTreeMap<String, String>,
    /// `data` of `argocd-rbac-cm`.
    pub rbac_cm: BTreeMap<String, String>,
    /// Further keys of `argocd-secret`.
    pub secrets: BTreeMap<String, String>,
    /// Further objects.
    pub objects: Vec<Value>,
    /// Settings that are merged over the default ones.
    pub settings: Value,
    /// Guests to load, by name.
    pub plugins: Vec<&'static str>,
    /// Namespace of the control plane.
    pub control_plane: String,
}

impl Default for Setup {
    fn default() -> Self {
        let policy = "p, alice, applications, get, shop/*, allow\np, alice, extensions, invoke, *, allow\n";
        Self {
            argocd_cm: map(&[("accounts.alice", "login"), ("accounts.bob", "login")]),
            rbac_cm: map(&[("policy.csv", policy)]),
            secrets: BTreeMap::new(),
            objects: vec![
                project("shop", json!([{"server": "*", "namespace": "*"}])),
                application("cart", "shop"),
            ],
            settings: json!({}),
            plugins: Vec::new(),
            control_plane: CONTROL_PLANE.to_owned(),
        }
    }
}

/// A running gateway and its temporary folder.
#[derive(Debug)]
pub struct World {
    /// The gateway.
    pub running: RunningGateway,
    folder: tempfile::TempDir,
}

impl Setup {
    /// The default with one extension `echo` whose only service is `backend`.
    pub fn with_backend(backend: SocketAddr) -> Self {
        Self::with_extension(&format!("{{services: [{{url: 'http://{backend}'}}]}}"))
    }

    /// The default with one extension `echo`, which has this `backend` configuration.
    pub fn with_extension(backend: &str) -> Self {
        let mut setup = Self::default();
        setup
            .argocd_cm
            .insert("extension.config.echo".to_owned(), backend.to_owned());
        setup
    }

    /// Starts the gateway.
    pub async fn start(self) -> World {
        self.try_start().await.expect("the gateway starts")
    }

    /// Every object: both ConfigMaps, `argocd-secret`, and the further ones.
    pub fn all_objects(&self) -> Vec<Value> {
        let config_map = |name: &str, data: &BTreeMap<String, String>| {
            object("v1", "ConfigMap", name, &self.control_plane, json!({"data": data}))
        };
        let mut secrets = self.secrets.clone();
        secrets.insert("server.secretkey".to_owned(), SESSION_KEY.to_owned());
        let mut objects = vec![
            config_map("argocd-cm", &self.argocd_cm),
            config_map("argocd-rbac-cm", &self.rbac_cm),
            object(
                "v1",
                "Secret",
                "argocd-secret",
                &self.control_plane,
                json!({"stringData": secrets}),
            ),
        ];
        objects.extend(self.objects.iter().cloned());
        objects
    }

    /// Starts the gateway, or returns why it does not start.
    pub async fn try_start(self) -> anyhow::Result<World> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        for name in ["state", "plugins", "policies"] {
            std::fs::create_dir_all(root.join(name))?;
        }
        copy_tree(&checkout().join("policies"), &root.join("policies"));
        for (at, object) in self.all_objects().iter().enumerate() {
            std::fs::write(root.join(format!("state/{at:03}.yaml")), object.to_string())?;
        }
        for name in &self.plugins {
            copy_guest(name, &root.join("plugins"));
        }
        let mut settings = json!({
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "state": {"directory": "state", "namespace": self.control_plane},
            "policies": {"directory": "policies"},
            "plugins": {"directory": "plugins", "cache": "cache"},
            "authentication": {"argocdSessions": true},
            "decisions": {"file": "decisions.jsonl"},
        });
        merge(&mut settings, &self.settings);
        std::fs::write(root.join("tollgate.yaml"), settings.to_string())?;
        let loaded = raw::load(&root.join("tollgate.yaml"));
        let Some(config) = loaded.value else {
            anyhow::bail!("settings: {:?}", loaded.diagnostics);
        };
        let running = RunningGateway::start(Arc::new(config), checker(), Some(Arc::new(Console))).await?;
        Ok(World { running, folder })
    }
}

impl World {
    /// Where the gateway listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// A path in the gateway's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// URL of `rest` at the extension `echo`.
    pub fn echo(&self, rest: &str) -> String {
        format!("http://{}/api/v1/extensions/echo{rest}", self.address())
    }

    /// Gets a page of the admin listener as text.
    pub async fn admin(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.running.admin_address());
        reqwest::get(url)
            .await
            .expect("the admin listener answers")
            .text()
            .await
            .expect("a text")
    }

    /// Gets the decision record of a response.
    pub async fn decision(&self, answer: &reqwest::Response) -> Value {
        let id = answer.headers()["tollgate-decision-id"]
            .to_str()
            .expect("an id")
            .to_owned();
        let record = serde_json::from_str(&self.admin(&format!("/decisions/{id}")).await).expect("a record");
        assert_record(&record);
        record
    }

    /// A GET of the extension `echo` as `user`, about the application `cart`.
    pub fn get(&self, user: &str, rest: &str) -> reqwest::RequestBuilder {
        self.request(reqwest::Method::GET, user, rest)
    }

    /// A request to the extension `echo` as `user`, about the application `cart`.
    pub fn request(&self, method: reqwest::Method, user: &str, rest: &str) -> reqwest::RequestBuilder {
        reqwest::Client::new()
            .request(method, self.echo(rest))
            .bearer_auth(token::session(SESSION_KEY, user))
            .header("Argocd-Application-Name", "argocd:cart")
            .header("Argocd-Project-Name", "shop")
    }

    /// Polls `is_so` until it returns true, for at most 20 s.
    pub async fn until<F: Future<Output = bool>>(&self, what: &str, mut is_so: impl FnMut() -> F) {
        let waited = tokio::time::timeout(std::time::Duration::from_secs(20), async {
            while !is_so().await {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "waited 20 s for {what}");
    }
}

/// The policy checker of the gateway under test; it runs the program `tollgate`.
pub fn checker() -> Checker {
    Checker::new(crate::tollgate())
}

/// The root of the checkout.
pub fn checkout() -> PathBuf {
    crate::checkout().to_owned()
}

/// An `AppProject` that permits every source.
#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
pub fn project(name: &str, destinations: Value) -> Value {
    object(
        "argoproj.io/v1alpha1",
        "AppProject",
        name,
        CONTROL_PLANE,
        json!({"spec": {"sourceRepos": ["*"], "destinations": destinations}}),
    )
}

/// An `Application` of the control plane's own cluster.
pub fn application(name: &str, project: &str) -> Value {
    let spec = json!({"project": project, "destination": {"name": "in-cluster", "namespace": name}});
    object(
        "argoproj.io/v1alpha1",
        "Application",
        name,
        CONTROL_PLANE,
        json!({"spec": spec}),
    )
}

/// A Kubernetes object with this body.
#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
pub fn object(version: &str, kind: &str, name: &str, namespace: &str, body: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    merge(&mut object, &body);
    object
}

/// Makes a map from pairs.
pub fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Merges `from` into `onto`, member by member.
pub fn merge(onto: &mut Value, from: &Value) {
    match (onto, from) {
        (Value::Object(onto), Value::Object(from)) => {
            for (key, value) in from {
                merge(onto.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (onto, from) => *onto = from.clone(),
    }
}

/// Copies a built guest and its manifest.
pub fn copy_guest(name: &str, to: &Path) {
    let guests = checkout().join("target/guests");
    for ending in ["yaml", "wasm"] {
        let file = format!("{name}.{ending}");
        std::fs::copy(guests.join(&file), to.join(&file))
            .unwrap_or_else(|error| panic!("guest {file}: {error}; run `cargo xtask plugins`"));
    }
}

/// Copies a folder recursively.
pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder to copy") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
