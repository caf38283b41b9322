//! Fixtures for tests: people, agents, a store and a clock.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::access::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Agents, Authorizer, Error, IdToken};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::sessions::SessionRegistry;
use tollgate_config::{SameSite, UserClaimMapping, UserLookupKey};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Identity, Membership, Role, User};
use tollgate_objects::Resources;
use tollgate_objects::decode::load_text;
use tollgate_store::{Actor, BrowserSession, SecretHash, Store, Token};

pub(crate) const ISSUER: &str = "https://gitlab.example.com";

pub(crate) const PEOPLE: &str = "
apiVersion: tollgate.dev/v1alpha1
kind: UserDirectory
metadata: {name: people}
spec:
  users:
    - {id: 101, username: alice}
    - {id: 102, username: bob}
    - {id: 103, username: carol}
    - {id: 104, username: dave}
    - {id: 105, username: erin}
    - {id: 107, username: grace}
    - {id: 108, username: heidi, state: blocked}
    - {id: 109, username: ivan}
  groups:
    - {id: 1, path: group-1, members: [{username: alice, role: maintainer}]}
    - {id: 2, path: Group-2, members: [{username: bob, role: developer}, {username: ivan, role: developer}]}
    - {id: 3, path: group-3, members: [{username: dave, role: owner}]}
    - {id: 4, path: group-3/subgroup, members: [{username: dave, role: guest}]}
    - {id: 5, path: group-3/subgroup/deep, members: [{username: grace, role: maintainer}]}
    - {id: 9, path: group-9}
  projects:
    - id: 1
      path: group-1/project-1
      members:
        - {username: carol, role: reporter}
        - {username: ivan, role: reporter}
        - {username: heidi, role: developer}
    - {id: 2, path: group-2/project-2}
";

/// Lists of the design's example.
pub(crate) const LISTS: &str =
    "projects: [{id: group-1/project-1}, {id: group-2/project-2}], groups: [{id: group-2}, {id: group-3/subgroup}]";

/// An `Agent` object.
pub(crate) fn agent(id: i64, name: &str, user_access: &str) -> String {
    format!(
        "---\napiVersion: tollgate.dev/v1alpha1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  id: {id}\n  \
         configProject: {{id: 1234}}\n  cluster: in-cluster\n  config: {{{user_access}}}\n"
    )
}

/// `user_access` with the example's lists.
pub(crate) fn shared_as(kind: &str) -> String {
    format!("user_access: {{access_as: {{{kind}: {{}}}}, {LISTS}}}")
}

/// The people and agents 9999 (`user`), 8 (group-9), 7 (`agent`), 6 (`mapped`)
/// and 5 (`mapped` for members).
pub(crate) fn resources() -> Resources {
    let mut text = PEOPLE.to_owned();
    text.push_str(&agent(9999, "my-agent", &shared_as("user")));
    let other = "user_access: {access_as: {user: {}}, groups: [{id: group-9}]}";
    text.push_str(&agent(8, "other-agent", other));
    text.push_str(&agent(7, "plain-agent", &shared_as("agent")));
    text.push_str(&agent(6, "mapped-agent", "user_access: {access_as: {mapped: {}}}"));
    text.push_str(&agent(5, "mapped-members", &shared_as("mapped")));
    text.push_str(&agent(4, "closed-agent", ""));
    with(&text)
}

/// Parses resources, which must be valid.
pub(crate) fn with(text: &str) -> Resources {
    let loaded = load_text(text, "state.yaml", "argocd");
    loaded.value.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

/// The people, with these agents.
pub(crate) fn people_and(agents: &[String]) -> Resources {
    with(&format!("{PEOPLE}{}", agents.concat()))
}

pub(crate) fn id(number: i64) -> AgentId {
    AgentId::new(number).unwrap()
}

pub(crate) fn settings() -> tollgate_config::Kubernetes {
    tollgate_config::Kubernetes {
        authorizer: tollgate_config::Authorizer::Embedded,
        platform_secret: None,
        allowed_origins: Vec::new(),
        agent_claim: "agent".to_owned(),
        issuers: Vec::new(),
        users: vec![UserClaimMapping {
            issuer: ISSUER.to_owned(),
            claim: "sub".to_owned(),
            key: UserLookupKey::Id,
        }],
        memberships: Vec::new(),
        public_url: None,
        cookie_lifetime: Duration::from_secs(86_400),
        same_site: SameSite::Strict,
        success_ttl: Duration::from_secs(60),
        refusal_ttl: Duration::from_secs(10),
        longest_token: Duration::from_secs(86_400),
        max_groups: 200,
        audit_bucket: Duration::from_secs(60),
        audit_keep: Duration::from_secs(86_400),
        audit_export: None,
    }
}

/// An authorizer with agents, a store on disk and a clock.
pub(crate) struct Fixture {
    pub(crate) clock: Clock,
    pub(crate) store: Arc<Store>,
    pub(crate) sessions: Arc<SessionRegistry>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) authorizer: Authorizer,
    pub(crate) folder: TempDir,
}

/// A personal access token. The default one gives alice access.
pub(crate) struct Pat {
    pub(crate) secret: &'static str,
    pub(crate) user: (i64, &'static str),
    pub(crate) agent: i64,
    pub(crate) scopes: &'static [&'static str],
    pub(crate) lifetime_seconds: i64,
    pub(crate) revoked: bool,
}

impl Default for Pat {
    fn default() -> Self {
        Self {
            secret: "glpat-alice",
            user: (101, "alice"),
            agent: 9999,
            scopes: &["k8s_proxy"],
            lifetime_seconds: 3600,
            revoked: false,
        }
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(&settings()).await
    }

