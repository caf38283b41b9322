//! Decides whether a caller may make a request to the cluster of an Application. The results are
//! [`ApplicationAccess`], then [`ApplicationPermit`], which only this file makes, or 403.
//!
//! 1. Argo CD's RBAC is evaluated: reads need `applications, get` of the Application, and changes
//!    need `applications, sync` as well.
//! 2. Argo CD's server accepts manifests that are not from Git only from callers with
//!    `applications, override`, and shows or changes single objects only if they are in the
//!    Application's resource tree. So `override` reaches everything the project permits. Without
//!    it, a request reaches one object of the Application, and changing that object needs a
//!    separate permission.
//! 3. The project must permit the Application's sources, and its sync windows must permit changes at
//!    the time of the request. A change counts as a manual sync.
//! 4. The project's lists are evaluated, which needs queries to the cluster.
//! 5. The bundle `policies/applications` is evaluated. It can only narrow: a request that RBAC,
//!    destinations, lists or the object's owner refuse is refused regardless of the bundle.
//!
//! Security: a caller who may not see an Application gets the same response whether it exists or
//! not. For callers that RBAC refuses, the cluster gets no queries.

use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;

use tollgate_cluster::discovery::{ResourceKind, ResourceScope};
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::one_line;
use tollgate_front::caller::Caller;
use tollgate_front::policies::{Policies, time_if_read};
use tollgate_front::policy_input::{attributes_size, json, json_time};
use tollgate_front::status_message;
use tollgate_objects::{Cluster, ObjectName, Project};
use tollgate_policy::application_request::{
    ActingIdentity, ExtraPermission, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::{IndexedApplication, Inheritance};
use tollgate_policy::rbac::Rbac;
use tollgate_proxy::record::{OpenRecord, PolicyInputSource};
use tollgate_rego::{ApplicationInput, Bundle, Front};

mod error;
mod evaluator;
#[cfg(test)]
mod tests;

pub(crate) use error::Error;

use evaluator::{ApplicationEvaluation, Evaluator};

/// The text for callers who may not see the Application, or who named one that does not exist. The
/// shipped policy has the same text.
const NOT_VISIBLE: &str = "you may not see this application";
/// The text for callers who may see the Application but not sync it.
const SYNC_DENIED: &str = "you may not sync this application";
/// The text for callers without `override`, for reads that are not about one object.
const READS_ALL: &str =
    "this needs `applications, override`: without it only single resources of the application are read, and no secrets";
/// The same for writes.
const WRITES_ALL: &str = "this needs `applications, override`: without it only single resources of the application \
                          are changed, and no secrets";
const NO_TIME: &str = "sync windows apply, and the time of the request is not known";
/// Longest reason of a list that a response contains, in bytes: the limit of the shipped policy.
const REASON_BYTES: usize = 480;

/// Proof that RBAC lets a caller read or write in the cluster of an Application. It does not prove
/// that this request is allowed.
///
/// Its fields are private and only `access_application` makes it:
///
/// ```compile_fail,E0451
/// fn forge(attributes: std::sync::Arc<tollgate_core::attributes::Attributes>) {
///     let _ = tollgate_cluster_fronts::ApplicationAccess { attributes, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ApplicationAccess {
    evaluation: Arc<ApplicationEvaluation>,
    resolved: Arc<evaluator::ResolvedApplication>,
    attributes: Arc<Attributes>,
    access_mode: ReadOrWrite,
    operation: ObjectOperation,
}

/// Proof that project and policy allowed one request to the cluster of an Application.
///
/// Its fields are private and only `authorize_application` makes it:
///
/// ```compile_fail,E0451
/// fn forge(access: tollgate_cluster_fronts::ApplicationAccess) {
///     let _ = tollgate_cluster_fronts::ApplicationPermit { access };
/// }
/// ```
#[derive(Debug)]
pub struct ApplicationPermit {
    access: ApplicationAccess,
}

