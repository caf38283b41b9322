//! The webhook's certificate, which the gateway makes and renews with the rights of the shipped
//! manifests. The API server calls it by its Service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_config::raw;
use tollgate_gateway::running::RunningGateway;
use tollgate_identity::clock::Clock;

use super::{AUTHOR, NAMESPACE, application, patch, set, write_control_plane};
use crate::deployment::{Overlay, grants, missing};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{base64, kubeconfig};
use test_support::kubernetes::kubectl::{Credential, Run};
use test_support::kubernetes::webhook::{Webhook, server_name};
use test_support::world::{checker, checkout, copy_tree};

const SECRET: &str = "tollgate-admission-tls";
const ACCOUNT: &str = "system:serviceaccount:argocd:tollgate";
/// Of the webhook configurations.
const NAME: &str = "tollgate-admission";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";

/// How often the gateway looks.
const INTERVAL: Duration = Duration::from_secs(10);

/// An API server with Argo CD's objects and the shipped manifests, before any gateway runs.
///
/// Fields end in this order.
struct ControlPlane {
    cluster: Cluster,
    webhook: Webhook,
    manifests: Vec<Value>,
    token: String,
}

/// A gateway in this process, whose clock the test moves.
struct Replica {
    gateway: RunningGateway,
    clock: Clock,
    _folder: TempDir,
}

impl ControlPlane {
    async fn start() -> Self {
        let webhook = Webhook::new();
        let cluster = webhook.start_cluster().await;
        cluster.with_crds().await;
        let admin = cluster.admin();
        admin.succeed(&["create", "namespace", NAMESPACE]).await;
        write_control_plane(&cluster).await;
        for user in ["alice", "bob"] {
            let binding = format!("--user={user}");
            let name = format!("everything-{user}");
            admin
                .succeed(&[
                    "create",
                    "clusterrolebinding",
                    &name,
                    "--clusterrole=cluster-admin",
                    &binding,
                ])
                .await;
        }
        let components = ["admission", "admission-author", "write-applicationsets"];
        let mut manifests = Overlay::new(NAMESPACE, &components).objects(&cluster).await;
        for object in &mut manifests {
            // The API server has no way to the address of a Service; it looks up the name of this kind of
            // Service and calls it by the same name in TLS.
            if object["kind"] == "Service" && object["metadata"]["name"] == "tollgate-admission" {
                object["spec"] = json!({"type": "ExternalName", "externalName": "localhost"});
            }
            for one in object["webhooks"].as_array_mut().into_iter().flatten() {
                one["clientConfig"]["service"]["port"] = json!(webhook.port());
            }
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        admin.apply(&list.to_string()).await;
        let create = ["create", "token", "tollgate", "--namespace", NAMESPACE];
        let token = admin.succeed(&create).await.trim().to_owned();
        Self {
            cluster,
            webhook,
            manifests,
            token,
        }
    }

    /// Starts a gateway with the rights of the manifests. Only the one on the webhook's own port gets
    /// reviews.
    async fn gateway(&self, port: u16) -> anyhow::Result<Replica> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        copy_tree(&checkout().join("policies"), &root.join("policies"));
        std::fs::create_dir(root.join("plugins"))?;
        std::fs::write(root.join("clients.pem"), self.webhook.client_authority())?;
        let server = json!({
            "server": self.cluster.url(), "certificate-authority-data": base64(self.cluster.authority()),
        });
        std::fs::write(
            root.join("kubeconfig"),
            kubeconfig(&server, &json!({"token": self.token})),
        )?;
        let settings = json!({
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": "kubeconfig"}},
            "policies": {"directory": "policies"},
            "plugins": {"directory": "plugins", "cache": "cache"},
            "authentication": {"argocdSessions": true},
            "applications": {},
            "applicationSets": {},
            "admission": {
                "listen": format!("127.0.0.1:{port}"),
                "tls": {"secret": SECRET},
                "clientCertificateAuthority": "clients.pem",
            },
        });
        std::fs::write(root.join("tollgate.yaml"), settings.to_string())?;
        let loaded = raw::load(&root.join("tollgate.yaml"));
        let config = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let clock = Clock::default();
        let gateway = RunningGateway::start_with(Arc::new(config), checker(), clock.clone(), None).await?;
        Ok(Replica {
            gateway,
            clock,
            _folder: folder,
        })
    }

