//! Decides whether the policy permits a request to an agent's cluster, from its
//! [`tollgate_identity::access::AccessGrant`] and its [`Attributes`]. The result is a
//! [`KubernetesPermit`], which only this file makes, or 403.
//!
//! Security: the verb is determined exactly as kube-apiserver determines it.

use http::StatusCode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::attributes::Attributes;
use tollgate_front::policies::{Policies, PolicyBundle, time_if_read};
use tollgate_front::policy_input::{attributes_size, json, json_time};
use tollgate_front::{Denial, status_message};
use tollgate_identity::access::AccessGrant;
use tollgate_policy::impersonate::{self, AccessInput, Impersonation, ImpersonationMapping};
use tollgate_proxy::record::{OpenRecord, PolicyInputSource};
use tollgate_rego::{self as rego, Front, KubernetesFacts, KubernetesInput};

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let denial = match &error {
            Error::Denied(..) => Self::denied(StatusCode::FORBIDDEN, "permission_denied", text),
            Error::Identity(..) => Self::denied(StatusCode::FORBIDDEN, "unusable_identity", text),
            Error::Policy(..) => Self::failed(StatusCode::FORBIDDEN, "policy_failed", text),
        };
        denial.caused_by(error)
    }
}

#[cfg(test)]
mod tests;

/// Size of the cache of identities in KiB, approximately.
const CACHE_KIB: u64 = 50_000;
/// Time to live of a cached identity. An access itself is not cached longer.
const CACHE_TTL: Duration = Duration::from_secs(300);

/// Identities by the address of their access. There is one cache for each snapshot.
#[derive(Debug)]
pub(crate) struct IdentityCache(moka::sync::Cache<usize, Arc<CachedIdentity>, rustc_hash::FxBuildHasher>);

impl Default for IdentityCache {
    fn default() -> Self {
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, cached_identity: &Arc<CachedIdentity>| cached_identity.size_kib())
                .max_capacity(CACHE_KIB)
                .time_to_live(CACHE_TTL)
                .build_with_hasher(rustc_hash::FxBuildHasher),
        )
    }
}

/// What decides about requests to the clusters of agents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KubernetesPolicy<'a> {
    bundle: &'a PolicyBundle,
    mapping: &'a ImpersonationMapping,
    identities: &'a IdentityCache,
}

/// The identity that follows from an access alone.
#[derive(Debug)]
struct CachedIdentity {
    access: Arc<AccessGrant>,
    outcome: Result<(Arc<Impersonation>, KubernetesFacts), impersonate::Error>,
}

/// Proof that the policy allowed one request to a cluster.
///
/// Its fields are private and only `KubernetesPolicy::authorize` makes it:
///
/// ```compile_fail,E0451
/// fn forge(access: std::sync::Arc<tollgate_identity::access::AccessGrant>) {
///     let _ = tollgate_cluster_fronts::KubernetesPermit { access, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct KubernetesPermit {
    access: Arc<AccessGrant>,
    attributes: Arc<Attributes>,
    impersonation: Arc<Impersonation>,
    notes: BTreeMap<String, String>,
}

