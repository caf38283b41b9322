//! Settings of what the gateway sends to an OpenTelemetry collector.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// Where traces and metrics go, how many traces, and how often metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// Base URL of a collector that takes OTLP over HTTP; `v1/traces` and `v1/metrics` are below it.
    pub endpoint: Url,
    /// PEM file with the only authorities trusted for it; the system's when absent.
    pub ca: Option<PathBuf>,
    /// The share of traces that begin here and are sent, 0 to 1.
    pub ratio: f64,
    /// Time between two pushes of the metrics, 1 second to 1 hour.
    pub metrics_interval: Duration,
}
