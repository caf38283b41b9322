//! What the process gives its fronts, for as long as it runs.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use http::Extensions;

use crate::blocking::BlockingWork;
use crate::load_findings::LoadFindings;
use crate::open_exchanges::OpenExchanges;
use crate::restriction::RestrictionsCache;
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
pub(crate) struct Services {
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) current: CurrentSnapshot,
    pub(crate) open: Arc<OpenExchanges>,
    /// Requests of each person at once.
    pub(crate) persons: Arc<Limiter>,
    /// As `persons`, for pages of the console. What a page asks counts in `persons`.
    pub(crate) pages: Arc<Limiter>,
    /// As `persons`, for Argo CD's own components: it refuses nothing.
    pub(crate) components: Arc<Limiter>,
    pub(crate) blocking: BlockingWork,
    /// Signs what backends are told about callers.
    pub(crate) signer: Arc<SigningKeys>,
    /// The agents that are connected.
    pub(crate) agents: Arc<Connections>,
    /// `None` if the settings name no store.
    pub(crate) store: Option<Arc<Store>>,
    /// The kinds of each cluster.
    pub(crate) discovery: Arc<Discovery>,
    /// What projects permit in each cluster.
    pub(crate) restrictions: Arc<RestrictionsCache>,
    /// The keys of `extra` that clusters accept with accounts.
    pub(crate) extras: ExtraGrants,
    /// Where objects are written.
    pub(crate) source: Arc<dyn Source>,
    /// Evaluates policies for whoever tries them.
    pub(crate) checker: Checker,
    pub(crate) findings: LoadFindings,
    pub(crate) system: Arc<dyn System>,
    /// What other parts of the process use, too.
    pub(crate) states: States,
}

/// The state of this replica.
pub(crate) trait System: Debug + Send + Sync {
    /// JSON for the API.
    fn report(&self) -> Vec<u8>;
}

/// States by their types, which are made before the fronts are. One is absent while the settings close what it is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct States(Extensions);

impl States {
    #[must_use]
    pub(crate) fn with<T: Any + Send + Sync>(mut self, state: Option<Arc<T>>) -> Self {
        if let Some(state) = state {
            self.0.insert(state);
        }
        self
    }

    pub(crate) fn of<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.get().cloned()
    }
}
