//! The thread that watches: it passes events and errors to [`SharedState`].
//!
//! Invariant: a broken watch is always restarted, with a backoff if its list failed. The client never
//! stays older than the files that it is made of.
//! Security: the client library must not log here. It logs answers that it cannot parse, and
//! answers contain Secrets.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use kube::Api;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{DefaultBackoff, Event, watcher};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::subscriber::NoSubscriber;

use super::kinds::WatchSpec;
use super::object::Object;
use super::shared_state::SharedState;
use super::watch_failure::WatchFailure;
use crate::kubernetes;
use crate::watch::{FileEvents, Timing, Watch, watch};
use tollgate_config::KubernetesState;
use tollgate_objects::decode::read::ObjectKind;

/// Time between two attempts to read the settings' files.
const CONNECT_RETRY: Duration = Duration::from_secs(2);

/// Least time between two clients that are made because of failures: it may run a program.
const CLIENT_INTERVAL: Duration = Duration::from_secs(10);

const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// How long a watch must work before its next failure resets the backoff. A list that succeeds
/// before a watch that is refused does not count, because each list reads everything.
const STABLE_AFTER: Duration = Duration::from_secs(30);

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
        sleep(next_backoff(&mut backoff)).await;
    }
}

fn next_backoff(backoff: &mut DefaultBackoff) -> Duration {
    backoff.next().unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF)
}

/// Watches with a client that is made anew when its files change. Until they can be used, the former one
/// stays.
async fn watch_all(shared: &Arc<SharedState>, settings: &KubernetesState) {
    let mut files = follow(settings).await;
    while !make_client(shared, settings).await {
        sleep(CONNECT_RETRY).await;
    }
    loop {
        let replaced = async {
            let mut made_at = Instant::now();
            loop {
                let needed = async {
                    // `Notify` keeps a failure that comes meanwhile: the wait bounds the rate and loses none.
                    sleep_until(made_at + CLIENT_INTERVAL).await;
                    tokio::select! {
                        () = shared.client_failed() => {}
                        () = shared.client_expired() => {}
                    }
                };
                let is_change = tokio::select! {
                    _ = files.changed() => true,
                    () = needed => false,
                };
                made_at = Instant::now();
                if is_change {
                    // It may name others now.
                    files = follow(settings).await;
                }
                let is_made = make_client(shared, settings).await;
                // What fails takes the new client by itself. What works goes on, unless the settings may lead
                // to another server, because to begin anew is to read everything again.
                if is_change && is_made {
                    return;
                }
            }
        };
        let watching = supervise_watches(shared, |number, spec| run_watch(Arc::clone(shared), number, spec));
        tokio::select! {
            () = replaced => {}
            () = watching => return,
        }
    }
}

/// Follows the files that a client is made of. Call it before they are read.
async fn follow(settings: &KubernetesState) -> Watch {
    watch(kubernetes::files(settings), Timing::default(), FileEvents::IfAvailable).await
}

/// Makes a client of the settings' files as they are now, and returns whether that was possible.
async fn make_client(shared: &SharedState, settings: &KubernetesState) -> bool {
    let made = kubernetes::client_config(settings).await.and_then(|config| {
        let end = kubernetes::certificate_end(&config);
        Ok((kubernetes::client(config)?, end))
    });
    match made {
        Ok((client, certificate_end)) => {
            shared.record_client(client, certificate_end);
            true
        }
        Err(message) => {
            shared.record_connection_error(message);
            false
        }
    }
}

/// Keeps every watch running. One that ended or panicked counts as stale and is restarted.
async fn supervise_watches<F>(shared: &SharedState, start: impl Fn(usize, WatchSpec) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let watches = shared.watches().into_iter().enumerate();
    let supervised = watches.map(async |(number, spec)| {
        let mut backoff = DefaultBackoff::default();
        loop {
            // A set also ends its task when it is dropped.
            let mut task = JoinSet::new();
            task.spawn(start(number, spec.clone()));
            task.join_next().await;
            shared.fail(number, WatchFailure::broken(&spec));
            sleep(next_backoff(&mut backoff)).await;
        }
    });
    join_all(supervised).await;
}

/// How often a watch failed, and since when it works.
#[derive(Default)]
struct Failures {
    backoff: DefaultBackoff,
    synced_at: Option<Instant>,
    /// Whether the watch already expired once right after a list.
    expired_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureAction {
    wait: Duration,
    /// Whether the known objects may be stale.
    is_stale: bool,
}

impl Failures {
    fn record_synced(&mut self) {
        self.synced_at = Some(Instant::now());
    }

    /// Records that the watch failed; `is_expired` if the server only forgot its version.
    fn record_failure(&mut self, is_expired: bool) -> FailureAction {
        let synced_at = self.synced_at.take();
        let was_stable = synced_at.is_some_and(|synced_at| synced_at.elapsed() >= STABLE_AFTER);
        if was_stable {
            self.backoff.reset();
            self.expired_before = false;
        }
        // Kubernetes forgets old versions regularly (410), so a watch that worked until then goes on at once.
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

async fn run_watch(shared: Arc<SharedState>, number: usize, spec: WatchSpec) {
    match spec.kind == ObjectKind::ApplicationSet {
        true => run_watch_as::<true>(shared, number, spec).await,
        false => run_watch_as::<false>(shared, number, spec).await,
    }
}

/// Keeps one watch running. After any error it lists again: only a complete list proves that the
/// watch is up to date, and a server restored from a backup counts from an earlier version.
async fn run_watch_as<const WHOLE: bool>(shared: Arc<SharedState>, number: usize, spec: WatchSpec) {
    let kind = spec.api();
    let mut failures = Failures::default();
    // Each time with the client that is the newest then.
    while let Some(client) = shared.client() {
        let api: Api<Object<WHOLE>> = match &spec.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind),
            None => Api::all_with(client, &kind),
        };
        let mut events = watcher(api, spec.config()).boxed();
        let error = loop {
            match events.next().await {
                Some(Ok(event)) => {
                    // Only a complete list shows that the watch works.
                    if matches!(event, Event::InitDone) {
                        failures.record_synced();
                    }
                    shared.apply(number, event);
                }
                Some(Err(error)) => break error,
                // The library's watches do not end; if one does, it is restarted.
                None => return,
            }
        };
        let action = failures.record_failure(WatchFailure::is_expired(&error));
        if action.is_stale {
            shared.fail(number, WatchFailure::of(&spec, &error));
            if WatchFailure::is_of_client(&error) {
                shared.record_client_failure();
            }
        }
        sleep(action.wait).await;
    }
}

#[cfg(test)]
mod tests;
