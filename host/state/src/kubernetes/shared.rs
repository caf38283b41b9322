//! The state that the watching thread shares with the threads that load: what all objects say once
//! every kind has been listed, what is wrong, and a count of changes.
//!
//! Invariant: no lock is held across an await.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::time::Instant;

use super::held::{Effect, Held, State};
use super::kinds::{Need, Watched, watched};
use super::object::Object;
use super::problem::Problem;
use crate::decode::read::Piece;
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::Diagnostic;

/// The shared state.
pub(super) struct Shared {
    namespace: String,
    inner: Mutex<Inner>,
    /// Notified when a watch makes progress.
    further: Condvar,
    count: watch::Sender<u64>,
}

struct Inner {
    connection: Connection,
    held: Vec<Held>,
}

enum Connection {
    /// There is none yet; with the reason, if known.
    None(Option<Problem>),
    /// There is a client; its server may be unreachable.
    Client(Client),
}

impl Shared {
    pub(super) fn new(settings: &KubernetesState, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            inner: Mutex::new(Inner {
                connection: Connection::None(None),
                held: watched(settings, namespace).into_iter().map(Held::new).collect(),
            }),
            further: Condvar::new(),
            count: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, effect: Effect) {
        if effect == Effect::Changed {
            self.further.notify_all();
            self.count.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Every watch, by its number.
    pub(super) fn watches(&self) -> Vec<Watched> {
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
    pub(super) fn unconnected(&self, message: String) {
        self.lock().connection = Connection::None(Some(Problem::other(message)));
        self.ring(Effect::Changed);
    }

    /// Applies an event of a watch.
    pub(super) fn apply(&self, watch: usize, event: Event<Object>) {
        let effect = match self.lock().held.get_mut(watch) {
            Some(held) => held.apply(event, &self.namespace),
            None => Effect::Nothing,
        };
        self.ring(effect);
    }

    /// Records that a watch broke.
    pub(super) fn fail(&self, watch: usize, problem: Problem) {
        let effect = match self.lock().held.get_mut(watch) {
            Some(held) => held.fail(problem),
            None => Effect::Nothing,
        };
        self.ring(effect);
    }

    /// Records that every watch broke by a bug of the gateway.
    pub(super) fn fail_all(&self) {
        let mut effect = Effect::Nothing;
        for held in &mut self.lock().held {
            let problem = Problem::broken(&held.watched);
            if held.fail(problem) == Effect::Changed {
                effect = Effect::Changed;
            }
        }
        self.ring(effect);
    }

    /// What all objects say, in the order of kinds and names. Waits until every kind has been
    /// listed, at most until `deadline`; then reports what is missing.
    pub(super) fn complete(&self, deadline: Instant) -> Result<Vec<Arc<[Piece]>>, Vec<Diagnostic>> {
        let mut inner = self.lock();
        while !inner.is_complete() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(inner.missing());
            }
            let waited = self.further.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(inner.held.iter().flat_map(Held::said).collect())
    }

    /// What keeps watches from being up to date, and the kinds that are missing.
    pub(super) fn health(&self) -> Vec<Diagnostic> {
        let inner = self.lock();
        let of = |held: &Held| match &held.state {
            State::Waiting(_) | State::Current => None,
            State::Absent(problem) if held.watched.need == Need::Optional => Some(problem.warning()),
            State::Absent(problem) => {
                let namespace = held.watched.namespace.as_deref().unwrap_or_default();
                Some(problem.error(&format!("nothing of namespace `{namespace}` is known: ")))
            }
            State::Stale(problem) => Some(problem.error("what is known stays, and may be old: ")),
        };
        inner.held.iter().filter_map(of).collect()
    }
}

impl Inner {
    fn is_complete(&self) -> bool {
        let known = |held: &Held| !matches!(held.state, State::Waiting(_));
        self.held.iter().all(known)
    }

    fn missing(&self) -> Vec<Diagnostic> {
        if let Connection::None(problem) = &self.connection {
            let unknown = Problem::other("there was no answer in time".to_owned());
            let problem = problem.as_ref().unwrap_or(&unknown);
            return vec![problem.error("the API server of the control plane cannot be reached: ")];
        }
        let of = |held: &Held| match &held.state {
            State::Waiting(Some(problem)) => Some(problem.error("")),
            State::Waiting(None) => {
                let message = format!("{} were not all there in time", held.watched.resource());
                Some(Problem::other(message).error(""))
            }
            State::Current | State::Absent(_) | State::Stale(_) => None,
        };
        self.held.iter().filter_map(of).collect()
    }
}
