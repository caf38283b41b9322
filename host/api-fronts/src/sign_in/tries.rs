//! Counts the codes of devices that people type, because a code that somebody guesses is another person's.

use std::time::Duration;

use moka::Entry;
use moka::ops::compute::{CompResult, Op};
use moka::sync::Cache;
use uuid::Uuid;

use super::Error;

/// How long wrong codes of a device count.
const WINDOW: Duration = Duration::from_mins(10);
/// Wrong codes of devices that one login may enter in that time.
const MAX_TRIES: u32 = 5;
/// Logins that are remembered.
const LOGINS: u64 = 10_000;

/// The wrong codes, by the login that entered them.
#[derive(Debug)]
pub(super) struct CodeTries(Cache<Uuid, u32>);

impl Default for CodeTries {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(LOGINS).time_to_live(WINDOW).build())
    }
}

impl CodeTries {
    /// Takes a try of a login.
    ///
    /// Security: it is taken before the code is looked up, so that a burst of them has no more.
    ///
    /// # Errors
    /// [`Error::TooManyTries`].
    pub(super) fn take(&self, login: Uuid) -> Result<(), Error> {
        let entry = self.0.entry(login);
        let taken = entry.and_compute_with(|entry| match entry.map_or(0, Entry::into_value) {
            tries if tries >= MAX_TRIES => Op::Nop,
            tries => Op::Put(tries.saturating_add(1)),
        });
        match taken {
            CompResult::Unchanged(_) => Err(Error::TooManyTries),
            _ => Ok(()),
        }
    }

    /// Gives the try back: the code was right.
    pub(super) fn give_back(&self, login: Uuid) {
        let entry = self.0.entry(login);
        entry.and_compute_with(|entry| match entry.map_or(0, Entry::into_value) {
            0 => Op::Nop,
            tries => Op::Put(tries.saturating_sub(1)),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use uuid::Uuid;

    use super::{CodeTries, MAX_TRIES};

    #[test]
    fn a_burst_has_no_more_tries_than_one_after_the_other() {
        const THREADS: usize = 16;
        let (tries, login, start) = (CodeTries::default(), Uuid::from_u128(1), Barrier::new(THREADS));
        let taken = |count: usize| {
            start.wait();
            (0..count).filter(|_| tries.take(login).is_ok()).count()
        };
        let taken: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| taken(100))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, usize::try_from(MAX_TRIES).unwrap());
        // Another login has its own.
        tries.take(Uuid::from_u128(2)).unwrap();
    }

    #[test]
    fn a_right_code_costs_no_try() {
        let (tries, login) = (CodeTries::default(), Uuid::from_u128(1));
        for _ in 0..100 {
            tries.take(login).unwrap();
            tries.give_back(login);
        }
        tries.give_back(login);
        for _ in 0..MAX_TRIES {
            tries.take(login).unwrap();
        }
        tries.take(login).unwrap_err();
    }
}
