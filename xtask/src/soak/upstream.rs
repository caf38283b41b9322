//! Stands for everything that requests are passed on to: argocd-server, the backend of an extension, and
//! the API servers of clusters. It begins an answer to what is watched and says nothing more.

use anyhow::{Result, bail};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::http::{self, Request, Stand};

/// The server.
#[derive(Debug)]
pub(super) struct Upstream;

impl Stand for Upstream {
    async fn answer(&self, request: Request, stream: &mut TcpStream) -> Result<()> {
        let is_open = request.parameter("watch").is_some() || request.path.starts_with("/api/v1/stream/");
        if matches!(request.path.as_str(), "/api" | "/apis") {
            let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            return http::respond(stream, 200, media, discovery(&request.path).as_bytes()).await;
        }
        if !is_open {
            return http::respond(stream, 200, "application/json", b"{}").await;
        }
        http::begin(stream, "application/json").await?;
        http::chunk(stream, b"\n").await?;
        let mut sink = [0; 16];
        while stream.read(&mut sink).await? > 0 {}
        bail!("the gateway ended it")
    }
}

fn discovery(path: &str) -> String {
    let kind = json!({
        "resource": "configmaps", "responseKind": {"group": "", "version": "", "kind": "ConfigMap"},
        "scope": "Namespaced", "singularResource": "configmap", "verbs": ["get"],
    });
    let group = json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [kind]}]});
    let items = if path == "/api" { vec![group] } else { Vec::new() };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
        .to_string()
}
