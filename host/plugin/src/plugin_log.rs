//! The log of a plugin, at a limited rate.

use std::num::NonZeroU32;
use std::sync::Arc;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// Lines a plugin may log per second, over all its calls.
const LINES_PER_SECOND: NonZeroU32 = NonZeroU32::new(100).expect("not zero");

/// Writes a plugin's log lines, at a limited rate.
#[derive(Debug)]
pub(super) struct PluginLog {
    pub(super) plugin: String,
    rate: DefaultDirectRateLimiter,
}

impl PluginLog {
    pub(super) fn new(plugin: &str) -> Arc<Self> {
        let rate = RateLimiter::direct(Quota::per_second(LINES_PER_SECOND));
        Arc::new(Self {
            plugin: plugin.to_owned(),
            rate,
        })
    }

    /// Whether the rate permits one more line.
    pub(super) fn admits_line(&self) -> bool {
        self.rate.check().is_ok()
    }
}
