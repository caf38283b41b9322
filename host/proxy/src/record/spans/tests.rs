use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use opentelemetry::Context;
use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use uuid::Uuid;

use super::Tracing;
use crate::metrics::Metrics;
use crate::record::{Outcome, Recorder, Stage};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Keeps what it is given.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Kept {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn headers(traceparent: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(super::TRACEPARENT, HeaderValue::from_str(traceparent).unwrap());
    headers
}

fn tracing(ratio: f64) -> (Tracing, Kept) {
    let kept = Kept::default();
    (Tracing::new(Arc::new(kept.clone()), ratio), kept)
}

#[test]
fn a_request_continues_its_callers_trace_with_a_span_for_each_stage() {
    let (tracing, kept) = tracing(0.0);
    let recorder = Recorder::start(1, None, Arc::new(Metrics::default()), Some(tracing)).unwrap();
    let mut record = recorder.open(Method::GET, "/k8s-proxy/api");
    let mut fields = headers(CALLER);
    fields.insert("tracestate", HeaderValue::from_static("a=b"));
    record.trace(Some(&fields));
    record.continue_trace(&mut fields);
    for stage in [Stage::Authenticate, Stage::Authorize, Stage::Forward] {
        std::thread::sleep(Duration::from_millis(1));
        record.finish_stage(stage);
    }
    record.close(Outcome::Failed, StatusCode::BAD_GATEWAY, "backend_unreachable");
    let spans = kept.0.lock().unwrap().clone();
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["authenticate", "authorize", "forward", "GET none"]);
    let request = spans.last().unwrap();
    assert_eq!(request.parent_span_id, SpanId::from_hex("b7ad6b7169203331").unwrap());
    assert_eq!(request.status, Status::error("backend_unreachable"));
    assert_eq!(request.span_kind, SpanKind::Server);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut at = request.start_time;
    for span in &spans[..3] {
        assert_eq!(span.span_context.trace_id().to_string(), trace);
        assert_eq!(span.parent_span_id, request.span_context.span_id());
        assert_eq!(span.start_time, at);
        at = span.end_time;
    }
    assert_eq!(at, request.end_time);
    assert!(request.end_time <= SystemTime::now());
    // The upstream's spans are below the stage that sends the request.
    let forward = spans[2].span_context.span_id();
    assert_eq!(fields["traceparent"], format!("00-{trace}-{forward}-01"));
    assert_eq!(fields["tracestate"], "a=b");
}

#[test]
fn a_trace_that_begins_here_has_the_decisions_id_and_is_sent_by_its_ratio() {
    for (ratio, sent) in [(1.0, 2), (0.0, 0)] {
        let (tracing, kept) = tracing(ratio);
        let recorder = Recorder::start(1, None, Arc::new(Metrics::default()), Some(tracing)).unwrap();
        // A `traceparent` that is not valid does not count.
        let mut record = recorder.open(Method::GET, "/");
        let id = record.id();
        let mut fields = headers("00-0-0-01");
        fields.insert("tracestate", HeaderValue::from_static("a=b"));
        record.trace(Some(&fields));
        record.continue_trace(&mut fields);
        std::thread::sleep(Duration::from_millis(1));
        record.finish_stage(Stage::Authenticate);
        record.close(Outcome::Denied, StatusCode::FORBIDDEN, "permission_denied");
        assert_eq!(kept.0.lock().unwrap().len(), sent);
        let upstream = fields["traceparent"].to_str().unwrap();
        assert!(upstream.starts_with(&format!("00-{}-", id.simple())), "{upstream}");
        assert!(upstream.ends_with(if sent > 0 { "-01" } else { "-00" }), "{upstream}");
        assert!(!fields.contains_key("tracestate"));
        let kept = recorder.find(id).unwrap();
        assert_eq!(kept.trace_id, Some(id.simple().to_string()));
    }
}

#[test]
fn a_caller_who_does_not_sample_is_not_sampled() {
    let (tracing, _) = tracing(1.0);
    let context = tracing.context(Some(&headers(&CALLER.replace("-01", "-00"))), Uuid::now_v7());
    assert!(context.has_caller() && !context.is_sampled);
}

#[test]
fn ids_of_decisions_spread_over_the_ratio() {
    let (tracing, _) = tracing(0.25);
    let sampled = (0..4000)
        .filter(|_| tracing.context(None, Uuid::now_v7()).is_sampled)
        .count();
    assert!((800..1200).contains(&sampled), "{sampled}");
}
