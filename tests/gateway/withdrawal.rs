//! Open exchanges of every kind, on every front, end when a change takes away what permits them.
//!
//! The tests run one gateway with every front enabled. Each change has its own victim, who has a
//! watch, a tunnel and an upload open on every front that the change affects. A twin, whom no
//! change affects, has the same exchanges open all the time. [`expected`] is the matrix.

mod mistakes;
mod names;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::applications::discovery;
use crate::clusters::cluster;
use crate::wire::{is_broken, put, wait_broken};
use test_support::client::{Answer, Client};
use test_support::issuer::Issuer;
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, Setup, World, object};

/// How long after a change took effect an exchange may end.
const MAX_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// Fields of a request for a WebSocket.
const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: \
                       dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Fields of content that does not end.
const CHUNKED_JSON: &str = "content-type: application/json\r\ntransfer-encoding: chunked\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Front {
    Extensions,
    Clusters,
    Kubernetes,
    Applications,
    ApplicationSets,
    Argocd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    TokenDeleted,
    AccountDisabled,
    RbacRowRemoved,
    PolicyChanged,
    AgentNarrowed,
    ClusterRebound,
    ClusterGone,
    ProjectNarrowed,
    PersonBlocked,
    /// Comes last, because it ends every session of Argo CD.
    KeyRotated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExchangeKind {
    Watch,
    Tunnel,
    Upload,
}

/// What a change does to an open exchange of its victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It ends, and its record has this reason.
    Ends(&'static str),
    /// It stays open, but hides the object from now on: each event is authorized by itself.
    Hides,
    /// Nothing, for this reason.
    Unaffected(&'static str),
}

const FRONTS: [Front; 6] = [
    Front::Extensions,
    Front::Clusters,
    Front::Kubernetes,
    Front::Applications,
    Front::ApplicationSets,
    Front::Argocd,
];

const CHANGES: [Change; 10] = [
    Change::TokenDeleted,
    Change::AccountDisabled,
    Change::RbacRowRemoved,
    Change::PolicyChanged,
    Change::AgentNarrowed,
    Change::ClusterRebound,
    Change::ClusterGone,
    Change::ProjectNarrowed,
    Change::PersonBlocked,
    Change::KeyRotated,
];

const WITHDRAWN: Expected = Expected::Ends("access_withdrawn");

/// The matrix of fronts and changes.
fn expected(front: Front, change: Change) -> Expected {
    use Change as C;
    use Front as F;
    match (front, change) {
        // On this front, the token is the session.
        (F::Kubernetes, C::TokenDeleted) => Expected::Ends("session_revoked"),
        (_, C::TokenDeleted) => WITHDRAWN,
        (F::Kubernetes, C::AccountDisabled) => {
            Expected::Unaffected("its people are those of the user directory, not accounts")
        }
        (F::Kubernetes, C::RbacRowRemoved) => {
            Expected::Unaffected("`user_access` and the policy decide, not Argo CD's RBAC")
        }
        (F::Kubernetes, C::KeyRotated) => Expected::Unaffected("personal access tokens are random: no key signs them"),
        (_, C::AccountDisabled | C::KeyRotated) => WITHDRAWN,
        (F::ApplicationSets, C::RbacRowRemoved | C::PolicyChanged) => Expected::Hides,
        (F::Extensions | F::Clusters | F::Applications, C::RbacRowRemoved) => WITHDRAWN,
        (F::Clusters, C::PolicyChanged) => Expected::Unaffected("Argo CD's RBAC decides alone, there is no policy"),
        (F::Extensions | F::Kubernetes | F::Applications | F::Argocd, C::PolicyChanged) => WITHDRAWN,
        (F::Argocd, C::RbacRowRemoved | C::ClusterRebound | C::ClusterGone | C::ProjectNarrowed) => {
            Expected::Unaffected("argocd-server authorizes by these itself")
        }
        (F::Kubernetes, C::AgentNarrowed | C::PersonBlocked) => WITHDRAWN,
        (_, C::AgentNarrowed) => Expected::Unaffected("only the Kubernetes front goes through agents"),
        (_, C::PersonBlocked) => Expected::Unaffected("the user directory says who may use agents, nothing else"),
        (F::ApplicationSets, C::ClusterRebound | C::ClusterGone | C::ProjectNarrowed) => {
            Expected::Unaffected("it sends nothing to clusters, and authorizes each event by itself")
        }
        (_, C::ClusterRebound | C::ClusterGone) => WITHDRAWN,
        (F::Extensions | F::Applications, C::ProjectNarrowed) => WITHDRAWN,
        (F::Clusters, C::ProjectNarrowed) => {
            Expected::Unaffected("a project's destinations are those of its Applications")
        }
        (F::Kubernetes, C::ProjectNarrowed) => Expected::Unaffected("agents belong to no AppProject"),
    }
}

fn kinds(front: Front) -> &'static [ExchangeKind] {
    match front {
        Front::Extensions | Front::Clusters | Front::Kubernetes | Front::Applications | Front::Argocd => {
            &[ExchangeKind::Watch, ExchangeKind::Tunnel, ExchangeKind::Upload]
        }
        // It has no tunnels, and reads content completely before it authorizes anything.
        Front::ApplicationSets => &[ExchangeKind::Watch],
    }
}

