//! Evaluates a caller and an Application, and caches the [`ApplicationEvaluation`]: everything
//! that follows from the two alone. The cache lives as long as its snapshot.
//!
//! Security: an entry belongs to one caller and one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use tollgate_config::{GatewayIdentity, ImpersonationMode};
use tollgate_core::attributes::Attributes;
use tollgate_core::glob::redact_credentials;
use tollgate_front::caller::Caller;
use tollgate_front::policies::{ApplicationPolicies, Policies};
use tollgate_front::rbac::RbacLookup;
use tollgate_identity::authenticate::{Principal, VERIFIED_TOKEN_TTL};
use tollgate_objects::{Cluster, ObjectName, Project, destination};
use tollgate_policy::application_request::{ActingIdentity, ExtraPermission};
use tollgate_policy::applications::{ApplicationIndex, IndexedApplication};
use tollgate_policy::impersonate;
use tollgate_policy::impersonate::service_account::{self, ImpersonationRules, PrincipalInfo};
use tollgate_policy::rbac::{Rbac, RbacRequest, object_name};
use tollgate_policy::sync_windows::ApplicableWindows;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{ApplicationDetails, ApplicationFacts, ApplicationVerdicts};

/// Size of the cache in KiB, approximately.
const CACHE_KIB: u64 = 50_000;

/// Evaluations by the addresses of caller and Application. There is one cache for each snapshot.
#[derive(Debug)]
pub(crate) struct ApplicationEvaluationCache(
    moka::sync::Cache<(usize, usize), Arc<ApplicationEvaluation>, FxBuildHasher>,
);

impl Default for ApplicationEvaluationCache {
    fn default() -> Self {
        // Nobody chooses an address, so a plain hash is enough.
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, evaluation: &Arc<ApplicationEvaluation>| evaluation.size_kib)
                .max_capacity(CACHE_KIB)
                // Callers are verified again every few minutes, which makes a new entry.
                .time_to_live(VERIFIED_TOKEN_TTL)
                .build_with_hasher(FxBuildHasher),
        )
    }
}

#[derive(Debug)]
pub(super) struct ApplicationEvaluation {
    pub(super) caller: Arc<Caller>,
    pub(super) indexed: Arc<IndexedApplication>,
    object: String,
    /// RBAC's verdicts on [`PERMISSIONS`], in the same order.
    allowed: [bool; 5],
    /// The relevant verdicts as records contain them: for most requests, for those for logs, and
    /// for those that run programs.
    checks: [Arc<[CheckRecord]>; 3],
    pub(super) size_kib: u32,
    pub(super) outcome: Result<Arc<ResolvedApplication>, DenyReason>,
}

#[derive(Debug)]
pub(super) struct ResolvedApplication {
    pub(super) project: Arc<Project>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) permitted: bool,
    pub(super) windows: ApplicableWindows,
    pub(super) acting_identity: ActingIdentity,
    /// The `extra` about the caller that is sent.
    pub(super) extra: Arc<[(String, Vec<String>)]>,
    pub(super) facts: ApplicationFacts,
}

#[derive(Debug)]
pub(super) enum DenyReason {
    Project,
    Destination(destination::Error),
    /// The project does not permit this repository of the Application's sources.
    Source(String),
    /// The gateway's own identity would act, but the settings forbid it.
    GatewayRefused,
    Identity(service_account::Error),
    Extra(impersonate::Error),
}

/// The permissions looked up for every caller and Application: RBAC resource and action.
const PERMISSIONS: [(&str, &str); 5] = [
    ("applications", "get"),
    ("applications", "sync"),
    ("applications", "override"),
    ExtraPermission::Logs.rbac(),
    ExtraPermission::Exec.rbac(),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Evaluator<'a> {
    pub(super) rbac: &'a Rbac,
    pub(super) index: &'a ApplicationIndex,
    pub(super) rules: &'a ImpersonationRules,
    pub(super) control_plane_namespace: &'a str,
    /// Whether the gateway's own identity acts if no account does.
    pub(super) gateway_identity: GatewayIdentity,
    pub(super) cache: &'a ApplicationEvaluationCache,
}

