//! Databases for the tests, and values to store in them.

use jiff::Timestamp;
use secrecy::SecretString;
use tempfile::TempDir;
use test_support::postgres;
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::User;
use tollgate_store::{Actor, AuditEvent, AuditFilter, BrowserSession, SecretHash, Store, Token};
use uuid::Uuid;

/// Defines a test for each function and database.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::store::support::Backend::sqlite()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::store::support::Backend::postgres().await).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// A separate, empty database.
pub(crate) struct Backend {
    pub(crate) url: SecretString,
    /// The folder of a SQLite file, which is removed when the test ends.
    _folder: Option<TempDir>,
}

impl Backend {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        Self {
            url: url.into(),
            _folder: Some(folder),
        }
    }

    pub(crate) async fn postgres() -> Self {
        Self {
            url: postgres::shared().database().await.into(),
            _folder: None,
        }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url).await.unwrap()
    }
}

/// The time so many seconds after a fixed one.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(crate) fn hash(secret: impl Into<String>) -> SecretHash {
    SecretHash::of(&secret.into().into())
}

pub(crate) fn user(id: i64) -> User {
    User {
        id,
        username: format!("user-{id}"),
    }
}

pub(crate) fn actor(id: i64) -> Actor {
    Actor {
        user_id: Some(id),
        name: format!("user-{id}"),
    }
}

pub(crate) fn agent(id: i64) -> AgentId {
    AgentId::new(id).unwrap()
}

/// A token of a person for an agent, with its time of creation.
pub(crate) fn token(user_id: i64, agent_id: i64, created: i64) -> Token {
    Token {
        id: Uuid::now_v7(),
        name: format!("made at {created}"),
        user: user(user_id),
        agent_id: agent(agent_id),
        agent: Some(format!("agent-{agent_id}/in-cluster")),
        scopes: vec!["k8s_proxy".to_owned()],
        created_at: at(created),
        expires_at: at(created + 1_000),
        revoked_at: None,
        last_used_at: None,
    }
}

pub(crate) fn browser_session(user_id: i64, created: i64) -> BrowserSession {
    let id = Uuid::now_v7();
    BrowserSession {
        id,
        user: user(user_id),
        csrf: hash(format!("csrf of {id}")),
        created_at: at(created),
        expires_at: at(created + 1_000),
        revoked_at: None,
    }
}

/// The session of a token.
pub(crate) fn session_of(token: &Token) -> SessionId {
    SessionId::new(AccessType::PersonalAccessToken, token.id.to_string())
}

/// Creates a token whose secret is its id.
pub(crate) async fn create(store: &Store, token: &Token) {
    let by = Actor {
        user_id: Some(token.user.id),
        name: token.user.username.clone(),
    };
    store
        .create_token(token, hash(token.id.to_string()), &by)
        .await
        .unwrap();
}

/// An event of a person, at a time.
pub(crate) fn event(action: &str, user_id: i64, seconds: i64) -> AuditEvent {
    AuditEvent {
        id: Uuid::now_v7(),
        first_at: at(seconds),
        last_at: at(seconds),
        count: 1,
        action: action.to_owned(),
        user: format!("user-{user_id}"),
        user_id: Some(user_id),
        agent_id: Some(agent(1)),
        session: Some("pat:x".to_owned()),
        details: serde_json::Map::new(),
    }
}

/// Every event, newest first.
pub(crate) async fn all_events(store: &Store, mut filter: AuditFilter) -> Vec<AuditEvent> {
    filter.limit = 1_000;
    let mut all = Vec::new();
    loop {
        let page = store.audit(&filter).await.unwrap();
        let Some(last) = page.last() else { return all };
        filter.before = Some(last.id);
        all.extend(page);
    }
}