    /// Starts the gateway that the API server calls.
    async fn called(&self) -> Replica {
        self.gateway(self.webhook.port()).await.unwrap()
    }

    /// The values of the Secret.
    async fn secret(&self) -> Value {
        let get = ["get", "secret", SECRET, "--namespace", NAMESPACE];
        let mut data = self.cluster.admin().json(&get).await["data"].take();
        for value in data.as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
            *value = json!(decoded(value));
        }
        data
    }

    /// The authorities in the webhook of a kind.
    async fn bundle(&self, kind: &str) -> String {
        let configuration = self.cluster.admin().json(&["get", kind, NAME]).await;
        decoded(&configuration["webhooks"][0]["clientConfig"]["caBundle"])
    }

    /// Writes an Application as somebody, on the API server alone.
    async fn probe(&self, user: &str) -> Run {
        let identity = format!("--as={user}");
        let apply = ["apply", "--filename=-", "--dry-run=server", &identity];
        let object = application("probe", "shop").to_string();
        self.cluster.admin().run_with(&apply, &object).await
    }

    /// Whether the webhook judges: bob may not, and alice may.
    async fn is_judged(&self) -> bool {
        let (bob, alice) = (self.probe("bob").await, self.probe("alice").await);
        let refused = bob.stderr.contains("`applications, create` is not permitted");
        refused && alice.status.success()
    }

    async fn until_judged(&self) {
        eventually("the webhook judges", async || self.is_judged().await.then_some(())).await;
    }

    async fn apply_patch(&self, kind: &str, patch: &Value) {
        let merge = ["patch", kind, NAME, "--type=json", &self::patch(patch)];
        self.cluster.admin().succeed(&merge).await;
    }
}

impl Replica {
    fn address(&self) -> SocketAddr {
        self.gateway.admission_address().unwrap()
    }

    /// The certificate that a client gets that trusts these authorities.
    async fn certificate(&self, authorities: &str) -> Result<CertificateDer<'static>, std::io::Error> {
        let mut roots = rustls::RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(self.address()).await?;
        let name = ServerName::try_from(server_name()).unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await?;
        Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned())
    }
}

fn decoded(value: &Value) -> String {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn parsed(pem: &Value) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_str().unwrap().as_bytes()).unwrap()
}

#[tokio::test]
async fn writes_are_judged_without_a_certificate_made_by_hand() {
    let plane = ControlPlane::start().await;
    assert_eq!(plane.secret().await, Value::Null);
    // An API server takes a moment to see a new webhook.
    eventually("nothing is written unjudged", async || {
        let run = plane.probe("alice").await;
        run.stderr.contains("failed calling webhook").then_some(())
    })
    .await;

    let replica = plane.called().await;
    plane.until_judged().await;
    let data = plane.secret().await;
    let mut names: Vec<&String> = data.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["ca.crt", "tls.crt", "tls.key"]);
    for kind in [VALIDATING, MUTATING] {
        assert_eq!(json!(plane.bundle(kind).await), data["ca.crt"], "{kind}");
    }
    let served = replica.certificate(data["ca.crt"].as_str().unwrap()).await.unwrap();
    assert_eq!(served, parsed(&data["tls.crt"]));
    // The other webhook trusts it as well.
    let apply = ["apply", "--filename=-", "--as=alice"];
    eventually("a set is written", async || {
        let run = plane
            .cluster
            .admin()
            .run_with(&apply, &set("mine", "shop").to_string())
            .await;
        run.status.success().then_some(())
    })
    .await;
    let get = ["get", "applicationset", "mine", "--namespace", NAMESPACE];
    let stored = plane.cluster.admin().json(&get).await;
    assert!(stored["metadata"]["annotations"][AUTHOR].is_string(), "{stored}");
    // A client that trusts another authority does not trust it.
    let stranger = test_support::authority::Authority::new("stranger");
    assert!(replica.certificate(&stranger.pem).await.is_err());

    // Anything that somebody breaks is fixed.
    let path = "/webhooks/0/clientConfig/caBundle";
    for kind in [VALIDATING, MUTATING] {
        for broken in [
            json!([{"op": "replace", "path": path, "value": base64(&stranger.pem)}]),
            json!([{"op": "remove", "path": path}]),
        ] {
            plane.apply_patch(kind, &broken).await;
            assert_ne!(json!(plane.bundle(kind).await), data["ca.crt"]);
            replica.clock.advance(INTERVAL);
            eventually("the authorities are back", async || {
                (json!(plane.bundle(kind).await) == data["ca.crt"]).then_some(())
            })
            .await;
        }
    }
    plane.until_judged().await;
    assert_eq!(plane.secret().await, data);

    // An emptied Secret gets another certificate.
    let empty = patch(&json!([{"op": "remove", "path": "/data"}]));
    let empty = [
        "patch",
        "secret",
        SECRET,
        "--namespace",
        NAMESPACE,
        "--type=json",
        &empty,
    ];
    plane.cluster.admin().succeed(&empty).await;
    replica.clock.advance(INTERVAL);
    let other = eventually("another certificate is served", async || {
        let other = plane.secret().await;
        let served = replica.certificate(other["ca.crt"].as_str()?).await.ok()?;
        (served == parsed(&other["tls.crt"])).then_some(other)
    })
    .await;
    assert_ne!(other["tls.crt"], data["tls.crt"]);
    assert!(replica.certificate(data["ca.crt"].as_str().unwrap()).await.is_err());
    plane.until_judged().await;
}