/// The user that a change affects.
fn victim(change: Change) -> &'static str {
    match change {
        Change::TokenDeleted => "v-token",
        Change::AccountDisabled => "v-account",
        Change::RbacRowRemoved => "v-rbac",
        Change::PolicyChanged => "v-policy",
        Change::AgentNarrowed => "v-agent",
        Change::ClusterRebound => "v-rebound",
        Change::ClusterGone => "v-gone",
        Change::ProjectNarrowed => "v-project",
        Change::PersonBlocked => "v-person",
        Change::KeyRotated => "v-key",
    }
}

/// The Application and its project, the cluster and the agent that a victim, or the twin, uses.
fn resources(change: Option<Change>) -> ([&'static str; 2], &'static str, u32) {
    match change {
        Some(Change::ClusterRebound) => (["rebound", "shop"], "rebound", 3),
        Some(Change::ClusterGone) => (["gone", "shop"], "gone", 4),
        Some(Change::ProjectNarrowed) => (["narrow", "narrow"], "prod", 1),
        Some(Change::AgentNarrowed) => (["cart", "shop"], "prod", 2),
        Some(
            Change::TokenDeleted
            | Change::AccountDisabled
            | Change::RbacRowRemoved
            | Change::PolicyChanged
            | Change::PersonBlocked
            | Change::KeyRotated,
        )
        | None => (["cart", "shop"], "prod", 1),
    }
}

/// The exchanges that upstreams have seen, by the name in the query, and whether they are open.
#[derive(Clone, Default)]
struct Upstreams(Arc<Mutex<BTreeMap<String, bool>>>);

impl Upstreams {
    /// Starts a server that begins an answer to a watch, switches protocols on request, reads
    /// content without an end, and answers everything else at once.
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let all = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let all = all.clone();
                tokio::spawn(async move { all.serve(stream).await });
            }
        });
        address
    }

    async fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut buffer = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                    break at + 4;
                }
                if stream.read_buf(&mut buffer).await.ok()? == 0 {
                    return None;
                }
            };
            let head = String::from_utf8_lossy(&buffer.drain(..end).collect::<Vec<_>>()).to_lowercase();
            let target = head.split(' ').nth(1)?.to_owned();
            let Some((_, name)) = target.split_once("cell=") else {
                // Discovery, and access reviews of the gateway for itself.
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
                while buffer.len() < length {
                    stream.read_buf(&mut buffer).await.ok()?;
                }
                buffer.drain(..length);
                stream.write_all(&other(&target)).await.ok()?;
                continue;
            };
            let begin: &[u8] = if head.contains("\r\nupgrade:") {
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            } else if head.starts_with("get ") {
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\n\r\n"
            } else {
                b""
            };
            stream.write_all(begin).await.ok()?;
            self.set(name, true);
            let mut sink = [0; 1024];
            while matches!(stream.read(&mut sink).await, Ok(length) if length > 0) {}
            self.set(name, false);
            return Some(());
        }
    }

    fn set(&self, name: &str, is_open: bool) {
        self.0.lock().unwrap().insert(name.to_owned(), is_open);
    }

    /// Whether an exchange is open; `None` if it has not begun.
    fn is_open(&self, name: &str) -> Option<bool> {
        self.0.lock().unwrap().get(name).copied()
    }
}

