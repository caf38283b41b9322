//! Frees snapshots that are no longer in force.
//!
//! Invariant: no thread that serves frees a snapshot. A request that is its last user only gives it back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use tollgate_front::snapshot::Snapshot;

/// How often it is looked which snapshots nobody uses any more.
const INTERVAL: Duration = Duration::from_secs(1);

/// The snapshots that were in force and may still be used. Clones share them.
#[derive(Debug)]
pub(super) struct RetiredSnapshots<T = Snapshot>(Arc<Mutex<Vec<Arc<T>>>>);

impl<T> Clone for RetiredSnapshots<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for RetiredSnapshots<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Send + Sync + 'static> RetiredSnapshots<T> {
    /// Adds a snapshot that is no longer in force. Each is added once, since the list counts as a user.
    pub(super) fn add(&self, snapshot: Arc<T>) {
        self.lock().push(snapshot);
    }

    /// Frees snapshots for as long as it is polled.
    pub(super) async fn run(self) {
        loop {
            sleep(INTERVAL).await;
            let unused = self.take_unused();
            if !unused.is_empty() {
                // An error is a panic, which is logged.
                let _ = tokio::task::spawn_blocking(move || drop(unused)).await;
            }
        }
    }

    fn take_unused(&self) -> Vec<Arc<T>> {
        // Nobody can take a clone of one that only this list has.
        let is_unused = |snapshot: &mut Arc<T>| Arc::strong_count(snapshot) == 1;
        self.lock().extract_if(.., is_unused).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use tokio::sync::oneshot;

    use super::*;

    /// Says which thread dropped it.
    struct Probe(Option<oneshot::Sender<ThreadId>>);

    impl Drop for Probe {
        fn drop(&mut self) {
            let sender = self.0.take().unwrap();
            sender.send(std::thread::current().id()).unwrap();
        }
    }

    #[tokio::test]
    async fn what_nobody_uses_any_more_is_freed_by_no_thread_that_serves() {
        let serving = std::thread::current().id();
        let (sender, mut dropped) = oneshot::channel();
        let request = Arc::new(Probe(Some(sender)));
        let retired = RetiredSnapshots::default();
        retired.add(Arc::clone(&request));
        assert!(retired.take_unused().is_empty(), "a request uses it");
        drop(request);
        assert!(dropped.try_recv().is_err(), "the last request does not free it");
        let running = tokio::spawn(retired.run());
        assert_ne!(dropped.await.unwrap(), serving);
        running.abort();
    }
}
