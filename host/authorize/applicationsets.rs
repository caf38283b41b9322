//! Whether a caller may have an ApplicationSet, with what it reads and writes.
//!
//! In: caller, what is asked, the set as sent and as stored, then the plan. Out:
//! [`Cleared`] before anything is generated, [`Approved`] after, which only this file
//! makes and which alone is written. Refuses: 400, 403, 404. Never: an Application
//! written that the caller could not write directly; a difference, for somebody who
//! may not see a set, between one that exists and one that does not.
//!
//! Argo CD's RBAC and the projects decide, natively; the bundle
//! `policies/applicationsets` is asked as well and can only narrow. Everything that
//! refuses is told at once. With `compat: argocd` the set's own RBAC object decides
//! alone, as in Argo CD's API.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::caller::Caller;
use crate::record::Check;
use crate::snapshot::Snapshot;
use tollgate_applicationset::plan::Plan;
use tollgate_applicationset::{ApplicationSet, ClusterInput, KindName};
use tollgate_config::{ApplicationSets, SetChecks};
use tollgate_core::glob::namespace_enabled;
use tollgate_policy::rbac::Rbac;
use tollgate_policy::rego::SetFacts;
use tollgate_state::{ObjectName, Resources};

mod after;
mod application;
mod argocd;
mod before;
mod error;
mod gate;
mod judge;
mod known;
mod policy;
mod rights;
mod steady;
#[cfg(test)]
mod tests;

pub use application::generated_errors;
pub use error::{Class, Error, REFUSALS, Refused};
pub use gate::CallerGate;
pub use policy::ApplicationSetsPolicy;

/// Annotation that says in which projects the Applications of a set are.
const PROJECTS: &str = tollgate_applicationset::plan::PROJECTS;
/// Permissions of one request that a record keeps.
pub const CHECKS: usize = 100;

/// What is asked of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// To see it: get, list, tree, events, watch.
    Get,
    /// To see what it would do: generate, dry run.
    Preview,
    /// To make it, where none of the name is stored.
    Create,
    /// To make it just as it is stored.
    Same,
    /// To make it over one that is stored, `upsert`.
    Upsert,
    /// To put it in place of the stored one.
    Update,
    /// To delete it.
    Delete,
}

impl Operation {
    /// As policies and records have it: `get`, `generate`, `create`, `update`,
    /// `delete`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Preview => "generate",
            Self::Create | Self::Same => "create",
            Self::Upsert | Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// What generators are known to read before they run. What only other generators'
/// parameters tell is asked of [`CallerGate`] while they do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads<'a> {
    /// URLs of git generators.
    pub repositories: &'a [&'a str],
    /// Clusters that cluster generators select.
    pub clusters: &'a [&'a ClusterInput],
    /// Generators in plugins.
    pub guests: &'a [KindName],
}

/// A set and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What is asked.
    pub operation: Operation,
    /// Its namespace, never empty, and name.
    pub name: &'a ObjectName,
    /// As it was sent; none where nothing is.
    pub sent: Option<&'a ApplicationSet>,
    /// As it is stored; none where it is not.
    pub stored: Option<&'a Value>,
    /// Its stored Applications.
    pub owned: &'a [&'a Value],
    /// What its generators read.
    pub reads: Reads<'a>,
}

/// Everything one caller's rights follow from.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    rbac: &'a Rbac,
    resources: &'a Resources,
    settings: &'a ApplicationSets,
    policy: &'a ApplicationSetsPolicy,
    control_plane_namespace: &'a str,
    caller: &'a Caller,
}

/// Proof that a caller may ask for the operation, and that what it is known to read
/// may be read. What is generated is not judged yet.
///
/// Its fields are private and [`Desk::before`] is its one maker:
///
/// ```compile_fail,E0451
/// fn forge(name: tollgate_state::ObjectName) {
///     let _ = tollgate::authorize::applicationsets::Cleared { name, ..unreachable!() };
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Cleared {
    operation: Operation,
    name: ObjectName,
    /// `spec.template.spec.project` as sent, or as stored where nothing was.
    project: String,
    /// Projects the stored set's RBAC objects are in.
    stored_projects: BTreeSet<String>,
    /// Names of its stored Applications.
    owned: BTreeSet<String>,
    facts: SetFacts,
    /// Why plugins generate nothing for this caller.
    guests: Result<(), tollgate_applicationset::Refusal>,
    /// Why its projects cannot be judged, where it is only looked at.
    unsteady: Vec<judge::Finding>,
}

/// Proof that a caller may have a plan carried out, the set and each of its
/// Applications.
///
/// Its fields are private and [`Desk::after`] is its one maker:
///
/// ```compile_fail,E0451
/// fn forge(plan: tollgate::applicationset::plan::Plan) {
///     let _ = tollgate::authorize::applicationsets::Approved { plan, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct Approved {
    operation: Operation,
    plan: Plan,
    projects: Vec<String>,
}

/// A plan nobody carries out, with what would refuse it.
#[derive(Debug)]
pub struct Review {
    /// The plan.
    pub plan: Plan,
    /// What would refuse it; none where it could be carried out.
    pub refused: Option<Refused>,
    /// For each of the plan's changes: whether the caller may see the stored
    /// Application, and so the difference to it.
    pub visible: Vec<bool>,
}

