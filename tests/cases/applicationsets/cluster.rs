//! A fake cluster of the control plane that contains a gateway's state and Events.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use test_support::api_server::{Answer, Api, Seen};
use test_support::world::{SESSION_KEY, Setup, World, object};

/// Starts the gateway with its state in a cluster.
pub(super) async fn start(mut setup: Setup, events: &[Value]) -> Result<World, String> {
    let namespace = setup.control_plane.clone();
    let mut objects = std::mem::take(&mut setup.objects);
    for (name, data) in [("argocd-cm", &setup.argocd_cm), ("argocd-rbac-cm", &setup.rbac_cm)] {
        objects.push(object("v1", "ConfigMap", name, &namespace, json!({"data": data})));
    }
    let secret = json!({"stringData": {"server.secretkey": SESSION_KEY}});
    objects.push(object("v1", "Secret", "argocd-secret", &namespace, secret));
    objects.extend(events.iter().map(event));
    for object in &mut objects {
        // An API server returns the values of Secrets only in base64.
        if let Some(texts) = object.as_object_mut().and_then(|object| object.remove("stringData")) {
            let texts = texts.as_object().into_iter().flatten();
            let encoded = texts.map(|(key, text)| (key.clone(), STANDARD.encode(text.as_str().unwrap_or_default())));
            let encoded: serde_json::Map<String, Value> = encoded.map(|(key, text)| (key, json!(text))).collect();
            object["data"] = json!(encoded);
        }
        object["metadata"]["resourceVersion"] = json!("1");
    }
    let objects: Arc<[Value]> = objects.into();
    let api = Api::start(move |seen| answer(seen, &objects)).await;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?.keep();
    let kubeconfig = folder.join("kubeconfig");
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "only",
        "clusters": [{"name": "only", "cluster": {
            "server": api.url(), "certificate-authority-data": STANDARD.encode(&api.ca_pem),
        }}],
        "users": [{"name": "only", "user": {"token": "any"}}],
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
    });
    std::fs::write(&kubeconfig, content.to_string()).map_err(|error| error.to_string())?;
    setup.settings["state"] = json!({"directory": null, "kubernetes": {"kubeconfig": kubeconfig}});
    let started = setup.try_start().await.map_err(|error| format!("{error:#}"));
    drop(std::fs::remove_dir_all(folder));
    started
}

/// An Event as in a cluster.
fn event(written: &Value) -> Value {
    let involved = json!({
        "kind": "ApplicationSet",
        "name": super::scenario::name(written["involved"]["name"].as_str().unwrap_or_default()),
        "namespace": written["involved"]["namespace"],
        "uid": written["involved"]["uid"],
    });
    let namespace = written["involved"]["namespace"].as_str().unwrap_or_default();
    let body = json!({"involvedObject": involved, "reason": written["reason"]});
    object(
        "v1",
        "Event",
        written["name"].as_str().unwrap_or_default(),
        namespace,
        body,
    )
}

/// Answers requests for lists and single objects. Watches end without an event.
fn answer(seen: &Seen, objects: &[Value]) -> Answer {
    let json = vec![("content-type", "application/json".to_owned())];
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let query: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let value = |key: &str| {
        query
            .iter()
            .find(|(found, _)| found == key)
            .map(|(_, value)| value.as_str())
    };
    if value("watch").is_some_and(|watch| matches!(watch, "true" | "1")) {
        return (200, json, String::new());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let at = parts.iter().position(|part| *part == "namespaces");
    let (namespace, plural, name) = match at.map(|at| &parts[at + 1..]) {
        Some([namespace, plural]) => (*namespace, *plural, None),
        Some([namespace, plural, name]) => (*namespace, *plural, Some(*name)),
        _ => return (404, json, json!({"kind": "Status", "code": 404}).to_string()),
    };
    let is = |object: &&Value| {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let fields = value("fieldSelector").unwrap_or_default();
        plural == format!("{kind}s")
            && object["metadata"]["namespace"] == namespace
            && name.is_none_or(|name| object["metadata"]["name"] == name)
            && fields
                .split(',')
                .filter(|field| !field.is_empty())
                .all(|field| matches_field(object, field))
    };
    let found: Vec<&Value> = objects.iter().filter(is).collect();
    match (name, found.first()) {
        (Some(_), Some(object)) => (200, json, object.to_string()),
        (Some(_), None) => {
            let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            (404, json, status.to_string())
        }
        (None, _) => {
            let list =
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found});
            (200, json, list.to_string())
        }
    }
}

/// Whether an object matches one term of a field selector.
fn matches_field(object: &Value, field: &str) -> bool {
    let (path, wanted, is) = match field.split_once("!=") {
        Some((path, wanted)) => (path, wanted, false),
        None => {
            let (path, wanted) = field.split_once('=').unwrap_or((field, ""));
            (path, wanted, true)
        }
    };
    let found = object
        .pointer(&format!("/{}", path.replace('.', "/")))
        .and_then(Value::as_str);
    (found.unwrap_or_default() == wanted) == is
}
