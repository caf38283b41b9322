//! Caches [`ApplicationEvaluation`]: what follows from a caller and an Application alone. The cache lives as
//! long as its snapshot.
//!
//! Security: an entry belongs to one caller and one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::caller::Caller;
use crate::extensions::facts::Lookup;
use crate::snapshot::{ApplicationsFront, Snapshot};
use tollgate_config::GatewayIdentity;
use tollgate_config::ImpersonationMode;
use tollgate_core::attributes::Attributes;
use tollgate_identity::authenticate::{Principal, VERIFIED_TOKEN_TTL};
use tollgate_policy::application_request::ActingIdentity;
use tollgate_policy::application_request::ExtraPermission;
use tollgate_policy::applications::{Applications, IndexedApplication};
use tollgate_policy::impersonate;
use tollgate_policy::impersonate::service_account::{self, ImpersonationRules, PrincipalInfo};
use tollgate_policy::rbac::{Outcome, Rbac, RbacRequest, object_name};
use tollgate_policy::rego::{ApplicationDetails, ApplicationFacts, ApplicationVerdicts};
use tollgate_proxy::record::CheckRecord;
use tollgate_state::{Cluster, ObjectName, Project, destination};

/// Size of the cache in KiB, approximately.
const CACHE_KIB: u64 = 50_000;

/// Standings by the addresses of caller and Application. One cache for each snapshot.
#[derive(Debug)]
pub struct ApplicationEvaluationCache(moka::sync::Cache<(usize, usize), Arc<ApplicationEvaluation>, FxBuildHasher>);

impl Default for ApplicationEvaluationCache {
    fn default() -> Self {
        // Nobody chooses an address, so a plain hash is enough.
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, standing: &Arc<ApplicationEvaluation>| standing.heap_size)
                .max_capacity(CACHE_KIB)
                // Callers are verified again every few minutes, which makes a new one.
                .time_to_live(VERIFIED_TOKEN_TTL)
                .build_with_hasher(FxBuildHasher),
        )
    }
}

/// One caller, one Application, and what follows from the two.
#[derive(Debug)]
pub(super) struct ApplicationEvaluation {
    pub(super) caller: Arc<Caller>,
    pub(super) governed: Arc<IndexedApplication>,
    /// The RBAC object of the Application.
    object: String,
    /// RBAC's verdicts on [`PERMISSIONS`], in the same order.
    allowed: [bool; 5],
    /// The relevant verdicts in the form of records: for most requests, for those for logs, and
    /// for those that run programs.
    checks: [Arc<[CheckRecord]>; 3],
    heap_size: u32,
    pub(super) outcome: Result<Arc<ResolvedApplication>, DenyReason>,
}

/// An Application that somebody can act for.
#[derive(Debug)]
pub(super) struct ResolvedApplication {
    pub(super) project: Arc<Project>,
    pub(super) cluster: Arc<Cluster>,
    /// Whether the project permits cluster and namespace of the destination.
    pub(super) permitted: bool,
    pub(super) whom: ActingIdentity,
    /// The `extra` about the caller that is sent along.
    pub(super) extra: Arc<[(String, Vec<String>)]>,
    pub(super) facts: ApplicationFacts,
}

/// Why nobody can act for an Application.
#[derive(Debug)]
pub(super) enum DenyReason {
    Project,
    Destination(destination::Error),
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

/// What standings are computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evaluator<'a> {
    pub(super) rbac: &'a Rbac,
    pub(super) index: &'a Applications,
    pub(super) rules: &'a ImpersonationRules,
    pub(super) clusters: &'a [Cluster],
    pub(super) control_plane_namespace: &'a str,
    /// Whether the gateway acts as itself if no account does.
    pub(super) gateway_identity: GatewayIdentity,
    pub(super) standings: &'a ApplicationEvaluationCache,
}

