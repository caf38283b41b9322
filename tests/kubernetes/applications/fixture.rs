//! A cluster, a gateway in front of it, projects and Applications.

use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig, session};
use test_support::kubernetes::kubectl::{Kubectl, Run};

/// The key of `argocd-cm` that sets the impersonation mode.
pub(crate) const MODE: &str = "application.sync.impersonation.enabled";

/// The rights of users: alice may do everything with Applications, with exec and logs. bob may only
/// get. carol may get and sync, with exec and logs. sam may only sync. mallory may do nothing.
const PEOPLE: &str = "p, alice, applications, *, */*, allow\np, alice, exec, create, */*, allow\np, alice, logs, get, */*, allow\n\
                      p, alice, projects, *, *, allow\np, bob, applications, get, */*, allow\n\
                      p, carol, applications, get, */*, allow\np, carol, applications, sync, */*, allow\n\
                      p, carol, applications, update/apps/Deployment/*, */*, allow\n\
                      p, carol, logs, get, */*, allow\np, carol, exec, create, */*, allow\n\
                      p, sam, applications, sync, */*, allow\n";

/// The source of the gateway's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A folder.
    Directory,
    /// The API server.
    Kubernetes,
}

/// Both sources, for tests that run with each.
pub(crate) const SOURCES: [Source; 2] = [Source::Directory, Source::Kubernetes];

/// Builds a [`Fixture`] before its gateway starts.
pub(crate) struct FixtureBuilder {
    /// The destination cluster of the Applications.
    pub(crate) cluster: &'static Cluster,
    /// The settings and objects of the gateway.
    pub(crate) layout: Layout,
    /// The namespace of the control plane and of the gateway's accounts.
    pub(crate) control: String,
    /// A destination namespace.
    pub(crate) guestbook: String,
    /// Another destination namespace.
    pub(crate) elsewhere: String,
    /// Key of the agent by which the gateway reaches the cluster; `None` if it dials the cluster.
    pub(crate) agent_key: Option<String>,
    source: Source,
    cm: Value,
    objects: Vec<Value>,
}

/// A running gateway with its cluster.
pub(crate) struct Fixture {
    /// The destination cluster of the Applications.
    pub(crate) cluster: &'static Cluster,
    /// The gateway.
    pub(crate) gateway: Gateway,
    /// The namespace of the control plane and of the gateway's accounts.
    pub(crate) control: String,
    /// A destination namespace.
    pub(crate) guestbook: String,
    /// A token of the gateway's account.
    pub(crate) token: String,
    source: Source,
    cm: Value,
}