/// Decides by RBAC whether `caller` may make the request to the cluster of the Application, and
/// determines the identity that acts there. Permissions that were looked up go into `record`, if there is one.
///
/// - `at`: when the request came. Sync windows may close while it is open.
///
/// What follows from caller and Application alone is computed once and cached with the snapshot. A
/// request takes less than a microsecond.
pub(crate) fn access_application(
    policies: &Policies,
    caller: &Arc<Caller>,
    name: &ObjectName,
    attributes: &Arc<Attributes>,
    at: Option<Timestamp>,
    mut record: Option<&mut OpenRecord>,
) -> Result<ApplicationAccess, Error> {
    let Some(front) = &policies.applications else {
        return Err(not_visible(caller, attributes));
    };
    let evaluation = Evaluator::of(policies, front).evaluation(caller, name);
    if let (Some(evaluation), Some(record)) = (&evaluation, record.as_deref_mut()) {
        record.note(|record| record.checks = evaluation.checks(attributes));
    }
    let access = check_access(evaluation, caller, attributes, at)?;
    if let Some(record) = record {
        record.note(|record| record.destination = Some(Arc::clone(access.cluster())));
    }
    Ok(access)
}

/// Authorizes one request by the policy bundle, and by the checks that the bundle cannot overrule:
/// the project's destinations, its lists, and whether the object belongs to the Application. The
/// bundle's texts go into `record`, if there is one.
pub(crate) fn authorize_application(
    policies: &Policies,
    access: ApplicationAccess,
    checks: ObjectChecks<'_>,
    mut record: Option<&mut OpenRecord>,
) -> Result<ApplicationPermit, Error> {
    let Some(bundle) = policies.bundle(Front::Applications) else {
        return Err(not_visible(access.caller(), &access.attributes));
    };
    if let Some(record) = record.as_deref_mut() {
        record.note(|record| record.policy = Some(Arc::clone(&bundle.digest)));
    }
    decide(bundle, access, checks, record)
}

/// Checks a request by RBAC and the Application's own state.
///
/// - `at`: when the request came. A request that sync windows apply to is refused without it.
fn check_access(
    evaluation: Option<Arc<ApplicationEvaluation>>,
    caller: &Caller,
    attributes: &Arc<Attributes>,
    at: Option<Timestamp>,
) -> Result<ApplicationAccess, Error> {
    let access_mode = ReadOrWrite::classify(attributes);
    // SECURITY: the refusal is the same for an Application that does not exist and one the caller
    // may not see. It comes before anything of the Application is read.
    let Some(evaluation) = evaluation.filter(|evaluation| evaluation.may_get()) else {
        return Err(not_visible(caller, attributes));
    };
    let status_message = |reason: &str| status_message::forbidden(caller.principal.username(), attributes, reason);
    match (access_mode, evaluation.may_sync()) {
        (ReadOrWrite::Read, _) | (ReadOrWrite::Write, true) => {}
        (ReadOrWrite::Write, false) => return Err(Error::SyncDenied(status_message(SYNC_DENIED))),
    }
    let permission_denied = |reason: &str| Error::PermissionDenied(status_message(reason));
    match ExtraPermission::required_for(attributes) {
        Some(permission) if !evaluation.may(permission) => return Err(permission_denied(permission.refusal())),
        Some(_) | None => {}
    }
    let operation = ObjectOperation::classify(attributes);
    match (operation, evaluation.may_override(), access_mode) {
        (ObjectOperation::Other, false, ReadOrWrite::Read) => return Err(permission_denied(READS_ALL)),
        (ObjectOperation::Other, false, ReadOrWrite::Write) => return Err(permission_denied(WRITES_ALL)),
        (ObjectOperation::Other, true, _)
        | (
            ObjectOperation::Discover
            | ObjectOperation::Get
            | ObjectOperation::Run
            | ObjectOperation::Update
            | ObjectOperation::Delete,
            _,
            _,
        ) => {}
    }
    // After RBAC, because the reason tells about the project and its clusters.
    let resolved = evaluation
        .outcome
        .as_ref()
        .map_err(|reason| reason.to_error(status_message))?;
    if is_sync(access_mode, operation) {
        let closed = match at {
            Some(at) => resolved
                .windows
                .check_manual_sync(at.into())
                .map_err(|closed| closed.to_string()),
            None => Err(NO_TIME.to_owned()),
        };
        closed.map_err(|closed| Error::SyncWindow(status_message(&closed)))?;
    }
    Ok(ApplicationAccess {
        resolved: Arc::clone(resolved),
        attributes: Arc::clone(attributes),
        access_mode,
        operation,
        evaluation,
    })
}

