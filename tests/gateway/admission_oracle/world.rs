//! The world of the model: what an API server has stored, who answers for it, and the gateway that
//! judges what is written there.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::objects::{
    IN_CLUSTER, Kind, NAMESPACE, PROD, SetSpec, application, generate, name_of, object, project, set_claim, set_spec,
};
use super::rights::{ACCOUNTS, CHILDREN, Responsible, groups, policy};
use super::webhooks::{Request, Webhooks, Writer};
use test_support::authority::{Authority, Pair};
use test_support::backend::{Backend, Reply};
use test_support::world::{Setup, map, merge};
use tollgate_proxy::metrics::ConfigPart;

pub(super) const CONTROLLER: &str = "system:serviceaccount:argocd:argocd-application-controller";
pub(super) const SET_CONTROLLER: &str = "system:serviceaccount:argocd:argocd-applicationset-controller";
pub(super) const SERVER: &str = "system:serviceaccount:argocd:argocd-server";
pub(super) const GATEWAY: &str = "system:serviceaccount:argocd:tollgate";
pub(super) const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// What differs between installations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent setting")]
pub(super) struct Settings {
    /// Whether `admission.children` lists projects of `platform`.
    pub(super) children: bool,
    /// Whether objects are tracked by label.
    pub(super) by_label: bool,
    /// Whether Applications are synced as service accounts.
    pub(super) impersonation: bool,
    /// Whether the component `admission-author` is installed.
    pub(super) authors: bool,
    /// Whether a sync to another revision needs `override`.
    pub(super) strict_revisions: bool,
}

/// An object, and who answers for each part of it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) object: Value,
    pub(super) origins: BTreeMap<&'static str, Responsible>,
    /// Whether a set got the statement of its author after its specification.
    pub(super) is_signed_later: bool,
}

/// The parts of an object that somebody answers for. The last one is the claim to belong to an
/// Application.
pub(super) const PARTS: [(&str, &str); 4] = [
    ("spec", "/spec"),
    ("operation", "/operation"),
    ("operationState", "/status/operationState"),
    ("owners", "/metadata/ownerReferences"),
];
pub(super) const CLAIM: &str = "claim";

type Key = (Kind, String);

pub(super) struct World {
    pub(super) settings: Settings,
    stored: BTreeMap<Key, Stored>,
    /// Who deleted what had this uid.
    pub(super) deleted: HashMap<String, Responsible>,
    uids: u32,
}

impl World {
    pub(super) fn stored(&self, kind: Kind, name: &str) -> Option<&Stored> {
        self.stored.get(&(kind, name.to_owned()))
    }

    pub(super) fn object(&self, kind: Kind, name: &str) -> Option<&Value> {
        Some(&self.stored(kind, name)?.object)
    }

    pub(super) fn objects_of(&self, kind: Kind) -> Vec<(&str, &Value)> {
        let all = self.stored.iter().filter(|((other, _), _)| *other == kind);
        all.map(|((_, name), stored)| (&**name, &stored.object)).collect()
    }

    pub(super) fn has_uid(&self, uid: &str) -> bool {
        self.stored
            .values()
            .any(|stored| stored.object["metadata"]["uid"] == uid)
    }

    /// A uid that nothing has had before.
    pub(super) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    /// Stores an object, or removes it.
    pub(super) fn put(&mut self, kind: Kind, name: &str, stored: Option<Stored>) {
        let key = (kind, name.to_owned());
        match stored {
            Some(stored) => drop(self.stored.insert(key, stored)),
            None => drop(self.stored.remove(&key)),
        }
    }
}

/// A gateway with an API server beside it. One lives through many sequences.
pub(super) struct Installation {
    world: test_support::world::World,
    pub(super) webhooks: Webhooks,
    url: String,
    http: reqwest::Client,
    children: bool,
    /// The files of the gateway's folder.
    files: BTreeMap<String, String>,
    /// Sets as they are at the beginning, with their statements.
    signed: HashMap<String, Value>,
    _argocd: Backend,
    _certificates: tempfile::TempDir,
}

