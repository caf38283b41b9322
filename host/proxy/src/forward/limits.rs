//! Limits the use of one extension, as a whole and by each person. A [`LimitPermit`] is released
//! when dropped; a request over the limit gets 429 with the time to wait.
//!
//! Invariant: every table is bounded, and a limit of one extension does not affect another one.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use tollgate_objects::extensions::LimitSpec;

/// Tables of persons, so that few callers wait for the same lock.
const SHARDS: usize = 16;

/// Persons remembered at once, per shard. A person is forgotten as soon as they have no open
/// request and their rate is unused.
const SHARD_PERSONS: usize = 4096;

/// Which limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Requests open at once, of all callers.
    ExtensionConcurrency,
    /// Requests a second, of all callers.
    ExtensionRate,
    /// Requests open at once, of this caller.
    PersonConcurrency,
    /// Requests a second, of this caller.
    PersonRate,
}

/// A request over a limit. (429)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", match .kind {
    LimitKind::ExtensionConcurrency => "too many requests of this extension are open",
    LimitKind::ExtensionRate => "this extension gets too many requests",
    LimitKind::PersonConcurrency => "the caller has too many requests open",
    LimitKind::PersonRate => "the caller sends too many requests",
})]
pub struct LimitExceeded {
    /// Which limit.
    pub kind: LimitKind,
    /// `Retry-After`: whole seconds, at least 1.
    pub retry_after_seconds: u64,
}

/// Concurrency and rate limit of an extension or of one person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UsageLimits {
    concurrency: Option<NonZeroU32>,
    rate: Option<Rate>,
}

/// A rate for the generic cell rate algorithm, which keeps one number: how far a caller is ahead of
/// the rate. Source: ITU-T I.371.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    /// Nanoseconds between two requests at this rate.
    emission_interval: u64,
    /// Nanoseconds a caller may be ahead.
    burst_tolerance: u64,
}

impl UsageLimits {
    fn new(concurrency: Option<NonZeroU32>, per_second: Option<NonZeroU32>, burst: Option<NonZeroU32>) -> Self {
        let rate = per_second.map(|per_second| {
            let emission_interval = 1_000_000_000 / u64::from(per_second.get());
            // Without a configured burst, the requests of one second may come at once.
            let burst = u64::from(burst.unwrap_or(per_second).get());
            Rate {
                emission_interval,
                burst_tolerance: emission_interval.saturating_mul(burst),
            }
        });
        Self { concurrency, rate }
    }
}

impl Rate {
    /// The next state after one request at `now`, or how long to wait.
    fn take(self, theoretical_arrival: u64, now: u64) -> Result<u64, u64> {
        let next = theoretical_arrival.max(now).saturating_add(self.emission_interval);
        match next.saturating_sub(now).checked_sub(self.burst_tolerance) {
            None | Some(0) => Ok(next),
            Some(wait) => Err(wait),
        }
    }
}

#[derive(Debug, Default)]
struct Person {
    open: u32,
    theoretical_arrival: u64,
}

/// Limits of one extension, shared by all its requests.
#[derive(Debug)]
pub struct Limiter {
    start: Instant,
    extension: UsageLimits,
    open: AtomicU32,
    theoretical_arrival: AtomicU64,
    person: UsageLimits,
    persons: Vec<Mutex<HashMap<u64, Person>>>,
}

impl Limiter {
    /// Makes a limiter with all counters at zero.
    pub fn new(spec: &LimitSpec) -> Arc<Self> {
        let person = &spec.per_person;
        Arc::new(Self {
            start: Instant::now(),
            extension: UsageLimits::new(spec.concurrency, spec.requests_per_second, spec.burst),
            open: AtomicU32::new(0),
            theoretical_arrival: AtomicU64::new(0),
            person: UsageLimits::new(person.concurrency, person.requests_per_second, person.burst),
            persons: (0..SHARDS).map(|_| Mutex::default()).collect(),
        })
    }

    /// Requests open now.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts one request of `person` until the permit is dropped.
    ///
    /// # Errors
    /// [`LimitExceeded`] for the first limit reached. The caller's limits are checked before the
    /// extension's, so that one caller's flood does not use up what others may use.
    pub fn acquire(self: &Arc<Self>, person: u64) -> Result<LimitPermit, LimitExceeded> {
        self.acquire_at(person, self.start.elapsed())
    }