impl FixtureBuilder {
    /// Three namespaces in the shared cluster, with impersonation enforced and without projects and
    /// Applications.
    pub(crate) async fn new(source: Source) -> Self {
        let cluster = Cluster::shared().await.with_crds().await;
        let (control, guestbook, elsewhere) = tokio::join!(
            cluster.namespace("argocd"),
            cluster.namespace("guestbook"),
            cluster.namespace("elsewhere")
        );
        let mut layout = Layout::new_in(&control, &["alice", "bob", "carol", "sam", "mallory"], PEOPLE);
        layout.policies("applications");
        layout.tls();
        layout.settings(json!({"applications": {"gatewayIdentity": "allowed"}}));
        let mut builder = Self {
            cluster,
            layout,
            guestbook,
            elsewhere,
            agent_key: None,
            source,
            cm: json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "argocd-cm", "namespace": control, "labels": {"app.kubernetes.io/part-of": "argocd"},
                },
                "data": {
                    "accounts.alice": "login", "accounts.bob": "login", "accounts.carol": "login",
                    "accounts.sam": "login", "accounts.mallory": "login",
                },
            }),
            control,
            objects: Vec::new(),
        };
        builder.mode("true");
        builder
    }

    /// Sets the impersonation mode in `argocd-cm`.
    pub(crate) fn mode(&mut self, value: &str) {
        self.cm["data"][MODE] = value.into();
    }

    /// Adds an AppProject. It permits all destinations unless `spec` has others.
    pub(crate) fn project(&self, name: &str, spec: &Value) {
        self.layout.write(&project(&self.control, name, spec));
    }

    /// Adds an Application in the control plane's namespace.
    pub(crate) fn application(&self, name: &str, project: &str, destination: &Value) {
        self.layout.write(&json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": self.control},
            "spec": {
                "project": project,
                "source": {"repoURL": "https://git.invalid/guestbook", "path": "guestbook"},
                "destination": destination,
            },
        }));
    }

    /// An entry of `destinationServiceAccounts` for the cluster.
    pub(crate) fn acts(&self, namespace: &str, account: &str) -> Value {
        json!({"server": self.cluster.url(), "namespace": namespace, "defaultServiceAccount": account})
    }

    /// A destination in the cluster.
    pub(crate) fn to(&self, namespace: &str) -> Value {
        json!({"server": self.cluster.url(), "namespace": namespace})
    }

    /// Adds a service account that may manage Deployments and Services in `namespaces`, and that
    /// the gateway may impersonate.
    pub(crate) fn deployer(&mut self, home: &str, name: &str, namespaces: &[&str]) {
        self.objects.push(account(home, name));
        for namespace in namespaces {
            self.objects.extend(deploys(namespace, home, name));
        }
        let control = self.control.clone();
        self.objects.extend(acts_as(home, name, &control));
    }

    /// Adds more objects to the cluster.
    pub(crate) fn objects(&mut self, more: impl IntoIterator<Item = Value>) {
        self.objects.extend(more);
    }

    /// Creates all objects and starts the gateway.
    pub(crate) async fn start(self) -> Fixture {
        let Started { fixture, .. } = self.start_replicas(0).await;
        fixture
    }

    /// Creates all objects, starts the gateway, and prepares more replicas of it.
    pub(crate) async fn start_replicas(mut self, more: usize) -> Started {
        self.layout.write(&self.cm);
        self.objects.push(account(&self.control, "tollgate"));
        self.objects.push(account(&self.control, "reader"));
        self.objects.extend(reads_state(&self.control));
        apply(self.cluster, &self.objects).await;
        let admin = self.cluster.admin();
        let there = format!("--namespace={}", self.control);
        let token = async |name| {
            let token = admin.succeed(&["create", "token", name, &there]).await;
            token.trim().to_owned()
        };
        let (token, reader) = (token("tollgate").await, token("reader").await);
        let config = match &self.agent_key {
            Some(key) => json!({"agent": {"publicKeys": [key]}}),
            None => json!({
                "bearerToken": token,
                "tlsClientConfig": {"caData": base64(self.cluster.authority())},
            }),
        };
        let secret = json!({"name": "home", "server": self.cluster.url(), "config": config.to_string()});
        self.layout.cluster("home", &secret);
        if self.source == Source::Kubernetes {
            apply(self.cluster, &self.layout.objects()).await;
            self.read_from_cluster(&reader);
        }
        let replicas = (0..more).map(|_| self.layout.replica()).collect();
        let fixture = Fixture {
            cluster: self.cluster,
            gateway: self.layout.start().await,
            control: self.control,
            guestbook: self.guestbook,
            token,
            source: self.source,
            cm: self.cm,
        };
        Started { fixture, replicas }
    }

    fn read_from_cluster(&mut self, reader: &str) {
        let server = json!({
            "server": self.cluster.url(),
            "certificate-authority-data": base64(self.cluster.authority()),
        });
        let file = self.layout.root().join("state-kubeconfig");
        std::fs::write(&file, kubeconfig(&server, &json!({"token": reader}))).unwrap();
        let state = json!({"kubernetes": {"kubeconfig": file}, "namespace": self.control});
        self.layout.settings(json!({"state": state}));
    }
}

/// A fixture and the replicas of its gateway that do not run yet.
pub(crate) struct Started {
    /// The fixture with the first gateway.
    pub(crate) fixture: Fixture,
    /// The other replicas.
    pub(crate) replicas: Vec<Layout>,
}

impl Fixture {
    /// kubectl of a user for the cluster of an Application.
    pub(crate) fn kubectl(&self, who: &str, application: &str) -> Kubectl {
        self.kubectl_at(&self.gateway.url(), who, application)
    }

    /// The same through another address with the same certificate.
    pub(crate) fn kubectl_at(&self, url: &str, who: &str, application: &str) -> Kubectl {
        let server = json!({
            "server": format!("{url}/applications/{}/{application}/k8s", self.control),
            "certificate-authority-data": base64(&self.gateway.authority().unwrap()),
        });
        Kubectl::with_kubeconfig(&kubeconfig(&server, &json!({"token": session(who)})))
    }

