//! Limits how often one host is asked, across all plugins and clusters. Issuers throttle accounts,
//! not callers: to them, five hundred clusters that start at once are one customer.
//!
//! Invariant: no request waits beyond its deadline.

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
/// Hosts remembered before idle ones are forgotten. The number is limited because an entry with a
/// wildcard lets a configuration choose names.
const MAX_HOSTS: usize = 1024;

/// Tokio's clock, which tests can stop.
#[derive(Clone, Debug)]
struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The rate limits of all hosts, shared by the whole process.
#[derive(Debug)]
pub(super) struct RateLimit {
    clock: TokioClock,
    hosts: RateLimiter<String, DashMapStateStore<String>, TokioClock, NoOpMiddleware<Duration>>,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        let clock = TokioClock { start: Instant::now() };
        let quota = Quota::per_second(PER_SECOND).allow_burst(BURST);
        Self {
            hosts: RateLimiter::new(quota, DashMapStateStore::default(), clock.clone()),
            clock,
        }
    }

    /// Waits until the rate limit permits a request to `host`. Returns `false` immediately if that
    /// is only after `deadline`.
    pub(super) async fn acquire(&self, host: &str, deadline: Instant) -> bool {
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
                // Another request may take the turn meanwhile, so the loop asks again.
                Some(turn) if turn <= deadline => tokio::time::sleep_until(turn).await,
                _ => return false,
            }
        }
    }
}
