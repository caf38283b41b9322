//! Decides whether a caller may enter a cluster in the name of an Application. The results are
//! [`ApplicationAccess`], then [`ApplicationPermit`], which only this file makes, or 403.
//!
//! 1. Argo CD's RBAC decides on entry: reads need `applications, get` of the Application, and
//!    changes need `applications, sync` as well.
//! 2. Argo CD's server takes manifests that are not from Git only from callers with
//!    `applications, override`, and shows or changes single objects only if they are in the
//!    Application's resource tree. So `override` reaches everything the project permits. Without
//!    it, a request reaches one object of the Application, and changing that object needs a right
//!    of its own.
//! 3. The project's lists are evaluated, which needs a look at the cluster.
//! 4. The bundle `policies/applications` is evaluated. It can only narrow: what RBAC,
//!    destinations, lists or the object refuse is refused whatever it says.
//!
//! Security: a caller who may not see an Application gets the same answer whether it exists or
//! not. A cluster is asked nothing for callers RBAC does not let in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::caller::Caller;
use crate::discovery::{ResourceKind, ResourceScope};
use crate::kubernetes::permit::status_message;
use crate::snapshot::Snapshot;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::{Loaded, one_line};
use tollgate_policy::application_request::{
    ActingIdentity, ExtraPermission, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::{IndexedApplication, Inheritance};
use tollgate_policy::impersonate;
use tollgate_policy::impersonate::service_account::{self, ImpersonationRules};
use tollgate_policy::rbac::Rbac;
use tollgate_policy::rego::{self, ApplicationInput, Bundle, Checker, Front};
use tollgate_proxy::record::Open;
use tollgate_state::{Cluster, ObjectName, Project, destination};

mod evaluator;
pub mod restriction;
#[cfg(test)]
mod tests;

pub use evaluator::ApplicationEvaluationCache;

use evaluator::{ApplicationEvaluation, DenyReason, Evaluator};

/// The text for callers who may not see the Application, or who named one that does not exist. The
/// shipped policy has the same text.
const NOT_YOURS: &str = "you may not see this application";
/// The text for callers who may see the Application but not sync it.
const NO_SYNC: &str = "you may not sync this application";
/// The text for callers without `override`, for reads that are not about one object.
const READS_ALL: &str =
    "this needs `applications, override`: without it only single resources of the application are read, and no secrets";
/// The same for writes.
const WRITES_ALL: &str = "this needs `applications, override`: without it only single resources of the application \
                          are changed, and no secrets";
/// Longest reason of a list that a caller is told, in bytes: the limit of the shipped policy.
const REASON_BYTES: usize = 480;

/// Bundle and rules of the Applications front, compiled, tested and ready.
#[derive(Debug)]
pub struct ApplicationsPolicy {
    bundle: Bundle,
    rules: Arc<ImpersonationRules>,
    digest: Arc<str>,
}

impl ApplicationsPolicy {
    /// Reads, checks, tests and compiles `policies/applications`.
    ///
    /// - `semantics`: how `destinationServiceAccounts` are read. It decides the default of the
    ///   rules where they leave it open.
    ///
    /// Blocks as [`Bundle::load`] does. Findings: as there, and what is wrong with the rules.
    pub fn load(folder: &Path, checker: &Checker, semantics: ServiceAccountSemantics) -> Loaded<Self> {
        let parse = |path: &str, text: &str| ImpersonationRules::parse(path, text, semantics).value;
        let rules = ("the rules of impersonation", parse);
        Bundle::load_with((folder, Front::Applications), checker, rules).map(|(bundle, rules)| Self::new(bundle, rules))
    }

    fn new(bundle: Bundle, rules: ImpersonationRules) -> Self {
        Self {
            digest: bundle.digest().into(),
            bundle,
            rules: Arc::new(rules),
        }
    }

    /// Who acts if no entry names an account, and which `extra` is sent along.
    pub fn rules(&self) -> &Arc<ImpersonationRules> {
        &self.rules
    }

    /// Hex SHA-256 of the bundle's files, the rules' among them.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }
}

/// Proof that RBAC lets a caller enter a cluster in the name of an Application, to read or to
/// write. It does not say yet that this request is allowed.
///
/// Its fields are private and only [`access_application`] makes it:
///
/// ```compile_fail,E0451
/// fn forge(attributes: std::sync::Arc<tollgate_core::attributes::Attributes>) {
///     let _ = tollgate_gateway::applications::permit::ApplicationAccess { attributes, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ApplicationAccess {
    evaluator: Arc<ApplicationEvaluation>,
    resolved: Arc<evaluator::ResolvedApplication>,
    attributes: Arc<Attributes>,
    wanted: ReadOrWrite,
    operation: ObjectOperation,
}

