//! How often one host may be asked, over all plugins and clusters.
//!
//! In: a host. Out: its turn. Never: a wait beyond the request's deadline.
//!
//! Issuers throttle accounts, not callers: five hundred clusters that start at
//! once are one customer to them.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

/// Requests a second to one host.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// Requests to one host at once, after a quiet time.
const BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();
/// Hosts remembered before those at rest are forgotten. Entries with a
/// wildcard let a configuration choose names.
const MAX_HOSTS: usize = 1024;

/// Tokio's clock, which tests can stop.
#[derive(Clone, Debug)]
struct Ticks {
    start: Instant,
}

impl Clock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// One limiter for the whole process.
#[derive(Debug)]
pub(super) struct Pace {
    clock: Ticks,
    hosts: RateLimiter<String, DashMapStateStore<String>, Ticks, NoOpMiddleware<Duration>>,
}

impl Pace {
    pub(super) fn new() -> Self {
        let clock = Ticks { start: Instant::now() };
        let quota = Quota::per_second(PER_SECOND).allow_burst(BURST);
        Self {
            hosts: RateLimiter::new(quota, DashMapStateStore::default(), clock.clone()),
            clock,
        }
    }

    /// Waits for the host's turn. Gives `false`, at once, when that comes only
    /// after `deadline`.
    pub(super) async fn turn(&self, host: &str, deadline: Instant) -> bool {
        if self.hosts.len() > MAX_HOSTS {
            self.hosts.retain_recent();
        }
        let host = host.to_owned();
        loop {
            let Err(early) = self.hosts.check_key(&host) else {
                return true;
            };
            let wait = early.wait_time_from(self.clock.now());
            match Instant::now().checked_add(wait) {
                Some(turn) if turn <= deadline => tokio::time::sleep_until(turn).await,
                _ => return false,
            }
        }
    }
}
