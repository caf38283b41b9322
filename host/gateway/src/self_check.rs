//! Checks whether each cluster lets the gateway act in people's names, and as the service
//! accounts of Applications. It logs one warning for each missing grant, and keeps what is known
//! of each agent for operators. It refuses nothing: a gateway whose clusters do not answer starts
//! and serves.
//!
//! This file checks the grants for people; [`applications`] checks those for service accounts.
//!
//! Invariant: no person's request waits for a check.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::cluster_access::{ClusterAccess, Found};
use crate::snapshot::{Current, Snapshot};
use tollgate_core::agent::AgentId;
use tollgate_identity::access::Configuration;
use tollgate_proxy::metrics::Metrics;

pub mod accounts;
pub mod applications;
mod entered;
pub mod extras;
pub mod grants;
pub mod manifest;
mod review;
mod rights;
#[cfg(test)]
mod tests;

use extras::ExtraGrants;
use grants::{Grant, Grants, Names};
use review::{Problem, Verdict, review};

/// Interval between checks for changes of agents or clusters.
const LOOK: Duration = Duration::from_secs(1);
/// Delay until clusters that lack something, or did not answer, are asked again.
const SOON: Duration = Duration::from_secs(60);
/// Delay until all clusters are asked again, because roles change without notice.
const LATER: Duration = Duration::from_secs(15 * 60);
/// Clusters asked at once.
const AT_ONCE: usize = 4;

/// What is known of each agent. Clones share the board.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Arc<[Report]>>>);

impl Board {
    /// Reports by agent number. Empty until clusters were asked for the first time.
    pub fn reports(&self) -> Arc<[Report]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, reports: Vec<Report>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reports.into();
    }
}

/// What is known of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Its number.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// Name or server of its cluster, as in the agent's object.
    pub cluster: String,
    /// Whether its current configuration files are in force.
    pub configuration: Configuration,
    /// Whether the cluster lets the gateway act in people's names.
    pub impersonation: Impersonation,
}

/// Whether a cluster lets the gateway act in people's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Impersonation {
    /// The agent acts as itself, or is shared with nobody.
    NotNeeded,
    /// The cluster lets it.
    Granted {
        /// `classic` or `constrained`.
        mode: &'static str,
    },
    /// Grants are missing: requests of people will be refused.
    Missing {
        /// The mode in which the fewest grants are missing.
        mode: &'static str,
        /// Resources, such as `userextras/agent.gitlab.com/id`.
        missing: Vec<String>,
        /// The command that prints the required roles.
        command: String,
    },
    /// The cluster did not answer.
    Unknown {
        /// The reason.
        problem: String,
    },
}

/// What is known of clusters, for operators and for requests.
#[derive(Clone, Debug)]
pub struct Checks {
    /// Results for agents.
    pub agents: Board,
    /// Results for the service accounts of Applications.
    pub applications: applications::Board,
    /// Keys of `extra` that requests of Applications may send.
    pub extras: ExtraGrants,
}

/// Checks clusters now, and after each change of agents, Applications or clusters, on tasks of its
/// own.
///
/// - `helpers`: the set that owns the tasks.
pub fn spawn(helpers: &mut JoinSet<()>, current: &Current, metrics: &Arc<Metrics>) -> Checks {
    let (extras, doubts) = ExtraGrants::new();
    let checks = Checks {
        agents: Board::default(),
        applications: applications::Board::default(),
        extras,
    };
    let config = Arc::clone(&current.load().config);
    if config.kubernetes.is_some() {
        helpers.spawn(run(Arc::clone(current), Arc::clone(metrics), checks.agents.clone()));
    }
    if config.applications.is_some() {
        let results = applications::Results {
            metrics: Arc::clone(metrics),
            board: checks.applications.clone(),
            extras: checks.extras.clone(),
        };
        helpers.spawn(applications::run(Arc::clone(current), doubts, results));
    }
    checks
}

async fn run(current: Current, metrics: Arc<Metrics>, board: Board) {
    let (mut seen, mut asked, mut said) = (0, Plan::default(), BTreeMap::new());
    let mut due = Instant::now();
    loop {
        let generation = current.load().generation;
        let is_due = Instant::now() >= due;
        if generation != seen || is_due {
            seen = generation;
            // The snapshot is released before the clusters are asked.
            let plan = Plan::of(&current.load_full());
            if plan != asked || is_due {
                let verdicts = plan.ask().await;
                say(&plan, &verdicts, &said);
                metrics.impersonation(
                    verdicts
                        .iter()
                        .map(|(label, verdict)| (&**label, verdict.counts(&plan, label))),
                );
                board.set(plan.reports(&verdicts));
                let good = verdicts.values().all(|verdict| matches!(verdict, Verdict::Granted(_)));
                due = after(if good { LATER } else { SOON });
                (asked, said) = (plan, verdicts);
            }
        }
        sleep(LOOK).await;
    }
}

fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now)
}

/// Which clusters to ask, and what.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    agents: Vec<Planned>,
    /// Clusters by their name in metrics, or by the agent's text if no such cluster exists.
    clusters: BTreeMap<Arc<str>, Asked>,
}

#[derive(Clone, Debug, PartialEq)]
struct Planned {
    id: AgentId,
    name: String,
    /// The cluster, as in the agent's object.
    cluster: String,
    configuration: Configuration,
    /// Key in [`Plan::clusters`]. `None` if nobody is impersonated.
    label: Option<Arc<str>>,
}

