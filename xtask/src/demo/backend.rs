//! An extension backend that echoes each request as JSON.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Map, Value, json};

/// Starts a backend called `name` on a free loopback port.
pub async fn start(name: &'static str) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service = service_fn(move |request| echo(name, request));
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(address)
}

async fn echo(name: &'static str, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut headers = Map::new();
    for (field, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let all = headers
            .entry(field.as_str())
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Some(all) = all.as_array_mut() {
            all.push(value.into());
        }
    }
    let body = body.collect().await.map(|body| body.to_bytes().len()).unwrap_or(0);
    let answer = json!({
        "backend": name,
        "method": head.method.as_str(),
        "path": head.uri.to_string(),
        "headers": headers,
        "bodyBytes": body,
    });
    let mut text = serde_json::to_vec_pretty(&answer).unwrap_or_default();
    text.push(b'\n');
    let response = Response::builder()
        .header("content-type", "application/json")
        .header("server", "echo/1.0");
    Ok(response.body(Full::new(Bytes::from(text))).unwrap_or_default())
}
