//! Checks whether clusters let the gateway impersonate the service accounts of Applications. It
//! logs one warning for what is missing, and publishes an [`AccountsReport`] for operators and
//! [`ExtraGrants`](super::extras::ExtraGrants) for requests. Requests report a 403, after which the cluster is rechecked. It
//! refuses nothing: a gateway whose clusters do not answer starts and serves.
//!
//! Invariant: clusters are asked only while Applications act as accounts, and no request waits
//! for an answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::cluster_reviewer::ClusterReviewer;
use super::extras::{ClusterExtraGrants, ForbiddenExtra, GrantedAccounts};
use super::review::CheckError;
use super::rights::{AccessCheck, AccessReviewer, AccountScope};
use super::{CheckResults, Configuration, MAX_CONCURRENT_CLUSTERS, POLL_INTERVAL, RETRY_INTERVAL, is_same_connection};
use crate::access::after;
use tollgate_policy::gateway_rights::grants::{AccountRight, ImpersonationKind};
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
/// Least time between two reports of one round.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two rechecks of one cluster.
const MIN_RECHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn run(
    current: Arc<dyn Configuration>,
    mut forbidden: mpsc::Receiver<ForbiddenExtra>,
    metrics: Arc<Metrics>,
    results: CheckResults,
) {
    let mut checker = AccountChecker {
        results: results.clone(),
        plan: Arc::default(),
        surveys: BTreeMap::new(),
        publisher: Arc::new(Mutex::new(Publisher {
            metrics,
            results,
            logged: BTreeMap::new(),
        })),
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
    results: CheckResults,
    plan: Arc<AccountPlan>,
    /// The result of each cluster, by server.
    surveys: BTreeMap<String, Arc<SurveyResult>>,
    publisher: Arc<Mutex<Publisher>>,
    /// When each cluster was last rechecked, by server.
    rechecked_at: BTreeMap<String, Instant>,
}

/// Publishes results. What it does grows with the number of clusters and accounts, so it runs off
/// the threads that serve.
#[derive(Debug)]
struct Publisher {
    metrics: Arc<Metrics>,
    results: CheckResults,
    /// The warnings logged about each cluster, by server.
    logged: BTreeMap<String, ClusterWarnings>,
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
                let before = self.surveys.get(server).map(|before| &**before);
                let accounts = cluster.due_accounts(before, &self.plan.keys, now)?;
                Some((server, cluster, accounts, before.cloned()))
            })
            .collect();
        let keys = self.plan.keys.clone();
        let answers = due.into_iter().map(|(server, cluster, accounts, before)| {
            let (server, access, keys) = (server.clone(), cluster.access.clone(), &keys);
            async move {
                let failures = before.as_ref().map_or(0, |before| before.failures);
                let mut result = match access {
                    Some(access) => {
                        let cluster = ClusterReviewer(&access);
                        let timeout = before.as_ref().map_or(ROUND_TIMEOUT, SurveyResult::next_timeout);
                        survey(&cluster, &accounts, keys, before, after(timeout)).await
                    }
                    None => SurveyResult::without_answers(CheckError::NoCluster),
                };
                result.failures = match result.problem {
                    Some(_) => failures.saturating_add(1),
                    None => 0,
                };
                (server, result)
            }
        });
        let mut answers =
            futures_util::stream::iter(answers.collect::<Vec<_>>()).buffer_unordered(MAX_CONCURRENT_CLUSTERS);
        // Publish once before any answer, so that requests do not rely on grants that are gone.
        // Then publish what has been answered once a second, so that a slow cluster does not delay the
        // others, and thousands of clusters do not cost a report each.
        self.publish().await;
        let mut is_unpublished = false;
        let mut publish = interval(PUBLISH_INTERVAL);
        publish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                answer = answers.next() => {
                    let Some((server, result)) = answer else { break };
                    self.surveys.insert(server, Arc::new(result));
                    is_unpublished = true;
                }
                _ = publish.tick(), if is_unpublished => {
                    self.publish().await;
                    is_unpublished = false;
                }
            }
        }
        if is_unpublished {
            self.publish().await;
        }
        let no_survey = SurveyResult::default();
        let delays = self.plan.clusters.iter().map(|(server, cluster)| {
            let result = self.surveys.get(server).map_or(&no_survey, |result| &**result);
            match result.retry_interval() {
                Some(interval) => interval,
                None if cluster.unasked(result) > 0 => NEXT_ROUND_DELAY,
                None => RETRY_INTERVAL,
            }
        });
        delays.min().unwrap_or(RETRY_INTERVAL)
    }

    /// Takes a new plan, and drops the results about clusters that no longer exist or are accessed
    /// differently.
    fn replace_plan(&mut self, plan: AccountPlan) {
        let before = std::mem::replace(&mut self.plan, Arc::new(plan));
        let clusters = &self.plan.clusters;
        // A changed credential takes effect with the next round at the latest.
        let is_same = |server: &str| match (before.clusters.get(server), clusters.get(server)) {
            (Some(before), Some(now)) => is_same_connection(before.access.as_ref(), now.access.as_ref()),
            (_, _) => false,
        };
        self.surveys.retain(|server, _| is_same(server));
        for (server, result) in &mut self.surveys {
            let Some(cluster) = clusters.get(server) else { continue };
            let is_asked = |account: &ServiceAccountName| cluster.accounts.contains_key(account);
            let is_sent = |key: &String| self.plan.keys.contains(key);
            if !result.accounts.keys().all(is_asked) || !result.extra.keys().all(is_sent) {
                let result = Arc::make_mut(result);
                result.accounts.retain(|account, _| is_asked(account));
                result.extra.retain(|key, _| is_sent(key));
            }
        }
        self.rechecked_at.retain(|server, _| clusters.contains_key(server));
    }

    /// Publishes the results so far.
    async fn publish(&self) {
        let (plan, surveys) = (Arc::clone(&self.plan), self.surveys.clone());
        let publisher = Arc::clone(&self.publisher);
        let published = tokio::task::spawn_blocking(move || {
            let mut publisher = publisher.lock().unwrap_or_else(PoisonError::into_inner);
            publisher.publish(&plan, &surveys);
        });
        if let Err(error) = published.await {
            tracing::error!(%error, "what clusters said about accounts could not be published");
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

impl Publisher {
    fn publish(&mut self, plan: &AccountPlan, surveys: &BTreeMap<String, Arc<SurveyResult>>) {
        self.logged.retain(|server, _| plan.clusters.contains_key(server));
        let report = AccountsReport::of(plan, surveys);
        self.results.applications.store(Arc::new(report));
        let no_survey = SurveyResult::default();
        let counts = plan.clusters.iter().map(|(server, cluster)| {
            let result = surveys.get(server).map_or(&no_survey, |result| &**result);
            let counts = [
                Counts::of_impersonation(cluster, result),
                Counts::of_existence(cluster, result),
                Counts::of_extra(&plan.keys, result),
            ];
            (&*cluster.label, counts.map(Counts::to_array))
        });
        self.metrics.set_application_grants(counts);
        let grants = surveys.iter();
        let grants = grants.map(|(server, result)| (server.clone(), granted(result)));
        self.results.extras.set(grants);
        for (server, cluster) in &plan.clusters {
            let Some(result) = surveys.get(server) else {
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
