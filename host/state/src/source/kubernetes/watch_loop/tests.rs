//! Tests of watches that fail: by a panic, by an error response, and repeatedly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::core::Status;
use kube::runtime::watcher::{Error, Event};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{FailureAction, Failures, MAX_BACKOFF, Object, STABLE_AFTER, restart_on_panic, supervise_watches};
use crate::source::kubernetes::shared_state::SharedState;
use crate::source::kubernetes::watch_failure::WatchFailure;
use tollgate_config::KubernetesState;

/// Every kind is listed and has no objects.
fn listed() -> Arc<SharedState> {
    let shared = Arc::new(SharedState::new(&KubernetesState::default(), "argocd"));
    for number in 0..shared.watches().len() {
        shared.apply(number, Event::<Object>::Init);
        shared.apply(number, Event::<Object>::InitDone);
    }
    shared
}

fn health(shared: &SharedState) -> Vec<String> {
    shared.health().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_watch_that_panics_is_stale_and_restarts() {
    let shared = listed();
    let started = Arc::new(AtomicUsize::new(0));
    let again = Arc::new(Notify::new());
    let all = shared.watches().len();
    let start = |number: usize, _| {
        let (shared, started, again) = (Arc::clone(&shared), Arc::clone(&started), Arc::clone(&again));
        async move {
            let before = started.fetch_add(1, Ordering::SeqCst);
            // The third watch: Secrets.
            assert!(number != 2 || before >= all, "a simulated bug");
            if before >= all {
                assert_eq!(
                    health(&shared),
                    [
                        "error: what is known stays, and may be old: the watch of secrets ended by an error in the gateway and begins anew"
                    ]
                );
                shared.apply(number, Event::<Object>::Init);
                shared.apply(number, Event::<Object>::InitDone);
                again.notify_one();
            }
            std::future::pending::<()>().await;
        }
    };
    let begin = Instant::now();
    tokio::select! {
        () = supervise_watches(&shared, start) => unreachable!("the supervisor never returns"),
        () = again.notified() => {}
    }
    assert!(begin.elapsed() > Duration::from_millis(500), "the restart is delayed");
    assert_eq!(started.load(Ordering::SeqCst), all + 1);
    assert_eq!(health(&shared), [""; 0]);
}

#[tokio::test]
async fn a_panic_outside_a_single_watch_makes_all_of_them_stale() {
    let shared = listed();
    let runs = AtomicUsize::new(0);
    let begin = Instant::now();
    restart_on_panic(&shared, || async {
        assert!(runs.fetch_add(1, Ordering::SeqCst) > 0, "a simulated bug");
    })
    .await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(begin.elapsed() > Duration::from_millis(500), "the restart is delayed");
    assert_eq!(health(&shared).len(), shared.watches().len());
}

fn gone(of: impl Fn(Box<Status>) -> Error) -> Error {
    of(Box::new(Status {
        code: 410,
        ..Status::default()
    }))
}

#[test]
fn a_watch_that_keeps_failing_backs_off() {
    let watch = gone(Error::WatchError);
    let list = gone(|status| Error::InitialListFailed(kube::Error::Api(status)));
    assert!(WatchFailure::is_expired(&watch) && !WatchFailure::is_expired(&list));
    for error in [watch, list] {
        let mut failures = Failures::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            // Each list succeeds; the watch ends at once.
            failures.record_synced();
            waits.push(failures.record_failure(WatchFailure::is_expired(&error)).wait);
        }
        assert!(waits[0] < Duration::from_secs(3), "{waits:?}");
        assert_eq!(waits[7], MAX_BACKOFF, "{waits:?}");
    }
}

#[test]
fn a_stable_watch_restarts_at_once_only_if_it_expired() {
    let mut failures = Failures::default();
    for _ in 0..8 {
        failures.record_failure(false);
    }
    let long_ago = Instant::now().checked_sub(STABLE_AFTER);
    assert!(long_ago.is_some());
    failures.synced_at = long_ago;
    let at_once = FailureAction {
        wait: Duration::ZERO,
        is_stale: false,
    };
    assert_eq!(failures.record_failure(true), at_once);
    // No list succeeded before the next failure.
    let next = failures.record_failure(true);
    assert!(next.wait > Duration::ZERO && next.is_stale, "{next:?}");
    failures.synced_at = long_ago;
    let next = failures.record_failure(false);
    assert!(next.wait < Duration::from_secs(3) && next.is_stale, "{next:?}");
}

/// An API server whose CRDs were just installed expires the first list at once.
#[test]
fn a_list_that_expires_at_once_is_not_stale_the_first_time() {
    let mut failures = Failures::default();
    failures.record_synced();
    let first = failures.record_failure(true);
    assert!(first.wait > Duration::ZERO && !first.is_stale, "{first:?}");
    failures.record_synced();
    assert!(
        failures.record_failure(true).is_stale,
        "a repeated failure makes the watch stale"
    );
    // A watch that worked in between starts afresh.
    failures.synced_at = Instant::now().checked_sub(STABLE_AFTER);
    assert!(!failures.record_failure(true).is_stale);
    failures.record_synced();
    assert!(!failures.record_failure(true).is_stale);
    failures.record_synced();
    assert!(
        failures.record_failure(false).is_stale,
        "any other error makes the watch stale each time"
    );
}
