use std::net::SocketAddr;
use std::sync::Mutex;

use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use url::Url;

const BUCKET: Duration = Duration::from_mins(1);

/// A store with an export to a file, and a clock.
struct Fixture {
    folder: TempDir,
    store: Arc<Store>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Fixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/store", folder.path().display());
        Self {
            store: Arc::new(Store::open(&SecretString::from(url)).await.unwrap()),
            clock: Clock::default(),
            metrics: Arc::default(),
            folder,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("audit.ocsf")
    }

    fn exporter(&self, settings: &AuditExport) -> Exporter {
        let name: AgentName = Box::new(|id| (id.get() == 7).then(|| "production".to_owned()));
        Exporter::new(
            settings,
            self.store.clone(),
            self.clock.clone(),
            BUCKET,
            self.metrics.clone(),
            name,
        )
        .unwrap()
    }

    fn to_file(&self) -> Exporter {
        self.exporter(&AuditExport::File(self.file()))
    }

    /// Names of the exported events, and how often each happened.
    fn exported(&self) -> Vec<(String, u64)> {
        names(&std::fs::read_to_string(self.file()).unwrap_or_default())
    }

    fn event(&self, name: &str) -> AuditEvent {
        let now = self.clock.now();
        let details = json!({"verb": "get", "resource": "secrets", "name": name});
        AuditEvent {
            id: Uuid::now_v7(),
            first_at: now,
            last_at: now,
            count: 1,
            action: "access.allowed".to_owned(),
            user: "bob".to_owned(),
            user_id: Some(7),
            agent_id: AgentId::new(7),
            session: Some("pat:x".to_owned()),
            details: serde_json::from_value(details).unwrap(),
        }
    }

    /// Writes an event for each name.
    async fn record(&self, names: &[&str]) -> Vec<AuditEvent> {
        let events: Vec<_> = names.iter().map(|name| self.event(name)).collect();
        self.store.record(&events).await.unwrap();
        events
    }

    fn waiting(&self) -> i64 {
        self.metrics.audit_unexported.get()
    }
}

fn names(lines: &str) -> Vec<(String, u64)> {
    let name = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let name = event["resources"][0]["name"].as_str().unwrap().to_owned();
        (name, event["count"].as_u64().unwrap_or(1))
    };
    lines.lines().map(name).collect()
}

fn once(names: &[&str]) -> Vec<(String, u64)> {
    names.iter().map(|name| ((*name).to_owned(), 1)).collect()
}

