//! Determines the identity that a request for an Application has in the cluster: the permit's
//! account, with the person behind it in `extra` where the cluster allows it.
//!
//! Invariant: only keys of `extra` that the cluster takes are sent, because it would refuse the
//! whole request for any other.

use std::sync::{Arc, LazyLock};

use crate::applications::Desk;
use crate::applications::permit::ApplicationPermit;
use tollgate_core::user::Identity;
use tollgate_policy::application_request::ActingIdentity;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::Account;

static NOBODY: LazyLock<Arc<Impersonation>> = LazyLock::new(|| Arc::new(Impersonation::Nobody));

/// The identity that the cluster sees.
#[derive(Debug)]
pub(super) struct ClusterIdentity {
    pub(super) impersonation: Arc<Impersonation>,
    /// The account, if `extra` is sent with it.
    pub(super) account_with_extra: Option<Account>,
}

impl Desk {
    /// Determines the identity that the cluster sees.
    pub(super) fn cluster_identity(&self, permit: &ApplicationPermit) -> ClusterIdentity {
        let alone = |impersonation: &Arc<Impersonation>| ClusterIdentity {
            impersonation: Arc::clone(impersonation),
            account_with_extra: None,
        };
        let base = match permit.acting_identity() {
            ActingIdentity::Gateway => return alone(&NOBODY),
            ActingIdentity::Account(base) => base,
        };
        let acting = permit.governed().acting.as_ref().ok();
        let (Some(account), Impersonation::As(identity)) = (acting.and_then(|acting| acting.account.as_ref()), &**base)
        else {
            return alone(base);
        };
        let Some(granted) = self.extras.granted(&permit.cluster().server, account) else {
            return alone(base);
        };
        let known = permit.extra().iter();
        let extra: Vec<_> = known.filter(|(key, _)| granted.has(key)).cloned().collect();
        if extra.is_empty() {
            return alone(base);
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
