//! Tests of batches against an API server with injected faults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};

use crate::write::batch::{BatchError, Propagation, Write};
use crate::write::{ClusterWriter, Error, ObjectKey, ResourceVersion, WritableKind, Writer, merge};
use tollgate_objects::ObjectName;

/// What the server does with a request instead of answering normally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It refuses the request.
    Refused,
    /// It executes the request, and the response is lost.
    ResponseLost,
    /// A controller writes a status before the request.
    StatusWrittenFirst,
    /// Somebody writes the spec before the request.
    SpecWrittenFirst,
}

#[derive(Debug, Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    versions: u64,
    /// Method, object name and fault of the requests that fail, each of them once.
    faults: Vec<(Method, String, Fault)>,
    requests: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Server(Arc<Mutex<Store>>);

impl Server {
    fn with(names: &[&str]) -> Self {
        let server = Self::default();
        for name in names {
            let mut store = server.0.lock().unwrap();
            let version = store.next();
            let mut object = application(name, "v1");
            object["metadata"]["uid"] = json!(format!("uid-{name}"));
            object["metadata"]["resourceVersion"] = json!(version);
            object["status"] = json!({"health": "Healthy"});
            store.objects.insert((*name).to_owned(), object);
        }
        server
    }

    fn inject(&self, method: Method, name: &str, fault: Fault) {
        self.0.lock().unwrap().faults.push((method, name.to_owned(), fault));
    }

    fn writer(&self) -> Writer {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let content = body.collect().await.unwrap().to_bytes();
                let content = serde_json::from_slice(&content).unwrap_or_default();
                Ok::<_, Infallible>(server.0.lock().unwrap().answer(&head, &content))
            }
        });
        Writer::Cluster(ClusterWriter::new(kube::Client::new(service, "argocd")))
    }

    fn object(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(name).cloned()
    }

    /// Names and their revisions.
    fn revisions(&self) -> Vec<(String, String)> {
        let store = self.0.lock().unwrap();
        let of = store.objects.iter();
        of.map(|(name, object)| (name.clone(), object["spec"]["revision"].as_str().unwrap().to_owned()))
            .collect()
    }

    fn count(&self, part: &str) -> usize {
        let store = self.0.lock().unwrap();
        store.requests.iter().filter(|request| request.contains(part)).count()
    }
}

impl Store {
    fn next(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    fn answer(&mut self, head: &http::request::Parts, content: &Value) -> Response<Full<bytes::Bytes>> {
        let name = head.uri.path().rsplit('/').next().unwrap().to_owned();
        let name = match content["metadata"]["name"].as_str() {
            Some(named) if head.method == Method::POST => named.to_owned(),
            _ => name,
        };
        let is_dry = content["dryRun"] == json!(["All"]);
        self.requests
            .push(format!("{}{} {name}", if is_dry { "dry " } else { "" }, head.method));
        let at = self.faults.iter().position(|(method, of, fault)| {
            *method == head.method && *of == name && (!is_dry || *fault == Fault::Refused)
        });
        let fault = at.map(|at| self.faults.remove(at).2);
        let (code, answer) = match fault {
            Some(Fault::Refused) => refusal(403, "Forbidden"),
            other => {
                self.write_concurrently(other, &name);
                self.act(&head.method, &name, is_dry, content)
            }
        };
        let (code, answer) = match fault {
            Some(Fault::ResponseLost) => refusal(504, "Timeout"),
            _ => (code, answer),
        };
        let body = Full::new(bytes::Bytes::from(answer.to_string()));
        Response::builder().status(code).body(body).unwrap()
    }

    fn write_concurrently(&mut self, fault: Option<Fault>, name: &str) {
        let version = self.next();
        let Some(object) = self.objects.get_mut(name) else {
            return;
        };
        match fault {
            Some(Fault::StatusWrittenFirst) => object["status"] = json!({"health": "Degraded"}),
            Some(Fault::SpecWrittenFirst) => object["spec"]["revision"] = json!("theirs"),
            _ => return,
        }
        object["metadata"]["resourceVersion"] = json!(version);
    }

    fn act(&mut self, method: &Method, name: &str, is_dry: bool, content: &Value) -> (u16, Value) {
        let version = self.next();
        let found = self.objects.get(name).cloned();
        let is_current =
            |expected: &Value, found: &Value| expected.is_null() || *expected == found["metadata"]["resourceVersion"];
        match (method, found) {
            (&Method::POST, Some(_)) => refusal(409, "AlreadyExists"),
            (&Method::POST, None) => {
                let mut object = content.clone();
                object["metadata"]["uid"] = json!(format!("new-{version}"));
                object["metadata"]["resourceVersion"] = json!(version);
                self.objects.insert(name.to_owned(), object.clone());
                (201, object)
            }
            (_, None) => refusal(404, "NotFound"),
            (&Method::PATCH, Some(found)) if !is_current(&content["metadata"]["resourceVersion"], &found) => {
                refusal(409, "Conflict")
            }
            (&Method::PATCH, Some(mut object)) => {
                merge(&mut object, content);
                object["metadata"]["resourceVersion"] = json!(version);
                self.objects.insert(name.to_owned(), object.clone());
                (200, object)
            }
            (&Method::DELETE, Some(found)) if !is_current(&content["preconditions"]["resourceVersion"], &found) => {
                refusal(409, "Conflict")
            }
            (&Method::DELETE, Some(found)) => {
                if !is_dry {
                    self.objects.remove(name);
                }
                (200, found)
            }
            (_, Some(found)) => (200, found),
        }
    }
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no",
    });
    (code, status)
}

