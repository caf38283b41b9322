//! Tests of what unauthenticated clients, callers and operators see of records.

use std::sync::Arc;
use strum::VariantArray as _;
use tollgate_identity::sessions::EndReason;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::trace::trace_id;
use super::{LeftOut, MAX_INPUT_BYTES, MAX_INPUTS, Outcome, PolicyInputError, PolicyInputSource, Recorder};
use crate::metrics::Metrics;
use tollgate_identity::authenticate::{CredentialTransport, Principal};
use tollgate_objects::Cluster;
use tollgate_rego::Front;

fn recorder(keep: usize) -> Arc<Recorder> {
    Recorder::start(keep, None, Arc::new(Metrics::default()), None).unwrap()
}

fn close(recorder: &Arc<Recorder>, path: &str) -> uuid::Uuid {
    let open = recorder.open(Method::GET, path);
    let id = open.id();
    open.close(Outcome::Allowed, StatusCode::OK, "allowed");
    id
}

#[test]
fn a_dropped_record_is_written_as_cancelled_and_a_closed_one_once() {
    let recorder = recorder(10);
    let id = close(&recorder, "/a");
    drop(recorder.open(Method::GET, "/b"));
    let kept = recorder.latest(10, |_| true);
    let seen: Vec<_> = kept
        .iter()
        .map(|record| (record.path.as_str(), record.outcome))
        .collect();
    assert_eq!(seen, [("/b", Outcome::Cancelled), ("/a", Outcome::Allowed)]);
    assert_eq!(recorder.find(id).unwrap().path, "/a");
}

#[test]
fn pages_that_are_read_push_nothing_out_and_refusals_of_them_are_kept() {
    let recorder = recorder(2);
    let id = close(&recorder, "/a");
    let read = |outcome, status| {
        let mut open = recorder.open(Method::GET, "/console/decisions");
        open.note(|record| record.is_of_page = true);
        let id = open.id();
        open.close(outcome, status, "reason");
        id
    };
    let reads: Vec<_> = (0..10).map(|_| read(Outcome::Allowed, StatusCode::OK)).collect();
    assert!(recorder.find(id).is_some());
    assert!(reads.into_iter().all(|id| recorder.find(id).is_none()));
    let refused = read(Outcome::Denied, StatusCode::FORBIDDEN);
    assert!(recorder.find(refused).is_some());
}

#[test]
fn an_outcome_is_serialized_as_its_label() {
    for outcome in [Outcome::Allowed, Outcome::Denied, Outcome::Failed, Outcome::Cancelled] {
        assert_eq!(serde_json::to_value(outcome).unwrap(), json!(outcome.as_ref()));
    }
}

#[test]
fn a_record_bounds_method_and_path() {
    let recorder = recorder(10);
    let path = format!("/{}é", "a".repeat(1_022));
    let method = Method::from_bytes("M".repeat(40).as_bytes()).unwrap();
    drop(recorder.open(method, &path));
    drop(recorder.open(Method::PATCH, &"b".repeat(1_024)));
    let kept = recorder.latest(10, |_| true);
    assert_eq!((kept[0].path.len(), &kept[0].method), (1_024, &Method::PATCH));
    // The path is cut before the two-byte character, not within it.
    assert_eq!(kept[1].path, format!("/{}…", "a".repeat(1_022)));
    assert_eq!(kept[1].method.as_str(), "TOO-LONG");
}

#[test]
fn the_latest_records_stay_in_order_and_can_be_found() {
    let recorder = recorder(3_000);
    let ids: Vec<_> = (0..7_000).map(|at| close(&recorder, &format!("/{at}"))).collect();
    let every = recorder.latest(usize::MAX, |_| true);
    assert_eq!(every.len(), 3_000);
    assert!(
        every
            .iter()
            .map(|record| record.id)
            .eq(ids.iter().rev().take(3_000).copied())
    );
    let some = recorder.latest(2, |record| record.path.ends_with("000"));
    assert!(some.iter().map(|record| record.path.as_str()).eq(["/6000", "/5000"]));
    let before = |at: usize, limit| recorder.latest_before(ids[at], limit, |_| true);
    assert!(
        before(6_999, 2)
            .iter()
            .map(|record| record.path.as_str())
            .eq(["/6998", "/6997"])
    );
    assert_eq!(before(4_001, 10).len(), 1);
    assert!(before(4_000, 10).is_empty());
    assert!(before(3_999, 10).is_empty(), "it is forgotten");
    assert_eq!(recorder.find(ids[6_999]).unwrap().path, "/6999");
    assert_eq!(recorder.find(ids[4_000]).unwrap().path, "/4000");
    assert!(recorder.find(ids[3_999]).is_none());
}

