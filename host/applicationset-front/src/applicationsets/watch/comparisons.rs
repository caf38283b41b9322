//! Schedules comparisons fairly when many watches are open.
//!
//! Invariant: comparisons run off the threads that serve, at most [`MAX_CONCURRENT`] at a time,
//! and at most one at a time for each person. A person therefore waits for one comparison of each
//! other person, not of each watch.
//!
//! Invariant: nothing is compared unless the list of sets, or what decides who sees them, has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

const MAX_CONCURRENT: usize = 2;

#[derive(Debug)]
pub(in super::super) struct ComparisonScheduler {
    all: Arc<Semaphore>,
    persons: Persons,
}

/// Each person whose comparisons run or wait, and how many do.
type Persons = Arc<Mutex<HashMap<u64, (Arc<Semaphore>, usize)>>>;

/// The turns of one person, for one comparison that runs or waits.
#[derive(Debug)]
struct PersonTurns {
    persons: Persons,
    person: u64,
    turns: Arc<Semaphore>,
}

impl Drop for PersonTurns {
    fn drop(&mut self) {
        let mut persons = lock(&self.persons);
        if let Some((_, users)) = persons.get_mut(&self.person) {
            *users = users.saturating_sub(1);
            if *users == 0 {
                persons.remove(&self.person);
            }
        }
    }
}

fn lock(persons: &Persons) -> MutexGuard<'_, HashMap<u64, (Arc<Semaphore>, usize)>> {
    persons.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for ComparisonScheduler {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            persons: Persons::default(),
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
        let person = self.of(person);
        let own = Arc::clone(&person.turns).acquire_owned().await.ok()?;
        let permit = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if its caller stops waiting.
            let _held = (own, permit, person);
            work()
        });
        done.await.ok()
    }

    fn of(&self, person: u64) -> PersonTurns {
        let mut persons = lock(&self.persons);
        let (turns, users) = persons
            .entry(person)
            .or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
        *users = users.saturating_add(1);
        PersonTurns {
            turns: Arc::clone(turns),
            persons: Arc::clone(&self.persons),
            person,
        }
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
        let person = scheduler.of(1);
        let held = Arc::clone(&person.turns).acquire_owned().await.unwrap();
        let mut waiting = Box::pin(scheduler.run(1, || ()));
        assert!(poll!(&mut waiting).is_pending());
        drop(waiting);
        drop(held);
        assert_eq!(scheduler.run(1, || 5).await, Some(5));
        assert_eq!(scheduler.run(1, || panic!("as a bug would")).await, None::<()>);
        assert_eq!(scheduler.run(1, || 6).await, Some(6));
        drop(person);
        // The work's thread ends a moment after its result is there.
        while !lock(&scheduler.persons).is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
