//! Schedules comparisons fairly when many watches are open.
//!
//! Invariant: comparisons run off the threads that serve, at most [`MAX_CONCURRENT`] at a time,
//! and at most one at a time for each person. A person therefore waits for one comparison of each
//! other person, not of each watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

const MAX_CONCURRENT: usize = 2;

#[derive(Debug)]
pub(in super::super) struct ComparisonScheduler {
    all: Arc<Semaphore>,
    /// One semaphore for each person whose comparison runs or waits.
    persons: Mutex<HashMap<u64, Weak<Semaphore>>>,
}

impl Default for ComparisonScheduler {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            persons: Mutex::default(),
        }
    }
}

impl ComparisonScheduler {
    /// Runs one comparison once it is scheduled. Returns `None` if the work panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        person: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // A person waits in the common queue once, however many watches they have.
        let own = self.of(person).acquire_owned().await.ok()?;
        let permit = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if its caller stops waiting.
            let _held = (own, permit);
            work()
        });
        done.await.ok()
    }

    fn of(&self, person: u64) -> Arc<Semaphore> {
        let mut persons = self.persons.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = persons.get(&person).and_then(Weak::upgrade) {
            return own;
        }
        persons.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        persons.insert(person, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use futures_util::future::join_all;
    use futures_util::poll;
    use tokio::task::unconstrained;

    use super::*;

    /// One person has a thousand watches that changed, and others have one each.
    #[tokio::test]
    async fn nobody_waits_for_every_watch_of_somebody_else() {
        let scheduler = ComparisonScheduler::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        let busy = Arc::new([const { AtomicUsize::new(0) }; 4]);
        let serving = thread::current().id();
        let persons = (0..1_000).map(|_| 0).chain([1, 2, 3]);
        let mut all: Vec<_> = persons
            .map(|person| {
                let (order, busy) = (Arc::clone(&order), Arc::clone(&busy));
                let run = scheduler.run(u64::try_from(person).unwrap(), move || {
                    assert_ne!(thread::current().id(), serving, "off the serving thread");
                    assert_eq!(
                        busy[person].fetch_add(1, Ordering::SeqCst),
                        0,
                        "one at a time for each person"
                    );
                    let all: usize = busy.iter().map(|one| one.load(Ordering::SeqCst)).sum();
                    assert!(all <= MAX_CONCURRENT, "{all} at once");
                    order.lock().unwrap().push(person);
                    busy[person].fetch_sub(1, Ordering::SeqCst);
                });
                Box::pin(unconstrained(run))
            })
            .collect();
        // All of them wait, in this order, before the first begins.
        let at_once = u32::try_from(MAX_CONCURRENT).unwrap();
        let held = Arc::clone(&scheduler.all).acquire_many_owned(at_once).await.unwrap();
        for one in &mut all {
            assert!(poll!(one).is_pending());
        }
        drop(held);
        let done = join_all(all).await;
        assert!(done.iter().all(Option::is_some));
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 1_003);
        for person in 1..=3 {
            let position = order.iter().position(|one| *one == person).unwrap();
            assert!(position <= 3 + MAX_CONCURRENT, "{person} is number {position}");
        }
    }

    #[tokio::test]
    async fn who_goes_away_leaves_the_turn_to_others() {
        let scheduler = ComparisonScheduler::default();
        let held = scheduler.of(1).acquire_owned().await.unwrap();
        let mut waiting = Box::pin(scheduler.run(1, || ()));
        assert!(poll!(&mut waiting).is_pending());
        drop(waiting);
        drop(held);
        assert_eq!(scheduler.run(1, || 5).await, Some(5));
        assert_eq!(scheduler.run(1, || panic!("as a bug would")).await, None::<()>);
        assert_eq!(scheduler.run(1, || 6).await, Some(6));
        scheduler.run(2, || ()).await;
        assert_eq!(scheduler.persons.lock().unwrap().len(), 1, "no finished person is kept");
    }
}
