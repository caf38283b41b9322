use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::running::telemetry::resource;

/// An exporter to this address.
fn exporter(address: std::net::SocketAddr) -> MetricsExporter {
    let settings = Telemetry {
        endpoint: Url::parse(&format!("http://{address}/otlp/")).unwrap(),
        ca: None,
        ratio: 1.0,
        metrics_interval: Duration::from_secs(60),
    };
    MetricsExporter::new(&settings, &resource()).unwrap()
}

/// Answers one request on a separate connection, and returns the request's head and body.
async fn answer(listener: &TcpListener, status: &str, body: &[u8]) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    let (head, length) = loop {
        assert!(
            stream.read_buf(&mut request).await.unwrap() > 0,
            "the request ended early"
        );
        let Some(end) = memchr::memmem::find(&request, b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(request[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = end + 4 + length.unwrap().parse::<usize>().unwrap();
        break (head, length);
    };
    while request.len() < length {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0, "the body ended early");
    }
    let body_at = head.len() + 4;
    let text = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    // The client need not read all of it.
    let _ = stream.write_all(body).await;
    (head, request.split_off(body_at))
}

/// The value of the counter of reloads that failed.
fn failures(request: &ExportMetricsServiceRequest) -> Value {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let found = metrics
        .iter()
        .find(|metric| metric.name == "tollgate_reload_failures_total");
    let Some(Data::Sum(sum)) = &found.unwrap().data else {
        panic!("no sum")
    };
    sum.data_points[0].value.unwrap()
}

#[tokio::test]
async fn a_push_names_the_process_and_has_its_metrics() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let exporter = exporter(listener.local_addr().unwrap());
    let metrics = Metrics::default();
    metrics.count_load(tollgate_proxy::metrics::ConfigPart::State, false);
    let (pushed, (head, body)) = tokio::join!(
        exporter.try_push(exporter.message(&metrics)),
        answer(&listener, "200 OK", b"")
    );
    pushed.unwrap();
    assert!(head.starts_with("POST /otlp/v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/x-protobuf"), "{head}");
    let request = ExportMetricsServiceRequest::decode(&*body).unwrap();
    assert_eq!(failures(&request), Value::AsInt(1));
    let scope = request.resource_metrics[0].scope_metrics[0].scope.as_ref();
    assert_eq!(scope.unwrap().name, "tollgate");
    let resource = request.resource_metrics[0].resource.as_ref().unwrap();
    let mut keys: Vec<&str> = resource.attributes.iter().map(|pair| &*pair.key).collect();
    keys.sort_unstable();
    let sdk = ["telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"];
    assert_eq!(
        keys,
        [["service.instance.id", "service.name"].as_slice(), &sdk].concat()
    );
}

#[tokio::test]
async fn every_other_answer_is_a_failure() {
    let rejected = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 3,
            error_message: "too old".to_owned(),
        }),
    };
    let warned = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 0,
            error_message: "use another name".to_owned(),
        }),
    };
    let not_otlp = "the collector's answer is not OTLP, or longer than 65536 bytes";
    for (status, body, expected) in [
        ("200 OK", warned.encode_to_vec(), None),
        (
            "200 OK",
            rejected.encode_to_vec(),
            Some("the collector rejected 3 data points: \"too old\""),
        ),
        ("200 OK", b"<html>".to_vec(), Some(not_otlp)),
        ("200 OK", vec![0; MAX_ANSWER_BYTES + 1], Some(not_otlp)),
        (
            "307 Temporary Redirect\r\nlocation: /",
            Vec::new(),
            Some("the collector answered `307 Temporary Redirect`"),
        ),
        (
            "503 Service Unavailable",
            Vec::new(),
            Some("the collector answered `503 Service Unavailable`"),
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let exporter = exporter(listener.local_addr().unwrap());
        let metrics = Metrics::default();
        let (pushed, _) = tokio::join!(
            exporter.try_push(exporter.message(&metrics)),
            answer(&listener, status, &body)
        );
        assert_eq!(
            pushed.err().map(|error| error.to_string()).as_deref(),
            expected,
            "{status}"
        );
    }
}

#[tokio::test]
async fn only_the_first_failure_and_the_success_after_it_are_logged() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::sync::Mutex::new(log.reopen().unwrap()))
        .finish();
    // Tasks of this runtime run on this thread.
    let _logged = tracing::subscriber::set_default(subscriber);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let exporter = exporter(listener.local_addr().unwrap());
    let metrics = Metrics::default();
    for status in [
        "200 OK",
        "503 Service Unavailable",
        "500 Internal Server Error",
        "200 OK",
        "200 OK",
    ] {
        tokio::join!(
            exporter.push(exporter.message(&metrics)),
            answer(&listener, status, b"")
        );
    }
    let text = std::fs::read_to_string(log.path()).unwrap();
    let about = |line: &&str| line.contains("metrics") && line.contains("pushed");
    let lines: Vec<&str> = text.lines().filter(about).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("the collector answered `503"),
        "{text}"
    );
    assert!(
        lines[1].contains("INFO") && lines[1].contains("metrics are pushed again"),
        "{text}"
    );
}
