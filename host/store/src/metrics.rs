//! Metrics of the store.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of the times of the store, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];

/// One label and its value.
type Label<V> = [(&'static str, V); 1];

/// Counts of the store's operations.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Changes that wait for the store.
    pub(crate) waiting: Gauge,
    failures: Family<Label<&'static str>, Counter>,
    duration: Durations,
}

/// How long operations of the store took.
#[derive(Debug)]
struct Durations(Family<Label<&'static str>, Histogram, fn() -> Histogram>);

impl Default for Durations {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(BUCKETS)))
    }
}

impl Metrics {
    /// Registers every metric of the store.
    pub fn add_to(&self, registry: &mut Registry) {
        let help = "Changes that wait for the store, or are being written";
        registry.register("tollgate_store_changes_waiting", help, self.waiting.clone());
        let help = "Operations that the store failed";
        registry.register("tollgate_store_failures", help, self.failures.clone());
        let help = "Time of a read, of a transaction that writes, and of the wait of a change for its turn";
        registry.register_with_unit("tollgate_store", help, Unit::Seconds, self.duration.0.clone());
    }

    /// - `operation`: `read`, `write`, or `queue` for the wait of a change for its turn.
    pub fn observe(&self, operation: &'static str, duration: Duration) {
        let histogram = self.duration.0.get_or_create(&[("operation", operation)]);
        histogram.observe(duration.as_secs_f64());
    }

    /// - `operation`: `read`, `write`, or work in the background: `audit`, `forget`, `revocations` or `seen`.
    pub fn failed(&self, operation: &'static str) {
        self.failures.get_or_create(&[("operation", operation)]).inc();
    }
}
