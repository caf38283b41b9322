//! What every stage derives from a principal, derived once.
//!
//! In: a principal and the snapshot's policy. Out: [`Caller`], cached while the
//! snapshot lives. Never: a caller of one principal for another.

use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::authenticate::{Principal, REMEMBERED};
use crate::headers;
use tollgate_policy::{rbac, rego};

/// KiB of callers remembered at once, roughly. Claims can be long, and a caller
/// is another one each time a token is verified again.
const CALLERS: u64 = 50_000;

/// A principal with what the stages need of it.
#[derive(Debug)]
pub struct Caller {
    /// Who it is.
    pub principal: Arc<Principal>,
    /// Roles, for RBAC.
    pub roles: Arc<rbac::Identity>,
    /// The principal as policies see it.
    pub policy: rego::Principal,
    /// Header values that say who calls, or why there can be none.
    pub identity: Result<headers::Identity, headers::Error>,
    weight: u32,
}

/// Callers by principal. One a snapshot, since roles change with it.
#[derive(Clone, Debug)]
pub struct Callers(moka::sync::Cache<usize, Arc<Caller>, FxBuildHasher>);

impl Default for Callers {
    fn default() -> Self {
        // Nobody chooses an address, so a plain hash will do.
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, caller: &Arc<Caller>| caller.weight)
                .max_capacity(CALLERS)
                .time_to_live(REMEMBERED)
                .build_with_hasher(FxBuildHasher),
        )
    }
}

impl Callers {
    /// The caller of `principal`.
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
            weight: weigh(principal),
            principal: Arc::clone(principal),
        }
    }

    /// How much it holds, in KiB, roughly.
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }
}

/// Claims, and as much again for what is derived from them.
fn weigh(principal: &Principal) -> u32 {
    let claims = serde_json::to_string(principal.claims()).map_or(usize::MAX, |text| text.len());
    u32::try_from(claims.saturating_mul(2) / 1_024)
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}
