//! Tells which keys of `extra` a cluster takes at present: [`ExtraGrants`], which requests read
//! without a lock and without asking the cluster.
//!
//! Security: a key is not sent if nothing is known of it.
//!
//! Source: KEP-5284 and kube-apiserver, `endpoints/filters/impersonation`: a service
//! account with `extra` is impersonated in the classic way alone, so each key needs
//! the verb `impersonate` on `userextras/<key>`, and the account it too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use tollgate_policy::impersonate::service_account::Account;

/// Most doubts that wait to be checked. More are dropped.
const MAX_QUEUED_REPORTS: usize = 64;

/// Which keys may be sent to which cluster. Clones share the state.
#[derive(Clone, Debug)]
pub struct ExtraGrants {
    by_server: Arc<ArcSwap<ByServer>>,
    doubts: mpsc::Sender<ForbiddenExtra>,
}

type ByServer = BTreeMap<String, Arc<Granted>>;

/// A request with `extra` that a cluster forbade.
#[derive(Debug)]
pub(super) struct ForbiddenExtra {
    pub(super) server: String,
    pub(super) account: Account,
}

/// What one cluster accepts with its service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub(super) keys: BTreeSet<String>,
    pub(super) accounts: Accounts,
}

/// The accounts that may be impersonated with `extra`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accounts {
    /// All accounts of the cluster.
    All,
    /// Only these accounts.
    These(BTreeSet<Account>),
}

impl Granted {
    /// Whether a key may be sent, whatever its values.
    ///
    /// - `key`: in lower case, as it is in `Impersonate-Extra-…` before it is encoded.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    fn covers(&self, account: &Account) -> bool {
        !self.keys.is_empty()
            && match &self.accounts {
                Accounts::All => true,
                Accounts::These(accounts) => accounts.contains(account),
            }
    }
}

impl ExtraGrants {
    /// Nothing is known of any cluster. Doubts arrive at the receiver.
    pub(super) fn new() -> (Self, mpsc::Receiver<ForbiddenExtra>) {
        let (doubts, doubted) = mpsc::channel(MAX_QUEUED_REPORTS);
        let by_server = Arc::default();
        (Self { by_server, doubts }, doubted)
    }

    /// What may be sent along with an account. `None` if nothing may: no key is granted, or
    /// nothing is known.
    ///
    /// - `server`: the cluster's API server, as in its Secret.
    ///
    /// Takes no lock and does not wait.
    pub fn granted(&self, server: &str, account: &Account) -> Option<Arc<Granted>> {
        let known = self.by_server.load();
        let granted = known.get(server.trim_end_matches('/'))?;
        granted.covers(account).then(|| Arc::clone(granted))
    }

    /// Reports that a cluster answered 403 to a request with `extra`. It may no longer accept
    /// them, so it is asked again soon. Because a 403 can have other reasons, the grants stay in
    /// force until then, and the cluster is asked at most now and then.
    ///
    /// Takes no lock and does not wait.
    pub fn report_forbidden(&self, server: &str, account: &Account) {
        let server = server.trim_end_matches('/');
        if self.by_server.load().contains_key(server) {
            // If there is no room, other doubts are checked first, and the next 403 reports this
            // one again.
            drop(self.doubts.try_send(ForbiddenExtra {
                server: server.to_owned(),
                account: account.clone(),
            }));
        }
    }

    /// Replaces what is known.
    pub(super) fn set(&self, known: impl IntoIterator<Item = (String, Granted)>) {
        let known = known.into_iter().filter(|(_, granted)| !granted.keys.is_empty());
        let known = known.map(|(server, granted)| (server.trim_end_matches('/').to_owned(), Arc::new(granted)));
        self.by_server.store(Arc::new(known.collect()));
    }

    /// What is known of one cluster.
    pub(super) fn of(&self, server: &str) -> Option<Arc<Granted>> {
        self.by_server.load().get(server.trim_end_matches('/')).map(Arc::clone)
    }

    /// Forgets what is known of a cluster.
    pub(super) fn forget(&self, server: &str) {
        let mut known = ByServer::clone(&self.by_server.load());
        known.remove(server.trim_end_matches('/'));
        self.by_server.store(Arc::new(known));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Accounts, ExtraGrants, Granted};
    use tollgate_policy::impersonate::service_account::Account;

    const SERVER: &str = "https://one.example";

    fn account(name: &str) -> Account {
        Account {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    fn granted(keys: &[&str], accounts: Accounts) -> (String, Granted) {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        (SERVER.to_owned(), Granted { keys, accounts })
    }

    #[test]
    fn nothing_is_sent_unless_it_is_known_to_be_taken() {
        let (grants, _doubted) = ExtraGrants::new();
        assert_eq!(grants.granted(SERVER, &account("a")), None);

        let these = Accounts::These(BTreeSet::from([account("a")]));
        grants.set([granted(&["t/user"], these)]);
        let found = grants.granted("https://one.example/", &account("a")).unwrap();
        assert!(found.has("t/user"));
        assert!(!found.has("t/other") && !found.has("T/user"));
        // Its account may be constrained, which allows no `extra` at all.
        assert_eq!(grants.granted(SERVER, &account("b")), None);
        assert_eq!(grants.granted("https://two.example", &account("a")), None);

        grants.set([granted(&["t/user"], Accounts::All)]);
        assert!(grants.granted(SERVER, &account("b")).is_some());
        grants.set([granted(&[], Accounts::All)]);
        assert_eq!(grants.granted(SERVER, &account("b")), None);
    }

    #[test]
    fn doubts_are_of_clusters_that_are_believed_and_bounded() {
        let (grants, mut doubted) = ExtraGrants::new();
        grants.report_forbidden(SERVER, &account("a"));
        assert!(doubted.try_recv().is_err(), "nothing was sent there");

        grants.set([granted(&["t/user"], Accounts::All)]);
        for _ in 0..1_000 {
            grants.report_forbidden(SERVER, &account("a"));
        }
        let mut count = 0;
        while let Ok(doubt) = doubted.try_recv() {
            assert_eq!((doubt.server.as_str(), doubt.account), (SERVER, account("a")));
            count += 1;
        }
        assert_eq!(count, super::MAX_QUEUED_REPORTS);
        // Until the doubt is checked, the grants stay in force.
        assert!(grants.granted(SERVER, &account("a")).is_some());
        grants.forget(SERVER);
        assert_eq!(grants.granted(SERVER, &account("a")), None);
    }
}