#[test]
fn a_caller_does_not_see_details_for_operators() {
    let recorder = recorder(1);
    let mut open = recorder.open(Method::GET, "/");
    open.note(|record| {
        record.detail = "secret-detail".to_owned();
        record.told = "no syncs of prod on weekends".to_owned();
        record.destination = Some(Arc::new(Cluster {
            name: "secret-cluster".to_owned(),
            server: "https://secret-server".to_owned(),
            project: String::new(),
        }));
        record.plugins = vec!["secret-plugin@1".into()];
        record.notes.insert("secret-note".to_owned(), String::new());
        record.checks = Arc::new([super::CheckRecord {
            resource: "applications",
            action: "get",
            object: "shop/cart".to_owned(),
            allowed: false,
            rule: Some("secret-file:1: p, x".to_owned()),
        }]);
        let claims: Map<String, Value> = [("sub".to_owned(), json!("alice"))].into_iter().collect();
        record.principal = Some(Arc::new(Principal::for_test(claims, CredentialTransport::Bearer)));
    });
    open.note(|record| record.peer = Some(([10, 9, 8, 7], 6).into()));
    open.close(Outcome::Denied, StatusCode::FORBIDDEN, "permission_denied");
    let record = &recorder.latest(1, |_| true)[0];
    let operator = serde_json::to_string(&record).unwrap();
    assert_eq!(operator.matches("secret-").count(), 6, "{operator}");
    let caller = serde_json::to_string(&record.for_caller()).unwrap();
    assert!(!caller.contains("secret-"), "{caller}");
    assert!(
        caller.contains(r#""message":"no syncs of prod on weekends""#) && !operator.contains("weekends"),
        "{caller}"
    );
    assert!(
        operator.contains("10.9.8.7:6") && !caller.contains("10.9.8.7"),
        "{caller}"
    );
    assert!(caller.contains("shop/cart") && caller.contains("alice"), "{caller}");
}

#[tokio::test]
async fn a_flushed_file_is_complete_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let recorder = Recorder::start(10, Some(&path), Arc::new(Metrics::default()), None).unwrap();
    let ids: Vec<_> = (0..100).map(|_| close(&recorder, "/").to_string()).collect();
    recorder.flush().await;
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().map(|line| line["decision_id"].as_str().unwrap()).eq(&ids));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn only_a_valid_trace_parent_gives_a_trace_id() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let of = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("traceparent", HeaderValue::from_str(value).unwrap());
        }
        trace_id(&headers)
    };
    let good = format!("00-{trace}-b7ad6b7169203331-01");
    assert_eq!(of(&[&good]).as_deref(), Some(trace));
    let newer = format!("01-{trace}-b7ad6b7169203331-01-more");
    assert_eq!(of(&[&newer]).as_deref(), Some(trace));
    let refused = [
        format!("{good}-more"),
        format!("ff-{trace}-b7ad6b7169203331-01"),
        format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
        format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
        format!("00-{trace}-{}-01", "0".repeat(16)),
        format!("00-{trace}x-b7ad6b7169203331-01"),
        format!("00-{trace}"),
        String::new(),
    ];
    for text in &refused {
        assert_eq!(of(&[text]), None, "{text}");
    }
    assert_eq!(of(&[&good, &good]), None);
    assert_eq!(of(&[]), None);
}

