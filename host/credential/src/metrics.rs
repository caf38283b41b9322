//! Metrics of cluster credentials.
//!
//! Security: no label contains a secret or a value that a caller chooses freely.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use tollgate_core::metrics;

use super::cache::health::{Health, Totals};

/// Bounds of Argo CD's own histogram, in seconds.
const DURATION_BUCKETS: [f64; 7] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

/// An empty histogram of durations, in seconds, with Argo CD's buckets.
pub fn duration_histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

/// One label and its value.
type Label<V> = [(&'static str, V); 1];
type ClusterLabels = (Label<String>, Label<&'static str>);

metrics! {
    /// Metrics of cluster credentials.
    #[derive(Debug)]
    pub struct Metrics {
        mints: Family<ClusterLabels, Counter>, "tollgate_credential_mints", "Mints of credentials, by result";
        duration: Family<Label<String>, Histogram, fn() -> Histogram> = Family::new_with_constructor(duration_histogram),
            "tollgate_credential_mint" in Unit::Seconds, "Time of a mint, successful or not";
        expiry: Family<Label<String>, Gauge<f64, AtomicU64>>, "tollgate_credential_expiry" in Unit::Seconds,
            "Remaining lifetime of the current credential; absent if there is none, or its expiry is not known. An \
             unused credential is not renewed";
        last_error: Family<ClusterLabels, Gauge<f64, AtomicU64>>, "tollgate_credential_last_error",
            "Time of the last failed mint, in seconds since 1970. It stays after a later mint has succeeded";
        entries: Family<Label<&'static str>, Gauge>, "tollgate_credential_cache_entries",
            "Size of the cache of credentials: clusters with a place in it (`slots`), and credentials in memory \
             (`live`)";
    }
}

impl Metrics {
    /// - `cluster`: a name or server of the state folder.
    /// - `result`: `ok`, a class of failure, or `cut-off`.
    pub fn record_mint(&self, cluster: &str, result: &'static str, seconds: f64) {
        let labels = ([("cluster", cluster.to_owned())], [("result", result)]);
        self.mints.get_or_create(&labels).inc();
        self.duration.get_or_create(&labels.0).observe(seconds);
    }

    /// Replaces what is known of the credentials of all clusters.
    pub fn replace<'a>(&self, health: impl Iterator<Item = (&'a str, Health)>, totals: Totals) {
        // Removes the series of clusters that are gone.
        self.expiry.clear();
        self.last_error.clear();
        let now = jiff::Timestamp::now();
        for (cluster, health) in health {
            let cluster = [("cluster", cluster.to_owned())];
            if let Some(end) = health.expires_at {
                let left = end.duration_since(now).as_secs_f64();
                self.expiry.get_or_create(&cluster).set(left);
            }
            if let Some(last) = health.last_error {
                let labels = (cluster, [("class", last.error.class.into())]);
                let at = last.at.duration_since(jiff::Timestamp::UNIX_EPOCH).as_secs_f64();
                self.last_error.get_or_create(&labels).set(at);
            }
        }
        for (kind, number) in [("slots", totals.slots), ("live", totals.live)] {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            self.entries.get_or_create(&[("kind", kind)]).set(number);
        }
    }
}
