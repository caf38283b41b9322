//! Decides whether a caller may have an ApplicationSet, with everything it reads and writes.
//! [`SetPermit`] is the result before anything is generated, [`ApprovedPlan`] the result for the plan.
//! Only this module makes them, and only [`ApprovedPlan`] plans are written. Refusals are 400, 403 or
//! 404, with all reasons at once.
//!
//! Argo CD's RBAC and the projects decide, natively. The bundle `policies/applicationsets` is
//! also evaluated and can only narrow. With `compat: argocd` the set's own RBAC object decides
//! alone, as in Argo CD's API.
//!
//! Security: no Application is written that the caller could not write directly. A caller who may
//! not see a set gets the same answer whether it exists or not.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::caller::Caller;
use crate::snapshot::Snapshot;
use tollgate_applicationset::plan::Plan;
use tollgate_applicationset::{ApplicationSet, ClusterInput, GeneratorKind};
use tollgate_config::{ApplicationSetChecks, ApplicationSets};
use tollgate_core::glob::namespace_enabled;
use tollgate_policy::rbac::Rbac;
use tollgate_policy::rego::ApplicationSetFacts;
use tollgate_proxy::record::CheckRecord;
use tollgate_state::{ObjectName, Resources};

mod after;
mod application;
mod argocd;
mod before;
mod determinism;
mod error;
mod gate;
mod judge;
mod placement;
mod policy;
mod rights;
#[cfg(test)]
mod tests;

pub use application::generated_errors;
pub use error::{Class, Error, MAX_REFUSALS, Refused};
pub use gate::CallerGate;
pub use policy::ApplicationSetsPolicy;

/// Annotation that lists the projects of a set's Applications.
const PROJECTS_ANNOTATION: &str = tollgate_applicationset::plan::PROJECTS_ANNOTATION;
/// Most permissions of one request that a record keeps.
pub const MAX_RECORDED_CHECKS: usize = 100;

/// An operation on a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read it: get, list, tree, events, watch.
    Get,
    /// Preview it: generate, dry run.
    Preview,
    /// Create it, if none of the name is stored.
    Create,
    /// Create it exactly as it is stored.
    CreateUnchanged,
    /// Create it over a stored one, `upsert`.
    Upsert,
    /// Replace the stored one.
    Update,
    /// Delete it.
    Delete,
}

impl Operation {
    /// Its name in policies and records: `get`, `generate`, `create`, `update`, `delete`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Preview => "generate",
            Self::Create | Self::CreateUnchanged => "create",
            Self::Upsert | Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// What generators are known to read before they run. What depends on other generators' parameters
/// is checked by [`CallerGate`] while they run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResolvedInputs<'a> {
    /// URLs of git generators.
    pub repositories: &'a [&'a str],
    /// Clusters that cluster generators select.
    pub clusters: &'a [&'a ClusterInput],
    /// Generators in plugins.
    pub guests: &'a [GeneratorKind],
}

/// A request about a set.
#[derive(Clone, Copy, Debug)]
pub struct SetRequest<'a> {
    /// What is asked.
    pub operation: Operation,
    /// Its namespace, never empty, and name.
    pub name: &'a ObjectName,
    /// The set that was sent, if any.
    pub sent: Option<&'a ApplicationSet>,
    /// The stored set, if any.
    pub stored: Option<&'a Value>,
    /// Its stored Applications.
    pub owned: &'a [&'a Value],
    /// What its generators read.
    pub reads: ResolvedInputs<'a>,
}

/// Everything that decides one caller's rights.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    rbac: &'a Rbac,
    resources: &'a Resources,
    settings: &'a ApplicationSets,
    policy: &'a ApplicationSetsPolicy,
    control_plane_namespace: &'a str,
    caller: &'a Caller,
}

/// Proof that a caller may ask for the operation, and that everything it is known to read may be
/// read. What is generated is not judged yet.
///
/// Its fields are private and only [`Desk::authorize_operation`] makes it:
///
/// ```compile_fail,E0451
/// fn forge(name: tollgate_state::ObjectName) {
///     let _ = tollgate_gateway::applicationsets::permit::Cleared { name, ..unreachable!() };
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SetPermit {
    operation: Operation,
    name: ObjectName,
    /// `spec.template.spec.project` of the set that was sent, or else of the stored one.
    project: String,
    /// Projects of the stored set's RBAC objects.
    stored_projects: BTreeSet<String>,
    /// Names of its stored Applications.
    owned: BTreeSet<String>,
    facts: ApplicationSetFacts,
    /// Why plugins do not run for this caller, if so.
    guests: Result<(), tollgate_applicationset::Refusal>,
    /// Why its projects cannot be judged, for a preview.
    nondeterminism: Vec<judge::Finding>,
}

