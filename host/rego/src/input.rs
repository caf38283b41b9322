//! Builds the input of the policy of the extension front, `data.tollgate.extensions.decision`, from
//! the host's view of one request.
//!
//! Values are built directly, without JSON between. What does not change from request to request is
//! built once, as [`ExtensionFacts`], [`PrincipalFacts`] and [`RbacFacts`]; a request only clones
//! references.
//!
//! Security: the input contains no secret, no raw token and no header that a client sent.

use std::cell::RefCell;
use std::collections::BTreeMap;

use regorus::Value;
use regorus::value::Object;
use rustc_hash::FxHashMap;

mod applications;
mod applicationsets;
mod argocd;
mod controlplane;
mod kubernetes;

pub use applications::{ApplicationDetails, ApplicationFacts, ApplicationInput, ApplicationVerdicts};
pub use applicationsets::{
    ApplicationChange, ApplicationSetDetails, ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage,
    CheckedFact, PlacementChecks, RbacCheck,
};
pub use argocd::{ArgocdInput, ArgocdRequest};
pub use controlplane::ControlPlaneInput;
pub(crate) use kubernetes::identity_json;
pub use kubernetes::{KubernetesFacts, KubernetesInput};

/// Maximum number of rows of the RBAC table that a policy is given.
pub const MAX_CANDIDATES: usize = 64;

thread_local! {
    /// The keys of the parts that are built for each request, each thread its own: a key shared by
    /// all threads would have its reference count fought over.
    static KEYS: RefCell<FxHashMap<&'static str, Value>> = RefCell::default();
}

