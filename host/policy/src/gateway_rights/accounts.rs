//! Determines the service accounts that Applications act as in each cluster: the [`NeededAccounts`]
//! of that cluster.
//!
//! Accounts that no Application acts as are left out, and so are those of Applications that are
//! refused anyway: the Application has no project or no cluster, or its project does not permit
//! its destination.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::applications::ApplicationIndex;
use crate::impersonate::service_account::ServiceAccountName;
use tollgate_objects::Cluster;

/// Most Applications that are named for each account. The others are counted.
const MAX_NAMED: usize = 5;

/// Accounts needed in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededAccounts {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The accounts, in order.
    pub accounts: BTreeMap<ServiceAccountName, ActingApplications>,
}

/// Which Applications act as an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ActingApplications {
    /// Number of Applications.
    pub count: usize,
    /// The first few in order, as `namespace/name`.
    pub first: Vec<String>,
}

impl ActingApplications {
    fn add(&mut self, namespace: &str, name: &str) {
        self.count = self.count.saturating_add(1);
        let text = format!("{namespace}/{name}");
        let at = self.first.partition_point(|other| *other < text);
        if at < MAX_NAMED {
            self.first.insert(at, text);
            self.first.truncate(MAX_NAMED);
        }
    }
}

/// The accounts needed in each cluster, by its server. Takes some milliseconds for thousands of
/// Applications, so it must not run in requests.
pub fn by_cluster(applications: &ApplicationIndex) -> BTreeMap<String, NeededAccounts> {
    let mut needed: BTreeMap<String, NeededAccounts> = BTreeMap::new();
    for governed in applications.iter() {
        let (Ok(cluster), Ok(derived)) = (&governed.destination, &governed.derived_account) else {
            continue;
        };
        let Some(account) = &derived.account else { continue };
        // SECURITY: a user who creates Applications chooses their destinations. Without this check
        // they could choose, through the account that acts there, what the gateway is granted.
        if !governed.is_destination_permitted {
            continue;
        }
        let in_cluster = needed.entry(cluster.server.clone()).or_insert_with(|| NeededAccounts {
            cluster: Arc::clone(cluster),
            accounts: BTreeMap::new(),
        });
        let name = &governed.application.name;
        let acting = in_cluster.accounts.entry(account.clone()).or_default();
        acting.add(&name.namespace, &name.name);
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::ActingApplications;

    #[test]
    fn the_first_applications_are_named_and_the_others_counted() {
        let mut acting = ActingApplications::default();
        for name in ["g", "c", "a", "f", "b", "e", "d"] {
            acting.add("argocd", name);
        }
        assert_eq!(acting.count, 7);
        assert_eq!(
            acting.first,
            ["argocd/a", "argocd/b", "argocd/c", "argocd/d", "argocd/e"]
        );
    }
}