fn other(target: &str) -> Vec<u8> {
    let (status, media, body) = match discovery(target) {
        Some((media, body)) => ("200 OK", media, body),
        None => ("404 Not Found", "application/json", "{}".to_owned()),
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

fn people() -> Vec<&'static str> {
    CHANGES.into_iter().map(victim).chain(["twin"]).collect()
}

/// The objects of the state after the ConfigMaps and `argocd-secret`, in the order of [`File`].
fn objects(servers: &BTreeMap<&str, String>) -> Vec<Value> {
    let project = |name: &str| {
        let spec = json!({
            "destinations": [{"server": "*", "namespace": "*"}],
            "sourceRepos": ["*"],
            "destinationServiceAccounts": [{"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"}],
        });
        let version = "argoproj.io/v1alpha1";
        object(version, "AppProject", name, CONTROL_PLANE, json!({"spec": spec}))
    };
    let application = |name: &str, project: &str, cluster: &str| {
        let spec = json!({"project": project, "destination": {"name": cluster, "namespace": "cart"}});
        let version = "argoproj.io/v1alpha1";
        object(version, "Application", name, CONTROL_PLANE, json!({"spec": spec}))
    };
    let agent = |name: &str, id: u32, cluster: &str, project: &str| {
        let access = json!({"access_as": {"user": {}}, "projects": [{"id": project}]});
        let spec = json!({"id": id, "configProject": {"id": 1}, "cluster": cluster, "config": {"user_access": access}});
        let version = "tollgate.dev/v1alpha1";
        object(version, "Agent", name, CONTROL_PLANE, json!({"spec": spec}))
    };
    let users = people().into_iter().zip(1..);
    let users: Vec<Value> = users
        .chain(names::PEOPLE.map(|person| (person.entry, person.number)))
        .map(|(name, id)| json!({"id": id, "username": name, "state": "active"}))
        .collect();
    let members: Vec<Value> = people()
        .iter()
        .chain(names::PEOPLE.iter().map(|person| &person.entry))
        .map(|name| json!({"username": name, "role": "developer"}))
        .collect();
    let directory = json!({"spec": {
        "users": users,
        "projects": [
            {"id": 1, "path": "group/all", "members": members},
            {"id": 2, "path": "group/empty", "members": []},
        ],
    }});
    let set = json!({"spec": {
        "generators": [{"list": {"elements": []}}],
        "template": {"metadata": {"name": "{{name}}"}, "spec": {"project": "shop"}},
    }});
    let anonymous = json!({});
    vec![
        object(
            "tollgate.dev/v1alpha1",
            "UserDirectory",
            "people",
            CONTROL_PLANE,
            directory,
        ),
        project("shop"),
        project("narrow"),
        cluster("prod", &servers["prod"], &anonymous, &[]),
        cluster("rebound", &servers["rebound"], &anonymous, &[]),
        cluster("gone", &servers["gone"], &anonymous, &[]),
        agent("prod", 1, "prod", "group/all"),
        agent("narrow", 2, "prod", "group/all"),
        agent("rebound", 3, "rebound", "group/all"),
        agent("gone", 4, "gone", "group/all"),
        application("cart", "shop", "prod"),
        application("narrow", "narrow", "prod"),
        application("rebound", "shop", "rebound"),
        application("gone", "shop", "gone"),
        object("argoproj.io/v1alpha1", "ApplicationSet", "sets", CONTROL_PLANE, set),
    ]
}

/// Numbers of files in the state folder.
#[derive(Clone, Copy)]
enum File {
    ArgocdCm = 0,
    RbacCm = 1,
    ArgocdSecret = 2,
    People = 3,
    NarrowProject = 5,
    ReboundCluster = 7,
    GoneCluster = 8,
    NarrowAgent = 10,
}

/// A gateway with every front enabled, and its upstreams.
struct TestEnvironment {
    world: World,
    upstreams: Upstreams,
    issuer: Issuer,
    /// Id and bearer token of each person.
    personal_tokens: BTreeMap<&'static str, (String, String)>,
    /// The new server of the rebound cluster.
    elsewhere: SocketAddr,
}

impl TestEnvironment {
    async fn start() -> Self {
        let upstreams = Upstreams::default();
        let mut servers = BTreeMap::new();
        for name in ["prod", "rebound", "gone"] {
            servers.insert(name, format!("http://{}", upstreams.start().await));
        }
        let backend = upstreams.start().await;
        let issuer = Issuer::start().await;
        let mut policy = String::new();
        for name in people()
            .into_iter()
            .chain(["twin-sso"])
            .chain(names::PEOPLE.map(|person| person.subject))
        {
            for row in [
                "applications, *, */*",
                "applicationsets, *, */*",
                "extensions, *, *",
                "exec, *, */*",
                "logs, *, */*",
                "clusters, *, *",
            ] {
                policy.push_str(&format!("p, {name}, {row}, allow\n"));
            }
        }
        policy.push_str("p, root, people, lock, *, allow\n");
        let mut argocd_cm: BTreeMap<String, String> = people()
            .into_iter()
            .chain(["root"])
            .map(|name| (format!("accounts.{name}"), "login, apiKey".to_owned()))
            .collect();
        let block = format!("{{services: [{{url: 'http://{backend}'}}]}}");
        argocd_cm.extend([
            ("extension.config.echo".to_owned(), block),
            ("oidc.config".to_owned(), issuer.argocd_config(false)),
            ("application.sync.impersonation.enabled".to_owned(), "true".to_owned()),
        ]);
        let tokens = json!([{"id": "key-1", "iat": 1}, {"id": "key-2", "iat": 1}]).to_string();
        let world = Setup {
            argocd_cm,
            rbac_cm: BTreeMap::from([("policy.csv".to_owned(), policy)]),
            secrets: BTreeMap::from([("accounts.v-token.tokens".to_owned(), tokens)]),
            objects: objects(&servers),
            settings: json!({
                "applications": {},
                "applicationSets": {},
                "argocd": {"server": format!("http://{}", upstreams.start().await)},
                "clusters": {"forward": true},
                "console": {"url": "https://console.example"},
                "kubernetes": {"users": [
                    {"issuer": "argocd", "is": "username"},
                    {"issuer": issuer.url, "claim": "login", "is": "username"},
                ]},
            }),
            ..Setup::default()
        };
        let world = world.start().await;
        let mut environment = Self {
            world,
            upstreams: upstreams.clone(),
            issuer,
            personal_tokens: BTreeMap::new(),
            elsewhere: upstreams.start().await,
        };
        for change in CHANGES.map(Some).into_iter().chain([None]) {
            let name = change.map_or("twin", victim);
            let token = environment.personal_token(name, resources(change).2).await;
            environment.personal_tokens.insert(name, token);
        }
        environment
    }

    /// Creates a personal access token. Returns its id and the bearer token.
    async fn personal_token(&self, name: &str, agent: u32) -> (String, String) {
        self.token_of(&token::session(SESSION_KEY, name), agent).await
    }

    /// The same for the person with this credential.
    async fn token_of(&self, credential: &str, agent: u32) -> (String, String) {
        let answer = self.api_of(reqwest::Method::POST, credential, "tokens");
        let content = json!({"name": "laptop", "agent": agent});
        let answer = answer.json(&content).send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(status, 201, "{body}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&body["token"]["id"]), text(&body["bearer"]))
    }

    fn api(&self, method: reqwest::Method, user: &str, path: &str) -> reqwest::RequestBuilder {
        self.api_of(method, &token::session(SESSION_KEY, user), path)
    }

    fn api_of(&self, method: reqwest::Method, credential: &str, path: &str) -> reqwest::RequestBuilder {
        let url = format!("http://{}/api/v1/{path}", self.world.address());
        reqwest::Client::new().request(method, url).bearer_auth(credential)
    }

    /// The credential of a victim, or of the twin.
    fn credential(&self, front: Front, who: Option<Change>) -> String {
        match (front, who) {
            (Front::Kubernetes, who) => self.personal_tokens[who.map_or("twin", victim)].1.clone(),
            (_, Some(Change::TokenDeleted)) => {
                let claims = json!({"iss": "argocd", "sub": "v-token:apiKey", "iat": 1, "nbf": 1, "jti": "key-1"});
                token::sign(SESSION_KEY, &claims)
            }
            (_, Some(change)) => token::session(SESSION_KEY, victim(change)),
            (_, None) => self.issuer.token(&json!({"sub": "twin-sso"})),
        }
    }

    async fn open(&self, front: Front, who: Option<Change>, kind: ExchangeKind) -> Exchange {
        let name = format!("{front:?}-{}-{kind:?}", who.map_or("twin", victim)).to_lowercase();
        self.open_as((name, self.credential(front, who)), front, who, kind)
            .await
    }

    async fn open_as(
        &self,
        (name, credential): (String, String),
        front: Front,
        who: Option<Change>,
        kind: ExchangeKind,
    ) -> Exchange {
        let ([application, project], cluster, _) = resources(who);
        let below = match front {
            Front::Extensions => "/api/v1/extensions/echo".to_owned(),
            Front::Clusters => format!("/clusters/{cluster}/k8s"),
            Front::Kubernetes => "/k8s-proxy".to_owned(),
            Front::Applications => format!("/applications/argocd/{application}/k8s"),
            Front::ApplicationSets => "/api/v1/stream".to_owned(),
            Front::Argocd => String::new(),
        };
        let (method, rest, fields) = match (front, kind) {
            (Front::ApplicationSets, _) => ("GET", "/applicationsets?name=sets", ""),
            (Front::Argocd, ExchangeKind::Watch) => ("GET", "/api/v1/stream/applications?", ""),
            (Front::Argocd, ExchangeKind::Tunnel) => ("GET", "/terminal?pod=web&", UPGRADE),
            (Front::Argocd, ExchangeKind::Upload) => ("POST", "/api/v1/applications?", CHUNKED_JSON),
            (_, ExchangeKind::Watch) => ("GET", "/api/v1/namespaces/cart/configmaps?watch=true&", ""),
            (_, ExchangeKind::Tunnel) => ("GET", "/api/v1/namespaces/cart/pods/web/exec?command=sh&", UPGRADE),
            (_, ExchangeKind::Upload) => ("POST", "/api/v1/namespaces/cart/configmaps?", CHUNKED_JSON),
        };
        let marked = match front {
            Front::ApplicationSets => String::new(),
            Front::Extensions | Front::Clusters | Front::Kubernetes | Front::Applications | Front::Argocd => {
                format!("cell={name}")
            }
        };
        let head = format!(
            "{method} {below}{rest}{marked} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {credential}\r\n\
             argocd-application-name: argocd:{application}\r\nargocd-project-name: {project}\r\n{fields}\r\n"
        );
        let mut client = Client::connect(self.world.address()).await;
        client.send(head.as_bytes()).await;
        let begun = match kind {
            ExchangeKind::Watch => Some(200),
            ExchangeKind::Tunnel => Some(101),
            ExchangeKind::Upload => {
                client.send(b"1\r\n{\r\n").await;
                None
            }
        };
        let mut decision = None;
        if let Some(status) = begun {
            let answer = client.head().await.unwrap();
            if answer.status != status {
                panic!(
                    "{name}: {}{}",
                    answer.head,
                    String::from_utf8_lossy(&client.rest().await)
                );
            }
            decision = Some(answer.values("tollgate-decision-id")[0].to_owned());
        }
        match front {
            Front::ApplicationSets => {
                let event = client.through(b"\n\r\n").await;
                assert!(String::from_utf8_lossy(&event).contains("ADDED"), "{name}: {event:?}");
            }
            Front::Extensions | Front::Clusters | Front::Kubernetes | Front::Applications | Front::Argocd => {
                let is_open = || async { self.upstreams.is_open(&name) == Some(true) };
                self.world.until(&format!("{name} at its upstream"), is_open).await;
            }
        }
        Exchange {
            name,
            front,
            client,
            decision,
        }
    }

    /// Replaces an object in the state folder atomically.
    fn edit(&self, file: File, change: impl FnOnce(&mut Value)) {
        let path = self.world.path(&format!("state/{:03}.yaml", file as u8));
        let mut object = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut object);
        let next = self.world.path("state/next");
        std::fs::write(&next, object.to_string()).unwrap();
        std::fs::rename(next, path).unwrap();
    }

    fn deny(&self, bundle: &str, rule: &str) {
        let path = self.world.path(&format!("policies/{bundle}/policy.rego"));
        let policy = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{policy}\ndeny contains \"gone\" if {rule}\n")).unwrap();
    }

    /// Applies a change.
    async fn change(&self, change: Change) {
        match change {
            Change::TokenDeleted => {
                let tokens = json!([{"id": "key-2", "iat": 1}]).to_string();
                self.edit(File::ArgocdSecret, |secret| {
                    secret["stringData"]["accounts.v-token.tokens"] = tokens.into();
                });
                let id = &self.personal_tokens["v-token"].0;
                let answer = self.api(reqwest::Method::DELETE, "v-token", &format!("tokens/{id}"));
                assert_eq!(answer.send().await.unwrap().status(), 200);
            }
            Change::AccountDisabled => self.edit(File::ArgocdCm, |map| {
                map["data"]["accounts.v-account.enabled"] = "false".into();
            }),
            Change::RbacRowRemoved => self.edit(File::RbacCm, |map| {
                let policy = map["data"]["policy.csv"].as_str().unwrap();
                map["data"]["policy.csv"] = policy.replace("p, v-rbac,", "p, nobody,").into();
            }),
            Change::PolicyChanged => {
                self.deny("extensions", "input.principal.username == \"v-policy\"");
                self.deny("applications", "input.principal.username == \"v-policy\"");
                self.deny("applicationsets", "input.principal.username == \"v-policy\"");
                self.deny("argocd", "input.principal.username == \"v-policy\"");
                self.deny("kubernetes", "input.user.username == \"v-policy\"");
            }
            Change::AgentNarrowed => self.edit(File::NarrowAgent, |agent| {
                agent["spec"]["config"]["user_access"]["projects"] = json!([{"id": "group/empty"}]);
            }),
            Change::ClusterRebound => self.edit(File::ReboundCluster, |secret| {
                secret["stringData"]["server"] = format!("http://{}", self.elsewhere).into();
            }),
            Change::ClusterGone => {
                let path = self.world.path(&format!("state/{:03}.yaml", File::GoneCluster as u8));
                std::fs::remove_file(path).unwrap();
            }
            Change::ProjectNarrowed => self.edit(File::NarrowProject, |project| {
                project["spec"]["destinations"] = json!([{"server": "*", "namespace": "other"}]);
            }),
            Change::PersonBlocked => self.edit(File::People, |people| {
                let users = people["spec"]["users"].as_array_mut().unwrap();
                let user = users.iter_mut().find(|user| user["username"] == "v-person");
                user.unwrap()["state"] = "blocked".into();
            }),
            Change::KeyRotated => self.edit(File::ArgocdSecret, |secret| {
                secret["stringData"]["server.secretkey"] = "another-key-only-tests-know-0123456789".into();
            }),
        }
    }

    async fn generation(&self) -> u64 {
        let metrics = self.world.admin("/metrics").await;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("tollgate_snapshot_generation "));
        line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
    }

    async fn record(&self, decision: &str) -> Value {
        let record = self.world.admin(&format!("/decisions/{decision}")).await;
        serde_json::from_str(&record).unwrap()
    }
}

