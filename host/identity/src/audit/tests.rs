use std::net::Ipv4Addr;

use futures_util::FutureExt as _;
use secrecy::SecretString;
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::*;
use crate::sessions::table::OpenExchange;
use crate::sessions::{EndReason, EndTrigger, ExchangeKind};
use tollgate_core::session::SessionId;
use tollgate_core::user::User;
use tollgate_store::AuditFilter;

const MINUTE: Duration = Duration::from_mins(1);
const ID: Uuid = Uuid::from_u128(7);

/// An audit log with a store on disk and a clock.
struct Fixture {
    dir: TempDir,
    clock: Clock,
    metrics: Arc<Metrics>,
    store: Arc<Store>,
    audit: Arc<Audit>,
    session: SessionId,
    bob: User,
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/store", dir.path().display());
        let store = Arc::new(Store::open(&SecretString::from(url)).await.unwrap());
        let (clock, metrics) = (Clock::default(), Arc::new(Metrics::default()));
        let periods = AuditPeriods {
            bucket: MINUTE,
            keep: Duration::from_hours(24 * 30),
            grace: Duration::from_secs(10),
        };
        let audit = Audit::start(store.clone(), clock.clone(), periods, metrics.clone());
        Self {
            dir,
            clock,
            metrics,
            store,
            audit,
            session: SessionId::new(AccessType::PersonalAccessToken, Uuid::nil().to_string()),
            bob: User {
                id: 102,
                username: "bob".to_owned(),
            },
        }
    }

    fn entry<'a>(&'a self, attributes: &'a Attributes) -> AccessEntry<'a> {
        let holder = SessionHolder {
            session: &self.session,
            user: &self.bob,
            names: None,
            agent: AgentId::new(9999).unwrap(),
            expires_at: None,
        };
        AccessEntry {
            holder: Some(holder),
            agent: None,
            access_type: None,
            attributes: Some(attributes),
            outcome: AccessOutcome::Allowed,
            reason: "allowed",
            detail: None,
            client: Ipv4Addr::new(192, 0, 2, 7).into(),
            audit_id: ID,
            impersonated: Some("gitlab:user:bob"),
        }
    }

    /// Sessions whose closed streams are recorded.
    async fn sessions(&self) -> Arc<SessionRegistry> {
        let clock = self.clock.clone();
        let sessions = SessionRegistry::start(self.store.clone(), clock, MINUTE, self.metrics.clone())
            .await
            .unwrap();
        self.audit.record_closed_streams(&sessions);
        sessions
    }

    async fn rows(&self) -> Vec<AuditEvent> {
        let filter = AuditFilter {
            limit: 1_000,
            ..AuditFilter::default()
        };
        let mut rows = self.store.audit(&filter).await.unwrap();
        rows.reverse();
        rows
    }

    async fn counts(&self) -> Vec<(String, u64)> {
        let rows = self.rows().await.into_iter();
        rows.map(|row| (row.action, row.count)).collect()
    }

    /// Lets other tasks run until the store has exactly these actions and counts.
    async fn until(&self, expected: &[(&str, u64)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(action, count)| ((*action).to_owned(), *count))
            .collect();
        let waiting = async {
            while self.counts().await != expected {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), waiting).await.is_err() {
            assert_eq!(self.counts().await, expected);
        }
    }

    /// Changes the database without the store.
    async fn sql(&self, text: &'static str) {
        let options = SqliteConnectOptions::new().filename(self.dir.path().join("store"));
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
    }
}

fn pods(verb: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        resource_request: true,
        resource: Some("pods".to_owned()),
        namespace: Some("default".to_owned()),
        name: Some("web-0".to_owned()),
        ..Attributes::default()
    }
}

/// A question about rights.
fn review(resource: &str) -> Attributes {
    Attributes {
        verb: "create".to_owned(),
        resource_request: true,
        api_group: "authorization.k8s.io".to_owned(),
        resource: Some(resource.to_owned()),
        ..Attributes::default()
    }
}

fn key(owner: &str, discriminator: &str) -> AggregationKey {
    AggregationKey {
        owner: owner.to_owned(),
        discriminator: discriminator.to_owned(),
    }
}

fn version() -> Attributes {
    Attributes {
        verb: "get".to_owned(),
        path: "/version".to_owned(),
        ..Attributes::default()
    }
}