/// Why a request is refused. The text is for the caller, in kube-apiserver's style; causes are only
/// for the record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The policy denied the request. Its notes are for the record.
    #[error("{0}")]
    Denied(String, BTreeMap<String, String>),
    #[error("{0}")]
    Policy(String, #[source] rego::Error),
    /// The identity cannot be expressed to the cluster.
    #[error("{0}")]
    Identity(String, #[source] impersonate::Error),
}

impl<'a> KubernetesPolicy<'a> {
    /// `None` while the front is closed.
    pub(crate) fn of(policies: &'a Policies) -> Option<Self> {
        Some(Self {
            bundle: policies.bundle(Front::Kubernetes)?,
            mapping: &policies.kubernetes.as_ref()?.mapping,
            identities: policies.caches.of(),
        })
    }

    /// Authorizes one request of `access`.
    ///
    /// - `record`: keeps what the policy's input was made of. `None` for what has no record.
    ///
    /// Takes some microseconds. The identity follows from the access alone, and is computed once
    /// and cached with the snapshot.
    pub(crate) fn authorize(
        &self,
        access: &Arc<AccessGrant>,
        attributes: &Arc<Attributes>,
        record: Option<&mut OpenRecord>,
    ) -> Result<KubernetesPermit, Error> {
        let cached_identity = self.cached_identity(access);
        let (impersonation, facts) = cached_identity.outcome.as_ref().map_err(|source| {
            let reason = "the user's identity cannot be used in the cluster";
            let message = status_message::forbidden(&access.user().username, attributes, reason);
            Error::Identity(message, source.clone())
        })?;
        let user = match &**impersonation {
            Impersonation::Nobody => access.user().username.as_str(),
            Impersonation::As(identity) => identity.username.as_str(),
        };
        let time = time_if_read(self.bundle);
        let input = KubernetesInput {
            facts,
            attributes,
            time: time.as_deref(),
        };
        let message = |reason: &str| status_message::forbidden(user, attributes, reason);
        let decision = self.bundle.decide(input.to_value());
        if let Some(record) = record {
            // Also for an evaluation that failed, so that an operator can repeat it.
            keep_input(&cached_identity, attributes, time, record);
        }
        let decision =
            decision.map_err(|source| Error::Policy(message("the policy could not be evaluated"), source))?;
        if !decision.allow {
            return Err(Error::Denied(message(&decision.reason), decision.log));
        }
        Ok(KubernetesPermit {
            access: Arc::clone(access),
            attributes: Arc::clone(attributes),
            impersonation: Arc::clone(impersonation),
            notes: decision.log,
        })
    }

    /// Of the bundle's files, the mapping's among them, for records.
    pub(crate) fn digest(&self) -> &'a Arc<str> {
        &self.bundle.digest
    }

    fn cached_identity(&self, access: &Arc<AccessGrant>) -> Arc<CachedIdentity> {
        let key = Arc::as_ptr(access) as usize;
        // INVARIANT: an entry keeps its access alive, so no other access can have
        // the same address while the entry exists.
        if let Some(cached_identity) = self.identities.0.get(&key)
            && Arc::ptr_eq(&cached_identity.access, access)
        {
            return cached_identity;
        }
        let input = AccessInput::from_facts(access.facts());
        let applied = self.mapping.apply(access.facts(), &input);
        let outcome = applied.map(|impersonation| {
            let facts = KubernetesFacts::new(input, &impersonation);
            (Arc::new(impersonation), facts)
        });
        let cached_identity = Arc::new(CachedIdentity {
            access: Arc::clone(access),
            outcome,
        });
        self.identities.0.insert(key, Arc::clone(&cached_identity));
        cached_identity
    }
}

/// Keeps what the policy's input was made of.
fn keep_input(
    cached_identity: &Arc<CachedIdentity>,
    attributes: &Arc<Attributes>,
    time: Option<String>,
    record: &mut OpenRecord,
) {
    let (cached_identity, attributes) = (Arc::clone(cached_identity), Arc::clone(attributes));
    let shared = usize::try_from(cached_identity.size_kib()).unwrap_or(usize::MAX);
    let size = shared
        .saturating_mul(1_024)
        .saturating_add(attributes_size(&attributes));
    let at = record.at();
    record.keep_input(PolicyInputSource::new(Front::Kubernetes, size, move || {
        let time = json_time(time.as_deref(), at);
        let input = cached_identity.outcome.as_ref().map(|(_, facts)| {
            let input = KubernetesInput {
                facts,
                attributes: &attributes,
                time: time.as_deref(),
            };
            json(&input.to_value())
        });
        // Without facts nothing was kept.
        (input.unwrap_or_default(), Vec::new())
    }));
}

impl CachedIdentity {
    /// Memory it holds, approximately, in KiB.
    fn size_kib(&self) -> u32 {
        let size = |groups: &[String]| groups.iter().map(String::len).sum::<usize>() + 64 * groups.len();
        let known = self.access.facts().issuer_groups.as_deref().map_or(0, size);
        let texts = match self.outcome.as_ref().map(|(impersonation, _)| &**impersonation) {
            Ok(Impersonation::As(identity)) => size(&identity.groups),
            Ok(Impersonation::Nobody) | Err(_) => 0,
        };
        // The identity, its copy for the policy, and the memberships it comes from.
        u32::try_from(4 + 4 * (texts + known) / 1024).unwrap_or(u32::MAX)
    }
}

impl KubernetesPermit {
    pub(crate) fn access(&self) -> &Arc<AccessGrant> {
        &self.access
    }

    pub(crate) fn attributes(&self) -> &Arc<Attributes> {
        &self.attributes
    }

    pub(crate) fn impersonation(&self) -> &Arc<Impersonation> {
        &self.impersonation
    }

    pub(crate) fn notes(&self) -> &BTreeMap<String, String> {
        &self.notes
    }
}
