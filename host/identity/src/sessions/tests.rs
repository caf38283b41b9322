use std::sync::Mutex;

use secrecy::SecretString;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::*;
use tollgate_store::{BrowserSession, SecretHash, Token};

mod active;

const AGENT: i64 = 9999;
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait for something expected, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

/// A registry over a store that other replicas may share.
struct Replica {
    dir: Arc<TempDir>,
    clock: Clock,
    metrics: Arc<Metrics>,
    sessions: Arc<SessionRegistry>,
    closed_streams: Arc<Mutex<Vec<EndedExchange>>>,
}

impl Replica {
    async fn start() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::open(&dir, Clock::default()).await.unwrap()
    }

    /// Another replica over the same store.
    async fn another_replica(&self) -> Self {
        Self::open(&self.dir, self.clock.clone()).await.unwrap()
    }

    async fn open(dir: &Arc<TempDir>, clock: Clock) -> Result<Self, store::Error> {
        let url = format!("sqlite:{}/store", dir.path().display());
        let store = Arc::new(Store::open(&SecretString::from(url)).await?);
        let metrics = Arc::new(Metrics::default());
        let sessions = SessionRegistry::start(store, clock.clone(), GRACE, metrics.clone()).await?;
        let closed_streams = Arc::new(Mutex::new(Vec::new()));
        let recorder = closed_streams.clone();
        sessions.on_stream_closed(move |closed| recorder.lock().unwrap().push(closed));
        Ok(Self {
            dir: dir.clone(),
            clock,
            metrics,
            sessions,
            closed_streams,
        })
    }

    fn register(&self, session: &SessionId, verb: &str) -> Result<ExchangeGuard, EndReason> {
        self.register_until(session, verb, None)
    }

    fn register_until(
        &self,
        session: &SessionId,
        verb: &str,
        left: Option<Duration>,
    ) -> Result<ExchangeGuard, EndReason> {
        let user = bob();
        let holder = SessionHolder {
            session,
            user: &user,
            names: None,
            agent: AgentId::new(AGENT).unwrap(),
            expires_at: left.map(|left| self.clock.now() + left),
        };
        self.sessions.register(
            holder,
            NewExchange::new(Arc::new(request_attributes(verb)), Uuid::now_v7(), CLIENT),
        )
    }

    async fn revoke(&self, session: &SessionId) -> Result<u32, store::Error> {
        self.sessions.revoke(session, &owner(), &actor()).await
    }

    fn open_streams(&self) -> i64 {
        self.metrics.open_streams.get()
    }

    /// Changes the database without the store.
    async fn sql(&self, text: &'static str) {
        let options = SqliteConnectOptions::new().filename(self.dir.path().join("store"));
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
    }
}

impl ExchangeGuard {
    pub(crate) fn end_signal(&self) -> EndSignal {
        EndSignal::new(self.end_trigger())
    }
}

impl SessionRegistry {
    /// Every page of active sessions.
    async fn list(&self, filter: &CredentialFilter) -> Result<Vec<ActiveSession>, store::Error> {
        let (mut rows, mut page) = (
            Vec::new(),
            Page {
                limit: 2,
                ..Page::default()
            },
        );
        loop {
            let (more, end) = self.page(filter, &page).await?;
            rows.extend(more);
            if end.is_none() {
                return Ok(rows);
            }
            page.after = end;
        }
    }
}

fn bob() -> User {
    User {
        id: 102,
        username: "bob".to_owned(),
    }
}

fn owner() -> SessionOwner {
    SessionOwner {
        user: bob(),
        agent_id: AgentId::new(AGENT),
    }
}

fn actor() -> Actor {
    Actor {
        user_id: Some(1),
        name: "root".to_owned(),
    }
}

fn request_attributes(verb: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        resource_request: true,
        resource: Some("pods".to_owned()),
        namespace: Some("default".to_owned()),
        subresource: (verb == "create").then(|| "exec".to_owned()),
        upgrade: (verb == "create").then_some("websocket"),
        ..Attributes::default()
    }
}

fn oidc(id: &str) -> SessionId {
    SessionId::new(AccessType::OidcIdToken, id)
}

/// Lets other tasks run until `condition` holds.
async fn until(condition: impl AsyncFn() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the condition must hold in time");
}