#[tokio::test]
async fn five_reads_in_a_minute_are_one_row_and_a_refusal_is_another() {
    let fixture = Fixture::start().await;
    let version = version();
    for _ in 0..5 {
        fixture.audit.record_access(fixture.entry(&version)).await.unwrap();
        fixture.clock.advance(Duration::from_secs(1));
    }
    let refused = AccessEntry {
        outcome: AccessOutcome::Denied,
        reason: "policy",
        detail: Some("rule 3"),
        ..fixture.entry(&version)
    };
    fixture.audit.record_access(refused).await.unwrap();
    fixture.clock.advance(Duration::from_secs(61));
    fixture.until(&[("access.allowed", 5), ("access.denied", 1)]).await;
    let rows = fixture.rows().await;
    assert!(rows[0].last_at.duration_since(rows[0].first_at).as_secs() >= 4);
    // A later read is another row.
    fixture.audit.record_access(fixture.entry(&version)).await.unwrap();
    fixture
        .until(&[("access.allowed", 5), ("access.denied", 1), ("access.allowed", 1)])
        .await;
}

#[tokio::test]
async fn rows_name_the_caller_and_the_request() {
    let fixture = Fixture::start().await;
    let mut exec = pods("create");
    exec.subresource = Some("exec".to_owned());
    exec.upgrade = Some("websocket");
    let denied = AccessEntry {
        outcome: AccessOutcome::Denied,
        reason: "policy",
        detail: Some("rule 3"),
        impersonated: None,
        ..fixture.entry(&exec)
    };
    fixture.audit.record_access(denied).await.unwrap();
    fixture.audit.record_access(fixture.entry(&pods("list"))).await.unwrap();
    let rows = fixture.rows().await;
    let about = |row: &AuditEvent| (row.user.clone(), row.user_id, row.agent_id, row.session.clone());
    let bob = (
        "bob".to_owned(),
        Some(102),
        AgentId::new(9999),
        Some(fixture.session.to_string()),
    );
    assert_eq!((about(&rows[0]), about(&rows[1])), (bob.clone(), bob));
    assert_eq!(
        serde_json::Value::Object(rows[0].details.clone()),
        json!({
            "verb": "create", "api_group": "", "resource": "pods", "subresource": "exec", "namespace": "default",
            "name": "web-0", "upgrade": "websocket", "reason": "policy", "detail": "rule 3",
            "access_type": "personal_access_token", "client": "192.0.2.7", "audit_id": ID, "enforced": true,
        })
    );
    assert_eq!(
        serde_json::Value::Object(rows[1].details.clone()),
        json!({
            "verb": "list", "api_group": "", "resource": "pods", "namespace": "default", "reason": "allowed",
            "access_type": "personal_access_token", "impersonated_user": "gitlab:user:bob", "client": "192.0.2.7",
            "audit_id": ID, "enforced": true,
        })
    );
}

#[tokio::test]
async fn only_reads_are_aggregated() {
    let mut individual: Vec<_> = ["create", "update", "patch", "delete", "deletecollection", "post"]
        .map(pods)
        .into();
    for subresource in ["exec", "attach", "portforward", "proxy"] {
        let mut attributes = pods("get");
        attributes.subresource = Some(subresource.to_owned());
        individual.push(attributes);
    }
    let mut upgraded = pods("get");
    upgraded.upgrade = Some("websocket");
    let mut post = version();
    post.verb = "post".to_owned();
    // Named as a review, and stored.
    let stored = Attributes {
        api_group: "reviews.example".to_owned(),
        ..review("selfsubjectaccessreviews")
    };
    individual.extend([upgraded, post, stored]);
    for attributes in &individual {
        let fixture = Fixture::start().await;
        for _ in 0..2 {
            fixture.audit.record_access(fixture.entry(attributes)).await.unwrap();
        }
        // Both are stored without a flush.
        let row = || ("access.allowed".to_owned(), 1);
        assert_eq!(fixture.counts().await, [row(), row()], "{attributes:?}");
    }
    let mut log = pods("get");
    log.subresource = Some("log".to_owned());
    let can_i = review("selfsubjectaccessreviews");
    for attributes in [pods("get"), pods("list"), pods("watch"), log, version(), can_i] {
        let fixture = Fixture::start().await;
        for _ in 0..2 {
            fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
        }
        assert_eq!(
            fixture.counts().await,
            [("access.allowed".to_owned(), 1)],
            "the first one is stored at once"
        );
        fixture.audit.flush().await.unwrap();
        assert_eq!(
            fixture.counts().await,
            [("access.allowed".to_owned(), 2)],
            "{attributes:?}"
        );
    }
}

