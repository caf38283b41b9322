//! [`Policies`]: what requests are decided by.
//!
//! Invariant: a verdict about a caller and a target is cached with its snapshot, and dropped with it.

use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;

use crate::caches::Caches;
use crate::caller::{Caller, CallerCache};
use crate::set_list::{SetList, needs_owned};
use tollgate_config::Config;
use tollgate_core::user::Identity;
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
    /// The settings.
    pub config: Arc<Config>,
    /// Kubernetes objects.
    pub resources: Arc<Resources>,
    /// Argo CD's RBAC, with the roles of projects.
    pub rbac: Arc<Rbac>,
    bundles: Arc<Bundles>,
    /// `None` without the section `kubernetes`.
    pub kubernetes: Option<KubernetesPolicies>,
    /// `None` without the section `applications`.
    pub applications: Option<ApplicationPolicies>,
    /// The ApplicationSets; empty without the section `applicationSets`.
    pub sets: Arc<SetList>,
    /// What each project permits: every decision about a project takes it from here.
    pub projects: Arc<Projects>,
    /// Who reads in clusters for Argo CD's own components, if they may come.
    pub reader: Option<Arc<Impersonation>>,
    /// Signs who wrote ApplicationSets; `None` while the admission webhook is off.
    pub author_key: Option<Arc<AuthorKey>>,
    callers: CallerCache,
    /// What fronts keep of their decisions by this snapshot.
    pub caches: Caches,
}

/// A bundle that is in force.
#[derive(Debug)]
pub struct PolicyBundle {
    bundle: Bundle,
    /// Hex SHA-256 of its files, for records.
    pub digest: Arc<str>,
}

impl PolicyBundle {
    /// Writes down its digest.
    pub fn new(bundle: Bundle) -> Self {
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
pub struct Bundles {
    /// One bundle for each open front.
    pub bundles: Vec<Arc<PolicyBundle>>,
    /// The identities that people act as in the clusters of agents.
    pub mapping: Option<Arc<ImpersonationMapping>>,
    /// The identities that Applications act as.
    pub rules: Option<Arc<ImpersonationRules>>,
}

/// What decides requests of the Applications front.
#[derive(Clone, Debug)]
pub struct ApplicationPolicies {
    /// Every Application with the objects that govern it.
    pub index: Arc<ApplicationIndex>,
    /// The rules that select the acting identity if no entry names an account, and the `extra` that is sent.
    pub rules: Arc<ImpersonationRules>,
}

/// What decides requests of the Kubernetes front.
#[derive(Clone, Debug)]
pub struct KubernetesPolicies {
    /// Agents, people, and who may use which agent.
    pub agents: Arc<Agents>,
    /// Verifies ID tokens.
    pub id_tokens: Arc<IdTokenVerifier>,
    /// The identities that callers act as.
    pub mapping: Arc<ImpersonationMapping>,
}

/// The parts of [`Policies`] that change apart from its objects.
#[derive(Clone, Debug)]
pub struct PolicyParts {
    /// The bundles.
    pub bundles: Arc<Bundles>,
    /// `None` while the Kubernetes front is closed.
    pub kubernetes: Option<KubernetesPolicies>,
    /// `None` while the Applications front is closed.
    pub applications: Option<ApplicationPolicies>,
    /// The ApplicationSets of the snapshot before; `None` at the start.
    pub sets_before: Option<Arc<SetList>>,
}

impl Policies {
    /// Puts the parts together, with empty caches.
    pub fn new(config: &Arc<Config>, resources: Arc<Resources>, rbac: Arc<Rbac>, parts: PolicyParts) -> Self {
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
                // The index has merged them already.
                Some(front) => front.index.projects(),
                None => Projects::build(&resources).0,
            }),
            resources,
            rbac,
            bundles: parts.bundles,
            kubernetes: parts.kubernetes,
            applications: parts.applications,
            reader: config.control_plane.as_ref().map(|settings| {
                // Without groups, because kube-apiserver adds those of a service account by itself.
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
    pub fn caller_once(&self, principal: &Arc<Principal>) -> Arc<Caller> {
        Arc::new(Caller::new(principal, &self.rbac))
    }

    /// The bundle of a front; `None` while the settings close it.
    pub fn bundle(&self, front: Front) -> Option<&Arc<PolicyBundle>> {
        self.bundles.of(front)
    }

    /// The bundles of all fronts that are open.
    pub fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        self.bundles.bundles.iter().map(|bundle| &***bundle)
    }

    /// The parts to make the next policies of.
    pub fn parts(&self) -> PolicyParts {
        PolicyParts {
            bundles: Arc::clone(&self.bundles),
            kubernetes: self.kubernetes.clone(),
            applications: self.applications.clone(),
            sets_before: Some(Arc::clone(&self.sets)),
        }
    }
}

impl Bundles {
    /// The bundle of a front; `None` if it has none.
    pub fn of(&self, front: Front) -> Option<&Arc<PolicyBundle>> {
        self.bundles.iter().find(|bundle| bundle.front == front)
    }
}

/// The time for `input.time` of a bundle, in UTC as RFC 3339; `None` if no rule reads it.
pub fn time_if_read(bundle: &Bundle) -> Option<String> {
    bundle.dependencies().time.then(|| Timestamp::now().to_string())
}
