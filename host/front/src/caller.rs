//! What the stages derive from a principal, computed once and cached while the snapshot lives.
//!
//! Security: a principal's cached values are never used for another principal.

use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use tollgate_identity::authenticate::{Principal, VERIFIED_TOKEN_TTL};
use tollgate_policy::rbac;
use tollgate_proxy::headers;
use tollgate_rego as rego;

/// Capacity of the cache in KiB, approximately. Claims can be long, and each new verification of a
/// token adds a caller.
const CACHE_CAPACITY_KIB: u64 = 50_000;

/// A principal with the values the stages derive from it.
#[derive(Debug)]
pub struct Caller {
    /// Who was authenticated.
    pub principal: Arc<Principal>,
    /// Roles, for RBAC.
    pub roles: Arc<rbac::RbacIdentity>,
    /// The principal as policies see it.
    pub policy: rego::PrincipalFacts,
    /// The header values that identify the caller, or why they cannot be sent.
    pub identity: Result<headers::IdentityHeaders, headers::Error>,
    /// Approximate size in KiB.
    pub size_kib: u32,
}

/// A cache of callers by principal. Each snapshot has its own, because roles change with it.
#[derive(Clone, Debug)]
pub struct CallerCache(moka::sync::Cache<usize, Arc<Caller>, FxBuildHasher>);

impl Default for CallerCache {
    fn default() -> Self {
        // The keys are addresses, which callers cannot choose, so a plain hash is enough.
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, caller: &Arc<Caller>| caller.size_kib)
                .max_capacity(CACHE_CAPACITY_KIB)
                // After that time the token is verified again, and its new principal has a new address.
                .time_to_live(VERIFIED_TOKEN_TTL)
                .build_with_hasher(FxBuildHasher),
        )
    }
}

impl CallerCache {
    /// The values of a principal, computed at most once while the snapshot lives.
    pub fn of(&self, principal: &Arc<Principal>, rbac: &rbac::Rbac) -> Arc<Caller> {
        // INVARIANT: an entry keeps its principal alive, so no other principal
        // can have the same address while the entry exists.
        let address = Arc::as_ptr(principal) as usize;
        let caller = self.0.get_with(address, || Arc::new(Caller::new(principal, rbac)));
        // Checked all the same: a mistake here would give a caller the roles of somebody else.
        if Arc::ptr_eq(&caller.principal, principal) {
            caller
        } else {
            Arc::new(Caller::new(principal, rbac))
        }
    }
}

impl Caller {
    /// The values of a principal, computed anew.
    pub fn new(principal: &Arc<Principal>, rbac: &rbac::Rbac) -> Self {
        let user_info = headers::UserInfo {
            user_id: principal.user_id(),
            username: principal.username(),
            groups: principal.groups(),
            extra: principal.extra(),
        };
        Self {
            roles: rbac.identify(principal.claims()),
            policy: rego::PrincipalFacts::new(
                principal.user_id(),
                principal.username(),
                principal.groups(),
                principal.issuer(),
                principal.kind().as_ref(),
            ),
            // Whether a backend gets `X-Remote-*` is its own setting. A caller whose name does not
            // fit there still has the `Argocd-*` fields.
            identity: headers::IdentityHeaders::new(&user_info)
                .map(|identity| identity.clone().with_request_header(&user_info).unwrap_or(identity)),
            size_kib: estimate_size_kib(principal),
            principal: Arc::clone(principal),
        }
    }
}

/// The size of the claims, and as much again for what is derived from them.
fn estimate_size_kib(principal: &Principal) -> u32 {
    let claims = serde_json::to_string(principal.claims()).map_or(usize::MAX, |text| text.len());
    u32::try_from(claims.saturating_mul(2) / 1_024)
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}
