//! The time of day, as guests and expiry times have it.

use std::fmt;

/// The clock guests and expiry times see.
pub trait WallClock: Send + Sync + fmt::Debug + 'static {
    /// Now.
    fn now(&self) -> jiff::Timestamp;
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemWallClock;

impl WallClock for SystemWallClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}

/// Milliseconds since 1970; nothing for a time before.
pub(crate) fn milliseconds(time: jiff::Timestamp) -> Option<u64> {
    u64::try_from(time.as_millisecond()).ok()
}
