//! [`Policies`]: what requests are decided by.
//!
//! Invariant: a verdict about a caller and a target is cached with its snapshot and dropped with it.

use std::sync::Arc;

use jiff::Timestamp;
use strum::VariantArray as _;

use crate::applications::permit::{ApplicationEvaluationCache, ApplicationsPolicy};
use crate::applicationsets::permit::needs_owned;
use crate::applicationsets::set_list::SetList;
use crate::extensions::call::ExtensionAttributes;
use crate::extensions::{CallTarget, ExtensionEvaluationCache};
use crate::kubernetes::permit::KubernetesPolicy;
use tollgate_config::Config;
use tollgate_core::user::Identity;
use tollgate_front::caller::{Caller, CallerCache};
use tollgate_identity::access::Agents;
use tollgate_identity::authenticate::k8s_proxy::IdTokenVerifier;
use tollgate_identity::authenticate::{AuthorKey, Principal};
use tollgate_objects::Resources;
use tollgate_policy::applications::{ApplicationIndex, Projects};
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::rbac::Rbac;
use tollgate_rego::{Bundle, Front};

/// Capacity of the cache of targets, in list entries of some 300 bytes. Callers choose what they
/// name, so a bound on the number of targets would let them fill the memory with copies of one
/// large project.
const TARGET_CACHE_CAPACITY: u64 = 200_000;

/// Everything by which the permits of the fronts decide, and what they cache of their decisions.
///
/// Security: it holds no credential, no connection and no plugin.
#[derive(Debug)]
pub struct Policies {
    pub(crate) config: Arc<Config>,
    /// Kubernetes objects.
    pub resources: Arc<Resources>,
    pub(crate) rbac: Arc<Rbac>,
    pub(crate) extensions: Arc<Bundle>,
    /// The digest of `extensions`, for records.
    pub(crate) extensions_digest: Arc<str>,
    // Each is `None` while its front is closed.
    pub(crate) kubernetes: Option<KubernetesFront>,
    pub(crate) applications: Option<ApplicationsFront>,
    pub(crate) application_sets: Option<Arc<Bundle>>,
    /// The ApplicationSets; empty while their front is closed.
    pub(crate) sets: Arc<SetList>,
    /// What each project permits: every decision about a project takes it from here.
    pub(crate) projects: Arc<Projects>,
    pub(crate) argocd: Option<Arc<Bundle>>,
    /// The digest of `argocd`, for records.
    pub(crate) argocd_digest: Option<Arc<str>>,
    pub(crate) control_plane: Option<Arc<Bundle>>,
    /// The digest of `control_plane`, for records.
    pub(crate) control_plane_digest: Option<Arc<str>>,
    /// Who reads in clusters for Argo CD's own components, if they may come.
    pub(crate) reader: Option<Arc<Impersonation>>,
    /// Signs who wrote ApplicationSets; `None` while the admission webhook is off.
    pub(crate) author_key: Option<Arc<AuthorKey>>,
    callers: CallerCache,
    pub(crate) call_targets: moka::sync::Cache<ExtensionAttributes, Arc<CallTarget>>,
    pub(crate) extension_evaluations: ExtensionEvaluationCache,
    pub(crate) application_evaluations: ApplicationEvaluationCache,
}

#[derive(Clone, Debug)]
pub(crate) struct ApplicationsFront {
    /// Every Application with the objects that govern it.
    pub(crate) index: Arc<ApplicationIndex>,
    pub(crate) policy: Arc<ApplicationsPolicy>,
}

#[derive(Clone, Debug)]
pub(crate) struct KubernetesFront {
    /// Agents, people, and who may use which agent.
    pub(crate) agents: Arc<Agents>,
    pub(crate) id_tokens: Arc<IdTokenVerifier>,
    pub(crate) policy: Arc<KubernetesPolicy>,
}