/// Proof that project and policy allowed one request in the name of an Application.
///
/// Its fields are private and only [`authorize_application`] makes it:
///
/// ```compile_fail,E0451
/// fn forge(cluster: std::sync::Arc<tollgate_state::Cluster>) {
///     let _ = tollgate_gateway::applications::permit::ApplicationPermit { cluster, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ApplicationPermit {
    access: ApplicationAccess,
    notes: BTreeMap<String, String>,
}

/// Why a request may not enter. The text is for the caller, in kube-apiserver's style.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The Application does not exist, or the caller may not see it: the text is the same.
    #[error("{message}")]
    NotVisible {
        /// The same for both.
        message: String,
    },
    /// The caller may see the Application but not change it.
    #[error("{message}")]
    SyncDenied {
        /// With the permission that is missing.
        message: String,
    },
    /// The caller may see the Application but lacks another right the request needs.
    #[error("{message}")]
    PermissionDenied {
        /// With the permission that is missing.
        message: String,
    },
    /// No account acts, and the settings do not let the gateway act as itself.
    #[error("{message}")]
    GatewayIdentityRefused {
        /// Names the setting.
        message: String,
    },
    /// The project does not exist, or it accepts no Applications of that namespace.
    #[error("{message}")]
    Project {
        /// With the reason.
        message: String,
    },
    /// The Application's destination does not identify exactly one cluster.
    #[error("{message}")]
    Destination {
        /// With the reason.
        message: String,
        /// The same for the record.
        #[source]
        source: destination::Error,
    },
    /// Applications act as accounts, and this one has none.
    #[error("{message}")]
    Identity {
        /// With the reason.
        message: String,
        /// The same for the record.
        #[source]
        source: service_account::Error,
    },
    /// The `extra` about the caller cannot be expressed.
    #[error("{message}")]
    Extra {
        /// Without the cause.
        message: String,
        /// The cause, for the record.
        #[source]
        source: impersonate::Error,
    },
    /// The policy denied the request, or something it cannot overrule did.
    #[error("{message}")]
    Denied {
        /// With the reason.
        message: String,
        /// Texts of the policy for the record.
        notes: BTreeMap<String, String>,
    },
    /// The policy could not be evaluated.
    #[error("{message}")]
    Policy {
        /// Without the cause.
        message: String,
        /// The cause, for the record.
        #[source]
        source: rego::Error,
    },
}

/// Judges by RBAC whether `caller` may enter the cluster of the Application `name` for what
/// `attributes` ask, and determines who acts there. Permissions that were looked up go into
/// `record`.
///
/// What follows from caller and Application alone is computed once and cached with the snapshot. A
/// request takes less than a microsecond.
///
/// # Errors
/// Each denies: [`Error::NotVisible`]; and, for those who may see the Application,
/// [`Error::SyncDenied`], [`Error::PermissionDenied`], [`Error::Project`], [`Error::Destination`],
/// [`Error::Identity`], [`Error::GatewayIdentityRefused`], [`Error::Extra`].
pub fn access_application(
    snapshot: &Snapshot,
    caller: &Arc<Caller>,
    asked: (&ObjectName, &Arc<Attributes>),
    record: &mut Open,
) -> Result<ApplicationAccess, Error> {
    let Some(front) = &snapshot.applications else {
        return Err(not_visible(caller, asked.1));
    };
    let evaluator = Evaluator::of(snapshot, front).evaluation(caller, asked.0);
    if let Some(evaluator) = &evaluator {
        record.note(|record| record.checks = evaluator.checks(asked.1));
    }
    let access = check_access(evaluator, caller, asked.1)?;
    record.note(|record| record.destination = Some(Arc::clone(access.cluster())));
    Ok(access)
}

/// Determines again who acts where for a request that was let in before, if it would be let in
/// now.
///
/// - `found`: what the project's lists say of it, and what is known of its object.
pub fn reauthorize_application(
    snapshot: &Snapshot,
    caller: &Arc<Caller>,
    asked: (&ObjectName, &Arc<Attributes>),
    found: impl FnOnce(&ApplicationAccess) -> (ProjectListCheck, OwnershipCheck),
) -> Option<(ActingIdentity, Arc<Cluster>)> {
    let front = snapshot.applications.as_ref()?;
    let evaluator = Evaluator::of(snapshot, front).evaluation(caller, asked.0);
    let access = check_access(evaluator, caller, asked.1).ok()?;
    let (listed, owned) = found(&access);
    let found = ObjectChecks {
        listed: &listed,
        owned: &owned,
    };
    let permit = front.policy.decide(access, found).ok()?;
    Some((permit.acting_identity().clone(), Arc::clone(permit.cluster())))
}

