//! Makes spans (OpenTelemetry) of decision records: one of the request, and one of each stage below it.
//!
//! A request that brings a `traceparent` continues that trace (W3C Trace Context). The ids of spans follow
//! from the decision's id, so that the upstream can be told before the spans are made.
//!
//! Security: spans say no more than the record does, and nothing about the person.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks, SpanProcessor};
use uuid::Uuid;

use super::trace::Traceparent;
use super::{Outcome, Record, Stage};

/// Name of the header field.
pub(super) const TRACEPARENT: &str = "traceparent";

/// The stages, as spans call them.
const STAGES: [(Stage, &str, SpanKind); 4] = [
    (Stage::Authenticate, "authenticate", SpanKind::Internal),
    (Stage::Authorize, "authorize", SpanKind::Internal),
    (Stage::Headers, "headers", SpanKind::Internal),
    (Stage::Forward, "forward", SpanKind::Client),
];

/// Sends spans of decision records.
#[derive(Clone, Debug)]
pub struct Tracing {
    processor: Arc<dyn SpanProcessor>,
    ratio: f64,
}

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: TraceId,
    /// The caller's span; zero if the trace begins here.
    parent: SpanId,
    is_sampled: bool,
}

impl Tracing {
    /// - `ratio`: share of traces that begin here and are sent, 0 to 1. For a caller's trace, the
    ///   caller's `traceparent` decides.
    pub fn new(processor: Arc<dyn SpanProcessor>, ratio: f64) -> Self {
        Self { processor, ratio }
    }

    /// The place in a trace of a request with these fields.
    pub(super) fn context(&self, headers: Option<&HeaderMap>, decision: Uuid) -> TraceContext {
        if let Some(caller) = headers.and_then(Traceparent::read) {
            return TraceContext {
                trace: TraceId::from(caller.trace),
                parent: SpanId::from(caller.parent),
                is_sampled: caller.is_sampled,
            };
        }
        // Only the last 32 bits are random: those before them count the ids of a millisecond.
        let [.., a, b, c, d] = *decision.as_bytes();
        let position = f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0);
        TraceContext {
            trace: TraceId::from(decision.as_u128()),
            parent: SpanId::INVALID,
            is_sampled: position < self.ratio,
        }
    }

    /// Sends the spans of a record.
    pub(super) fn send(&self, record: &Record) {
        let Some(context) = record.trace.filter(|context| context.is_sampled) else {
            return;
        };
        for span in spans(record, context) {
            self.processor.on_end(span);
        }
    }

    /// Sends what waits, for at most `limit`. Blocks.
    pub fn shutdown(&self, limit: Duration) {
        // What cannot be sent by then is lost, as while the collector is away.
        let _ = self.processor.shutdown_with_timeout(limit);
    }
}

impl TraceContext {
    /// The trace's id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.trace.to_string()
    }

    /// The field for the upstream, whose spans are below the stage `forward`.
    pub fn traceparent(&self, decision: Uuid) -> Option<HeaderValue> {
        let (span, flags) = (span_id(decision, Some(Stage::Forward)), u8::from(self.is_sampled));
        HeaderValue::from_str(&format!("00-{}-{span}-{flags:02x}", self.trace)).ok()
    }

    /// Whether the caller began the trace.
    pub fn has_caller(&self) -> bool {
        self.parent != SpanId::INVALID
    }
}

/// The id of a request's span, or of that of a stage.
fn span_id(decision: Uuid, stage: Option<Stage>) -> SpanId {
    let number = stage.map_or(0, |stage| stage as u64 + 1);
    // The first half of a UUID of version 7 is mostly time, which several requests share.
    SpanId::from(decision.as_u64_pair().1 ^ number)
}

fn spans(record: &Record, context: TraceContext) -> Vec<SpanData> {
    let start = SystemTime::from(record.at);
    let root = span_id(record.id, None);
    let span = |id, parent, name: String, kind, (start, end)| SpanData {
        span_context: SpanContext::new(context.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
        parent_span_id: parent,
        parent_span_is_remote: parent == context.parent,
        span_kind: kind,
        name: name.into(),
        start_time: start,
        end_time: end,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("tollgate").build(),
    };
    let mut spans = Vec::with_capacity(STAGES.len() + 1);
    let mut at = start;
    for (stage, name, kind) in STAGES {
        let taken = record.stage_durations.get(stage as usize).copied().unwrap_or_default();
        let end = at + taken;
        if !taken.is_zero() {
            spans.push(span(
                span_id(record.id, Some(stage)),
                root,
                name.to_owned(),
                kind,
                (at, end),
            ));
        }
        at = end;
    }
    let name = format!("{} {}", record.method, record.front);
    let mut request = span(root, context.parent, name, SpanKind::Server, (start, at));
    request.attributes = vec![
        KeyValue::new("http.request.method", record.method.to_string()),
        KeyValue::new("http.response.status_code", i64::from(record.status)),
        KeyValue::new("url.path", record.path.clone()),
        KeyValue::new("tollgate.decision_id", record.id.to_string()),
        KeyValue::new("tollgate.front", record.front),
        KeyValue::new("tollgate.outcome", record.outcome.as_ref().to_owned()),
        KeyValue::new("tollgate.reason", record.reason),
    ];
    if record.outcome == Outcome::Failed {
        // A refusal is no error of the server. Source: OpenTelemetry, semantic conventions for HTTP spans.
        request.status = Status::error(record.reason);
    }
    spans.push(request);
    spans
}

#[cfg(test)]
mod tests;
