//! Limits on the work that one ApplicationSet may cause: Applications, sets of parameters,
//! generators, bytes and time.
//!
//! Invariant: a budget only shrinks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_config::GenerationLimits;

/// A limit was exceeded: the observed value and the allowed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many Applications.
    #[error("the set generates {} applications or more, at most {} are allowed", .0.observed, .0.allowed)]
    Applications(Excess),
    /// Too many sets of parameters.
    #[error("the generators make {} sets of parameters or more, at most {} are allowed", .0.observed, .0.allowed)]
    Parameters(Excess),
    /// Too many generators.
    #[error("the set has {} generators or more, at most {} are allowed", .0.observed, .0.allowed)]
    Generators(Excess),
    /// Too much memory.
    #[error("the set takes {} bytes of memory or more, at most {} are allowed", .0.observed, .0.allowed)]
    Bytes(Excess),
    /// Too slow. The value is what is allowed.
    #[error("generating takes longer than {0:?}")]
    Time(Duration),
    /// The caller no longer waits for the result.
    #[error("no request waits for the generated applications any more")]
    Cancelled,
}

/// How much was observed when work stopped, and how much is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Number so far.
    pub observed: u64,
    /// Allowed.
    pub allowed: u64,
}

/// A slot that work on a set occupies while it runs.
pub trait WorkSlot: std::fmt::Debug + Send + Sync {
    /// Releases the slot.
    fn release(&self);

    /// Waits for a slot. Returns false if none is free by `until`, or if the work is
    /// cancelled. Blocks.
    fn reacquire(&self, until: Instant, is_cancelled: &dyn Fn() -> bool) -> bool;
}

/// The remaining budget of one set, shared by all work on it.
#[derive(Debug)]
pub struct GenerationBudget {
    limits: GenerationLimits,
    slot: Option<Box<dyn WorkSlot>>,
    deadline: Instant,
    applications: AtomicU64,
    parameters: AtomicU64,
    generators: AtomicU64,
    bytes: AtomicU64,
    cancelled: AtomicBool,
}

