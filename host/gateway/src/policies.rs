//! [`Policies`]: what requests are decided by.

use std::sync::Arc;

use crate::applications::permit::{ApplicationEvaluationCache, ApplicationsPolicy};
use crate::caller::{Caller, CallerCache};
use crate::extensions::CallTarget;
use crate::extensions::ExtensionEvaluationCache;
use crate::extensions::call::ExtensionAttributes;
use crate::kubernetes::permit::KubernetesPolicy;
use tollgate_config::Config;
use tollgate_identity::access::Agents;
use tollgate_identity::authenticate::Principal;
use tollgate_identity::authenticate::k8s_proxy::IdTokenVerifier;
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::rbac::Rbac;
use tollgate_policy::rego::Bundle;
use tollgate_state::Resources;

/// Capacity of the cache of targets, in list entries of some 300 bytes. Callers choose what they
/// name, so a bound on the number of targets would let them fill the memory with copies of one
/// large project.
const TARGET_CACHE_CAPACITY: u64 = 200_000;

/// Everything by which the permits of the fronts decide, and what they cache of their decisions.
///
/// Security: it holds no credential, no connection and no plugin.
#[derive(Debug)]
pub struct Policies {
    /// Settings of the process.
    pub config: Arc<Config>,
    /// Kubernetes objects.
    pub resources: Arc<Resources>,
    /// Argo CD's policy, compiled.
    pub rbac: Arc<Rbac>,
    /// Bundle of the extension front.
    pub extensions: Arc<Bundle>,
    /// Its digest, for records.
    pub extensions_digest: Arc<str>,
    /// The Kubernetes front, if it is open.
    pub kubernetes: Option<KubernetesFront>,
    /// The Applications front, if it is open.
    pub applications: Option<ApplicationsFront>,
    /// Bundle of the ApplicationSet front, if it is open.
    pub application_sets: Option<Arc<Bundle>>,
    /// Cached callers with their roles.
    callers: CallerCache,
    /// Cached Applications and projects that calls of extensions name.
    pub call_targets: moka::sync::Cache<ExtensionAttributes, Arc<CallTarget>>,
    /// Cached evaluations of callers and the calls they make.
    pub extension_evaluations: ExtensionEvaluationCache,
    /// Cached evaluations of callers and the Applications they name.
    pub application_evaluations: ApplicationEvaluationCache,
}

/// The configuration by which the Applications front decides.
#[derive(Clone, Debug)]
pub struct ApplicationsFront {
    /// Every Application with the objects that govern it.
    pub index: Arc<ApplicationIndex>,
    /// Bundle and rules of impersonation.
    pub policy: Arc<ApplicationsPolicy>,
}

/// The configuration by which the Kubernetes front decides.
#[derive(Clone, Debug)]
pub struct KubernetesFront {
    /// Agents, people, and who may use which agent.
    pub agents: Arc<Agents>,
    /// Verifies ID tokens of the configured issuers.
    pub id_tokens: Arc<IdTokenVerifier>,
    /// Bundle and identity mapping.
    pub policy: Arc<KubernetesPolicy>,
}

/// The bundles and fronts of [`Policies`], which change apart from its objects.
#[derive(Clone, Debug)]
pub(crate) struct FrontPolicies {
    pub(crate) extensions: Arc<Bundle>,
    pub(crate) kubernetes: Option<KubernetesFront>,
    pub(crate) applications: Option<ApplicationsFront>,
    pub(crate) application_sets: Option<Arc<Bundle>>,
}

impl Policies {
    /// Puts the parts together, with empty caches.
    pub(crate) fn new(
        config: &Arc<Config>,
        (resources, rbac): (Arc<Resources>, Arc<Rbac>),
        fronts: FrontPolicies,
    ) -> Self {
        let FrontPolicies {
            extensions,
            kubernetes,
            applications,
            application_sets,
        } = fronts;
        Self {
            config: Arc::clone(config),
            resources,
            rbac,
            extensions_digest: Arc::from(extensions.digest()),
            extensions,
            kubernetes,
            applications,
            application_sets,
            callers: CallerCache::default(),
            call_targets: moka::sync::Cache::builder()
                .weigher(|_, target: &Arc<CallTarget>| target.list_entries())
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

    /// The bundles and fronts, to make the next policies of.
    pub(crate) fn fronts(&self) -> FrontPolicies {
        FrontPolicies {
            extensions: Arc::clone(&self.extensions),
            kubernetes: self.kubernetes.clone(),
            applications: self.applications.clone(),
            application_sets: self.application_sets.clone(),
        }
    }
}
