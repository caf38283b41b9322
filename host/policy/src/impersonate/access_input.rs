//! The input that describes one access to expressions and policies: `agent`, `user`, `access` and
//! `job`. It is built from the access itself or from the input of a test case.
//!
//! Security: it contains no credential and nothing that the client sent.

use serde_json::{Map, Value as Json, json};

use tollgate_core::access::AccessFacts;
use tollgate_core::user::{AccessAs, CiJob};

/// The part of the input that is the same for every request of one access.
#[derive(Clone, Debug)]
pub struct AccessInput {
    /// `id`, `name`, `config_project`, `cluster`.
    pub agent: Json,
    /// `id`, `username`, and `groups` if they are known.
    pub user: Json,
    /// `type`, `as`, `projects`, `groups`.
    pub access: Json,
    /// The CI job; null for people.
    pub job: Json,
}

impl AccessInput {
    /// Builds the input from the facts of an access.
    pub fn from_facts(access: &AccessFacts) -> Self {
        let AccessFacts {
            agent,
            user,
            issuer_groups,
            access_as,
            session,
        } = access;
        let mut person = json!({"id": user.id, "username": user.username});
        if let (Some(groups), Some(fields)) = (issuer_groups, person.as_object_mut()) {
            fields.insert("groups".to_owned(), json!(**groups));
        }
        let none = || json!([]);
        let (projects, groups, job) = match access_as {
            AccessAs::User { projects, groups } => (json!(projects), json!(groups), Json::Null),
            AccessAs::CiJob(job) => (none(), none(), job_json(job)),
            AccessAs::Agent | AccessAs::Mapped(_) | AccessAs::Impersonate(_) => (none(), none(), Json::Null),
        };
        Self {
            agent: json!({
                "id": agent.id.get(),
                "name": agent.name,
                "config_project": agent.config_project,
                "cluster": agent.cluster,
            }),
            user: person,
            access: json!({
                "type": session.access_type().as_ref(),
                "as": access_as.as_ref(),
                "projects": projects,
                "groups": groups,
            }),
            job,
        }
    }

    /// Takes these parts from the input of a test case.
    pub fn from_input(input: &Json) -> Self {
        let part = |name: &str| input.get(name).cloned().unwrap_or_default();
        Self {
            agent: part("agent"),
            user: part("user"),
            access: part("access"),
            job: part("job"),
        }
    }

    pub(super) fn access_as(&self) -> Option<&str> {
        self.access.get("as").and_then(Json::as_str)
    }

    /// `access.projects` or `access.groups`, flattened to one entry for each role. Nested lists
    /// cost expressions much more.
    pub(super) fn roles(&self, list: &str) -> Json {
        let entries = self.access.get(list).and_then(Json::as_array).into_iter().flatten();
        let role = |entry: &Json, role: &Json| {
            let mut flat = Map::new();
            for key in ["id", "path"] {
                flat.insert(key.to_owned(), entry.get(key).cloned().unwrap_or_default());
            }
            flat.insert("role".to_owned(), role.clone());
            Json::Object(flat)
        };
        let flat = entries.flat_map(|entry| {
            let roles = entry.get("roles").and_then(Json::as_array).into_iter().flatten();
            roles.map(move |one| role(entry, one))
        });
        Json::Array(flat.collect())
    }
}

fn job_json(job: &CiJob) -> Json {
    let CiJob {
        id,
        pipeline,
        project,
        groups,
        environment,
    } = job;
    let mut object = json!({
        "id": id,
        "pipeline": pipeline,
        "project": project,
        "groups": groups,
    });
    if let (Some((slug, tier)), Some(fields)) = (environment, object.as_object_mut()) {
        fields.insert("environment".to_owned(), json!({"slug": slug, "tier": tier}));
    }
    object
}
