//! The state that the watching thread shares with the threads that load: the decoded objects, the
//! failures of watches, and a count of changes.
//!
//! Invariant: no lock is held across an await.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::time::Instant;

use super::kinds::{WatchRequirement, WatchSpec, watch_specs};
use super::object::Object;
use super::watch_failure::WatchFailure;
use super::watch_store::{WatchState, WatchStore};
use crate::decode::read::DecodedItem;
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::Diagnostic;

pub(super) struct SharedState {
    namespace: String,
    inner: Mutex<Inner>,
    /// Notified when a watch makes progress.
    progress: Condvar,
    count: watch::Sender<u64>,
}

struct Inner {
    /// The client, whose server may be unreachable; without one the reason, if known.
    client: Result<Client, Option<WatchFailure>>,
    stores: Vec<WatchStore>,
}

impl SharedState {
    pub(super) fn new(settings: &KubernetesState, namespace: &str) -> Self {
        let specs = watch_specs(settings, namespace);
        Self {
            namespace: namespace.to_owned(),
            inner: Mutex::new(Inner {
                client: Err(None),
                stores: specs.into_iter().map(WatchStore::new).collect(),
            }),
            progress: Condvar::new(),
            count: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.progress.notify_all();
        self.count.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn watches(&self) -> Vec<WatchSpec> {
        self.lock().stores.iter().map(|store| store.spec.clone()).collect()
    }

    pub(super) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    pub(super) fn client(&self) -> Option<Client> {
        self.lock().client.as_ref().ok().cloned()
    }

    pub(super) fn record_client(&self, client: Client) {
        self.lock().client = Ok(client);
    }

    pub(super) fn record_connection_error(&self, message: String) {
        self.lock().client = Err(Some(WatchFailure::other(message)));
        self.notify();
    }

    pub(super) fn apply<const WHOLE: bool>(&self, watch: usize, event: Event<Object<WHOLE>>) {
        self.update(watch, |store| store.apply(event, &self.namespace));
    }

    pub(super) fn fail(&self, watch: usize, failure: WatchFailure) {
        self.update(watch, |store| store.fail(failure));
    }

    fn update(&self, watch: usize, change: impl FnOnce(&mut WatchStore) -> bool) {
        let changed = self.lock().stores.get_mut(watch).is_some_and(change);
        if changed {
            self.notify();
        }
    }

    /// Records that every watch broke by a bug of the gateway.
    pub(super) fn fail_all(&self) {
        for (number, spec) in self.watches().iter().enumerate() {
            self.fail(number, WatchFailure::broken(spec));
        }
    }

    /// The items of all objects, in the order of kinds and names. Waits until every kind has been
    /// listed, at most until `deadline`; then reports what is missing.
    pub(super) fn wait_until_listed(&self, deadline: Instant) -> Result<Vec<Arc<[DecodedItem]>>, Vec<Diagnostic>> {
        let mut inner = self.lock();
        while !inner.is_complete() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(inner.missing());
            }
            let waited = self.progress.wait_timeout(inner, remaining);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(inner.stores.iter().flat_map(WatchStore::decoded_items).collect())
    }

    pub(super) fn health(&self) -> Vec<Diagnostic> {
        let inner = self.lock();
        let of = |store: &WatchStore| match &store.state {
            WatchState::Syncing(_) | WatchState::Synced => None,
            WatchState::Unavailable(failure) if store.spec.requirement == WatchRequirement::Optional => {
                Some(failure.warning())
            }
            WatchState::Unavailable(failure) => {
                let namespace = store.spec.namespace.as_deref().unwrap_or_default();
                Some(failure.error(&format!("nothing of namespace `{namespace}` is known: ")))
            }
            WatchState::Stale(failure) => Some(failure.error("what is known stays, and may be old: ")),
        };
        inner.stores.iter().filter_map(of).collect()
    }
}

impl Inner {
    fn is_complete(&self) -> bool {
        let known = |store: &WatchStore| !matches!(store.state, WatchState::Syncing(_));
        self.stores.iter().all(known)
    }

    fn missing(&self) -> Vec<Diagnostic> {
        if let Err(failure) = &self.client {
            let unknown = WatchFailure::other("there was no answer in time".to_owned());
            let failure = failure.as_ref().unwrap_or(&unknown);
            return vec![failure.error("the API server of the control plane cannot be reached: ")];
        }
        let of = |store: &WatchStore| match &store.state {
            WatchState::Syncing(Some(failure)) => Some(failure.error("")),
            WatchState::Syncing(None) => {
                let message = format!("{} were not all there in time", store.spec.resource());
                Some(WatchFailure::other(message).error(""))
            }
            WatchState::Synced | WatchState::Unavailable(_) | WatchState::Stale(_) => None,
        };
        self.stores.iter().filter_map(of).collect()
    }
}
