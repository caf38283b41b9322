//! The service accounts that act in each cluster, with the Applications that they act for.
//!
//! The index keeps them from one snapshot to the next and replaces only accounts whose Applications
//! changed, so that no request computes anything that grows with the number of Applications.
//!
//! Invariant: an account is listed only with Applications whose projects permit their destinations.

use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::IndexedApplication;
use crate::impersonate::Impersonation;
use tollgate_objects::ObjectName;

/// The accounts by the server of their cluster.
pub(super) type AccountsByServer = HashMap<String, Arc<AccountsByUsername>, FxBuildHasher>;
type AccountsByUsername = HashMap<String, Arc<ActingAccount>, FxBuildHasher>;

/// A service account that acts in a cluster.
#[derive(Clone, Debug)]
pub struct ActingAccount {
    /// Its identity there.
    pub impersonation: Arc<Impersonation>,
    /// The Applications that it acts for there, at least one, by name.
    pub applications: Vec<Arc<IndexedApplication>>,
    /// One Application of each project whose Applications it acts for, at least one, by name.
    pub first_of_projects: Vec<Arc<IndexedApplication>>,
}

impl ActingAccount {
    /// `None` if there are no Applications.
    fn of(mut applications: Vec<Arc<IndexedApplication>>) -> Option<Self> {
        applications.sort_by(|one, other| one.application.name.cmp(&other.application.name));
        // All of them have the same account, and so the same identity.
        let derived = applications.first()?.derived_account.as_ref().ok()?;
        let impersonation = Arc::clone(&derived.impersonation);
        let mut projects = FxHashSet::default();
        let is_first = |indexed: &&Arc<IndexedApplication>| projects.insert(indexed.project.as_ref().map(Arc::as_ptr));
        let first_of_projects = applications.iter().filter(is_first).cloned().collect();
        Some(Self {
            impersonation,
            applications,
            first_of_projects,
        })
    }

    /// The Application of this name, if the account acts for it.
    pub fn find(&self, name: &ObjectName) -> Option<&Arc<IndexedApplication>> {
        let found = self
            .applications
            .binary_search_by(|member| member.application.name.cmp(name));
        self.applications.get(found.ok()?)
    }
}

/// What changed in the entries of the index.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Entries of the previous index that the new one does not have.
    pub(super) removed: Vec<Arc<IndexedApplication>>,
    /// Entries of the new index that the previous one did not have.
    pub(super) added: Vec<Arc<IndexedApplication>>,
}

#[derive(Default)]
struct AccountChanges<'a> {
    removed: FxHashSet<*const IndexedApplication>,
    added: Vec<&'a Arc<IndexedApplication>>,
}

impl Changes {
    /// The accounts after these changes. Accounts without a change are shared with `before`.
    pub(super) fn apply(&self, before: &Arc<AccountsByServer>) -> Arc<AccountsByServer> {
        // By address: the old and the new entry of an Application that changed have the same name.
        let mut changed: FxHashMap<(&str, String), AccountChanges<'_>> = FxHashMap::default();
        for indexed in &self.removed {
            if let Some(account) = acting_account(indexed) {
                changed.entry(account).or_default().removed.insert(Arc::as_ptr(indexed));
            }
        }
        for indexed in &self.added {
            if let Some(account) = acting_account(indexed) {
                changed.entry(account).or_default().added.push(indexed);
            }
        }
        if changed.is_empty() {
            return Arc::clone(before);
        }
        let mut by_server = AccountsByServer::clone(before);
        for ((server, username), changes) in changed {
            let by_username = Arc::make_mut(by_server.entry_ref(server).or_default());
            let earlier = by_username.get(&username);
            let earlier = earlier.into_iter().flat_map(|account| &account.applications);
            let kept = earlier.filter(|member| !changes.removed.contains(&Arc::as_ptr(member)));
            match ActingAccount::of(kept.chain(changes.added).cloned().collect()) {
                Some(account) => by_username.insert(username, Arc::new(account)),
                None => by_username.remove(&username),
            };
            // It is a copy of the accounts before: without this, it would keep every server that was ever used.
            if by_username.is_empty() {
                by_server.remove(server);
            }
        }
        Arc::new(by_server)
    }
}

/// The server and the username of the account that acts for an Application there, if there is one.
fn acting_account(indexed: &IndexedApplication) -> Option<(&str, String)> {
    // SECURITY: a user who creates Applications chooses their destinations. The account of a
    // destination that the project does not permit would act for people whom the project does not let
    // near it.
    if !indexed.is_destination_permitted {
        return None;
    }
    let cluster = indexed.destination.as_ref().ok()?;
    let account = indexed.derived_account.as_ref().ok()?.account.as_ref()?;
    Some((&cluster.server, account.username()))
}