    /// Like [`Self::acquire`], at a time after the start.
    fn acquire_at(self: &Arc<Self>, person: u64, now: Duration) -> Result<LimitPermit, LimitExceeded> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let counted = self.enter_person(person, now)?;
        let permit = LimitPermit {
            limiter: self.clone(),
            person: counted,
            counts_extension: false,
        };
        self.enter_extension(permit, now)
    }

    fn enter_extension(&self, mut permit: LimitPermit, now: u64) -> Result<LimitPermit, LimitExceeded> {
        let max_open = self.extension.concurrency.map_or(u32::MAX, NonZeroU32::get);
        let enter = |open: u32| (open < max_open).then(|| open + 1);
        let open = self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter);
        if open.is_err() {
            permit.refund();
            return Err(exceeded(LimitKind::ExtensionConcurrency, 0));
        }
        // From here on, a dropped permit gives back the place in the extension too.
        permit.counts_extension = true;
        let Some(rate) = self.extension.rate else {
            return Ok(permit);
        };
        let take = |theoretical_arrival: u64| rate.take(theoretical_arrival, now).ok();
        let arrival = &self.theoretical_arrival;
        match arrival.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take) {
            Ok(_) => Ok(permit),
            Err(theoretical_arrival) => {
                permit.refund();
                let wait = rate.take(theoretical_arrival, now).err().unwrap_or_default();
                Err(exceeded(LimitKind::ExtensionRate, wait))
            }
        }
    }

    fn shard(&self, key: u64) -> Option<&Mutex<HashMap<u64, Person>>> {
        let shards = u64::try_from(SHARDS).unwrap_or(1);
        self.persons.get(usize::try_from(key % shards).unwrap_or_default())
    }

    /// Counts a request of the person. Returns the key if persons have limits.
    fn enter_person(&self, key: u64, now: u64) -> Result<Option<u64>, LimitExceeded> {
        if self.person == UsageLimits::default() {
            return Ok(None);
        }
        let Some(shard) = self.shard(key) else { return Ok(None) };
        let mut persons = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if persons.len() >= SHARD_PERSONS && !persons.contains_key(&key) {
            // Only when the table is full, because it looks at every person while others wait for the shard.
            persons.retain(|_, person| person.open > 0 || person.theoretical_arrival > now);
            if persons.len() >= SHARD_PERSONS {
                // Every remembered person has open requests or a used rate, so none can be
                // forgotten.
                return Err(exceeded(LimitKind::PersonConcurrency, 0));
            }
        }
        let person = persons.entry(key).or_default();
        let max_open = self.person.concurrency;
        if max_open.is_some_and(|max_open| person.open >= max_open.get()) {
            return Err(exceeded(LimitKind::PersonConcurrency, 0));
        }
        if let Some(rate) = self.person.rate {
            person.theoretical_arrival = rate
                .take(person.theoretical_arrival, now)
                .map_err(|wait| exceeded(LimitKind::PersonRate, wait))?;
        }
        person.open += 1;
        Ok(Some(key))
    }

    fn with_person(&self, key: u64, change: impl FnOnce(&mut Person)) {
        let Some(shard) = self.shard(key) else { return };
        let mut persons = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(person) = persons.get_mut(&key) {
            change(person);
        }
    }
}

fn exceeded(kind: LimitKind, wait_nanoseconds: u64) -> LimitExceeded {
    let wait = Duration::from_nanos(wait_nanoseconds);
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    LimitExceeded {
        kind,
        retry_after_seconds: whole.max(1),
    }
}

/// One counted request. Dropping it releases what it holds.
#[derive(Debug)]
pub struct LimitPermit {
    limiter: Arc<Limiter>,
    person: Option<u64>,
    /// Whether the request is counted for the extension too.
    counts_extension: bool,
}

impl LimitPermit {
    /// Undoes the charge to the person's rate for a request that a limit of the extension refused.
    fn refund(&self) {
        if let (Some(key), Some(rate)) = (self.person, self.limiter.person.rate) {
            self.limiter.with_person(key, |person| {
                person.theoretical_arrival = person.theoretical_arrival.saturating_sub(rate.emission_interval)
            });
        }
    }
}

impl Drop for LimitPermit {
    fn drop(&mut self) {
        if self.counts_extension {
            self.limiter.open.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(key) = self.person {
            self.limiter
                .with_person(key, |person| person.open = person.open.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests;
