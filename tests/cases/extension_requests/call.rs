//! Kind `call`: a whole request, from the caller's cookie to the headers that the backend receives.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::cookies;
use crate::suite::same;
use test_support::backend::{Backend, Reply, Seen};
use test_support::client::{Answer, Client};
use test_support::issuer::Issuer;
use test_support::world::{Setup, World, map, object};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    control_plane_namespace: String,
    config: Config,
    #[serde(default)]
    backends: BTreeMap<String, Replies>,
    user: User,
    rbac: Rbac,
    request: Request,
    application: Option<Application>,
    project: Option<Project>,
    cluster_lookup: Lookup,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    argocd_cm: BTreeMap<String, String>,
    #[serde(default)]
    secrets: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replies {
    #[serde(default)]
    replies: String,
    #[serde(default = "ok")]
    status: u16,
}

fn ok() -> u16 {
    200
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    user_id: String,
    #[serde(default, deserialize_with = "or_default")]
    username: String,
    #[serde(default, deserialize_with = "or_default")]
    groups: Vec<String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rbac {
    applications_get: Effect,
    extensions_invoke: Effect,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effect {
    Allow,
    Deny,
}

impl Effect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// If absent, a session cookie is sent.
    cookies: Option<BTreeMap<String, String>>,
    #[serde(default)]
    body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Application {
    project: String,
    destination: Destination,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Destination {
    #[serde(default)]
    name: String,
    #[serde(default)]
    server: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Project {
    name: String,
    #[serde(default)]
    destinations: Vec<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lookup {
    mode: Mode,
    /// Clusters with this name. A single one means that the name is unique.
    #[serde(default)]
    by_name_returns: Vec<String>,
    cluster: Option<Cluster>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Fixed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    name: String,
    server: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    status: u16,
    backend: Option<String>,
    backend_path: Option<String>,
    body: Option<String>,
    body_contains: Option<String>,
    #[serde(default)]
    headers_received_by_backend: BTreeMap<String, String>,
    #[serde(default)]
    headers_absent_at_backend: Vec<String>,
    metrics: Option<Vec<Metric>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    name: String,
    labels: BTreeMap<String, String>,
    increment: Option<u64>,
    observations: Option<u64>,
}

/// Runs a case.
pub(super) async fn run(case: Question) -> Result<(), String> {
    let issuer = Issuer::start().await;
    let mut backends = BTreeMap::new();
    for (name, Replies { replies, status }) in &case.backends {
        let reply = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{replies}",
            replies.len()
        );
        let backend = Backend::start(move |_| Reply::Bytes(reply.clone().into_bytes())).await;
        backends.insert(name.clone(), backend);
    }
    let setup = case.setup(&issuer, &backends);
    let world = setup.try_start().await.map_err(|error| error.to_string())?;
    let answer = case.send(&world, &issuer).await;
    case.check_answer(&answer)?;
    let seen = backends.iter().map(|(name, backend)| (name.as_str(), backend.seen()));
    let seen: Vec<_> = seen.filter(|(_, seen)| !seen.is_empty()).collect();
    case.check_backends(&seen)?;
    if let Some(metrics) = &case.expected.metrics {
        check_metrics(metrics, &world.admin("/metrics").await)?;
    }
    Ok(())
}

impl Question {
    fn setup(&self, issuer: &Issuer, backends: &BTreeMap<String, Backend>) -> Setup {
        let mut argocd_cm = self.config.argocd_cm.clone();
        for (name, backend) in backends {
            for text in argocd_cm.values_mut() {
                *text = text.replace(name, &format!("http://{}", backend.address));
            }
        }
        argocd_cm.insert("oidc.config".to_owned(), issuer.argocd_config(false));
        let user = &self.user.user_id;
        let policy = format!(
            "p, {user}, applications, get, *, {}\np, {user}, extensions, invoke, *, {}\n",
            self.rbac.applications_get.as_str(),
            self.rbac.extensions_invoke.as_str(),
        );
        let mut objects = Vec::new();
        objects.extend(self.application_object());
        objects.extend(self.project_object());
        objects.extend(self.cluster_objects());
        Setup {
            argocd_cm,
            rbac_cm: map(&[("policy.csv", &policy)]),
            secrets: self.config.secrets.clone(),
            objects,
            settings: json!({"extensions": {"compat": "argocd"}}),
            plugins: Vec::new(),
            control_plane: self.control_plane_namespace.clone(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.request.headers.iter();
        headers
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The Application, with the name and namespace of the request's header.
    fn application_object(&self) -> Option<Value> {
        let application = self.application.as_ref()?;
        let (namespace, name) = self.header("argocd-application-name")?.split_once(':')?;
        let Destination {
            name: cluster,
            server,
            namespace: target,
        } = &application.destination;
        let mut destination = json!({});
        for (key, value) in [("name", cluster), ("server", server), ("namespace", target)] {
            if !value.is_empty() {
                destination[key] = value.as_str().into();
            }
        }
        let spec = json!({"project": application.project, "destination": destination});
        Some(object(
            "argoproj.io/v1alpha1",
            "Application",
            name,
            namespace,
            json!({"spec": spec}),
        ))
    }

    fn project_object(&self) -> Option<Value> {
        let project = self.project.as_ref()?;
        let mut destinations = project.destinations.clone();
        if let (Some(cluster), Some(application)) = (&self.cluster_lookup.cluster, &self.application) {
            // The fixed cluster is the result for any destination, so a rule that names it must
            // also permit what the Application names.
            for (key, of_cluster, of_application) in [
                ("name", &cluster.name, &application.destination.name),
                ("server", &cluster.server, &application.destination.server),
            ] {
                for mut rule in project.destinations.clone() {
                    if !of_application.is_empty() && rule.get(key) == Some(of_cluster) {
                        rule.insert(key.to_owned(), of_application.clone());
                        destinations.push(rule);
                    }
                }
            }
        }
        let spec = json!({"destinations": destinations});
        Some(object(
            "argoproj.io/v1alpha1",
            "AppProject",
            &project.name,
            &self.control_plane_namespace,
            json!({"spec": spec}),
        ))
    }

    /// Cluster Secrets with which the Application's destination resolves to the lookup's cluster.
    /// They have the name and server of the destination, if it has any, instead of the cluster's.
    fn cluster_objects(&self) -> Vec<Value> {
        let Mode::Fixed = self.cluster_lookup.mode;
        let Some(cluster) = &self.cluster_lookup.cluster else {
            return Vec::new();
        };
        let named = self.application.as_ref().map(|application| &application.destination);
        let asked = |own: &String, asked: Option<&String>| asked.filter(|text| !text.is_empty()).unwrap_or(own).clone();
        let name = asked(&cluster.name, named.map(|to| &to.name));
        let server = asked(&cluster.server, named.map(|to| &to.server));
        let several = self.cluster_lookup.by_name_returns.len().max(1);
        let secret = |index: usize| {
            let server = match index {
                0 => server.clone(),
                _ => format!("{server}-{index}"),
            };
            let mut secret = object(
                "v1",
                "Secret",
                &format!("cluster-{index}"),
                &self.control_plane_namespace,
                json!({"stringData": {"name": name, "server": server}}),
            );
            secret["metadata"]["labels"] = json!({"argocd.argoproj.io/secret-type": "cluster"});
            secret
        };
        (0..several).map(secret).collect()
    }

    async fn send(&self, world: &World, issuer: &Issuer) -> Answer {
        let mut claims = json!({"sub": self.user.user_id, "groups": self.user.groups});
        if !self.user.username.is_empty() {
            claims["email"] = self.user.username.as_str().into();
        }
        let session = BTreeMap::from([("argocd.token".to_owned(), "session".to_owned())]);
        let cookies = self.request.cookies.as_ref().unwrap_or(&session);
        let Request { method, path, body, .. } = &self.request;
        let host = world.address();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n");
        head.push_str(&cookies::line(cookies, &issuer.token(&claims)));
        for (name, value) in &self.request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let mut client = Client::connect(host).await;
        client.exchange(format!("{head}\r\n{body}").as_bytes()).await
    }

    fn check_answer(&self, answer: &Answer) -> Result<(), String> {
        let body = String::from_utf8_lossy(&answer.content).trim_end().to_owned();
        same(&self.expected.status, &answer.status).map_err(|error| format!("{error}: {body}"))?;
        if let Some(expected) = &self.expected.body {
            same(&expected.trim_end().to_owned(), &body)?;
        }
        match &self.expected.body_contains {
            Some(part) if !body.contains(part) => Err(format!("`{body}` does not contain `{part}`")),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the requests at the backends. `seen` has only backends that received any.
    fn check_backends(&self, seen: &[(&str, Vec<Seen>)]) -> Result<(), String> {
        let (expected, requests) = match (&self.expected.backend, seen) {
            (None, []) => return Ok(()),
            (Some(expected), [(backend, requests)]) => {
                same(&expected.as_str(), backend)?;
                (&self.expected, requests)
            }
            (backend, seen) => return Err(format!("expected backend {backend:?}, seen {seen:?}")),
        };
        let [request] = requests.as_slice() else {
            return Err(format!("{} requests reached it", requests.len()));
        };
        if let Some(path) = &expected.backend_path {
            same(
                &format!("{} {path} HTTP/1.1", self.request.method),
                &request.line().to_owned(),
            )?;
        }
        for (name, value) in &expected.headers_received_by_backend {
            same(&vec![value.as_str()], &request.values(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        for name in &expected.headers_absent_at_backend {
            same(&Vec::new(), &request.values(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        same(&String::new(), &request.values("cookie").join(""))
    }
}

/// Checks that exactly the expected samples exist.
fn check_metrics(expected: &[Metric], text: &str) -> Result<(), String> {
    let wanted = |name: &str, labels: &BTreeMap<String, String>| {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        format!("{name}{{{}}}", labels.join(","))
    };
    let mut samples = BTreeMap::new();
    for Metric {
        name,
        labels,
        increment,
        observations,
    } in expected
    {
        match (increment, observations) {
            (Some(increment), None) => samples.insert(wanted(name, labels), *increment),
            (None, Some(observations)) => samples.insert(wanted(&format!("{name}_count"), labels), *observations),
            (_, _) => return Err(format!("`{name}` needs one of `increment` and `observations`")),
        };
    }
    samples.retain(|_, count| *count > 0);
    let counted = |name: &str| {
        name.starts_with("argocd_proxy_extension_request_total{")
            || name.starts_with("argocd_proxy_extension_request_duration_seconds_count{")
    };
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let mut found = BTreeMap::new();
    for (name, value) in lines.filter(|(name, _)| counted(name)) {
        found.insert(
            name.to_owned(),
            value.parse().map_err(|error| format!("{name}: {error}"))?,
        );
    }
    // Metrics that the case does not mention are ignored, unless its list is empty.
    let mentioned = |sample: &str| expected.iter().any(|metric| sample.starts_with(&metric.name));
    found.retain(|sample, _| expected.is_empty() || mentioned(sample));
    same(&samples, &found)
}
