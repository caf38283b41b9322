//! [`Policies`]: what requests are decided by.
//!
//! Invariant: a verdict about a caller and a target is cached with its snapshot, and dropped with it.

use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;

use crate::caches::Caches;
use crate::set_list::{SetList, needs_owned};
use tollgate_config::Config;
use tollgate_core::user::Identity;
use tollgate_front::caller::{Caller, CallerCache};
use tollgate_identity::access::Agents;
use tollgate_identity::authenticate::k8s_proxy::IdTokenVerifier;
use tollgate_identity::authenticate::{AuthorKey, Principal};
use tollgate_objects::Resources;
use tollgate_policy::applications::{ApplicationIndex, Projects};
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_policy::impersonate::{Impersonation, ImpersonationMapping};
use tollgate_policy::rbac::Rbac;
use tollgate_rego::{Bundle, Front};

/// Everything by which the permits of the fronts decide, and what they cache of their decisions.
///
/// Security: it holds no credential, no connection and no plugin.
#[derive(Debug)]
pub struct Policies {
    pub(crate) config: Arc<Config>,
    /// Kubernetes objects.
    pub resources: Arc<Resources>,
    pub(crate) rbac: Arc<Rbac>,
    bundles: Arc<Bundles>,
    /// `None` without the section `kubernetes`.
    pub(crate) kubernetes: Option<KubernetesPolicies>,
    /// `None` without the section `applications`.
    pub(crate) applications: Option<ApplicationPolicies>,
    /// The ApplicationSets; empty without the section `applicationSets`.
    pub(crate) sets: Arc<SetList>,
    /// What each project permits: every decision about a project takes it from here.
    pub(crate) projects: Arc<Projects>,
    /// Who reads in clusters for Argo CD's own components, if they may come.
    pub(crate) reader: Option<Arc<Impersonation>>,
    /// Signs who wrote ApplicationSets; `None` while the admission webhook is off.
    pub(crate) author_key: Option<Arc<AuthorKey>>,
    callers: CallerCache,
    pub(crate) caches: Caches,
}

/// A bundle that is in force.
#[derive(Debug)]
pub(crate) struct PolicyBundle {
    bundle: Bundle,
    /// Hex SHA-256 of its files, for records.
    pub(crate) digest: Arc<str>,
}

impl PolicyBundle {
    pub(crate) fn new(bundle: Bundle) -> Self {
        Self {
            digest: bundle.digest.as_str().into(),
            bundle,
        }
    }
}

impl Deref for PolicyBundle {
    type Target = Bundle;

    fn deref(&self) -> &Bundle {
        &self.bundle
    }
}

/// The policy files of the fronts that the settings open, loaded together or not at all.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    pub(crate) bundles: Vec<Arc<PolicyBundle>>,
    /// As whom people act in the clusters of agents.
    pub(crate) mapping: Option<Arc<ImpersonationMapping>>,
    /// As whom Applications act.
    pub(crate) rules: Option<Arc<ImpersonationRules>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ApplicationPolicies {
    /// Every Application with the objects that govern it.
    pub(crate) index: Arc<ApplicationIndex>,
    /// The rules that select the acting identity if no entry names an account, and the `extra` that is sent.
    pub(crate) rules: Arc<ImpersonationRules>,
}

#[derive(Clone, Debug)]
pub(crate) struct KubernetesPolicies {
    /// Agents, people, and who may use which agent.
    pub(crate) agents: Arc<Agents>,
    pub(crate) id_tokens: Arc<IdTokenVerifier>,
    pub(crate) mapping: Arc<ImpersonationMapping>,
}

/// The parts of [`Policies`] that change apart from its objects.
#[derive(Clone, Debug)]
pub(crate) struct PolicyParts {
    pub(crate) bundles: Arc<Bundles>,
    pub(crate) kubernetes: Option<KubernetesPolicies>,
    pub(crate) applications: Option<ApplicationPolicies>,
    /// The ApplicationSets of the snapshot before; `None` at the start.
    pub(crate) sets_before: Option<Arc<SetList>>,
}

impl Policies {
    /// Puts the parts together, with empty caches.
    pub(crate) fn new(config: &Arc<Config>, resources: Arc<Resources>, rbac: Arc<Rbac>, parts: PolicyParts) -> Self {
        let author_key = config.admission.as_ref().and_then(|_| AuthorKey::read(&resources));
        let sets = config.application_sets.as_ref().map(|settings| {
            let needs_owned = |set: &_| needs_owned(settings, set);
            SetList::next(parts.sets_before.as_ref(), &resources, needs_owned)
        });
        Self {
            sets: sets.unwrap_or_default(),
            config: Arc::clone(config),
            author_key: author_key.map(Arc::new),
            projects: Arc::new(match &parts.applications {
                Some(front) => front.index.projects(),
                None => Projects::build(&resources).0,
            }),
            resources,
            rbac,
            bundles: parts.bundles,
            kubernetes: parts.kubernetes,
            applications: parts.applications,
            reader: config.control_plane.as_ref().map(|settings| {
                Arc::new(Impersonation::As(Identity {
                    username: settings.reader.username(),
                    ..Identity::default()
                }))
            }),
            callers: CallerCache::default(),
            caches: Caches::default(),
        }
    }

    /// The caller that `principal` is: roles and identity headers, computed once for a principal.
    pub fn caller(&self, principal: &Arc<Principal>) -> Arc<Caller> {
        self.callers.of(principal, &self.rbac)
    }

    /// The same for a principal of one request, which is not kept.
    pub(crate) fn caller_once(&self, principal: &Arc<Principal>) -> Arc<Caller> {
        Arc::new(Caller::new(principal, &self.rbac))
    }

    /// The bundle of a front; `None` while the settings close it.
    pub(crate) fn bundle(&self, front: Front) -> Option<&Arc<PolicyBundle>> {
        self.bundles.of(front)
    }

    /// The bundles of all fronts that are open.
    pub(crate) fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        self.bundles.bundles.iter().map(|bundle| &***bundle)
    }

    /// The parts to make the next policies of.
    pub(crate) fn parts(&self) -> PolicyParts {
        PolicyParts {
            bundles: Arc::clone(&self.bundles),
            kubernetes: self.kubernetes.clone(),
            applications: self.applications.clone(),
            sets_before: Some(Arc::clone(&self.sets)),
        }
    }
}

impl Bundles {
    pub(crate) fn of(&self, front: Front) -> Option<&Arc<PolicyBundle>> {
        self.bundles.iter().find(|bundle| bundle.front == front)
    }
}

/// The time for `input.time` of a bundle, in UTC as RFC 3339; `None` if no rule reads it.
pub(crate) fn time_if_read(bundle: &Bundle) -> Option<String> {
    bundle.dependencies().time.then(|| Timestamp::now().to_string())
}
