//! Determines the identity that a request for an Application has in the cluster: the permit's
//! account, with the person behind it in `extra` where the cluster allows it.
//!
//! Invariant: only keys of `extra` that the cluster accepts are sent, because it would refuse the
//! whole request for any other.

use std::sync::{Arc, LazyLock};

use crate::applications::ApplicationsFront;
use crate::applications::permit::ApplicationPermit;
use tollgate_core::user::Identity;
use tollgate_policy::application_request::ActingIdentity;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::ServiceAccountName;

static NOBODY: LazyLock<Arc<Impersonation>> = LazyLock::new(|| Arc::new(Impersonation::Nobody));

#[derive(Debug)]
pub(super) struct ClusterIdentity {
    pub(super) impersonation: Arc<Impersonation>,
    /// The account, if `extra` is sent with it.
    pub(super) account_with_extra: Option<ServiceAccountName>,
}

impl ApplicationsFront {
    pub(super) fn cluster_identity(&self, permit: &ApplicationPermit) -> ClusterIdentity {
        let without_extra = |impersonation: &Arc<Impersonation>| ClusterIdentity {
            impersonation: Arc::clone(impersonation),
            account_with_extra: None,
        };
        let base = match permit.acting_identity() {
            ActingIdentity::Gateway => return without_extra(&NOBODY),
            ActingIdentity::ServiceAccount(base) => base,
        };
        let derived = permit.indexed().derived_account.as_ref().ok();
        let (Some(account), Impersonation::As(identity)) =
            (derived.and_then(|derived| derived.account.as_ref()), &**base)
        else {
            return without_extra(base);
        };
        let Some(granted) = self.extras.granted(&permit.cluster().server, account) else {
            return without_extra(base);
        };
        let pairs = permit.extra().iter();
        let extra: Vec<_> = pairs.filter(|(key, _)| granted.has(key)).cloned().collect();
        // Without the account, because a 403 then cannot be about `extra` and is not reported.
        if extra.is_empty() {
            return without_extra(base);
        }
        let identity = Identity {
            extra,
            ..identity.clone()
        };
        ClusterIdentity {
            impersonation: Arc::new(Impersonation::As(identity)),
            account_with_extra: Some(account.clone()),
        }
    }
}