fn application(name: &str, revision: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": name, "namespace": "argocd",
            "ownerReferences": [{"kind": "ApplicationSet", "name": "web", "uid": "u", "controller": true}],
        },
        "spec": {"revision": revision},
    })
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: WritableKind::Application,
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: name.to_owned(),
        },
    }
}

fn create(name: &str) -> Write {
    Write::Create {
        key: key(name),
        object: application(name, "v2"),
    }
}

fn replace(server: &Server, name: &str) -> Write {
    let before = server.object(name).unwrap();
    let mut after = before.clone();
    after["spec"]["revision"] = json!("v2");
    Write::Replace {
        key: key(name),
        expected_version: ResourceVersion::new(before["metadata"]["resourceVersion"].as_str().unwrap()),
        before,
        after,
    }
}

fn delete(server: &Server, name: &str) -> Write {
    Write::Delete {
        key: key(name),
        before: server.object(name).unwrap(),
        propagation: Propagation::Background,
    }
}

async fn run(server: &Server, writes: Vec<Write>) -> Result<(), Box<BatchError>> {
    server.writer().batch(writes).await.map(drop)
}

fn names(keys: &[ObjectKey]) -> Vec<&str> {
    keys.iter().map(|key| key.name.name.as_str()).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(name, revision)| ((*name).to_owned(), (*revision).to_owned()))
        .collect()
}

#[tokio::test]
async fn all_writes_of_a_batch_are_applied() {
    let server = Server::with(&["b", "c"]);
    let writes = vec![create("a"), replace(&server, "b"), delete(&server, "c")];
    run(&server, writes).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2"), ("b", "v2")]));
    assert_eq!(server.object("b").unwrap()["status"], json!({"health": "Healthy"}));
    assert_eq!(server.count("dry DELETE c"), 1);
}

#[tokio::test]
async fn a_failure_undoes_earlier_writes_in_reverse_order() {
    let server = Server::with(&["b", "c", "d"]);
    let writes = vec![
        create("a"),
        replace(&server, "b"),
        replace(&server, "c"),
        delete(&server, "d"),
    ];
    server.inject(Method::PATCH, "c", Fault::Refused);
    let failed = run(&server, writes).await.unwrap_err();
    assert_eq!(failed.key.name.name, "c");
    assert!(matches!(failed.error, Error::Cluster { status: 403, .. }), "{failed}");
    assert_eq!(names(&failed.undone), ["b", "a"]);
    assert!(failed.not_undone.is_empty(), "{:?}", failed.not_undone);
    assert_eq!(server.revisions(), pairs(&[("b", "v1"), ("c", "v1"), ("d", "v1")]));
}

