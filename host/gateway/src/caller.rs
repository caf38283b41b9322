//! What the stages derive from a principal, computed once and cached while the snapshot lives.
//!
//! Security: the caller of one principal is never used for another.

use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use tollgate_identity::authenticate::{Principal, VERIFIED_TOKEN_TTL};
use tollgate_policy::{rbac, rego};
use tollgate_proxy::headers;

/// Approximate KiB of callers cached at once. Claims can be long, and each new verification of a
/// token makes another caller.
const CALLERS: u64 = 50_000;

/// A principal with the values the stages derive from it.
#[derive(Debug)]
pub struct Caller {
    /// Who it is.
    pub principal: Arc<Principal>,
    /// Roles, for RBAC.
    pub roles: Arc<rbac::Identity>,
    /// The principal as policies see it.
    pub policy: rego::Principal,
    /// The header values that identify the caller, or why there are none.
    pub identity: Result<headers::Identity, headers::Error>,
    heap_size: u32,
}

/// Callers by principal. Each snapshot has its own, since roles change with it.
#[derive(Clone, Debug)]
pub struct CallerCache(moka::sync::Cache<usize, Arc<Caller>, FxBuildHasher>);

impl Default for CallerCache {
    fn default() -> Self {
        // Callers cannot choose addresses, so a plain hash is enough.
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, caller: &Arc<Caller>| caller.heap_size)
                .max_capacity(CALLERS)
                .time_to_live(VERIFIED_TOKEN_TTL)
                .build_with_hasher(FxBuildHasher),
        )
    }
}

impl CallerCache {
    /// Returns the caller of `principal`.
    pub fn of(&self, principal: &Arc<Principal>, rbac: &rbac::Rbac) -> Arc<Caller> {
        // INVARIANT: an entry keeps its principal alive, so no other principal
        // can have the same address while the entry exists.
        let address = Arc::as_ptr(principal) as usize;
        let caller = self.0.get_with(address, || Arc::new(Caller::new(principal, rbac)));
        if Arc::ptr_eq(&caller.principal, principal) {
            caller
        } else {
            Arc::new(Caller::new(principal, rbac))
        }
    }
}

impl Caller {
    fn new(principal: &Arc<Principal>, rbac: &rbac::Rbac) -> Self {
        let named = headers::Caller {
            user_id: principal.user_id(),
            username: principal.username(),
            groups: principal.groups(),
            extra: principal.extra(),
        };
        Self {
            roles: rbac.identify(principal.claims()),
            policy: rego::Principal::new(
                principal.user_id(),
                principal.username(),
                principal.groups(),
                principal.issuer(),
                principal.kind().as_str(),
            ),
            // Whether a backend gets `X-Remote-*` is its own setting; a caller
            // without a name that fits there still has `Argocd-*` ones.
            identity: headers::Identity::new(&named)
                .map(|identity| identity.clone().with_request_header(&named).unwrap_or(identity)),
            heap_size: estimate_heap_size(principal),
            principal: Arc::clone(principal),
        }
    }

    /// Approximate size in KiB.
    pub(crate) fn heap_size(&self) -> u32 {
        self.heap_size
    }
}

/// The size of the claims, and as much again for what is derived from them.
fn estimate_heap_size(principal: &Principal) -> u32 {
    let claims = serde_json::to_string(principal.claims()).map_or(usize::MAX, |text| text.len());
    u32::try_from(claims.saturating_mul(2) / 1_024)
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}
