//! Pushes every metric of the process to the collector, at an interval and once at the end.
//!
//! A push that fails is not repeated: the next one has its counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::Attributes;
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource as ResourceMessage;
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use url::Url;

use super::{TIMEOUT, below, tls_config};
use crate::admin::AdminState;
use tollgate_config::Telemetry;
use tollgate_core::diagnostic::with_causes;
use tollgate_proxy::metrics::{Metrics, otlp};

/// Most bytes of the collector's answer to a push.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Why metrics did not reach the collector.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the metrics cannot be read")]
    Metrics(#[from] otlp::Error),
    /// No connection, or no answer in time.
    #[error("the collector does not answer")]
    Http(#[from] reqwest::Error),
    /// An answer other than success.
    #[error("the collector answered `{0}`")]
    Status(StatusCode),
    /// The answer is no message of OTLP.
    #[error("the collector's answer is not OTLP, or longer than {MAX_ANSWER_BYTES} bytes")]
    Answer,
    #[error("the collector rejected {points} data points: {message:?}")]
    Rejected { points: i64, message: String },
}

/// Sends metrics to the collector.
#[derive(Debug)]
pub(in crate::running) struct MetricsExporter {
    client: reqwest::Client,
    endpoint: Url,
    interval: Duration,
    resource: ResourceMessage,
    /// Since when the process counts.
    start: SystemTime,
    /// Whether the last push failed; a change is logged.
    is_failing: AtomicBool,
}

/// The exporter, and where it finds the metrics.
#[derive(Debug)]
pub(in crate::running) struct MetricsPush {
    exporter: MetricsExporter,
    admin: AdminState,
}

impl MetricsExporter {
    /// Makes what pushes metrics that are counted from now on. The collector need not answer yet.
    pub(in crate::running) fn new(settings: &Telemetry, resource: &Resource) -> anyhow::Result<Self> {
        let mut client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(config) = tls_config(settings)? {
            client = client.tls_backend_preconfigured(config);
        }
        let attributes = resource.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        Ok(Self {
            client: client.build().context("no client for the collector can be made")?,
            endpoint: below(&settings.endpoint, "v1/metrics"),
            interval: settings.metrics_interval,
            resource: ResourceMessage {
                attributes: Attributes::from(attributes).0,
                ..ResourceMessage::default()
            },
            start: SystemTime::now(),
            is_failing: AtomicBool::new(false),
        })
    }

    pub(in crate::running) fn reading(self, admin: AdminState) -> MetricsPush {
        MetricsPush { exporter: self, admin }
    }

    /// Pushes once. Logs the first of several failures, and the success that ends them.
    ///
    /// - `message`: as from [`Self::message`].
    async fn push(&self, message: Result<Vec<u8>, otlp::Error>) {
        let result = self.try_push(message).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Err(error) if !was_failing => tracing::warn!(
                endpoint = %self.endpoint,
                error = with_causes(&error),
                "metrics cannot be pushed; the next push that succeeds has their counts"
            ),
            Ok(()) if was_failing => tracing::info!(endpoint = %self.endpoint, "metrics are pushed again"),
            Ok(()) | Err(_) => {}
        }
    }

    /// What is sent. Takes some 20 ms in a large installation.
    fn message(&self, metrics: &Metrics) -> Result<Vec<u8>, otlp::Error> {
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(InstrumentationScope {
                        name: "tollgate".to_owned(),
                        ..InstrumentationScope::default()
                    }),
                    metrics: metrics.to_otlp(self.start)?,
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
        };
        Ok(request.encode_to_vec())
    }

    async fn try_push(&self, message: Result<Vec<u8>, otlp::Error>) -> Result<(), Error> {
        let request = self.client.post(self.endpoint.clone()).body(message?);
        let request = request.header(CONTENT_TYPE, "application/x-protobuf");
        let mut response = request.send().await?;
        if !response.status().is_success() {
            return Err(Error::Status(response.status()));
        }
        let mut answer = Vec::new();
        while let Some(part) = response.chunk().await? {
            if answer.len() + part.len() > MAX_ANSWER_BYTES {
                return Err(Error::Answer);
            }
            answer.extend_from_slice(&part);
        }
        let answer = ExportMetricsServiceResponse::decode(&*answer).map_err(|_| Error::Answer)?;
        match answer.partial_success {
            // OTLP: without rejected points, a partial success is only a warning.
            Some(partial) if partial.rejected_data_points != 0 => Err(Error::Rejected {
                points: partial.rejected_data_points,
                message: partial.error_message,
            }),
            Some(_) | None => Ok(()),
        }
    }
}

impl MetricsPush {
    /// Pushes the metrics as they are now.
    pub(in crate::running) async fn push(self: &Arc<Self>) {
        let here = Arc::clone(self);
        let made = spawn_blocking(move || here.exporter.message(here.admin.current_metrics())).await;
        // A panic is logged, and the next push has what this one lacks.
        if let Ok(message) = made {
            self.exporter.push(message).await;
        }
    }

    /// Pushes the metrics at each interval, forever.
    pub(in crate::running) async fn run(self: &Arc<Self>) {
        let interval = self.exporter.interval;
        let mut ticks = interval_at(Instant::now() + interval, interval);
        // Metrics are cumulative: the ticks that a slow push missed would only repeat it.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.push().await;
        }
    }
}

#[cfg(test)]
mod tests;