impl GenerationBudget {
    /// Makes a full budget. Its time starts now.
    pub fn new(limits: GenerationLimits) -> Self {
        Self {
            limits,
            slot: None,
            deadline: Instant::now() + limits.time,
            applications: AtomicU64::new(0),
            parameters: AtomicU64::new(0),
            generators: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Makes the work release `slot` whenever it waits for other work.
    #[must_use]
    pub fn with_slot(mut self, slot: Box<dyn WorkSlot>) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Runs `wait`, which waits for other work, and releases the slot meanwhile.
    ///
    /// # Errors
    /// [`Exceeded::Time`], [`Exceeded::Cancelled`]: no slot was free again in time.
    pub fn release_while<T>(&self, wait: impl FnOnce() -> T) -> Result<T, Exceeded> {
        let Some(slot) = &self.slot else {
            return Ok(wait());
        };
        slot.release();
        let done = wait();
        if slot.reacquire(self.deadline, &|| self.cancelled.load(Ordering::Relaxed)) {
            return Ok(done);
        }
        // No slot came back in time: a cancellation is reported if there was one, and the time limit otherwise.
        self.check_deadline().and(Err(Exceeded::Time(self.limits.time)))
    }

    /// Cancels the work: it ends the next time it checks the deadline.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// The limits it started with.
    pub fn limits(&self) -> &GenerationLimits {
        &self.limits
    }

    /// The deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn charge_applications(&self, count: u64) -> Result<(), Exceeded> {
        spend(&self.applications, count, self.limits.applications).map_err(Exceeded::Applications)?;
        self.check_deadline()
    }

    pub(crate) fn charge_parameters(&self, count: u64) -> Result<(), Exceeded> {
        spend(&self.parameters, count, self.limits.parameters).map_err(Exceeded::Parameters)?;
        self.check_deadline()
    }

    pub(crate) fn charge_generators(&self, count: u64) -> Result<(), Exceeded> {
        spend(&self.generators, count, self.limits.generators).map_err(Exceeded::Generators)?;
        self.check_deadline()
    }

    /// Spends bytes of the memory that is allowed.
    ///
    /// # Errors
    /// None are left.
    pub fn charge_bytes(&self, count: u64) -> Result<(), Exceeded> {
        spend(&self.bytes, count, self.limits.bytes).map_err(Exceeded::Bytes)
    }

    /// Checks that the work may go on.
    ///
    /// # Errors
    /// The deadline has passed, or the work was canceled.
    pub fn check_deadline(&self) -> Result<(), Exceeded> {
        // Before the deadline, so that work that nobody waits for is not reported as too slow.
        if self.cancelled.load(Ordering::Relaxed) {
            Err(Exceeded::Cancelled)
        } else if Instant::now() < self.deadline {
            Ok(())
        } else {
            Err(Exceeded::Time(self.limits.time))
        }
    }
}

fn spend(spent: &AtomicU64, count: u64, allowed: u64) -> Result<(), Excess> {
    let before = spent.fetch_add(count, Ordering::Relaxed);
    match before.saturating_add(count) {
        observed if observed > allowed => Err(Excess { observed, allowed }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Exceeded, Excess, GenerationBudget, WorkSlot};
    use tollgate_config::GenerationLimits;

    #[test]
    fn exceeded_limits_report_observed_and_allowed() {
        let limits = GenerationLimits {
            applications: 2,
            parameters: 2,
            generators: 2,
            bytes: 2,
            ..GenerationLimits::default()
        };
        let budget = GenerationBudget::new(limits);
        let excess = Excess {
            observed: 3,
            allowed: 2,
        };
        assert_eq!(budget.charge_applications(2), Ok(()));
        assert_eq!(budget.charge_applications(1), Err(Exceeded::Applications(excess)));
        assert_eq!(budget.charge_parameters(3), Err(Exceeded::Parameters(excess)));
        assert_eq!(budget.charge_generators(3), Err(Exceeded::Generators(excess)));
        assert_eq!(budget.charge_bytes(2), Ok(()));
        assert_eq!(budget.charge_bytes(1), Err(Exceeded::Bytes(excess)));
    }

    /// Counts how often it is released; `is_free` says whether it can be reacquired.
    #[derive(Debug)]
    struct Counted {
        released: Arc<AtomicU64>,
        is_free: bool,
    }

    impl WorkSlot for Counted {
        fn release(&self) {
            self.released.fetch_add(1, Ordering::Relaxed);
        }

        fn reacquire(&self, _: Instant, _: &dyn Fn() -> bool) -> bool {
            self.is_free
        }
    }

    #[test]
    fn the_slot_is_released_while_waiting() {
        for (is_free, expected) in [(true, Ok(1)), (false, Err(()))] {
            let released = Arc::new(AtomicU64::new(0));
            let slot = Counted {
                released: Arc::clone(&released),
                is_free,
            };
            let budget = GenerationBudget::new(GenerationLimits::default()).with_slot(Box::new(slot));
            assert_eq!(released.load(Ordering::Relaxed), 0);
            let seen = budget.release_while(|| released.load(Ordering::Relaxed));
            assert_eq!(seen.map_err(|_| ()), expected);
        }
        assert_eq!(
            GenerationBudget::new(GenerationLimits::default()).release_while(|| 7),
            Ok(7),
            "a budget without a slot"
        );
    }

    #[test]
    fn deadline_and_cancellation_are_checked() {
        let allowed = Duration::ZERO;
        let over = GenerationBudget::new(GenerationLimits {
            time: allowed,
            ..GenerationLimits::default()
        });
        assert_eq!(over.check_deadline(), Err(Exceeded::Time(allowed)));
        assert_eq!(over.charge_parameters(1), Err(Exceeded::Time(allowed)));
        let budget = GenerationBudget::new(GenerationLimits::default());
        assert_eq!(budget.check_deadline(), Ok(()));
        budget.cancel();
        assert_eq!(budget.check_deadline(), Err(Exceeded::Cancelled));
    }
}
