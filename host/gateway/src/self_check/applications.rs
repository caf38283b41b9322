//! Checks whether clusters let the gateway act as the service accounts of Applications. It logs
//! one warning for what is missing, and provides a [`Board`] for operators and [`ExtraGrants`]
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

use super::entered::Entered;
use super::extras::{Accounts, Doubt, ExtraGrants, Granted};
use super::grants::Mode;
use super::review::Problem;
use super::rights::{About, Answering, Question, Right};
use crate::cluster_access::ClusterAccess;
use crate::snapshot::{Current, Snapshot};
use tollgate_policy::impersonate::service_account::Account;
use tollgate_proxy::metrics::Metrics;

mod plan;
mod report;
mod say;
mod survey;
#[cfg(test)]
mod tests;

use plan::Plan;
pub use report::{AccountReport, Answer, ApplicationsReport, Board, ClusterReport, Counts, ExtraReport, Report};
use say::Said;
use survey::{Impersonation, Known, WITHIN, survey};

/// Interval between checks for changes of Applications, accounts or clusters.
const LOOK: Duration = Duration::from_secs(1);
/// Delay until accounts that were left out of a round are asked about.
const NEXT: Duration = Duration::from_secs(10);
/// Delay until missing or unanswered questions are asked again.
const SOON: Duration = Duration::from_secs(60);
/// Delay until everything is asked again, because roles change without notice.
const LATER: Duration = Duration::from_secs(15 * 60);
/// Clusters asked at once.
const AT_ONCE: usize = 4;
/// Least time between two checks of doubts about one cluster.
const DOUBT: Duration = Duration::from_secs(10);

/// Destinations of the results.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) metrics: Arc<Metrics>,
    pub(super) board: Board,
    pub(super) extras: ExtraGrants,
}

/// Asks for as long as the process lives.
pub(super) async fn run(current: Current, mut doubts: mpsc::Receiver<Doubt>, results: Results) {
    let mut watch = Watch::new(results);
    let (mut seen, mut due) = (0, Instant::now());
    loop {
        let generation = current.load().generation;
        if generation != seen || Instant::now() >= due {
            seen = generation;
            // The snapshot is released before the clusters are asked.
            let snapshot = current.load_full();
            due = match tokio::task::spawn_blocking(move || plan_of(&snapshot)).await {
                Ok(plan) => after(watch.round(plan).await),
                Err(_) => after(SOON),
            };
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            Some(doubt) = doubts.recv() => {
                if watch.look_into(&doubt).await {
                    due = Instant::now();
                }
            }
        }
    }
}

fn plan_of(snapshot: &Snapshot) -> Plan {
    let Some(front) = &snapshot.applications else {
        return Plan::default();
    };
    let keys = front.policy.rules().extra_keys().map(str::to_owned);
    Plan::of(&front.index, keys, (&snapshot.clusters, &snapshot.resources.clusters))
}

fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now)
}

/// State kept from round to round.
#[derive(Debug)]
struct Watch {
    results: Results,
    plan: Plan,
    /// What is known of each cluster, by server.
    known: BTreeMap<String, Known>,
    /// What was logged of each cluster, by server.
    said: BTreeMap<String, Said>,
    /// When a doubt of each cluster was last checked, by server.
    doubted: BTreeMap<String, Instant>,
}

impl Watch {
    fn new(results: Results) -> Self {
        Self {
            results,
            plan: Plan::default(),
            known: BTreeMap::new(),
            said: BTreeMap::new(),
            doubted: BTreeMap::new(),
        }
    }

