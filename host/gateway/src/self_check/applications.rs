//! Checks whether clusters let the gateway act as the service accounts of Applications. It logs
//! one warning for what is missing, and provides a [`SharedReports`] for operators and [`ExtraGrants`]
//! for requests. Requests report doubts, which are checked again. It refuses nothing: a gateway
//! whose clusters do not answer starts and serves.
//!
//! Invariant: clusters are asked only while Applications act as accounts, and no request waits
//! for an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::cluster_reviewer::ClusterReviewer;
use super::extras::{Accounts, ExtraGrants, ForbiddenExtra, Granted};
use super::grants::ImpersonationKind;
use super::review::CheckError;
use super::rights::{AccessReviewer, AccountRight, AccountScope, Question};
use crate::cluster_access::ClusterAccess;
use crate::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_policy::impersonate::service_account::Account;
use tollgate_proxy::metrics::Metrics;

mod plan;
mod report;
mod say;
mod survey;
#[cfg(test)]
mod tests;

use plan::AccountPlan;
pub use report::{
    AccountAnswer, AccountReport, AccountsReport, ApplicationsReport, ClusterReport, Counts, ExtraReport, SharedReports,
};
use say::ClusterWarnings;
use survey::{AccountImpersonation, ROUND_TIMEOUT, SurveyResult, survey};

/// Interval between checks for changes of Applications, accounts or clusters.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay until accounts that were left out of a round are asked about.
const NEXT_ROUND_DELAY: Duration = Duration::from_secs(10);
/// Delay until missing or unanswered questions are asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Delay until everything is asked again, because roles change without notice.
const FULL_CHECK_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Clusters asked at once.
const MAX_CONCURRENT_CLUSTERS: usize = 4;
/// Least time between two checks of doubts about one cluster.
const MIN_RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Destinations of the results.
#[derive(Debug)]
pub(super) struct ResultSinks {
    pub(super) metrics: Arc<Metrics>,
    pub(super) board: SharedReports,
    pub(super) extras: ExtraGrants,
}

/// Asks for as long as the process lives.
pub(super) async fn run(current: CurrentSnapshot, mut doubts: mpsc::Receiver<ForbiddenExtra>, results: ResultSinks) {
    let mut watch = AccountChecker::new(results);
    let (mut seen, mut due) = (0, Instant::now());
    loop {
        let generation = current.load().generation;
        if generation != seen || Instant::now() >= due {
            seen = generation;
            // The snapshot is released before the clusters are asked.
            let snapshot = current.load_full();
            due = match tokio::task::spawn_blocking(move || plan_of(&snapshot)).await {
                Ok(plan) => after(watch.round(plan).await),
                Err(_) => after(RETRY_INTERVAL),
            };
        }
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            Some(doubt) = doubts.recv() => {
                if watch.recheck(&doubt).await {
                    due = Instant::now();
                }
            }
        }
    }
}

fn plan_of(snapshot: &Snapshot) -> AccountPlan {
    let Some(front) = &snapshot.applications else {
        return AccountPlan::default();
    };
    let keys = front.policy.rules().extra_keys().map(str::to_owned);
    AccountPlan::of(&front.index, keys, (&snapshot.clusters, &snapshot.resources.clusters))
}

fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now)
}

/// State kept from round to round.
#[derive(Debug)]
struct AccountChecker {
    results: ResultSinks,
    plan: AccountPlan,
    /// What is known of each cluster, by server.
    known: BTreeMap<String, SurveyResult>,
    /// What was logged of each cluster, by server.
    said: BTreeMap<String, ClusterWarnings>,
    /// When a doubt of each cluster was last checked, by server.
    doubted: BTreeMap<String, Instant>,
}

impl AccountChecker {
    fn new(results: ResultSinks) -> Self {
        Self {
            results,
            plan: AccountPlan::default(),
            known: BTreeMap::new(),
            said: BTreeMap::new(),
            doubted: BTreeMap::new(),
        }
    }

    /// Asks what is due, publishes the results, and returns when to continue.
    async fn round(&mut self, plan: AccountPlan) -> Duration {
        self.replace_plan(plan);
        let now = Instant::now();
        let asking: Vec<_> = self
            .plan
            .clusters
            .iter()
            .filter_map(|(server, asked)| {
                let turn = asked.due_accounts(self.known.get(server), &self.plan.keys, now)?;
                Some((server, asked, turn, self.known.get(server).cloned()))
            })
            .collect();
        let keys = self.plan.keys.clone();
        let answers = asking.into_iter().map(|(server, asked, turn, before)| {
            let (server, access, keys) = (server.clone(), asked.access.clone(), &keys);
            async move { (server, ask(access, (&turn, keys), before).await) }
        });
        let mut answers =
            futures_util::stream::iter(answers.collect::<Vec<_>>()).buffer_unordered(MAX_CONCURRENT_CLUSTERS);
        // Publish once before any answer, so that requests do not rely on grants that are gone.
        // Then publish as each cluster answers, so that a slow one does not delay the others.
        self.publish();
        while let Some((server, known)) = answers.next().await {
            self.known.insert(server, known);
            self.publish();
        }
        let nothing = SurveyResult::default();
        let mut clusters = self.plan.clusters.iter();
        let is_short = clusters.any(|(server, asked)| {
            let known = self.known.get(server).unwrap_or(&nothing);
            known.problem.is_none() && asked.unasked(known) > 0
        });
        if is_short { NEXT_ROUND_DELAY } else { RETRY_INTERVAL }
    }

