//! The state that the watching thread shares with the threads that load: what all objects say once
//! every kind has been listed, what is wrong, and a count of changes.
//!
//! Invariant: no lock is held across an await.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::time::Instant;

use super::held::{StoreChange, WatchState, WatchStore};
use super::kinds::{WatchRequirement, WatchSpec, watched};
use super::object::Object;
use super::problem::WatchFailure;
use crate::decode::read::DecodedItem;
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::Diagnostic;

/// The shared state.
pub(super) struct SharedState {
    namespace: String,
    inner: Mutex<Inner>,
    /// Notified when a watch makes progress.
    progress: Condvar,
    count: watch::Sender<u64>,
}

struct Inner {
    connection: Connection,
    held: Vec<WatchStore>,
}

enum Connection {
    /// There is none yet; with the reason, if known.
    None(Option<WatchFailure>),
    /// There is a client; its server may be unreachable.
    Client(Client),
}

impl SharedState {
    pub(super) fn new(settings: &KubernetesState, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            inner: Mutex::new(Inner {
                connection: Connection::None(None),
                held: watched(settings, namespace).into_iter().map(WatchStore::new).collect(),
            }),
            progress: Condvar::new(),
            count: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, effect: StoreChange) {
        if effect == StoreChange::Changed {
            self.progress.notify_all();
            self.count.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Every watch, by its number.
    pub(super) fn watches(&self) -> Vec<WatchSpec> {
        self.lock().held.iter().map(|held| held.watched.clone()).collect()
    }

    /// A counter that increases with every change.
    pub(super) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// The client, once there is one.
    pub(super) fn client(&self) -> Option<Client> {
        match &self.lock().connection {
            Connection::None(_) => None,
            Connection::Client(client) => Some(client.clone()),
        }
    }

    /// Records that there is a client.
    pub(super) fn connected(&self, client: Client) {
        self.lock().connection = Connection::Client(client);
    }

    /// Records that there is no client, and why.
    pub(super) fn record_connection_error(&self, message: String) {
        self.lock().connection = Connection::None(Some(WatchFailure::other(message)));
        self.notify(StoreChange::Changed);
    }

    /// Applies an event of a watch.
    pub(super) fn apply(&self, watch: usize, event: Event<Object>) {
        let effect = match self.lock().held.get_mut(watch) {
            Some(held) => held.apply(event, &self.namespace),
            None => StoreChange::Nothing,
        };
        self.notify(effect);
    }

    /// Records that a watch broke.
    pub(super) fn fail(&self, watch: usize, problem: WatchFailure) {
        let effect = match self.lock().held.get_mut(watch) {
            Some(held) => held.fail(problem),
            None => StoreChange::Nothing,
        };
        self.notify(effect);
    }

    /// Records that every watch broke by a bug of the gateway.
    pub(super) fn fail_all(&self) {
        let mut effect = StoreChange::Nothing;
        for held in &mut self.lock().held {
            let problem = WatchFailure::broken(&held.watched);
            if held.fail(problem) == StoreChange::Changed {
                effect = StoreChange::Changed;
            }
        }
        self.notify(effect);
    }

    /// What all objects say, in the order of kinds and names. Waits until every kind has been
    /// listed, at most until `deadline`; then reports what is missing.
    pub(super) fn wait_until_listed(&self, deadline: Instant) -> Result<Vec<Arc<[DecodedItem]>>, Vec<Diagnostic>> {
        let mut inner = self.lock();
        while !inner.is_complete() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(inner.missing());
            }
            let waited = self.progress.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(inner.held.iter().flat_map(WatchStore::decoded_items).collect())
    }

    /// What keeps watches from being up to date, and the kinds that are missing.
    pub(super) fn health(&self) -> Vec<Diagnostic> {
        let inner = self.lock();
        let of = |held: &WatchStore| match &held.state {
            WatchState::Waiting(_) | WatchState::Current => None,
            WatchState::Absent(problem) if held.watched.need == WatchRequirement::Optional => Some(problem.warning()),
            WatchState::Absent(problem) => {
                let namespace = held.watched.namespace.as_deref().unwrap_or_default();
                Some(problem.error(&format!("nothing of namespace `{namespace}` is known: ")))
            }
            WatchState::Stale(problem) => Some(problem.error("what is known stays, and may be old: ")),
        };
        inner.held.iter().filter_map(of).collect()
    }
}

impl Inner {
    fn is_complete(&self) -> bool {
        let known = |held: &WatchStore| !matches!(held.state, WatchState::Waiting(_));
        self.held.iter().all(known)
    }

    fn missing(&self) -> Vec<Diagnostic> {
        if let Connection::None(problem) = &self.connection {
            let unknown = WatchFailure::other("there was no answer in time".to_owned());
            let problem = problem.as_ref().unwrap_or(&unknown);
            return vec![problem.error("the API server of the control plane cannot be reached: ")];
        }
        let of = |held: &WatchStore| match &held.state {
            WatchState::Waiting(Some(problem)) => Some(problem.error("")),
            WatchState::Waiting(None) => {
                let message = format!("{} were not all there in time", held.watched.resource());
                Some(WatchFailure::other(message).error(""))
            }
            WatchState::Current | WatchState::Absent(_) | WatchState::Stale(_) => None,
        };
        self.held.iter().filter_map(of).collect()
    }
}
