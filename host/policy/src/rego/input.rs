//! Builds the input of the policy of the extension front, `data.tollgate.extensions.decision`, from
//! the host's view of one request.
//!
//! Values are built directly, without JSON between. What does not change from request to request is
//! built once, as [`ExtensionFacts`], [`PrincipalFacts`] and [`RbacFacts`]; a request only clones
//! references.
//!
//! Security: the input contains no secret, no raw token and no header that a client sent.

use std::sync::LazyLock;

use regorus::Value;
use regorus::value::Object;

/// Maximum number of rows of the RBAC table that a policy is given.
pub const MAX_CANDIDATES: usize = 64;

macro_rules! keys {
    ($($name:ident $(= $text:literal)?),* $(,)?) => {
        /// The keys of the schema, each thread its own: a key shared by all
        /// threads would have its reference count fought over.
        struct Keys { $($name: Value,)* }
        impl Keys {
            fn new() -> Self {
                Self { $($name: Value::from(keys!(@text $name $($text)?)),)* }
            }
        }
    };
    (@text $name:ident) => { stringify!($name) };
    (@text $name:ident $text:literal) => { $text };
}

mod applications;
mod applicationsets;
mod kubernetes;

pub use applications::application_input_schema;
pub use applications::{ApplicationDetails, ApplicationFacts, ApplicationInput, ApplicationVerdicts};
pub use applicationsets::application_set_input_schema;
pub use applicationsets::{
    ApplicationChange, ApplicationSetDetails, ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage,
    CheckedFact, PlacementChecks, RbacCheck,
};
pub(super) use kubernetes::identity_json;
pub use kubernetes::{KubernetesFacts, KubernetesInput, kubernetes_input_schema};

keys!(
    action,
    allow,
    application,
    applications_get,
    candidates,
    destination,
    effect,
    extension,
    extensions_invoke,
    method,
    object,
    path,
    principal,
    project,
    projects_get,
    query,
    rbac,
    request,
    resource,
    rule,
    subject,
    why,
);

thread_local! {
    static KEYS: Keys = Keys::new();
}

fn object<const N: usize>(entries: [(&Value, Value); N]) -> Value {
    entries
        .into_iter()
        .map(|(key, value)| (key.clone(), value))
        .collect::<Object>()
        .into_value()
}

