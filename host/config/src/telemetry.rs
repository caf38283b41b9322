//! Settings of what the gateway sends to an OpenTelemetry collector.

use std::path::PathBuf;

use url::Url;

/// Where traces go, and how many of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// Base URL of a collector that takes OTLP over HTTP; `v1/traces` is below it.
    pub endpoint: Url,
    /// PEM file with the only authorities trusted for it; the system's when absent.
    pub ca: Option<PathBuf>,
    /// The share of traces that begin here and are sent, 0 to 1.
    pub ratio: f64,
}