impl Installation {
    pub(super) async fn start(children: bool) -> Self {
        let certificates = tempfile::tempdir().unwrap();
        let (servers, clients) = (Authority::new("gateway"), Authority::new("api-servers"));
        let own = servers.server(&["127.0.0.1"]);
        let file = |name: &str, text: &str| -> PathBuf {
            let path = certificates.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let argocd = Backend::start(|_| Reply::ok("{}")).await;
        let mut settings = json!({
            "applications": {}, "applicationSets": {},
            "argocd": {"server": format!("http://{}", argocd.address)},
            "admission": {
                "listen": "127.0.0.1:0", "mode": "enforce",
                "tls": {"certificate": file("tls.pem", &own.certificate), "key": file("tls.key", &own.key)},
                "clientCertificateAuthority": file("clients.pem", &clients.pem),
            },
        });
        if children {
            merge(
                &mut settings,
                &json!({"admission": {"children": {CHILDREN.0: CHILDREN.1}}}),
            );
        }
        let setup = Setup {
            rbac_cm: map(&[("policy.csv", &policy())]),
            objects: Vec::new(),
            settings,
            ..Setup::default()
        };
        let world = setup.start().await;
        // This file is written anew with each sequence.
        std::fs::remove_file(world.path("state/000.yaml")).unwrap();
        let Pair { certificate, key } = clients.client("kube-apiserver", None);
        let client = reqwest::Client::builder()
            .add_root_certificate(reqwest::Certificate::from_pem(servers.pem.as_bytes()).unwrap())
            .identity(reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap())
            .build()
            .unwrap();
        Self {
            url: format!("https://{}", world.running.admission_address().unwrap()),
            webhooks: Webhooks::new(client),
            http: reqwest::Client::new(),
            world,
            children,
            files: BTreeMap::new(),
            signed: HashMap::new(),
            _argocd: argocd,
            _certificates: certificates,
        }
    }

    pub(super) fn address(&self) -> std::net::SocketAddr {
        self.world.address()
    }

    pub(super) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Has the webhooks judge a write.
    pub(super) async fn admit(&self, world: &World, request: Request<'_>) -> Result<(Option<Value>, bool), String> {
        self.webhooks.admit(&self.url, request, world.settings.authors).await
    }

    /// A set as the gateway itself stores it for somebody: with a statement of theirs.
    pub(super) async fn sign(&self, request: Request<'_>) -> Option<Value> {
        self.webhooks.mutate(&self.url, request).await.unwrap()
    }

    /// Shows the gateway what is stored.
    pub(super) async fn publish(&mut self, world: &World) {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        wanted.insert("argocd-cm.yaml".to_owned(), argocd_cm(&world.settings).to_string());
        wanted.insert("prod.yaml".to_owned(), prod_cluster().to_string());
        for ((kind, name), stored) in &world.stored {
            wanted.insert(format!("{}-{name}.yaml", kind.plural()), stored.object.to_string());
        }
        let folder = self.world.path("state");
        for name in self.files.keys().filter(|name| !wanted.contains_key(*name)) {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        for (name, text) in &wanted {
            if self.files.get(name) != Some(text) {
                // Renamed into place, because the gateway may read at any time.
                let new = folder.join(format!(".{name}"));
                std::fs::write(&new, text).unwrap();
                std::fs::rename(&new, folder.join(name)).unwrap();
            }
        }
        if self.files != wanted {
            self.world.running.reload(ConfigPart::State).await;
            self.files = wanted;
        }
    }

    /// The world as each sequence finds it.
    pub(super) async fn begin(&mut self, settings: Settings) -> World {
        let settings = Settings {
            children: self.children,
            ..settings
        };
        let mut world = World {
            settings,
            stored: BTreeMap::new(),
            deleted: HashMap::new(),
            uids: 0,
        };
        for name in ["platform", "shop", "team-a", "other"] {
            world.begin_with(project(name), None, &Responsible::system());
        }
        for (name, project, server) in [
            ("root", "platform", IN_CLUSTER),
            ("prod-root", "platform", PROD),
            ("cart", "shop", IN_CLUSTER),
            ("theirs", "other", IN_CLUSTER),
            ("solo", "shop", IN_CLUSTER),
        ] {
            world.begin_with(application(name, project, server), None, &Responsible::person("admin"));
        }
        for (name, project, parent) in [("cart-child", "shop", "cart"), ("root-child", "team-a", "root")] {
            world.begin_with(
                application(name, project, IN_CLUSTER),
                Some(parent),
                &Responsible::parent(parent),
            );
        }
        self.publish(&world).await;
        for (name, spec, parent, author) in [
            ("apps", SetSpec::Literal("shop"), Some("root"), None),
            ("root-set", SetSpec::Templated("platform"), Some("root"), None),
            ("platform-set", SetSpec::Templated("platform"), None, Some("admin")),
            ("alice-set", SetSpec::Literal("shop"), None, Some("alice")),
            ("carol-set", SetSpec::Literal("shop"), None, Some("carol")),
        ] {
            let mut set = object(Kind::ApplicationSet, name, &set_spec(name, spec));
            set["metadata"]["uid"] = json!(format!("uid-of-{name}"));
            let responsible = match parent {
                Some(parent) => Responsible::parent(parent),
                None => Responsible::person(author.unwrap()),
            };
            if let Some(parent) = parent {
                set_claim(settings.by_label, &mut set, parent);
            }
            // Without the component nothing is signed for a parent. A set of a person came through
            // the gateway.
            if parent.is_none() || settings.authors {
                set = self.signed(set, author).await;
            }
            for generated in generate(&set) {
                world.begin_with(generated, None, &responsible);
            }
            world.begin_with(set, parent, &responsible);
        }
        self.publish(&world).await;
        world
    }

    /// A set with the statement of who writes it.
    async fn signed(&mut self, set: Value, author: Option<&'static str>) -> Value {
        let text = set.to_string();
        if let Some(signed) = self.signed.get(&text) {
            return signed.clone();
        }
        let writer = Writer::new(author.unwrap_or(CONTROLLER));
        let request = Request {
            writer: &writer,
            kind: Kind::ApplicationSet,
            name: name_of(&set),
            before: None,
            after: Some(set.clone()),
        };
        let signed = self.sign(request).await.unwrap();
        self.signed.insert(text, signed.clone());
        signed
    }
}

impl World {
    fn begin_with(&mut self, mut object: Value, parent: Option<&str>, responsible: &Responsible) {
        let kind = match object["kind"].as_str() {
            Some("Application") => Kind::Application,
            Some("ApplicationSet") => Kind::ApplicationSet,
            _ => Kind::AppProject,
        };
        let name = name_of(&object).to_owned();
        object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        if let Some(parent) = parent {
            set_claim(self.settings.by_label, &mut object, parent);
        }
        let parts = PARTS.iter().map(|(part, _)| *part).chain([CLAIM]);
        let origins = parts.map(|part| (part, responsible.clone())).collect();
        self.put(
            kind,
            &name,
            Some(Stored {
                object,
                origins,
                is_signed_later: false,
            }),
        );
    }
}

impl Writer {
    pub(super) fn new(username: &str) -> Self {
        Self {
            username: username.to_owned(),
            groups: groups(username).into_iter().map(str::to_owned).collect(),
        }
    }
}

fn argocd_cm(settings: &Settings) -> Value {
    let mut data = json!({
        "application.sync.impersonation.enabled": settings.impersonation.to_string(),
        "application.sync.requireOverridePrivilegeForRevisionSync": settings.strict_revisions.to_string(),
        "application.resourceTrackingMethod": if settings.by_label { "label" } else { "annotation" },
    });
    for account in ACCOUNTS {
        data[format!("accounts.{account}")] = json!("login");
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": NAMESPACE}, "data": data,
    })
}

fn prod_cluster() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "prod", "namespace": NAMESPACE, "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {"name": "prod", "server": PROD, "config": "{\"bearerToken\": \"a-token\"}"},
    })
}