fn object_with_keys<const N: usize>(entries: [(&str, Value); N]) -> Value {
    entries
        .into_iter()
        .map(|(key, value)| (Value::from(key), value))
        .collect::<Object>()
        .into_value()
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> Value {
    Value::from(texts.map(Value::from).collect::<Vec<_>>())
}

fn labels(labels: &std::collections::BTreeMap<String, String>) -> Value {
    labels
        .iter()
        .map(|(key, value)| (Value::from(key.as_str()), Value::from(value.as_str())))
        .collect::<Object>()
        .into_value()
}

/// The caller, as an input value to reuse for as long as the caller's session lasts.
#[derive(Clone, Debug)]
pub struct PrincipalFacts(Value);

impl PrincipalFacts {
    /// - `id`: stable identifier, such as `sub`.
    /// - `kind`: `anonymous`, `local`, `project-token` or `oidc`.
    pub fn new(id: &str, username: &str, groups: &[String], issuer: &str, kind: &str) -> Self {
        Self(object_with_keys([
            ("id", Value::from(id)),
            ("username", Value::from(username)),
            ("groups", texts(groups.iter().map(String::as_str))),
            ("issuer", Value::from(issuer)),
            ("kind", Value::from(kind)),
        ]))
    }
}

/// Extension, project, application and destination of a request, as input values to reuse for the
/// lifetime of a snapshot.
#[derive(Clone, Debug)]
pub struct ExtensionFacts {
    extension: Value,
    project: Option<Value>,
    application: Option<Value>,
    destination: Option<Value>,
}

impl ExtensionFacts {
    /// Only the extension, which is all of scope `global`.
    ///
    /// - `scope`: `application`, `project` or `global`.
    pub fn new(extension: &str, scope: &str) -> Self {
        let extension = object_with_keys([("name", Value::from(extension)), ("scope", Value::from(scope))]);
        Self {
            extension,
            project: None,
            application: None,
            destination: None,
        }
    }

    /// Adds the project that exists under the name in the request.
    #[must_use]
    pub fn with_project(mut self, project: &tollgate_state::Project) -> Self {
        let destinations: Vec<Value> = project.destinations.iter().map(destination).collect();
        self.project = Some(object_with_keys([
            ("name", Value::from(project.name.as_str())),
            ("destinations", Value::from(destinations)),
            (
                "source_namespaces",
                texts(project.source_namespaces.iter().map(String::as_str)),
            ),
        ]));
        self
    }

    /// Adds the application that the request is about.
    #[must_use]
    pub fn with_application(mut self, application: &tollgate_state::Application) -> Self {
        self.application = Some(object_with_keys([
            ("namespace", Value::from(application.name.namespace.as_str())),
            ("name", Value::from(application.name.name.as_str())),
            ("project", Value::from(application.project.as_str())),
            ("destination", destination(&application.destination)),
            ("labels", labels(&application.labels)),
        ]));
        self
    }

    /// Adds the canonical destination, and whether the project permits it.
    #[must_use]
    pub fn with_destination(mut self, cluster: &tollgate_state::Cluster, namespace: &str, permitted: bool) -> Self {
        self.destination = Some(object_with_keys([
            ("name", Value::from(cluster.name.as_str())),
            ("server", Value::from(cluster.server.as_str())),
            ("namespace", Value::from(namespace)),
            ("permitted", Value::from(permitted)),
        ]));
        self
    }
}

fn destination(destination: &tollgate_state::Destination) -> Value {
    object_with_keys([
        ("name", Value::from(destination.name.as_str())),
        ("server", Value::from(destination.server.as_str())),
        ("namespace", Value::from(destination.namespace.as_str())),
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
        KEYS.with(|keys| {
            let mut verdicts = Object::new();
            verdicts.insert(keys.extensions_invoke.clone(), verdict(keys, &rbac.extensions_invoke));
            let optional = [
                (&keys.applications_get, &rbac.applications_get),
                (&keys.projects_get, &rbac.projects_get),
            ];
            for (key, value) in optional {
                if let Some(value) = value {
                    verdicts.insert(key.clone(), verdict(keys, value));
                }
            }
            let rows = rbac.candidates.iter().take(MAX_CANDIDATES);
            let rows: Vec<Value> = rows.map(|row| candidate(keys, row)).collect();
            verdicts.insert(keys.candidates.clone(), Value::from(rows));
            Self(verdicts.into_value())
        })
    }
}

/// Input of `data.tollgate.extensions.decision`. The schema is
/// [`extension_input_schema`]; docs/policies.md explains it.
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
}

impl ExtensionInput<'_> {
    /// The value on which a bundle decides. Takes less than a microsecond, as all but the request
    /// was built before.
    pub fn to_value(&self) -> Value {
        KEYS.with(|keys| {
            let mut input = Object::new();
            input.insert(keys.principal.clone(), self.principal.0.clone());
            input.insert(keys.request.clone(), self.request(keys));
            input.insert(keys.extension.clone(), self.facts.extension.clone());
            input.insert(keys.rbac.clone(), self.rbac.0.clone());
            let optional = [
                (&keys.project, &self.facts.project),
                (&keys.application, &self.facts.application),
                (&keys.destination, &self.facts.destination),
            ];
            for (key, value) in optional {
                if let Some(value) = value {
                    input.insert(key.clone(), value.clone());
                }
            }
            input.into_value()
        })
    }

    fn request(&self, keys: &Keys) -> Value {
        let mut request = Object::new();
        request.insert(keys.method.clone(), Value::from(self.request.method));
        request.insert(keys.path.clone(), Value::from(self.request.path));
        for (key, value) in [(&keys.query, self.request.query), (&keys.project, self.request.project)] {
            if let Some(value) = value {
                request.insert(key.clone(), Value::from(value));
            }
        }
        request.into_value()
    }
}

fn verdict(keys: &Keys, verdict: &RbacVerdict<'_>) -> Value {
    let mut object = Object::new();
    object.insert(keys.allow.clone(), Value::from(verdict.allow));
    object.insert(keys.why.clone(), Value::from(verdict.why));
    if let Some(rule) = verdict.rule {
        object.insert(keys.rule.clone(), Value::from(rule));
    }
    object.into_value()
}

fn candidate(keys: &Keys, row: &RbacRow<'_>) -> Value {
    object([
        (&keys.subject, Value::from(row.subject)),
        (&keys.resource, Value::from(row.resource)),
        (&keys.action, Value::from(row.action)),
        (&keys.object, Value::from(row.object)),
        (&keys.effect, Value::from(row.effect)),
    ])
}

/// JSON Schema (2020-12) of the input of the extension front.
pub fn extension_input_schema() -> &'static serde_json::Value {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
        // If the file in the repository is broken, `false` refuses every input, and the tests fail.
        serde_json::from_str(include_str!("extension_input.schema.json")).unwrap_or(serde_json::Value::Bool(false))
    });
    &SCHEMA
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::extension_input_schema;
    use tollgate_core::principal::Kind;

    fn words(pointer: &str) -> Vec<Value> {
        extension_input_schema()
            .pointer(pointer)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_else(|| panic!("{pointer} is no list"))
    }

    #[test]
    fn the_schema_knows_every_word_the_host_says() {
        let kinds: Vec<Value> = Kind::ALL.iter().map(|kind| json!(kind.as_str())).collect();
        assert_eq!(words("/properties/principal/properties/kind/enum"), kinds);
        let effects = "/properties/rbac/properties/candidates/items/properties/effect/enum";
        assert_eq!(words(effects), ["allow", "deny", "inert"]);
    }
}
