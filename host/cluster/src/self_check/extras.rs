//! Holds which keys of `extra` each cluster accepts at present: [`ExtraGrants`], which requests
//! read without a lock and without asking the cluster.
//!
//! Security: a key is sent only if the cluster grants it.
//!
//! Source: KEP-5284 and kube-apiserver, `endpoints/filters/impersonation`: a service
//! account with `extra` can only be impersonated in the classic way, so both each
//! `userextras/<key>` and the account need the verb `impersonate`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use tollgate_policy::impersonate::service_account::ServiceAccountName;

/// Most reports of a 403 that wait for a recheck. More are dropped.
const MAX_QUEUED_REPORTS: usize = 64;

/// The keys of `extra` that may be sent to each cluster. Clones share the state.
#[derive(Clone, Debug)]
pub struct ExtraGrants {
    by_server: Arc<ArcSwap<ByServer>>,
    reports: mpsc::Sender<ForbiddenExtra>,
}

type ByServer = BTreeMap<String, Arc<ClusterExtraGrants>>;

/// A request with `extra` that a cluster forbade.
#[derive(Debug)]
pub(super) struct ForbiddenExtra {
    pub(super) server: String,
    pub(super) account: ServiceAccountName,
}

/// The keys of `extra` that one cluster grants, and for which service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterExtraGrants {
    pub(super) keys: BTreeSet<String>,
    pub(super) accounts: GrantedAccounts,
}

/// The accounts that may be impersonated with `extra`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrantedAccounts {
    All,
    These(BTreeSet<ServiceAccountName>),
}

impl ClusterExtraGrants {
    /// Whether a key may be sent, regardless of its values.
    ///
    /// - `key`: in lower case, as it is in `Impersonate-Extra-…` before it is encoded.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    fn covers(&self, account: &ServiceAccountName) -> bool {
        !self.keys.is_empty()
            && match &self.accounts {
                GrantedAccounts::All => true,
                GrantedAccounts::These(accounts) => accounts.contains(account),
            }
    }
}

impl ExtraGrants {
    /// Starts without grants. Reports of a 403 arrive at the receiver.
    pub(super) fn new() -> (Self, mpsc::Receiver<ForbiddenExtra>) {
        let (reports, receiver) = mpsc::channel(MAX_QUEUED_REPORTS);
        let by_server = Arc::default();
        (Self { by_server, reports }, receiver)
    }

    /// Returns what may be sent with an account. `None` if nothing may be sent, because no key is
    /// granted or the cluster has not answered.
    ///
    /// - `server`: the cluster's API server, as in its Secret.
    ///
    /// Takes no lock and does not wait.
    pub fn granted(&self, server: &str, account: &ServiceAccountName) -> Option<Arc<ClusterExtraGrants>> {
        let by_server = self.by_server.load();
        let granted = by_server.get(server.trim_end_matches('/'))?;
        granted.covers(account).then(|| Arc::clone(granted))
    }

    /// Reports that a cluster answered 403 to a request with `extra`. It may no longer accept them,
    /// so it is rechecked soon. Because a 403 can have other reasons, the grants stay in force
    /// until then, and the cluster is rechecked only now and then.
    ///
    /// Takes no lock and does not wait.
    pub fn report_forbidden(&self, server: &str, account: &ServiceAccountName) {
        let server = server.trim_end_matches('/');
        if self.by_server.load().contains_key(server) {
            // If the queue is full, other reports are checked first, and the next 403 is reported
            // again.
            drop(self.reports.try_send(ForbiddenExtra {
                server: server.to_owned(),
                account: account.clone(),
            }));
        }
    }

    pub(super) fn set(&self, grants: impl IntoIterator<Item = (String, ClusterExtraGrants)>) {
        let grants = grants.into_iter().filter(|(_, granted)| !granted.keys.is_empty());
        let grants = grants.map(|(server, granted)| (server.trim_end_matches('/').to_owned(), Arc::new(granted)));
        self.by_server.store(Arc::new(grants.collect()));
    }

    pub(super) fn of(&self, server: &str) -> Option<Arc<ClusterExtraGrants>> {
        self.by_server.load().get(server.trim_end_matches('/')).map(Arc::clone)
    }

    pub(super) fn forget(&self, server: &str) {
        let mut by_server = ByServer::clone(&self.by_server.load());
        by_server.remove(server.trim_end_matches('/'));
        self.by_server.store(Arc::new(by_server));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ClusterExtraGrants, ExtraGrants, GrantedAccounts};
    use tollgate_policy::impersonate::service_account::ServiceAccountName;

    const SERVER: &str = "https://one.example";

    fn account(name: &str) -> ServiceAccountName {
        ServiceAccountName {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    fn granted(keys: &[&str], accounts: GrantedAccounts) -> (String, ClusterExtraGrants) {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        (SERVER.to_owned(), ClusterExtraGrants { keys, accounts })
    }

    #[test]
    fn extra_is_granted_only_for_checked_keys_and_accounts() {
        let (grants, _reports) = ExtraGrants::new();
        assert_eq!(grants.granted(SERVER, &account("a")), None);

        let these = GrantedAccounts::These(BTreeSet::from([account("a")]));
        grants.set([granted(&["t/user"], these)]);
        let found = grants.granted("https://one.example/", &account("a")).unwrap();
        assert!(found.has("t/user"));
        assert!(!found.has("t/other") && !found.has("T/user"));
        // The other account may be constrained, which allows no `extra`.
        assert_eq!(grants.granted(SERVER, &account("b")), None);
        assert_eq!(grants.granted("https://two.example", &account("a")), None);

        grants.set([granted(&["t/user"], GrantedAccounts::All)]);
        assert!(grants.granted(SERVER, &account("b")).is_some());
        grants.set([granted(&[], GrantedAccounts::All)]);
        assert_eq!(grants.granted(SERVER, &account("b")), None);
    }

    #[test]
    fn forbidden_reports_are_bounded_and_only_of_clusters_with_grants() {
        let (grants, mut reports) = ExtraGrants::new();
        grants.report_forbidden(SERVER, &account("a"));
        assert!(reports.try_recv().is_err(), "the cluster has no grants");

        grants.set([granted(&["t/user"], GrantedAccounts::All)]);
        for _ in 0..1_000 {
            grants.report_forbidden(SERVER, &account("a"));
        }
        let mut count = 0;
        while let Ok(report) = reports.try_recv() {
            assert_eq!((report.server.as_str(), report.account), (SERVER, account("a")));
            count += 1;
        }
        assert_eq!(count, super::MAX_QUEUED_REPORTS);
        // Until the recheck, the grants stay in force.
        assert!(grants.granted(SERVER, &account("a")).is_some());
        grants.forget(SERVER);
        assert_eq!(grants.granted(SERVER, &account("a")), None);
    }
}
