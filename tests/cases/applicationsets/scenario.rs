//! Converts what a case describes to objects of a gateway's state, and sends its requests.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, map, object};

const GROUP: &str = "argoproj.io/v1alpha1";
/// Destination and source of generated Applications.
const SERVER: &str = "https://kubernetes.default.svc";
const REPOSITORY: &str = "https://git.example.com/apps.git";

/// An ApplicationSet as cases write it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Set {
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) project: String,
    #[serde(default)]
    labels: Map<String, Value>,
    #[serde(default)]
    annotations: Map<String, Value>,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    pub(super) uid: Option<String>,
    #[serde(default)]
    template_name: Option<String>,
    #[serde(default)]
    pub(super) template_patch: Option<String>,
    #[serde(default)]
    pub(super) generators: Option<Vec<Value>>,
    #[serde(default)]
    generator_template_project: Option<String>,
    #[serde(default)]
    status_resources: Vec<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    group: String,
    version: String,
    kind: String,
    namespace: String,
    name: String,
    health: Option<String>,
    sync: Option<String>,
}

/// Converts a name to one that Kubernetes accepts. Tables contain empty names and upper-case
/// letters, which only a fake client accepts.
pub(super) fn name(written: &str) -> String {
    match written {
        "" => "unnamed".to_owned(),
        written => written.to_lowercase(),
    }
}

impl Set {
    /// The whole object.
    pub(super) fn object(&self) -> Value {
        let mut generators = self.generators.clone().unwrap_or_default();
        if let Some(project) = &self.generator_template_project {
            for generator in &mut generators {
                for settings in generator.as_object_mut().into_iter().flat_map(Map::values_mut) {
                    settings["template"] = json!({"metadata": {}, "spec": {"project": project}});
                }
            }
        }
        let template_name = self.template_name.as_deref().unwrap_or("app");
        let mut spec = json!({
            "generators": generators,
            "template": {
                "metadata": {"name": template_name},
                "spec": {
                    "project": self.project,
                    "source": {"repoURL": REPOSITORY, "path": "app"},
                    "destination": {"server": SERVER, "namespace": "app"},
                },
            },
        });
        if let Some(patch) = &self.template_patch {
            spec["templatePatch"] = json!(patch);
        }
        let mut set = object(
            GROUP,
            "ApplicationSet",
            &name(&self.name),
            &self.namespace,
            json!({"spec": spec}),
        );
        let metadata = &mut set["metadata"];
        for (key, values) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !values.is_empty() {
                metadata[key] = json!(values);
            }
        }
        if !self.finalizers.is_empty() {
            metadata["finalizers"] = json!(self.finalizers);
        }
        if let Some(uid) = &self.uid {
            metadata["uid"] = json!(uid);
        }
        if !self.status_resources.is_empty() {
            let resources: Vec<Value> = self.status_resources.iter().map(Status::json).collect();
            set["status"] = json!({"resources": resources});
        }
        set
    }
}

impl Status {
    fn json(&self) -> Value {
        let Self {
            group,
            version,
            kind,
            namespace,
            name,
            health,
            sync,
        } = self;
        let mut status =
            json!({"group": group, "version": version, "kind": kind, "namespace": namespace, "name": name});
        if let Some(health) = health {
            status["health"] = json!({"status": health});
        }
        if let Some(sync) = sync {
            status["status"] = json!(sync);
        }
        status
    }
}

/// Which checks the gateway makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checks {
    /// All checks, as by default.
    Generated,
    /// Only Argo CD's checks.
    Argocd,
}

/// The state of the gateway for a case.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) control_plane: String,
    /// Namespaces in which sets are allowed.
    pub(super) enabled: Vec<String>,
    /// `policy.csv`.
    pub(super) policy: String,
    pub(super) default_role: Option<String>,
    pub(super) projects: Vec<Value>,
    /// Names and servers of clusters.
    pub(super) clusters: Vec<(String, String)>,
    pub(super) sets: Vec<Value>,
}

impl Scenario {
    /// A project that permits everything; Applications of other namespaces only as listed.
    pub(super) fn project(name: &str, source_namespaces: Option<&[String]>) -> Value {
        let mut spec = json!({
            "sourceRepos": ["*"],
            "destinations": [{"server": "*", "namespace": "*"}],
        });
        if let Some(namespaces) = source_namespaces {
            spec["sourceNamespaces"] = json!(namespaces);
        }
        object(GROUP, "AppProject", name, "", json!({"spec": spec}))
    }

    /// The setup of a gateway with these checks, on which `user` may log in.
    pub(super) fn setup(&self, checks: Checks, user: &str) -> Setup {
        let mut objects: Vec<Value> = self.projects.clone();
        for project in &mut objects {
            project["metadata"]["namespace"] = json!(self.control_plane);
        }
        objects.extend(self.clusters.iter().enumerate().map(|(at, (name, server))| {
            let labels = json!({"argocd.argoproj.io/secret-type": "cluster"});
            let body =
                json!({"metadata": {"labels": labels}, "stringData": {"name": name, "server": server, "config": "{}"}});
            object("v1", "Secret", &format!("cluster-{at}"), &self.control_plane, body)
        }));
        objects.extend(self.sets.iter().cloned());
        let mut rbac_cm = map(&[("policy.csv", &self.policy)]);
        if let Some(role) = &self.default_role {
            rbac_cm.insert("policy.default".to_owned(), role.clone());
        }
        let others: Vec<&String> = self
            .enabled
            .iter()
            .filter(|name| **name != self.control_plane)
            .collect();
        let mut settings = json!({"namespaces": others});
        if checks == Checks::Argocd {
            settings["compat"] = json!("argocd");
        }
        Setup {
            argocd_cm: BTreeMap::from([(format!("accounts.{user}"), "login".to_owned())]),
            rbac_cm,
            objects,
            settings: json!({"applicationSets": settings}),
            control_plane: self.control_plane.clone(),
            ..Setup::default()
        }
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
    /// The decision's record.
    pub(super) record: Value,
}

impl Answer {
    pub(super) fn is_ok(&self) -> bool {
        self.status == 200
    }

    /// The error message for the caller.
    pub(super) fn message(&self) -> String {
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Names of a list's items, in order.
    pub(super) fn names(&self, list: &str) -> Vec<String> {
        let items = self.body[list].as_array().into_iter().flatten();
        let named = items.filter_map(|item| item.pointer("/metadata/name")?.as_str().map(str::to_owned));
        named.collect()
    }
}

/// Sends one request as `user`.
pub(super) async fn send(
    world: &World,
    user: &str,
    (method, path): (Method, &str),
    query: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Answer, String> {
    let url = format!("http://{}/api/v1/applicationsets{path}", world.address());
    let url = reqwest::Url::parse_with_params(&url, query).map_err(|error| error.to_string())?;
    let mut request = reqwest::Client::new()
        .request(method, url)
        .bearer_auth(token::session(SESSION_KEY, user));
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let record = world.decision(&answer).await;
    let status = answer.status().as_u16();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Answer { status, body, record })
}

/// Merges `from` into `onto`, recursively.
pub(super) fn merge(onto: &mut Value, from: Value) {
    match (onto, from) {
        (Value::Object(onto), Value::Object(from)) => {
            for (key, value) in from {
                merge(onto.entry(key).or_insert(Value::Null), value);
            }
        }
        (onto, from) => *onto = from,
    }
}
