use std::sync::Mutex;

use secrecy::SecretString;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::*;
use crate::store::{BrowserSession, SecretHash, Token};

mod active;

const AGENT: i64 = 9999;
const GRACE: Duration = Duration::from_secs(10);
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

/// A process with a store, which others may share.
struct World {
    dir: Arc<TempDir>,
    clock: Clock,
    metrics: Arc<Metrics>,
    sessions: Arc<SessionRegistry>,
    heard: Arc<Mutex<Vec<EndedExchange>>>,
}

impl World {
    async fn start() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::over(&dir, Clock::default()).await.unwrap()
    }

    /// Another process over the same store.
    async fn beside(&self) -> Self {
        Self::over(&self.dir, self.clock.clone()).await.unwrap()
    }

    async fn over(dir: &Arc<TempDir>, clock: Clock) -> Result<Self, store::Error> {
        let url = format!("sqlite:{}/store", dir.path().display());
        let store = Arc::new(Store::open(&SecretString::from(url)).await?);
        let metrics = Arc::new(Metrics::default());
        let sessions = SessionRegistry::start(store, (clock.clone(), GRACE), metrics.clone()).await?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hear = heard.clone();
        sessions.on_stream_closed(move |closed| hear.lock().unwrap().push(closed));
        Ok(Self {
            dir: dir.clone(),
            clock,
            metrics,
            sessions,
            heard,
        })
    }

    fn register(&self, session: &SessionId, verb: &str) -> Result<ExchangeGuard, EndReason> {
        self.enter_until(session, verb, None)
    }

    fn enter_until(&self, session: &SessionId, verb: &str, left: Option<Duration>) -> Result<ExchangeGuard, EndReason> {
        let user = bob();
        let holder = SessionHolder {
            session,
            user: &user,
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

    /// Changes the database behind the store's back.
    async fn sql(&self, text: &'static str) {
        let options = SqliteConnectOptions::new().filename(self.dir.path().join("store"));
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
    }
}

impl ExchangeGuard {
    pub(crate) fn end_signal(&self) -> EndSignal {
        EndSignal::new(&self.end_trigger)
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
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .expect("the condition in time");
}

#[tokio::test]
async fn revoking_ends_everything_of_the_session_and_nothing_else() {
    let world = World::start().await;
    let (one, other) = (oidc("one"), oidc("other"));
    let entered = ["create", "watch", "get"].map(|verb| world.register(&one, verb).unwrap());
    let stays = world.register(&other, "watch").unwrap();
    assert_eq!(world.open_streams(), 3);
    let open = world.sessions.table.open(&one);
    let streams = open.iter().filter(|open| open.kind != ExchangeKind::Request);
    assert_eq!(streams.count(), 2);

    assert_eq!(world.revoke(&one).await.unwrap(), 2, "a watch and a tunnel");
    for entered in &entered {
        assert_eq!(entered.end_signal().end_reason(), Some(EndReason::Revoked));
        assert_eq!(entered.end_signal().ended().await, EndReason::Revoked);
    }
    assert_eq!(stays.end_signal().end_reason(), None);
    assert_eq!(world.open_streams(), 1);
    assert!(world.sessions.is_revoked(&one) && !world.sessions.is_revoked(&other));
    assert_eq!(world.register(&one, "get").unwrap_err(), EndReason::Revoked);
    world.register(&other, "get").unwrap();

    drop(entered);
    assert_eq!(world.open_streams(), 1, "what was ended is not counted twice");
    let mut heard = world.heard.lock().unwrap().clone();
    heard.sort_by_key(|closed| <&str>::from(closed.open.kind));
    let said: Vec<_> = heard
        .iter()
        .map(|closed| {
            (
                closed.open.kind,
                closed.open.attributes.verb.as_str(),
                closed.reason.as_str(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            (ExchangeKind::Stream, "watch", "session revoked"),
            (ExchangeKind::Tunnel, "create", "session revoked")
        ]
    );
    assert!(heard.iter().all(|closed| closed.session == one && closed.user == bob()));
}

#[tokio::test]
async fn revoking_again_changes_nothing() {
    let world = World::start().await;
    let id = oidc("one");
    let _watch = world.register(&id, "watch").unwrap();
    assert_eq!(world.revoke(&id).await.unwrap(), 1);
    assert_eq!(world.revoke(&id).await.unwrap(), 0);
    assert_eq!(world.heard.lock().unwrap().len(), 1);
    assert_eq!(world.metrics.revocations.get(), 1);
}

#[tokio::test]
async fn a_revocation_takes_effect_in_every_process_within_a_second() {
    let here = World::start().await;
    let there = here.beside().await;
    let id = oidc("one");
    let watch = there.register(&id, "watch").unwrap();
    let stays = there.register(&oidc("other"), "watch").unwrap();
    here.revoke(&id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(1), watch.end_signal().ended()).await;
    assert_eq!(ended, Ok(EndReason::Revoked));
    assert_eq!(there.register(&id, "get").unwrap_err(), EndReason::Revoked);
    assert_eq!(there.heard.lock().unwrap().len(), 1);
    assert!(here.heard.lock().unwrap().is_empty(), "each process tells of its own");
    assert_eq!(stays.end_signal().end_reason(), None);
}

#[tokio::test]
async fn what_was_revoked_before_the_start_is_known() {
    let before = World::start().await;
    before.revoke(&oidc("one")).await.unwrap();
    let after = before.beside().await;
    assert_eq!(after.register(&oidc("one"), "get").unwrap_err(), EndReason::Revoked);
    after.register(&oidc("other"), "get").unwrap();
}

#[tokio::test]
async fn nobody_is_served_when_revocations_cannot_be_read_at_the_start() {
    let world = World::start().await;
    world.sql("ALTER TABLE revocations RENAME TO away").await;
    let started = World::over(&world.dir, world.clock.clone()).await;
    assert!(matches!(started, Err(store::Error::Failed { .. })));
    world.sql("ALTER TABLE away RENAME TO revocations").await;
    assert!(World::over(&world.dir, world.clock.clone()).await.is_ok());
}

#[tokio::test]
async fn a_revocation_the_store_does_not_take_has_no_effect() {
    let world = World::start().await;
    let watch = world.register(&oidc("one"), "watch").unwrap();
    world.sql("ALTER TABLE revocations RENAME TO away").await;
    assert!(world.revoke(&oidc("one")).await.is_err());
    assert_eq!(watch.end_signal().end_reason(), None);
    assert!(!world.sessions.is_revoked(&oidc("one")));
}

#[tokio::test]
async fn a_store_that_comes_back_is_asked_for_what_was_missed() {
    let here = World::start().await;
    let there = here.beside().await;
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
    let ended = tokio::time::timeout(Duration::from_secs(2), watch.end_signal().ended()).await;
    assert_eq!(ended, Ok(EndReason::Revoked));
}

#[tokio::test]
async fn a_store_that_is_silent_for_the_grace_period_ends_everything_until_it_answers() {
    let world = World::start().await;
    let (one, other) = (oidc("one"), oidc("other"));
    let open = ["create", "watch", "get"].map(|verb| world.register(&one, verb).unwrap());
    world.sql("ALTER TABLE revocations RENAME TO away").await;
    let failed = || world.metrics.text().unwrap().contains("operation=\"revocations\"");
    until(async || failed()).await;
    world.clock.advance(GRACE / 2);
    tokio::task::yield_now().await;
    world.register(&other, "get").unwrap();
    assert_eq!(open[0].end_signal().end_reason(), None);

    world.clock.advance(GRACE / 2);
    for one in &open {
        assert_eq!(one.end_signal().ended().await, EndReason::StoreUnavailable);
    }
    assert!(world.sessions.is_store_unavailable());
    assert_eq!(world.register(&other, "get").unwrap_err(), EndReason::StoreUnavailable);
    assert_eq!(world.open_streams(), 0);
    let heard = world.heard.lock().unwrap().clone();
    let reasons: Vec<_> = heard.iter().map(|closed| closed.reason.as_str()).collect();
    assert_eq!(reasons, ["store unavailable", "store unavailable"]);

    // Revocations made meanwhile are applied before exchanges are let in again.
    world
        .sql("ALTER TABLE away RENAME TO revocations; INSERT INTO revocations VALUES (1, 'oidc:one', 9000000000000000)")
        .await;
    until(async || !world.sessions.is_store_unavailable()).await;
    assert_eq!(world.register(&one, "get").unwrap_err(), EndReason::Revoked);
    world.register(&other, "get").unwrap();
}

#[tokio::test]
async fn a_process_that_stood_still_asks_before_it_ends_anything() {
    let world = World::start().await;
    let open = world.register(&oidc("one"), "watch").unwrap();
    world.clock.advance(GRACE * 100);
    let beside = world.beside().await;
    beside.revoke(&oidc("other")).await.unwrap();
    until(async || world.sessions.is_revoked(&oidc("other"))).await;
    assert_eq!(open.end_signal().end_reason(), None);
    assert!(!world.sessions.is_store_unavailable());
}

#[tokio::test]
async fn streams_end_with_their_credential_and_not_before() {
    let world = World::start().await;
    let id = oidc("one");
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    let short = world.enter_until(&id, "watch", minutes(5)).unwrap();
    // The same session, renewed: another token that lives longer.
    let long = world.enter_until(&id, "watch", minutes(10)).unwrap();
    let forever = world.register(&oidc("other"), "watch").unwrap();
    world.clock.advance(Duration::from_secs(299));
    tokio::task::yield_now().await;
    assert_eq!(short.end_signal().end_reason(), None);
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(short.end_signal().ended().await, EndReason::Expired);
    assert_eq!(long.end_signal().end_reason(), None);
    world.clock.advance(Duration::from_mins(5));
    assert_eq!(long.end_signal().ended().await, EndReason::Expired);
    assert_eq!(forever.end_signal().end_reason(), None);
    let heard = world.heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 2);
    assert!(
        heard
            .iter()
            .all(|closed| closed.reason.as_str() == "credential expired")
    );
    assert_eq!(world.open_streams(), 1);
}

#[tokio::test]
async fn an_earlier_end_is_not_missed_behind_a_later_one() {
    let world = World::start().await;
    let late = world.enter_until(&oidc("late"), "watch", Some(Duration::from_secs(50)));
    tokio::task::yield_now().await;
    // The clock is not moved: nothing else wakes the task that waits.
    let early = world.enter_until(&oidc("early"), "watch", Some(Duration::from_millis(200)));
    let early = early.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), early.end_signal().ended()).await;
    assert_eq!(ended, Ok(EndReason::Expired));
    assert_eq!(late.unwrap().end_signal().end_reason(), None);
}

#[tokio::test]
async fn an_expired_credential_does_not_enter() {
    let world = World::start().await;
    let entered = world.enter_until(&oidc("one"), "get", Some(Duration::ZERO));
    assert_eq!(entered.unwrap_err(), EndReason::Expired);
    assert!(
        world
            .enter_until(&oidc("one"), "get", Some(Duration::from_secs(9)))
            .is_ok()
    );
}

#[tokio::test]
async fn a_token_is_kept_out_until_it_would_have_ended() {
    let world = World::start().await;
    let (token, cookie) = (Uuid::now_v7(), Uuid::now_v7());
    let (created_at, expires_at) = (world.clock.now(), world.clock.now() + Duration::from_hours(1));
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
    let store = &world.sessions.store;
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
        world.revoke(session).await.unwrap();
    }
    world.revoke(&oidc("renewable")).await.unwrap();
    let all = store.revocations_after(0).await.unwrap();
    let left = |one: &store::Revocation| one.until.duration_since(created_at).as_hours();
    assert_eq!(all.iter().map(left).collect::<Vec<_>>(), [1, 1, 24 * 400]);

    world.clock.advance(Duration::from_mins(59));
    tokio::task::yield_now().await;
    assert!(known.iter().all(|session| world.sessions.is_revoked(session)));
    world.clock.advance(Duration::from_mins(2));
    until(async || !known.iter().any(|session| world.sessions.is_revoked(session))).await;
    assert!(world.sessions.is_revoked(&oidc("renewable")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_slips_in_beside_a_revocation() {
    let world = Arc::new(World::start().await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut entered = Vec::new();
                loop {
                    match world.register(&oidc("one"), "watch") {
                        Ok(one) => entered.push(one),
                        Err(reason) => break (entered, reason),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    until(async || world.open_streams() > 100).await;
    let closed = world.revoke(&oidc("one")).await.unwrap();
    let mut count = 0;
    for task in tasks {
        let (entered, reason) = task.await.unwrap();
        assert_eq!(reason, EndReason::Revoked);
        for one in &entered {
            assert_eq!(one.end_signal().ended().await, EndReason::Revoked);
        }
        count += entered.len();
    }
    assert_eq!(world.open_streams(), 0);
    // All are closed at once: by the call, or by the task that read the revocation before.
    assert!(
        [0, count].contains(&usize::try_from(closed).unwrap()),
        "{closed} of {count}"
    );
    assert_eq!(world.heard.lock().unwrap().len(), count);
}

#[tokio::test]
async fn revocations_are_heard_of_though_the_clock_was_set_back() {
    let world = World::start().await;
    let beside = world.beside().await;
    // Let every task reach its next wait.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    world.clock.set_back(Duration::from_hours(5));
    beside.revoke(&oidc("one")).await.unwrap();
    assert!(!world.sessions.is_revoked(&oidc("one")));
    world.clock.advance(Duration::from_secs(1));
    until(async || world.sessions.is_revoked(&oidc("one"))).await;
}

#[tokio::test]
async fn a_store_that_became_older_is_read_from_the_first() {
    let world = World::start().await;
    let beside = world.beside().await;
    for id in ["one", "two", "three"] {
        beside.revoke(&oidc(id)).await.unwrap();
    }
    world.clock.advance(Duration::from_secs(1));
    until(async || world.sessions.is_revoked(&oidc("three"))).await;
    // An older copy of the store, in which a further revocation reuses a number.
    world
        .sql("DELETE FROM revocations; DELETE FROM sqlite_sequence WHERE name = 'revocations'")
        .await;
    beside.revoke(&oidc("four")).await.unwrap();
    assert!(!world.sessions.is_revoked(&oidc("four")));
    world.clock.advance(Duration::from_secs(1));
    until(async || world.sessions.is_revoked(&oidc("four"))).await;
}

#[tokio::test]
async fn revocations_are_read_from_the_first_every_few_minutes() {
    let world = World::start().await;
    let beside = world.beside().await;
    for id in ["one", "two"] {
        beside.revoke(&oidc(id)).await.unwrap();
    }
    world.clock.advance(Duration::from_secs(1));
    until(async || world.sessions.is_revoked(&oidc("two"))).await;
    // The number of revocations is the same, but one of them differs.
    world
        .sql("UPDATE revocations SET session = 'oidc:other' WHERE sequence = 1")
        .await;
    world.clock.advance(Duration::from_mins(6));
    until(async || world.sessions.is_revoked(&oidc("other"))).await;
}

#[tokio::test]
async fn what_is_withdrawn_ends_alone_and_is_heard_of_once() {
    let world = World::start().await;
    let pat = SessionId::new(AccessType::PersonalAccessToken, Uuid::nil().to_string());
    let [tunnel, watch, get] = ["create", "watch", "get"].map(|verb| world.register(&pat, verb).unwrap());
    assert!(tunnel.end(EndReason::Withdrawn) && get.end(EndReason::Withdrawn));
    for one in [&tunnel, &get] {
        assert_eq!(one.end_signal().ended().await, EndReason::Withdrawn);
    }
    assert_eq!((world.open_streams(), watch.end_signal().end_reason()), (1, None));
    assert!(!tunnel.end(EndReason::Revoked));
    let heard = || {
        let heard = world.heard.lock().unwrap().clone();
        heard
            .into_iter()
            .map(|closed| (closed.session, closed.reason))
            .collect::<Vec<_>>()
    };
    assert_eq!(heard(), [(pat.clone(), EndReason::Withdrawn)]);
    drop((tunnel, get));
    assert_eq!(world.open_streams(), 1);
    // An exchange that was revoked is not withdrawn as well.
    world.revoke(&pat).await.unwrap();
    assert!(!watch.end(EndReason::Withdrawn));
    assert_eq!(
        heard(),
        [(pat.clone(), EndReason::Withdrawn), (pat, EndReason::Revoked)]
    );
}

#[test]
fn kinds_follow_what_is_asked() {
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

#[test]
fn an_open_stream_costs_little() {
    let bytes = size_of::<ExchangeGuard>()
        + size_of::<table::OpenExchange>()
        + size_of::<Attributes>()
        + 2 * size_of::<signal::EndTrigger>();
    assert!(bytes < 1024, "{bytes}");
}
