//! Watches the Kubernetes objects at the API server of the control plane's cluster.
//!
//! The watches run on their own thread with its own runtime, so reading ten thousand Applications
//! takes no time from requests, and commands without a runtime can load as well. An object is
//! decoded when it arrives; the parser drops the parts that are not needed.
//!
//! Invariant: a load gives a complete state or none, and objects do not vanish because a watch
//! broke.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Source;
use crate::watch::{Timing, Watch, watch_counter};
use crate::write::{ClusterWriter, Error, Writer};
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_objects::decode::last_known_good::DecodedInput;
use tollgate_objects::decode::load::LoadHistory;
use tollgate_objects::{ApplicationSetStatuses, Resources, WatchAge};

mod kinds;
mod object;
mod shared_state;
mod watch_failure;
mod watch_loop;
mod watch_store;

use shared_state::SharedState;

/// Longest time the first load waits until every kind has been listed.
pub const FIRST_LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A storm of events is signaled once a second. A single event is seen at once.
const TIMING: Timing = Timing {
    quiet_period: Duration::from_millis(100),
    max_delay: Duration::from_secs(1),
    poll: Duration::MAX,
};

/// The [`Source`] that watches the objects of one control plane.
#[derive(derive_more::Debug)]
#[debug("Kubernetes {{ namespace: {namespace:?}, .. }}")]
pub struct KubernetesSource {
    namespace: String,
    shared: Arc<SharedState>,
    deadline: Instant,
    history: Mutex<LoadHistory>,
    _stop: DropGuard,
}

impl KubernetesSource {
    /// Starts watching; `namespace` is the control plane's. The first load waits at most `bound`.
    pub fn start(settings: KubernetesState, namespace: &str, bound: Duration) -> Self {
        let shared = Arc::new(SharedState::new(&settings, namespace));
        let stop = CancellationToken::new();
        let thread = std::thread::Builder::new().name("state".to_owned());
        let spawned = thread.spawn({
            let (shared, stop) = (Arc::clone(&shared), stop.clone());
            move || watch_loop::run(&shared, &settings, &stop)
        });
        if let Err(error) = spawned {
            shared.record_connection_error(format!("no thread can be started: {error}"));
        }
        Self {
            namespace: namespace.to_owned(),
            shared,
            deadline: Instant::now() + bound,
            history: Mutex::default(),
            _stop: stop.drop_guard(),
        }
    }
}

impl Source for KubernetesSource {
    fn load(&self) -> Loaded<Arc<Resources>> {
        let decoded = match self.shared.wait_until_listed(self.deadline) {
            Ok(decoded) => decoded,
            Err(missing) => return Loaded::refused(missing),
        };
        let input = |items| DecodedInput { file: None, items };
        let decoded = decoded.into_iter().map(input).collect();
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.load(decoded, Vec::new(), &self.namespace)
    }

    fn missing(&self) -> Vec<Diagnostic> {
        self.shared.missing()
    }

    fn last_known_good(&self) -> Option<Arc<Resources>> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.last_known_good()
    }

    fn health(&self) -> Vec<Diagnostic> {
        self.shared.health()
    }

    fn certificate_end(&self) -> Option<u64> {
        self.shared.certificate_end()
    }

    fn watch_ages(&self) -> Vec<WatchAge> {
        self.shared.watch_ages()
    }

    fn watch(&self) -> BoxFuture<'_, Watch> {
        Box::pin(std::future::ready(watch_counter(self.shared.count(), TIMING)))
    }

    fn application_set_statuses(&self) -> Option<watch::Receiver<Arc<ApplicationSetStatuses>>> {
        Some(self.shared.statuses())
    }

    fn writer(&self) -> Result<Writer, Error> {
        let client = self.shared.client().ok_or(Error::NotConnected)?;
        Ok(Writer::Cluster(ClusterWriter::new(client)))
    }
}