/// Whether sync windows apply to a request: it may change objects. Argo CD's terminal ignores them too.
fn is_sync(access_mode: ReadOrWrite, operation: ObjectOperation) -> bool {
    match (access_mode, operation) {
        (ReadOrWrite::Read, _) | (ReadOrWrite::Write, ObjectOperation::Run) => false,
        (
            ReadOrWrite::Write,
            ObjectOperation::Discover
            | ObjectOperation::Get
            | ObjectOperation::Update
            | ObjectOperation::Delete
            | ObjectOperation::Other,
        ) => true,
    }
}

fn not_visible(caller: &Caller, attributes: &Attributes) -> Error {
    let user = caller.principal.username();
    Error::NotVisible(status_message::forbidden(user, attributes, NOT_VISIBLE))
}

/// - `record`: receives the policy's texts, and keeps what its input was made of. `None` for what has
///   no record.
fn decide(
    bundle: &Bundle,
    access: ApplicationAccess,
    checks: ObjectChecks<'_>,
    mut record: Option<&mut OpenRecord>,
) -> Result<ApplicationPermit, Error> {
    let time = time_if_read(bundle);
    let input = ApplicationInput {
        facts: &access.resolved.facts,
        attributes: &access.attributes,
        access: access.access_mode,
        operation: access.operation,
        checks,
        time: time.as_deref(),
    };
    let user = access.caller().principal.username();
    let status_message = |reason: &str| status_message::forbidden(user, &access.attributes, reason);
    let decision = bundle.decide(input.to_value());
    if let Some(record) = record.as_deref_mut() {
        // Also for an evaluation that failed, so that an operator can repeat it.
        access.keep_input(checks, time, record);
    }
    let decision =
        decision.map_err(|source| Error::Policy(status_message("the policy could not be evaluated"), source))?;
    if let Some(record) = record {
        record.note(|record| record.notes = decision.log);
    }
    // SECURITY: a bundle narrows what RBAC and the project permit, and never widens it. Its
    // own denial is reported first because it is more informative.
    let refused = match decision.allow {
        true => access.deny_reason(checks),
        false => Some(decision.reason),
    };
    if let (ProjectListCheck::Refused(reason), Some(_)) = (checks.project_lists, &refused) {
        // Responses do not name the files of the lists.
        let project = access.project();
        tracing::debug!(project = %project.name, at = %project.location, "refused by the project: {reason}");
    }
    match refused {
        Some(reason) => Err(Error::Denied(status_message(&reason))),
        None => Ok(ApplicationPermit { access }),
    }
}

impl ApplicationAccess {
    /// Keeps what the policy's input was made of.
    fn keep_input(&self, checks: ObjectChecks<'_>, time: Option<String>, record: &mut OpenRecord) {
        let (resolved, attributes) = (Arc::clone(&self.resolved), Arc::clone(&self.attributes));
        let (access, operation) = (self.access_mode, self.operation);
        let (project_lists, ownership) = (checks.project_lists.clone(), checks.ownership.clone());
        let shared = usize::try_from(self.evaluation.size_kib).unwrap_or(usize::MAX);
        let size = shared
            .saturating_mul(1_024)
            .saturating_add(attributes_size(&attributes));
        let at = record.at();
        record.keep_input(PolicyInputSource::new(Front::Applications, size, move || {
            let time = json_time(time.as_deref(), at);
            let input = ApplicationInput {
                facts: &resolved.facts,
                attributes: &attributes,
                access,
                operation,
                checks: ObjectChecks {
                    project_lists: &project_lists,
                    ownership: &ownership,
                },
                time: time.as_deref(),
            };
            (json(&input.to_value()), Vec::new())
        }));
    }

