//! Argo CD's RBAC: `policy.csv`, project roles and tokens, with two semantics. A policy is compiled
//! from texts with positions and from projects; each decision takes the caller's claims and names
//! the row that decided.
//!
//! Invariant: [`Rbac::decide`] allocates nothing, takes no lock and does not look at rows that
//! cannot match.
//!
//! Security: a policy with a broken line does not load, and the default is to deny.
//!
//! Source: Argo CD 3.6, `util/rbac` and `server/rbacpolicy`: a row counts if the caller is, or
//! inherits, its subject, and its resource, action and object match. Within one principal a deny
//! wins. Principals are evaluated one by one, in order, and the first allow wins.
//! [`RbacSemantics::Strict`] evaluates them together, so that a deny wins over all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{Project, Text};

mod can;
mod compile;
mod decide;
mod differences;
mod explain;
mod identity;
mod in_project;
mod index;
mod line;
mod matcher;
mod names;
mod prefix;
mod project;
mod read;
#[cfg(test)]
mod tests;
mod who_can;

pub use can::{Advice, CanQuery, resolve_resource, validate_request};
pub use differences::{Difference, differences};
pub use explain::{Explanation, Field, MatchedRule};
pub use identity::{PrincipalKind, RbacIdentity, TokenIssuer};
pub use names::{is_project_scoped, object_name, url_object_name};
pub use project::{
    Error as ProjectError, validate_action, validate_group_name, validate_object, validate_policy, validate_role_name,
};
pub use read::{account_names, compose_policy, undefined_roles, validate_line, validate_text};
pub use who_can::{Holder, HolderKind, WhoCan};

use index::Table;
use matcher::{PatternId, PatternPool};

/// The text of the built-in policy: `role:readonly` and `role:admin`.
pub const BUILTIN_POLICY: &str = include_str!("rbac/builtin.csv");

/// The policy that applies below the operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// [`BUILTIN_POLICY`].
    Argocd,
    /// No policy.
    None,
    /// Another policy text.
    Text(Text),
}

/// How patterns of a policy are read (`policy.matchMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchMode {
    /// Globs.
    #[default]
    Glob,
    /// Go regular expressions, unanchored.
    Regex,
}

impl MatchMode {
    /// `regex` means regular expressions; anything else means globs, as in Argo CD.
    pub fn from_setting(setting: &str) -> Self {
        if setting == "regex" { Self::Regex } else { Self::Glob }
    }
}

/// The sources of a policy.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// The policy below the operator's.
    pub builtin: Builtin,
    /// The operator's texts: `policy.csv`, then `policy.*.csv` in key order.
    pub texts: Vec<Text>,
    /// Role that everyone holds (`policy.default`); empty for none.
    pub default_role: String,
    /// Where that is written; `None` if it is not.
    pub default_role_location: Option<Location>,
    /// How patterns are read.
    pub match_mode: MatchMode,
    /// Claims whose values are groups.
    pub scopes: Vec<String>,
    /// Projects by name; their roles add rows for their own objects.
    pub projects: BTreeMap<String, Arc<Project>>,
    /// Names of local accounts. Under strict semantics no identity provider may give a caller one
    /// of them.
    pub accounts: BTreeSet<String>,
    /// How verdicts are reached.
    pub semantics: RbacSemantics,
}

impl Default for PolicySource {
    fn default() -> Self {
        Self {
            builtin: Builtin::Argocd,
            texts: Vec::new(),
            default_role: String::new(),
            default_role_location: None,
            match_mode: MatchMode::Glob,
            scopes: vec!["groups".to_owned()],
            projects: BTreeMap::new(),
            accounts: BTreeSet::from(["admin".to_owned()]),
            semantics: RbacSemantics::Argocd,
        }
    }
}

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct RbacRequest<'a> {
    /// Resource, such as `applications`.
    pub resource: &'a str,
    /// Action, such as `get` or `action/apps/Deployment/restart`.
    pub action: &'a str,
    /// Object, such as `project/name` or `project/namespace/name`.
    pub object: &'a str,
}