/// An open exchange.
struct Exchange {
    name: String,
    front: Front,
    client: Client,
    /// The decision id of a response that has begun.
    decision: Option<String>,
}

impl Exchange {
    /// Waits until it has ended on both sides. Returns when the gateway ended it.
    async fn ended(mut self, environment: &TestEnvironment, reason: &str) -> Timestamp {
        let name = &self.name;
        let at = match &self.decision {
            Some(decision) => {
                match self.front {
                    // The gateway makes this response, so it is complete and the connection stays.
                    Front::ApplicationSets => drop(self.client.through(b"0\r\n\r\n").await),
                    Front::Extensions | Front::Clusters | Front::Kubernetes | Front::Applications | Front::Argocd => {
                        let rest = self.client.rest().await;
                        let is_whole = rest.ends_with(b"0\r\n\r\n");
                        assert!(!is_whole, "{name}: the client must see that it was cut");
                    }
                }
                let record = environment.record(decision).await;
                assert_eq!(record["outcome"], "allowed", "{name}: {record}");
                assert_eq!(record["ended"]["reason"], reason, "{name}: {record}");
                record["ended"]["at"].as_str().unwrap().parse().unwrap()
            }
            None => {
                let answer: Answer = self.client.answer().await.unwrap();
                let body: Value = serde_json::from_slice(&answer.content).unwrap();
                assert_eq!(answer.status, 401, "{name}: {body}");
                let record = environment.record(answer.values("tollgate-decision-id")[0]).await;
                assert_eq!(record["outcome"], "denied", "{name}: {record}");
                assert_eq!(record["reason"], reason, "{name}: {record}");
                let begun: Timestamp = record["timestamp"].as_str().unwrap().parse().unwrap();
                let lasted = record["duration_microseconds"]["total"].as_i64().unwrap();
                begun + jiff::SignedDuration::from_micros(lasted)
            }
        };
        if self.front != Front::ApplicationSets {
            let is_cut = || async { environment.upstreams.is_open(name) == Some(false) };
            environment
                .world
                .until(&format!("{name} to end at its upstream"), is_cut)
                .await;
        }
        at
    }