/// Every kind of name that a credential tells means the person, here and at another replica.
#[tokio::test]
async fn a_lock_by_any_name_ends_what_is_open_and_refuses_what_comes() {
    let (here, there) = {
        let here = Replica::start().await;
        let there = here.another_replica().await;
        (here, there)
    };
    let names = PersonNames::of(["bob@corp.example", "u1-sub"]);
    let user = bob();
    let register = |replica: &Replica, session: &SessionId, names: Option<&PersonNames>| {
        let holder = SessionHolder {
            session,
            user: &user,
            names,
            agent: AgentId::new(AGENT).unwrap(),
            expires_at: None,
        };
        let attributes = Arc::new(request_attributes("watch"));
        let exchange = NewExchange::new(attributes, Uuid::now_v7(), CLIENT);
        replica.sessions.register(holder, exchange)
    };
    let other = PersonNames::of(["eve@corp.example", "u2-sub"]);
    let eve = User {
        id: 103,
        username: "eve".to_owned(),
    };
    let twin_session = oidc("twin");
    let twin = there.sessions.register(
        SessionHolder {
            session: &twin_session,
            user: &eve,
            names: Some(&other),
            agent: AgentId::new(AGENT).unwrap(),
            expires_at: None,
        },
        NewExchange::new(Arc::new(request_attributes("watch")), Uuid::now_v7(), CLIENT),
    );
    let twin = twin.unwrap();
    for (number, name) in ["bob", "bob@corp.example", "u1-sub"].into_iter().enumerate() {
        let session = oidc(&format!("{number}"));
        let open = [&here, &there].map(|replica| register(replica, &session, Some(&names)).unwrap());
        here.sessions.lock_person(name, "", &actor()).await.unwrap();
        for guard in &open {
            assert_eq!(guard.end_signal().ended().await, EndReason::Revoked, "{name}");
        }
        for replica in [&here, &there] {
            let refused = register(replica, &session, Some(&names)).unwrap_err();
            assert_eq!(refused, EndReason::Revoked, "{name}");
        }
        here.sessions.unlock_person(name, &actor()).await.unwrap();
        until(async || !there.sessions.has_locks()).await;
        register(&there, &session, Some(&names)).unwrap();
    }
    assert_eq!(twin.end_signal().end_reason(), None);
}

#[tokio::test]
async fn revoking_ends_everything_of_the_session_and_nothing_else() {
    let replica = Replica::start().await;
    let (one, other) = (oidc("one"), oidc("other"));
    let registered = ["create", "watch", "get"].map(|verb| replica.register(&one, verb).unwrap());
    let stays = replica.register(&other, "watch").unwrap();
    assert_eq!(replica.open_streams(), 3);
    let open = replica.sessions.table.open(&one);
    let streams = open.iter().filter(|open| open.kind != ExchangeKind::Request);
    assert_eq!(streams.count(), 2);

    assert_eq!(replica.revoke(&one).await.unwrap(), 2, "a watch and a tunnel");
    for registered in &registered {
        assert_eq!(registered.end_signal().end_reason(), Some(EndReason::Revoked));
        assert_eq!(registered.end_signal().ended().await, EndReason::Revoked);
    }
    assert_eq!(stays.end_signal().end_reason(), None);
    assert_eq!(replica.open_streams(), 1);
    assert!(replica.sessions.is_revoked(&one) && !replica.sessions.is_revoked(&other));
    assert_eq!(replica.register(&one, "get").unwrap_err(), EndReason::Revoked);
    replica.register(&other, "get").unwrap();

    drop(registered);
    assert_eq!(replica.open_streams(), 1, "ended streams are not counted twice");
    let mut closed_streams = replica.closed_streams.lock().unwrap().clone();
    closed_streams.sort_by_key(|closed| <&str>::from(closed.open.kind));
    let summaries: Vec<_> = closed_streams
        .iter()
        .map(|closed| {
            (
                closed.open.kind,
                closed.open.attributes.verb.as_str(),
                closed.reason.map(EndReason::as_str),
            )
        })
        .collect();
    assert_eq!(
        summaries,
        [
            (ExchangeKind::Stream, "watch", Some("session revoked")),
            (ExchangeKind::Tunnel, "create", Some("session revoked"))
        ]
    );
    assert!(
        closed_streams
            .iter()
            .all(|closed| closed.session == one && closed.user == bob())
    );
}

