//! What generators may read, and who says so.
//!
//! In: snapshot, caller (by their implementors). Out: clusters, trees of
//! repositories, what plugins made. Never: a read the [`Gate`] did not let pass.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde_json::Value;

use super::{Budget, KindName, Params};
use tollgate_core::diagnostic::one_line;

mod clusters;

/// Everything generators of one request may read.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Clusters of the control plane, the own one (`in-cluster`) last.
    pub clusters: &'a [ClusterInput],
    /// What the caller may see of them, asked before each read.
    pub gate: &'a dyn Gate,
    /// Repositories.
    pub repositories: &'a dyn Repositories,
    /// Generators in plugins.
    pub guests: &'a dyn Guests,
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

/// Says what the caller may let generators read.
pub trait Gate: fmt::Debug + Sync {
    /// Whether the caller may see this cluster.
    ///
    /// # Errors
    /// Why not.
    fn cluster(&self, cluster: &ClusterInput) -> Result<(), Refusal>;

    /// Whether the caller may read this repository, and the gateway may ask it.
    ///
    /// # Errors
    /// Why not.
    fn repository(&self, url: &str) -> Result<(), Refusal>;

    /// Whether the caller may have a plugin generate.
    ///
    /// # Errors
    /// Why not.
    fn guest(&self, kind: KindName) -> Result<(), Refusal>;
}

/// Gives what is in a repository. Blocks; call it off the runtime.
pub trait Repositories: fmt::Debug + Sync {
    /// The tree of `revision` (branch, tag, `HEAD` or commit; empty is `HEAD`).
    ///
    /// # Errors
    /// It cannot be had within the budget. The text names neither credentials nor
    /// paths of this machine.
    fn open(&self, url: &str, revision: &str, budget: &Budget) -> Result<Box<dyn Tree>, InputError>;
}

/// One commit's files.
pub trait Tree: fmt::Debug {
    /// Every directory, from the root, `/` between, each before those in it, those of
    /// one directory sorted by name; the root not included, hidden ones (a part begins
    /// with `.`) neither. That of a submodule is there, and nothing in it.
    ///
    /// # Errors
    /// As [`Repositories::open`].
    fn directories(&self, budget: &Budget) -> Result<Vec<String>, InputError>;

    /// Those of [`Self::directories`] that are submodules Argo CD fills: what is in them is
    /// not known here.
    ///
    /// # Errors
    /// As [`Repositories::open`].
    fn submodules(&self, _: &Budget) -> Result<Vec<String>, InputError> {
        Ok(Vec::new())
    }

    /// The files whose path `matches`, sorted by path, hidden ones too, symbolic links
    /// followed within the tree only.
    ///
    /// # Errors
    /// As [`Repositories::open`].
    fn files(&self, matches: &dyn Fn(&str) -> bool, budget: &Budget) -> Result<Vec<File>, InputError>;
}

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path from the root.
    pub path: String,
    /// What is in it.
    pub content: Bytes,
}

/// Runs generators in plugins. Blocks; call it off the runtime.
pub trait Guests: fmt::Debug + Sync {
    /// Sets of parameters of a generator of `kind` with these settings.
    ///
    /// # Errors
    /// No plugin provides the kind, or it failed.
    fn generate(&self, kind: KindName, settings: &Value, budget: &Budget) -> Result<Vec<Params>, InputError>;
}

/// Why an input cannot be had, in a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

/// One thing the caller may not do, and the rule that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is about.
    pub about: About,
    /// `file:line: text` of a row of `policy.csv`, or the name of a check.
    pub rule: Option<String>,
    /// A sentence for the caller.
    pub reason: String,
}

/// What a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The set itself, by its RBAC object.
    Set(String),
    /// A repository, by its URL.
    Repository(String),
    /// A cluster, by its name.
    Cluster(String),
    /// A kind of generator.
    Generator(&'static str),
    /// An Application, by its RBAC object (`project/name`).
    Application(String),
}

/// Bytes of a name or a rule in a refusal. Templates make names as long as they like, and an
/// answer lists many.
const NAMED_BYTES: usize = 512;

impl Refusal {
    /// The same with names and rules that are not too long for a list.
    #[must_use]
    pub fn short(self) -> Self {
        let short = |text: String| match text.len() > NAMED_BYTES {
            true => format!("{}…", one_line(&text, NAMED_BYTES)),
            false => text,
        };
        let about = match self.about {
            About::Set(object) => About::Set(short(object)),
            About::Repository(url) => About::Repository(short(url)),
            About::Cluster(name) => About::Cluster(short(name)),
            About::Application(object) => About::Application(short(object)),
            About::Generator(kind) => About::Generator(kind),
        };
        Self {
            about,
            rule: self.rule.map(short),
            reason: self.reason,
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(object) => write!(f, "applicationset `{object}`"),
            Self::Repository(url) => write!(f, "repository `{url}`"),
            Self::Cluster(name) => write!(f, "cluster `{name}`"),
            Self::Generator(kind) => write!(f, "generator `{kind}`"),
            Self::Application(object) => write!(f, "application `{object}`"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about, self.reason)?;
        match &self.rule {
            Some(rule) => write!(f, " ({rule})"),
            None => Ok(()),
        }
    }
}
