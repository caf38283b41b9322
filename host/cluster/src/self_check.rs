//! Checks whether each cluster lets the gateway impersonate people, and the service accounts of
//! Applications. It logs one warning for each missing grant, and reports the results to operators.
//! It refuses nothing: a gateway whose clusters do not answer starts and serves.
//!
//! This file checks the grants for people; `applications` checks those for service accounts.
//!
//! Invariant: no request waits for a check.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::access::{ClusterAccess, ClusterLookup, Clusters, after};
use tollgate_config::Config;
use tollgate_core::agent::{AgentId, ConfigurationStatus};
use tollgate_identity::access::Agents;
use tollgate_objects::Resources;
use tollgate_policy::gateway_rights::grants::{ImpersonationGrant, ImpersonationGrants, NameSources};
use tollgate_proxy::metrics::Metrics;

pub(crate) mod applications;
mod cluster_reviewer;
pub mod extras;
pub mod reader;
mod review;
mod rights;
#[cfg(test)]
mod tests;

pub use applications::{AccountPlan, AccountsReport, enrollment};
use extras::ExtraGrants;
use review::{CheckError, ImpersonationVerdict, review};

/// Interval between checks for changes of agents, Applications or clusters.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay until clusters that lack a right, or did not answer, are asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// The same for clusters whose agents were not connected, which takes them some seconds after a start.
const AGENT_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Delay until all clusters are asked again, because roles change without notice.
const FULL_CHECK_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Clusters that are asked at once. One that hangs keeps its place for as long as its timeout.
const MAX_CONCURRENT_CLUSTERS: usize = 32;

/// What was found about an agent, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentReport {
    #[serde(flatten)]
    agent: PlannedAgent,
    impersonation: ImpersonationStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum ImpersonationStatus {
    NotNeeded,
    Granted {
        /// `classic` or `constrained`.
        mode: &'static str,
    },
    Missing {
        /// The mode in which the fewest grants are missing.
        mode: &'static str,
        /// Resources, such as `userextras/agent.gitlab.com/id`.
        missing: Vec<String>,
        command: String,
    },
    Unknown {
        problem: String,
    },
}

/// The configuration in force, as far as the checks read it.
pub trait Configuration: std::fmt::Debug + Send + Sync + 'static {
    /// Counts up with every change of the configuration.
    fn generation(&self) -> u64;

    /// What to ask clusters about agents.
    fn agents(&self) -> AgentPlan;

    /// What to ask clusters about the service accounts of Applications. Blocks for some
    /// milliseconds when there are thousands of Applications.
    fn accounts(&self) -> AccountPlan;
}

/// The results of the checks, for operators and for requests.
#[derive(Clone, Debug)]
pub struct CheckResults {
    /// By agent number. Empty until clusters were asked for the first time.
    pub agents: Arc<ArcSwap<Vec<AgentReport>>>,
    /// Has mode `off` and no clusters until clusters were asked.
    pub applications: Arc<ArcSwap<AccountsReport>>,
    /// The keys of `extra` that requests may send.
    pub extras: ExtraGrants,
}

/// Starts the tasks that check clusters: now, after each change of agents, Applications or
/// clusters, and periodically.
///
/// - `helpers`: the set that owns the tasks.
pub fn spawn(
    helpers: &mut JoinSet<()>,
    config: &Config,
    current: &Arc<dyn Configuration>,
    metrics: &Arc<Metrics>,
) -> CheckResults {
    let (extras, forbidden) = ExtraGrants::new();
    let checks = CheckResults {
        agents: Arc::default(),
        applications: Arc::default(),
        extras,
    };
    if config.kubernetes.is_some() {
        helpers.spawn(run(Arc::clone(current), Arc::clone(metrics), checks.agents.clone()));
    }
    if config.applications.is_some() {
        helpers.spawn(applications::run(
            Arc::clone(current),
            forbidden,
            Arc::clone(metrics),
            checks.clone(),
        ));
    }
    checks
}