#[tokio::test]
async fn revoking_again_changes_nothing() {
    let replica = Replica::start().await;
    let id = oidc("one");
    let _watch = replica.register(&id, "watch").unwrap();
    assert_eq!(replica.revoke(&id).await.unwrap(), 1);
    assert_eq!(replica.revoke(&id).await.unwrap(), 0);
    assert_eq!(replica.closed_streams.lock().unwrap().len(), 1);
    assert_eq!(replica.metrics.revocations.get(), 1);
}

#[tokio::test]
async fn a_revocation_takes_effect_in_every_replica_within_a_second() {
    let here = Replica::start().await;
    let there = here.another_replica().await;
    let stays = there.register(&oidc("other"), "watch").unwrap();
    let mut fastest = Duration::MAX;
    for number in 0..4 {
        let id = oidc(&number.to_string());
        let watch = there.register(&id, "watch").unwrap();
        here.revoke(&id).await.unwrap();
        let answered = std::time::Instant::now();
        let ended = tokio::time::timeout(PATIENCE, watch.end_signal().ended()).await;
        assert_eq!(ended, Ok(EndReason::Revoked));
        if number > 0 {
            // It comes just after the store was read, so it waits for a whole interval.
            fastest = fastest.min(answered.elapsed());
        }
        assert_eq!(there.register(&id, "get").unwrap_err(), EndReason::Revoked);
    }
    // A busy machine is not late every time.
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    assert_eq!(there.closed_streams.lock().unwrap().len(), 4);
    assert!(
        here.closed_streams.lock().unwrap().is_empty(),
        "each replica reports its own streams"
    );
    assert_eq!(stays.end_signal().end_reason(), None);
}

#[tokio::test]
async fn revocations_before_the_start_are_known() {
    let before = Replica::start().await;
    before.revoke(&oidc("one")).await.unwrap();
    let after = before.another_replica().await;
    assert_eq!(after.register(&oidc("one"), "get").unwrap_err(), EndReason::Revoked);
    after.register(&oidc("other"), "get").unwrap();
}

#[tokio::test]
async fn the_registry_does_not_start_if_revocations_cannot_be_read() {
    let replica = Replica::start().await;
    replica.sql("ALTER TABLE revocations RENAME TO away").await;
    let started = Replica::open(&replica.dir, replica.clock.clone()).await;
    assert!(matches!(started, Err(store::Error::Failed { .. })));
    replica.sql("ALTER TABLE away RENAME TO revocations").await;
    assert!(Replica::open(&replica.dir, replica.clock.clone()).await.is_ok());
}

#[tokio::test]
async fn a_revocation_that_cannot_be_stored_has_no_effect() {
    let replica = Replica::start().await;
    let watch = replica.register(&oidc("one"), "watch").unwrap();
    replica.sql("ALTER TABLE revocations RENAME TO away").await;
    assert!(replica.revoke(&oidc("one")).await.is_err());
    assert_eq!(watch.end_signal().end_reason(), None);
    assert!(!replica.sessions.is_revoked(&oidc("one")));
}

#[tokio::test]
async fn revocations_missed_during_an_outage_are_read_afterwards() {
    let here = Replica::start().await;
    let there = here.another_replica().await;
    let watch = there.register(&oidc("one"), "watch").unwrap();
    here.revoke(&oidc("before")).await.unwrap();
    until(async || there.sessions.is_revoked(&oidc("before"))).await;
    here.sql("ALTER TABLE revocations RENAME TO away").await;
    let failed = || {
        there
            .metrics
            .text()
            .unwrap()
            .contains("tollgate_store_failures_total{operation=\"revocations\"}")
    };
    until(async || failed()).await;
    here.sql("ALTER TABLE away RENAME TO revocations").await;
    until(async || here.revoke(&oidc("one")).await.is_ok()).await;
    let ended = tokio::time::timeout(PATIENCE, watch.end_signal().ended()).await;
    assert_eq!(ended, Ok(EndReason::Revoked));
}