/// Whether sets may be in a namespace: the control plane's, or one of the settings.
///
/// # Errors
/// [`Error::Namespace`] in Argo CD's words.
pub fn namespace(settings: &ApplicationSets, control_plane_namespace: &str, namespace: &str) -> Result<(), Error> {
    if namespace_enabled(namespace, control_plane_namespace, &settings.namespaces) {
        return Ok(());
    }
    Err(Error::Namespace {
        namespace: namespace.to_owned(),
    })
}

impl<'a> Desk<'a> {
    /// The desk of a caller; none where the front is closed.
    pub fn new(snapshot: &'a Snapshot, caller: &'a Arc<Caller>) -> Option<Self> {
        Some(Self {
            rbac: &snapshot.rbac,
            resources: &snapshot.resources,
            settings: snapshot.config.application_sets.as_ref()?,
            policy: snapshot.application_sets.as_deref()?,
            control_plane_namespace: &snapshot.config.control_plane_namespace,
            caller,
        })
    }

    /// Whether sets may be in a namespace.
    ///
    /// # Errors
    /// As [`namespace`].
    pub fn namespace(&self, namespace: &str) -> Result<(), Error> {
        self::namespace(self.settings, self.control_plane_namespace, namespace)
    }

    /// Judges what can be judged before anything is generated: the namespace, the
    /// rights on the set and, by [`SetChecks::Generated`], on the Applications it
    /// owns, on what it is known to read, and that there is an Application the caller
    /// could make at all.
    ///
    /// What was looked up goes into `checks`, [`CHECKS`] at most.
    ///
    /// # Errors
    /// Each denies. [`Error::NotYours`] is also what a set is answered with that is
    /// not there; [`Error::Exists`] comes of [`Operation::Create`] where one is
    /// stored, for those who may make it.
    pub fn before(&self, asked: &Asked<'_>, checks: &mut Vec<Check>) -> Result<Cleared, Error> {
        match self.settings.checks {
            SetChecks::Generated => {
                self.namespace(&asked.name.namespace)?;
                self.clear(asked, checks)
            }
            SetChecks::Argocd => self.clear_as_argocd(asked, checks),
        }
    }

    /// Says for generators what they may read.
    pub fn gate<'b>(&'b self, cleared: &'b Cleared) -> CallerGate<'b> {
        CallerGate::new(*self, &cleared.project, &cleared.facts, cleared.guests.clone())
    }

    /// Judges a plan: every Application by all that writing or deleting it directly
    /// needs. By [`SetChecks::Argocd`] a plan may write nothing but the set.
    ///
    /// What refused goes into `checks`, [`CHECKS`] at most.
    ///
    /// # Errors
    /// [`Error::Refused`] with everything that refuses; [`Error::Policy`];
    /// [`Error::Unplanned`] for a plan of something else.
    pub fn after(&self, cleared: &Cleared, plan: Plan, checks: &mut Vec<Check>) -> Result<Approved, Error> {
        if matches!(cleared.operation, Operation::Get | Operation::Preview) {
            return Err(Error::Unplanned);
        }
        let outcome = self.judge_plan(cleared, &plan, checks)?;
        match outcome.refused.finish() {
            Some(refused) => Err(Error::Refused(refused)),
            None => Ok(Approved {
                operation: cleared.operation,
                projects: outcome.projects,
                plan,
            }),
        }
    }

    /// As [`Self::after`], of a plan that is only looked at.
    ///
    /// # Errors
    /// [`Error::Refused`] where the caller may not preview what the set turned out
    /// to be; [`Error::Policy`]; [`Error::Unplanned`].
    pub fn review(&self, cleared: &Cleared, plan: Plan, checks: &mut Vec<Check>) -> Result<Review, Error> {
        let outcome = self.judge_preview(cleared, &plan, checks)?;
        if let Some(refused) = outcome.set.finish() {
            return Err(Error::Refused(refused));
        }
        let plan = plan.shown();
        Ok(Review {
            refused: outcome.refused.finish(),
            visible: self.visible_changes(&plan),
            plan,
        })
    }

    /// For each set, whether the caller may see it; of a namespace that is not
    /// permitted nobody sees one.
    ///
    /// - `sets`: name, stored object, and projects of the Applications it owns, which
    ///   matter where its own is a template.
    pub fn visible<'b, I, P>(&self, sets: I) -> Vec<bool>
    where
        I: Iterator<Item = (&'b ObjectName, &'b Value, P)>,
        P: Iterator<Item = &'b str>,
    {
        sets.map(|(name, stored, owned)| self.may_get(name, stored, owned))
            .collect()
    }

    /// Whether the caller may see one set.
    ///
    /// - `owned`: as for [`Self::visible`].
    pub fn may_get<'b>(&self, name: &ObjectName, stored: &Value, owned: impl Iterator<Item = &'b str>) -> bool {
        self.namespace(&name.namespace).is_ok() && self.sees(name, stored, owned)
    }
}

impl Cleared {
    /// What was asked.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The set.
    pub fn name(&self) -> &ObjectName {
        &self.name
    }
}

impl Approved {
    /// What was asked.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// What may be carried out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Projects that its Applications are in afterwards, sorted.
    pub fn projects(&self) -> &[String] {
        &self.projects
    }

    /// The plan, to carry it out.
    pub fn into_plan(self) -> Plan {
        self.plan
    }
}
