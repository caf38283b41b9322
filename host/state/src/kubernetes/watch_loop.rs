//! The thread that watches: it passes events and errors to [`SharedState`].
//!
//! Invariant: a broken watch is always restarted, with a backoff if its list failed.
//! Security: the client library must not log here. It logs answers that it cannot parse, and
//! answers contain Secrets.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{DefaultBackoff, Event, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::subscriber::NoSubscriber;

use super::connect::connect;
use super::kinds::WatchSpec;
use super::object::{Object, UnprunedObject};
use super::shared_state::SharedState;
use super::watch_failure::WatchFailure;
use crate::decode::read::ObjectKind;
use tollgate_config::KubernetesState;

/// Time between two attempts to read the settings' files.
const CONNECT_RETRY: Duration = Duration::from_secs(2);

/// Longest time between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// How long a watch must work before its next failure resets the backoff. A list that succeeds
/// before a watch that is refused does not count, because each list reads everything.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Watches until `stop` is canceled.
pub(super) fn run(shared: &Arc<SharedState>, settings: &KubernetesState, stop: &CancellationToken) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return shared.record_connection_error(format!("no runtime can be started: {error}")),
    };
    // SECURITY: nothing on this thread may log.
    tracing::subscriber::with_default(NoSubscriber::default(), || {
        let watching = restart_on_panic(shared, || watch_all(shared, settings));
        runtime.block_on(async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = watching => {}
            }
        });
    });
}

/// Runs `work` and restarts it if it panics. Until it works again, everything counts as stale.
async fn restart_on_panic<F: Future<Output = ()>>(shared: &Arc<SharedState>, work: impl Fn() -> F) {
    let mut backoff = DefaultBackoff::default();
    while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
        shared.fail_all();
        tokio::time::sleep(next_backoff(&mut backoff)).await;
    }
}

/// Time until the next attempt.
fn next_backoff(backoff: &mut DefaultBackoff) -> Duration {
    backoff.next().unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF)
}

async fn watch_all(shared: &Arc<SharedState>, settings: &KubernetesState) {
    let client = loop {
        match connect(settings).await {
            Ok(client) => break client,
            Err(message) => shared.record_connection_error(message),
        }
        tokio::time::sleep(CONNECT_RETRY).await;
    };
    shared.record_client(client.clone());
    supervise_watches(shared, |number, spec| {
        run_watch(Arc::clone(shared), number, spec, client.clone())
    })
    .await;
}

/// Keeps every watch running. One that ended or panicked counts as stale and is restarted.
async fn supervise_watches<F>(shared: &Arc<SharedState>, start: impl Fn(usize, WatchSpec) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let watches = shared.watches();
    let mut tasks = JoinSet::new();
    let mut numbers: HashMap<Id, usize> = HashMap::new();
    let mut backoffs: Vec<DefaultBackoff> = watches.iter().map(|_| DefaultBackoff::default()).collect();
    for (number, spec) in watches.iter().enumerate() {
        let task = tasks.spawn(start(number, spec.clone()));
        numbers.insert(task.id(), number);
    }
    while let Some(ended) = tasks.join_next_with_id().await {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        let Some(number) = numbers.remove(&id) else { continue };
        let (Some(spec), Some(backoff)) = (watches.get(number), backoffs.get_mut(number)) else {
            continue;
        };
        shared.fail(number, WatchFailure::broken(spec));
        let (wait, again) = (next_backoff(backoff), start(number, spec.clone()));
        let task = tasks.spawn(async move {
            tokio::time::sleep(wait).await;
            again.await;
        });
        numbers.insert(task.id(), number);
    }
}

/// How often a watch failed, and since when it works.
#[derive(Default)]
struct Failures {
    backoff: DefaultBackoff,
    synced_at: Option<Instant>,
    /// Whether the watch already expired once right after a list.
    expired_before: bool,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureAction {
    /// Time until the watch is restarted.
    wait: Duration,
    /// Whether the known objects may be stale.
    is_stale: bool,
}

impl Failures {
    /// Records that a list is complete.
    fn record_synced(&mut self) {
        self.synced_at = Some(Instant::now());
    }

    /// Records that the watch failed.
    ///
    /// - `is_expired`: the server forgot the version of the watch, which only has to be restarted.
    fn record_failure(&mut self, is_expired: bool) -> FailureAction {
        let synced_at = self.synced_at.take();
        let was_stable = synced_at.is_some_and(|synced_at| synced_at.elapsed() >= STABLE_AFTER);
        if was_stable {
            self.backoff.reset();
            self.expired_before = false;
        }
        let wait = match was_stable && is_expired {
            true => Duration::ZERO,
            false => next_backoff(&mut self.backoff),
        };
        // An API server that has just learned of a kind may forget the version of the list at once.
        // That list is still the latest known state, so it is not stale the first time.
        let is_stale = !is_expired || synced_at.is_none() || (!was_stable && self.expired_before);
        self.expired_before |= is_expired && !was_stable;
        FailureAction { wait, is_stale }
    }
}

/// Keeps one watch running. After any error it lists again: only a complete list proves that the
/// watch is up to date, and a server restored from a backup counts from an earlier version.
async fn run_watch(shared: Arc<SharedState>, number: usize, spec: WatchSpec, client: Client) {
    match spec.kind {
        ObjectKind::ApplicationSet => run_watch_as::<UnprunedObject>(shared, number, spec, client).await,
        ObjectKind::ConfigMap
        | ObjectKind::Secret
        | ObjectKind::AppProject
        | ObjectKind::Application
        | ObjectKind::ArgoCDExtension
        | ObjectKind::Agent
        | ObjectKind::UserDirectory => run_watch_as::<Object>(shared, number, spec, client).await,
    }
}

/// Like [`run_watch`], with objects parsed as `K`.
async fn run_watch_as<K>(shared: Arc<SharedState>, number: usize, spec: WatchSpec, client: Client)
where
    K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    K: Clone + fmt::Debug + DeserializeOwned + Into<Object> + Send + 'static,
{
    let kind = spec.api();
    let api: Api<K> = match &spec.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    };
    let mut failures = Failures::default();
    loop {
        let mut events = watcher(api.clone(), spec.config()).boxed();
        let error = loop {
            match events.next().await {
                Some(Ok(event)) => {
                    if matches!(event, Event::InitDone) {
                        failures.record_synced();
                    }
                    shared.apply(number, objects(event));
                }
                Some(Err(error)) => break error,
                // The library's watches do not end; if one does, it is restarted.
                None => return,
            }
        };
        let action = failures.record_failure(WatchFailure::is_expired(&error));
        if action.is_stale {
            shared.fail(number, WatchFailure::of(&spec, &error));
        }
        tokio::time::sleep(action.wait).await;
    }
}

fn objects<K: Into<Object>>(event: Event<K>) -> Event<Object> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.into()),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(object.into()),
        Event::Delete(object) => Event::Delete(object.into()),
    }
}

#[cfg(test)]
mod tests;