#[tokio::test]
async fn a_store_that_is_silent_for_the_grace_period_ends_everything_until_it_answers() {
    let replica = Replica::start().await;
    let (one, other) = (oidc("one"), oidc("other"));
    let open = ["create", "watch", "get"].map(|verb| replica.register(&one, verb).unwrap());
    replica.sql("ALTER TABLE revocations RENAME TO away").await;
    let failed = || replica.metrics.text().unwrap().contains("operation=\"revocations\"");
    until(async || failed()).await;
    replica.clock.advance(GRACE / 2);
    tokio::task::yield_now().await;
    replica.register(&other, "get").unwrap();
    assert_eq!(open[0].end_signal().end_reason(), None);

    replica.clock.advance(GRACE / 2);
    for one in &open {
        assert_eq!(one.end_signal().ended().await, EndReason::StoreUnavailable);
    }
    assert!(replica.sessions.is_store_unavailable());
    assert_eq!(
        replica.register(&other, "get").unwrap_err(),
        EndReason::StoreUnavailable
    );
    assert_eq!(replica.open_streams(), 0);
    let closed_streams = replica.closed_streams.lock().unwrap().clone();
    let reasons: Vec<_> = closed_streams
        .iter()
        .map(|closed| closed.reason.map(EndReason::as_str))
        .collect();
    assert_eq!(reasons, [Some("store unavailable"); 2]);

    // Revocations made meanwhile are applied before exchanges are admitted again.
    replica
        .sql("ALTER TABLE away RENAME TO revocations; INSERT INTO revocations VALUES (1, 'oidc:one', 9000000000000000)")
        .await;
    until(async || !replica.sessions.is_store_unavailable()).await;
    assert_eq!(replica.register(&one, "get").unwrap_err(), EndReason::Revoked);
    replica.register(&other, "get").unwrap();
}

#[tokio::test]
async fn a_process_that_stood_still_asks_before_it_ends_anything() {
    let replica = Replica::start().await;
    let open = replica.register(&oidc("one"), "watch").unwrap();
    replica.clock.advance(GRACE * 100);
    let another_replica = replica.another_replica().await;
    another_replica.revoke(&oidc("other")).await.unwrap();
    until(async || replica.sessions.is_revoked(&oidc("other"))).await;
    assert_eq!(open.end_signal().end_reason(), None);
    assert!(!replica.sessions.is_store_unavailable());
}

#[tokio::test]
async fn streams_end_with_their_credential_and_not_before() {
    let replica = Replica::start().await;
    let id = oidc("one");
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    let short = replica.register_until(&id, "watch", minutes(5)).unwrap();
    // The same session, renewed: another token that lives longer.
    let long = replica.register_until(&id, "watch", minutes(10)).unwrap();
    let forever = replica.register(&oidc("other"), "watch").unwrap();
    replica.clock.advance(Duration::from_secs(299));
    tokio::task::yield_now().await;
    assert_eq!(short.end_signal().end_reason(), None);
    replica.clock.advance(Duration::from_secs(2));
    assert_eq!(short.end_signal().ended().await, EndReason::Expired);
    assert_eq!(long.end_signal().end_reason(), None);
    replica.clock.advance(Duration::from_mins(5));
    assert_eq!(long.end_signal().ended().await, EndReason::Expired);
    assert_eq!(forever.end_signal().end_reason(), None);
    let closed_streams = replica.closed_streams.lock().unwrap().clone();
    assert_eq!(closed_streams.len(), 2);
    assert!(
        closed_streams
            .iter()
            .all(|closed| closed.reason == Some(EndReason::Expired))
    );
    assert_eq!(replica.open_streams(), 1);
}

#[tokio::test]
async fn an_earlier_expiry_does_not_wait_for_a_later_one() {
    let replica = Replica::start().await;
    let late = replica.register_until(&oidc("late"), "watch", Some(Duration::from_secs(50)));
    tokio::task::yield_now().await;
    // The clock is not moved: nothing else wakes the task that waits.
    let early = replica.register_until(&oidc("early"), "watch", Some(Duration::from_millis(200)));
    let early = early.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), early.end_signal().ended()).await;
    assert_eq!(ended, Ok(EndReason::Expired));
    assert_eq!(late.unwrap().end_signal().end_reason(), None);
}

#[tokio::test]
async fn an_expired_credential_cannot_be_registered() {
    let replica = Replica::start().await;
    let registered = replica.register_until(&oidc("one"), "get", Some(Duration::ZERO));
    assert_eq!(registered.unwrap_err(), EndReason::Expired);
    assert!(
        replica
            .register_until(&oidc("one"), "get", Some(Duration::from_secs(9)))
            .is_ok()
    );
}

