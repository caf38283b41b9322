//! Whom a cluster is told a request for an Application is from.
//!
//! In: a permit, what the cluster takes along. Out: the account, with the person
//! behind it where the cluster lets that pass. Never: a key the cluster would refuse
//! the whole request for; another account than the permit's.

use std::sync::{Arc, LazyLock};

use super::Desk;
use crate::authorize::applications::ApplicationPermit;
use tollgate_core::user::Identity;
use tollgate_policy::application_request::Whom;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::Account;

static NOBODY: LazyLock<Arc<Impersonation>> = LazyLock::new(|| Arc::new(Impersonation::Nobody));

/// Whom the cluster is told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) impersonation: Arc<Impersonation>,
    /// The account, where something travels along with it.
    pub(super) accompanied: Option<Account>,
}

impl Desk {
    /// Whom the cluster is told.
    pub(super) fn told(&self, permit: &ApplicationPermit) -> Told {
        let alone = |impersonation: &Arc<Impersonation>| Told {
            impersonation: Arc::clone(impersonation),
            accompanied: None,
        };
        let base = match permit.whom() {
            Whom::Controller => return alone(&NOBODY),
            Whom::Account(base) => base,
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
        Told {
            impersonation: Arc::new(Impersonation::As(identity)),
            accompanied: Some(account.clone()),
        }
    }
}
