//! Checks whether clusters let the gateway impersonate the service accounts of Applications. It
//! logs one warning for what is missing, and publishes an [`AccountsReport`] for operators and
//! [`ExtraGrants`](super::extras::ExtraGrants) for requests. Requests report a 403, after which the cluster is rechecked. It
//! refuses nothing: a gateway whose clusters do not answer starts and serves.
//!
//! Invariant: clusters are asked only while Applications act as accounts, and no request waits
//! for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::cluster_reviewer::ClusterReviewer;
use super::extras::{ClusterExtraGrants, ForbiddenExtra, GrantedAccounts};
use super::grants::ImpersonationKind;
use super::review::CheckError;
use super::rights::{AccessCheck, AccessReviewer, AccountRight, AccountScope};
use super::{CheckResults, Configuration, MAX_CONCURRENT_CLUSTERS, POLL_INTERVAL, RETRY_INTERVAL, is_same_connection};
use crate::access::after;
use tollgate_policy::impersonate::service_account::ServiceAccountName;
use tollgate_proxy::metrics::Metrics;

pub mod enrollment;
mod plan;
mod report;
mod survey;
#[cfg(test)]
mod tests;
mod warnings;

pub use plan::AccountPlan;
pub use report::AccountsReport;
use report::Counts;
use survey::{AccountImpersonation, ROUND_TIMEOUT, SurveyResult, survey};
use warnings::ClusterWarnings;

/// Delay until accounts that were left out of a round are asked about.
const NEXT_ROUND_DELAY: Duration = Duration::from_secs(10);
/// Least time between two rechecks of one cluster.
const MIN_RECHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn run(
    current: Arc<dyn Configuration>,
    mut forbidden: mpsc::Receiver<ForbiddenExtra>,
    (metrics, results): (Arc<Metrics>, CheckResults),
) {
    let mut checker = AccountChecker {
        metrics,
        results,
        plan: AccountPlan::default(),
        surveys: BTreeMap::new(),
        logged: BTreeMap::new(),
        rechecked_at: BTreeMap::new(),
    };
    let (mut last_generation, mut due) = (0, Instant::now());
    loop {
        let generation = current.generation();
        if generation != last_generation || Instant::now() >= due {
            last_generation = generation;
            let configuration = Arc::clone(&current);
            due = match tokio::task::spawn_blocking(move || configuration.accounts()).await {
                Ok(plan) => after(checker.round(plan).await),
                Err(_) => after(RETRY_INTERVAL),
            };
        }
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            Some(report) = forbidden.recv() => {
                if checker.recheck(&report).await {
                    due = Instant::now();
                }
            }
        }
    }
}

#[derive(Debug)]
struct AccountChecker {
    metrics: Arc<Metrics>,
    results: CheckResults,
    plan: AccountPlan,
    /// The result of each cluster, by server.
    surveys: BTreeMap<String, SurveyResult>,
    /// The warnings logged about each cluster, by server.
    logged: BTreeMap<String, ClusterWarnings>,
    /// When each cluster was last rechecked, by server.
    rechecked_at: BTreeMap<String, Instant>,
}

impl AccountChecker {
    /// Asks about the accounts that are due, publishes the results, and returns the delay until the
    /// next round.
    async fn round(&mut self, plan: AccountPlan) -> Duration {
        self.replace_plan(plan);
        let now = Instant::now();
        let due: Vec<_> = self
            .plan
            .clusters
            .iter()
            .filter_map(|(server, cluster)| {
                let accounts = cluster.due_accounts(self.surveys.get(server), &self.plan.keys, now)?;
                Some((server, cluster, accounts, self.surveys.get(server).cloned()))
            })
            .collect();
        let keys = self.plan.keys.clone();
        let answers = due.into_iter().map(|(server, cluster, accounts, before)| {
            let (server, access, keys) = (server.clone(), cluster.access.clone(), &keys);
            async move {
                let result = match access {
                    Some(access) => {
                        let cluster = ClusterReviewer(&access);
                        survey(&cluster, (&accounts, keys), before, after(ROUND_TIMEOUT)).await
                    }
                    None => SurveyResult::without_answers(CheckError::NoCluster),
                };
                (server, result)
            }
        });
        let mut answers =
            futures_util::stream::iter(answers.collect::<Vec<_>>()).buffer_unordered(MAX_CONCURRENT_CLUSTERS);
        // Publish once before any answer, so that requests do not rely on grants that are gone.
        // Then publish as each cluster answers, so that a slow one does not delay the others.
        self.publish();
        while let Some((server, result)) = answers.next().await {
            self.surveys.insert(server, result);
            self.publish();
        }
        let no_survey = SurveyResult::default();
        let delays = self.plan.clusters.iter().map(|(server, cluster)| {
            let result = self.surveys.get(server).unwrap_or(&no_survey);
            match &result.problem {
                Some(problem) => problem.retry_interval(),
                None if cluster.unasked(result) > 0 => NEXT_ROUND_DELAY,
                None => RETRY_INTERVAL,
            }
        });
        delays.min().unwrap_or(RETRY_INTERVAL)
    }

