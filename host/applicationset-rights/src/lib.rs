//! Decides whether a caller may have an ApplicationSet, with everything it reads and writes.
//! [`SetAuthorizer`] makes a [`SetPermit`] before anything is generated, and an [`ApprovedPlan`]
//! of the plan. Only this module makes them, and only approved plans are written. Refusals are
//! 400, 403 or 404, with all reasons at once.
//!
//! Argo CD's RBAC and the projects decide, natively. The bundle `policies/applicationsets` is
//! also evaluated and can only narrow. With `compat: argocd` the set's own RBAC object decides
//! alone, as in Argo CD's API. With `permissions: inherited` a set has no RBAC object: the
//! permissions on all of its Applications are those on the set (`inherited.rs`).
//!
//! Security: no Application is written that the caller could not write directly. A caller who may
//! not see a set gets the same response whether it exists or not.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use tollgate_applicationset::plan::{AUTHOR_ANNOTATION, Action, Plan};
use tollgate_applicationset::{ApplicationSet, ClusterInput, GeneratorKind};
use tollgate_config::{ApplicationSetChecks, ApplicationSets};
use tollgate_core::glob::namespace_enabled;
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_front::set_list::{OwnedApplication, needs_owned};
use tollgate_identity::authenticate::Principal;
use tollgate_objects::{ObjectName, Resources};
use tollgate_policy::applications::Projects;
use tollgate_policy::rbac::Rbac;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{ApplicationSetFacts, Bundle, Front};

mod application;
mod argocd;
mod determinism;
mod direct;
mod error;
mod finding;
mod generated;
mod generator_inputs;
mod inherited;
mod operation;
mod permissions;
mod placement;
pub mod plan;
mod set;
#[cfg(test)]
mod tests;

pub use determinism::can_change_later;
pub use direct::{OVERRIDES, WrittenApplication};
pub use error::{Error, RefusalList};
pub use generated::generated_errors;
pub use generator_inputs::CallerInputAuthorizer;
pub use permissions::annotated_projects;
pub use set::{OperationError, SetOperation, application_of, authorize_set, labels, owned_by, owned_objects};

use plan::{PlanVerdict, check_plan_matches};

/// Most permissions of one request that a record keeps.
pub(crate) const MAX_RECORDED_CHECKS: usize = 100;

/// An operation on a set. The text is its name in policies and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::AsRefStr, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Operation {
    /// Read it: get, list, tree, events, watch.
    Get,
    /// Preview it: generate, dry run.
    #[strum(serialize = "generate")]
    Preview,
    /// Create it, if none of the name is stored.
    Create,
    /// Create it exactly as it is stored.
    #[strum(serialize = "create")]
    CreateUnchanged,
    /// Create it over a stored one, `upsert`.
    #[strum(serialize = "update")]
    Upsert,
    /// Replace the stored one.
    Update,
    /// Delete it.
    Delete,
}

/// The inputs that generators are known to read before they run. `CallerInputAuthorizer` checks
/// inputs that depend on other generators' parameters while they run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResolvedInputs<'a> {
    /// URLs of git generators.
    pub repositories: &'a [&'a str],
    /// Clusters that cluster generators select.
    pub clusters: &'a [&'a ClusterInput],
    /// Kinds of generators that plugins provide.
    pub plugin_kinds: &'a [GeneratorKind],
}

/// What happens to Applications that a set generates after it was written, because its inputs changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaterApplications {
    /// Argo CD's controller writes them, and nobody is asked.
    #[default]
    Unjudged,
    /// The admission webhook judges each by the rights of the set's author.
    JudgedByAuthor,
}

/// A request about a set, to authorize.
#[derive(Clone, Copy, Debug)]
pub struct SetRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// Its namespace, never empty, and name.
    pub name: &'a ObjectName,
    /// The set that was sent, if any.
    pub sent: Option<&'a ApplicationSet>,
    /// The stored set, if any.
    pub stored: Option<&'a Value>,
    /// Its stored Applications.
    pub owned: &'a [&'a Value],
    /// The inputs that its generators read.
    pub reads: ResolvedInputs<'a>,
}

