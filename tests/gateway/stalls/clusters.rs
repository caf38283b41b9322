//! Rows of an agent, and of the API server that has the gateway's own objects.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, stream};
use reqwest::Method;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::WAITING;
use super::dependency::{Dependency, End, Meanwhile, Needs, Sign};
use crate::clusters::cluster;
use test_support::api_server::Api;
use test_support::authority::{Authority, Pair};
use test_support::kubernetes::agent::{AgentProcess, make_key};
use test_support::port::free_port;
use test_support::relay::{Mode, Relay};
use test_support::world::Setup;

/// An agent whose connection to the gateway, and to its API server, can stall.
struct Site {
    gateway: Relay,
    api_server: Relay,
    dependency: Dependency,
}

async fn site(setup: &mut Setup, sign: Sign, meanwhile: Meanwhile) -> Site {
    let public = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let authority = Authority::new("gateway");
    let balancer = end_tls(&authority, public).await;
    let gateway = Relay::to(&format!("https://{balancer}")).await;
    let api = Api::start(|_| (200, vec![("content-type", "application/json".into())], "{}".into())).await;
    let api_server = Relay::to(&api.url()).await;

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("gateway.pem", &authority.pem);
    write("api.pem", &api.ca_pem);
    write("token", "a-token");
    let key = make_key(folder.path()).await;
    let settings = json!({
        "gateway": gateway.url(), "certificateAuthority": "gateway.pem", "cluster": "prod", "key": "key.pem",
        "apiServer": {"url": api_server.url(), "certificateAuthority": "api.pem", "token": "token"},
        "ownAccount": "everything",
    });
    write("agent.yaml", &settings.to_string());
    let agent = AgentProcess::start(folder.path());
    let config = json!({"agent": {"publicKeys": [key]}});
    setup
        .objects
        .push(cluster("prod", "https://prod.invalid", &config, &[]));
    let needs = Needs {
        request: Box::new(|gateway| gateway.request(Method::GET, "alice", "/clusters/prod/k8s/version")),
        front: "clusters",
        waiting: WAITING,
        works: 200,
        is_asked_before: true,
        meanwhile,
    };
    let settings = json!({
        "listen": public, "clusters": {"forward": true}, "connectors": {"hosts": ["127.0.0.1"]},
    });
    let dependency = Dependency {
        needs: Some(needs),
        kept: vec![Box::new(agent), Box::new(folder)],
        ..Dependency::new(settings, sign)
    };
    Site {
        gateway,
        api_server,
        dependency,
    }
}

/// A balancer that ends TLS in front of a server.
async fn end_tls(authority: &Authority, server: SocketAddr) -> SocketAddr {
    let Pair { certificate, key } = authority.server(&["127.0.0.1"]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        );
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(stream).await else {
                    return;
                };
                if let Ok(mut server) = TcpStream::connect(server).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    address
}

/// Both ends notice that the other is silent, and the agent dials again.
pub(super) fn agent(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let sign = Sign {
            series: "tollgate_cluster_connectors{cluster=\"prod\"}",
            while_stalled: |agents| agents == 0.0,
            afterwards: |agents| agents == 1.0,
            alert: "TollgateClusterWithoutAgent",
        };
        let mut site = site(setup, sign, Meanwhile::Refused(502)).await;
        site.dependency.kept.push(Box::new(site.api_server));
        site.dependency.relayed(site.gateway)
    }
    .boxed_local()
}

pub(super) fn api_server_of_agent(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let cancelled = "tollgate_decisions_total{front=\"clusters\",outcome=\"cancelled\",reason=\"cancelled\"}";
        let sign = Sign::counter(cancelled, "TollgateRequestsGivenUp");
        let mut site = site(setup, sign, Meanwhile::Waits).await;
        site.dependency.kept.push(Box::new(site.gateway));
        site.dependency.relayed(site.api_server)
    }
    .boxed_local()
}

/// The objects of an API server, by the plural of their kind and their name, and its version.
#[derive(Clone)]
struct Objects(Arc<Mutex<BTreeMap<(String, String), Value>>>, watch::Sender<u64>);