    /// Asks what is due, publishes the results, and returns when to continue.
    async fn round(&mut self, plan: Plan) -> Duration {
        self.adopt(plan);
        let now = Instant::now();
        let asking: Vec<_> = self
            .plan
            .clusters
            .iter()
            .filter_map(|(server, asked)| {
                let turn = asked.turn(self.known.get(server), &self.plan.keys, now)?;
                Some((server, asked, turn, self.known.get(server).cloned()))
            })
            .collect();
        let keys = self.plan.keys.clone();
        let answers = asking.into_iter().map(|(server, asked, turn, before)| {
            let (server, access, keys) = (server.clone(), asked.access.clone(), &keys);
            async move { (server, ask(access, (&turn, keys), before).await) }
        });
        let mut answers = futures_util::stream::iter(answers.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        // Publish once before any answer, so that requests do not rely on grants that are gone.
        // Then publish as each cluster answers, so that a slow one does not delay the others.
        self.tell();
        while let Some((server, known)) = answers.next().await {
            self.known.insert(server, known);
            self.tell();
        }
        let nothing = Known::default();
        let mut clusters = self.plan.clusters.iter();
        let is_short = clusters.any(|(server, asked)| {
            let known = self.known.get(server).unwrap_or(&nothing);
            known.problem.is_none() && asked.left(known) > 0
        });
        if is_short { NEXT } else { SOON }
    }

    /// Drops what is known of clusters that no longer exist or are accessed differently.
    fn adopt(&mut self, plan: Plan) {
        let before = std::mem::replace(&mut self.plan, plan);
        let clusters = &self.plan.clusters;
        let is_same = |server: &str| match (before.clusters.get(server), clusters.get(server)) {
            (Some(before), Some(now)) => before.is_same_way(now),
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
    fn tell(&mut self) {
        let Self {
            results,
            plan,
            known,
            said,
            ..
        } = self;
        let of = |server: &str| known.get(server);
        results.board.set(Report::of(plan, of));
        let nothing = Known::default();
        let counts = plan.clusters.iter().map(|(server, asked)| {
            let known = known.get(server).unwrap_or(&nothing);
            let counts = [
                Counts::of_impersonation(asked, known),
                Counts::of_existence(asked, known),
                Counts::of_extra(&plan.keys, known),
            ];
            (&*asked.label, counts.map(Counts::list))
        });
        results.metrics.application_grants.set(counts);
        let granted = known.iter().map(|(server, known)| (server.clone(), granted(known)));
        results.extras.set(granted);
        for (server, asked) in &plan.clusters {
            let Some(known) = known.get(server) else { continue };
            // An incomplete answer would be logged again with each round.
            if known.problem.is_some() || asked.left(known) == 0 {
                let now = Said::of(asked, known);
                now.say(asked, said.get(server));
                said.insert(server.clone(), now);
            }
        }
    }

    /// Whether a cluster that forbade a request no longer accepts what was sent. Then nothing more
    /// is sent, and the cluster is asked anew.
    async fn look_into(&mut self, Doubt { server, account }: &Doubt) -> bool {
        let Some(granted) = self.results.extras.of(server) else {
            return false;
        };
        let last = self.doubted.get(server);
        if last.is_some_and(|last| last.elapsed() < DOUBT) {
            return false;
        }
        let access = self.plan.clusters.get(server).and_then(|asked| asked.access.clone());
        let Some(access) = access else { return false };
        let taken = timeout(DOUBT, still_takes(&Entered(&access), &granted, account)).await;
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

async fn still_takes(cluster: &impl Answering, granted: &Granted, account: &Account) -> Result<bool, Problem> {
    let acts = Question::Accounts(Right::Act(Mode::Classic), About::One(account));
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
fn granted(known: &Known) -> Granted {
    let is_granted = |(key, said): (&String, &survey::Extra)| match said {
        survey::Extra::Granted => Some(key.clone()),
        survey::Extra::Missing | survey::Extra::Unknown(_) => None,
    };
    let classic = Impersonation::Granted(Mode::Classic);
    let accounts = match known.all {
        Some(Mode::Classic) => Accounts::All,
        Some(Mode::Constrained) | None => {
            let these = known.accounts.iter().filter(|(_, seen)| seen.impersonation == classic);
            Accounts::These(these.map(|(account, _)| account.clone()).collect::<BTreeSet<_>>())
        }
    };
    Granted {
        keys: known.extra.iter().filter_map(is_granted).collect(),
        accounts,
    }
}

async fn ask(access: Option<Arc<ClusterAccess>>, wanted: (&[Account], &[String]), before: Option<Known>) -> Known {
    let Some(access) = access else {
        return Known::without_answers(Problem::NoCluster);
    };
    survey(&Entered(&access), wanted, before, after(WITHIN)).await
}