/// An object for one request, with keys of this thread. Entries without a value are left out.
fn object<const N: usize>(entries: [(&'static str, Value); N]) -> Value {
    let mut whole = Object::new();
    insert(&mut whole, entries);
    whole.into_value()
}

/// Adds entries for one request, with keys of this thread. Entries without a value are left out.
fn insert<const N: usize>(whole: &mut Object, entries: [(&'static str, Value); N]) {
    KEYS.with_borrow_mut(|keys| {
        for (key, value) in present(entries) {
            whole.insert(keys.entry(key).or_insert_with(|| Value::from(key)).clone(), value);
        }
    });
}

/// An object to reuse, by any thread, with its own keys. Entries without a value are left out.
fn reusable<const N: usize>(entries: [(&'static str, Value); N]) -> Object {
    present(entries).map(|(key, value)| (Value::from(key), value)).collect()
}

/// Like [`reusable`], as a value.
fn reusable_value<const N: usize>(entries: [(&'static str, Value); N]) -> Value {
    reusable(entries).into_value()
}

fn present<const N: usize>(entries: [(&'static str, Value); N]) -> impl Iterator<Item = (&'static str, Value)> {
    entries
        .into_iter()
        .filter(|(_, value)| !matches!(value, Value::Undefined))
}

/// The value of an entry that can be missing.
fn optional(value: Option<impl Into<Value>>) -> Value {
    value.map_or(Value::Undefined, Into::into)
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::from(texts.into_iter().map(Value::from).collect::<Vec<_>>())
}

fn labels(labels: &BTreeMap<String, String>) -> Value {
    let labels = labels.iter();
    let labels = labels.map(|(key, value)| (Value::from(key.as_str()), Value::from(value.as_str())));
    labels.collect::<Object>().into_value()
}

/// The caller, as an input value to reuse for as long as the caller's session lasts.
#[derive(Clone, Debug)]
pub struct PrincipalFacts(Value);

impl PrincipalFacts {
    /// - `id`: stable identifier, such as `sub`.
    /// - `kind`: `anonymous`, `local`, `project-token`, `oidc` or `kubernetes`.
    pub fn new(id: &str, username: &str, groups: &[String], issuer: &str, kind: &str) -> Self {
        Self(reusable_value([
            ("id", id.into()),
            ("username", username.into()),
            ("groups", texts(groups.iter().map(String::as_str))),
            ("issuer", issuer.into()),
            ("kind", kind.into()),
        ]))
    }
}

/// Extension, project, application and destination of a request, as input values to reuse for the
/// lifetime of a snapshot.
#[derive(Clone, Debug)]
pub struct ExtensionFacts {
    extension: Value,
    project: Value,
    application: Value,
    destination: Value,
}

impl ExtensionFacts {
    /// Only the extension, which is all of scope `global`.
    ///
    /// - `scope`: `application`, `project` or `global`.
    pub fn new(extension: &str, scope: &str) -> Self {
        Self {
            extension: reusable_value([("name", extension.into()), ("scope", scope.into())]),
            project: Value::Undefined,
            application: Value::Undefined,
            destination: Value::Undefined,
        }
    }

    /// Adds the project that exists under the name in the request.
    #[must_use]
    pub fn with_project(mut self, project: &tollgate_objects::Project) -> Self {
        let destinations: Vec<Value> = project.destinations.iter().map(destination).collect();
        let namespaces = project.source_namespaces.iter().map(String::as_str);
        self.project = reusable_value([
            ("name", project.name.as_str().into()),
            ("destinations", destinations.into()),
            ("source_namespaces", texts(namespaces)),
        ]);
        self
    }

    /// Adds the application that the request is about.
    #[must_use]
    pub fn with_application(mut self, application: &tollgate_objects::Application) -> Self {
        self.application = existing_application(application);
        self
    }

    /// Adds the canonical destination, and whether the project permits it.
    #[must_use]
    pub fn with_destination(mut self, cluster: &tollgate_objects::Cluster, namespace: &str, permitted: bool) -> Self {
        self.destination = permitted_destination(cluster, namespace, permitted);
        self
    }
}

fn existing_application(application: &tollgate_objects::Application) -> Value {
    reusable_value([
        ("namespace", application.name.namespace.as_str().into()),
        ("name", application.name.name.as_str().into()),
        ("project", application.project.as_str().into()),
        ("destination", destination(&application.destination)),
        ("labels", labels(&application.labels)),
    ])
}

fn permitted_destination(cluster: &tollgate_objects::Cluster, namespace: &str, permitted: bool) -> Value {
    reusable_value([
        ("name", cluster.name.as_str().into()),
        ("server", cluster.server.as_str().into()),
        ("namespace", namespace.into()),
        ("permitted", permitted.into()),
    ])
}

fn destination(destination: &tollgate_objects::Destination) -> Value {
    reusable_value([
        ("name", destination.name.as_str().into()),
        ("server", destination.server.as_str().into()),
        ("namespace", destination.namespace.as_str().into()),
    ])
}

/// The request line and the project that it names.
#[derive(Clone, Copy, Debug)]
pub struct ExtensionRequest<'a> {
    /// Method, upper case.
    pub method: &'a str,
    /// Path below the extension, starting with `/`.
    pub path: &'a str,
    /// Raw query, without `?`.
    pub query: Option<&'a str>,
    /// Project that the request names; absent for global extensions.
    pub project: Option<&'a str>,
}

/// The RBAC table's verdict about one request.
#[derive(Clone, Copy, Debug)]
pub struct RbacVerdict<'a> {
    /// Whether the table allows.
    pub allow: bool,
    /// `file:line` and text of the deciding row, if one decided.
    pub rule: Option<&'a str>,
    /// Why: the `VerdictReason`.
    pub why: &'a str,
}

/// A row of the table that could matter.
#[derive(Clone, Copy, Debug)]
pub struct RbacRow<'a> {
    /// Subject or role.
    pub subject: &'a str,
    /// Resource pattern.
    pub resource: &'a str,
    /// Action pattern.
    pub action: &'a str,
    /// Object pattern.
    pub object: &'a str,
    /// `allow` or `deny`.
    pub effect: &'a str,
}

/// The verdicts of the RBAC table about one caller and one extension request.
#[derive(Clone, Copy, Debug)]
pub struct ExtensionVerdicts<'a> {
    /// Verdict about `applications, get`; for scope `application`.
    pub applications_get: Option<RbacVerdict<'a>>,
    /// Verdict about `projects, get`; for scope `project`.
    pub projects_get: Option<RbacVerdict<'a>>,
    /// Verdict about `extensions, invoke`.
    pub extensions_invoke: RbacVerdict<'a>,
    /// Rows that could matter; the first 64 are passed on.
    pub candidates: &'a [RbacRow<'a>],
}

/// [`ExtensionVerdicts`] as a value to reuse while table, caller and target stay the same.
#[derive(Clone, Debug)]
pub struct RbacFacts(Value);

impl RbacFacts {
    /// Takes about a microsecond, plus half a microsecond for each candidate row.
    pub fn new(rbac: &ExtensionVerdicts<'_>) -> Self {
        let rows = rbac.candidates.iter().take(MAX_CANDIDATES);
        let rows: Vec<Value> = rows.map(candidate).collect();
        Self(object([
            ("extensions_invoke", verdict(&rbac.extensions_invoke)),
            (
                "applications_get",
                optional(rbac.applications_get.as_ref().map(verdict)),
            ),
            ("projects_get", optional(rbac.projects_get.as_ref().map(verdict))),
            ("candidates", rows.into()),
        ]))
    }
}

/// Input of `data.tollgate.extensions.decision`. The schema is
/// [`Front::input_schema`](crate::Front::input_schema); docs/policies.md explains it.
#[derive(Clone, Copy, Debug)]
pub struct ExtensionInput<'a> {
    /// The caller.
    pub principal: &'a PrincipalFacts,
    /// The request.
    pub request: ExtensionRequest<'a>,
    /// Extension, project, application, destination.
    pub facts: &'a ExtensionFacts,
    /// The verdicts of the RBAC table.
    pub rbac: &'a RbacFacts,
    /// When it is judged, in UTC as RFC 3339. `None` if the bundle does not read it.
    pub time: Option<&'a str>,
}

impl ExtensionInput<'_> {
    /// The value on which a bundle decides. Takes less than a microsecond, as all but the request
    /// was built before.
    pub fn to_value(&self) -> Value {
        let request = object([
            ("method", self.request.method.into()),
            ("path", self.request.path.into()),
            ("query", optional(self.request.query)),
            ("project", optional(self.request.project)),
        ]);
        object([
            ("principal", self.principal.0.clone()),
            ("request", request),
            ("extension", self.facts.extension.clone()),
            ("rbac", self.rbac.0.clone()),
            ("project", self.facts.project.clone()),
            ("application", self.facts.application.clone()),
            ("destination", self.facts.destination.clone()),
            ("time", optional(self.time)),
        ])
    }
}

fn verdict(verdict: &RbacVerdict<'_>) -> Value {
    object([
        ("allow", verdict.allow.into()),
        ("why", verdict.why.into()),
        ("rule", optional(verdict.rule)),
    ])
}

fn candidate(row: &RbacRow<'_>) -> Value {
    object([
        ("subject", row.subject.into()),
        ("resource", row.resource.into()),
        ("action", row.action.into()),
        ("object", row.object.into()),
        ("effect", row.effect.into()),
    ])
}
