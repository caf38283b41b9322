//! Runs operations through a whole gateway, to a fake cluster that records its requests.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_config::ServiceAccountSemantics;

use super::operation::{Action, Outcome};
use super::scenario::{APPLICATION, Destination, PROJECT, Scenario};
use crate::suite::same;
use test_support::api_server::{Answer, Api, Seen};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, map, object};

/// Path within the namespace of the resource that every operation is about.
const RESOURCE: &str = "configmaps/guestbook-ui";
/// The resource in the cluster, if it exists.
type Live = Arc<Mutex<Option<Value>>>;

const USER: &str = "system:serviceaccount:";

/// The outcome of every request, with the cluster's server URL.
pub(super) struct Outcomes {
    pub(super) actions: Vec<(Action, String, Outcome)>,
    /// The same requests after the project was changed.
    pub(super) patched: Vec<(Action, String, Outcome)>,
}

/// Sends the requests of an operation. If the scenario changes the project, sends them again after
/// the change.
pub(super) async fn run(
    scenario: &Scenario,
    actions: &[Action],
    semantics: ServiceAccountSemantics,
) -> Result<Outcomes, String> {
    let existing = scenario.existing.clone();
    let live = Arc::new(Mutex::new(Some(manifest("live"))));
    let api = Api::start({
        let live = Arc::clone(&live);
        move |seen| answer(seen, existing.as_ref(), &live)
    })
    .await;
    let server = api.url();
    let scenario = scenario.moved_to(&server, semantics);
    let world = setup(&scenario, &api, semantics)
        .try_start()
        .await
        .map_err(|error| format!("the gateway cannot be started: {error:#}"))?;
    let mut outcomes = Outcomes {
        actions: Vec::new(),
        patched: Vec::new(),
    };
    for action in actions {
        let outcome = send(&world, (&api, &live), &scenario, *action).await?;
        outcomes.actions.push((*action, server.clone(), outcome));
    }
    if let Some(patched) = &scenario.patched {
        update_project(&world, &scenario, patched).await?;
        for action in actions {
            let outcome = send(&world, (&api, &live), &scenario, *action).await?;
            outcomes.patched.push((*action, server.clone(), outcome));
        }
    }
    Ok(outcomes)
}

fn setup(scenario: &Scenario, api: &Api, semantics: ServiceAccountSemantics) -> Setup {
    let control_plane = &scenario.app.namespace;
    let mut argocd_cm = scenario.settings.clone();
    argocd_cm.extend(map(&[("accounts.alice", "login")]));
    // The permissions that Argo CD requires to sync manifests that are not from Git.
    let policy = "p, alice, applications, get, */*, allow\np, alice, applications, sync, */*, allow\n\
                  p, alice, applications, override, */*, allow\n";
    let application = json!({"spec": {"project": PROJECT, "destination": scenario.app.destination.json()}});
    let config =
        json!({"bearerToken": "the-gateways-own", "tlsClientConfig": {"caData": STANDARD.encode(&api.ca_pem)}});
    let cluster = scenario.cluster.as_ref().map(|cluster| {
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
            project(scenario, &scenario.destinations),
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

fn project(scenario: &Scenario, destinations: &[Destination]) -> Value {
    let accounts: Vec<Value> = scenario.accounts.iter().map(super::Entry::json).collect();
    let destinations: Vec<Value> = destinations.iter().map(Destination::json).collect();
    let spec = json!({"sourceRepos": ["*"], "destinations": destinations, "destinationServiceAccounts": accounts});
    object(
        "argoproj.io/v1alpha1",
        "AppProject",
        PROJECT,
        &scenario.app.namespace,
        json!({"spec": spec}),
    )
}

/// Rewrites the project and waits until the gateway uses it.
async fn update_project(world: &World, scenario: &Scenario, destinations: &[Destination]) -> Result<(), String> {
    let generation = || async {
        let page: Value = serde_json::from_str(&world.admin("/configuration").await).unwrap_or_default();
        page["generation"].as_u64()
    };
    let before = generation().await;
    // The first three files of a `World` are its own ConfigMaps and Secret.
    let file = world.path("state/003.yaml");
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    if !text.contains("AppProject") {
        return Err(format!("`{}` is not the project", file.display()));
    }
    std::fs::write(&file, project(scenario, destinations).to_string()).map_err(|error| error.to_string())?;
    world
        .until("the changed project", || async { generation().await != before })
        .await;
    Ok(())
}

async fn send(
    world: &World,
    (api, live): (&Api, &Live),
    scenario: &Scenario,
    action: Action,
) -> Result<Outcome, String> {
    let before = api.seen().len();
    let was = live.lock().unwrap().clone();
    let (method, query) = match action {
        Action::Read => (reqwest::Method::GET, ""),
        Action::Apply => (reqwest::Method::PATCH, "?fieldManager=argocd-controller&force=true"),
        Action::DryRun => (
            reqwest::Method::PATCH,
            "?dryRun=All&fieldManager=argocd-controller&force=true",
        ),
        Action::Delete => (reqwest::Method::DELETE, ""),
    };
    let namespace = match scenario.app.destination.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    };
    let path = format!("/api/v1/namespaces/{namespace}/{RESOURCE}");
    let url = format!(
        "http://{}/applications/{}/{APPLICATION}/k8s{path}{query}",
        world.address(),
        scenario.app.namespace
    );
    let mut request = reqwest::Client::new()
        .request(method, url)
        .bearer_auth(token::session(SESSION_KEY, "alice"));
    if matches!(action, Action::Apply | Action::DryRun) {
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
                check_effect(action, &answered, (was, is))?;
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

/// Checks that a successful request had its effect in the cluster, and that its response says so.
fn check_effect(action: Action, answered: &Value, (was, is): (Option<Value>, Option<Value>)) -> Result<(), String> {
    let desired = Some(manifest("desired"));
    let (response, object) = match action {
        Action::Read => (was.clone(), was),
        // It returns the result but does not store it.
        Action::DryRun => (desired, was),
        Action::Apply => (desired.clone(), desired),
        Action::Delete => (was, None),
    };
    same(&response.as_ref(), &Some(answered)).map_err(|error| format!("answer of {action:?}: {error}"))?;
    same(&object, &is).map_err(|error| format!("object after {action:?}: {error}"))
}

/// Checks that the request has the gateway's own credential, and that only the account and extra
/// fields are impersonated.
fn check_head(seen: &Seen, user: Option<&str>) -> Result<(), String> {
    if seen.value("authorization") != Some("Bearer the-gateways-own") {
        return Err("the request does not have the gateway's credential".to_owned());
    }
    let found: BTreeSet<&str> = seen
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("impersonate-") && !name.starts_with("impersonate-extra-"))
        .collect();
    let expected: BTreeSet<&str> = user.map(|_| "impersonate-user").into_iter().collect();
    if found != expected {
        return Err(format!(
            "impersonation fields: expected {expected:?}, observed {found:?}"
        ));
    }
    Ok(())
}

/// A fake API server with one kind. It denies everything to accounts that do not exist.
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
    let response = match seen.method.as_str() {
        "PATCH" if seen.target.contains("dryRun=All") => Some(sent()),
        "PATCH" => {
            *live = Some(sent());
            live.clone()
        }
        "DELETE" => live.take(),
        _ => live.clone(),
    };
    match response {
        Some(object) => json(200, object),
        None => json(
            404,
            json!({"kind": "Status", "status": "Failure", "message": "not found", "code": 404}),
        ),
    }
}

/// The object in the cluster, with a text that distinguishes versions.
fn manifest(version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "guestbook-ui"}, "data": {"version": version}})
}