#[tokio::test]
async fn a_revocation_is_kept_until_the_credential_would_have_expired() {
    let replica = Replica::start().await;
    let (token, cookie) = (Uuid::now_v7(), Uuid::now_v7());
    let (created_at, expires_at) = (replica.clock.now(), replica.clock.now() + Duration::from_hours(1));
    let secret = |text: &str| SecretHash::of(&SecretString::from(text));
    let row = Token {
        id: token,
        name: "laptop".to_owned(),
        user: bob(),
        agent_id: AgentId::new(AGENT).unwrap(),
        agent: None,
        scopes: vec!["k8s_proxy".to_owned()],
        created_at,
        expires_at,
        revoked_at: None,
        last_used_at: None,
    };
    let store = &replica.sessions.store;
    store.create_token(&row, secret("a"), &actor()).await.unwrap();
    let row = BrowserSession {
        id: cookie,
        user: bob(),
        csrf: secret("b"),
        created_at,
        expires_at,
        revoked_at: None,
    };
    store.create_session(&row, secret("c"), &actor()).await.unwrap();
    let known = [
        SessionId::new(AccessType::PersonalAccessToken, token.to_string()),
        SessionId::new(AccessType::SessionCookie, cookie.to_string()),
    ];
    for session in &known {
        replica.revoke(session).await.unwrap();
    }
    replica.revoke(&oidc("renewable")).await.unwrap();
    let all = store.revocations_after(0).await.unwrap();
    let left = |one: &store::Revocation| one.until.duration_since(created_at).as_hours();
    assert_eq!(all.iter().map(left).collect::<Vec<_>>(), [1, 1, 24 * 400]);

    replica.clock.advance(Duration::from_mins(59));
    tokio::task::yield_now().await;
    assert!(known.iter().all(|session| replica.sessions.is_revoked(session)));
    replica.clock.advance(Duration::from_mins(2));
    until(async || !known.iter().any(|session| replica.sessions.is_revoked(session))).await;
    assert!(replica.sessions.is_revoked(&oidc("renewable")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_registrations_do_not_escape_a_revocation() {
    let replica = Arc::new(Replica::start().await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let replica = replica.clone();
            tokio::spawn(async move {
                let mut registered = Vec::new();
                loop {
                    match replica.register(&oidc("one"), "watch") {
                        Ok(one) => registered.push(one),
                        Err(reason) => break (registered, reason),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    until(async || replica.open_streams() > 100).await;
    let closed = replica.revoke(&oidc("one")).await.unwrap();
    let mut count = 0;
    for task in tasks {
        let (registered, reason) = task.await.unwrap();
        assert_eq!(reason, EndReason::Revoked);
        for one in &registered {
            assert_eq!(one.end_signal().ended().await, EndReason::Revoked);
        }
        count += registered.len();
    }
    assert_eq!(replica.open_streams(), 0);
    // All are closed at once: by the call, or by the task that read the revocation before.
    assert!(
        [0, count].contains(&usize::try_from(closed).unwrap()),
        "{closed} of {count}"
    );
    assert_eq!(replica.closed_streams.lock().unwrap().len(), count);
}

#[tokio::test]
async fn revocations_are_read_although_the_clock_was_set_back() {
    let replica = Replica::start().await;
    let another_replica = replica.another_replica().await;
    // Let every task reach its next wait.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    replica.clock.set_back(Duration::from_hours(5));
    another_replica.revoke(&oidc("one")).await.unwrap();
    assert!(!replica.sessions.is_revoked(&oidc("one")));
    replica.clock.advance(Duration::from_secs(1));
    until(async || replica.sessions.is_revoked(&oidc("one"))).await;
}

#[tokio::test]
async fn revocations_of_an_older_store_are_read_from_the_first() {
    let replica = Replica::start().await;
    let another_replica = replica.another_replica().await;
    for id in ["one", "two", "three"] {
        another_replica.revoke(&oidc(id)).await.unwrap();
    }
    replica.clock.advance(Duration::from_secs(1));
    until(async || replica.sessions.is_revoked(&oidc("three"))).await;
    // An older copy of the store, in which a further revocation reuses a number.
    replica
        .sql("DELETE FROM revocations; DELETE FROM sqlite_sequence WHERE name = 'revocations'")
        .await;
    another_replica.revoke(&oidc("four")).await.unwrap();
    assert!(!replica.sessions.is_revoked(&oidc("four")));
    replica.clock.advance(Duration::from_secs(1));
    until(async || replica.sessions.is_revoked(&oidc("four"))).await;
}

#[tokio::test]
async fn revocations_are_read_from_the_first_every_few_minutes() {
    let replica = Replica::start().await;
    let another_replica = replica.another_replica().await;
    for id in ["one", "two"] {
        another_replica.revoke(&oidc(id)).await.unwrap();
    }
    replica.clock.advance(Duration::from_secs(1));
    until(async || replica.sessions.is_revoked(&oidc("two"))).await;
    // The number of revocations is the same, but one of them differs.
    replica
        .sql("UPDATE revocations SET session = 'oidc:other' WHERE sequence = 1")
        .await;
    replica.clock.advance(Duration::from_mins(6));
    until(async || replica.sessions.is_revoked(&oidc("other"))).await;
}

#[tokio::test]
async fn what_is_withdrawn_ends_alone_and_is_heard_of_once() {
    let replica = Replica::start().await;
    let pat = SessionId::new(AccessType::PersonalAccessToken, Uuid::nil().to_string());
    let [tunnel, watch, get] = ["create", "watch", "get"].map(|verb| replica.register(&pat, verb).unwrap());
    assert!(tunnel.end(EndReason::Withdrawn) && get.end(EndReason::Withdrawn));
    for one in [&tunnel, &get] {
        assert_eq!(one.end_signal().ended().await, EndReason::Withdrawn);
    }
    assert_eq!((replica.open_streams(), watch.end_signal().end_reason()), (1, None));
    assert!(!tunnel.end(EndReason::Revoked));
    let closed_streams = || {
        let closed_streams = replica.closed_streams.lock().unwrap().clone();
        closed_streams
            .into_iter()
            .map(|closed| (closed.session, closed.reason.unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(closed_streams(), [(pat.clone(), EndReason::Withdrawn)]);
    drop((tunnel, get));
    assert_eq!(replica.open_streams(), 1);
    // An exchange that was revoked is not withdrawn as well.
    replica.revoke(&pat).await.unwrap();
    assert!(!watch.end(EndReason::Withdrawn));
    assert_eq!(
        closed_streams(),
        [(pat.clone(), EndReason::Withdrawn), (pat, EndReason::Revoked)]
    );
}

#[test]
fn the_kind_of_an_exchange_follows_its_attributes() {
    let kind = |edit: &dyn Fn(&mut Attributes)| {
        let mut attributes = request_attributes("get");
        edit(&mut attributes);
        ExchangeKind::of(&attributes)
    };
    assert_eq!(kind(&|_| {}), ExchangeKind::Request);
    assert_eq!(
        kind(&|one| one.subresource = Some("status".to_owned())),
        ExchangeKind::Request
    );
    assert_eq!(
        kind(&|one| one.subresource = Some("log".to_owned())),
        ExchangeKind::Stream
    );
    assert_eq!(kind(&|one| one.verb = "watch".to_owned()), ExchangeKind::Stream);
    assert_eq!(kind(&|one| one.upgrade = Some("SPDY/3.1")), ExchangeKind::Tunnel);
}

#[tokio::test]
async fn a_tunnel_that_ends_by_itself_is_reported_with_its_bytes() {
    let replica = Replica::start().await;
    let session = oidc("a");
    let tunnel = || replica.register(&session, "create").unwrap();
    let (refused, open) = (tunnel(), tunnel());
    open.end_signal().traffic().open();
    open.end_signal().traffic().count_from_client(3);
    open.end_signal().traffic().count_from_cluster(40);
    assert_eq!(replica.open_streams(), 2);
    // The cluster did not agree to the first one, and a watch has no end worth telling.
    drop((refused, replica.register(&session, "watch").unwrap()));
    assert!(replica.closed_streams.lock().unwrap().is_empty());
    drop(open);
    assert_eq!(replica.open_streams(), 0);
    let closed = replica.closed_streams.lock().unwrap();
    let [one] = closed.as_slice() else { panic!("{closed:?}") };
    assert_eq!((one.reason, one.user.username.as_str()), (None, "bob"));
    assert_eq!(one.open.end_trigger.traffic.bytes(), (3, 40));
}

#[test]
fn an_open_stream_takes_less_than_a_kibibyte() {
    let bytes = size_of::<ExchangeGuard>()
        + size_of::<table::OpenExchange>()
        + size_of::<Attributes>()
        + 2 * size_of::<signal::EndTrigger>();
    assert!(bytes < 1024, "{bytes}");
}