    /// Whether it has ended on neither side.
    fn is_open(&mut self, environment: &TestEnvironment) -> bool {
        let mut byte = [0];
        let silent = matches!(self.client.stream.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        silent && (self.front == Front::ApplicationSets || environment.upstreams.is_open(&self.name) == Some(true))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_withdrawn_ends_and_nothing_else_does() {
    withdraw_all(&TestEnvironment::start().await).await;
}

/// The same, while every load of objects is refused because of an unrelated mistake.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_withdrawn_ends_beside_a_mistake() {
    let environment = TestEnvironment::start().await;
    put(&environment.world, "state/900.yaml", mistakes::REFUSED);
    wait_broken(&environment.world, "state", true).await;
    withdraw_all(&environment).await;
    assert!(is_broken(&environment.world, "state").await);
}

/// An upload whose response has not begun keeps what was in force at its start out of memory: a
/// snapshot is megabytes, and a person may have a hundred requests.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_response_keeps_no_snapshot() {
    let environment = TestEnvironment::start().await;
    let mut open = Vec::new();
    for (number, front) in FRONTS.into_iter().enumerate() {
        for kind in kinds(front) {
            open.push(environment.open(front, None, *kind).await);
            let before = environment.generation().await;
            let name = format!("more-{number}-{kind:?}").to_lowercase();
            let spec = json!({"spec": {"project": "default", "destination": {"name": "in-cluster"}}});
            let object = object("argoproj.io/v1alpha1", "Application", &name, CONTROL_PLANE, spec);
            put(
                &environment.world,
                &format!("state/95{number}.yaml"),
                object.to_string(),
            );
            let is_newer = || async { environment.generation().await > before };
            environment.world.until("another generation", is_newer).await;
        }
    }
    assert!(open.len() > 10);
    let only_the_newest = || async {
        let metrics = environment.world.admin("/metrics").await;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("tollgate_snapshots_in_memory "));
        line.unwrap().parse::<u64>().unwrap() == 1
    };
    environment
        .world
        .until("older snapshots to be gone", only_the_newest)
        .await;
    for exchange in &mut open {
        assert!(exchange.is_open(&environment), "{} was cut", exchange.name);
    }
}

