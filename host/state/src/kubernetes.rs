//! Watches the Kubernetes objects at the API server of the control plane's cluster.
//!
//! The watches run on their own thread with its own runtime, so reading ten thousand Applications
//! takes no time from requests, and commands without a runtime can load as well. An object is
//! decoded when it arrives; the parser drops the parts that are not needed.
//!
//! Invariant: a load gives a complete state or none, and objects do not vanish because a watch
//! broke.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Resources;
use super::decode::last_known_good::{self, DecodedInput};
use super::decode::read::DecodedItem;
use super::decode::{Collector, LoadMemo, collect_ignoring_errors};
use super::source::{Error, Source, WriteTarget};
use super::watch::{Timing, Watch, watch_counter};
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::{Diagnostic, Loaded};

mod connect;
mod error_text;
mod kinds;
mod object;
mod shared_state;
mod watch_failure;
mod watch_loop;
mod watch_store;

pub(crate) use connect::connect;
pub(crate) use error_text::describe_client_error;
use shared_state::SharedState;

/// Longest time the first load waits until every kind has been listed.
pub const FIRST_LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A storm of events causes one reload a second. A single event is seen at once.
const TIMING: Timing = Timing {
    quiet_period: Duration::from_millis(100),
    max_delay: Duration::from_secs(1),
    poll: Duration::MAX,
};

/// The [`Source`] that watches the objects of one control plane.
pub struct KubernetesSource {
    namespace: String,
    shared: Arc<SharedState>,
    deadline: Instant,
    cache: Mutex<LoadCache>,
    _stop: DropGuard,
}

impl fmt::Debug for KubernetesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Results kept between loads.
#[derive(Default)]
struct LoadCache {
    memo: LoadMemo,
    last: Option<LastLoad>,
    /// What each object last decoded to without mistakes.
    last_good: Vec<DecodedInput>,
}

/// The result of the last load.
struct LastLoad {
    decoded: Vec<Arc<[DecodedItem]>>,
    resources: Option<Arc<Resources>>,
    /// The last known good resources, if the load was refused.
    last_known_good: Option<Arc<Resources>>,
    findings: Vec<Diagnostic>,
}

impl KubernetesSource {
    /// Starts watching; `namespace` is the control plane's. The first load waits at most
    /// [`FIRST_LOAD_TIMEOUT`].
    pub fn start(settings: KubernetesState, namespace: &str) -> Self {
        Self::start_within(settings, namespace, FIRST_LOAD_TIMEOUT)
    }

    /// Like [`KubernetesSource::start`], with another bound on the first load.
    pub fn start_within(settings: KubernetesState, namespace: &str, bound: Duration) -> Self {
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
            cache: Mutex::default(),
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
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.load(decoded, &self.namespace)
    }

    fn last_known_good(&self) -> Option<Arc<Resources>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.last.as_ref()?.last_known_good.clone()
    }

    fn health(&self) -> Vec<Diagnostic> {
        self.shared.health()
    }

    fn watch(&self) -> BoxFuture<'_, Watch> {
        Box::pin(std::future::ready(watch_counter(self.shared.count(), TIMING)))
    }

    fn write_target(&self) -> Result<WriteTarget, Error> {
        self.shared
            .client()
            .map(WriteTarget::Cluster)
            .ok_or(Error::NotConnected)
    }
}

impl LoadCache {
    fn load(&mut self, decoded: Vec<Arc<[DecodedItem]>>, namespace: &str) -> Loaded<Arc<Resources>> {
        if let Some(last) = &self.last
            && decoded.len() == last.decoded.len()
            && decoded
                .iter()
                .zip(&last.decoded)
                .all(|(now, then)| Arc::ptr_eq(now, then))
        {
            return Loaded {
                value: last.resources.clone(),
                diagnostics: last.findings.clone(),
            };
        }
        let mut collector = Collector::new(namespace);
        for items in &decoded {
            collector.add(items);
        }
        let (resources, findings) = collector.finish(&mut self.memo);
        let loaded = Loaded::new(Arc::new(resources), findings);
        let of = |items: &Arc<[DecodedItem]>| DecodedInput {
            file: None,
            items: Arc::clone(items),
        };
        let now: Vec<DecodedInput> = decoded.iter().map(of).collect();
        let last_known_good = match &loaded.value {
            Some(_) => {
                self.last_good = now;
                None
            }
            None => {
                self.last_good =
                    last_known_good::last_known_good(&now, &self.last_good, last_known_good::Completeness::Complete);
                Some(collect_ignoring_errors(&self.last_good, namespace, &self.memo))
            }
        };
        self.last = Some(LastLoad {
            decoded,
            last_known_good,
            resources: loaded.value.clone(),
            findings: loaded.diagnostics.clone(),
        });
        loaded
    }
}