#[tokio::test]
async fn events_are_exported_once_and_when_they_are_no_longer_counted() {
    let fixture = Fixture::start().await;
    fixture.record(&["before the export"]).await;
    let mut exporter = fixture.to_file();
    let events = fixture.record(&["a", "b"]).await;
    assert_eq!(exporter.export_batch().await.unwrap(), 0);
    assert_eq!(fixture.waiting(), 2);
    fixture.clock.advance(BUCKET);
    let counted = AuditEvent {
        count: 3,
        ..events[0].clone()
    };
    fixture.store.record(&[counted]).await.unwrap();
    fixture.clock.advance(LATE * 2);
    assert_eq!(exporter.export_batch().await.unwrap(), 2);
    assert_eq!(fixture.exported(), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    assert_eq!((fixture.waiting(), fixture.metrics.audit_exported.get()), (0, 2));
    assert_eq!(exporter.export_batch().await.unwrap(), 0);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(fixture.file()).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn an_event_that_is_counted_after_its_export_is_exported_again() {
    let fixture = Fixture::start().await;
    let mut exporter = fixture.to_file();
    let events = fixture.record(&["a"]).await;
    fixture.clock.advance(BUCKET * 2);
    let read = fixture.store.unexported(fixture.clock.now()).await.unwrap();
    assert_eq!((read.len(), read[0].id), (1, events[0].id));
    // Counted between the read and the end of the export.
    let counted = AuditEvent {
        count: 9,
        ..events[0].clone()
    };
    fixture.store.record(&[counted]).await.unwrap();
    fixture.store.mark_exported(&read).await.unwrap();
    assert_eq!(exporter.export_batch().await.unwrap(), 1);
    assert_eq!(fixture.exported(), [("a".to_owned(), 9)]);
    assert_eq!(fixture.store.unexported_count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_loses_nothing() {
    let fixture = Fixture::start().await;
    let folder = fixture.folder.path().join("later");
    let path = folder.join("audit.ocsf");
    let settings = AuditExport::File(path.clone());
    assert_eq!(
        check(&settings).unwrap_err().to_string(),
        format!(
            "`{}` cannot be written: No such file or directory (os error 2)",
            path.display()
        )
    );
    let mut exporter = fixture.exporter(&settings);
    fixture.record(&["a"]).await;
    fixture.clock.advance(BUCKET * 2);
    exporter.export_batch().await.unwrap_err();
    assert_eq!(fixture.waiting(), 1);
    std::fs::create_dir(folder).unwrap();
    check(&settings).unwrap();
    assert_eq!(exporter.export_batch().await.unwrap(), 1);
    // Rotated.
    std::fs::rename(&path, path.with_extension("1")).unwrap();
    fixture.record(&["b"]).await;
    fixture.clock.advance(BUCKET * 2);
    exporter.export_batch().await.unwrap();
    assert_eq!(
        names(&std::fs::read_to_string(path.with_extension("1")).unwrap()),
        once(&["a"])
    );
    assert_eq!(names(&std::fs::read_to_string(path).unwrap()), once(&["b"]));
}

#[tokio::test]
async fn what_waits_is_kept_beyond_the_retention_period() {
    let fixture = Fixture::start().await;
    let mut exporter = fixture.to_file();
    fixture.record(&["a"]).await;
    let now = fixture.clock.now();
    let later = now + Duration::from_hours(24 * 100);
    fixture.store.delete_expired(later, later).await.unwrap();
    fixture.clock.advance(BUCKET * 2);
    assert_eq!(exporter.export_batch().await.unwrap(), 1);
    fixture.store.delete_expired(later, later).await.unwrap();
    assert_eq!(fixture.store.audit(&store::AuditFilter::default()).await.unwrap(), []);
    // Without an export nothing is kept for it.
    fixture.record(&["b"]).await;
    let url = format!("sqlite:{}/store", fixture.folder.path().display());
    let other = Store::open(&SecretString::from(url)).await.unwrap();
    other.delete_expired(later, later).await.unwrap();
    assert_eq!(other.unexported_count().await.unwrap(), 0);
    assert_eq!(other.audit(&store::AuditFilter::default()).await.unwrap(), []);
}

#[tokio::test]
async fn one_process_exports_until_its_lease_ends() {
    let fixture = Fixture::start().await;
    let (mut first, mut second) = (fixture.to_file(), fixture.to_file());
    fixture.record(&["a", "b"]).await;
    fixture.clock.advance(BUCKET * 2);
    assert_eq!(first.export_batch().await.unwrap(), 2);
    fixture.record(&["c"]).await;
    fixture.clock.advance(BUCKET / 2);
    assert_eq!(second.export_batch().await.unwrap(), 0);
    // The first is gone.
    fixture.clock.advance(LEASE * 2);
    assert_eq!(second.export_batch().await.unwrap(), 1);
    assert_eq!(fixture.exported(), once(&["a", "b", "c"]));
}

/// A server that answers with each status in turn, and keeps what it was sent.
async fn receiver(statuses: Vec<u16>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    tokio::spawn(async move {
        for status in statuses {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            loop {
                let mut bytes = [0; 64 * 1024];
                let read = connection.read(&mut bytes).await.unwrap();
                request.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
                let Some((head, body)) = request.split_once("\r\n\r\n") else {
                    continue;
                };
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .unwrap();
                if body.len() == length.parse::<usize>().unwrap() {
                    break;
                }
            }
            kept.lock().unwrap().push(request);
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, requests)
}

#[tokio::test]
async fn a_receiver_gets_every_event_whatever_it_answers_first() {
    let fixture = Fixture::start().await;
    let (address, requests) = receiver(vec![503, 302, 200]).await;
    let token = fixture.folder.path().join("token");
    let settings = |address: SocketAddr| AuditExport::Webhook {
        url: Url::parse(&format!("http://{address}/ocsf?key=hidden")).unwrap(),
        token: Some(token.clone()),
        ca: None,
    };
    let mut exporter = fixture.exporter(&settings(address));
    fixture.record(&["a", "b"]).await;
    fixture.clock.advance(BUCKET * 2);
    let missing = format!(
        "the token's file `{}` cannot be read: No such file or directory (os error 2)",
        token.display()
    );
    assert_eq!(exporter.export_batch().await.unwrap_err().to_string(), missing);
    assert_eq!(check(&settings(address)).unwrap_err().to_string(), missing);
    std::fs::write(&token, "one two\n").unwrap();
    let error = exporter.export_batch().await.unwrap_err().to_string();
    assert!(
        error.ends_with("has no token: one line of visible ASCII characters is expected"),
        "{error}"
    );
    std::fs::write(&token, "secret-token\n").unwrap();
    for expected in [
        "the receiver answered 503 Service Unavailable",
        "the receiver answered 302 Found",
    ] {
        assert_eq!(exporter.export_batch().await.unwrap_err().to_string(), expected);
        assert_eq!(fixture.waiting(), 2);
    }
    assert_eq!(exporter.export_batch().await.unwrap(), 2);
    let requests = requests.lock().unwrap();
    for request in &*requests {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /ocsf?key=hidden HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/x-ndjson\r\n"), "{head}");
        assert!(head.contains("\r\nauthorization: Bearer secret-token\r\n"), "{head}");
        assert_eq!(names(body), once(&["a", "b"]));
    }
    assert_eq!((requests.len(), fixture.waiting()), (3, 0));
    let shown = format!("{exporter:?} {:?}", settings(address));
    assert!(!shown.contains("hidden"), "{shown}");
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_halved_until_it_passes() {
    let fixture = Fixture::start().await;
    let (address, requests) = receiver([vec![413; 2], vec![200; 20]].concat()).await;
    let settings = AuditExport::Webhook {
        url: Url::parse(&format!("http://{address}/")).unwrap(),
        token: None,
        ca: None,
    };
    let mut exporter = fixture.exporter(&settings);
    let mut long = fixture.event("x");
    long.details.insert("detail".to_owned(), "x".repeat(16_000).into());
    let many: Vec<_> = (0..20)
        .map(|_| AuditEvent {
            id: Uuid::now_v7(),
            ..long.clone()
        })
        .collect();
    fixture.store.record(&many).await.unwrap();
    fixture.clock.advance(BUCKET * 2);
    exporter.export_batch().await.unwrap_err();
    exporter.export_batch().await.unwrap_err();
    let mut exported = Vec::new();
    while exported.iter().sum::<usize>() < 20 {
        exported.push(exporter.export_batch().await.unwrap());
    }
    let sizes: Vec<_> = requests
        .lock()
        .unwrap()
        .iter()
        .map(|one| one.split_once("\r\n\r\n").unwrap().1.len())
        .collect();
    assert!(
        sizes[0] <= BATCH_BYTES && sizes[1] <= BATCH_BYTES / 2 && sizes[2] <= BATCH_BYTES / 4,
        "{sizes:?}"
    );
    assert_eq!(sizes.len(), 2 + exported.len());
    assert_eq!(fixture.store.unexported_count().await.unwrap(), 0);
}

fn webhook(address: SocketAddr) -> AuditExport {
    AuditExport::Webhook {
        url: Url::parse(&format!("http://{address}/")).unwrap(),
        token: None,
        ca: None,
    }
}

/// Exports until nothing waits, or so often.
async fn export(exporter: &mut Exporter, rounds: usize) {
    for _ in 0..rounds {
        if matches!(exporter.export_batch().await, Ok(0)) {
            return;
        }
    }
}

/// A receiver that refuses requests for which `refuses` is true, given the names of their events.
async fn picky(
    refuses: impl Fn(&[(String, u64)], usize) -> Option<u16> + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let taken = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&taken);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            let body = loop {
                let mut bytes = [0; 64 * 1024];
                let read = connection.read(&mut bytes).await.unwrap();
                request.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
                let Some((head, body)) = request.split_once("\r\n\r\n") else {
                    continue;
                };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() == length.unwrap().parse::<usize>().unwrap() {
                    break body;
                }
            };
            let events = names(body);
            let status = refuses(&events, body.len()).unwrap_or(200);
            if status == 200 {
                kept.lock().unwrap().extend(events.into_iter().map(|(name, _)| name));
            }
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, taken)
}

/// One event that the receiver never takes keeps no other from it, and is counted.
#[tokio::test]
async fn an_event_that_is_always_refused_is_set_aside() {
    for status in [400, 413, 422] {
        let fixture = Fixture::start().await;
        let bad = |name: &str| name.starts_with("bad");
        let (address, taken) = picky(move |events, _| events.iter().any(|(name, _)| bad(name)).then_some(status)).await;
        let mut exporter = fixture.exporter(&webhook(address));
        let names = ["a", "b", "bad", "bad too", "c", "d", "e", "bad three", "f"];
        fixture.record(&names).await;
        fixture.clock.advance(BUCKET * 2);
        export(&mut exporter, 60).await;
        assert_eq!(*taken.lock().unwrap(), ["a", "b", "c", "d", "e", "f"], "{status}");
        assert_eq!((fixture.waiting(), fixture.metrics.audit_exported.get()), (0, 6));
        assert_eq!(fixture.metrics.audit_set_aside.get(), 3);
        assert_eq!(fixture.store.unexported_count().await.unwrap(), 0);
        // It stays in the store.
        let all = store::AuditFilter {
            limit: 100,
            ..store::AuditFilter::default()
        };
        assert_eq!(fixture.store.audit(&all).await.unwrap().len(), 9);
    }
}

/// A receiver that takes nothing at all is in the wrong itself: nothing is set aside.
#[tokio::test]
async fn nothing_is_set_aside_while_every_event_is_refused() {
    for status in [400, 401, 403, 404, 429, 500] {
        let fixture = Fixture::start().await;
        let (address, _) = picky(move |_, _| Some(status)).await;
        let mut exporter = fixture.exporter(&webhook(address));
        fixture.record(&["a", "b", "c"]).await;
        fixture.clock.advance(BUCKET * 2);
        export(&mut exporter, 30).await;
        assert_eq!(fixture.metrics.audit_set_aside.get(), 0, "{status}");
        assert_eq!(fixture.store.unexported_count().await.unwrap(), 3, "{status}");
    }
}

/// A receiver with a smaller bound refuses once, and not each batch.
#[tokio::test]
async fn batches_grow_slowly_after_one_was_too_large() {
    let fixture = Fixture::start().await;
    let refusals = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&refusals);
    let (address, taken) = picky(move |_, bytes| {
        let is_large = bytes > 64 * 1024;
        *counted.lock().unwrap() += u32::from(is_large);
        is_large.then_some(413)
    })
    .await;
    let mut exporter = fixture.exporter(&webhook(address));
    let mut long = fixture.event("x");
    long.details.insert("detail".to_owned(), "x".repeat(16_000).into());
    let many: Vec<_> = (0..60)
        .map(|_| AuditEvent {
            id: Uuid::now_v7(),
            ..long.clone()
        })
        .collect();
    fixture.store.record(&many).await.unwrap();
    fixture.clock.advance(BUCKET * 2);
    export(&mut exporter, 60).await;
    assert_eq!(taken.lock().unwrap().len(), 60);
    assert!(*refusals.lock().unwrap() <= 3, "{refusals:?}");
    assert_eq!(fixture.metrics.audit_set_aside.get(), 0);
}

#[tokio::test]
async fn only_a_regular_file_is_exported_to() {
    let fixture = Fixture::start().await;
    let path = fixture.folder.path().to_owned();
    assert_eq!(
        check(&AuditExport::File(path.clone())).unwrap_err().to_string(),
        format!("`{}` cannot be written: it is no regular file", path.display())
    );
}

#[tokio::test]
async fn a_receiver_that_is_away_is_tried_again() {
    let fixture = Fixture::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/?key=hidden", listener.local_addr().unwrap());
    drop(listener);
    let settings = AuditExport::Webhook {
        url: Url::parse(&url).unwrap(),
        token: None,
        ca: None,
    };
    let mut exporter = fixture.exporter(&settings);
    fixture.record(&["a"]).await;
    fixture.clock.advance(BUCKET * 2);
    let error = exporter.export_batch().await.unwrap_err().to_string();
    assert!(
        error.starts_with("no answer from the receiver: ") && error.contains("onnection refused"),
        "{error}"
    );
    assert!(!error.contains("hidden"), "{error}");
    assert_eq!(fixture.waiting(), 1);
}

/// Compares the whole of an event. `metadata` has its id, so it is compared apart.
fn assert_ocsf(event: &AuditEvent, expected: &Value) {
    let mut found = serde_json::to_value(ocsf::event(event, Some("production"))).unwrap();
    let metadata = found.as_object_mut().unwrap().remove("metadata").unwrap();
    assert_eq!(found, *expected);
    assert_eq!(metadata["uid"], json!(event.id));
    assert_eq!(metadata["event_code"], json!(event.action));
    assert_eq!(metadata["version"], "1.4.0");
    assert_eq!(metadata["product"]["name"], "Tollgate");
}

fn event_of(action: &str, details: Value) -> AuditEvent {
    AuditEvent {
        id: Uuid::nil(),
        first_at: "2026-01-31T08:00:00Z".parse().unwrap(),
        last_at: "2026-01-31T08:00:40Z".parse().unwrap(),
        count: 1,
        action: action.to_owned(),
        user: "bob".to_owned(),
        user_id: Some(102),
        agent_id: AgentId::new(7),
        session: Some("login:x".to_owned()),
        details: serde_json::from_value(details).unwrap(),
    }
}

const LAST: i64 = 1_769_846_440_000;

#[test]
fn a_request_is_an_api_activity() {
    let details = json!({
        "reason": "allowed", "access_type": "login", "impersonated_user": "shop:bob", "client": "192.0.2.7",
        "audit_id": "d1", "enforced": true, "verb": "get", "api_group": "", "resource": "secrets",
        "namespace": "shop", "name": "db",
    });
    let mut event = event_of("access.allowed", details);
    event.count = 12;
    let expected = json!({
        "category_uid": 6, "class_uid": 6003, "activity_id": 2, "activity_name": "Read", "type_uid": 600_302,
        "severity_id": 1, "status_id": 1, "status_detail": "allowed", "time": LAST,
        "message": "access.allowed get secrets db -n shop",
        "start_time": LAST - 40_000, "end_time": LAST, "count": 12,
        "actor": {"user": {"name": "bob", "uid": "102", "type_id": 1}, "session": {"uid": "login:x"}},
        "src_endpoint": {"ip": "192.0.2.7"}, "dst_endpoint": {"uid": "7", "name": "production"},
        "api": {"operation": "get", "service": {"name": "kubernetes"}, "request": {"uid": "d1"}},
        "resources": [{"type": "secrets", "namespace": "shop", "name": "db"}],
        "unmapped": {"access_type": "login", "impersonated_user": "shop:bob", "enforced": true},
    });
    assert_ocsf(&event, &expected);
}

#[test]
fn a_refusal_of_nobody_known_is_a_failure_without_invented_facts() {
    let mut event = event_of("access.denied", json!({"reason": "unauthenticated", "enforced": true}));
    (event.user, event.user_id, event.session, event.agent_id) = (String::new(), None, None, None);
    let expected = json!({
        "category_uid": 6, "class_uid": 6003, "activity_id": 0, "activity_name": "Unknown", "type_uid": 600_300,
        "severity_id": 2, "status_id": 2, "status_detail": "unauthenticated", "time": LAST,
        "message": "access.denied", "actor": {"user": {"name": "unknown", "type_id": 0}},
        "src_endpoint": {"name": "unknown"},
        "api": {"operation": "unknown", "service": {"name": "kubernetes"}},
        "unmapped": {"enforced": true},
    });
    assert_ocsf(&event, &expected);
}

#[test]
fn the_end_of_an_exec_has_its_duration() {
    let details = json!({
        "kind": "tunnel", "verb": "create", "api_group": "", "resource": "pods", "subresource": "exec",
        "namespace": "shop", "name": "web-0", "audit_id": "d1", "opened_at": "2026-01-31T08:00:30Z",
        "duration_ms": 10_000, "bytes_from_client": 12, "bytes_from_cluster": 3_000,
    });
    let expected = json!({
        "category_uid": 6, "class_uid": 6003, "activity_id": 99, "activity_name": "Close", "type_uid": 600_399,
        "severity_id": 1, "status_id": 1, "time": LAST,
        "message": "stream.ended create pods/exec web-0 -n shop",
        "start_time": LAST - 10_000, "end_time": LAST, "duration": 10_000,
        "actor": {"user": {"name": "bob", "uid": "102", "type_id": 1}, "session": {"uid": "login:x"}},
        "src_endpoint": {"name": "unknown"}, "dst_endpoint": {"uid": "7", "name": "production"},
        "api": {"operation": "create", "service": {"name": "kubernetes"}, "request": {"uid": "d1"}},
        "resources": [{"type": "pods/exec", "namespace": "shop", "name": "web-0"}],
        "unmapped": {"kind": "tunnel", "bytes_from_client": 12, "bytes_from_cluster": 3_000},
    });
    assert_ocsf(&event_of("stream.ended", details), &expected);
}

#[test]
fn a_token_is_an_entity_of_its_owner() {
    let details = json!({
        "name": "laptop", "owner": "ada", "owner_id": 9, "scopes": ["k8s_proxy"], "expires_at": "2026-02-28T08:00:00Z",
    });
    let mut event = event_of("token.created", details);
    event.session = Some("pat:y".to_owned());
    let expected = json!({
        "category_uid": 3, "class_uid": 3004, "activity_id": 1, "activity_name": "Create", "type_uid": 300_401,
        "severity_id": 1, "status_id": 1, "time": LAST, "message": "token.created laptop",
        "actor": {"user": {"name": "bob", "uid": "102", "type_id": 1}, "session": {"uid": "pat:y"}},
        "entity": {
            "type": "Token", "name": "laptop", "uid": "pat:y",
            "user": {"name": "ada", "uid": "9", "type_id": 1},
        },
        "unmapped": {
            "scopes": ["k8s_proxy"], "expires_at": "2026-02-28T08:00:00Z",
            "agent": {"uid": "7", "name": "production"},
        },
    });
    assert_ocsf(&event, &expected);
}

/// The required attributes of each class: the schema's `requirement` in version 1.4.0, with the
/// constraints of the objects.
#[test]
fn every_action_has_a_class_with_what_it_requires() {
    let owner = json!({"owner": "ada", "owner_id": 9, "name": "laptop", "reason": "left"});
    for (action, class, activity, required) in [
        ("access.allowed", 6003, 0, &["actor", "api", "src_endpoint"][..]),
        ("stream.closed", 6003, 99, &["actor", "api", "src_endpoint"]),
        ("login.created", 3002, 1, &["user", "service"]),
        ("session.created", 3002, 1, &["user", "service"]),
        ("login.revoked", 3002, 2, &["user", "service"]),
        ("session.revoked", 3002, 2, &["user", "service"]),
        ("person.locked", 3001, 9, &["user"]),
        ("person.unlocked", 3001, 12, &["user"]),
        ("token.created", 3004, 1, &["entity"]),
        ("token.revoked", 3004, 4, &["entity"]),
        ("agent.joined", 3004, 6, &["entity"]),
        ("agent.key_replaced", 3004, 3, &["entity"]),
        ("agent.key_revoked", 3004, 7, &["entity"]),
        ("agent.connected", 3004, 10, &["entity"]),
        ("agent.disconnected", 3004, 11, &["entity"]),
        ("agent.refused", 3004, 99, &["entity"]),
        ("of.another.version", 0, 99, &[]),
    ] {
        let found = serde_json::to_value(ocsf::event(&event_of(action, owner.clone()), None)).unwrap();
        assert_eq!(
            (&found["class_uid"], &found["activity_id"]),
            (&json!(class), &json!(activity)),
            "{action}"
        );
        assert_eq!(found["type_uid"], json!(class * 100 + activity), "{action}");
        let always = ["category_uid", "metadata", "severity_id", "time", "type_uid"];
        for key in required.iter().chain(&always) {
            assert!(found.get(key).is_some(), "{action} has no {key}: {found}");
        }
        let about = [("3001", "user"), ("3002", "user")];
        if let Some((_, key)) = about.iter().find(|(about, _)| *about == class.to_string()) {
            assert_eq!(found[key], json!({"name": "ada", "uid": "9", "type_id": 1}), "{action}");
        }
    }
}
