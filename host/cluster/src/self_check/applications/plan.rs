//! Plans which clusters to ask, and about which accounts next.
//!
//! Invariant: no cluster is asked while Applications do not act as accounts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::{FULL_CHECK_INTERVAL, RETRY_INTERVAL};
use super::survey::{AccountResult, MAX_ACCOUNTS_PER_ROUND, SurveyResult};
use crate::access::{ClusterAccess, Clusters};
use tollgate_config::ImpersonationMode;
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::gateway_rights::accounts::{ActingApplications, NeededAccounts, by_cluster};
use tollgate_policy::impersonate::service_account::ServiceAccountName;

/// Which clusters to ask, and about which accounts and keys.
#[derive(Debug, Default)]
pub struct AccountPlan {
    pub(super) mode: ImpersonationMode,
    pub(super) clusters: BTreeMap<String, ClusterAccounts>,
    /// Keys of `extra` that requests send, in order, without duplicates.
    pub(super) keys: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ClusterAccounts {
    /// Its name in metrics and logs.
    pub(super) label: Arc<str>,
    pub(super) access: Option<Arc<ClusterAccess>>,
    pub(super) accounts: BTreeMap<ServiceAccountName, ActingApplications>,
}

impl AccountPlan {
    /// Plans what to ask about the accounts of `applications`.
    ///
    /// - `keys`: of `extra`, in any order.
    pub fn of(applications: &ApplicationIndex, keys: impl Iterator<Item = String>, clusters: &Clusters) -> Self {
        let mode = applications.mode;
        let needed = match mode {
            ImpersonationMode::Off => BTreeMap::new(),
            ImpersonationMode::Audit | ImpersonationMode::Enforce => by_cluster(applications),
        };
        let to_ask = |(server, NeededAccounts { cluster, accounts }): (String, NeededAccounts)| {
            let access = clusters.find_by_server(&server).cloned();
            let label = match &access {
                Some(access) => Arc::clone(&access.label),
                None if cluster.name.is_empty() => Arc::from(&*server),
                None => Arc::from(&*cluster.name),
            };
            let cluster_accounts = ClusterAccounts {
                label,
                access,
                accounts,
            };
            (server, cluster_accounts)
        };
        let mut keys: Vec<String> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        Self {
            mode,
            clusters: needed.into_iter().map(to_ask).collect(),
            keys,
        }
    }
}

impl ClusterAccounts {
    /// Returns at most [`MAX_ACCOUNTS_PER_ROUND`] accounts to ask about now, those asked about
    /// longest ago first. An empty list means to ask only about the cluster. `None` if it is too
    /// early for all.
    pub(super) fn due_accounts(
        &self,
        last: Option<&SurveyResult>,
        keys: &[String],
        now: Instant,
    ) -> Option<Vec<ServiceAccountName>> {
        let no_survey = SurveyResult::default();
        let last = last.unwrap_or(&no_survey);
        let is_due = |at: Option<Instant>, wait: Duration| at.is_none_or(|at| now.duration_since(at) >= wait);
        if let Some(interval) = last.retry_interval()
            && !is_due(last.at, interval)
        {
            return None;
        }
        let is_stale = |result: &AccountResult| match result.is_good() {
            true => is_due(Some(result.at), FULL_CHECK_INTERVAL),
            false => is_due(Some(result.at), RETRY_INTERVAL),
        };
        let result_of = |account: &ServiceAccountName| last.accounts.get(account);
        let mut stale: Vec<&ServiceAccountName> = self
            .accounts
            .keys()
            .filter(|account| result_of(account).is_none_or(is_stale))
            .collect();
        stale.sort_by_key(|account| result_of(account).map(|result| result.at));
        stale.truncate(MAX_ACCOUNTS_PER_ROUND);
        let has_all_keys = keys.iter().all(|key| last.extra.contains_key(key));
        let must_ask = !stale.is_empty() || !has_all_keys || is_due(last.at, FULL_CHECK_INTERVAL);
        must_ask.then(|| stale.into_iter().cloned().collect())
    }

    pub(super) fn unasked(&self, result: &SurveyResult) -> usize {
        let accounts = self.accounts.keys();
        accounts
            .filter(|account| !result.accounts.contains_key(account))
            .count()
    }

    pub(super) fn command(&self) -> String {
        format!("tollgate rbac manifest --applications --cluster {}", self.label)
    }
}