impl<'a> Evaluator<'a> {
    pub(super) fn of(policies: &'a Policies, front: &'a ApplicationPolicies) -> Self {
        Self {
            rbac: &policies.rbac,
            index: &front.index,
            rules: &front.rules,
            control_plane_namespace: &policies.config.control_plane_namespace,
            gateway_identity: policies.config.applications.unwrap_or_default().gateway_identity,
            cache: policies.caches.of(),
        }
    }

    /// Returns the evaluation of `caller` and the Application `name`, cached or new. `None` if the
    /// Application does not exist.
    pub(super) fn evaluation(&self, caller: &Arc<Caller>, name: &ObjectName) -> Option<Arc<ApplicationEvaluation>> {
        let indexed = self.index.find(&name.namespace, &name.name)?;
        let key = (Arc::as_ptr(caller) as usize, Arc::as_ptr(indexed) as usize);
        // INVARIANT: an entry keeps caller and Application alive, so no others can
        // have the same addresses while the entry exists.
        if let Some(cached) = self.cache.0.get(&key)
            && Arc::ptr_eq(&cached.caller, caller)
            && Arc::ptr_eq(&cached.indexed, indexed)
        {
            return Some(cached);
        }
        let evaluation = Arc::new(self.evaluate(caller, indexed));
        self.cache.0.insert(key, Arc::clone(&evaluation));
        Some(evaluation)
    }

    fn evaluate(&self, caller: &Arc<Caller>, indexed: &Arc<IndexedApplication>) -> ApplicationEvaluation {
        let application = &indexed.application;
        let object = object_name(
            self.control_plane_namespace,
            &application.project,
            &application.name.namespace,
            &application.name.name,
        );
        let lookups =
            PERMISSIONS.map(|(resource, action)| RbacLookup::of(self.rbac, caller, [resource, action], object.clone()));
        let outcome = self.resolve(caller, indexed, &lookups).map(Arc::new);
        let allowed = lookups.each_ref().map(RbacLookup::is_allowed);
        let [get, sync, may_override, logs, exec] = lookups.map(RbacLookup::into_check);
        ApplicationEvaluation {
            caller: Arc::clone(caller),
            indexed: Arc::clone(indexed),
            allowed,
            size_kib: estimate_size_kib(caller, indexed, [&get, &sync, &may_override, &logs, &exec]),
            object,
            checks: [
                Arc::new([get.clone(), sync.clone(), may_override.clone()]),
                Arc::new([get.clone(), sync.clone(), may_override.clone(), logs]),
                Arc::new([get, sync, may_override, exec]),
            ],
            outcome,
        }
    }

    fn resolve(
        &self,
        caller: &Caller,
        indexed: &IndexedApplication,
        lookups: &[RbacLookup; 5],
    ) -> Result<ResolvedApplication, DenyReason> {
        let project = indexed.project.as_ref().ok_or(DenyReason::Project)?;
        let cluster = indexed.destination.as_ref();
        let cluster = cluster.map_err(|error| DenyReason::Destination(error.clone()))?;
        if let Some(repository) = indexed.refused_repository() {
            // The caller reads the text, and the URL of a repository may contain a password.
            return Err(DenyReason::Source(redact_credentials(repository)));
        }
        let acting_identity = resolve_identity(self.index.mode, indexed)?;
        match (&acting_identity, self.gateway_identity) {
            // SECURITY: the gateway's own identity may do more in the cluster than the Application
            // should.
            (ActingIdentity::Gateway, GatewayIdentity::Refused) => return Err(DenyReason::GatewayRefused),
            (ActingIdentity::Gateway, GatewayIdentity::Allowed) | (ActingIdentity::ServiceAccount(_), _) => {}
        }
        let extra = match &acting_identity {
            // Kubernetes takes `extra` only together with a user to act as.
            ActingIdentity::Gateway => Vec::new(),
            ActingIdentity::ServiceAccount(_) => {
                let principal = principal_info(&caller.principal);
                let extra = self.rules.extra(&principal, &indexed.application);
                extra.map_err(DenyReason::Extra)?
            }
        };
        let details = ApplicationDetails {
            indexed,
            project,
            cluster,
            permitted: indexed.is_destination_permitted,
            mode: self.index.mode,
            acting_identity: &acting_identity,
        };
        let [get, sync, may_override, logs, exec] = lookups;
        let verdicts = ApplicationVerdicts {
            applications_get: get.verdict(),
            applications_sync: sync.verdict(),
            applications_override: may_override.verdict(),
            logs_get: logs.verdict(),
            exec_create: exec.verdict(),
        };
        Ok(ResolvedApplication {
            facts: ApplicationFacts::new(&caller.policy, &details, &verdicts),
            project: Arc::clone(project),
            cluster: Arc::clone(cluster),
            permitted: indexed.is_destination_permitted,
            windows: indexed.applicable_windows(),
            acting_identity,
            extra: extra.into(),
        })
    }
}

