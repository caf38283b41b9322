use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::api::DeleteParams;
use kube::client::Body;
use serde_json::{Value, json};

use super::super::{Error, ObjectKey, ResourceVersion, WritableKind};
use super::{ClusterWriter, has_any, owners};
use tollgate_objects::ObjectName;

/// An API server with one AppProject; it checks versions as a real one does.
#[derive(Clone)]
struct Server(Arc<Mutex<(Value, Vec<RecordedRequest>)>>);

/// Method, path and content of a request.
type RecordedRequest = (Method, String, Value);

impl Server {
    fn new(managed: &Value) -> Self {
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": "argocd", "resourceVersion": "1", "managedFields": managed},
            "spec": {"destinations": [], "destinationServiceAccounts": []},
        });
        Self(Arc::new(Mutex::new((object, Vec::new()))))
    }

    fn cluster(&self) -> ClusterWriter {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let content = body.collect().await.expect("a body").to_bytes();
                let content = serde_json::from_slice(&content).unwrap_or_default();
                Ok::<_, Infallible>(server.answer(&head, &content))
            }
        });
        ClusterWriter::new(kube::Client::new(service, "argocd"))
    }

    fn answer(&self, head: &http::request::Parts, content: &Value) -> Response<Full<bytes::Bytes>> {
        let mut state = self.0.lock().expect("a lock");
        state
            .1
            .push((head.method.clone(), head.uri.to_string(), content.clone()));
        let status = |code: u16, reason: &str| {
            (
                code,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no"}),
            )
        };
        let is_there = head.uri.path() == "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/shop";
        let (code, answer) = match head.method {
            Method::GET if is_there => (200, state.0.clone()),
            Method::PATCH
                if is_there && content["metadata"]["resourceVersion"] != state.0["metadata"]["resourceVersion"] =>
            {
                status(409, "Conflict")
            }
            Method::PATCH if is_there => {
                assert_eq!(head.headers["content-type"], "application/merge-patch+json");
                for (key, value) in content["spec"].as_object().expect("a spec") {
                    state.0["spec"][key] = value.clone();
                }
                state.0["metadata"]["resourceVersion"] = "2".into();
                (200, state.0.clone())
            }
            Method::POST => status(409, "AlreadyExists"),
            Method::DELETE if is_there => status(403, "Forbidden"),
            _ => status(404, "NotFound"),
        };
        let content = Full::from(answer.to_string());
        Response::builder().status(code).body(content).expect("an answer")
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        self.0.lock().expect("a lock").1.clone()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: WritableKind::AppProject,
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: name.to_owned(),
        },
    }
}

#[tokio::test]
async fn a_change_is_a_merge_patch_of_the_differences_with_a_version() {
    let server = Server::new(&json!([]));
    let cluster = server.cluster();
    let stored = cluster.read(&key("shop")).await.expect("a project");
    assert!(stored.object["metadata"].get("managedFields").is_none());
    let mut wanted = stored.object.clone();
    wanted["spec"]["destinationServiceAccounts"] =
        json!([{"server": "*", "namespace": "n", "defaultServiceAccount": "a"}]);
    let after = cluster
        .replace(&key("shop"), &wanted, &stored.version)
        .await
        .expect("it is written");
    assert_eq!(after.version.as_str(), "2");
    let (method, uri, content) = server.requests().pop().expect("a request");
    assert_eq!(method, Method::PATCH);
    assert!(uri.ends_with("/appprojects/shop?&fieldManager=tollgate"), "{uri}");
    let expected = json!({
        "metadata": {"resourceVersion": "1"},
        "spec": {"destinationServiceAccounts": [{"server": "*", "namespace": "n", "defaultServiceAccount": "a"}]},
    });
    assert_eq!(content, expected);
    // The older version is refused.
    let old = cluster
        .replace(&key("shop"), &wanted, &stored.version)
        .await
        .expect_err("a conflict");
    assert!(
        matches!(old, Error::Conflict { ref found, .. } if found == "2"),
        "{old}"
    );
    let count = server.requests().len();
    let same = cluster
        .replace(&key("shop"), &after.object, &after.version)
        .await
        .expect("no change");
    assert_eq!((same, server.requests().len()), (after, count + 1), "nothing is sent");
}