/// Authorizes the requests of one caller.
#[derive(Clone, Copy, Debug)]
pub struct SetAuthorizer<'a> {
    rbac: &'a Rbac,
    resources: &'a Resources,
    projects: &'a Projects,
    settings: &'a ApplicationSets,
    policy: &'a Bundle,
    control_plane_namespace: &'a str,
    caller: &'a Caller,
    later: LaterApplications,
}

/// Proof that a caller may do the operation, and that its generators may read all inputs that are
/// known. It does not authorize what is generated.
///
/// Its fields are private and only [`SetAuthorizer::authorize_operation`] makes it:
///
/// ```compile_fail,E0451
/// fn forge(name: tollgate_objects::ObjectName) {
///     let _ = tollgate_applicationset_rights::SetPermit { name, ..unreachable!() };
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
    /// Whether plugins run for this caller, or why not.
    plugin_access: Result<(), tollgate_applicationset::Denial>,
    /// Why its projects cannot be authorized, for a preview.
    nondeterminism: Vec<finding::Finding>,
    /// RBAC objects that stand for all Applications it could have.
    possible_applications: Vec<String>,
}

/// Proof that a plan may be carried out for a caller, with the set and each of its Applications.
///
/// Its fields are private and only [`SetAuthorizer::authorize_plan`] makes it:
///
/// ```compile_fail,E0451
/// fn forge(plan: tollgate_applicationset::plan::Plan) {
///     let _ = tollgate_applicationset_rights::ApprovedPlan { plan, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ApprovedPlan {
    plan: Plan,
    applications: BTreeSet<OwnedApplication>,
}

/// A plan that is only previewed, with what would refuse it.
#[derive(Debug)]
pub struct PlanReview {
    /// What would be written.
    pub plan: Plan,
    /// What would refuse it. `None` if it could be carried out.
    pub refused: Option<RefusalList>,
    /// For each of the plan's changes: whether the caller may see the stored Application, and with
    /// it the diff.
    pub visible: Vec<bool>,
}

impl<'a> SetAuthorizer<'a> {
    /// Makes the authorizer of a caller. `None` if the front is closed.
    pub fn new(policies: &'a Policies, caller: &'a Arc<Caller>) -> Option<Self> {
        Some(Self {
            rbac: &policies.rbac,
            resources: &policies.resources,
            projects: &policies.projects,
            settings: policies.config.application_sets.as_ref()?,
            policy: policies.bundle(Front::ApplicationSets)?,
            control_plane_namespace: &policies.config.control_plane_namespace,
            caller,
            later: LaterApplications::Unjudged,
        })
    }

    /// The same, where this happens to what is generated later.
    #[must_use]
    pub fn with_later(self, later: LaterApplications) -> Self {
        Self { later, ..self }
    }

    /// Whose requests it authorizes.
    pub fn principal(&self) -> &Principal {
        &self.caller.principal
    }

    /// Whether sets may be in a namespace: the control plane's, or one of the settings.
    ///
    /// # Errors
    /// `Error::Namespace` in Argo CD's words.
    pub fn namespace(&self, namespace: &str) -> Result<(), Error> {
        if namespace_enabled(namespace, self.control_plane_namespace, &self.settings.namespaces) {
            return Ok(());
        }
        Err(Error::Namespace(namespace.to_owned()))
    }