/// Judges one request by the policy bundle, and by what the bundle cannot overrule: the project's
/// destinations, its lists, and whether the object is the Application's. The bundle's texts go
/// into `record`.
///
/// # Errors
/// [`Error::Denied`] and [`Error::Policy`]; each means the request does not pass.
pub fn authorize_application(
    snapshot: &Snapshot,
    access: ApplicationAccess,
    found: ObjectChecks<'_>,
    record: &mut Open,
) -> Result<ApplicationPermit, Error> {
    let Some(front) = &snapshot.applications else {
        return Err(not_visible(access.caller(), &access.attributes));
    };
    record.note(|record| record.policy = Some(Arc::clone(&front.policy.digest)));
    let permit = front.policy.decide(access, found)?;
    record.note(|record| record.notes.clone_from(&permit.notes));
    Ok(permit)
}

/// Judges a request by RBAC and the Application's own state.
fn check_access(
    evaluator: Option<Arc<ApplicationEvaluation>>,
    caller: &Caller,
    attributes: &Arc<Attributes>,
) -> Result<ApplicationAccess, Error> {
    let wanted = ReadOrWrite::of(attributes);
    // SECURITY: the refusal is the same for an Application that does not exist and one the caller
    // may not see. It comes before anything of the Application is read.
    let Some(evaluator) = evaluator else {
        return Err(not_visible(caller, attributes));
    };
    let status_message = |reason: &str| status_message::forbidden(caller.principal.username(), attributes, reason);
    if !evaluator.may_get() {
        return Err(not_visible(caller, attributes));
    }
    match (wanted, evaluator.may_sync()) {
        (ReadOrWrite::Read, _) | (ReadOrWrite::Write, true) => {}
        (ReadOrWrite::Write, false) => {
            return Err(Error::SyncDenied {
                message: status_message(NO_SYNC),
            });
        }
    }
    let lacks = |reason: &str| Error::PermissionDenied {
        message: status_message(reason),
    };
    match ExtraPermission::of(attributes) {
        Some(need) if !evaluator.may(need) => return Err(lacks(need.refusal())),
        Some(_) | None => {}
    }
    let operation = ObjectOperation::of(attributes);
    match (operation, evaluator.may_override(), wanted) {
        (ObjectOperation::Other, false, ReadOrWrite::Read) => return Err(lacks(READS_ALL)),
        (ObjectOperation::Other, false, ReadOrWrite::Write) => return Err(lacks(WRITES_ALL)),
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
    match &evaluator.outcome {
        Ok(resolved) => Ok(ApplicationAccess {
            resolved: Arc::clone(resolved),
            attributes: Arc::clone(attributes),
            wanted,
            operation,
            evaluator,
        }),
        Err(DenyReason::GatewayRefused) => Err(Error::GatewayIdentityRefused {
            message: status_message(
                "no service account acts for the application, and the gateway does not act in its own name \
                 (`applications.gatewayIdentity`)",
            ),
        }),
        Err(DenyReason::Project) => Err(Error::Project {
            message: status_message("there is no such project for the application, or it takes none of its namespace"),
        }),
        Err(DenyReason::Destination(source)) => Err(Error::Destination {
            message: status_message(&source.to_string()),
            source: source.clone(),
        }),
        Err(DenyReason::Identity(source)) => Err(Error::Identity {
            message: status_message(&source.public_message()),
            source: source.clone(),
        }),
        Err(DenyReason::Extra(source)) => Err(Error::Extra {
            message: status_message("the caller's identity cannot be told to the cluster"),
            source: source.clone(),
        }),
    }
}

fn not_visible(caller: &Caller, attributes: &Attributes) -> Error {
    Error::NotVisible {
        message: status_message::forbidden(caller.principal.username(), attributes, NOT_YOURS),
    }
}

impl ApplicationsPolicy {
    fn decide(&self, access: ApplicationAccess, found: ObjectChecks<'_>) -> Result<ApplicationPermit, Error> {
        let input = ApplicationInput {
            facts: &access.resolved.facts,
            attributes: &access.attributes,
            wanted: access.wanted,
            operation: access.operation,
            found,
        };
        let user = access.caller().principal.username();
        let status_message = |reason: &str| status_message::forbidden(user, &access.attributes, reason);
        let decision = self.bundle.decide(input.to_value()).map_err(|source| Error::Policy {
            message: status_message("the policy could not be evaluated"),
            source,
        })?;
        // SECURITY: a bundle narrows what RBAC and the project permit, and never widens it. Its
        // own denial is reported first because it is more informative.
        let refused = match decision.allow {
            true => access.deny_reason(found),
            false => Some(decision.reason),
        };
        if let (ProjectListCheck::Refused(reason), Some(_)) = (found.listed, &refused) {
            // Callers are not told in which files the lists are.
            let project = access.project();
            tracing::debug!(project = %project.name, at = %project.location, "refused by the project: {reason}");
        }
        match refused {
            Some(reason) => Err(Error::Denied {
                message: status_message(&reason),
                notes: decision.log,
            }),
            None => Ok(ApplicationPermit {
                access,
                notes: decision.log,
            }),
        }
    }
}

impl ApplicationAccess {
    /// Why the request is refused whatever the bundle says. `None` if nothing refuses it.
    fn deny_reason(&self, found: ObjectChecks<'_>) -> Option<String> {
        if !self.resolved.permitted {
            return Some("the project does not permit the destination".to_owned());
        }
        let shown = |reason: &String| Some(one_line(reason, REASON_BYTES));
        match (found.listed, found.owned, self.requires_owned_object()) {
            (ProjectListCheck::Refused(reason), _, _)
            | (ProjectListCheck::Permitted, OwnershipCheck::Refused(reason), _) => shown(reason),
            (ProjectListCheck::Permitted, OwnershipCheck::NotChecked, true) => {
                Some("the object was not looked at".to_owned())
            }
            (ProjectListCheck::Permitted, OwnershipCheck::NotChecked, false)
            | (ProjectListCheck::Permitted, OwnershipCheck::Permitted, _) => None,
        }
    }

    /// Whether the object of the request must be the Application's. It need not if the request has
    /// no object, or if the caller may override: with a sync of their own manifests they could
    /// make any object the project permits the Application's.
    pub fn requires_owned_object(&self) -> bool {
        match self.operation {
            ObjectOperation::Discover => false,
            ObjectOperation::Get
            | ObjectOperation::Run
            | ObjectOperation::Update
            | ObjectOperation::Delete
            | ObjectOperation::Other => !self.evaluator.may_override(),
        }
    }

    /// Whether RBAC lets the caller do to an object of the Application what the request does.
    ///
    /// - `kind`: kind of the object.
    ///
    /// # Errors
    /// The reason for the caller, with the missing right.
    pub fn check_permission(&self, rbac: &Rbac, inheritance: Inheritance, kind: &ResourceKind) -> Result<(), String> {
        let Some(action) = self.operation.action() else {
            return Ok(());
        };
        let namespace = match kind.scope {
            ResourceScope::Namespaced => self.attributes.namespace.as_deref().unwrap_or_default(),
            ResourceScope::Cluster => "",
        };
        let name = self.attributes.name.as_deref().unwrap_or_default();
        let (group, kind) = (&kind.group, &kind.kind);
        let of_object = format!("{action}/{group}/{kind}/{namespace}/{name}");
        let may = |action: &str| self.evaluator.allows(rbac, action);
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

    /// The caller.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.evaluator.caller
    }

    /// The Application, and what governs it.
    pub fn governed(&self) -> &Arc<IndexedApplication> {
        &self.evaluator.governed
    }

    /// Its project.
    pub fn project(&self) -> &Arc<Project> {
        &self.resolved.project
    }

    /// The cluster to enter.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.resolved.cluster
    }

    /// What is asked of the cluster.
    pub fn attributes(&self) -> &Arc<Attributes> {
        &self.attributes
    }

    /// Whether the request changes anything there.
    pub fn access_mode(&self) -> ReadOrWrite {
        self.wanted
    }

    /// The identity that acts there.
    pub fn acting_identity(&self) -> &ActingIdentity {
        &self.resolved.whom
    }

    /// The `extra` about the caller that is sent along if an account acts: keys of
    /// `Impersonate-Extra-…` with their values, checked. A cluster gets those that the gateway may
    /// send there. Empty if the gateway's own identity acts.
    pub fn extra(&self) -> &Arc<[(String, Vec<String>)]> {
        &self.resolved.extra
    }

    /// What the request does there.
    pub fn operation(&self) -> ObjectOperation {
        self.operation
    }
}

impl ApplicationPermit {
    /// The Application, and what governs it.
    pub fn governed(&self) -> &Arc<IndexedApplication> {
        self.access.governed()
    }

    /// The cluster to enter.
    pub fn cluster(&self) -> &Arc<Cluster> {
        self.access.cluster()
    }

    /// What is asked of the cluster.
    pub fn attributes(&self) -> &Arc<Attributes> {
        self.access.attributes()
    }

    /// The identity that acts there.
    pub fn acting_identity(&self) -> &ActingIdentity {
        self.access.acting_identity()
    }

    /// The `extra` about the caller that is sent along, as in [`ApplicationAccess::extra`].
    pub fn extra(&self) -> &Arc<[(String, Vec<String>)]> {
        self.access.extra()
    }
}