impl<'a> Evaluator<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, front: &'a ApplicationsFront) -> Self {
        Self {
            rbac: &snapshot.rbac,
            index: &front.index,
            rules: front.policy.rules(),
            clusters: &snapshot.resources.clusters,
            control_plane_namespace: &snapshot.config.control_plane_namespace,
            gateway_identity: snapshot.config.applications.unwrap_or_default().gateway_identity,
            standings: &snapshot.standings,
        }
    }

    /// What is known of `caller` and the Application `name`. `None` if it does not exist.
    pub(super) fn evaluation(&self, caller: &Arc<Caller>, name: &ObjectName) -> Option<Arc<ApplicationEvaluation>> {
        let governed = self.index.find(&name.namespace, &name.name)?;
        let key = (Arc::as_ptr(caller) as usize, Arc::as_ptr(governed) as usize);
        // INVARIANT: an entry keeps caller and Application alive, so no others can
        // have the same addresses while the entry exists.
        if let Some(kept) = self.standings.0.get(&key)
            && Arc::ptr_eq(&kept.caller, caller)
            && Arc::ptr_eq(&kept.governed, governed)
        {
            return Some(kept);
        }
        let standing = Arc::new(self.evaluate(caller, governed));
        self.standings.0.insert(key, Arc::clone(&standing));
        Some(standing)
    }

    fn evaluate(&self, caller: &Arc<Caller>, governed: &Arc<IndexedApplication>) -> ApplicationEvaluation {
        let application = &governed.application;
        let object = object_name(
            self.control_plane_namespace,
            &application.project,
            &application.name.namespace,
            &application.name.name,
        );
        let lookups =
            PERMISSIONS.map(|(resource, action)| Lookup::of(self.rbac, caller, [resource, action], object.clone()));
        let outcome = self.resolve(caller, governed, &lookups).map(Arc::new);
        let allowed = lookups.each_ref().map(Lookup::is_allowed);
        let [get, sync, may_override, logs, exec] = lookups.map(Lookup::into_check);
        ApplicationEvaluation {
            caller: Arc::clone(caller),
            governed: Arc::clone(governed),
            allowed,
            heap_size: estimate_heap_size(caller, governed, [&get, &sync, &may_override, &logs, &exec]),
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
        governed: &IndexedApplication,
        lookups: &[Lookup; 5],
    ) -> Result<ResolvedApplication, DenyReason> {
        let project = governed.project.as_ref().ok_or(DenyReason::Project)?;
        let cluster = governed.destination.as_ref();
        let cluster = cluster.map_err(|error| DenyReason::Destination(error.clone()))?;
        let whom = whom(self.index.mode, governed)?;
        match (&whom, self.gateway_identity) {
            // SECURITY: the gateway's identity may do more in the cluster than the Application
            // should.
            (ActingIdentity::Gateway, GatewayIdentity::Refused) => return Err(DenyReason::GatewayRefused),
            (ActingIdentity::Gateway, GatewayIdentity::Allowed) | (ActingIdentity::Account(_), _) => {}
        }
        let extra = match &whom {
            ActingIdentity::Gateway => Vec::new(),
            ActingIdentity::Account(_) => {
                let human = human(&caller.principal);
                let extra = self.rules.extra(&human, &governed.application);
                extra.map_err(DenyReason::Extra)?
            }
        };
        let namespace = &governed.application.destination.namespace;
        let permitted = destination::permitted(project, cluster, namespace, self.clusters);
        let known = ApplicationDetails {
            governed,
            project,
            cluster,
            permitted,
            mode: self.index.mode,
            whom: &whom,
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
            facts: ApplicationFacts::new(&caller.policy, &known, &verdicts),
            project: Arc::clone(project),
            cluster: Arc::clone(cluster),
            permitted,
            whom,
            extra: extra.into(),
        })
    }
}

/// Determines who acts.
fn whom(mode: ImpersonationMode, governed: &IndexedApplication) -> Result<ActingIdentity, DenyReason> {
    match (mode, &governed.acting) {
        (ImpersonationMode::Off | ImpersonationMode::Audit, _) => Ok(ActingIdentity::Gateway),
        (ImpersonationMode::Enforce, Err(error)) => Err(DenyReason::Identity(error.clone())),
        (ImpersonationMode::Enforce, Ok(acting)) => match &acting.account {
            Some(_) => Ok(ActingIdentity::Account(Arc::clone(&acting.impersonation))),
            None => Ok(ActingIdentity::Gateway),
        },
    }
}

impl ApplicationEvaluation {
    /// Whether RBAC lets the caller see the Application.
    pub(super) fn may_get(&self) -> bool {
        let [get, ..] = self.allowed;
        get
    }

    /// Whether RBAC lets the caller sync it.
    pub(super) fn may_sync(&self) -> bool {
        let [_, sync, ..] = self.allowed;
        sync
    }

    /// Whether RBAC lets the caller sync manifests of their own.
    pub(super) fn may_override(&self) -> bool {
        let [get, sync, may_override, ..] = self.allowed;
        get && sync && may_override
    }

    /// Whether RBAC lets the caller do something else with the Application.
    pub(super) fn allows(&self, rbac: &Rbac, action: &str) -> bool {
        let tuple = RbacRequest {
            resource: "applications",
            action,
            object: &self.object,
        };
        match rbac.decide(&self.caller.roles, tuple).outcome {
            Outcome::Allow => true,
            Outcome::Deny => false,
        }
    }

    /// Whether RBAC grants the additional right that some requests need.
    pub(super) fn may(&self, need: ExtraPermission) -> bool {
        let [.., logs, exec] = self.allowed;
        match need {
            ExtraPermission::Logs => logs,
            ExtraPermission::Exec => exec,
        }
    }

    /// The verdicts that matter to a request, in the form of records.
    pub(super) fn checks(&self, attributes: &Attributes) -> Arc<[CheckRecord]> {
        let [most, logs, run] = &self.checks;
        Arc::clone(match ExtraPermission::of(attributes) {
            None => most,
            Some(ExtraPermission::Logs) => logs,
            Some(ExtraPermission::Exec) => run,
        })
    }
}

/// Memory a standing holds and keeps alive, approximately, in KiB.
fn estimate_heap_size(caller: &Caller, governed: &IndexedApplication, checks: [&CheckRecord; 5]) -> u32 {
    let texts = checks.map(|check| {
        // Twice for records, once for the policy.
        3 * (check.object.len() + check.rule.as_ref().map_or(0, String::len))
    });
    let labels = |labels: &BTreeMap<String, String>| {
        let each = labels.iter().map(|(key, value)| 64 + key.len() + value.len());
        each.sum::<usize>()
    };
    let project = governed.project.as_ref().map_or(0, |project| labels(&project.labels));
    let bytes = texts.iter().sum::<usize>() + labels(&governed.application.labels) + project;
    let own = u32::try_from(bytes / 1_024).unwrap_or(u32::MAX);
    own.saturating_add(4).saturating_add(caller.heap_size())
}

/// What expressions can read of a verified caller.
fn human(principal: &Principal) -> PrincipalInfo<'_> {
    PrincipalInfo {
        username: principal.username(),
        groups: principal.groups(),
        issuer: principal.issuer(),
        kind: principal.kind().as_str(),
    }
}