    /// Authorizes everything that can be authorized before generation: the namespace, the
    /// permissions on the set and, with [`ApplicationSetChecks::Generated`], on the Applications
    /// it owns and on the inputs that are known, and that the caller could create at least some
    /// Application.
    ///
    /// Permissions that were looked up go into `checks`, at most 100.
    ///
    /// # Errors
    /// Each denies. `Error::NotVisible` is also the error for a set that does not exist.
    /// `Error::Exists` comes from [`Operation::Create`] if a set is stored, for callers who may
    /// create it.
    pub fn authorize_operation(
        &self,
        request: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<SetPermit, Error> {
        match self.settings.checks {
            ApplicationSetChecks::Generated => {
                // In Argo CD's mode, the operation decides whether and when this is checked.
                self.namespace(&request.name.namespace)?;
                self.authorize_natively(request, checks)
            }
            ApplicationSetChecks::Argocd => self.authorize_as_argocd(request, checks),
        }
    }

    /// Makes the authorizer of the inputs that generators read.
    pub fn input_authorizer<'b>(&'b self, permit: &'b SetPermit) -> CallerInputAuthorizer<'b> {
        CallerInputAuthorizer::new(*self, &permit.project, &permit.facts, permit.plugin_access.clone())
    }

    /// Authorizes a plan: every Application needs all permissions that writing or deleting it
    /// directly needs. With [`ApplicationSetChecks::Argocd`] a plan may write only the set.
    ///
    /// Permissions that refused go into `checks`, at most 100.
    ///
    /// # Errors
    /// `Error::Refused` with every reason; `Error::Policy`; `Error::PlanMismatch` for a plan of
    /// something else.
    pub fn authorize_plan(
        &self,
        permit: &SetPermit,
        plan: Plan,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<ApprovedPlan, Error> {
        // These permits were made without the permissions to write.
        if matches!(permit.operation, Operation::Get | Operation::Preview) {
            return Err(Error::PlanMismatch);
        }
        let outcome = self.judge_plan(permit, &plan, checks)?;
        match outcome.refused.finish() {
            Some(refused) => Err(Error::Refused(refused)),
            None => Ok(ApprovedPlan {
                applications: outcome.applications,
                plan,
            }),
        }
    }

    /// Same as [`Self::authorize_plan`], for a plan that is only previewed.
    pub fn review(&self, permit: &SetPermit, plan: Plan, checks: &mut Vec<CheckRecord>) -> Result<PlanReview, Error> {
        let outcome = match self.settings.checks {
            ApplicationSetChecks::Generated => self.judge_plan(permit, &plan, checks)?,
            // Argo CD does not check at all what a set generates.
            ApplicationSetChecks::Argocd => check_plan_matches(permit, &plan).map(|()| PlanVerdict::default())?,
        };
        // The rights on the set decide whether there is a preview at all. All other refusals are part of it.
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

    /// The same as [`needs_owned`] by the settings in force.
    pub fn needs_owned(&self, set: &Value) -> bool {
        needs_owned(self.settings, set)
    }

    /// Whether the caller may see a set. Nobody sees a set of a namespace that is not permitted.
    ///
    /// - `owned`: the Applications it owns, as far as [`needs_owned`] says so.
    pub fn may_get(&self, name: &ObjectName, stored: &Value, owned: &BTreeSet<OwnedApplication>) -> bool {
        self.namespace(&name.namespace).is_ok() && self.sees(name, stored, owned)
    }
}

impl ApprovedPlan {
    /// What is written.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Adds the statement of the author to the set that is stored afterwards, also if that is stored
    /// already.
    ///
    /// - `statement`: that of this object. `None` if the object has one.
    pub fn set_author(&mut self, statement: impl FnOnce(&ObjectName, &Value) -> Option<String>) {
        let change = &mut self.plan.set;
        let Some(mut object) = change.result().cloned() else {
            return;
        };
        let Some(statement) = statement(&change.name, &object) else {
            return;
        };
        let annotations = object
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .map(|metadata| metadata.entry("annotations").or_insert_with(|| serde_json::json!({})));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.insert(AUTHOR_ANNOTATION.to_owned(), statement.into());
        }
        change.after = Some(object);
        // Without this the statement would not be written.
        if change.action == Action::Keep {
            change.action = Action::Update;
        }
    }

    /// Its Applications after the plan.
    pub fn applications(&self) -> &BTreeSet<OwnedApplication> {
        &self.applications
    }

    /// What is written.
    pub fn into_plan(self) -> Plan {
        self.plan
    }
}