#[tokio::test]
async fn refusals_of_the_api_server_have_their_own_errors() {
    let server = Server::new(&json!([]));
    let cluster = server.cluster();
    let missing = cluster.read(&key("none")).await.expect_err("none");
    assert!(matches!(missing, Error::NotFound(_)), "{missing}");
    let there = cluster
        .create(&key("shop"), &json!({"metadata": {}}))
        .await
        .expect_err("it exists");
    assert!(matches!(there, Error::AlreadyExists(_)), "{there}");
    let denied = cluster
        .delete(&key("shop"), &ResourceVersion::new("1"), DeleteParams::default())
        .await
        .expect_err("forbidden");
    assert!(matches!(denied, Error::Cluster { status: 403, .. }), "{denied}");
    let (_, _, content) = server.requests().pop().expect("a request");
    assert_eq!(content["preconditions"]["resourceVersion"], "1");
}

#[tokio::test]
async fn another_manager_that_applies_the_fields_is_named() {
    let fields = json!({"f:spec": {"f:destinationServiceAccounts": {}}});
    let entry_of =
        |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
    let server = Server::new(&json!([
        entry_of("argocd-controller", "Apply"),
        entry_of("kubectl-edit", "Update")
    ]));
    let cluster = server.cluster();
    let stored = cluster.read(&key("shop")).await.expect("a project");
    let mut wanted = stored.object.clone();
    wanted["spec"]["destinationServiceAccounts"] =
        json!([{"server": "*", "namespace": "n", "defaultServiceAccount": "a"}]);
    let error = cluster
        .replace(&key("shop"), &wanted, &stored.version)
        .await
        .expect_err("it is managed");
    assert_eq!(
        error.to_string(),
        "AppProject `shop` is managed by somebody else: `argocd-controller`"
    );
    assert!(server.requests().iter().all(|(method, ..)| method == Method::GET));
    // A manager that only updated the fields does not own them, nor does the gateway itself.
    let managed = json!([entry_of("kubectl-edit", "Update"), entry_of("tollgate", "Apply")]);
    let server = Server::new(&managed);
    server
        .cluster()
        .replace(&key("shop"), &wanted, &stored.version)
        .await
        .expect("it is written");
}

#[test]
fn owners_manage_a_patched_field_or_one_within_it() {
    let patch = json!({"spec": {"a": {"b": [1]}}});
    for (fields, expected) in [
        (json!({"f:spec": {"f:a": {"f:b": {}}}}), true),
        (json!({"f:spec": {"f:a": {}}}), false),
        (json!({"f:spec": {}}), false),
        (json!({"f:spec": {".": {}, "f:c": {}}}), false),
        (json!({"f:spec": {"f:a": {".": {}, "f:c": {}}}}), false),
        (json!({"f:status": {}}), false),
    ] {
        assert_eq!(has_any(&fields, &patch), expected, "{fields}");
    }
    assert_eq!(owners(&Value::Null, &patch), Vec::<String>::new());
}

/// Lists are without the status of Applications, which may be large. A visit is not.
#[tokio::test]
async fn each_application_of_each_page_is_shown_with_its_status() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (name, next) = match query.contains("continue=more") {
            false => ("a", "more"),
            true => ("b", ""),
        };
        let item = json!({"metadata": {"name": name, "resourceVersion": "1"}, "status": {"of": name}});
        let list = json!({"metadata": {"continue": next}, "items": [item]}).to_string();
        Ok::<_, Infallible>(Response::new(Full::from(list)))
    });
    let cluster = ClusterWriter::new(kube::Client::new(service, "argocd"));
    let mut shown = Vec::new();
    let mut visit = |object: &Value| shown.push(object["status"]["of"].clone());
    let visited = cluster.visit(WritableKind::Application, "argocd", &mut visit).await;
    visited.expect("both pages");
    assert_eq!(shown, ["a", "b"]);
    let listed = cluster
        .select(WritableKind::Application, "argocd", &|_| true)
        .await
        .expect("both pages");
    assert!(listed.iter().all(|stored| stored.object.get("status").is_none()));
}