    /// Takes a new plan, and drops the results about clusters that no longer exist or are accessed
    /// differently.
    fn replace_plan(&mut self, plan: AccountPlan) {
        let before = std::mem::replace(&mut self.plan, plan);
        let clusters = &self.plan.clusters;
        // A changed credential takes effect with the next round at the latest.
        let is_same = |server: &str| match (before.clusters.get(server), clusters.get(server)) {
            (Some(before), Some(now)) => is_same_connection(before.access.as_ref(), now.access.as_ref()),
            (_, _) => false,
        };
        self.surveys.retain(|server, _| is_same(server));
        for (server, result) in &mut self.surveys {
            if let Some(cluster) = clusters.get(server) {
                result
                    .accounts
                    .retain(|account, _| cluster.accounts.contains_key(account));
            }
            result.extra.retain(|key, _| self.plan.keys.contains(key));
        }
        self.logged.retain(|server, _| clusters.contains_key(server));
        self.rechecked_at.retain(|server, _| clusters.contains_key(server));
    }

    fn publish(&mut self) {
        let report = AccountsReport::of(&self.plan, &self.surveys);
        self.results.applications.store(Arc::new(report));
        let no_survey = SurveyResult::default();
        let counts = self.plan.clusters.iter().map(|(server, cluster)| {
            let result = self.surveys.get(server).unwrap_or(&no_survey);
            let counts = [
                Counts::of_impersonation(cluster, result),
                Counts::of_existence(cluster, result),
                Counts::of_extra(&self.plan.keys, result),
            ];
            (&*cluster.label, counts.map(Counts::to_array))
        });
        self.metrics.set_application_grants(counts);
        let grants = self.surveys.iter();
        let grants = grants.map(|(server, result)| (server.clone(), granted(result)));
        self.results.extras.set(grants);
        for (server, cluster) in &self.plan.clusters {
            let Some(result) = self.surveys.get(server) else {
                continue;
            };
            // An incomplete answer would be logged again with each round.
            if result.problem.is_some() || cluster.unasked(result) == 0 {
                let warnings = ClusterWarnings::of(cluster, result);
                warnings.log_changes(cluster, self.logged.get(server));
                self.logged.insert(server.clone(), warnings);
            }
        }
    }

    /// Rechecks a cluster that answered 403. Returns whether it no longer grants what was sent.
    /// Then its grants are dropped, and it is asked again.
    async fn recheck(&mut self, ForbiddenExtra { server, account }: &ForbiddenExtra) -> bool {
        let Some(granted) = self.results.extras.of(server) else {
            return false;
        };
        let last = self.rechecked_at.get(server);
        if last.is_some_and(|last| last.elapsed() < MIN_RECHECK_INTERVAL) {
            return false;
        }
        let cluster = self.plan.clusters.get(server);
        let Some(access) = cluster.and_then(|cluster| cluster.access.as_ref()) else {
            return false;
        };
        let reviewer = ClusterReviewer(access);
        let verdict = timeout(MIN_RECHECK_INTERVAL, still_granted(&reviewer, &granted, account)).await;
        self.rechecked_at.insert(server.clone(), Instant::now());
        // If a cluster does not answer, the grants stay in force until its next round.
        let is_withdrawn = matches!(verdict, Ok(Ok(false)));
        if is_withdrawn {
            self.results.extras.forget(server);
            self.surveys.remove(server);
        }
        is_withdrawn
    }
}

/// Whether a cluster still grants everything in `granted` for an account.
async fn still_granted(
    cluster: &impl AccessReviewer,
    granted: &ClusterExtraGrants,
    account: &ServiceAccountName,
) -> Result<bool, CheckError> {
    let impersonation = AccessCheck::Accounts(
        AccountRight::Impersonate(ImpersonationKind::Classic),
        AccountScope::One(account),
    );
    if !cluster.is_allowed(impersonation).await? {
        return Ok(false);
    }
    for key in &granted.keys {
        if !cluster.is_allowed(AccessCheck::Extra(key)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn granted(result: &SurveyResult) -> ClusterExtraGrants {
    let keys = result.extra.iter().filter(|(_, granted)| **granted == Ok(true));
    let classic = AccountImpersonation::Granted(ImpersonationKind::Classic);
    let accounts = match result.all {
        Some(ImpersonationKind::Classic) => GrantedAccounts::All,
        Some(ImpersonationKind::Constrained) | None => {
            let accounts = result.accounts.iter();
            let these = accounts.filter(|(_, account_result)| account_result.impersonation == classic);
            GrantedAccounts::These(these.map(|(account, _)| account.clone()).collect())
        }
    };
    ClusterExtraGrants {
        keys: keys.map(|(key, _)| key.clone()).collect(),
        accounts,
    }
}
