//! What is open at the Applications front: requests, watches, logs, tunnels.
//!
//! In: exchanges as they begin, snapshots as they change. Out: the end of what the
//! snapshot in force would not let begin. Never: a look at the cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::sessions::{EndSignal, Ending, Switch};

/// Everything open, of one kind of question about it.
#[derive(Debug)]
pub(super) struct Streams<Q> {
    open: Mutex<FxHashMap<u64, Arc<Stream<Q>>>>,
    next: AtomicU64,
}

/// One exchange.
#[derive(Debug)]
struct Stream<Q> {
    question: Q,
    switch: Arc<Switch>,
}

/// Its place among what is open, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<Q> {
    streams: Arc<Streams<Q>>,
    number: u64,
    stream: Arc<Stream<Q>>,
}

impl<Q> Default for Streams<Q> {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }
}

impl<Q> Streams<Q> {
    /// Takes in an exchange that begins.
    pub(super) fn enter(self: &Arc<Self>, question: Q) -> Place<Q> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let switch = Arc::default();
        let stream = Arc::new(Stream { question, switch });
        self.lock().insert(number, Arc::clone(&stream));
        Place {
            streams: Arc::clone(self),
            number,
            stream,
        }
    }

    /// Ends what `passes` says no to; gives how many.
    pub(super) fn recheck(&self, passes: impl Fn(&Q) -> bool) -> usize {
        // Judged without the lock: exchanges begin and end meanwhile.
        let open: Vec<_> = self.lock().values().cloned().collect();
        let refused = open.iter().filter(|stream| !passes(&stream.question));
        refused.filter(|stream| stream.switch.end(Ending::Withdrawn)).count()
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<u64, Arc<Stream<Q>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q> Place<Q> {
    /// What ends the exchange.
    pub(super) fn ending(&self) -> EndSignal {
        EndSignal::new(&self.stream.switch)
    }

    /// What was asked.
    pub(super) fn question(&self) -> &Q {
        &self.stream.question
    }
}

impl<Q> Drop for Place<Q> {
    fn drop(&mut self) {
        self.streams.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Streams;
    use crate::sessions::Ending;

    #[test]
    fn only_what_would_not_begin_now_ends() {
        let streams = Arc::new(Streams::default());
        let (kept, refused) = (streams.enter("kept"), streams.enter("refused"));
        assert_eq!(streams.recheck(|question| *question == "kept"), 1);
        assert_eq!(refused.ending().ending(), Some(Ending::Withdrawn));
        assert_eq!(kept.ending().ending(), None);
        // It is ended once.
        assert_eq!(streams.recheck(|question| *question == "kept"), 0);
    }

    #[test]
    fn what_has_ended_is_not_asked_about() {
        let streams = Arc::new(Streams::default());
        drop(streams.enter("gone"));
        assert_eq!(streams.recheck(|_| false), 0);
    }
}
