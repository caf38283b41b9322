//! Plans which clusters to ask which questions, and about which accounts next.
//!
//! Invariant: no cluster is asked while Applications do not act as accounts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::accounts::{ActingApplications, NeededAccounts, by_cluster};
use super::survey::{AccountResult, MAX_ACCOUNTS_PER_ROUND, SurveyResult};
use super::{FULL_CHECK_INTERVAL, RETRY_INTERVAL};
use crate::cluster_access::{ClusterAccess, Clusters};
use tollgate_config::ImpersonationMode;
use tollgate_policy::applications::Applications;
use tollgate_policy::impersonate::service_account::Account;
use tollgate_state::Cluster;

/// Which clusters to ask, and what.
#[derive(Debug, Default)]
pub(super) struct AccountPlan {
    pub(super) mode: ImpersonationMode,
    /// Clusters by server.
    pub(super) clusters: BTreeMap<String, ClusterAccounts>,
    /// Keys of `extra` that are sent along, in order, without duplicates.
    pub(super) keys: Vec<String>,
}

/// What to ask one cluster.
#[derive(Debug)]
pub(super) struct ClusterAccounts {
    /// Its name in metrics and logs.
    pub(super) label: Arc<str>,
    pub(super) access: Option<Arc<ClusterAccess>>,
    pub(super) accounts: BTreeMap<Account, ActingApplications>,
}

impl AccountPlan {
    /// - `keys`: of `extra`, in any order.
    pub(super) fn of(
        applications: &Applications,
        keys: impl Iterator<Item = String>,
        (clusters, known): (&Clusters, &[Cluster]),
    ) -> Self {
        let mode = applications.mode;
        let needed = match mode {
            ImpersonationMode::Off => BTreeMap::new(),
            ImpersonationMode::Audit | ImpersonationMode::Enforce => by_cluster(applications, known),
        };
        let asked = |(server, NeededAccounts { cluster, accounts }): (String, NeededAccounts)| {
            let access = clusters.find_by_server(&server).cloned();
            let name = if cluster.name.is_empty() {
                &server
            } else {
                &cluster.name
            };
            let label = access
                .as_ref()
                .map_or_else(|| Arc::from(&**name), |access| Arc::clone(access.label()));
            let asked = ClusterAccounts {
                label,
                access,
                accounts,
            };
            (server, asked)
        };
        let mut keys: Vec<String> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        Self {
            mode,
            clusters: needed.into_iter().map(asked).collect(),
            keys,
        }
    }
}

impl ClusterAccounts {
    /// Whether both access the cluster in the same way, so that answers to one hold for the other.
    /// A changed credential takes effect with the next round at the latest.
    pub(super) fn has_same_connection(&self, other: &Self) -> bool {
        let way = |asked: &Self| {
            let access = asked.access.as_ref()?;
            let backend = access.backend().map(Arc::as_ptr);
            Some((backend, Arc::clone(access.provider())))
        };
        way(self) == way(other)
    }

    /// Accounts to ask about now, those asked about longest ago first. `None` if it is too early
    /// for all.
    ///
    /// - Returns at most [`MAX_ACCOUNTS_PER_ROUND`] accounts. An empty list means to ask only about the cluster.
    pub(super) fn due_accounts(
        &self,
        known: Option<&SurveyResult>,
        keys: &[String],
        now: Instant,
    ) -> Option<Vec<Account>> {
        let nothing = SurveyResult::default();
        let known = known.unwrap_or(&nothing);
        let is_due = |at: Option<Instant>, wait: Duration| at.is_none_or(|at| now.duration_since(at) >= wait);
        if known.problem.is_some() && !is_due(known.at, RETRY_INTERVAL) {
            return None;
        }
        let is_stale = |seen: &AccountResult| {
            is_due(
                Some(seen.at),
                if seen.is_good() {
                    FULL_CHECK_INTERVAL
                } else {
                    RETRY_INTERVAL
                },
            )
        };
        let seen = |account: &Account| known.accounts.get(account);
        let mut stale: Vec<&Account> = self
            .accounts
            .keys()
            .filter(|account| seen(account).is_none_or(is_stale))
            .collect();
        stale.sort_by_key(|account| seen(account).map(|seen| seen.at));
        stale.truncate(MAX_ACCOUNTS_PER_ROUND);
        let is_whole = keys.iter().all(|key| known.extra.contains_key(key));
        let asks = !stale.is_empty() || !is_whole || is_due(known.at, FULL_CHECK_INTERVAL);
        asks.then(|| stale.into_iter().cloned().collect())
    }

    /// Number of accounts that nothing was asked about yet.
    pub(super) fn unasked(&self, known: &SurveyResult) -> usize {
        let unknown = self
            .accounts
            .keys()
            .filter(|account| !known.accounts.contains_key(account));
        unknown.count()
    }

    /// The command that prints the roles the gateway needs there.
    pub(super) fn command(&self) -> String {
        format!("tollgate rbac manifest --applications --cluster {}", self.label)
    }
}
