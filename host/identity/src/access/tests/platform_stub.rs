//! A stub of a platform on loopback for tests: it returns a preset response and keeps the requests.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;
use url::Url;

/// A request that the stub received.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) line: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

#[derive(Clone)]
pub(crate) struct Stub {
    inner: Arc<Inner>,
}

struct Inner {
    response: Mutex<(u16, String)>,
    requests: Mutex<Vec<RecordedRequest>>,
    url: Mutex<Option<Url>>,
}

impl Stub {
    pub(crate) async fn start() -> Self {
        let stub = Self {
            inner: Arc::new(Inner {
                response: Mutex::new((200, String::new())),
                requests: Mutex::default(),
                url: Mutex::default(),
            }),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/gitlab/", listener.local_addr().unwrap());
        *stub.inner.url.lock().unwrap() = Some(url.parse().unwrap());
        let router = Router::new().fallback(handle).with_state(stub.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        stub
    }

    pub(crate) fn url(&self) -> Url {
        self.inner.url.lock().unwrap().clone().unwrap()
    }

    pub(crate) fn respond_with(&self, status: u16, body: &(impl ToString + ?Sized)) {
        *self.inner.response.lock().unwrap() = (status, body.to_string());
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.inner.requests.lock().unwrap().clone()
    }
}

async fn handle(State(stub): State<Stub>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    stub.inner.requests.lock().unwrap().push(RecordedRequest {
        line: format!("{} {}", head.method, head.uri),
        headers: head.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    });
    let (status, body) = stub.inner.response.lock().unwrap().clone();
    Response::builder()
        .status(status)
        .header("location", "/elsewhere")
        .body(Body::from(body))
        .unwrap()
}