#[derive(Debug)]
struct Asked {
    access: Option<Arc<ClusterAccess>>,
    grants: Grants,
}

/// Equal if asking again could not give another answer. A changed credential takes effect with the
/// next round at the latest.
impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        let way = |asked: &Self| {
            let access = asked.access.as_ref()?;
            let backend = access.backend().map(Arc::as_ptr);
            Some((backend, Arc::clone(access.provider())))
        };
        self.grants == other.grants && way(self) == way(other)
    }
}

impl Plan {
    fn of(snapshot: &Snapshot) -> Self {
        let mut plan = Self::default();
        let (Some(front), Some(settings)) = (&snapshot.kubernetes, &snapshot.config.kubernetes) else {
            return plan;
        };
        let names = Names {
            settings,
            mapping: front.policy.mapping(),
        };
        for agent in front.agents.agents() {
            let object = snapshot.resources.agents.get(&agent.name);
            let grants = object.map(|object| Grants::of(object, names)).unwrap_or_default();
            let label = (!grants.is_empty()).then(|| plan.add(snapshot, &agent.cluster, grants));
            plan.agents.push(Planned {
                id: agent.id,
                name: agent.name.clone(),
                cluster: agent.cluster.clone(),
                configuration: front.agents.configuration(agent.id),
                label,
            });
        }
        plan
    }

    fn add(&mut self, snapshot: &Snapshot, cluster: &str, grants: Grants) -> Arc<str> {
        let access = match snapshot.clusters.find(cluster) {
            Found::One(access) => Some(Arc::clone(access)),
            Found::Several(_) | Found::None => None,
        };
        let label = access
            .as_ref()
            .map_or_else(|| Arc::from(cluster), |access| Arc::clone(access.label()));
        let nothing = || Asked {
            access,
            grants: Grants::default(),
        };
        let asked = self.clusters.entry(Arc::clone(&label)).or_insert_with(nothing);
        asked.grants = std::mem::take(&mut asked.grants).and(grants);
        label
    }

    async fn ask(&self) -> BTreeMap<Arc<str>, Verdict> {
        let asking = self
            .clusters
            .iter()
            .map(|(label, asked)| ask(Arc::clone(label), asked.access.clone(), asked.grants.clone()));
        // The list must be complete before the first question.
        let asking: Vec<_> = asking.collect();
        futures_util::stream::iter(asking)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    /// The command that prints the roles missing in `label`.
    fn command(&self, label: &str) -> String {
        let here = |agent: &&Planned| agent.label.as_deref() == Some(label);
        grants::command(self.agents.iter().filter(here).map(|agent| agent.name.as_str()))
    }

    fn reports(&self, verdicts: &BTreeMap<Arc<str>, Verdict>) -> Vec<Report> {
        let report = |agent: &Planned| Report {
            id: agent.id,
            name: agent.name.clone(),
            cluster: agent.cluster.clone(),
            configuration: agent.configuration,
            impersonation: match agent
                .label
                .as_ref()
                .and_then(|label| Some((label, verdicts.get(label)?)))
            {
                None => Impersonation::NotNeeded,
                Some((_, Verdict::Granted(mode))) => Impersonation::Granted { mode: mode.as_str() },
                Some((label, Verdict::Missing { mode, grants })) => Impersonation::Missing {
                    mode: mode.as_str(),
                    missing: grants.iter().map(Grant::to_string).collect(),
                    command: self.command(label),
                },
                Some((_, Verdict::Unknown(problem))) => Impersonation::Unknown {
                    problem: problem.to_string(),
                },
            },
        };
        self.agents.iter().map(report).collect()
    }
}

async fn ask(label: Arc<str>, access: Option<Arc<ClusterAccess>>, grants: Grants) -> (Arc<str>, Verdict) {
    let verdict = match access {
        Some(access) => review(&access, &grants).await,
        None => Verdict::Unknown(Problem::NoCluster),
    };
    (label, verdict)
}

impl Verdict {
    /// Number of grants a cluster gives, lacks, and does not answer about.
    fn counts(&self, plan: &Plan, label: &str) -> [usize; 3] {
        let all = plan.clusters.get(label).map_or(0, |asked| asked.grants.iter().count());
        match self {
            Self::Granted(_) => [all, 0, 0],
            Self::Missing { grants, .. } => [all.saturating_sub(grants.len()), grants.len(), 0],
            Self::Unknown(_) => [0, 0, all],
        }
    }
}

/// Logs what was not logged already.
fn say(plan: &Plan, verdicts: &BTreeMap<Arc<str>, Verdict>, before: &BTreeMap<Arc<str>, Verdict>) {
    for (cluster, verdict) in verdicts.iter().filter(|(label, now)| before.get(*label) != Some(*now)) {
        match verdict {
            Verdict::Granted(mode) => {
                tracing::info!(%cluster, mode = mode.as_str(), "the cluster lets the gateway act in people's names");
            }
            Verdict::Missing { mode, grants } => {
                let command = plan.command(cluster);
                for grant in grants {
                    tracing::warn!(
                        %cluster, verb = mode.verb(), resource = %grant, group = grant.api_group(*mode),
                        "the gateway may not impersonate in this cluster, so people are refused there; \
                         `{command}` prints the role it needs"
                    );
                }
            }
            Verdict::Unknown(problem) => {
                tracing::warn!(%cluster, %problem, "the cluster does not say whether the gateway may impersonate");
            }
        }
    }
}
