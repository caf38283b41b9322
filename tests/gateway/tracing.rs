//! Traces and metrics, with a real OpenTelemetry Collector.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use test_support::backend::{Backend, Reply};
use test_support::client::PATIENCE;
use test_support::port::free_port;
use test_support::world::{Setup, World, checkout};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector that writes what it gets to a file.
struct Collector {
    _process: Child,
    folder: tempfile::TempDir,
    endpoint: String,
}

impl Collector {
    async fn start() -> Self {
        Self::start_at(&format!("127.0.0.1:{}", free_port())).await
    }

    async fn start_at(address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
            "exporters": {"debug": {"verbosity": "detailed"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {
                    "traces": {"receivers": ["otlp"], "exporters": ["debug"]},
                    "metrics": {"receivers": ["otlp"], "exporters": ["debug"]},
                },
            },
        });
        let config = folder.path().join("collector.yaml");
        std::fs::write(&config, settings.to_string()).unwrap();
        let program = test_support::programs::collector(&checkout()).unwrap();
        let output = std::fs::File::create(folder.path().join("output")).unwrap();
        let process = Command::new(&program)
            .arg(format!("--config=file:{}", config.display()))
            .stdout(Stdio::null())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}: run `cargo xtask kubernetes`", program.display()));
        let collector = Self {
            _process: process,
            folder,
            endpoint: format!("http://{address}"),
        };
        collector.until("Everything is ready").await;
        collector
    }

    /// Waits until its output has a text, and returns all of it.
    async fn until(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = read(&self.folder.path().join("output"));
            if output.contains(text) {
                return output;
            }
            assert!(Instant::now() < end, "no `{text}`: {output}");
            sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Waits until `tollgate_decisions_total` has these values by outcome, both for extensions, and returns
    /// all output.
    async fn until_decisions(&self, allowed: u64, denied: u64) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = read(&self.folder.path().join("output"));
            let counted = |outcome, reason| decisions(&output, outcome, reason);
            if counted("allowed", "allowed") == Some(allowed) && counted("denied", "permission_denied") == Some(denied)
            {
                return output;
            }
            assert!(
                Instant::now() < end,
                "not {allowed} allowed and {denied} denied: {output}"
            );
            sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// The last value of `tollgate_decisions_total` with these labels.
fn decisions(output: &str, outcome: &str, reason: &str) -> Option<u64> {
    let (_, metric) = output.rsplit_once("     -> Name: tollgate_decisions_total\n")?;
    let metric = metric.split("\nMetric #").next()?;
    let labels =
        format!("     -> front: Str(extensions)\n     -> outcome: Str({outcome})\n     -> reason: Str({reason})\n");
    let (_, point) = metric.split_once(&labels)?;
    field(point, "Value").parse().ok()
}

/// Sends two requests that are allowed, and one that is denied.
async fn send_requests(world: &World) {
    for (user, status) in [("alice", 200), ("bob", 403), ("alice", 200)] {
        assert_eq!(world.get(user, "/x").send().await.unwrap().status(), status);
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The value of a line of a span, such as `Parent ID      : b7ad…`.
fn field<'a>(span: &'a str, name: &str) -> &'a str {
    let line = span.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    });
    line.unwrap_or_else(|| panic!("no {name}: {span}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stages_of_a_request_are_spans_of_its_callers_trace() {
    let collector = Collector::start().await;
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"telemetry": {"endpoint": collector.endpoint}});
    let world = setup.start().await;
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let answer = world
        .get("alice", "/x")
        .header("traceparent", &traceparent)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let decision = world.decision(&answer).await;
    assert_eq!(decision["trace_id"], TRACE);
    let denied = world
        .get("bob", "/x")
        .header("traceparent", &traceparent)
        .send()
        .await
        .unwrap();
    assert_eq!(denied.status(), 403);

    // The span of the second request is the last one.
    let output = collector.until("tollgate.outcome: Str(denied)").await;
    let spans: Vec<&str> = output.split("\nSpan #").skip(1).collect();
    let named = |name: &str| -> Vec<&str> {
        let mut found = spans.clone();
        found.retain(|span| field(span, "Name") == name);
        found
    };
    let requests = named("GET extensions");
    assert_eq!(requests.len(), 2, "{output}");
    for request in &requests {
        assert_eq!(
            (
                field(request, "Trace ID"),
                field(request, "Parent ID"),
                field(request, "Kind")
            ),
            (TRACE, PARENT, "Server")
        );
    }
    let request = requests[0];
    assert!(request.contains(&format!(
        "tollgate.decision_id: Str({})",
        decision["decision_id"].as_str().unwrap()
    )));
    assert!(
        request.contains("http.response.status_code: Int(200)") && request.contains("tollgate.reason: Str(allowed)")
    );
    // What the record keeps of the person stays there.
    assert!(!output.contains("alice") && !output.contains("bob"), "{output}");
    let forwards = named("forward");
    assert_eq!(forwards.len(), 1, "what is denied is not forwarded: {output}");
    assert_eq!(field(forwards[0], "Parent ID"), field(request, "ID"));
    for stage in ["authenticate", "authorize", "headers"] {
        assert!(!named(stage).is_empty(), "no {stage}: {output}");
    }
    // The backend's spans are below the stage that called it.
    let seen = backend.seen();
    assert_eq!(seen.len(), 1);
    let expected = format!("00-{TRACE}-{}-01", field(forwards[0], "ID"));
    assert_eq!(seen[0].values("traceparent"), [expected.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_nothing_up() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"telemetry": {"endpoint": "http://127.0.0.1:9"}});
    let world = setup.start().await;
    let answer = world.get("alice", "/x").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let decision = world.decision(&answer).await;
    let trace = decision["decision_id"].as_str().unwrap().replace('-', "");
    assert_eq!(decision["trace_id"], trace.as_str());
    assert!(backend.seen()[0].values("traceparent")[0].starts_with(&format!("00-{trace}-")));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_pushed_with_their_labels() {
    let collector = Collector::start().await;
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"telemetry": {"endpoint": collector.endpoint, "metricsInterval": "1s"}});
    let world = setup.start().await;
    send_requests(&world).await;
    let output = collector.until_decisions(2, 1).await;
    let (_, metric) = output.rsplit_once("     -> Name: tollgate_decisions_total\n").unwrap();
    assert_eq!(
        field(metric, "-> Description"),
        "Decision records: one for each request, with its outcome and reason."
    );
    assert_eq!(field(metric, "-> DataType"), "Sum");
    assert_eq!(field(metric, "-> IsMonotonic"), "true");
    assert_eq!(field(metric, "-> AggregationTemporality"), "Cumulative");
    assert!(output.contains("-> service.name: Str(tollgate)"), "{output}");
    assert!(output.contains("-> service.instance.id: Str("), "{output}");
    let (_, exchange) = output
        .rsplit_once("     -> Name: argocd_proxy_extension_request_duration_seconds\n")
        .unwrap();
    assert_eq!(field(exchange, "-> DataType"), "Histogram");
    assert_eq!(field(exchange, "-> Unit"), "s");
    assert_eq!(field(exchange, "Count"), "2");
    assert!(exchange.contains("ExplicitBounds #6: 10.000000"), "{exchange}");
    assert!(!output.contains("alice") && !output.contains("bob"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_metrics_are_pushed_when_the_gateway_stops() {
    let collector = Collector::start().await;
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"telemetry": {"endpoint": collector.endpoint, "metricsInterval": "1h"}});
    let world = setup.start().await;
    send_requests(&world).await;
    assert!(!read(&collector.folder.path().join("output")).contains("tollgate_decisions"));
    world.running.stop().await.unwrap();
    collector.until_decisions(2, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_comes_back_gets_what_it_missed() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = away.local_addr().unwrap().to_string();
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    let endpoint = format!("http://{address}");
    setup.settings = json!({"telemetry": {"endpoint": endpoint, "metricsInterval": "1s", "ratio": 0.0}});
    let world = setup.start().await;
    send_requests(&world).await;
    // A push with these counts gets no answer.
    let mut lost = Vec::new();
    while memchr::memmem::find(&lost, b"permission_denied").is_none() {
        let (mut connection, _) = away.accept().await.unwrap();
        lost.clear();
        while memchr::memmem::find(&lost, b"permission_denied").is_none()
            && connection.read_buf(&mut lost).await.unwrap() > 0
        {}
        assert!(
            lost.starts_with(b"POST /v1/metrics "),
            "without sampled traces, all are pushes"
        );
    }
    drop(away);
    let collector = Collector::start_at(&address).await;
    send_requests(&world).await;
    collector.until_decisions(4, 2).await;
}