    /// Why the request is refused regardless of the bundle. `None` if nothing refuses it.
    fn deny_reason(&self, checks: ObjectChecks<'_>) -> Option<String> {
        if !self.resolved.permitted {
            return Some("the project does not permit the destination".to_owned());
        }
        let shown = |reason: &String| Some(one_line(reason, REASON_BYTES));
        match (checks.project_lists, checks.ownership, self.requires_owned_object()) {
            (ProjectListCheck::Refused(reason), _, _)
            | (ProjectListCheck::Permitted, OwnershipCheck::Refused(reason), _) => shown(reason),
            // Fails closed if a caller of this function left out the check.
            (ProjectListCheck::Permitted, OwnershipCheck::NotChecked, true) => {
                Some("the object was not looked at".to_owned())
            }
            (ProjectListCheck::Permitted, OwnershipCheck::NotChecked, false)
            | (ProjectListCheck::Permitted, OwnershipCheck::Permitted, _) => None,
        }
    }

    /// Whether sync windows apply to the request.
    pub(crate) fn is_sync(&self) -> bool {
        is_sync(self.access_mode, self.operation)
    }

    /// Whether the object of the request must belong to the Application. It need not if the request
    /// has no object, or if the caller may override: by syncing their own manifests they could add
    /// any object to the Application that the project permits.
    pub(crate) fn requires_owned_object(&self) -> bool {
        match self.operation {
            ObjectOperation::Discover => false,
            ObjectOperation::Get
            | ObjectOperation::Run
            | ObjectOperation::Update
            | ObjectOperation::Delete
            | ObjectOperation::Other => !self.evaluation.may_override(),
        }
    }

    /// Checks whether RBAC permits the request's operation on an object of the Application.
    ///
    /// - `kind`: kind of the object.
    pub(crate) fn check_permission(
        &self,
        rbac: &Rbac,
        inheritance: Inheritance,
        kind: &ResourceKind,
    ) -> Result<(), String> {
        let Some(action) = self.operation.action() else {
            return Ok(());
        };
        let namespace = match kind.scope {
            ResourceScope::Namespaced => self.attributes.namespace.as_deref().unwrap_or_default(),
            ResourceScope::Cluster => "",
        };
        let name = self.attributes.name.as_deref().unwrap_or_default();
        let (group, kind) = (&kind.group, &kind.kind);
        // As Argo CD writes the action on an object. The namespace of a cluster-scoped one is empty there.
        let of_object = format!("{action}/{group}/{kind}/{namespace}/{name}");
        let may = |action: &str| self.evaluation.allows(rbac, action);
        let inherits = match inheritance {
            Inheritance::Enabled => may(action),
            Inheritance::Disabled => false,
        };
        match inherits || may(&of_object) {
            true => Ok(()),
            false => Err(format!(
                "this needs `applications, override` or `applications, {of_object}`"
            )),
        }
    }

    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.evaluation.caller
    }

    pub(crate) fn indexed(&self) -> &Arc<IndexedApplication> {
        &self.evaluation.indexed
    }

    pub(crate) fn project(&self) -> &Arc<Project> {
        &self.resolved.project
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.resolved.cluster
    }

    pub(crate) fn attributes(&self) -> &Arc<Attributes> {
        &self.attributes
    }

    pub(crate) fn access_mode(&self) -> ReadOrWrite {
        self.access_mode
    }

    pub(crate) fn acting_identity(&self) -> &ActingIdentity {
        &self.resolved.acting_identity
    }

    /// The `extra` about the caller that is sent if an account acts: keys of `Impersonate-Extra-…`
    /// with their values, checked. A cluster gets those that the gateway may send there. Empty if
    /// the gateway's own identity acts.
    pub(crate) fn extra(&self) -> &Arc<[(String, Vec<String>)]> {
        &self.resolved.extra
    }

    pub(crate) fn operation(&self) -> ObjectOperation {
        self.operation
    }
}

impl Deref for ApplicationPermit {
    type Target = ApplicationAccess;

    fn deref(&self) -> &ApplicationAccess {
        &self.access
    }
}