/// Closes a request whose policy got an input that keeps this many bytes alive.
fn close_with_input(recorder: &Arc<Recorder>, size_bytes: usize, alive: &Arc<()>) -> uuid::Uuid {
    let mut open = recorder.open(Method::GET, "/");
    let (id, alive) = (open.id(), Arc::clone(alive));
    let render = move || {
        let left_out = LeftOut {
            field: "request.query",
            why: "a query may hold secrets",
        };
        (json!({"strong": Arc::strong_count(&alive) > 0}), vec![left_out])
    };
    open.keep_input(PolicyInputSource::new(Front::Kubernetes, size_bytes, render));
    // A record that is lent, and one that is dropped, keep theirs.
    let lent = open.lend();
    open.restore(lent);
    drop(open);
    id
}

#[test]
fn the_latest_inputs_are_kept_within_both_bounds() {
    let alive = Arc::new(());
    let recorder = recorder(10_000);
    let ids: Vec<_> = (0..MAX_INPUTS + 3)
        .map(|_| close_with_input(&recorder, 1, &alive))
        .collect();
    // One is held by the test itself.
    assert_eq!(Arc::strong_count(&alive), MAX_INPUTS + 1);
    for (at, id) in ids.iter().enumerate() {
        let kept = recorder.policy_input(*id);
        match at {
            ..3 => assert_eq!(kept, Err(PolicyInputError::Displaced(*id))),
            _ => assert_eq!(kept.unwrap().input, json!({"strong": true})),
        }
    }
    // A large one takes the place of many, and one beyond the bound is not kept at all.
    let large = close_with_input(&recorder, MAX_INPUT_BYTES - 1, &alive);
    assert_eq!(Arc::strong_count(&alive), 3);
    assert!(recorder.policy_input(ids[MAX_INPUTS + 2]).is_ok());
    assert!(recorder.policy_input(large).is_ok());
    let larger = close_with_input(&recorder, MAX_INPUT_BYTES + 1, &alive);
    assert_eq!(Arc::strong_count(&alive), 1);
    for id in [large, larger] {
        assert_eq!(recorder.policy_input(id), Err(PolicyInputError::Displaced(id)));
    }
    let small = close_with_input(&recorder, 1, &alive);
    assert!(recorder.policy_input(small).is_ok());
}

#[test]
fn an_input_that_is_not_there_says_why() {
    let recorder = recorder(2);
    let unasked = close(&recorder, "/");
    let mut set = recorder.open(Method::GET, "/");
    let claims = json!({"sub": "alice"}).as_object().cloned().unwrap();
    let principal = Arc::new(Principal::for_test(claims, CredentialTransport::Bearer));
    set.note(|record| {
        record.front = "applicationsets";
        record.principal = Some(principal);
    });
    let many = set.id();
    drop(set);
    let unknown = uuid::Uuid::now_v7();
    for (id, expected) in [
        (
            unasked,
            "has no input, because no policy was asked: the request ended with `allowed` before",
        ),
        (
            many,
            "has no single input: the policy of ApplicationSets is asked about",
        ),
        (unknown, "this replica has no decision"),
    ] {
        let error = recorder.policy_input(id).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&id.to_string()), "{error}");
    }
    let gone = PolicyInputError::Displaced(unknown).to_string();
    assert_eq!(
        gone,
        format!(
            "the input of decision `{unknown}` is gone: those of the latest 1000 decisions are kept, in at most 32 MiB; \
             send the request again and use the id of that decision"
        )
    );
}

/// The record itself, in the log and for callers, has nothing of it.
#[test]
fn an_input_is_in_no_record() {
    let alive = Arc::new(());
    let recorder = recorder(2);
    let id = close_with_input(&recorder, 1, &alive);
    let record = recorder.find(id).unwrap();
    for shown in [
        serde_json::to_value(&*record),
        serde_json::to_value(record.for_caller()),
    ] {
        assert!(shown.unwrap().get("input").is_none());
    }
}

#[test]
fn the_schema_has_every_reason_for_an_end() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("record.schema.json")).unwrap();
    let listed = &schema["$defs"]["ended"]["properties"]["reason"]["enum"];
    let codes: std::collections::BTreeSet<&str> = EndReason::VARIANTS.iter().map(|reason| reason.code()).collect();
    let listed = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|code| code.as_str().unwrap())
        .collect();
    assert_eq!(codes, listed);
}
