//! ApplicationSets: what they generate, what that would change, and the change.
//!
//! In: an ApplicationSet as JSON, what its generators may read, bounds. Out:
//! Applications as JSON; a plan; its outcome. Never: a decision about a caller
//! (the gateway makes that); work without a bound.

use std::collections::BTreeMap;

use serde_json::Value;

use tollgate_state::ObjectName;

pub mod budget;
pub mod decode;
mod fleeting;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod generate;
pub mod inputs;
mod json;
pub mod keys;
pub mod patch;
pub mod plan;
pub mod repository;
pub mod selector;
pub mod template;
mod weight;
pub mod yaml;

pub use budget::{Budget, Exceeded};
pub use generate::generate;
pub use inputs::{About, ClusterInput, File, Gate, Guests, InputError, Inputs, Refusal, Repositories, Tree};
pub use plan::Plan;

/// One set of parameters a generator made.
pub type Params = serde_json::Map<String, Value>;

/// An ApplicationSet, taken apart.
#[derive(Clone, Debug)]
pub struct ApplicationSet {
    /// Its namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`; none before it is stored.
    pub uid: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec`.
    pub spec: Spec,
    /// The whole object as it was sent or stored; nothing of it is lost.
    pub object: Value,
}

/// What an ApplicationSet generates.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `generators`, in order.
    pub generators: Vec<Generator>,
    /// `template`: `metadata` and `spec` of the Applications.
    pub template: Value,
    /// `templatePatch`, laid over what the template gave.
    pub template_patch: Option<String>,
    /// `goTemplate` and `goTemplateOptions`.
    pub engine: Engine,
    /// `syncPolicy`.
    pub sync: SyncPolicy,
    /// `preservedFields`: keys of the Applications' annotations and labels that are
    /// kept as they are.
    pub preserved: Preserved,
}

/// An entry of `generators`, or a child of a matrix or merge generator.
#[derive(Clone, Debug)]
pub struct Generator {
    /// Each known key of the entry. Argo CD runs all of them; usually there is one.
    pub kinds: Vec<Kind>,
    /// `selector`, tried on what the generator made: `{matchLabels, matchExpressions}`.
    pub selector: Option<Value>,
    /// The whole entry, with `{{…}}` as it was written; parameters of another
    /// generator are put in here.
    pub raw: Value,
}

/// A kind of generator with its settings as JSON (`{"elements": […]}`).
#[derive(Clone, Debug)]
pub struct Kind {
    /// Which.
    pub name: KindName,
    /// What stands below the key.
    pub settings: Value,
}

/// The kinds Argo CD has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindName {
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
    /// `scmProvider`, by a plugin.
    ScmProvider,
    /// `pullRequest`, by a plugin.
    PullRequest,
    /// `clusterDecisionResource`, by a plugin.
    ClusterDecisionResource,
    /// `plugin`, by a plugin.
    Plugin,
}

impl KindName {
    /// Every kind there is.
    pub const ALL: [Self; 9] = [
        Self::List,
        Self::Clusters,
        Self::Git,
        Self::Matrix,
        Self::Merge,
        Self::ScmProvider,
        Self::PullRequest,
        Self::ClusterDecisionResource,
        Self::Plugin,
    ];

    /// As objects have it.
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

/// How `{{…}}` is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `{{ key }}` and nothing else; what is unknown stays as it is.
    Fast,
    /// Go's `text/template` with the functions Argo CD allows.
    Go {
        /// What a missing key does.
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
    /// `sync`: made, changed and deleted.
    #[default]
    Sync,
    /// `create-only`: made.
    CreateOnly,
    /// `create-update`: made and changed.
    CreateUpdate,
    /// `create-delete`: made and deleted.
    CreateDelete,
}

/// `spec.preservedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preserved {
    /// `annotations`.
    pub annotations: Vec<String>,
    /// `labels`.
    pub labels: Vec<String>,
}