async fn withdraw_all(environment: &TestEnvironment) {
    let mut twins = Vec::new();
    for front in FRONTS {
        for kind in kinds(front) {
            twins.push(environment.open(front, None, *kind).await);
        }
    }
    let mut victims: BTreeMap<Change, Vec<(Exchange, Expected)>> = BTreeMap::new();
    for change in CHANGES {
        for front in FRONTS {
            let expected = expected(front, change);
            if matches!(expected, Expected::Unaffected(_)) {
                continue;
            }
            for kind in kinds(front) {
                let exchange = environment.open(front, Some(change), *kind).await;
                victims.entry(change).or_default().push((exchange, expected));
            }
        }
    }
    for change in CHANGES {
        let exchanges = victims.remove(&change).unwrap();
        assert!(!exchanges.is_empty(), "{change:?} affects no front");
        let before = environment.generation().await;
        environment.change(change).await;
        let is_newer = || async { environment.generation().await > before };
        environment
            .world
            .until(&format!("{change:?} to take effect"), is_newer)
            .await;
        let effect = Timestamp::now();
        for (mut exchange, expected) in exchanges {
            match expected {
                Expected::Ends(reason) => {
                    let name = exchange.name.clone();
                    let at = exchange.ended(environment, reason).await;
                    let late = at.duration_since(effect);
                    assert!(late < MAX_DELAY, "{name}: ended {late:?} after the change");
                }
                Expected::Hides => {
                    let event = exchange.client.through(b"\n\r\n").await;
                    let event = String::from_utf8_lossy(&event).into_owned();
                    assert!(event.contains("\"DELETED\""), "{}: {event}", exchange.name);
                    assert!(exchange.is_open(environment), "{} was cut", exchange.name);
                    twins.push(exchange);
                }
                Expected::Unaffected(reason) => panic!("{} was opened: {reason}", exchange.name),
            }
        }
        if change == Change::KeyRotated {
            // The exchanges that hide objects belong to sessions, which end with the key.
            twins.retain(|twin| twin.name.contains("twin"));
        }
        for (others, exchanges) in &mut victims {
            for (exchange, _) in exchanges {
                assert!(
                    exchange.is_open(environment),
                    "{change:?} ended {} of {others:?}",
                    exchange.name
                );
            }
        }
        for twin in &mut twins {
            assert!(twin.is_open(environment), "{change:?} ended {}", twin.name);
        }
    }
}
