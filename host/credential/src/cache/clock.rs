//! The current [`Moment`], on two clocks. Neither is trusted alone: the monotonic clock stops while
//! a machine sleeps, and people set the wall clock back.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// One moment, read from both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the clock began; never goes back.
    pub monotonic: Duration,
    /// The time of day.
    pub wall: Timestamp,
}

impl Moment {
    /// This moment plus a duration. Saturates at the end of either clock's range.
    #[must_use]
    pub fn plus(self, more: Duration) -> Self {
        Self {
            monotonic: self.monotonic.saturating_add(more),
            wall: self.wall.saturating_add(more).unwrap_or(Timestamp::MAX),
        }
    }

    /// Whether at least one clock says that the other moment has come.
    pub fn is_at_or_after(self, other: Self) -> bool {
        self.monotonic >= other.monotonic || self.wall >= other.wall
    }

    /// How long after another moment this one is, at least zero.
    pub fn since(self, earlier: Self) -> Duration {
        self.monotonic.saturating_sub(earlier.monotonic)
    }

    /// Milliseconds since the clock began.
    pub(super) fn millis(self) -> u64 {
        u64::try_from(self.monotonic.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A source of time. Tests use one that stands still and jumps.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Moment;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment {
            monotonic: self.began.elapsed(),
            wall: Timestamp::now(),
        }
    }
}
