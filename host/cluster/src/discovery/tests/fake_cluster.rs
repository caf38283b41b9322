//! A cluster on loopback with scripted answers.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::access::ClusterAccess;
use tollgate_credential::Credential;
use tollgate_credential::cache::Lease;
use tollgate_plugin::credential_source::CredentialSource;

pub(super) const AGGREGATED_APPS: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
  {"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[
    {"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"scope":"Namespaced",
     "singularResource":"deployment","verbs":["create"],"subresources":[
       {"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["patch"]}]}]}]},
  {"metadata":{"name":"example.com"},"versions":[
    {"version":"v2","resources":[
      {"resource":"things","responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Cluster","verbs":[]}]},
    {"version":"v1","resources":[
      {"resource":"things","responseKind":{"group":"","version":"","kind":"OldThing"},"scope":"Namespaced","verbs":[]},
      {"resource":"parents","responseKind":{},"scope":"Namespaced","verbs":[]},
      {"resource":"kindless","scope":"Namespaced","verbs":[]},
      {"resource":"placeless","responseKind":{"group":"","version":"","kind":"Placeless"},"verbs":[]},
      {"resource":"odd","responseKind":{"group":"","version":"","kind":"Odd"},"scope":"Galaxy","verbs":[]}]}]},
  {"metadata":{},"versions":[{"version":"v1","resources":[
    {"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Smuggled"},"scope":"Cluster","verbs":[]}]}]}]}"#;

pub(super) const AGGREGATED_CORE: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
  {"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","resources":[
    {"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","verbs":[],
     "subresources":[{"subresource":"eviction","responseKind":{"group":"policy","version":"v1","kind":"Eviction"},"verbs":[]}]},
    {"resource":"namespaces","responseKind":{"group":"","version":"v1","kind":"Namespace"},"scope":"Cluster","verbs":[]}]}]},
  {"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[
    {"resource":"deployments","responseKind":{"group":"","version":"v1","kind":"Smuggled"},"scope":"Cluster","verbs":[]}]}]}]}"#;

/// How a fake cluster answers a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Content(u16, String),
    /// It reads the request and never answers.
    Silence,
}

#[derive(Debug)]
struct Script {
    answers: Mutex<HashMap<String, Answer>>,
    /// The only value of `Authorization` that is accepted. `None` accepts every value.
    accepted: Option<String>,
    /// One permit for each request.
    gate: Semaphore,
    requests: watch::Sender<Vec<String>>,
}

/// A cluster with scripted answers.
#[derive(Clone, Debug)]
pub(super) struct FakeCluster {
    pub(super) server: String,
    script: Arc<Script>,
}

impl FakeCluster {
    pub(super) async fn start(answers: &[(&str, &str)]) -> Self {
        Self::accepting(None, answers).await
    }

    /// As [`FakeCluster::start`], but answers 401 to every other `Authorization`.
    pub(super) async fn accepting(accepted: Option<&str>, answers: &[(&str, &str)]) -> Self {
        let script = Arc::new(Script {
            answers: Mutex::default(),
            accepted: accepted.map(str::to_owned),
            gate: Semaphore::new(1000),
            requests: watch::Sender::new(Vec::new()),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&script));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let fake = Self { server, script };
        for (path, content) in answers {
            fake.set_answer(path, Answer::Content(200, (*content).to_owned()));
        }
        fake
    }

    pub(super) fn set_answer(&self, path: &str, answer: Answer) {
        self.script.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    /// Holds every request back until [`Self::release`].
    pub(super) fn hold(&self) {
        self.script.gate.forget_permits(usize::MAX);
    }

    pub(super) fn release(&self) {
        self.script.gate.add_permits(1000);
    }

    /// The requests since the last call, with `+` after the path where aggregated discovery is
    /// accepted.
    pub(super) fn take_requests(&self) -> Vec<String> {
        self.script.requests.send_replace(Vec::new())
    }

    pub(super) async fn wait_for_requests(&self, count: usize) {
        let mut requests = self.script.requests.subscribe();
        requests.wait_for(|requests| requests.len() >= count).await.unwrap();
    }

    /// The access to it without a credential.
    pub(super) fn access(&self) -> Arc<ClusterAccess> {
        let lease = Lease {
            credential: Arc::new(Credential::anonymous()),
            generation: 1,
        };
        self.access_with(CredentialSource::Static(lease))
    }

    pub(super) fn access_with(&self, credential_source: CredentialSource) -> Arc<ClusterAccess> {
        ClusterAccess::at(&self.server, credential_source)
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let is_accepted = {
        let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap());
        let is_aggregated = text(ACCEPT).unwrap().contains("as=APIGroupDiscoveryList");
        let line = format!("{} {path}{}", request.method(), if is_aggregated { "+" } else { "" });
        script.requests.send_modify(|requests| requests.push(line));
        script.accepted.is_none() || text(AUTHORIZATION) == script.accepted.as_deref()
    };
    drop(request);
    if !is_accepted {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    script.gate.acquire().await.unwrap().forget();
    let scripted = script.answers.lock().unwrap().get(&path).cloned();
    match scripted {
        Some(Answer::Content(status, content)) => {
            let status = StatusCode::from_u16(status).unwrap();
            (status, [(CONTENT_TYPE, "application/json")], content).into_response()
        }
        Some(Answer::Silence) => std::future::pending().await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
