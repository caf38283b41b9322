//! The data of a database after a process is killed in the middle of its work.
//!
//! The test starts itself again as a child. The child creates tokens, revokes some and writes audit
//! events, all concurrently, and prints what was acknowledged. The test kills the child and
//! compares the database with its output.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::Connection as _;
use tollgate_store::{AuditEvent, AuditFilter, CredentialFilter, Page, SessionOwner, Store, Token};
use uuid::Uuid;

use crate::store::support::{Backend, actor, agent, all_events, at, event, hash, session_of, token, user};
use test_support::postgres::Server;

/// How many tokens a child creates, and how many pairs of events it writes.
const EACH: usize = 1_000;
/// Concurrent tasks of a child.
const TASKS: usize = 40;
/// One of so many tokens is revoked.
const REVOKED: usize = 5;
/// Environment variables that make a process the child.
const URL: &str = "TOLLGATE_TEST_STORE_URL";
const ROUND: &str = "TOLLGATE_TEST_STORE_ROUND";

/// After how many acknowledgments a child is killed, and how many microseconds later. The delays
/// vary because an acknowledgment always comes at the same point of a transaction.
const ROUNDS: [(usize, u64); 10] = [
    (1, 0),
    (40, 300),
    (200, 700),
    (300, 1_200),
    (500, 1_900),
    (800, 2_900),
    (1_000, 4_100),
    (1_200, 5_300),
    (1_500, 7_100),
    (2_100, 0),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_has_all_that_was_acknowledged() {
    run_as_child_if_asked().await;
    let backend = Backend::sqlite();
    survive(&backend, "store::kill::sqlite_has_all_that_was_acknowledged").await;
    let mut connection = sqlx::SqliteConnection::connect(backend.url.expose_secret())
        .await
        .unwrap();
    let (intact,): (String,) = sqlx::query_as("PRAGMA integrity_check")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(intact, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_has_all_that_was_acknowledged() {
    run_as_child_if_asked().await;
    let backend = Backend::postgres().await;
    survive(&backend, "store::kill::postgres_has_all_that_was_acknowledged").await;
}

/// The database server is killed, not only the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgres_has_all_that_was_acknowledged() {
    run_as_child_if_asked().await;
    let server = Server::start();
    let url = SecretString::from(server.database().await);
    let store = Store::open(&url).await.unwrap();
    let name = "store::kill::a_killed_postgres_has_all_that_was_acknowledged";
    for (round, after) in [(1, 30), (2, 400), (3, 700)] {
        let mut gateway = Gateway::start(name, &url, round);
        gateway.listen(after);
        server.kill_and_restart();
        let acknowledged = gateway.kill();
        assert!(acknowledged.len() < EACH * 2, "the child finished before the kill");
        check(&store, round, &acknowledged).await;
    }
    // A store that was open during the kill keeps working.
    let made = token(99, 1, 0);
    store.create_token(&made, hash("after"), &actor(99)).await.unwrap();
    assert_eq!(store.token(made.id).await.unwrap(), Some(made));
}

async fn survive(backend: &Backend, name: &str) {
    let mut middle = 0;
    for (round, (after, later)) in (1..).zip(ROUNDS) {
        let mut gateway = Gateway::start(name, &backend.url, round);
        gateway.listen(after);
        std::thread::sleep(Duration::from_micros(later));
        let acknowledged = gateway.kill();
        assert!(acknowledged.len() >= after);
        middle += usize::from(acknowledged.len() < EACH * 2 + EACH / REVOKED);
        check(&backend.open().await, round, &acknowledged).await;
    }
    assert!(middle >= 5, "only {middle} children were killed in the middle");
}

/// A line with which a child reports an acknowledged change.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Acknowledgment {
    Token(Uuid),
    Revoked(Uuid),
    /// Both events of a pair.
    Pair(Uuid),
}

impl Acknowledgment {
    /// Parses a complete line. Other output is ignored.
    fn parse(line: &str) -> Option<Self> {
        let (word, id) = line.strip_suffix('\n')?.split_once(' ')?;
        let id = Uuid::try_parse(id).ok()?;
        match word {
            "token" => Some(Self::Token(id)),
            "revoked" => Some(Self::Revoked(id)),
            "pair" => Some(Self::Pair(id)),
            _ => None,
        }
    }
}

/// A child and its acknowledgments so far.
struct Gateway {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    acknowledged: HashSet<Acknowledgment>,
}

impl Gateway {
    fn start(test: &str, url: &SecretString, round: i64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(URL, url.expose_secret())
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            lines,
            acknowledged: HashSet::new(),
        }
    }

    /// Reads until there are so many acknowledgments, or the child ends.
    fn listen(&mut self, after: usize) {
        while self.acknowledged.len() < after && self.line() {}
    }

    fn line(&mut self) -> bool {
        let mut line = String::new();
        let length = self.lines.read_line(&mut line).unwrap();
        self.acknowledged.extend(Acknowledgment::parse(&line));
        length > 0
    }

    /// Kills the child and returns all its acknowledgments.
    fn kill(mut self) -> HashSet<Acknowledgment> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.line() {}
        std::mem::take(&mut self.acknowledged)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that the rows of a round are consistent and contain every acknowledged change.
async fn check(store: &Store, round: i64, acknowledged: &HashSet<Acknowledgment>) {
    let credential_filter = CredentialFilter {
        user_id: Some(round),
        ..CredentialFilter::default()
    };
    let tokens = store.tokens(&credential_filter, &Page::default()).await.unwrap();
    let filter = AuditFilter {
        user_id: Some(round),
        ..AuditFilter::default()
    };
    let events = all_events(store, filter).await;
    let of = |action: &str| -> HashMap<&str, Vec<&AuditEvent>> {
        let mut all = HashMap::<_, Vec<_>>::new();
        for event in events.iter().filter(|event| event.action == action) {
            all.entry(event.session.as_deref().unwrap()).or_default().push(event);
        }
        all
    };
    check_tokens(store, &tokens, &of("token.created"), &of("token.revoked")).await;
    let pairs = of("access.denied");
    for (session, pair) in &pairs {
        assert_eq!(pair.len(), 2, "only half of a pair was written: {session}");
    }
    let revoked = |id: &Uuid| tokens.iter().any(|token| token.id == *id && token.revoked_at.is_some());
    for acknowledged in acknowledged {
        let is_there = match acknowledged {
            Acknowledgment::Token(id) => tokens.iter().any(|token| token.id == *id),
            Acknowledgment::Revoked(id) => revoked(id),
            Acknowledgment::Pair(id) => pairs.contains_key(format!("pat:{id}").as_str()),
        };
        assert!(is_there, "an acknowledged change is lost: {acknowledged:?}");
    }
}

/// Checks that each token has its event and each event its token, and likewise for revocations.
async fn check_tokens(
    store: &Store,
    tokens: &[Token],
    created: &HashMap<&str, Vec<&AuditEvent>>,
    revoked: &HashMap<&str, Vec<&AuditEvent>>,
) {
    let mut revocations = HashSet::new();
    let mut last = 0;
    loop {
        let page = store.revocations_after(last).await.unwrap();
        let Some(latest) = page.last() else { break };
        last = latest.sequence;
        revocations.extend(page.iter().map(|revocation| revocation.session.to_string()));
    }
    assert_eq!(
        created.len(),
        tokens.len(),
        "events without a token, or tokens without an event"
    );
    for token in tokens {
        let session = session_of(token).to_string();
        assert_eq!(created.get(session.as_str()).map(Vec::len), Some(1), "{session}");
        let is_revoked = usize::from(token.revoked_at.is_some());
        assert_eq!(
            revoked.get(session.as_str()).map_or(0, Vec::len),
            is_revoked,
            "{session}"
        );
        assert_eq!(usize::from(revocations.contains(&session)), is_revoked, "{session}");
    }
    let marked = tokens.iter().filter(|token| token.revoked_at.is_some()).count();
    assert_eq!(revoked.len(), marked, "events without their revocation");
}

/// Works until it is killed, if the process is a child. Returns otherwise.
async fn run_as_child_if_asked() {
    let (Some(url), Some(round)) = (std::env::var_os(URL), std::env::var_os(ROUND)) else {
        return;
    };
    let store = Store::open(&url.into_string().unwrap().into()).await.unwrap();
    let round = round.into_string().unwrap().parse().unwrap();
    join_all((0..TASKS).map(|_| work(&store, round))).await;
    std::future::pending::<()>().await;
}

/// The work of one task. It does not report changes that fail.
async fn work(store: &Store, round: i64) {
    let about = SessionOwner {
        user: user(round),
        agent_id: Some(agent(1)),
    };
    let by = actor(round);
    for number in 0..EACH / TASKS {
        let made = token(round, 1, 0);
        let mut pair = [event("access.denied", round, 0), event("access.denied", round, 1)];
        let id = Uuid::now_v7();
        for event in &mut pair {
            event.session = Some(format!("pat:{id}"));
        }
        let (created, recorded) = tokio::join!(
            store.create_token(&made, hash(made.id.to_string()), &by),
            store.record(&pair)
        );
        report("token", made.id, created.is_ok());
        report("pair", id, recorded.is_ok());
        if created.is_ok() && number % REVOKED == 0 {
            let session = session_of(&made);
            let revoked = store.revoke(&session, at(1_000), at(1), &by, &about).await;
            report("revoked", made.id, revoked.is_ok());
        }
    }
}

/// Prints an acknowledgment in one write, so that a killed process leaves no partial line.
fn report(word: &str, id: Uuid, is_done: bool) {
    if is_done {
        let line = format!("{word} {id}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