#[tokio::test]
async fn different_reads_are_counted_separately() {
    let fixture = Fixture::start().await;
    let base = pods("list");
    let mut others = [
        pods("get"),
        base.clone(),
        base.clone(),
        base.clone(),
        base.clone(),
        version(),
    ];
    others[1].namespace = None;
    others[2].resource = Some("secrets".to_owned());
    others[3].api_group = "metrics.k8s.io".to_owned();
    others[4].subresource = Some("status".to_owned());
    let mut named = base.clone();
    named.name = Some("web-1".to_owned());
    for attributes in others.iter().chain([&base, &named]) {
        fixture.audit.record_access(fixture.entry(attributes)).await.unwrap();
    }
    let session = SessionId::new(AccessType::OidcIdToken, "x");
    let mut other = fixture.entry(&base);
    other.holder = other.holder.map(|holder| SessionHolder {
        session: &session,
        ..holder
    });
    fixture.audit.record_access(other).await.unwrap();
    fixture.audit.flush().await.unwrap();
    let mut counts: Vec<_> = fixture.counts().await.into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        [1, 1, 1, 1, 1, 1, 1, 2],
        "reads that differ only in the name share a count"
    );
}

#[tokio::test]
async fn parts_of_a_key_are_separated_unambiguously() {
    let fixture = Fixture::start().await;
    let mut one = pods("list");
    (one.resource, one.subresource) = (Some("a".to_owned()), Some("b".to_owned()));
    let mut other = pods("list");
    (other.resource, other.subresource) = (Some("a1:b".to_owned()), None);
    for attributes in [&one, &other] {
        fixture.audit.record_access(fixture.entry(attributes)).await.unwrap();
    }
    assert_eq!(fixture.counts().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_wait_for_one_row() {
    let fixture = Arc::new(Fixture::start().await);
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let fixture = fixture.clone();
            tokio::spawn(async move {
                fixture.audit.record_access(fixture.entry(&pods("list"))).await.unwrap();
                assert_eq!(
                    fixture.rows().await.len(),
                    1,
                    "the call returns after its row was stored"
                );
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    assert_eq!(fixture.counts().await, [("access.allowed".to_owned(), 200)]);
}

#[tokio::test]
async fn counts_reach_the_store_within_a_second() {
    let fixture = Fixture::start().await;
    for _ in 0..3 {
        fixture.audit.record_access(fixture.entry(&version())).await.unwrap();
    }
    fixture.clock.advance(Duration::from_millis(1_100));
    fixture.until(&[("access.allowed", 3)]).await;
    fixture.audit.record_access(fixture.entry(&version())).await.unwrap();
    fixture.clock.advance(Duration::from_millis(1_100));
    fixture.until(&[("access.allowed", 4)]).await;
}

#[tokio::test]
async fn requests_of_unknown_callers_are_aggregated_and_never_dropped() {
    let fixture = Fixture::start().await;
    let requested = pods("delete");
    let refused = |client: u8, reason| AccessEntry {
        holder: None,
        agent: AgentId::new(1),
        access_type: Some(AccessType::PersonalAccessToken),
        outcome: AccessOutcome::Denied,
        reason,
        client: Ipv4Addr::new(198, 51, 100, client).into(),
        impersonated: None,
        ..fixture.entry(&requested)
    };
    for _ in 0..3 {
        fixture.audit.record_access(refused(1, "unknown_key")).await.unwrap();
    }
    fixture.audit.record_access(refused(1, "no_credential")).await.unwrap();
    fixture.audit.flush().await.unwrap();
    assert_eq!(
        fixture.counts().await,
        [("access.denied".to_owned(), 3), ("access.denied".to_owned(), 1)]
    );
    let first = &fixture.rows().await[0];
    assert_eq!((first.user.as_str(), first.agent_id), ("", AgentId::new(1)));
    assert_eq!(first.details["client"], "198.51.100.1");
    assert_eq!(first.details["access_type"], "personal_access_token");
    assert_eq!(
        first.details.get("verb"),
        None,
        "a count has no attributes of single requests"
    );

    for agent in 2..50 {
        let named = AccessEntry {
            agent: AgentId::new(agent),
            ..refused(1, "no_credential")
        };
        fixture.audit.record_access(named).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let counts: Vec<_> = fixture.counts().await.into_iter().map(|(_, count)| count).collect();
    assert_eq!(counts, [3, 49], "entries for different agents share a count");

    for client in 2..=250 {
        fixture
            .audit
            .record_access(refused(client, "unknown_key"))
            .await
            .unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let rows = fixture.rows().await;
    assert_eq!(
        rows.len(),
        UNKNOWN_CALLER_LIMITS.total + 1,
        "entries above the limit share a row"
    );
    let merged = rows.last().unwrap();
    assert_eq!(
        (merged.details["clients"].as_str(), merged.details.get("client")),
        (Some("many"), None)
    );
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 3 + 49 + 249);
    fixture.clock.advance(MINUTE * 2);
    fixture.audit.flush().await.unwrap();
    fixture.audit.record_access(refused(251, "unknown_key")).await.unwrap();
    assert_eq!(fixture.rows().await.last().unwrap().details["client"], "198.51.100.251");
}

#[tokio::test]
async fn keys_are_bounded_in_total_and_per_owner() {
    let limits = KeyLimits { total: 3, per_owner: 2 };
    let buckets = Buckets::new(MINUTE, limits);
    let fixture = Fixture::start().await;
    let now = fixture.clock.now();
    let list = pods("list");
    let first = || row::aggregated_event(&fixture.entry(&list), now);
    let count = |owner, discriminator, now| buckets.count(key(owner, discriminator), now, first).map(|_| ());
    assert_eq!((count("x", "a", now), count("x", "b", now)), (Some(()), Some(())));
    assert_eq!((count("x", "c", now), count("x", "a", now)), (None, Some(())));
    assert_eq!((count("y", "a", now), count("z", "a", now)), (Some(()), None));
    buckets.drain_changed(now + MINUTE * 2);
    assert_eq!(count("x", "c", now + MINUTE * 2), Some(()));
    assert_eq!(count("z", "a", now + MINUTE * 2), Some(()));
}

#[tokio::test]
async fn one_session_cannot_fill_the_disk_with_reads() {
    let fixture = Fixture::start().await;
    for number in 0..READS.per_owner + 30 {
        let mut attributes = pods("list");
        attributes.namespace = Some(format!("{number}-{}", "n".repeat(4_000)));
        fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let rows = fixture.rows().await;
    assert_eq!(rows.len(), READS.per_owner + 1);
    let rest = rows.last().unwrap();
    assert_eq!((rest.count, &rest.details["counted"]), (30, &json!(true)));
    assert_eq!(
        (rest.agent_id, &rest.session),
        (AgentId::new(9999), &Some(fixture.session.to_string()))
    );
    assert_eq!(rest.details.get("namespace"), None);
    // Entries of other sessions are still counted separately.
    let (session, list) = (SessionId::new(AccessType::OidcIdToken, "x"), pods("list"));
    let mut other = fixture.entry(&list);
    other.holder = other.holder.map(|holder| SessionHolder {
        session: &session,
        ..holder
    });
    fixture.audit.record_access(other).await.unwrap();
    assert_eq!(fixture.rows().await.last().unwrap().details["namespace"], "default");
}

#[tokio::test]
async fn different_long_names_are_counted_separately() {
    let fixture = Fixture::start().await;
    for end in ["a", "b", "a"] {
        let mut attributes = pods("list");
        attributes.namespace = Some("n".repeat(4_000) + end);
        fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let mut counts: Vec<_> = fixture.counts().await.into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
}

#[tokio::test]
async fn refusals_of_one_kind_are_aggregated_above_a_limit() {
    let fixture = Fixture::start().await;
    let exec = pods("create");
    let refused = |reason| AccessEntry {
        outcome: AccessOutcome::Denied,
        reason,
        detail: Some("rule 3"),
        impersonated: None,
        ..fixture.entry(&exec)
    };
    let individual = usize::try_from(REFUSAL_ROWS_PER_KEY).unwrap();
    for _ in 0..individual + 500 {
        fixture.audit.record_access(refused("unauthorized")).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let rows = fixture.rows().await;
    assert_eq!(rows.len(), individual + 1);
    let (own, counted) = rows.split_at(individual);
    assert!(
        own.iter()
            .all(|row| row.count == 1 && row.details["detail"] == "rule 3")
    );
    assert!(own.iter().all(|row| row.details.get("counted").is_none()));
    let counted = &counted[0];
    assert_eq!((counted.count, counted.action.as_str()), (500, "access.denied"));
    assert_eq!(counted.details["counted"], true);
    assert_eq!((counted.user.as_str(), counted.agent_id), ("bob", AgentId::new(9999)));
    assert_eq!(
        counted.details.get("name"),
        None,
        "a count has no attributes of single requests"
    );

    // Entries with another reason, in another window or that are allowed get individual rows.
    fixture.audit.record_access(refused("policy")).await.unwrap();
    fixture.audit.record_access(fixture.entry(&exec)).await.unwrap();
    fixture.clock.advance(MINUTE * 2);
    fixture.audit.record_access(refused("unauthorized")).await.unwrap();
    fixture.audit.flush().await.unwrap();
    let later = fixture.rows().await.split_off(individual + 1);
    let texts: Vec<_> = later
        .iter()
        .map(|row| (row.action.as_str(), row.details.get("counted")))
        .collect();
    assert_eq!(
        texts,
        [
            ("access.denied", None),
            ("access.allowed", None),
            ("access.denied", None)
        ]
    );
}

#[tokio::test]
async fn refusals_of_a_session_for_many_agents_are_aggregated() {
    let fixture = Fixture::start().await;
    let list = pods("list");
    let most = i64::from(REFUSAL_ROWS_PER_SESSION);
    for agent in 1..=most + 100 {
        let mut refused = AccessEntry {
            outcome: AccessOutcome::Denied,
            reason: "unauthorized",
            ..fixture.entry(&list)
        };
        refused.holder = refused.holder.map(|holder| SessionHolder {
            agent: AgentId::new(agent).unwrap(),
            ..holder
        });
        fixture.audit.record_access(refused).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let rows = fixture.rows().await;
    assert_eq!(
        rows.iter().map(|row| row.count).sum::<u64>(),
        u64::try_from(most).unwrap() + 100
    );
    assert_eq!(
        rows.len(),
        usize::try_from(REFUSAL_ROWS_PER_SESSION).unwrap() + REFUSALS.per_owner + 1
    );
    let rest = rows.last().unwrap();
    assert_eq!((rest.count, rest.agent_id), (50, None));
}

#[tokio::test]
async fn a_bucket_counts_as_stored_only_after_its_row_was_written() {
    let fixture = Fixture::start().await;
    let list = pods("list");
    // The first caller is canceled while its row is being written, and the store fails.
    fixture.sql("ALTER TABLE audit RENAME TO away").await;
    assert!(
        fixture
            .audit
            .record_access(fixture.entry(&list))
            .now_or_never()
            .is_none()
    );
    let _failed_or_nothing_to_do = fixture.audit.flush().await;
    assert!(
        fixture.audit.record_access(fixture.entry(&list)).await.is_err(),
        "a request without a row fails"
    );
    fixture.sql("ALTER TABLE away RENAME TO audit").await;
    fixture.audit.record_access(fixture.entry(&list)).await.unwrap();
    assert_eq!(
        fixture.rows().await.len(),
        1,
        "the call returns after its row was stored"
    );
}

#[tokio::test]
async fn a_bucket_whose_only_caller_was_canceled_is_written_when_it_ends() {
    let buckets = Buckets::new(MINUTE, READS);
    let fixture = Fixture::start().await;
    let (now, list) = (fixture.clock.now(), pods("list"));
    let entry = buckets
        .count(key("x", "a"), now, || row::aggregated_event(&fixture.entry(&list), now))
        .unwrap();
    // The write was begun; the row may be stored or not.
    let id = buckets.opening_event(&entry).unwrap().id;
    drop(entry);
    assert!(buckets.drain_changed(now).is_empty());
    let emitted: Vec<_> = buckets
        .drain_changed(now + MINUTE)
        .iter()
        .map(|event| event.id)
        .collect();
    assert_eq!(emitted, [id]);
    assert!(buckets.drain_changed(now + MINUTE).is_empty());
}

#[tokio::test]
async fn a_clock_set_back_does_not_keep_a_bucket_open() {
    let buckets = Buckets::new(MINUTE, READS);
    let fixture = Fixture::start().await;
    let (now, list) = (fixture.clock.now(), pods("list"));
    let count = |at| {
        let entry = buckets
            .count(key("x", "a"), at, || row::aggregated_event(&fixture.entry(&list), at))
            .unwrap();
        let _first = entry.stored.set(());
        entry.stored
    };
    let first = count(now);
    assert!(Arc::ptr_eq(&first, &count(now - Duration::from_secs(1))));
    assert!(!Arc::ptr_eq(&first, &count(now - Duration::from_hours(3))));
}

#[tokio::test]
async fn an_ended_bucket_takes_no_entries_and_loses_none() {
    let buckets = Buckets::new(MINUTE, READS);
    let fixture = Fixture::start().await;
    let (now, list) = (fixture.clock.now(), pods("list"));
    let count = |at| {
        buckets
            .count(key("x", "a"), at, || row::aggregated_event(&fixture.entry(&list), at))
            .unwrap()
    };
    let stored = |entry: &buckets::BucketEntry| {
        let event = buckets.opening_event(entry).unwrap();
        entry.stored.set(()).unwrap();
        event
    };
    let first = stored(&count(now));
    for second in [1, 59] {
        assert!(count(now + Duration::from_secs(second)).stored.initialized());
    }
    // No event was emitted meanwhile, and the minute of the bucket is over.
    let second = stored(&count(now + MINUTE));
    assert_ne!(first.id, second.id);
    let emitted: Vec<_> = buckets
        .drain_changed(now + MINUTE)
        .iter()
        .map(|event| (event.id, event.count))
        .collect();
    assert_eq!(emitted, [(first.id, 3)]);
    assert!(
        buckets.drain_changed(now + MINUTE * 3).is_empty(),
        "emitted events are not emitted again"
    );
}

#[tokio::test]
async fn requests_fail_if_their_row_cannot_be_written() {
    let fixture = Fixture::start().await;
    fixture.sql("ALTER TABLE audit RENAME TO away").await;
    for attributes in [pods("list"), pods("delete")] {
        assert!(fixture.audit.record_access(fixture.entry(&attributes)).await.is_err());
    }
    fixture.sql("ALTER TABLE away RENAME TO audit").await;
    for attributes in [pods("list"), pods("list"), pods("delete")] {
        fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let mut counts = fixture.counts().await;
    counts.sort();
    let row = |count| ("access.allowed".to_owned(), count);
    assert_eq!(counts, [row(1), row(2)], "failed requests are not counted");
    assert!(
        fixture
            .metrics
            .text()
            .unwrap()
            .contains("tollgate_store_failures_total{operation=\"audit\"}")
    );
}

#[tokio::test]
async fn counts_are_written_again_after_a_failed_write() {
    let fixture = Fixture::start().await;
    for _ in 0..3 {
        fixture.audit.record_access(fixture.entry(&version())).await.unwrap();
    }
    fixture.sql("ALTER TABLE audit RENAME TO away").await;
    fixture.clock.advance(MINUTE * 2);
    assert!(fixture.audit.flush().await.is_err());
    fixture.sql("ALTER TABLE away RENAME TO audit").await;
    fixture.audit.flush().await.unwrap();
    assert_eq!(fixture.counts().await, [("access.allowed".to_owned(), 3)]);
    assert_eq!(fixture.metrics.audit_pending.get(), 0);
}

#[tokio::test]
async fn a_canceled_request_leaves_a_correct_count() {
    let fixture = Fixture::start().await;
    let list = pods("list");
    assert!(
        fixture
            .audit
            .record_access(fixture.entry(&list))
            .now_or_never()
            .is_none()
    );
    fixture.audit.flush().await.unwrap();
    fixture.audit.record_access(fixture.entry(&list)).await.unwrap();
    fixture.audit.flush().await.unwrap();
    assert_eq!(fixture.counts().await, [("access.allowed".to_owned(), 2)]);
}

#[tokio::test]
async fn closed_streams_are_events() {
    let fixture = Fixture::start().await;
    let closed = |verb: &str, reason: EndReason| EndedExchange {
        session: fixture.session.clone(),
        user: fixture.bob.clone(),
        open: Arc::new(OpenExchange {
            end_trigger: Arc::new(EndTrigger::default()),
            kind: ExchangeKind::Stream,
            agent: AgentId::new(9999).unwrap(),
            expires_at: None,
            since: fixture.clock.now(),
            decision: ID,
            attributes: Arc::new(pods(verb)),
        }),
        reason: Some(reason),
        at: fixture.clock.now(),
    };
    fixture.audit.queue_closed_stream(&closed("watch", EndReason::Revoked));
    fixture.audit.queue_closed_stream(&closed("get", EndReason::Expired));
    fixture.until(&[("stream.closed", 1), ("stream.closed", 1)]).await;
    let rows = fixture.rows().await;
    let reasons: Vec<_> = rows.iter().map(|row| row.details["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["session revoked", "credential expired"]);
    assert_eq!(rows[0].session, Some(fixture.session.to_string()));
    assert_eq!(rows[0].details["audit_id"], ID.to_string());
    assert_eq!(rows[0].details.get("bytes_from_client"), None);
}

#[tokio::test]
async fn the_end_of_an_exec_has_its_duration_and_bytes() {
    let fixture = Fixture::start().await;
    let sessions = fixture.sessions().await;
    let mut exec = pods("create");
    (exec.upgrade, exec.subresource) = (Some("websocket"), Some("exec".to_owned()));
    let holder = fixture.entry(&exec).holder.unwrap();
    let exchange = crate::sessions::NewExchange::new(Arc::new(exec.clone()), ID, Ipv4Addr::LOCALHOST.into());
    let registered = sessions.register(holder, exchange).unwrap();
    let traffic = registered.end_signal();
    traffic.traffic().open();
    traffic.traffic().count_from_client(12);
    traffic.traffic().count_from_cluster(3_000);
    fixture.clock.advance(Duration::from_millis(2_500));
    drop(registered);
    fixture.until(&[("stream.ended", 1)]).await;
    let row = fixture.rows().await.remove(0);
    let opened_at: jiff::Timestamp = row.details["opened_at"].as_str().unwrap().parse().unwrap();
    let lasted = row.details["duration_ms"].as_i64().unwrap();
    assert!((2_500..20_000).contains(&lasted), "{row:?}");
    assert!(
        (row.last_at.duration_since(opened_at).as_millis() - i128::from(lasted)).abs() <= 1,
        "{row:?}"
    );
    let expected = json!({
        "verb": "create", "api_group": "", "resource": "pods", "subresource": "exec", "namespace": "default",
        "name": "web-0", "kind": "tunnel", "access_type": "personal_access_token", "audit_id": ID.to_string(),
        "opened_at": opened_at, "duration_ms": lasted, "bytes_from_client": 12, "bytes_from_cluster": 3_000,
    });
    assert_eq!(serde_json::Value::from(row.details), expected);
    assert_eq!(
        (row.user.as_str(), row.session),
        ("bob", Some(fixture.session.to_string()))
    );
}

fn secret(name: &str) -> Attributes {
    Attributes {
        verb: "get".to_owned(),
        resource: Some("secrets".to_owned()),
        name: Some(name.to_owned()),
        ..pods("get")
    }
}

#[tokio::test]
async fn reads_of_secrets_keep_their_names() {
    let fixture = Fixture::start().await;
    for name in ["db", "tls", "db"] {
        let attributes = secret(name);
        fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
    }
    // A resource of that name in another group is none, and a list has no name.
    let (mut other, mut list) = (secret("db"), secret(""));
    other.api_group = "example.com".to_owned();
    (list.verb, list.name) = ("list".to_owned(), None);
    for attributes in [&other, &list] {
        fixture.audit.record_access(fixture.entry(attributes)).await.unwrap();
    }
    fixture.audit.flush().await.unwrap();
    let rows = fixture.rows().await;
    let rows: Vec<_> = rows.iter().map(|row| (row.details.get("name"), row.count)).collect();
    assert_eq!(
        rows,
        [(Some(&json!("db")), 2), (Some(&json!("tls")), 1), (None, 1), (None, 1)]
    );
}

#[tokio::test]
async fn no_number_of_secrets_makes_one_nameless() {
    let fixture = Fixture::start().await;
    let names: Vec<String> = (0..READS.per_owner + 5)
        .map(|number| format!("secret-{number}"))
        .collect();
    for name in &names {
        let attributes = secret(name);
        fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
    }
    let rows = fixture.rows().await;
    let found: Vec<_> = rows.iter().map(|row| row.details["name"].as_str().unwrap()).collect();
    assert_eq!(found, names);
}

#[tokio::test]
async fn streams_ended_with_their_session_are_written_once() {
    let fixture = Fixture::start().await;
    let sessions = fixture.sessions().await;
    let mut exec = pods("create");
    exec.upgrade = Some("websocket");
    let holder = fixture.entry(&exec).holder.unwrap();
    let registered = [exec.clone(), pods("watch"), pods("get")].map(|attributes| {
        let exchange = crate::sessions::NewExchange::new(Arc::new(attributes), ID, Ipv4Addr::LOCALHOST.into());
        sessions.register(holder, exchange).unwrap()
    });
    let owner = store::SessionOwner {
        user: fixture.bob.clone(),
        agent_id: None,
    };
    let by = store::Actor {
        user_id: None,
        name: "root".to_owned(),
    };
    sessions.revoke(&fixture.session, &owner, &by).await.unwrap();
    drop(registered);
    fixture
        .until(&[("token.revoked", 1), ("stream.closed", 1), ("stream.closed", 1)])
        .await;
}

#[tokio::test]
async fn texts_of_callers_are_truncated() {
    let fixture = Fixture::start().await;
    let mut attributes = pods("delete");
    attributes.name = Some("é".repeat(4_000));
    fixture.audit.record_access(fixture.entry(&attributes)).await.unwrap();
    let rows = fixture.rows().await;
    let name = rows[0].details["name"].as_str().unwrap();
    assert_eq!(name, "é".repeat(128));
}

#[tokio::test]
async fn events_older_than_the_retention_period_are_removed() {
    let fixture = Fixture::start().await;
    fixture
        .audit
        .record_access(fixture.entry(&pods("delete")))
        .await
        .unwrap();
    fixture.clock.advance(Duration::from_hours(24 * 29));
    fixture
        .audit
        .record_access(fixture.entry(&pods("delete")))
        .await
        .unwrap();
    assert_eq!(fixture.counts().await.len(), 2);
    fixture.clock.advance(Duration::from_hours(25));
    fixture.until(&[("access.allowed", 1)]).await;
}

/// Removed rows do not come back when the clock is corrected.
#[tokio::test]
async fn a_clock_that_is_years_ahead_removes_nothing() {
    let fixture = Fixture::start().await;
    let now = fixture.clock.now();
    let event = |at| {
        let pods = pods("create");
        row::individual_event(&fixture.entry(&pods), at)
    };
    fixture.store.record(&[event(now)]).await.unwrap();
    let day = Duration::from_hours(24);
    let years = now + 3_650 * day;
    // Neither a second start nor the events written meanwhile make the clock plausible.
    for rows in [1, 2] {
        task::apply_retention(&fixture.audit, years, Duration::ZERO)
            .await
            .unwrap();
        assert_eq!(fixture.rows().await.len(), rows);
        fixture.store.record(&[event(years)]).await.unwrap();
    }
    // Time that the process has run removes events.
    let later = now + 40 * day;
    task::apply_retention(&fixture.audit, later, 40 * day).await.unwrap();
    let rows = fixture.rows().await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.last_at > later), "{rows:?}");
}

/// Reads do not pass forever while their counts cannot be written.
#[tokio::test]
async fn reads_are_refused_once_their_counts_have_waited_for_the_grace_period() {
    let fixture = Fixture::start().await;
    let pods = pods("list");
    fixture.audit.record_access(fixture.entry(&pods)).await.unwrap();
    fixture.sql("ALTER TABLE audit RENAME TO away").await;
    // The bucket is open: its row is on disk.
    fixture.audit.record_access(fixture.entry(&pods)).await.unwrap();
    fixture.clock.advance(Duration::from_secs(11));
    let refused = async {
        while fixture.audit.record_access(fixture.entry(&pods)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap();
    fixture.sql("ALTER TABLE away RENAME TO audit").await;
    let passes = async {
        while fixture.audit.record_access(fixture.entry(&pods)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), passes).await.unwrap();
}
