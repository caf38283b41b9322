//! Builds the input of the policy of the ApplicationSet front,
//! `data.tollgate.applicationsets.decision`: the caller, the operation on the set, and the checks
//! of one part of it.
//!
//! One request can need a thousand evaluations, one for each Application. What they have in common
//! is built once: [`ApplicationSetFacts`] for the request, a [`CheckedFact`] for each project,
//! source and destination.
//!
//! Security: the input contains no credential and no whole Application object.

use std::collections::BTreeMap;

use regorus::Value;
use regorus::value::Object;

use super::{PrincipalFacts, RbacVerdict, insert, labels, object, optional, reusable, reusable_value, texts};
use tollgate_objects::{Cluster, Project};

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
    pub labels: &'a BTreeMap<String, String>,
    /// Kinds of its generators.
    pub generators: &'a [&'static str],
}

/// The parts of the input that are the same for one whole request.
#[derive(Clone, Debug)]
pub struct ApplicationSetFacts(Object);

impl ApplicationSetFacts {
    /// Takes some microseconds: call it once per request.
    pub fn new(principal: &PrincipalFacts, operation: &str, set: &ApplicationSetDetails<'_>) -> Self {
        let set = reusable_value([
            ("namespace", set.namespace.into()),
            ("name", set.name.into()),
            ("project", set.project.into()),
            ("projects", texts(set.projects.iter().map(String::as_str))),
            ("labels", labels(set.labels)),
            ("generators", texts(set.generators.iter().copied())),
        ]);
        Self(reusable([
            ("principal", principal.0.clone()),
            ("operation", operation.into()),
            ("set", set),
        ]))
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
        let empty = BTreeMap::new();
        let about = labels(project.map_or(&empty, |project| &project.labels));
        Self::with([("name", name.into()), ("labels", about)], refused)
    }

    /// The destination of an Application.
    ///
    /// - `cluster`: `None` if the destination does not resolve to exactly one cluster.
    pub fn destination(cluster: Option<&Cluster>, namespace: &str, refused: Option<&str>) -> Self {
        let (name, server) = cluster.map_or(("", ""), |cluster| (&cluster.name, &cluster.server));
        let about = [
            ("name", name.into()),
            ("server", server.into()),
            ("namespace", namespace.into()),
        ];
        Self::with(about, refused)
    }

    /// The sources of the manifests of an Application.
    pub fn source(repositories: &[&str], refused: Option<&str>) -> Self {
        Self::with([("repositories", texts(repositories.iter().copied()))], refused)
    }

    fn with<const N: usize>(about: [(&'static str, Value); N], refused: Option<&str>) -> Self {
        let mut fact = reusable(about);
        insert(
            &mut fact,
            [("permitted", refused.is_none().into()), ("reason", optional(refused))],
        );
        Self(fact.into_value())
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
    /// `metadata.labels`, afterwards; for a deleted one, those it had.
    pub labels: Vec<(&'a str, &'a str)>,
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

/// What one evaluation of the policy is about. The text is its name in policies.
#[derive(Clone, Debug, strum::AsRefStr, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
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
    /// A generator in a plugin, by its kind.
    Generator(&'static str),
    /// An Application.
    Application(ApplicationChange<'a>),
}

/// Input of `data.tollgate.applicationsets.decision`. The schema is
/// [`Front::input_schema`](crate::Front::input_schema); docs/policies.md explains it.
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
        let checks: Vec<Value> = self.checks.iter().map(check).collect();
        let rbac = object([
            ("checks", checks.into()),
            ("permitted", self.refused.is_none().into()),
            ("reason", optional(self.refused)),
        ]);
        let mut input = self.facts.0.clone();
        match &self.subject {
            ApplicationSetStage::Set => {}
            ApplicationSetStage::Repository { url, egress } => {
                let repository = object([("url", (*url).into())]);
                insert(&mut input, [("repository", repository), ("source", egress.0.clone())]);
            }
            ApplicationSetStage::Cluster { name, server } => {
                let cluster = object([("name", (*name).into()), ("server", (*server).into())]);
                insert(&mut input, [("cluster", cluster)]);
            }
            ApplicationSetStage::Generator(kind) => {
                insert(&mut input, [("generator", object([("kind", (*kind).into())]))]);
            }
            ApplicationSetStage::Application(change) => application(change, &mut input),
        }
        insert(&mut input, [("stage", self.subject.as_ref().into()), ("rbac", rbac)]);
        input.into_value()
    }
}

fn check(check: &RbacCheck<'_>) -> Value {
    object([
        ("resource", check.resource.into()),
        ("action", check.action.into()),
        ("object", check.object.into()),
        ("allow", check.verdict.allow.into()),
        ("why", check.verdict.why.into()),
        ("rule", optional(check.verdict.rule)),
    ])
}

fn application(change: &ApplicationChange<'_>, input: &mut Object) {
    let labels = change.labels.iter();
    let labels = labels.map(|(key, value)| (Value::from(*key), Value::from(*value)));
    let about = object([
        ("namespace", change.namespace.into()),
        ("name", change.name.into()),
        ("project", change.project.into()),
        ("action", change.action.into()),
        ("labels", labels.collect::<Object>().into_value()),
    ]);
    let parts = [
        ("application", about),
        ("object", change.object.0.clone()),
        ("ownership", change.ownership.0.clone()),
    ];
    insert(input, parts);
    if let Some(placement) = &change.placement {
        let parts = [
            ("project", placement.project.0.clone()),
            ("namespace", placement.namespace.0.clone()),
            ("source", placement.source.0.clone()),
            ("destination", placement.destination.0.clone()),
        ];
        insert(input, parts);
    }
}