/// Anyone who has the gateway's token must not have the whole cluster's writes sent elsewhere.
#[tokio::test]
async fn the_gateway_changes_nothing_of_its_webhooks_but_the_authorities() {
    let plane = ControlPlane::start().await;
    let gateway = plane.cluster.kubectl(Credential::Token(plane.token.clone()));
    let webhook = |name: &str, more: Value| {
        let mut webhook = json!({"name": name});
        webhook
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"webhooks": [webhook]})
    };
    let author = "author.admission.tollgate.dev";
    let everything = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"],
    }]);
    for (kind, name) in [(VALIDATING, "admission.tollgate.dev"), (MUTATING, author)] {
        let run = async |change: &Value| {
            let change = patch(change);
            gateway.run(&["patch", kind, NAME, "--type=strategic", &change]).await
        };
        let authorities = webhook(
            name,
            json!({"clientConfig": {"caBundle": base64(plane.cluster.authority())}}),
        );
        let selector = json!({"matchLabels": {"a": "b"}});
        for change in [
            webhook(name, json!({"rules": everything})),
            webhook(name, json!({"clientConfig": {"service": {"name": "mine"}}})),
            webhook(name, json!({"clientConfig": {"service": {"path": "/mine"}}})),
            webhook(
                name,
                json!({"clientConfig": {"service": null, "url": "https://mine.invalid/"}}),
            ),
            webhook(
                name,
                json!({"matchConditions": [{"$patch": "delete", "name": "definition"}]}),
            ),
            webhook(name, json!({"failurePolicy": "Ignore"})),
            webhook(name, json!({"timeoutSeconds": 1})),
            webhook(name, json!({"namespaceSelector": selector})),
            webhook(name, json!({"objectSelector": selector})),
            webhook(name, json!({"matchPolicy": "Exact"})),
            json!({"webhooks": [{"$patch": "delete", "name": name}]}),
            webhook(
                "another.tollgate.dev",
                json!({
                    "clientConfig": {"url": "https://mine.invalid/"}, "rules": everything,
                    "sideEffects": "None", "admissionReviewVersions": ["v1"],
                }),
            ),
            json!({"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "mine/mine"}}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"finalizers": ["example.com/a"]}}),
        ] {
            let before = plane.cluster.admin().json(&["get", kind, NAME]).await;
            // An API server takes a moment to see a new policy.
            eventually("the policy is in force", async || {
                let refused = gateway
                    .run(&[
                        "patch",
                        kind,
                        NAME,
                        "--dry-run=server",
                        "--type=strategic",
                        &patch(&change),
                    ])
                    .await;
                refused
                    .stderr
                    .contains("may change nothing of this one but `caBundle`")
                    .then_some(())
            })
            .await;
            let refused = run(&change).await;
            assert!(
                !refused.status.success() && refused.stderr.contains("may change nothing of this one but `caBundle`"),
                "{change}: {}",
                refused.stderr
            );
            let after = plane.cluster.admin().json(&["get", kind, NAME]).await;
            assert_eq!(after, before, "{change}");
        }
        let taken = run(&authorities).await;
        assert!(taken.status.success(), "{}", taken.stderr);
        assert_eq!(plane.bundle(kind).await, plane.cluster.authority());
        // Nor may it have another one, or none.
        let list = gateway.run(&["get", kind]).await;
        assert!(list.stderr.contains("cannot list resource"), "{}", list.stderr);
        let gone = gateway.run(&["delete", kind, NAME]).await;
        assert!(gone.stderr.contains("cannot delete resource"), "{}", gone.stderr);
        // The policy binds nobody else.
        let by_admin = ["patch", kind, NAME, "--type=strategic"];
        let change = patch(&webhook(name, json!({"timeoutSeconds": 5})));
        plane
            .cluster
            .admin()
            .succeed(&[&by_admin[..], &[&change]].concat())
            .await;
    }
}

/// A certificate of another maker that ends in 20 days.
fn ending_soon() -> [(&'static str, String); 3] {
    let end = jiff::Zoned::now()
        .date()
        .checked_add(jiff::Span::new().days(20))
        .unwrap();
    let end = date_time_ymd(end.year().into(), end.month().unsigned_abs(), end.day().unsigned_abs());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "former");
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let mut leaf = CertificateParams::new([server_name()]).unwrap();
    leaf.not_after = end;
    let certificate = leaf.signed_by(&key, &Issuer::new(params, authority_key)).unwrap().pem();
    [
        ("tls.crt", certificate),
        ("tls.key", key.serialize_pem()),
        ("ca.crt", authority),
    ]
    .map(|(name, pem)| (name, pem.replace('\r', "")))
}

#[tokio::test]
async fn a_certificate_that_ends_soon_is_renewed_while_writes_are_judged() {
    let plane = ControlPlane::start().await;
    let former = ending_soon();
    let data: Value = former.iter().map(|(name, pem)| (*name, json!(base64(pem)))).collect();
    let add = patch(&json!([{"op": "add", "path": "/data", "value": data}]));
    let add = ["patch", "secret", SECRET, "--namespace", NAMESPACE, "--type=json", &add];
    plane.cluster.admin().succeed(&add).await;
    let [(_, certificate), _, (_, authority)] = &former;

    let (called, other) = tokio::join!(plane.called(), plane.gateway(0));
    let other = other.unwrap();
    plane.until_judged().await;
    let prepared = plane.secret().await;
    assert_eq!(prepared["tls.crt"], *certificate);
    let next = prepared["next-ca.crt"].as_str().unwrap();
    for replica in [&called, &other] {
        let served = replica.certificate(authority).await.unwrap();
        assert_eq!(served, parsed(&prepared["tls.crt"]));
        assert!(replica.certificate(next).await.is_err());
    }
    for kind in [VALIDATING, MUTATING] {
        assert_eq!(plane.bundle(kind).await, format!("{authority}{next}"), "{kind}");
    }
    // Looking again changes nothing.
    called.clock.advance(INTERVAL);
    called.clock.advance(Duration::from_mins(50));
    assert!(plane.is_judged().await);
    assert_eq!(plane.secret().await, prepared);

    // An hour later one replica makes the change; each request in between is judged.
    called.clock.advance(Duration::from_mins(10));
    let renewed = parsed(&prepared["next.crt"]);
    eventually("the next certificate is served", async || {
        assert!(plane.is_judged().await);
        (called.certificate(next).await.ok()? == renewed).then_some(())
    })
    .await;
    assert!(plane.is_judged().await);
    let used = plane.secret().await;
    assert_eq!(used["tls.crt"], prepared["next.crt"]);
    assert_eq!(used["next.crt"], Value::Null);
    let bundle = format!("{next}{authority}");
    eventually("both authorities are known", async || {
        (plane.bundle(VALIDATING).await == bundle && plane.bundle(MUTATING).await == bundle).then_some(())
    })
    .await;
    // The other one is trusted as well, before it follows and after.
    let served = other.certificate(&bundle).await.unwrap();
    assert!(served == parsed(&prepared["tls.crt"]) || served == renewed);
    other.clock.advance(INTERVAL);
    eventually("the other replica follows", async || {
        (other.certificate(&bundle).await.unwrap() == renewed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn replicas_that_start_at_once_share_one_certificate() {
    let plane = ControlPlane::start().await;
    let (first, second, third) = tokio::join!(plane.called(), plane.gateway(0), plane.gateway(0));
    let data = plane.secret().await;
    let authorities = data["ca.crt"].as_str().unwrap();
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 1);
    for replica in [&first, &second.unwrap(), &third.unwrap()] {
        let served = replica.certificate(authorities).await.unwrap();
        assert_eq!(served, parsed(&data["tls.crt"]));
    }
    plane.until_judged().await;
}

#[tokio::test]
async fn without_a_right_the_gateway_says_which_and_serves_nothing() {
    let plane = ControlPlane::start().await;
    let admin = plane.cluster.admin();
    let fails = async || {
        let error = plane
            .gateway(plane.webhook.port())
            .await
            .err()
            .expect("it does not start");
        assert!(
            tokio::net::TcpStream::connect(("127.0.0.1", plane.webhook.port()))
                .await
                .is_err(),
            "it listens"
        );
        format!("{error:#}")
    };
    // An API server takes a moment to see a change of rights.
    let until = async |what: &str, expected: bool| {
        let ask = ["auth", "can-i", "get", what, "--as", ACCOUNT, "--namespace", NAMESPACE];
        eventually(&format!("get {what}: {expected}"), async || {
            (admin.run(&ask).await.status.success() == expected).then_some(())
        })
        .await;
    };
    // Each right, with what the manifests grant.
    let secret = format!("secret/{SECRET}");
    let roles = [
        ("clusterrole", "tollgate-admission", &*format!("{VALIDATING}/{NAME}")),
        (
            "clusterrole",
            "tollgate-admission-author",
            &format!("{MUTATING}/{NAME}"),
        ),
        ("role", "tollgate-admission", &secret),
    ];
    for (kind, name, what) in roles {
        let binding = format!("{kind}binding");
        let is_it = |object: &&Value, kind: &str| {
            object["kind"].as_str().unwrap().to_lowercase() == kind && object["metadata"]["name"] == name
        };
        let role = plane.manifests.iter().find(|object| is_it(object, kind)).unwrap();
        let bound = plane.manifests.iter().find(|object| is_it(object, &binding)).unwrap();
        admin
            .succeed(&["delete", &binding, name, "--namespace", NAMESPACE])
            .await;
        until(what, false).await;
        let error = fails().await;
        let rules = missing(&error);
        assert_eq!(grants(&rules), grants(role["rules"].as_array().unwrap()), "{error}");
        assert!(error.contains("`admission.tls.secret`"), "{error}");
        assert_eq!(plane.secret().await, Value::Null, "{name}");
        assert_eq!(plane.bundle(VALIDATING).await, "");
        admin.apply(&bound.to_string()).await;
        until(what, true).await;
    }
    let delete = ["delete", "secret", SECRET, "--namespace", NAMESPACE];
    admin.succeed(&delete).await;
    let error = fails().await;
    assert!(
        error.contains("Secret `argocd/tollgate-admission-tls` does not exist"),
        "{error}"
    );
    let secret = plane
        .manifests
        .iter()
        .find(|object| object["kind"] == "Secret")
        .unwrap();
    admin.apply(&secret.to_string()).await;

    // With all of them it starts, and goes on with what it has when one is taken away.
    let replica = plane.called().await;
    plane.until_judged().await;
    let before = plane.secret().await;
    admin
        .succeed(&["delete", "clusterrolebinding", "tollgate-admission"])
        .await;
    until(roles[0].2, false).await;
    replica.clock.advance(INTERVAL);
    plane.until_judged().await;
    assert_eq!(plane.secret().await, before);
}
