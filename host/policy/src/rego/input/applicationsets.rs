//! Builds the input of the policy of the ApplicationSet front,
//! `data.tollgate.applicationsets.decision`: the caller, the operation on the set, and the checks
//! of one part of it.
//!
//! One request can need a thousand evaluations, one for each Application. What they have in common
//! is built once: [`ApplicationSetFacts`] for the request, a [`CheckedFact`] for each project,
//! source and destination.
//!
//! Security: the input contains no credential and no whole Application object.

use std::sync::LazyLock;

use regorus::Value;
use regorus::value::Object;

use super::{PrincipalFacts, RbacVerdict, labels, object_with_keys, texts};
use tollgate_state::{Cluster, Project};

keys!(
    action,
    allow,
    application,
    checks,
    cluster,
    destination,
    generator,
    namespace,
    name,
    object,
    ownership,
    permitted,
    project,
    rbac,
    reason,
    repository,
    resource,
    rule,
    source,
    stage,
    why,
);

thread_local! {
    static KEYS: Keys = Keys::new();
}

/// An ApplicationSet, as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationSetDetails<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `spec.template.spec.project` as written.
    pub project: &'a str,
    /// Projects that its RBAC objects are in, as far as known.
    pub projects: &'a [String],
    /// `metadata.labels`.
    pub labels: &'a std::collections::BTreeMap<String, String>,
    /// Kinds of its generators.
    pub generators: &'a [&'static str],
}

/// The parts of the input that are the same for one whole request.
#[derive(Clone, Debug)]
pub struct ApplicationSetFacts(Object);

impl ApplicationSetFacts {
    /// Takes some microseconds: call it once per request.
    pub fn new(principal: &PrincipalFacts, operation: &str, set: &ApplicationSetDetails<'_>) -> Self {
        let ApplicationSetDetails {
            namespace,
            name,
            project,
            projects,
            labels: set_labels,
            generators,
        } = *set;
        let set = object_with_keys([
            ("namespace", Value::from(namespace)),
            ("name", Value::from(name)),
            ("project", Value::from(project)),
            ("projects", texts(projects.iter().map(String::as_str))),
            ("labels", labels(set_labels)),
            ("generators", texts(generators.iter().copied())),
        ]);
        let parts = [
            ("principal", principal.0.clone()),
            ("operation", Value::from(operation)),
            ("set", set),
        ];
        Self(
            parts
                .into_iter()
                .map(|(key, value)| (Value::from(key), value))
                .collect(),
        )
    }
}

/// The result of a check: what was checked, whether it is permitted, and why not. Cloning is cheap:
/// it only counts a reference.
#[derive(Clone, Debug)]
pub struct CheckedFact(Value);

impl CheckedFact {
    /// The result alone, without what was checked.
    ///
    /// - `refused`: why it is not permitted; `None` if it is.
    pub fn new(refused: Option<&str>) -> Self {
        Self::with([], refused)
    }

    /// A project.
    pub fn project(name: &str, project: Option<&Project>, refused: Option<&str>) -> Self {
        let empty = std::collections::BTreeMap::new();
        let about = labels(project.map_or(&empty, |project| &project.labels));
        Self::with([("name", Value::from(name)), ("labels", about)], refused)
    }

    /// The destination of an Application.
    ///
    /// - `cluster`: `None` if the destination does not resolve to exactly one cluster.
    pub fn destination(cluster: Option<&Cluster>, namespace: &str, refused: Option<&str>) -> Self {
        let text = |of: fn(&Cluster) -> &String| Value::from(cluster.map_or("", |cluster| of(cluster)));
        let about = [
            ("name", text(|cluster| &cluster.name)),
            ("server", text(|cluster| &cluster.server)),
            ("namespace", Value::from(namespace)),
        ];
        Self::with(about, refused)
    }

    /// The sources of the manifests of an Application.
    pub fn source(repositories: &[&str], refused: Option<&str>) -> Self {
        let about = [("repositories", texts(repositories.iter().copied()))];
        Self::with(about, refused)
    }

    fn with<const N: usize>(about: [(&str, Value); N], refused: Option<&str>) -> Self {
        KEYS.with(|keys| {
            let mut fact: Object = about
                .into_iter()
                .map(|(key, value)| (Value::from(key), value))
                .collect();
            fact.insert(keys.permitted.clone(), Value::from(refused.is_none()));
            if let Some(reason) = refused {
                fact.insert(keys.reason.clone(), Value::from(reason));
            }
            Self(fact.into_value())
        })
    }
}

/// An RBAC permission that was looked up.
#[derive(Clone, Copy, Debug)]
pub struct RbacCheck<'a> {
    /// RBAC resource.
    pub resource: &'a str,
    /// RBAC action.
    pub action: &'a str,
    /// RBAC object.
    pub object: &'a str,
    /// The verdict of the table.
    pub verdict: RbacVerdict<'a>,
}

/// An Application that a request writes, deletes or leaves as it is.
#[derive(Clone, Debug)]
pub struct ApplicationChange<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The project it is in afterwards; for a deleted one, the project it was in.
    pub project: &'a str,
    /// `create`, `update`, `delete` or `keep`.
    pub action: &'static str,
    /// Whether the object is one that may be written.
    pub object: CheckedFact,
    /// Whether the object is new or belongs to the set.
    pub ownership: CheckedFact,
    /// Its project, source and destination; `None` if it is deleted.
    pub placement: Option<PlacementChecks>,
}