/// Whether a request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It passes.
    Allow,
    /// It does not pass.
    Deny,
}

/// What caused the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictReason {
    /// A row allows it and none that counts denies it.
    Allowed,
    /// A row denies it.
    DeniedByRule,
    /// No row that counts matches.
    NoRule,
    /// A row that had to be evaluated holds an invalid expression.
    EvaluationError,
}

/// Number of a row of one [`Rbac`]. A smaller number stands earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct RuleId(u32);

/// Outcome of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// Whether the request passes.
    pub outcome: Outcome,
    /// The row that decided, if one did.
    pub rule: Option<RuleId>,
    /// What caused the outcome.
    pub why: VerdictReason,
}

impl Verdict {
    /// Whether the request passes.
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allow
    }
}

/// Last field of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, strum::IntoStaticStr, strum::VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Effect {
    /// `allow`: the row allows.
    Allow,
    /// `deny`: the row denies.
    Deny,
    /// Anything else: the row has no effect.
    Inert,
}

/// A row of the policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// User, group or role, compared text for text.
    pub subject: Arc<str>,
    /// Pattern of resources.
    pub resource: Arc<str>,
    /// Pattern of actions.
    pub action: Arc<str>,
    /// Pattern of objects.
    pub object: Arc<str>,
    /// Effect.
    pub effect: Effect,
    /// Where the row stands.
    pub location: Location,
    /// The line as written, without blanks around it.
    pub text: Arc<str>,
    /// The project whose role it belongs to; it counts only for that project's
    /// objects. `None` for the global policy.
    pub project: Option<Arc<str>>,
    patterns: [PatternId; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SubjectId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ProjectId(u32);

/// A compiled policy. Immutable and shared by all workers.
#[derive(Default, derive_more::Debug)]
#[debug("Rbac({semantics:?}, {} rules)", rules.len())]
pub struct Rbac {
    /// How verdicts are reached.
    pub semantics: RbacSemantics,
    /// Claims whose values are groups.
    pub scopes: Vec<String>,
    default_role: String,
    accounts: BTreeSet<String>,
    rules: Vec<Rule>,
    pool: PatternPool,
    subjects: HashMap<Arc<str>, SubjectId>,
    names: Vec<Arc<str>>,
    projects: rustc_hash::FxHashMap<Box<str>, ProjectId>,
    tables: Vec<Table>,
    /// Which table holds the rows of a subject, and in which project.
    table_of: HashMap<(Option<ProjectId>, SubjectId), u32>,
    /// Roles a subject holds directly, and in which project.
    roles_of: HashMap<(Option<ProjectId>, SubjectId), Vec<SubjectId>>,
    /// Projects whose roles or rows name a subject.
    mentions: HashMap<SubjectId, Vec<ProjectId>>,
    identities: identity::Cache,
    /// What this policy allows, this other one must allow as well.
    narrowed_by: Option<Arc<Self>>,
}

impl Rbac {
    /// This policy, restricted to what `narrower` allows the same callers.
    #[must_use]
    pub fn narrowed_by(mut self, narrower: &Arc<Self>) -> Self {
        // Identities from before have no counterpart in `narrower`, so they must not count.
        self.identities = identity::Cache::default();
        self.narrowed_by = Some(Arc::clone(narrower));
        self
    }

    /// The row with this number.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(id.0 as usize)
    }

    /// Every row, in the order they were read, with its number.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        (0..).map(RuleId).zip(&self.rules)
    }

    /// Whether some row or grant names this user, group or role.
    pub fn has_subject(&self, subject: &str) -> bool {
        self.subjects.contains_key(subject)
    }

    /// The project of a request, if it is known: the first part of a project-scoped object, or the
    /// object of `projects`.
    fn project_of(&self, request: RbacRequest<'_>) -> Option<ProjectId> {
        let name = match request.resource {
            "projects" => request.object,
            resource if names::is_project_scoped(resource) => request.object.split_once('/')?.0,
            _ => return None,
        };
        self.projects.get(name).copied()
    }
}
