//! Tests of batches against an API server that fails at will.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};

use crate::ObjectName;
use crate::write::batch::{BatchError, Propagation, Write};
use crate::write::{ClusterWriter, Error, ObjectKey, ResourceVersion, WritableKind, Writer, merge};

/// What the server does with a request instead of answering normally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It refuses.
    Refuses,
    /// It executes the request, and its answer is lost.
    AnswersNothing,
    /// A controller writes a status before the request.
    StatusFirst,
    /// Somebody writes the spec before the request.
    SpecFirst,
}

#[derive(Debug, Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    versions: u64,
    /// Method, end of the path, and trouble of the one request that has trouble.
    trouble: Vec<(Method, String, Trouble)>,
    seen: Vec<String>,
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

    fn trouble(&self, method: Method, name: &str, trouble: Trouble) {
        self.0.lock().unwrap().trouble.push((method, name.to_owned(), trouble));
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
        store.seen.iter().filter(|seen| seen.contains(part)).count()
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
        self.seen
            .push(format!("{}{} {name}", if is_dry { "dry " } else { "" }, head.method));
        let at = self.trouble.iter().position(|(method, of, trouble)| {
            *method == head.method && *of == name && (!is_dry || *trouble == Trouble::Refuses)
        });
        let trouble = at.map(|at| self.trouble.remove(at).2);
        let (code, answer) = match trouble {
            Some(Trouble::Refuses) => refusal(403, "Forbidden"),
            other => {
                self.meanwhile(other, &name);
                self.act(&head.method, (&name, is_dry), content)
            }
        };
        let (code, answer) = match trouble {
            Some(Trouble::AnswersNothing) => refusal(504, "Timeout"),
            _ => (code, answer),
        };
        let body = Full::new(bytes::Bytes::from(answer.to_string()));
        Response::builder().status(code).body(body).unwrap()
    }

    fn meanwhile(&mut self, trouble: Option<Trouble>, name: &str) {
        let version = self.next();
        let Some(object) = self.objects.get_mut(name) else {
            return;
        };
        match trouble {
            Some(Trouble::StatusFirst) => object["status"] = json!({"health": "Degraded"}),
            Some(Trouble::SpecFirst) => object["spec"]["revision"] = json!("theirs"),
            _ => return,
        }
        object["metadata"]["resourceVersion"] = json!(version);
    }

    fn act(&mut self, method: &Method, (name, is_dry): (&str, bool), content: &Value) -> (u16, Value) {
        let version = self.next();
        let found = self.objects.get(name).cloned();
        let is_current =
            |asked: &Value, found: &Value| asked.is_null() || *asked == found["metadata"]["resourceVersion"];
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
async fn everything_is_done() {
    let server = Server::with(&["b", "c"]);
    let writes = vec![create("a"), replace(&server, "b"), delete(&server, "c")];
    run(&server, writes).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2"), ("b", "v2")]));
    assert_eq!(server.object("b").unwrap()["status"], json!({"health": "Healthy"}));
    assert_eq!(server.count("dry DELETE c"), 1);
}

#[tokio::test]
async fn a_failure_undoes_what_was_done_in_reverse() {
    let server = Server::with(&["b", "c", "d"]);
    let writes = vec![
        create("a"),
        replace(&server, "b"),
        replace(&server, "c"),
        delete(&server, "d"),
    ];
    server.trouble(Method::PATCH, "c", Trouble::Refuses);
    let failed = run(&server, writes).await.unwrap_err();
    assert_eq!(failed.key.name.name, "c");
    assert!(matches!(failed.error, Error::Cluster { status: 403, .. }), "{failed}");
    assert_eq!(names(&failed.undone), ["b", "a"]);
    assert!(failed.not_undone.is_empty(), "{:?}", failed.not_undone);
    assert_eq!(server.revisions(), pairs(&[("b", "v1"), ("c", "v1"), ("d", "v1")]));
}

#[tokio::test]
async fn what_cannot_be_undone_is_said() {
    let server = Server::with(&["b"]);
    let writes = vec![create("a"), replace(&server, "b")];
    server.trouble(Method::PATCH, "b", Trouble::Refuses);
    server.trouble(Method::DELETE, "a", Trouble::Refuses);
    let failed = run(&server, writes).await.unwrap_err();
    assert!(failed.undone.is_empty());
    let [left] = &failed.not_undone[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(left.key.name.name, "a");
    assert!(left.why.contains("no"), "{}", left.why);
}

#[tokio::test]
async fn deletions_that_will_be_refused_stop_all_before_it_begins() {
    let server = Server::with(&["b", "c"]);
    let writes = vec![create("a"), replace(&server, "b"), delete(&server, "c")];
    server.trouble(Method::DELETE, "c", Trouble::Refuses);
    let failed = run(&server, writes).await.unwrap_err();
    assert_eq!((failed.key.name.name.as_str(), failed.undone.len()), ("c", 0));
    assert_eq!(server.count("POST") + server.count("PATCH"), 0);
    assert_eq!(server.revisions(), pairs(&[("b", "v1"), ("c", "v1")]));
}

#[tokio::test]
async fn a_status_written_meanwhile_is_no_conflict_and_stays() {
    let server = Server::with(&["a", "b"]);
    let writes = vec![replace(&server, "a"), delete(&server, "b")];
    server.trouble(Method::PATCH, "a", Trouble::StatusFirst);
    server.trouble(Method::DELETE, "b", Trouble::StatusFirst);
    run(&server, writes).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2")]));
    assert_eq!(server.object("a").unwrap()["status"], json!({"health": "Degraded"}));
}

#[tokio::test]
async fn a_spec_written_meanwhile_is_a_conflict_and_stays() {
    let server = Server::with(&["a"]);
    let writes = vec![replace(&server, "a")];
    server.trouble(Method::PATCH, "a", Trouble::SpecFirst);
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
async fn an_answer_that_is_lost_is_looked_for() {
    let server = Server::with(&["b", "c"]);
    let writes = vec![create("a"), replace(&server, "b"), delete(&server, "c")];
    for (method, name) in [(Method::POST, "a"), (Method::PATCH, "b"), (Method::DELETE, "c")] {
        server.trouble(method, name, Trouble::AnswersNothing);
    }
    run(&server, writes).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2"), ("b", "v2")]));
}

/// Argo CD's controller also creates the Applications once it sees the set.
#[tokio::test]
async fn what_the_controller_made_is_made_and_what_others_made_is_not() {
    let server = Server::with(&["a"]);
    run(&server, vec![create("a")]).await.unwrap();
    assert_eq!(server.revisions(), pairs(&[("a", "v2")]));

    let server = Server::with(&["a"]);
    server.0.lock().unwrap().objects.get_mut("a").unwrap()["metadata"]["ownerReferences"] = json!([]);
    let failed = run(&server, vec![create("a")]).await.unwrap_err();
    assert!(matches!(failed.error, Error::AlreadyExists(_)), "{failed}");
    assert_eq!(server.revisions(), pairs(&[("a", "v1")]));
}
