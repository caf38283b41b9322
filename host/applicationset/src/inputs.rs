//! The inputs of generators (clusters, trees of repositories, plugins' results) and the trait that
//! authorizes reading them.
//!
//! Security: nothing is read that the [`InputAuthorizer`] did not allow.
//!
//! Invariant: the authorizer is asked before a repository is opened, a cluster listed or a plugin called, also about
//! names that another generator made. Its refusal comes before later errors.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde_json::Value;

use super::{Exceeded, GenerationBudget, GeneratorKind, Params};
use tollgate_core::diagnostic::one_line;

mod clusters;

/// Everything that the generators of one request may read.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The clusters of the control plane, its own one (`in-cluster`) last.
    pub clusters: &'a [ClusterInput],
    /// Decides what generators may read for the caller; called before each read.
    pub authorizer: &'a dyn InputAuthorizer,
    /// Repositories.
    pub repositories: &'a dyn Repositories,
    /// Generators that plugins provide.
    pub plugin_generators: &'a dyn PluginGenerators,
}

/// A cluster as the cluster generator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInput {
    /// Display name.
    pub name: String,
    /// API server URL.
    pub server: String,
    /// Project the cluster belongs to; empty for all.
    pub project: String,
    /// Labels and annotations of its Secret; none for the control plane's own
    /// cluster without a Secret.
    pub secret: Option<Metadata>,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// Decides what generators may read for the caller.
pub trait InputAuthorizer: fmt::Debug + Sync {
    /// Checks whether the caller may see this cluster.
    fn check_cluster(&self, cluster: &ClusterInput) -> Result<(), Denial>;

    /// Checks whether the caller may read this repository, and the gateway may contact it.
    fn check_repository(&self, url: &str) -> Result<(), Denial>;

    /// Checks whether the caller may run a plugin's generator.
    fn check_plugin(&self, kind: GeneratorKind) -> Result<(), Denial>;
}

/// Opens repositories. Blocks; call it off the runtime.
pub trait Repositories: fmt::Debug + Sync {
    /// Opens the tree of `revision` (branch, tag, `HEAD` or commit; empty is `HEAD`).
    ///
    /// # Errors
    /// The tree is not available within the budget. The message contains neither credentials nor
    /// paths of this machine.
    fn open(&self, url: &str, revision: &str, budget: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError>;
}

/// The files of one commit. Errors are those of [`Repositories::open`].
pub trait GitTree: fmt::Debug {
    /// All directories, as paths from the root with `/` between the parts. Each comes before those
    /// in it, and those of one directory are sorted by name. The root and hidden directories (a
    /// part begins with `.`) are not included. A submodule is included as an empty directory.
    fn directories(&self, budget: &GenerationBudget) -> Result<Vec<String>, InputError>;

    /// Those of [`Self::directories`] that are submodules which Argo CD checks out. Their content
    /// is not known here.
    fn submodules(&self, _: &GenerationBudget) -> Result<Vec<String>, InputError> {
        Ok(Vec::new())
    }

    /// The files whose path `matches`, sorted by path, including hidden ones. Symbolic links are
    /// followed within the tree only.
    fn files(
        &self,
        matches: &dyn Fn(&str) -> bool,
        budget: &GenerationBudget,
    ) -> Result<Vec<RepositoryFile>, InputError>;
}

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryFile {
    /// Path from the root.
    pub path: String,
    /// Its content.
    pub content: Bytes,
}

/// Runs generators that plugins provide. Blocks; call it off the runtime.
pub trait PluginGenerators: fmt::Debug + Sync {
    /// Generates the sets of parameters of a generator of `kind` with these settings.
    ///
    /// # Errors
    /// No plugin provides the kind, or it failed.
    fn generate(
        &self,
        kind: GeneratorKind,
        settings: &Value,
        budget: &GenerationBudget,
    ) -> Result<Vec<Params>, InputError>;
}

/// Why an input is not available, in one sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

impl From<Exceeded> for InputError {
    fn from(exceeded: Exceeded) -> Self {
        Self(exceeded.to_string())
    }
}

/// Something the caller may not do, and the rule that forbids it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{about}: {reason}{}", rule.as_ref().map(|rule| format!(" ({rule})")).unwrap_or_default())]
pub struct Denial {
    /// The resource that was denied.
    pub about: DeniedResource,
    /// `file:line: text` of a row of `policy.csv`, or the name of a check.
    pub rule: Option<String>,
    /// A sentence for the caller.
    pub reason: String,
}

/// The resource that a [`Denial`] is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum DeniedResource {
    /// The set itself, by its RBAC object.
    #[error("applicationset `{0}`")]
    Set(String),
    /// A repository, by its URL.
    #[error("repository `{0}`")]
    Repository(String),
    /// A cluster, by its name.
    #[error("cluster `{0}`")]
    Cluster(String),
    /// A kind of generator.
    #[error("generator `{0}`")]
    Generator(&'static str),
    /// An Application, by its RBAC object (`project/name`).
    #[error("application `{0}`")]
    Application(String),
}

/// Maximum length of a name or a rule in a denial, in bytes. Templates can make names of any
/// length, and an answer lists many.
const MAX_NAME_BYTES: usize = 512;

impl Denial {
    /// Shortens names and rules to a length that fits in a list.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        let shorten = |text: &mut String| {
            if text.len() > MAX_NAME_BYTES {
                *text = format!("{}…", one_line(text, MAX_NAME_BYTES));
            }
        };
        match &mut self.about {
            DeniedResource::Set(name)
            | DeniedResource::Repository(name)
            | DeniedResource::Cluster(name)
            | DeniedResource::Application(name) => shorten(name),
            DeniedResource::Generator(_) => {}
        }
        self.rule.iter_mut().for_each(shorten);
        self
    }
}