/// The bundles and fronts of [`Policies`], which change apart from its objects.
#[derive(Clone, Debug)]
pub(crate) struct FrontPolicies {
    pub(crate) extensions: Arc<Bundle>,
    pub(crate) kubernetes: Option<KubernetesFront>,
    pub(crate) applications: Option<ApplicationsFront>,
    pub(crate) application_sets: Option<Arc<Bundle>>,
    /// The ApplicationSets of the snapshot before; `None` at the start.
    pub(crate) sets_before: Option<Arc<SetList>>,
    pub(crate) argocd: Option<Arc<Bundle>>,
    pub(crate) control_plane: Option<Arc<Bundle>>,
}

impl Policies {
    /// Puts the parts together, with empty caches.
    pub(crate) fn new(
        config: &Arc<Config>,
        (resources, rbac): (Arc<Resources>, Arc<Rbac>),
        fronts: FrontPolicies,
    ) -> Self {
        let author_key = config.admission.as_ref().and_then(|_| AuthorKey::read(&resources));
        let sets = config.application_sets.as_ref().map(|settings| {
            let needs_owned = |set: &_| needs_owned(settings, set);
            SetList::next(fronts.sets_before.as_ref(), &resources, needs_owned)
        });
        Self {
            sets: sets.unwrap_or_default(),
            config: Arc::clone(config),
            author_key: author_key.map(Arc::new),
            projects: Arc::new(match &fronts.applications {
                Some(front) => front.index.projects(),
                None => Projects::build(&resources).0,
            }),
            resources,
            rbac,
            extensions_digest: Arc::from(fronts.extensions.digest()),
            extensions: fronts.extensions,
            kubernetes: fronts.kubernetes,
            applications: fronts.applications,
            application_sets: fronts.application_sets,
            argocd_digest: fronts.argocd.as_ref().map(|bundle| Arc::from(bundle.digest())),
            argocd: fronts.argocd,
            control_plane_digest: fronts.control_plane.as_ref().map(|bundle| Arc::from(bundle.digest())),
            control_plane: fronts.control_plane,
            reader: config.control_plane.as_ref().map(|settings| {
                Arc::new(Impersonation::As(Identity {
                    username: settings.reader.username(),
                    ..Identity::default()
                }))
            }),
            callers: CallerCache::default(),
            call_targets: moka::sync::Cache::builder()
                .weigher(|_, target: &Arc<CallTarget>| target.list_entries)
                .max_capacity(TARGET_CACHE_CAPACITY)
                .build(),
            extension_evaluations: ExtensionEvaluationCache::default(),
            application_evaluations: ApplicationEvaluationCache::default(),
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

    /// Whether the policy for Argo CD's API reads what can be in the content of a request.
    pub(crate) fn argocd_reads_content(&self) -> bool {
        self.argocd.as_ref().is_some_and(|bundle| bundle.dependencies().content)
    }

    /// The bundle of a front that is open.
    pub(crate) fn bundle(&self, front: Front) -> Option<&Bundle> {
        match front {
            Front::Extensions => Some(&self.extensions),
            Front::Kubernetes => self.kubernetes.as_ref().map(|front| front.policy.bundle()),
            Front::Applications => self.applications.as_ref().map(|front| front.policy.bundle()),
            Front::ApplicationSets => self.application_sets.as_deref(),
            Front::Argocd => self.argocd.as_deref(),
            Front::ControlPlane => self.control_plane.as_deref(),
        }
    }

    /// The bundles of all fronts that are open.
    pub(crate) fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        Front::VARIANTS.iter().filter_map(|front| self.bundle(*front))
    }

    /// The bundles and fronts, to make the next policies of.
    pub(crate) fn fronts(&self) -> FrontPolicies {
        FrontPolicies {
            extensions: Arc::clone(&self.extensions),
            kubernetes: self.kubernetes.clone(),
            applications: self.applications.clone(),
            application_sets: self.application_sets.clone(),
            sets_before: Some(Arc::clone(&self.sets)),
            argocd: self.argocd.clone(),
            control_plane: self.control_plane.clone(),
        }
    }
}

/// The time for `input.time` of a bundle, in UTC as RFC 3339; `None` if no rule reads it.
pub(crate) fn time_if_read(bundle: &Bundle) -> Option<String> {
    bundle.dependencies().time.then(|| Timestamp::now().to_string())
}
