//! ApplicationSets: decodes them, generates their Applications and plans what that would change.
//!
//! Invariant: all work is bounded by a budget.
//!
//! Security: this crate makes no decision about a caller; the gateway does.

use serde_json::Value;

use tollgate_state::ObjectName;

pub mod budget;
pub mod decode;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod generate;
mod heap_size;
pub mod inputs;
mod json;
mod keys;
pub mod patch;
pub mod plan;
pub mod repository;
pub mod selector;
pub mod template;
mod transient_annotations;
pub mod yaml;

pub use budget::{Exceeded, GenerationBudget};
pub use generate::generate;
pub use inputs::{
    ClusterInput, Denial, DeniedResource, GitTree, InputAuthorizer, InputError, Inputs, PluginGenerators, Repositories,
    RepositoryFile,
};
pub use plan::Plan;

/// One set of parameters, made by a generator.
pub type Params = serde_json::Map<String, Value>;

/// A decoded ApplicationSet.
#[derive(Clone, Debug)]
pub struct ApplicationSet {
    /// Its namespace and name.
    pub name: ObjectName,
    /// `spec`.
    pub spec: Spec,
    /// The whole object as it was sent or stored, without loss.
    pub object: Value,
}

/// The `spec` of an ApplicationSet.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `generators`, in order.
    pub generators: Vec<Generator>,
    /// `template`: `metadata` and `spec` of the Applications.
    pub template: Value,
    /// `templatePatch`, applied to the rendered template.
    pub template_patch: Option<String>,
    /// `goTemplate` and `goTemplateOptions`.
    pub engine: TemplateEngine,
    /// `syncPolicy`.
    pub sync_policy: SyncPolicy,
    /// `preservedFields`: keys of the Applications' annotations and labels that are
    /// kept as they are.
    pub preserved_fields: PreservedFields,
}

/// An entry of `generators`.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The entry without unknown keys, with `{{…}}` as written.
    pub raw: Value,
}

impl Generator {
    /// The kinds with their settings (`{"elements": […]}`), in the order of
    /// [`GeneratorKind::ALL`]. Argo CD runs all of them; usually there is one.
    pub fn kinds(&self) -> impl Iterator<Item = (GeneratorKind, &Value)> {
        let all = GeneratorKind::ALL.into_iter();
        all.filter_map(|kind| Some((kind, self.raw.get(kind.as_str())?)))
    }
}

/// Argo CD's kinds of generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GeneratorKind {
    /// `list`.
    List,
    /// `clusters`.
    Clusters,
    /// `git`.
    Git,
    /// `matrix`.
    Matrix,
    /// `merge`.
    Merge,
    /// `scmProvider`, provided by a plugin.
    ScmProvider,
    /// `pullRequest`, provided by a plugin.
    PullRequest,
    /// `clusterDecisionResource`, provided by a plugin.
    ClusterDecisionResource,
    /// `plugin`, provided by a plugin.
    Plugin,
}

impl GeneratorKind {
    /// All kinds, in the order in which Argo CD runs those of one entry.
    pub const ALL: [Self; 9] = [
        Self::List,
        Self::Clusters,
        Self::Git,
        Self::ScmProvider,
        Self::ClusterDecisionResource,
        Self::PullRequest,
        Self::Matrix,
        Self::Merge,
        Self::Plugin,
    ];

    /// The key in an entry of `generators`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Clusters => "clusters",
            Self::Git => "git",
            Self::Matrix => "matrix",
            Self::Merge => "merge",
            Self::ScmProvider => "scmProvider",
            Self::PullRequest => "pullRequest",
            Self::ClusterDecisionResource => "clusterDecisionResource",
            Self::Plugin => "plugin",
        }
    }
}

/// How `{{…}}` is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateEngine {
    /// `{{ key }}` only; a tag with an unknown key stays as it is.
    FastTemplate,
    /// Go's `text/template` with the functions Argo CD allows.
    GoTemplate {
        /// The effect of a missing key.
        missing_key: MissingKey,
    },
}

/// `missingkey=` of `goTemplateOptions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// `default` or `invalid`: `<no value>`.
    #[default]
    Default,
    /// `zero`.
    Zero,
    /// `error`.
    Error,
}

/// `spec.syncPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncPolicy {
    /// `applicationsSync`.
    pub applications: ApplicationsSync,
    /// `preserveResourcesOnDeletion`: Applications get no cascade finalizer.
    pub preserve_resources: bool,
}

/// What may be done to the Applications of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplicationsSync {
    /// `sync`: created, updated and deleted.
    #[default]
    Sync,
    /// `create-only`: created.
    CreateOnly,
    /// `create-update`: created and updated.
    CreateUpdate,
    /// `create-delete`: created and deleted.
    CreateDelete,
}

/// `spec.preservedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreservedFields {
    /// `annotations`.
    pub annotations: Vec<String>,
    /// `labels`.
    pub labels: Vec<String>,
}