#[tokio::test]
async fn writes_that_cannot_be_undone_are_reported() {
    let server = Server::with(&["b"]);
    let writes = vec![create("a"), replace(&server, "b")];
    server.inject(Method::PATCH, "b", Fault::Refused);
    server.inject(Method::DELETE, "a", Fault::Refused);
    let failed = run(&server, writes).await.unwrap_err();
    assert!(failed.undone.is_empty());
    let [left] = &failed.not_undone[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(left.key.name.name, "a");
    assert!(left.why.contains("no"), "{}", left.why);
}

#[tokio::test]
async fn a_deletion_that_would_be_refused_stops_the_batch_before_any_write() {
    let server = Server::with(&["b", "c"]);
    let writes = vec![create("a"), replace(&server, "b"), delete(&server, "c")];
    server.inject(Method::DELETE, "c", Fault::Refused);
    let failed = run(&server, writes).await.unwrap_err();
    assert_eq!((failed.key.name.name.as_str(), failed.undone.len()), ("c", 0));
    assert_eq!(server.count("POST") + server.count("PATCH"), 0);
    assert_eq!(server.revisions(), pairs(&[("b", "v1"), ("c", "v1")]));
}

#[tokio::test]
async fn a_concurrent_status_update_is_no_conflict_and_is_kept() {
    let server = Server::with(&["a", "b"]);
    let writes = vec![replace(&server, "a"), delete(&server, "b")];
    server.inject(Method::PATCH, "a", Fault::StatusWrittenFirst);
    server.inject(Method::DELETE, "b", Fault::StatusWrittenFirst);
    run(&server, writes).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2")]));
    assert_eq!(server.object("a").unwrap()["status"], json!({"health": "Degraded"}));
}

#[tokio::test]
async fn a_concurrent_spec_update_is_a_conflict_and_is_kept() {
    let server = Server::with(&["a"]);
    let writes = vec![replace(&server, "a")];
    server.inject(Method::PATCH, "a", Fault::SpecWrittenFirst);
    let failed = run(&server, writes).await.unwrap_err();
    assert!(matches!(failed.error, Error::Conflict { .. }), "{failed}");
    let writes = vec![delete(&server, "a")];
    let other = json!({"metadata": {"resourceVersion": "999"}, "spec": {"revision": "other"}});
    merge(server.0.lock().unwrap().objects.get_mut("a").unwrap(), &other);
    let failed = run(&server, writes).await.unwrap_err();
    assert!(matches!(failed.error, Error::Conflict { .. }), "{failed}");
    assert!(server.object("a").is_some());
}

#[tokio::test]
async fn a_lost_response_does_not_fail_the_batch() {
    let server = Server::with(&["b", "c"]);
    let writes = vec![create("a"), replace(&server, "b"), delete(&server, "c")];
    for (method, name) in [(Method::POST, "a"), (Method::PATCH, "b"), (Method::DELETE, "c")] {
        server.inject(method, name, Fault::ResponseLost);
    }
    run(&server, writes).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2"), ("b", "v2")]));
}

/// Argo CD's controller also creates the Applications once it sees the set.
#[tokio::test]
async fn an_application_created_by_the_controller_is_accepted_and_another_is_not() {
    let server = Server::with(&["a"]);
    run(&server, vec![create("a")]).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2")]));

    let server = Server::with(&["a"]);
    server.0.lock().unwrap().objects.get_mut("a").unwrap()["metadata"]["ownerReferences"] = json!([]);
    let failed = run(&server, vec![create("a")]).await.unwrap_err();
    assert!(matches!(failed.error, Error::AlreadyExists(_)), "{failed}");
    assert_eq!(server.revisions(), pairs(&[("a", "v1")]));
}