impl Objects {
    fn put(&self, mut object: Value) {
        let plural = match object["kind"].as_str().unwrap() {
            "Secret" => "secrets",
            "ConfigMap" => "configmaps",
            "AppProject" => "appprojects",
            "Application" => "applications",
            other => panic!("no plural of {other}"),
        };
        // As an API server stores it.
        if let Some(Value::Object(texts)) = object.as_object_mut().unwrap().remove("stringData") {
            let encoded = texts
                .into_iter()
                .map(|(key, text)| (key, STANDARD.encode(text.as_str().unwrap()).into()));
            object["data"] = Value::Object(encoded.collect());
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut objects = self.0.lock().unwrap();
        let version = *self.1.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        object["metadata"]["uid"] = json!(format!("{plural}-{name}"));
        objects.insert((plural.to_owned(), name), object);
        self.1.send_replace(version);
    }

    /// The objects of a kind after a version, and the version now.
    fn after(&self, plural: &str, selector: &str, seen: u64) -> (Vec<Value>, u64) {
        let objects = self.0.lock().unwrap();
        let selected = selector
            .strip_prefix("metadata.name=")
            .map(|name| name.trim_start_matches('='));
        let found = objects.iter().filter(|((kind, name), object)| {
            let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            kind == plural && version > seen && selected.is_none_or(|selected| selected == name)
        });
        (found.map(|(_, object)| object.clone()).collect(), *self.1.borrow())
    }
}

async fn answer(
    State(objects): State<Objects>,
    Query(query): Query<BTreeMap<String, String>>,
    request: axum::extract::Request,
) -> Response {
    let plural = request.uri().path().rsplit('/').next().unwrap().to_owned();
    let selector = query.get("fieldSelector").cloned().unwrap_or_default();
    if request.method() != Method::GET {
        return (http::StatusCode::FORBIDDEN, "{\"kind\":\"Status\",\"code\":403}").into_response();
    }
    if !query.contains_key("watch") {
        let (items, version) = objects.after(&plural, &selector, 0);
        let metadata = json!({"resourceVersion": version.to_string()});
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items});
        return axum::Json(list).into_response();
    }
    let seen: u64 = query["resourceVersion"].parse().unwrap();
    let changed = objects.1.subscribe();
    let lines = stream::unfold((objects, changed, seen), move |(objects, mut changed, seen)| {
        let (plural, selector) = (plural.clone(), selector.clone());
        async move {
            changed.wait_for(|version| *version > seen).await.ok()?;
            let (new, seen) = objects.after(&plural, &selector, seen);
            let line = |object: &Value| json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
            let text: String = new.iter().map(line).collect();
            Some((Ok::<_, std::io::Error>(Bytes::from(text)), (objects, changed, seen)))
        }
    });
    ([("content-type", "application/json")], Body::from_stream(lines)).into_response()
}

/// It goes away, and when it accepts connections again it does not answer. What it would say about rights takes
/// effect when it does.
pub(super) fn api_server_of_state(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let objects = Objects(Arc::default(), watch::Sender::new(1));
        for object in setup.all_objects() {
            objects.put(object);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::to(&format!("http://{}", listener.local_addr().unwrap())).await;
        let router = Router::new().fallback(answer).with_state(objects.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "stalls",
            "clusters": [{"name": "stalls", "cluster": {"server": relay.url()}}],
            "users": [{"name": "stalls", "user": {}}],
            "contexts": [{"name": "stalls", "context": {"cluster": "stalls", "user": "stalls"}}],
        });
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let settings = json!({"state": {"directory": null, "kubernetes": {"kubeconfig": file}, "namespace": "argocd"}});
        let sign = Sign::gauge(
            "tollgate_watch_broken{resource=\"applications.argoproj.io\"}",
            "TollgateWatchBroken",
        );
        let set = move |stalls: bool| {
            if stalls {
                relay.set(Mode::Cut);
                relay.set(Mode::Stall);
            } else {
                relay.set(Mode::Pass);
            }
        };
        Dependency {
            set: Box::new(set),
            put: Some(Box::new(move |object| objects.put(object))),
            ends: End::WhenItAnswers,
            kept: vec![Box::new(folder)],
            ..Dependency::new(settings, sign)
        }
    }
    .boxed_local()
}