    /// The username of the gateway in the cluster.
    pub(crate) fn own(&self) -> String {
        user(&self.control, "tollgate")
    }

    /// Replaces an object of the state.
    pub(crate) async fn put(&self, object: &Value) {
        match self.source {
            Source::Directory => self.gateway.rewrite(object),
            Source::Kubernetes => apply(self.cluster, std::slice::from_ref(object)).await,
        }
    }

    /// Changes the impersonation mode in `argocd-cm`.
    pub(crate) async fn mode(&mut self, value: &str) {
        self.cm["data"][MODE] = value.into();
        let cm = self.cm.clone();
        self.put(&cm).await;
    }

    /// The event in the cluster's audit log of a write of this object.
    pub(crate) async fn event(&self, namespace: &str, name: &str) -> Value {
        let reads = ["get", "list", "watch"];
        let is = |event: &Value| {
            let object = &event["objectRef"];
            let read = reads.iter().any(|verb| event["verb"] == *verb);
            object["namespace"] == namespace && object["name"] == name && !read
        };
        self.cluster.audit().find_with(namespace, is).await
    }

    /// Asserts that the gateway wrote this object, impersonating this account. Returns the event.
    pub(crate) async fn wrote(&self, namespace: &str, name: &str, account: &str) -> Value {
        let event = self.event(namespace, name).await;
        assert_eq!(event["user"]["username"], self.own(), "{event}");
        assert_eq!(event["impersonatedUser"]["username"], account, "{event}");
        event
    }

    /// The writes of the gateway to a namespace so far, with and without impersonation.
    pub(crate) fn arrived(&self, namespace: &str) -> Vec<Value> {
        let own = self.own();
        let reads = ["get", "list", "watch"];
        let events = self.cluster.audit().events_with(namespace).into_iter();
        events
            .filter(|event| event["user"]["username"] == own && event["objectRef"]["namespace"] == namespace)
            .filter(|event| !reads.iter().any(|verb| event["verb"] == *verb))
            .collect()
    }
}

/// The username of a service account.
pub(crate) fn user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// An AppProject. It permits all destinations unless `spec` has others.
pub(crate) fn project(control: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": name, "namespace": control},
        "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// A guestbook: a Deployment and a Service.
pub(crate) fn guestbook(namespace: &str, name: &str) -> String {
    let labels = json!({"app": name});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "ui", "image": "none.invalid/ui"}]},
            }},
        },
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        },
    ]});
    objects.to_string()
}

/// Runs `kubectl apply` with these objects.
pub(crate) async fn run_apply(kubectl: &Kubectl, objects: &str) -> Run {
    kubectl.run_with(&["apply", "--filename=-"], objects).await
}

/// A service account.
pub(crate) fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
}

/// A Role and its binding to the service account `home`:`account`.
pub(crate) fn role(namespace: &str, name: &str, rules: &Value, (home, account): (&str, &str)) -> [Value; 2] {
    let metadata = json!({"name": name, "namespace": namespace});
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        }),
    ]
}

/// The right to manage Deployments and Services.
fn deploys(namespace: &str, home: &str, account: &str) -> [Value; 2] {
    let verbs = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["services"], "verbs": verbs},
    ]);
    role(namespace, &format!("{account}-of-{home}"), &rules, (home, account))
}

/// The gateway's right to impersonate one account.
fn acts_as(home: &str, name: &str, control: &str) -> [Value; 2] {
    let rules = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [name], "verbs": ["impersonate"],
    }]);
    role(home, &format!("act-as-{name}"), &rules, (control, "tollgate"))
}

/// The right to read the state, for an account that does nothing else.
fn reads_state(control: &str) -> [Value; 2] {
    let verbs = json!(["get", "list", "watch"]);
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": verbs},
        {"apiGroups": ["argoproj.io", "tollgate.dev"], "resources": ["*"], "verbs": verbs},
    ]);
    role(control, "reader", &rules, (control, "reader"))
}

/// Applies objects as the administrator.
pub(crate) async fn apply(cluster: &Cluster, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let arguments = ["apply", "--server-side", "--force-conflicts", "--filename=-"];
    let run = cluster.admin().run_with(&arguments, &list.to_string()).await;
    assert!(run.status.success(), "{}\n{list}", run.stderr);
}
