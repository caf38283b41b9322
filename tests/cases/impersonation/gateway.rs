//! Operations by way of a whole gateway, to a cluster that notes what it is sent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_config::ServiceAccountSemantics;

use super::operation::{Act, Outcome};
use super::scene::{APPLICATION, Destination, PROJECT, Scene};
use crate::suite::same;
use test_support::api_server::{Answer, Api, Seen};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, map, object};

/// Path of the resource every operation is about, behind its namespace.
const RESOURCE: &str = "configmaps/guestbook-ui";
/// What the cluster has of the resource.
type Live = Arc<Mutex<Option<Value>>>;

const USER: &str = "system:serviceaccount:";

/// What came of every request, with the server the cluster was known by.
pub(super) struct Outcomes {
    pub(super) acts: Vec<(Act, String, Outcome)>,
    /// After the project was changed.
    pub(super) patched: Vec<(Act, String, Outcome)>,
}

/// Sends the requests of an operation, and again after a change of the project.
pub(super) async fn run(scene: &Scene, acts: &[Act], semantics: ServiceAccountSemantics) -> Result<Outcomes, String> {
    let existing = scene.existing.clone();
    let live = Arc::new(Mutex::new(Some(manifest("live"))));
    let api = Api::start({
        let live = Arc::clone(&live);
        move |seen| answer(seen, existing.as_ref(), &live)
    })
    .await;
    let server = api.url();
    let scene = scene.at(&server, semantics);
    let world = setup(&scene, &api, semantics)
        .try_start()
        .await
        .map_err(|error| format!("the gateway cannot be started: {error:#}"))?;
    let mut outcomes = Outcomes {
        acts: Vec::new(),
        patched: Vec::new(),
    };
    for act in acts {
        let outcome = send(&world, (&api, &live), &scene, *act).await?;
        outcomes.acts.push((*act, server.clone(), outcome));
    }
    if let Some(patched) = &scene.patched {
        change(&world, &scene, patched).await?;
        for act in acts {
            let outcome = send(&world, (&api, &live), &scene, *act).await?;
            outcomes.patched.push((*act, server.clone(), outcome));
        }
    }
    Ok(outcomes)
}

fn setup(scene: &Scene, api: &Api, semantics: ServiceAccountSemantics) -> Setup {
    let control_plane = &scene.app.namespace;
    let mut argocd_cm = scene.settings.clone();
    argocd_cm.extend(map(&[("accounts.alice", "login")]));
    // What Argo CD asks of those who sync manifests that are not from Git.
    let policy = "p, alice, applications, get, */*, allow\np, alice, applications, sync, */*, allow\n\
                  p, alice, applications, override, */*, allow\n";
    let application = json!({"spec": {"project": PROJECT, "destination": scene.app.destination.json()}});
    let config =
        json!({"bearerToken": "the-gateways-own", "tlsClientConfig": {"caData": STANDARD.encode(&api.ca_pem)}});
    let cluster = scene.cluster.as_ref().map(|cluster| {
        json!({
            "metadata": {"labels": {"argocd.argoproj.io/secret-type": "cluster"}},
            "stringData": {
                "name": if cluster.name.is_empty() { "destination" } else { &cluster.name },
                "server": cluster.server,
                "config": config.to_string(),
            },
        })
    });
    let group = "argoproj.io/v1alpha1";
    let compat = match semantics {
        ServiceAccountSemantics::Argocd => json!({"compat": "argocd", "gatewayIdentity": "allowed"}),
        ServiceAccountSemantics::Strict => json!({"gatewayIdentity": "allowed"}),
    };
    Setup {
        argocd_cm,
        rbac_cm: map(&[("policy.csv", policy)]),
        objects: [
            project(scene, &scene.destinations),
            object(group, "Application", APPLICATION, control_plane, application),
        ]
        .into_iter()
        .chain(cluster.map(|cluster| object("v1", "Secret", "cluster", control_plane, cluster)))
        .collect(),
        settings: json!({"applications": compat}),
        control_plane: control_plane.clone(),
        ..Setup::default()
    }
}

fn project(scene: &Scene, destinations: &[Destination]) -> Value {
    let accounts: Vec<Value> = scene.accounts.iter().map(super::Entry::json).collect();
    let destinations: Vec<Value> = destinations.iter().map(Destination::json).collect();
    let spec = json!({"destinations": destinations, "destinationServiceAccounts": accounts});
    object(
        "argoproj.io/v1alpha1",
        "AppProject",
        PROJECT,
        &scene.app.namespace,
        json!({"spec": spec}),
    )
}

/// Rewrites the project and waits until the change is in force.
async fn change(world: &World, scene: &Scene, destinations: &[Destination]) -> Result<(), String> {
    let generation = || async {
        let page: Value = serde_json::from_str(&world.admin("/configuration").await).unwrap_or_default();
        page["generation"].as_u64()
    };
    let before = generation().await;
    // The fourth object of a world is the first of its own.
    let file = world.path("state/003.yaml");
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    if !text.contains("AppProject") {
        return Err(format!("`{}` is not the project", file.display()));
    }
    std::fs::write(&file, project(scene, destinations).to_string()).map_err(|error| error.to_string())?;
    world
        .until("the changed project", || async { generation().await != before })
        .await;
    Ok(())
}