    pub(crate) async fn with(settings: &tollgate_config::Kubernetes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::default();
        let url = format!("sqlite:{}", folder.path().join("tollgate.db").display());
        let store = Arc::new(Store::open(&SecretString::from(url)).await.unwrap());
        let metrics = Arc::new(Metrics::default());
        let sessions = SessionRegistry::start(Arc::clone(&store), clock.clone(), Duration::from_secs(10), metrics)
            .await
            .unwrap();
        let authorizer = Authorizer::new(settings, Arc::clone(&store), Arc::clone(&sessions), clock.clone());
        Self {
            authorizer: authorizer.unwrap(),
            agents: Agents::build(&resources(), None),
            clock,
            store,
            sessions,
            folder,
        }
    }

    /// A time this many seconds from now.
    pub(crate) fn at(&self, seconds: i64) -> Timestamp {
        let now = self.clock.now().as_second();
        Timestamp::from_second(now + seconds).unwrap()
    }

    pub(crate) async fn add(&self, pat: &Pat) -> Uuid {
        let id = Uuid::now_v7();
        let token = Token {
            id,
            name: pat.secret.to_owned(),
            user: User {
                id: pat.user.0,
                username: pat.user.1.to_owned(),
            },
            agent_id: self::id(pat.agent),
            agent: self.agents.agent(self::id(pat.agent)).map(|agent| agent.identity()),
            scopes: pat.scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            created_at: self.at(-60),
            expires_at: self.at(pat.lifetime_seconds),
            revoked_at: pat.revoked.then(|| self.at(-30)),
            last_used_at: None,
        };
        let hash = SecretHash::of(&SecretString::from(pat.secret));
        self.store.import_token(&token, hash).await.unwrap();
        id
    }

    /// A browser session with cookie `sess-NAME` and CSRF token `csrf-NAME`.
    pub(crate) async fn add_cookie(&self, user_id: i64, name: &str, lifetime_seconds: i64) -> Uuid {
        let id = Uuid::now_v7();
        let hash = |text: String| SecretHash::of(&SecretString::from(text));
        let session = BrowserSession {
            id,
            user: User {
                id: user_id,
                username: name.to_owned(),
            },
            csrf: hash(format!("csrf-{name}")),
            created_at: self.at(-60),
            expires_at: self.at(lifetime_seconds),
            revoked_at: None,
        };
        let by = Actor {
            user_id: Some(user_id),
            name: name.to_owned(),
        };
        let cookie = hash(format!("sess-{name}"));
        self.store.create_session(&session, cookie, &by).await.unwrap();
        id
    }

    pub(crate) async fn pat(&self, agent: i64, secret: &str) -> Result<Arc<AccessGrant>, Error> {
        let query = AccessQuery {
            agent: id(agent),
            key: AccessKey::PersonalAccessToken(SecretString::from(secret)),
        };
        self.authorizer.authorize(&self.agents, &query).await
    }

    pub(crate) async fn cookie(&self, agent: i64, cookie: &str, csrf_token: &str) -> Result<Arc<AccessGrant>, Error> {
        let query = AccessQuery {
            agent: id(agent),
            key: AccessKey::SessionCookie {
                cookie: SecretString::from(cookie),
                csrf_token: SecretString::from(csrf_token),
            },
        };
        self.authorizer.authorize(&self.agents, &query).await
    }

    pub(crate) async fn id_token(&self, token: &IdToken) -> Result<Arc<AccessGrant>, Error> {
        let query = AccessQuery {
            agent: token.agent,
            key: AccessKey::OidcIdToken(Arc::new(token.clone())),
        };
        self.authorizer.authorize(&self.agents, &query).await
    }

    /// A verified ID token of a person by `sub`.
    pub(crate) fn token_of(&self, sub: &Value, agent: i64) -> IdToken {
        let claims: Map<String, Value> = [("sub".to_owned(), sub.clone()), ("agent".to_owned(), json!(agent))]
            .into_iter()
            .collect();
        IdToken {
            token: SecretString::from(format!("header.{sub}-{agent}.signature")),
            issuer: ISSUER.to_owned(),
            agent: id(agent),
            session: SessionId::new(AccessType::OidcIdToken, format!("sid{agent}")),
            expires_at: self.at(600),
            claims,
            mapped: None,
        }
    }

    /// Changes the database without the store.
    pub(crate) async fn sql(&self, text: &'static str) {
        use sqlx::ConnectOptions as _;

        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.folder.path().join("tollgate.db"));
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
    }

    /// A file with a secret that two gateways share.
    pub(crate) fn secret_file(&self) -> std::path::PathBuf {
        let path = self.folder.path().join("secret");
        std::fs::write(&path, SECRET).unwrap();
        path
    }
}

/// 32 bytes, as GitLab writes them.
pub(crate) const SECRET: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n";

pub(crate) fn mapped(username: &str) -> Identity {
    Identity {
        username: username.to_owned(),
        ..Identity::default()
    }
}

pub(crate) fn member(id: i64, path: &str, highest: Role) -> Membership {
    let roles = [Role::Reporter, Role::Developer, Role::Maintainer, Role::Owner];
    Membership {
        id,
        path: path.to_owned(),
        roles: roles.into_iter().filter(|role| *role <= highest).collect(),
    }
}

/// The reason of a refusal. Any other outcome panics.
#[track_caller]
pub(crate) fn refusal(answer: Result<Arc<AccessGrant>, Error>) -> AccessDenyReason {
    match answer {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// Projects and groups of an access as `user`.
#[track_caller]
pub(crate) fn memberships(access: &AccessGrant) -> (Vec<Membership>, Vec<Membership>) {
    match &access.facts().access_as {
        AccessAs::User { projects, groups } => (projects.clone(), groups.clone()),
        other => panic!("not as user: {other:?}"),
    }
}
