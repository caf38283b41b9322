//! Determines as which service accounts Applications act in each cluster: the [`NeededAccounts`] of that
//! cluster.
//!
//! Accounts that no Application acts as are left out, and so are those of Applications that are
//! refused anyway: the Application has no project or no cluster, or its project does not permit
//! its destination.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tollgate_policy::applications::Applications;
use tollgate_policy::impersonate::service_account::Account;
use tollgate_state::Cluster;
use tollgate_state::destination::CompiledDestinations;

/// Most Applications that are named for each account. The others are counted.
const MAX_NAMED: usize = 5;

/// Accounts needed in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededAccounts {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The accounts, in order.
    pub accounts: BTreeMap<Account, ActingApplications>,
}

/// Which Applications act as an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActingApplications {
    /// How many.
    pub count: usize,
    /// The first few in order, as `namespace/name`.
    pub first: Vec<String>,
}

impl ActingApplications {
    fn add(&mut self, namespace: &str, name: &str) {
        self.count = self.count.saturating_add(1);
        let text = format!("{namespace}/{name}");
        let at = self.first.partition_point(|known| *known < text);
        if at < MAX_NAMED {
            self.first.insert(at, text);
            self.first.truncate(MAX_NAMED);
        }
    }
}

/// The needs of each cluster, by its server. Takes some milliseconds for thousands of
/// Applications, so it must not run in requests.
///
/// - `clusters`: all clusters, for projects that permit only their own.
pub fn by_cluster(applications: &Applications, clusters: &[Cluster]) -> BTreeMap<String, NeededAccounts> {
    let mut needed: BTreeMap<String, NeededAccounts> = BTreeMap::new();
    let mut places: HashMap<&str, CompiledDestinations> = HashMap::new();
    for governed in applications.iter() {
        let (Some(project), Ok(cluster), Ok(acting)) = (&governed.project, &governed.destination, &governed.acting)
        else {
            continue;
        };
        let Some(account) = &acting.account else { continue };
        // SECURITY: whoever creates Applications chooses their destinations. Without this check
        // they could choose, through the account that acts there, what the gateway is granted.
        let permitted = places
            .entry(&project.name)
            .or_insert_with(|| CompiledDestinations::of(project));
        if !permitted.permit(cluster, &governed.application.destination.namespace, clusters) {
            continue;
        }
        if !needed.contains_key(&cluster.server) {
            let needs = NeededAccounts {
                cluster: Arc::clone(cluster),
                accounts: BTreeMap::new(),
            };
            needed.insert(cluster.server.clone(), needs);
        }
        let Some(needs) = needed.get_mut(&cluster.server) else {
            continue;
        };
        if !needs.accounts.contains_key(account) {
            needs.accounts.insert(account.clone(), ActingApplications::default());
        }
        if let Some(uses) = needs.accounts.get_mut(account) {
            let name = &governed.application.name;
            uses.add(&name.namespace, &name.name);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::ActingApplications;

    #[test]
    fn the_first_applications_are_named_and_the_others_counted() {
        let mut uses = ActingApplications::default();
        for name in ["g", "c", "a", "f", "b", "e", "d"] {
            uses.add("argocd", name);
        }
        assert_eq!(uses.count, 7);
        assert_eq!(uses.first, ["argocd/a", "argocd/b", "argocd/c", "argocd/d", "argocd/e"]);
    }
}
