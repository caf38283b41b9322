//! A fake cluster and the issuer of its tokens, with TLS, on loopback. The issuer counts its
//! tokens, and the API server accepts no others. Each run has its own certificate authority.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio_rustls::TlsAcceptor;

use crate::certificate::Certificate;

/// The key that the issuer accepts.
pub const BROKER_KEY: &str = "the-brokers-own-key";

/// A running cluster with its issuer.
#[derive(Debug)]
pub struct Cluster {
    /// Address of both the API server and the issuer.
    pub address: SocketAddr,
    /// Certificate authority, PEM.
    pub ca_pem: String,
}

/// Starts both on one free loopback port.
pub async fn start() -> Result<Cluster> {
    let certificate = Certificate::issue()?;
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let minted = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, minted) = (acceptor.clone(), Arc::clone(&minted));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request| answer(request, Arc::clone(&minted)));
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(Cluster {
        address,
        ca_pem: certificate.ca_pem,
    })
}

/// Whether the request is for aggregated discovery: the resources of all groups at once.
fn is_aggregated_discovery(head: &hyper::http::request::Parts) -> bool {
    let accepted = head.headers.get("accept").and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("APIGroupDiscoveryList"))
}

/// Response to aggregated discovery: two resources of the core group.
fn discovery(path: &str) -> serde_json::Value {
    let kind = |resource: &str, kind: &str| {
        json!({"resource": resource, "responseKind": {"group": "", "version": "v1", "kind": kind},
               "scope": "Namespaced", "singularResource": kind.to_lowercase(), "verbs": ["create"]})
    };
    let resources = [kind("configmaps", "ConfigMap"), kind("secrets", "Secret")];
    let group = json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": resources}]});
    let items = if path == "/api" { vec![group] } else { Vec::new() };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

async fn answer(request: Request<Incoming>, minted: Arc<AtomicU64>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let authorization = head
        .headers
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let (status, content) = match head.uri.path() {
        "/token" if authorization == format!("Bearer {BROKER_KEY}") && body.starts_with(b"cluster=") => {
            let number = minted.fetch_add(1, Ordering::Relaxed) + 1;
            (
                StatusCode::OK,
                json!({"access_token": format!("demo-token-{number}"), "expires_in": 3600}),
            )
        }
        "/token" => (StatusCode::UNAUTHORIZED, json!({"error": "invalid_client"})),
        path @ ("/api" | "/apis")
            if is_aggregated_discovery(&head) && authorization.starts_with("Bearer demo-token-") =>
        {
            (StatusCode::OK, discovery(path))
        }
        path if path.starts_with("/api") && authorization.starts_with("Bearer demo-token-") => {
            let latest = minted.load(Ordering::Relaxed);
            let values = |name: &str| -> Vec<String> {
                let lines = head.headers.get_all(name).iter();
                lines
                    .map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned())
                    .collect()
            };
            let mut content = json!({"kind": "APIVersions", "versions": ["v1"], "path": path, "tokensMinted": latest});
            if let Some(user) = values("impersonate-user").first() {
                content["impersonated"] = json!({"user": user, "groups": values("impersonate-group")});
            }
            (StatusCode::OK, content)
        }
        _ => (
            StatusCode::UNAUTHORIZED,
            json!({"kind": "Status", "status": "Failure", "code": 401}),
        ),
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    Ok(response
        .body(Full::new(Bytes::from(content.to_string() + "\n")))
        .unwrap_or_default())
}
