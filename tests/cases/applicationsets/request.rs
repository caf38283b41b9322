//! Kinds `request` and `rbac_object_name`: the responses of the API.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster;
use super::scenario::{Answer, Checks, Scenario, Set, name, send};
use crate::suite::{Table, same};
use test_support::world::World;

const USER: &str = "alice";

/// One case, which runs with both kinds of checks.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    fixture: String,
    #[serde(default)]
    fixture_overrides: Overrides,
    existing: Vec<Set>,
    request: Request,
    expected: Expected,
    #[serde(default)]
    cluster_events: Vec<Value>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overrides {
    enabled_namespaces: Option<Vec<String>>,
    watched_namespace: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    List {
        appset_namespace: String,
        selector: String,
        projects: Vec<String>,
    },
    Get {
        name: String,
        appset_namespace: String,
    },
    ResourceTree {
        name: String,
        appset_namespace: String,
    },
    Events {
        name: String,
        appset_namespace: String,
    },
    Delete {
        name: String,
        appset_namespace: String,
    },
    Create {
        applicationset: Set,
        #[serde(default)]
        upsert: bool,
        #[serde(default)]
        dry_run: bool,
    },
    Generate {
        applicationset: Set,
    },
    InternalUpdate {
        applicationset: Set,
        merge: bool,
    },
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    ok: bool,
    error_contains: Option<String>,
    error_equals: Option<String>,
    names: Option<Vec<String>>,
    name: Option<String>,
    nodes: Option<Vec<Node>>,
    events: Option<Vec<String>>,
    response: Option<Value>,
    status_resources: Option<Vec<BTreeMap<String, String>>>,
    persisted: Option<bool>,
    labels: Option<Value>,
    annotations: Option<Value>,
    finalizers: Option<Value>,
    applications: Option<Vec<String>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    group: String,
    version: String,
    kind: String,
    namespace: String,
    name: String,
    health: Option<String>,
    parent: Parent,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parent {
    kind: String,
    namespace: String,
    name: String,
}

/// A table's fixture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    control_plane_namespace: String,
    enabled_namespaces: Vec<String>,
    projects: Vec<FixtureProject>,
    rbac: FixtureRbac,
    clusters: Vec<FixtureCluster>,
    #[serde(default, rename = "note")]
    _note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FixtureProject {
    name: String,
    namespace: String,
    source_repos: Vec<String>,
    destinations: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FixtureRbac {
    /// `argocd-builtin`: the built-in roles of Argo CD.
    builtin: String,
    default_role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FixtureCluster {
    name: String,
    server: String,
}

impl Fixture {
    fn of(table: &Table, name: &str) -> Result<Self, String> {
        let fixture = table.head.get("fixtures").and_then(|fixtures| fixtures.get(name));
        let fixture = fixture.ok_or_else(|| format!("there is no fixture `{name}`"))?;
        serde_json::from_value(fixture.clone()).map_err(|error| format!("fixture `{name}`: {error}"))
    }

    /// The scenario it describes, with the sets of a case.
    fn scenario(&self, case: &Case) -> Result<Scenario, String> {
        same(&"argocd-builtin", &self.rbac.builtin.as_str())?;
        let enabled = case.fixture_overrides.enabled_namespaces.as_ref();
        let enabled = enabled.unwrap_or(&self.enabled_namespaces).clone();
        let mut projects = Vec::new();
        for project in &self.projects {
            same(&self.control_plane_namespace, &project.namespace)?;
            let mut object = Scenario::project(&project.name, Some(&enabled));
            object["spec"]["sourceRepos"] = json!(project.source_repos);
            object["spec"]["destinations"] = json!(project.destinations);
            projects.push(object);
        }
        // Sets in namespaces that are not watched do not exist for the gateway.
        let watched = case.fixture_overrides.watched_namespace.as_ref();
        let seen = |set: &&Set| watched.is_none_or(|watched| *watched == set.namespace);
        Ok(Scenario {
            control_plane: self.control_plane_namespace.clone(),
            enabled,
            policy: String::new(),
            default_role: Some(self.rbac.default_role.clone()),
            projects,
            clusters: self
                .clusters
                .iter()
                .map(|one| (one.name.clone(), one.server.clone()))
                .collect(),
            sets: case.existing.iter().filter(seen).map(Set::object).collect(),
        })
    }
}

/// Runs a case of kind `request`.
pub(super) async fn run(table: &Table, case: Case) -> Result<(), String> {
    let scenario = Fixture::of(table, &case.fixture)?.scenario(&case)?;
    for checks in [Checks::Argocd, Checks::Generated] {
        let setup = scenario.setup(checks, USER);
        if let Request::Events { .. } = case.request {
            let world = cluster::start(setup, &case.cluster_events).await?;
            check(&world, &case).await
        } else {
            let world = setup.try_start().await.map_err(|error| format!("{error:#}"))?;
            check(&world, &case).await
        }
        .map_err(|error| format!("{checks:?}: {error}"))?;
    }
    Ok(())
}

/// Sends the request and checks the response.
async fn check(world: &World, case: &Case) -> Result<(), String> {
    let send = async |method: Method, path: String, query: Vec<(&str, &str)>, body: Option<Value>| {
        send(world, USER, (method, &path), &query, body.as_ref()).await
    };
    let one = |written: &str, tail: &str| format!("/{}{tail}", name(written));
    let answer = match &case.request {
        Request::List {
            appset_namespace,
            selector,
            projects,
        } => {
            let mut query = vec![("appsetNamespace", appset_namespace.as_str()), ("selector", selector)];
            query.extend(projects.iter().map(|project| ("projects", project.as_str())));
            send(Method::GET, String::new(), query, None).await?
        }
        Request::Get { name, appset_namespace } => {
            send(
                Method::GET,
                one(name, ""),
                vec![("appsetNamespace", appset_namespace)],
                None,
            )
            .await?
        }
        Request::ResourceTree { name, appset_namespace } => {
            let query = vec![("appsetNamespace", appset_namespace.as_str())];
            send(Method::GET, one(name, "/resource-tree"), query, None).await?
        }
        Request::Events { name, appset_namespace } => {
            let query = vec![("appsetNamespace", appset_namespace.as_str())];
            send(Method::GET, one(name, "/events"), query, None).await?
        }
        Request::Delete { name, appset_namespace } => {
            send(
                Method::DELETE,
                one(name, ""),
                vec![("appsetNamespace", appset_namespace)],
                None,
            )
            .await?
        }
        Request::Create {
            applicationset,
            upsert,
            dry_run,
        } => {
            let (upsert, dry_run) = (upsert.to_string(), dry_run.to_string());
            let query = vec![("upsert", upsert.as_str()), ("dryRun", &dry_run)];
            send(Method::POST, String::new(), query, Some(applicationset.object())).await?
        }
        Request::Generate { applicationset } => {
            let body = json!({"applicationSet": applicationset.object()});
            send(Method::POST, "/generate".to_owned(), Vec::new(), Some(body)).await?
        }
        Request::InternalUpdate {
            applicationset,
            merge: true,
        } => {
            let query = vec![("upsert", "true")];
            send(Method::POST, String::new(), query, Some(applicationset.object())).await?
        }
        Request::InternalUpdate {
            applicationset,
            merge: false,
        } => {
            let path = one(&applicationset.name, "");
            let namespace = vec![("appsetNamespace", applicationset.namespace.as_str())];
            let read = send(Method::GET, path.clone(), namespace.clone(), None).await?;
            let mut object = applicationset.object();
            object["metadata"]["resourceVersion"] = read.body["metadata"]["resourceVersion"].clone();
            send(Method::PUT, path, namespace, Some(object)).await?
        }
    };
    case.expected.check(&answer)?;
    if let (Some(persisted), Request::Create { applicationset, .. }) = (case.expected.persisted, &case.request) {
        let query = vec![("appsetNamespace", applicationset.namespace.as_str())];
        let read = send(Method::GET, one(&applicationset.name, ""), query, None).await?;
        same(&persisted, &read.is_ok())?;
    }
    Ok(())
}

/// Names of sets as Kubernetes accepts them.
fn renamed(names: &[String]) -> Vec<String> {
    names.iter().map(|written| name(written)).collect()
}

impl Expected {
    fn check(&self, answer: &Answer) -> Result<(), String> {
        same(&self.ok, &answer.is_ok()).map_err(|error| format!("{error}: {answer:?}"))?;
        if let Some(text) = &self.error_equals {
            same(text, &answer.message())?;
        }
        if let Some(part) = &self.error_contains {
            let message = answer.message();
            if !message.contains(part.as_str()) {
                return Err(format!("`{message}` has no `{part}`"));
            }
        }
        if let Some(names) = &self.names {
            same(&renamed(names), &answer.names("items"))?;
        }
        if let Some(events) = &self.events {
            same(events, &answer.names("items"))?;
        }
        if let Some(applications) = &self.applications {
            let mut found = answer.names("applications");
            found.sort();
            same(applications, &found)?;
        }
        let metadata = &answer.body["metadata"];
        if let Some(written) = &self.name {
            same(&json!(name(written)), &metadata["name"])?;
        }
        for (key, wanted) in [
            ("labels", &self.labels),
            ("annotations", &self.annotations),
            ("finalizers", &self.finalizers),
        ] {
            if let Some(wanted) = wanted {
                same(wanted, &without_gateways(&metadata[key]))?;
            }
        }
        if let Some(response) = &self.response {
            // Argo CD's response is empty; ours may have additional members.
            for (key, wanted) in response.as_object().into_iter().flatten() {
                same(wanted, &answer.body[key])?;
            }
        }
        self.check_resources(answer)
    }

    fn check_resources(&self, answer: &Answer) -> Result<(), String> {
        if let Some(resources) = &self.status_resources {
            let found = answer.body["status"]["resources"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            same(&resources.len(), &found.len())?;
            for (wanted, found) in resources.iter().zip(&found) {
                for (key, wanted) in wanted {
                    same(&json!(wanted), &found[key])?;
                }
            }
        }
        let Some(nodes) = &self.nodes else { return Ok(()) };
        let found = answer.body["nodes"].as_array().cloned().unwrap_or_default();
        same(&nodes.len(), &found.len())?;
        for (wanted, found) in nodes.iter().zip(&found) {
            let mut node = json!({
                "group": wanted.group, "version": wanted.version, "kind": wanted.kind,
                "namespace": wanted.namespace, "name": wanted.name,
            });
            if let Some(health) = &wanted.health {
                node["health"] = json!({"status": health});
            }
            for (key, wanted) in node.as_object().into_iter().flatten() {
                same(wanted, &found[key])?;
            }
            let parent = &found["parentRefs"][0];
            same(&json!(wanted.parent.kind), &parent["kind"])?;
            same(&json!(wanted.parent.namespace), &parent["namespace"])?;
            same(&json!(name(&wanted.parent.name)), &parent["name"])?;
        }
        Ok(())
    }
}

/// A set's labels or annotations without the gateway's own.
fn without_gateways(fields: &Value) -> Value {
    let mut fields = fields.clone();
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|key, _| !key.starts_with("tollgate.dev/"));
    }
    fields
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectName {
    control_plane_namespace: String,
    input: Set,
    expected_object: String,
}

/// Runs a case of kind `rbac_object_name`: the RBAC object in the decision record.
pub(super) async fn object_name(case: ObjectName) -> Result<(), String> {
    let mut stored = case.input.clone();
    if stored.namespace.is_empty() {
        stored.namespace.clone_from(&case.control_plane_namespace);
    }
    let scenario = Scenario {
        enabled: vec![stored.namespace.clone()],
        policy: format!("p, {USER}, applicationsets, get, {}, allow\n", case.expected_object),
        default_role: None,
        projects: vec![Scenario::project(
            &stored.project,
            Some(std::slice::from_ref(&stored.namespace)),
        )],
        clusters: Vec::new(),
        sets: vec![stored.object()],
        control_plane: case.control_plane_namespace,
    };
    for checks in [Checks::Argocd, Checks::Generated] {
        let world = scenario
            .setup(checks, USER)
            .try_start()
            .await
            .map_err(|error| format!("{error:#}"))?;
        let path = format!("/{}", name(&stored.name));
        let query = [("appsetNamespace", case.input.namespace.as_str())];
        let answer = send(&world, USER, (Method::GET, &path), &query, None).await?;
        same(&200, &answer.status).map_err(|error| format!("{error}: {answer:?}"))?;
        let objects: Vec<&Value> = answer.record["checks"].as_array().into_iter().flatten().collect();
        let objects: Vec<&str> = objects.iter().filter_map(|check| check["object"].as_str()).collect();
        same(&vec![case.expected_object.as_str()], &objects)?;
    }
    Ok(())
}
