//! The objects of a large control plane.

use std::fmt::Write as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::upstream::Upstreams;

/// Where the credentials of clusters are that Argo CD reaches through the gateway.
pub(super) const CREDENTIALS: &str = "tollgate";
/// The account of Argo CD's own components.
pub(super) const CONTROLLER: &str = "controller";

/// Signs the sessions of a run on loopback, and protects nothing.
pub(super) const SESSION_KEY: &str = "soaked-on-loopback-only-0123456789abcdef";

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) applications: usize,
    pub(super) projects: usize,
    pub(super) clusters: usize,
    pub(super) sets: usize,
    pub(super) people: usize,
    pub(super) streams: usize,
}

impl Size {
    pub(super) const FULL: Self = Self {
        applications: 50_000,
        projects: 5_000,
        clusters: 2_000,
        sets: 3_000,
        people: 20_000,
        streams: 10_000,
    };

    pub(super) fn divided_by(self, divisor: usize) -> Self {
        Self {
            applications: self.applications / divisor,
            projects: self.projects / divisor,
            clusters: self.clusters / divisor,
            sets: self.sets / divisor,
            people: self.people / divisor,
            streams: self.streams / divisor,
        }
    }
}

/// What clusters other than those of [`Size::clusters`] are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special<'a> {
    /// The public key of each agent.
    pub(super) agent_keys: &'a [String],
    /// PEM of the authority of the upstreams.
    pub(super) authority: &'a str,
}

/// Creates all objects.
pub(super) fn create(api: &ApiServer, size: Size, upstreams: Upstreams, special: Special<'_>) -> Result<()> {
    let key = STANDARD.encode(SESSION_KEY);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("argocd-secret"),
                        "data": {"server.secretkey": key}});
    api.put("secrets", secret)?;
    api.put("configmaps", argocd_cm(size, upstreams, &[]))?;
    api.put("configmaps", rbac_cm(size))?;
    for number in 0..size.projects {
        api.put("appprojects", project(number, size, 0))?;
    }
    for number in 0..size.applications {
        api.put("applications", application(number, size, 0))?;
    }
    for number in 0..size.sets {
        api.put("applicationsets", set(number, size, 0))?;
    }
    for number in 0..size.clusters {
        api.put("secrets", cluster(number, upstreams, 0))?;
    }
    for (number, key) in special.agent_keys.iter().enumerate() {
        let name = cluster_of_agent(number);
        let server = format!("https://{name}.clusters.invalid");
        let config = json!({"agent": {"publicKeys": [key]}});
        api.put(
            "secrets",
            cluster_secret(("argocd", "argocd.argoproj.io"), (&name, &server), &config),
        )?;
    }
    // Argo CD's own components reach it in tunnels.
    let server = format!("https://{}", upstreams.tls);
    let enrolled = json!({"bearerToken": "for-the-gateway", "proxyUrl": "https://gateway.test"});
    api.put(
        "secrets",
        cluster_secret(("argocd", "argocd.argoproj.io"), ("enrolled", &server), &enrolled),
    )?;
    let tls = json!({"caData": STANDARD.encode(special.authority)});
    let config = json!({"bearerToken": "of-the-gateway", "tlsClientConfig": tls});
    api.put(
        "secrets",
        cluster_secret((CREDENTIALS, "tollgate.dev"), ("enrolled", &server), &config),
    )?;
    let users: Vec<Value> = (0..size.people)
        .map(|number| json!({"id": number + 1, "username": format!("p{number}"), "state": "active"}))
        .collect();
    let members: Vec<Value> = (0..size.people)
        .map(|number| json!({"username": format!("p{number}"), "role": "developer"}))
        .collect();
    let spec = json!({"users": users, "projects": [{"id": 1, "path": "group/all", "members": members}]});
    let directory = json!({"apiVersion": "tollgate.dev/v1alpha1", "kind": "UserDirectory",
                           "metadata": metadata("people"), "spec": spec});
    api.put("userdirectories", directory)?;
    let access = json!({"access_as": {"user": {}}, "projects": [{"id": "group/all"}]});
    let spec = json!({"id": 1, "configProject": {"id": 1}, "cluster": "c0", "config": {"user_access": access}});
    let agent =
        json!({"apiVersion": "tollgate.dev/v1alpha1", "kind": "Agent", "metadata": metadata("c0"), "spec": spec});
    api.put("agents", agent)?;
    api.forget_changes();
    Ok(())
}

/// The `number`th of the changes that go on all the time: mostly Applications, as in an installation.
pub(super) fn change(api: &ApiServer, number: usize, size: Size, upstreams: Upstreams) -> Result<()> {
    // Not the first ones: their access does not change meanwhile.
    let at = number.wrapping_mul(7_919);
    match number % 10 {
        0 => api.put("appprojects", project(at % size.projects, size, number)),
        1 => api.put("applicationsets", set(at % size.sets, size, number)),
        2 => api.put("secrets", cluster(at % size.clusters, upstreams, number)),
        _ => api.put("applications", application(at % size.applications, size, number)),
    }
}

