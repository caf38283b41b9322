//! What the ApplicationSet front tells its policy.
//!
//! In: who asks for what of which set, and what the host found out about one part of
//! it. Out: the `input` of `data.tollgate.applicationsets.decision`. Never: a
//! credential; an Application's whole object.
//!
//! One request asks about a thousand Applications. What they have in common is built
//! once: [`SetFacts`] for the request, a [`Fact`] for each project, source and
//! destination.

use std::sync::LazyLock;

use regorus::Value;
use regorus::value::Object;

use super::{Principal, RbacVerdict, labels, named, texts};
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

/// A set, as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct KnownSet<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `spec.template.spec.project` as it is written.
    pub project: &'a str,
    /// Projects its RBAC objects are in, as far as they are known.
    pub projects: &'a [String],
    /// `metadata.labels`.
    pub labels: &'a std::collections::BTreeMap<String, String>,
    /// Kinds of its generators.
    pub generators: &'a [&'static str],
}

/// The parts of the input that stay for the whole of one request.
#[derive(Clone, Debug)]
pub struct SetFacts(Object);

impl SetFacts {
    /// Takes some microseconds: once a request.
    pub fn new(principal: &Principal, operation: &str, set: &KnownSet<'_>) -> Self {
        let KnownSet {
            namespace,
            name,
            project,
            projects,
            labels: set_labels,
            generators,
        } = *set;
        let set = named([
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

/// What the host found out about one thing: whether it is permitted, why not, and
/// what it is. Cloning it counts a reference.
#[derive(Clone, Debug)]
pub struct Fact(Value);

impl Fact {
    /// Nothing but a verdict.
    ///
    /// - `refused`: why not; none where it is permitted.
    pub fn new(refused: Option<&str>) -> Self {
        Self::with([], refused)
    }

    /// A project.
    pub fn project(name: &str, project: Option<&Project>, refused: Option<&str>) -> Self {
        let empty = std::collections::BTreeMap::new();
        let about = labels(project.map_or(&empty, |project| &project.labels));
        Self::with([("name", Value::from(name)), ("labels", about)], refused)
    }

    /// Where an Application goes to.
    ///
    /// - `cluster`: none where the destination means no one cluster.
    pub fn destination(cluster: Option<&Cluster>, namespace: &str, refused: Option<&str>) -> Self {
        let text = |of: fn(&Cluster) -> &String| Value::from(cluster.map_or("", |cluster| of(cluster)));
        let about = [
            ("name", text(|cluster| &cluster.name)),
            ("server", text(|cluster| &cluster.server)),
            ("namespace", Value::from(namespace)),
        ];
        Self::with(about, refused)
    }

    /// Where the manifests of an Application come from.
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

/// A permission that was looked up.
#[derive(Clone, Copy, Debug)]
pub struct CheckFact<'a> {
    /// RBAC resource.
    pub resource: &'a str,
    /// RBAC action.
    pub action: &'a str,
    /// RBAC object.
    pub object: &'a str,
    /// What the table says.
    pub verdict: RbacVerdict<'a>,
}

/// An Application that is written, deleted or left as it is.
#[derive(Clone, Debug)]
pub struct ApplicationPart<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The project it is in afterwards; of one that goes, the one it was in.
    pub project: &'a str,
    /// `create`, `update`, `delete` or `keep`.
    pub action: &'static str,
    /// Whether the object is one that can be written.
    pub object: Fact,
    /// Whether it is new, or the set's.
    pub ownership: Fact,
    /// Where it shall be; none for one that goes.
    pub placed: Option<Placed>,
}

/// What is asked of an Application that is there afterwards.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its project.
    pub project: Fact,
    /// Whether the project takes Applications of its namespace.
    pub namespace: Fact,
    /// Whether the project permits its repositories.
    pub source: Fact,
    /// Whether the project permits where it goes to.
    pub destination: Fact,
}

/// What is asked about.
#[derive(Clone, Debug)]
pub enum Subject<'a> {
    /// The set itself.
    Set,
    /// A repository a generator reads.
    Repository {
        /// Its URL.
        url: &'a str,
        /// Whether the gateway may ask it.
        reach: Fact,
    },
    /// A cluster a generator lists.
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
    Application(ApplicationPart<'a>),
}

impl Subject<'_> {
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
pub struct SetInput<'a> {
    /// What all questions of a request have in common.
    pub facts: &'a SetFacts,
    /// What this one is about.
    pub subject: Subject<'a>,
    /// Permissions that were looked up for it.
    pub checks: &'a [CheckFact<'a>],
    /// Why RBAC refuses it; none where it does not.
    pub refused: Option<&'a str>,
}

impl SetInput<'_> {
    /// The value a bundle decides on. Takes two microseconds for an Application.
    pub fn to_value(&self) -> Value {
        KEYS.with(|keys| {
            let mut input = self.facts.0.clone();
            input.insert(keys.stage.clone(), Value::from(self.subject.stage()));
            input.insert(keys.rbac.clone(), self.rbac(keys));
            match &self.subject {
                Subject::Set => {}
                Subject::Repository { url, reach } => {
                    input.insert(keys.repository.clone(), named([("url", Value::from(*url))]));
                    input.insert(keys.source.clone(), reach.0.clone());
                }
                Subject::Cluster { name, server } => {
                    let cluster = named([("name", Value::from(*name)), ("server", Value::from(*server))]);
                    input.insert(keys.cluster.clone(), cluster);
                }
                Subject::Generator { kind } => {
                    input.insert(keys.generator.clone(), named([("kind", Value::from(*kind))]));
                }
                Subject::Application(part) => application(keys, part, &mut input),
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

fn check(keys: &Keys, check: &CheckFact<'_>) -> Value {
    let CheckFact {
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

fn application(keys: &Keys, part: &ApplicationPart<'_>, input: &mut Object) {
    let ApplicationPart {
        namespace,
        name,
        project,
        action,
        object,
        ownership,
        placed,
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
    if let Some(placed) = placed {
        let Placed {
            project,
            namespace,
            source,
            destination,
        } = placed;
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
        // A broken file in the repository refuses every input, and fails the tests.
        serde_json::from_str(include_str!("applicationsets.schema.json")).unwrap_or(serde_json::Value::Bool(false))
    });
    &SCHEMA
}
