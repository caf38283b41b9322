//! Metrics of the store.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use tollgate_core::metrics;

/// Bounds of the times of the store, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];

type Label<V> = [(&'static str, V); 1];

metrics! {
    /// Counts of the store's operations.
    #[derive(Debug)]
    pub struct Metrics {
        pub(crate) waiting: Gauge, "tollgate_store_changes_waiting",
            "Changes that wait for the store, or are being written";
        failures: Family<Label<&'static str>, Counter>, "tollgate_store_failures", "Operations that the store failed";
        duration: Family<Label<&'static str>, Histogram, fn() -> Histogram>
            = Family::new_with_constructor(|| Histogram::new(BUCKETS)), "tollgate_store" in Unit::Seconds,
            "Time of a read, of a transaction that writes, and of the wait of a change for its turn";
    }
}

impl Metrics {
    /// - `operation`: `read`, `write`, or `queue` for the wait of a change for its turn.
    pub fn observe(&self, operation: &'static str, duration: Duration) {
        let histogram = self.duration.get_or_create(&[("operation", operation)]);
        histogram.observe(duration.as_secs_f64());
    }

    /// - `operation`: `read`, `write`, or work in the background: `audit`, `forget`, `revocations` or `seen`.
    pub fn failed(&self, operation: &'static str) {
        self.failures.get_or_create(&[("operation", operation)]).inc();
    }
}