    /// Drops what is known of clusters that no longer exist or are accessed differently.
    fn replace_plan(&mut self, plan: AccountPlan) {
        let before = std::mem::replace(&mut self.plan, plan);
        let clusters = &self.plan.clusters;
        let is_same = |server: &str| match (before.clusters.get(server), clusters.get(server)) {
            (Some(before), Some(now)) => before.has_same_connection(now),
            (_, _) => false,
        };
        self.known.retain(|server, _| is_same(server));
        for (server, known) in &mut self.known {
            if let Some(asked) = clusters.get(server) {
                known.accounts.retain(|account, _| asked.accounts.contains_key(account));
            }
            known.extra.retain(|key, _| self.plan.keys.contains(key));
        }
        self.said.retain(|server, _| clusters.contains_key(server));
        self.doubted.retain(|server, _| clusters.contains_key(server));
    }

    /// Publishes to the board, metrics, log and requests.
    fn publish(&mut self) {
        let Self {
            results,
            plan,
            known,
            said,
            ..
        } = self;
        let of = |server: &str| known.get(server);
        results.board.set(AccountsReport::of(plan, of));
        let nothing = SurveyResult::default();
        let counts = plan.clusters.iter().map(|(server, asked)| {
            let known = known.get(server).unwrap_or(&nothing);
            let counts = [
                Counts::of_impersonation(asked, known),
                Counts::of_existence(asked, known),
                Counts::of_extra(&plan.keys, known),
            ];
            (&*asked.label, counts.map(Counts::to_array))
        });
        results.metrics.application_grants.set(counts);
        let granted = known.iter().map(|(server, known)| (server.clone(), granted(known)));
        results.extras.set(granted);
        for (server, asked) in &plan.clusters {
            let Some(known) = known.get(server) else { continue };
            // An incomplete answer would be logged again with each round.
            if known.problem.is_some() || asked.unasked(known) == 0 {
                let now = ClusterWarnings::of(asked, known);
                now.say(asked, said.get(server));
                said.insert(server.clone(), now);
            }
        }
    }

    /// Whether a cluster that forbade a request no longer accepts what was sent. Then nothing more
    /// is sent, and the cluster is asked anew.
    async fn recheck(&mut self, ForbiddenExtra { server, account }: &ForbiddenExtra) -> bool {
        let Some(granted) = self.results.extras.of(server) else {
            return false;
        };
        let last = self.doubted.get(server);
        if last.is_some_and(|last| last.elapsed() < MIN_RECHECK_INTERVAL) {
            return false;
        }
        let access = self.plan.clusters.get(server).and_then(|asked| asked.access.clone());
        let Some(access) = access else { return false };
        let taken = timeout(
            MIN_RECHECK_INTERVAL,
            still_granted(&ClusterReviewer(&access), &granted, account),
        )
        .await;
        self.doubted.insert(server.clone(), Instant::now());
        // If a cluster does not answer, the grants stay in force until its round.
        let refused = matches!(taken, Ok(Ok(false)));
        if refused {
            self.results.extras.forget(server);
            self.known.remove(server);
        }
        refused
    }
}

async fn still_granted(
    cluster: &impl AccessReviewer,
    granted: &Granted,
    account: &Account,
) -> Result<bool, CheckError> {
    let acts = Question::Accounts(
        AccountRight::Impersonate(ImpersonationKind::Classic),
        AccountScope::One(account),
    );
    if !cluster.is_allowed(acts).await? {
        return Ok(false);
    }
    for key in &granted.keys {
        if !cluster.is_allowed(Question::Extra(key)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What requests may send to a cluster.
fn granted(known: &SurveyResult) -> Granted {
    let is_granted = |(key, said): (&String, &survey::Extra)| match said {
        survey::Extra::Granted => Some(key.clone()),
        survey::Extra::Missing | survey::Extra::Unknown(_) => None,
    };
    let classic = AccountImpersonation::Granted(ImpersonationKind::Classic);
    let accounts = match known.all {
        Some(ImpersonationKind::Classic) => Accounts::All,
        Some(ImpersonationKind::Constrained) | None => {
            let these = known.accounts.iter().filter(|(_, seen)| seen.impersonation == classic);
            Accounts::These(these.map(|(account, _)| account.clone()).collect::<BTreeSet<_>>())
        }
    };
    Granted {
        keys: known.extra.iter().filter_map(is_granted).collect(),
        accounts,
    }
}

async fn ask(
    access: Option<Arc<ClusterAccess>>,
    wanted: (&[Account], &[String]),
    before: Option<SurveyResult>,
) -> SurveyResult {
    let Some(access) = access else {
        return SurveyResult::without_answers(CheckError::NoCluster);
    };
    survey(&ClusterReviewer(&access), wanted, before, after(ROUND_TIMEOUT)).await
}
