//! What the process gives its fronts, for as long as it runs.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use http::Extensions;

use crate::blocking::BlockingWork;
use crate::caches::Caches;
use crate::load_findings::LoadFindings;
use crate::open_exchanges::OpenExchanges;
use crate::snapshot::CurrentSnapshot;
use tollgate_agent::Connections;
use tollgate_cluster::discovery::Discovery;
use tollgate_cluster::self_check::extras::ExtraGrants;
use tollgate_config::Config;
use tollgate_proxy::assertion::SigningKeys;
use tollgate_proxy::forward::Limiter;
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::Recorder;
use tollgate_rego::Checker;
use tollgate_state::source::Source;
use tollgate_store::Store;

/// What the process gives its fronts.
#[derive(Debug)]
pub struct Services {
    /// The settings.
    pub config: Arc<Config>,
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Decisions that this replica remembers.
    pub recorder: Arc<Recorder>,
    /// The snapshot in force.
    pub current: CurrentSnapshot,
    /// Exchanges that are asked again after each change.
    pub open: Arc<OpenExchanges>,
    /// Requests of each person at once.
    pub persons: Arc<Limiter>,
    /// As `persons`, for pages of the console. What a page asks counts in `persons`.
    pub pages: Arc<Limiter>,
    /// As `persons`, for Argo CD's own components: it refuses nothing.
    pub components: Arc<Limiter>,
    /// Runs what takes long away from the threads that serve.
    pub blocking: BlockingWork,
    /// Signs the assertions about callers that backends receive.
    pub signer: Arc<SigningKeys>,
    /// The agents that are connected.
    pub agents: Arc<Connections>,
    /// `None` if the settings name no store.
    pub store: Option<Arc<Store>>,
    /// The kinds of each cluster.
    pub discovery: Arc<Discovery>,
    /// The keys of `extra` that clusters accept with accounts.
    pub extras: ExtraGrants,
    /// Where objects are written.
    pub source: Arc<dyn Source>,
    /// Evaluates policies for callers who try them.
    pub checker: Checker,
    /// Findings of the last loads.
    pub findings: LoadFindings,
    /// The state of this replica.
    pub system: Arc<dyn System>,
    /// What other parts of the process use, too.
    pub states: States,
    /// What several fronts keep for as long as the process runs.
    pub caches: Caches,
}

/// The state of this replica.
pub trait System: Debug + Send + Sync {
    /// JSON for the API.
    fn report(&self) -> Vec<u8>;
}

/// States by their types, which are made before the fronts are. One is absent while the settings close what it is for.
#[derive(Clone, Debug, Default)]
pub struct States(Extensions);

impl States {
    /// Adds a state; nothing for `None`.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, state: Option<Arc<T>>) -> Self {
        if let Some(state) = state {
            self.0.insert(state);
        }
        self
    }

    /// The state of a type; `None` if there is none.
    pub fn of<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.get().cloned()
    }
}
