//! Watches the Kubernetes objects at the API server of the control plane's cluster.
//!
//! A thread of its own with a runtime of its own keeps the watches: reading ten thousand
//! Applications takes no time from requests, and commands without a runtime can load as well. An
//! object is decoded when it arrives; the parser drops the parts that are not needed.
//!
//! Invariant: a state is complete or it is not given out, and objects do not vanish because a watch
//! broke.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Resources;
use super::decode::mended::{self, DecodedInput};
use super::decode::read::DecodedItem;
use super::decode::{Collector, LoadMemo, collected};
use super::source::{Error, Source, WriteTarget};
use super::watch::{Timing, Watch, follow as follow_count};
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::{Diagnostic, Loaded};

mod connect;
mod follow;
mod held;
mod kinds;
mod object;
mod problem;
mod shared;
mod words;

pub(crate) use connect::connect;
use shared::SharedState;
pub(crate) use words::of_client;

/// Longest time the first load waits until every kind has been listed.
pub const FIRST_LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A storm of events causes one reload a second. A single event is seen at once.
const TIMING: Timing = Timing {
    settle: Duration::from_millis(100),
    patience: Duration::from_secs(1),
    poll: Duration::MAX,
};

/// The objects of one control plane, watched.
pub struct Kubernetes {
    namespace: String,
    shared: Arc<SharedState>,
    deadline: Instant,
    kept: Mutex<LoadCache>,
    _stop: DropGuard,
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// What is kept from load to load.
#[derive(Default)]
struct LoadCache {
    memo: LoadMemo,
    last: Option<LastLoad>,
    /// What each object last said without mistakes.
    good: Vec<DecodedInput>,
}

/// The result of the last load.
struct LastLoad {
    said: Vec<Arc<[DecodedItem]>>,
    resources: Option<Arc<Resources>>,
    /// The mended resources, if the load was refused.
    mended: Option<Arc<Resources>>,
    findings: Vec<Diagnostic>,
}

impl Kubernetes {
    /// Starts watching; `namespace` is the control plane's. The first load waits at most [`FIRST_LOAD_TIMEOUT`].
    pub fn start(settings: KubernetesState, namespace: &str) -> Self {
        Self::start_within(settings, namespace, FIRST_LOAD_TIMEOUT)
    }

    /// Like [`Kubernetes::start`], with another bound on the first load.
    pub fn start_within(settings: KubernetesState, namespace: &str, bound: Duration) -> Self {
        let shared = Arc::new(SharedState::new(&settings, namespace));
        let stop = CancellationToken::new();
        let thread = std::thread::Builder::new().name("state".to_owned());
        let spawned = thread.spawn({
            let (shared, stop) = (Arc::clone(&shared), stop.clone());
            move || follow::run(&shared, &settings, &stop)
        });
        if let Err(error) = spawned {
            shared.unconnected(format!("no thread can be started: {error}"));
        }
        Self {
            namespace: namespace.to_owned(),
            shared,
            deadline: Instant::now() + bound,
            kept: Mutex::default(),
            _stop: stop.drop_guard(),
        }
    }
}

impl Source for Kubernetes {
    fn load(&self) -> Loaded<Arc<Resources>> {
        let said = match self.shared.complete(self.deadline) {
            Ok(said) => said,
            Err(missing) => return Loaded::refused(missing),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.load(said, &self.namespace)
    }

    fn mended(&self) -> Option<Arc<Resources>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last.as_ref()?.mended.clone()
    }

    fn health(&self) -> Vec<Diagnostic> {
        self.shared.health()
    }

    fn watch(&self) -> BoxFuture<'_, Watch> {
        Box::pin(std::future::ready(follow_count(self.shared.count(), TIMING)))
    }

    fn place(&self) -> Result<WriteTarget, Error> {
        self.shared
            .client()
            .map(WriteTarget::Cluster)
            .ok_or(Error::NotConnected)
    }
}

impl LoadCache {
    fn load(&mut self, said: Vec<Arc<[DecodedItem]>>, namespace: &str) -> Loaded<Arc<Resources>> {
        if let Some(last) = &self.last
            && said.len() == last.said.len()
            && said.iter().zip(&last.said).all(|(now, then)| Arc::ptr_eq(now, then))
        {
            return Loaded {
                value: last.resources.clone(),
                diagnostics: last.findings.clone(),
            };
        }
        let mut collector = Collector::new(namespace);
        for pieces in &said {
            collector.take(pieces);
        }
        let (resources, findings) = collector.finish(&mut self.memo);
        let loaded = Loaded::new(Arc::new(resources), findings);
        let of = |pieces: &Arc<[DecodedItem]>| DecodedInput {
            file: None,
            pieces: Arc::clone(pieces),
        };
        let now: Vec<DecodedInput> = said.iter().map(of).collect();
        let mended = match &loaded.value {
            Some(_) => {
                self.good = now;
                None
            }
            None => {
                self.good = mended::mended(&now, &self.good, mended::Found::All);
                Some(collected(&self.good, namespace, &self.memo))
            }
        };
        self.last = Some(LastLoad {
            said,
            mended,
            resources: loaded.value.clone(),
            findings: loaded.diagnostics.clone(),
        });
        loaded
    }
}