/// The checks of an Application that exists afterwards.
#[derive(Clone, Debug)]
pub struct PlacementChecks {
    /// Its project.
    pub project: CheckedFact,
    /// Whether the project takes Applications of its namespace.
    pub namespace: CheckedFact,
    /// Whether the project permits its repositories.
    pub source: CheckedFact,
    /// Whether the project permits its destination.
    pub destination: CheckedFact,
}

/// What one evaluation of the policy is about.
#[derive(Clone, Debug)]
pub enum ApplicationSetStage<'a> {
    /// The set itself.
    Set,
    /// A repository that a generator reads.
    Repository {
        /// Its URL.
        url: &'a str,
        /// Whether the gateway may connect to it.
        egress: CheckedFact,
    },
    /// A cluster that a generator lists.
    Cluster {
        /// Its name.
        name: &'a str,
        /// Its API server.
        server: &'a str,
    },
    /// A generator in a plugin.
    Generator {
        /// Its kind.
        kind: &'static str,
    },
    /// An Application.
    Application(ApplicationChange<'a>),
}

impl ApplicationSetStage<'_> {
    fn stage(&self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Repository { .. } => "repository",
            Self::Cluster { .. } => "cluster",
            Self::Generator { .. } => "generator",
            Self::Application(_) => "application",
        }
    }
}

/// Input of `data.tollgate.applicationsets.decision`. The schema is
/// [`application_set_input_schema`]; docs/policies.md explains it.
#[derive(Clone, Debug)]
pub struct ApplicationSetInput<'a> {
    /// The input that all evaluations of a request have in common.
    pub facts: &'a ApplicationSetFacts,
    /// What this evaluation is about.
    pub subject: ApplicationSetStage<'a>,
    /// Permissions that were looked up for it.
    pub checks: &'a [RbacCheck<'a>],
    /// Why RBAC refuses it; `None` if it does not.
    pub refused: Option<&'a str>,
}

impl ApplicationSetInput<'_> {
    /// The value on which a bundle decides. Takes two microseconds for an Application.
    pub fn to_value(&self) -> Value {
        KEYS.with(|keys| {
            let mut input = self.facts.0.clone();
            input.insert(keys.stage.clone(), Value::from(self.subject.stage()));
            input.insert(keys.rbac.clone(), self.rbac(keys));
            match &self.subject {
                ApplicationSetStage::Set => {}
                ApplicationSetStage::Repository { url, egress } => {
                    input.insert(keys.repository.clone(), object_with_keys([("url", Value::from(*url))]));
                    input.insert(keys.source.clone(), egress.0.clone());
                }
                ApplicationSetStage::Cluster { name, server } => {
                    let cluster = object_with_keys([("name", Value::from(*name)), ("server", Value::from(*server))]);
                    input.insert(keys.cluster.clone(), cluster);
                }
                ApplicationSetStage::Generator { kind } => {
                    input.insert(keys.generator.clone(), object_with_keys([("kind", Value::from(*kind))]));
                }
                ApplicationSetStage::Application(part) => application(keys, part, &mut input),
            }
            input.into_value()
        })
    }

    fn rbac(&self, keys: &Keys) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(|one| check(keys, one)).collect();
        let mut rbac = Object::new();
        rbac.insert(keys.checks.clone(), Value::from(checks));
        rbac.insert(keys.permitted.clone(), Value::from(self.refused.is_none()));
        if let Some(reason) = self.refused {
            rbac.insert(keys.reason.clone(), Value::from(reason));
        }
        rbac.into_value()
    }
}

fn check(keys: &Keys, check: &RbacCheck<'_>) -> Value {
    let RbacCheck {
        resource,
        action,
        object,
        verdict,
    } = check;
    let mut value = Object::new();
    value.insert(keys.resource.clone(), Value::from(*resource));
    value.insert(keys.action.clone(), Value::from(*action));
    value.insert(keys.object.clone(), Value::from(*object));
    value.insert(keys.allow.clone(), Value::from(verdict.allow));
    value.insert(keys.why.clone(), Value::from(verdict.why));
    if let Some(rule) = verdict.rule {
        value.insert(keys.rule.clone(), Value::from(rule));
    }
    value.into_value()
}

fn application(keys: &Keys, part: &ApplicationChange<'_>, input: &mut Object) {
    let ApplicationChange {
        namespace,
        name,
        project,
        action,
        object,
        ownership,
        placement,
    } = part;
    let about = super::object([
        (&keys.namespace, Value::from(*namespace)),
        (&keys.name, Value::from(*name)),
        (&keys.project, Value::from(*project)),
        (&keys.action, Value::from(*action)),
    ]);
    input.insert(keys.application.clone(), about);
    input.insert(keys.object.clone(), object.0.clone());
    input.insert(keys.ownership.clone(), ownership.0.clone());
    if let Some(placement) = placement {
        let PlacementChecks {
            project,
            namespace,
            source,
            destination,
        } = placement;
        for (key, fact) in [
            (&keys.project, project),
            (&keys.namespace, namespace),
            (&keys.source, source),
            (&keys.destination, destination),
        ] {
            input.insert(key.clone(), fact.0.clone());
        }
    }
}

/// JSON Schema (2020-12) of the input of the ApplicationSet front.
pub fn application_set_input_schema() -> &'static serde_json::Value {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
        // If the file in the repository is broken, `false` refuses every input, and the tests fail.
        serde_json::from_str(include_str!("applicationsets.schema.json")).unwrap_or(serde_json::Value::Bool(false))
    });
    &SCHEMA
}