async fn send(world: &World, (api, live): (&Api, &Live), scene: &Scene, act: Act) -> Result<Outcome, String> {
    let before = api.seen().len();
    let was = live.lock().unwrap().clone();
    let (method, query) = match act {
        Act::Read => (reqwest::Method::GET, ""),
        Act::Apply => (reqwest::Method::PATCH, "?fieldManager=argocd-controller&force=true"),
        Act::DryRun => (
            reqwest::Method::PATCH,
            "?dryRun=All&fieldManager=argocd-controller&force=true",
        ),
        Act::Delete => (reqwest::Method::DELETE, ""),
    };
    let namespace = match scene.app.destination.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    };
    let path = format!("/api/v1/namespaces/{namespace}/{RESOURCE}");
    let url = format!(
        "http://{}/applications/{}/{APPLICATION}/k8s{path}{query}",
        world.address(),
        scene.app.namespace
    );
    let mut request = reqwest::Client::new()
        .request(method, url)
        .bearer_auth(token::session(SESSION_KEY, "alice"));
    if matches!(act, Act::Apply | Act::DryRun) {
        request = request
            .header("content-type", "application/apply-patch+yaml")
            .body(manifest("desired").to_string());
    }
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    let seen: Vec<Seen> = api.seen().split_off(before);
    let about: Vec<&Seen> = seen.iter().filter(|seen| seen.target.starts_with(&path)).collect();
    let message = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|status| status["message"].as_str().map(str::to_owned));
    let message = message.unwrap_or_else(|| text.clone());
    let is = live.lock().unwrap().clone();
    match about.as_slice() {
        [] if status.is_client_error() => Ok(Outcome::GatewayRefused { message }),
        [only] => {
            let user = only.value("impersonate-user").map(str::to_owned);
            check_head(only, user.as_deref())?;
            if status.is_success() {
                let answered = serde_json::from_str(&text).map_err(|error| format!("`{text}`: {error}"))?;
                happened(act, &answered, (was, is))?;
                Ok(Outcome::Done { user })
            } else if was != is {
                Err(format!("the cluster refused and has another object: {was:?}, {is:?}"))
            } else if status == reqwest::StatusCode::FORBIDDEN {
                Ok(Outcome::ClusterRefused { user, message })
            } else {
                Err(format!("the answer is {status}: {message}"))
            }
        }
        seen => Err(format!("the answer is {status}: {message}; the cluster saw {seen:?}")),
    }
}

/// Whether a request that succeeded did in the cluster what it was sent for, and said so.
fn happened(act: Act, answered: &Value, (was, is): (Option<Value>, Option<Value>)) -> Result<(), String> {
    let desired = Some(manifest("desired"));
    let (told, object) = match act {
        Act::Read => (was.clone(), was),
        // It tells what would be, and leaves what is.
        Act::DryRun => (desired, was),
        Act::Apply => (desired.clone(), desired),
        Act::Delete => (was, None),
    };
    same(&told.as_ref(), &Some(answered)).map_err(|error| format!("answer of {act:?}: {error}"))?;
    same(&object, &is).map_err(|error| format!("object after {act:?}: {error}"))
}

/// The gateway's own credential, and beside the account nothing but what it says of
/// the human.
fn check_head(seen: &Seen, user: Option<&str>) -> Result<(), String> {
    if seen.value("authorization") != Some("Bearer the-gateways-own") {
        return Err("the cluster was not asked with the gateway's credential".to_owned());
    }
    let told: BTreeSet<&str> = seen
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("impersonate-") && !name.starts_with("impersonate-extra-"))
        .collect();
    let expected: BTreeSet<&str> = user.map(|_| "impersonate-user").into_iter().collect();
    if told != expected {
        return Err(format!("the cluster was told {told:?}"));
    }
    Ok(())
}

/// An API server with one kind; accounts it does not have may do nothing.
fn answer(seen: &Seen, existing: Option<&BTreeSet<String>>, live: &Live) -> Answer {
    let json = |status: u16, body: Value| {
        let fields = vec![("content-type", "application/json".to_owned())];
        (status, fields, body.to_string())
    };
    let path = seen.target.split('?').next().unwrap_or_default();
    match path {
        "/api" => return json(200, json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => return json(200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/api/v1" => {
            let verbs = ["get", "list", "patch", "delete"];
            let resource = json!({"name": "configmaps", "namespaced": true, "kind": "ConfigMap", "verbs": verbs});
            let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]});
            return json(200, list);
        }
        path if !path.ends_with(RESOURCE) => {
            return json(
                404,
                json!({"kind": "Status", "status": "Failure", "message": "not found", "code": 404}),
            );
        }
        _ => {}
    }
    let account = seen.value("impersonate-user").and_then(|user| user.strip_prefix(USER));
    let is_missing = match (account, existing) {
        (Some(account), Some(existing)) => !existing.contains(&account.replacen(':', "/", 1)),
        (_, _) => false,
    };
    if is_missing {
        let message = "configmaps \"guestbook-ui\" is forbidden: the user has no permissions";
        return json(
            403,
            json!({"kind": "Status", "status": "Failure", "message": message, "code": 403}),
        );
    }
    let mut live = live.lock().unwrap();
    let sent = || serde_json::from_slice::<Value>(&seen.body).unwrap_or_default();
    let told = match seen.method.as_str() {
        "PATCH" if seen.target.contains("dryRun=All") => Some(sent()),
        "PATCH" => {
            *live = Some(sent());
            live.clone()
        }
        "DELETE" => live.take(),
        _ => live.clone(),
    };
    match told {
        Some(object) => json(200, object),
        None => json(
            404,
            json!({"kind": "Status", "status": "Failure", "message": "not found", "code": 404}),
        ),
    }
}

/// The one object of the cluster, with a text to tell versions by.
fn manifest(version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "guestbook-ui"}, "data": {"version": version}})
}