/// Proof that a caller may have a plan carried out, the set and each of its Applications.
///
/// Its fields are private and only [`Desk::authorize_plan`] makes it:
///
/// ```compile_fail,E0451
/// fn forge(plan: tollgate_applicationset::plan::Plan) {
///     let _ = tollgate_gateway::applicationsets::permit::Approved { plan, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ApprovedPlan {
    operation: Operation,
    plan: Plan,
    projects: Vec<String>,
}

/// A plan that is only previewed, with what would refuse it.
#[derive(Debug)]
pub struct PlanReview {
    /// The plan.
    pub plan: Plan,
    /// What would refuse it. `None` if it could be carried out.
    pub refused: Option<Refused>,
    /// For each of the plan's changes: whether the caller may see the stored Application, and with
    /// it the diff.
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
    /// The desk of a caller. `None` if the front is closed.
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

    /// Judges everything that can be judged before generation: the namespace, the rights on the
    /// set and, with [`ApplicationSetChecks::Generated`], on the Applications it owns, on what it is known to
    /// read, and that the caller could create at least some Application.
    ///
    /// Permissions that were looked up go into `checks`, at most [`MAX_RECORDED_CHECKS`].
    ///
    /// # Errors
    /// Each denies. [`Error::NotVisible`] is also the answer for a set that does not exist.
    /// [`Error::Exists`] comes from [`Operation::Create`] if a set is stored, for callers who may
    /// create it.
    pub fn authorize_operation(
        &self,
        asked: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<SetPermit, Error> {
        match self.settings.checks {
            ApplicationSetChecks::Generated => {
                self.namespace(&asked.name.namespace)?;
                self.authorize_natively(asked, checks)
            }
            ApplicationSetChecks::Argocd => self.authorize_as_argocd(asked, checks),
        }
    }

    /// Returns the gate that decides what generators may read.
    pub fn gate<'b>(&'b self, cleared: &'b SetPermit) -> CallerGate<'b> {
        CallerGate::new(*self, &cleared.project, &cleared.facts, cleared.guests.clone())
    }

    /// Judges a plan: every Application needs all the rights that writing or deleting it directly
    /// needs. With [`ApplicationSetChecks::Argocd`] a plan may write only the set.
    ///
    /// Permissions that refused go into `checks`, at most [`MAX_RECORDED_CHECKS`].
    ///
    /// # Errors
    /// [`Error::Refused`] with every reason; [`Error::Policy`]; [`Error::PlanMismatch`] for a plan of
    /// something else.
    pub fn authorize_plan(
        &self,
        cleared: &SetPermit,
        plan: Plan,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<ApprovedPlan, Error> {
        if matches!(cleared.operation, Operation::Get | Operation::Preview) {
            return Err(Error::PlanMismatch);
        }
        let outcome = self.judge_plan(cleared, &plan, checks)?;
        match outcome.refused.finish() {
            Some(refused) => Err(Error::Refused(refused)),
            None => Ok(ApprovedPlan {
                operation: cleared.operation,
                projects: outcome.projects,
                plan,
            }),
        }
    }

    /// Same as [`Self::authorize_plan`], for a plan that is only previewed.
    ///
    /// # Errors
    /// [`Error::Refused`] if the caller may not preview what the set turned out to be;
    /// [`Error::Policy`]; [`Error::PlanMismatch`].
    pub fn review(&self, cleared: &SetPermit, plan: Plan, checks: &mut Vec<CheckRecord>) -> Result<PlanReview, Error> {
        let outcome = self.judge_preview(cleared, &plan, checks)?;
        if let Some(refused) = outcome.set.finish() {
            return Err(Error::Refused(refused));
        }
        let plan = plan.for_preview();
        Ok(PlanReview {
            refused: outcome.refused.finish(),
            visible: self.visible_changes(&plan),
            plan,
        })
    }

    /// For each set, whether the caller may see it. Nobody sees a set of a namespace that is not
    /// permitted.
    ///
    /// - `sets`: name, stored object, and projects of the Applications it owns, which matter if
    ///   its own is a template.
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

impl SetPermit {
    /// The operation that was asked for.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The set.
    pub fn name(&self) -> &ObjectName {
        &self.name
    }
}

impl ApprovedPlan {
    /// The operation that was asked for.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The plan that may be carried out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Projects of its Applications after the plan, sorted.
    pub fn projects(&self) -> &[String] {
        &self.projects
    }

    /// Returns the plan, to carry it out.
    pub fn into_plan(self) -> Plan {
        self.plan
    }
}
