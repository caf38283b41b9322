//! Bounds the spans that wait for the collector, and counts those that it does not get.
//!
//! The SDK's queue drops spans without telling anybody until the process ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use prometheus_client::metrics::counter::Counter;

/// Most spans that wait for the collector or are on their way to it.
const WAITING: usize = 2_048;

/// Passes spans on to the SDK's queue while it has room.
#[derive(Debug)]
pub(super) struct BoundedProcessor {
    queue: BatchSpanProcessor,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Counts {
    waiting: Arc<AtomicUsize>,
    lost: Counter,
}

/// Counts the spans of batches that fail.
#[derive(Debug)]
struct CountingExporter<E> {
    exporter: E,
    counts: Counts,
}

impl BoundedProcessor {
    pub(super) fn new(exporter: impl SpanExporter + 'static, lost: &Counter) -> Self {
        let counts = Counts {
            waiting: Arc::default(),
            lost: lost.clone(),
        };
        let counting = CountingExporter {
            exporter,
            counts: counts.clone(),
        };
        let config = BatchConfigBuilder::default().with_max_queue_size(WAITING).build();
        let queue = BatchSpanProcessor::builder(counting).with_batch_config(config).build();
        Self { queue, counts }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.queue.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        // Never more than the queue has places for, so that it drops nothing by itself.
        let room = |waiting: usize| (waiting < WAITING).then_some(waiting.saturating_add(1));
        let waiting = &self.counts.waiting;
        match waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => self.queue.on_end(span),
            Err(_) => drop(self.counts.lost.inc()),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(limit)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.exporter.export(batch).await;
        // Also after a failure: the SDK does not send the batch again, so its places are free.
        self.counts.waiting.fetch_sub(spans, Ordering::Relaxed);
        if exported.is_err() {
            self.counts.lost.inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
        }
        exported
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(limit)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