/// `argocd-cm`, in which some accounts are disabled.
pub(super) fn argocd_cm(size: Size, upstreams: Upstreams, disabled: &[usize]) -> Value {
    let accounts = (0..size.people).map(|number| (format!("accounts.p{number}"), json!("login")));
    let disabled = disabled
        .iter()
        .map(|number| (format!("accounts.p{number}.enabled"), json!("false")));
    let more = [
        (
            "extension.config.echo".to_owned(),
            json!(format!("{{services: [{{url: 'http://{}'}}]}}", upstreams.plain)),
        ),
        (format!("accounts.{CONTROLLER}"), json!("login")),
        ("application.sync.impersonation.enabled".to_owned(), json!("true")),
    ];
    let data: serde_json::Map<String, Value> = accounts.chain(disabled).chain(more).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("argocd-cm"), "data": data})
}

/// Everybody belongs to one of the teams, and each team has a project.
fn rbac_cm(size: Size) -> Value {
    let mut policy = String::new();
    for row in ["extensions, *, *", "clusters, *, *", "applicationsets, *, */*"] {
        let _ = writeln!(policy, "p, role:all, {row}, allow");
    }
    for number in 0..size.projects {
        let _ = writeln!(
            policy,
            "p, role:t{number}, applications, *, j{number}/*, allow\ng, role:t{number}, role:all"
        );
    }
    for number in 0..size.people {
        let _ = writeln!(policy, "g, p{number}, role:t{}", number % size.projects);
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("argocd-rbac-cm"), "data": {"policy.csv": policy}})
}

fn project(number: usize, size: Size, revision: usize) -> Value {
    let own = json!({"server": "*", "namespace": format!("n{number}")});
    let others = (1..10).map(|rule| {
        let cluster = (number + rule) % size.clusters;
        json!({"name": format!("c{cluster}"), "namespace": format!("team-{number}-{rule}-*"), "server": "*"})
    });
    let destinations: Vec<Value> = std::iter::once(own).chain(others).collect();
    let accounts = json!([{"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"}]);
    let spec = json!({"sourceRepos": ["*"], "destinations": destinations, "destinationServiceAccounts": accounts,
                      "description": format!("revision {revision}")});
    argo("AppProject", &format!("j{number}"), &spec)
}

/// The name of an Application of a project.
pub(super) fn application_of(project: usize) -> String {
    format!("a{project}")
}

fn application(number: usize, size: Size, revision: usize) -> Value {
    let (project, cluster) = (number % size.projects, number % size.clusters);
    let source = json!({"repoURL": "https://git.example/deploy", "path": format!("a/{number}"),
                        "targetRevision": format!("r{revision}")});
    let destination = json!({"name": format!("c{cluster}"), "namespace": format!("n{project}")});
    let spec = json!({"project": format!("j{project}"), "source": source, "destination": destination});
    argo("Application", &format!("a{number}"), &spec)
}

fn set(number: usize, size: Size, revision: usize) -> Value {
    let project = number % size.projects;
    let destination = json!({"name": "c0", "namespace": format!("n{project}")});
    let source =
        json!({"repoURL": "https://git.example/deploy", "path": "a", "targetRevision": format!("r{revision}")});
    let template = json!({"metadata": {"name": format!("s{number}-{{{{name}}}}")},
                          "spec": {"project": format!("j{project}"), "source": source, "destination": destination}});
    let mut set = argo(
        "ApplicationSet",
        &format!("s{number}"),
        &json!({"generators": [{"list": {"elements": []}}], "template": template}),
    );
    // Without a condition there is no controller, and a watch of the set ends.
    set["status"] = json!({"conditions": [{"type": "ResourcesUpToDate", "status": "True"}]});
    set
}

/// The name of the cluster of an agent.
pub(super) fn cluster_of_agent(number: usize) -> String {
    format!("agent-{number}")
}

/// All clusters are one server with many addresses.
fn cluster(number: usize, upstreams: Upstreams, revision: usize) -> Value {
    let port = upstreams.plain.port();
    let server = format!("http://127.1.{}.{}:{port}", number / 250, number % 250 + 1);
    let name = format!("c{number}");
    let mut secret = cluster_secret(("argocd", "argocd.argoproj.io"), (&name, &server), &json!({}));
    secret["metadata"]["annotations"] = json!({"revision": revision.to_string()});
    secret
}

fn cluster_secret((namespace, group): (&str, &str), (name, server): (&str, &str), config: &Value) -> Value {
    let labels = json!({format!("{group}/secret-type"): "cluster"});
    let metadata = json!({"name": format!("cluster-{name}"), "namespace": namespace, "labels": labels});
    let data = json!({"name": STANDARD.encode(name), "server": STANDARD.encode(server),
                      "config": STANDARD.encode(config.to_string())});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

fn argo(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": metadata(name), "spec": spec})
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "argocd"})
}