async fn run(current: Arc<dyn Configuration>, metrics: Arc<Metrics>, reports: Arc<ArcSwap<Vec<AgentReport>>>) {
    let (mut last_generation, mut last_plan, mut last_verdicts) = (0, AgentPlan::default(), BTreeMap::new());
    let mut due = Instant::now();
    loop {
        let generation = current.generation();
        let is_due = Instant::now() >= due;
        if generation != last_generation || is_due {
            last_generation = generation;
            let plan = current.agents();
            if plan != last_plan || is_due {
                let verdicts = plan.ask().await;
                log_changes(&plan, &verdicts, &last_verdicts);
                metrics.set_impersonation_grants(
                    verdicts
                        .iter()
                        .map(|(label, verdict)| (&**label, verdict.counts(&plan, label))),
                );
                reports.store(Arc::new(plan.reports(&verdicts)));
                let good = verdicts
                    .values()
                    .all(|verdict| matches!(verdict, ImpersonationVerdict::Granted(_)));
                due = after(if good { FULL_CHECK_INTERVAL } else { RETRY_INTERVAL });
                (last_plan, last_verdicts) = (plan, verdicts);
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Which clusters to ask about agents, and which grants each needs.
#[derive(Debug, Default, PartialEq)]
pub struct AgentPlan {
    agents: Vec<PlannedAgent>,
    /// Clusters by their name in metrics, or by the agent's text if no such cluster exists.
    clusters: BTreeMap<Arc<str>, ClusterGrants>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PlannedAgent {
    id: AgentId,
    name: String,
    /// Name or server of its cluster, as in the agent's object.
    cluster: String,
    configuration: ConfigurationStatus,
    /// Key in [`AgentPlan::clusters`]. `None` if nobody is impersonated.
    #[serde(skip)]
    label: Option<Arc<str>>,
}

#[derive(Debug)]
struct ClusterGrants {
    access: Option<Arc<ClusterAccess>>,
    grants: ImpersonationGrants,
}

/// Two are equal if asking again could not give another answer. A changed credential takes effect
/// with the next round at the latest.
impl PartialEq for ClusterGrants {
    fn eq(&self, other: &Self) -> bool {
        self.grants == other.grants && is_same_connection(self.access.as_ref(), other.access.as_ref())
    }
}

fn is_same_connection(one: Option<&Arc<ClusterAccess>>, other: Option<&Arc<ClusterAccess>>) -> bool {
    let connection = |access: &Arc<ClusterAccess>| (access.backend().map(Arc::as_ptr), Arc::clone(&access.provider));
    one.map(connection) == other.map(connection)
}

impl AgentPlan {
    /// Plans what to ask about `agents`, whose clusters are among `clusters`.
    pub fn of(agents: &Agents, names: NameSources<'_>, resources: &Resources, clusters: &Clusters) -> Self {
        let mut plan = Self::default();
        for agent in agents.agents() {
            let object = resources.agents.get(&agent.name);
            let grants = object
                .map(|object| ImpersonationGrants::of(object, names))
                .unwrap_or_default();
            let label = (!grants.is_empty()).then(|| plan.add(clusters, &agent.cluster, grants));
            plan.agents.push(PlannedAgent {
                id: agent.id,
                name: agent.name.clone(),
                cluster: agent.cluster.clone(),
                configuration: agents.configuration(agent.id),
                label,
            });
        }
        plan
    }

    fn add(&mut self, clusters: &Clusters, cluster: &str, grants: ImpersonationGrants) -> Arc<str> {
        let access = match clusters.find(cluster) {
            ClusterLookup::One(access) => Some(Arc::clone(access)),
            ClusterLookup::Several(_) | ClusterLookup::None => None,
        };
        let label = access
            .as_ref()
            .map_or_else(|| Arc::from(cluster), |access| Arc::clone(&access.label));
        let no_grants = || ClusterGrants {
            access,
            grants: ImpersonationGrants::default(),
        };
        let needed = self.clusters.entry(Arc::clone(&label)).or_insert_with(no_grants);
        needed.grants = std::mem::take(&mut needed.grants).union(grants);
        label
    }

    async fn ask(&self) -> BTreeMap<Arc<str>, ImpersonationVerdict> {
        let reviews = self.clusters.iter().map(|(label, cluster)| {
            let (label, access, grants) = (Arc::clone(label), cluster.access.clone(), cluster.grants.clone());
            async move {
                let verdict = match access {
                    Some(access) => review(&access, &grants).await,
                    None => ImpersonationVerdict::Unknown(CheckError::NoCluster),
                };
                (label, verdict)
            }
        });
        // Collected first, so that the stream does not borrow the plan.
        futures_util::stream::iter(reviews.collect::<Vec<_>>())
            .buffer_unordered(MAX_CONCURRENT_CLUSTERS)
            .collect()
            .await
    }

    /// The command that prints the roles of a cluster's agents.
    fn command(&self, label: &str) -> String {
        let here = self.agents.iter().filter(|agent| agent.label.as_deref() == Some(label));
        let command = "tollgate rbac manifest".to_owned();
        here.fold(command, |command, agent| command + " --agent " + &agent.name)
    }

    fn reports(&self, verdicts: &BTreeMap<Arc<str>, ImpersonationVerdict>) -> Vec<AgentReport> {
        let report = |agent: &PlannedAgent| AgentReport {
            agent: agent.clone(),
            impersonation: match agent
                .label
                .as_ref()
                .and_then(|label| Some((label, verdicts.get(label)?)))
            {
                None => ImpersonationStatus::NotNeeded,
                Some((_, ImpersonationVerdict::Granted(mode))) => ImpersonationStatus::Granted { mode: mode.into() },
                Some((label, ImpersonationVerdict::Missing { mode, grants })) => ImpersonationStatus::Missing {
                    mode: mode.into(),
                    missing: grants.iter().map(ImpersonationGrant::to_string).collect(),
                    command: self.command(label),
                },
                Some((_, ImpersonationVerdict::Unknown(problem))) => ImpersonationStatus::Unknown {
                    problem: problem.to_string(),
                },
            },
        };
        self.agents.iter().map(report).collect()
    }
}

impl ImpersonationVerdict {
    /// Number of grants a cluster gives, lacks, and does not answer about.
    fn counts(&self, plan: &AgentPlan, label: &str) -> [usize; 3] {
        let all = plan
            .clusters
            .get(label)
            .map_or(0, |cluster| cluster.grants.iter().count());
        match self {
            Self::Granted(_) => [all, 0, 0],
            Self::Missing { grants, .. } => [all.saturating_sub(grants.len()), grants.len(), 0],
            Self::Unknown(_) => [0, 0, all],
        }
    }
}

fn log_changes(
    plan: &AgentPlan,
    verdicts: &BTreeMap<Arc<str>, ImpersonationVerdict>,
    before: &BTreeMap<Arc<str>, ImpersonationVerdict>,
) {
    for (cluster, verdict) in verdicts.iter().filter(|(label, now)| before.get(*label) != Some(*now)) {
        match verdict {
            ImpersonationVerdict::Granted(mode) => {
                tracing::info!(%cluster, mode = <&str>::from(mode), "the cluster lets the gateway act in people's names");
            }
            ImpersonationVerdict::Missing { mode, grants } => {
                let command = plan.command(cluster);
                for grant in grants {
                    tracing::warn!(
                        %cluster, verb = mode.verb(), resource = %grant, group = grant.api_group(*mode),
                        "the gateway may not impersonate in this cluster, so people are refused there; \
                         `{command}` prints the role it needs"
                    );
                }
            }
            ImpersonationVerdict::Unknown(problem) => {
                tracing::warn!(%cluster, %problem, "the cluster does not say whether the gateway may impersonate");
            }
        }
    }
}