fn resolve_identity(mode: ImpersonationMode, indexed: &IndexedApplication) -> Result<ActingIdentity, DenyReason> {
    match (mode, &indexed.derived_account) {
        (ImpersonationMode::Off | ImpersonationMode::Audit, _) => Ok(ActingIdentity::Gateway),
        (ImpersonationMode::Enforce, Err(error)) => Err(DenyReason::Identity(error.clone())),
        (ImpersonationMode::Enforce, Ok(derived)) => match &derived.account {
            Some(_) => Ok(ActingIdentity::ServiceAccount(Arc::clone(&derived.impersonation))),
            None => Ok(ActingIdentity::Gateway),
        },
    }
}

impl ApplicationEvaluation {
    pub(super) fn may_get(&self) -> bool {
        let [get, ..] = self.allowed;
        get
    }

    pub(super) fn may_sync(&self) -> bool {
        let [_, sync, ..] = self.allowed;
        sync
    }

    pub(super) fn may_override(&self) -> bool {
        let [get, sync, may_override, ..] = self.allowed;
        // Argo CD asks for `override` only after `sync`.
        get && sync && may_override
    }

    pub(super) fn allows(&self, rbac: &Rbac, action: &str) -> bool {
        let request = RbacRequest {
            resource: "applications",
            action,
            object: &self.object,
        };
        rbac.decide(&self.caller.roles, request).is_allowed()
    }

    pub(super) fn may(&self, permission: ExtraPermission) -> bool {
        let [.., logs, exec] = self.allowed;
        match permission {
            ExtraPermission::Logs => logs,
            ExtraPermission::Exec => exec,
        }
    }

    pub(super) fn checks(&self, attributes: &Attributes) -> Arc<[CheckRecord]> {
        let [common, logs, exec] = &self.checks;
        Arc::clone(match ExtraPermission::required_for(attributes) {
            None => common,
            Some(ExtraPermission::Logs) => logs,
            Some(ExtraPermission::Exec) => exec,
        })
    }
}

/// Memory that an evaluation holds and keeps alive, approximately, in KiB.
fn estimate_size_kib(caller: &Caller, indexed: &IndexedApplication, checks: [&CheckRecord; 5]) -> u32 {
    let texts = checks.map(|check| {
        // Twice for records, once for the policy.
        3 * (check.object.len() + check.rule.as_ref().map_or(0, String::len))
    });
    let labels = |labels: &BTreeMap<String, String>| {
        let each = labels.iter().map(|(key, value)| 64 + key.len() + value.len());
        each.sum::<usize>()
    };
    let project = indexed.project.as_ref().map_or(0, |project| labels(&project.labels));
    let bytes = texts.iter().sum::<usize>() + labels(&indexed.application.labels) + project;
    let own = u32::try_from(bytes / 1_024).unwrap_or(u32::MAX);
    own.saturating_add(4).saturating_add(caller.size_kib)
}

fn principal_info(principal: &Principal) -> PrincipalInfo<'_> {
    PrincipalInfo {
        username: principal.username(),
        groups: principal.groups(),
        issuer: principal.issuer(),
        kind: principal.kind().into(),
    }
}
