//! People's logins at the gateway itself: made, recognized by their secret, and ended.
//!
//! A login says who its issuer vouched for. What that person may do is computed anew from each
//! snapshot, by [`crate::authenticate`].
//!
//! Security: a login that was revoked here or in another replica lets nobody in a second later. While
//! the store has been silent for too long to tell, none does.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use moka::future::Cache;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::access::secret::{self, KUBECTL_TOKEN_PREFIX, LOGIN_PREFIX, RandomError};
use crate::clock::Clock;
use crate::sessions::SessionRegistry;
use tollgate_config::Console;
use tollgate_core::agent::AgentId;
use tollgate_core::user::{Identity, User};
use tollgate_store::{
    self as store, Actor, CredentialFilter, Login, LoginKind, LoginToken, Page, SecretHash, SessionOwner, Store,
};

/// How long a login that was found is remembered.
const CACHE_TTL: Duration = Duration::from_mins(1);
const MAX_CACHED: u64 = 20_000;
/// How exactly it is known when a login was last used.
const USE_PRECISION: Duration = Duration::from_mins(1);
/// Logins that are read at a time, to find those of a person.
const LOGIN_PAGE: u32 = 500;
/// How long a token for kubectl lasts.
pub const KUBECTL_TOKEN_LIFETIME: Duration = Duration::from_mins(15);

/// What a secret of a login is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginScope {
    /// Everything that the person may do by the API.
    Everything,
    /// Requests into clusters by name, and for Applications.
    Clusters,
}

/// Why a secret is not that of a login in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such login, or its token is for an agent.
    #[error("no login has this secret")]
    Unknown,
    /// Its time is over, or it was not used for too long.
    #[error("the login has expired")]
    Expired,
    /// Somebody ended it.
    #[error("the login was ended")]
    Revoked,
    /// The store cannot tell.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Why a login cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// A login in force.
#[derive(Clone, Debug)]
pub struct ActiveLogin {
    /// The login.
    pub login: Arc<Login>,
    /// What its secret is good for.
    pub scope: LoginScope,
    /// When its secret expires.
    pub expires_at: Timestamp,
    used_at: Arc<AtomicI64>,
}

/// A login that is about to be made.
#[derive(Debug)]
pub struct NewLogin {
    /// What it is made by.
    pub kind: LoginKind,
    /// Who vouches for the person: `iss`, or `argocd`.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// `sid`, if the issuer names it.
    pub sid: Option<String>,
    /// The person.
    pub user: User,
    /// The claims that the issuer vouches for.
    pub claims: Map<String, Value>,
    /// When what vouches for the person ends, if that is before the login would.
    pub latest_end: Option<Timestamp>,
    /// The name that the client gives itself.
    pub client: String,
    /// The address that it comes from.
    pub address: String,
}

/// All logins. There is one for each process; it outlives reloads.
#[derive(derive_more::Debug)]
#[debug("Logins {{ console: {console:?}, .. }}")]
pub struct Logins {
    /// The store that they are in.
    pub store: Arc<Store>,
    /// The sessions that they are among.
    pub sessions: Arc<SessionRegistry>,
    /// The clock by which they end.
    pub clock: Clock,
    /// Where people sign in.
    pub console: Console,
    /// By hash of the secret.
    found: Cache<[u8; 32], ActiveLogin>,
}

impl Logins {
    /// Logins in a store, as long as the settings say.
    pub fn new(store: Arc<Store>, sessions: Arc<SessionRegistry>, clock: Clock, console: Console) -> Self {
        Self {
            store,
            sessions,
            clock,
            console,
            found: Cache::builder()
                .max_capacity(MAX_CACHED)
                .time_to_live(CACHE_TTL)
                .build(),
        }
    }

    /// Whether a text has the form of a secret that [`Logins::find`] knows.
    pub fn is_secret(text: &str) -> bool {
        text.starts_with(LOGIN_PREFIX) || text.starts_with(KUBECTL_TOKEN_PREFIX)
    }

    /// Makes a login. Its secret is returned only here.
    ///
    /// # Errors
    /// [`CreateError`]: the person has too many logins, among others.
    pub async fn create(&self, new: NewLogin) -> Result<(SecretString, Arc<Login>), CreateError> {
        let now = self.clock.now();
        let (lifetime, secret) = match new.kind {
            LoginKind::Browser => (self.console.lifetime, secret::generate_session_secret()?),
            LoginKind::CommandLine => (self.console.login_lifetime, secret::generate(LOGIN_PREFIX)?),
        };
        let end = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let login = Login {
            id: Uuid::now_v7(),
            kind: new.kind,
            issuer: new.issuer,
            subject: new.subject,
            sid: new.sid,
            user: new.user,
            claims: new.claims,
            client: new.client,
            address: new.address,
            created_at: now,
            used_at: now,
            expires_at: new.latest_end.map_or(end, |latest| latest.min(end)),
            revoked_at: None,
        };
        self.store.create_login(&login, SecretHash::of(&secret)).await?;
        Ok((secret, Arc::new(login)))
    }

    /// Makes a token for kubectl that ends with its login.
    ///
    /// - `agent`: the only agent that it is for; `None` for clusters by name and of Applications.
    /// - `identity`: whom the issuer vouches for, and whether by its `claimMappings`.
    ///
    /// # Errors
    /// [`CreateError`].
    pub async fn create_kubectl_token(
        &self,
        login: &Login,
        agent: Option<(AgentId, String)>,
        identity: Identity,
        is_mapped: bool,
    ) -> Result<(SecretString, Timestamp), CreateError> {
        let secret = secret::generate(KUBECTL_TOKEN_PREFIX)?;
        let now = self.clock.now();
        let end = now.checked_add(KUBECTL_TOKEN_LIFETIME).unwrap_or(Timestamp::MAX);
        let token = LoginToken {
            login: login.id,
            agent,
            identity,
            is_mapped,
            expires_at: end.min(login.expires_at),
        };
        let hash = SecretHash::of(&secret);
        self.store.create_login_token(&token, hash, login, now).await?;
        Ok((secret, token.expires_at))
    }

    /// Finds the login that a secret is of: of a browser's cookie, of the command line, or of a token
    /// for clusters that one of them made.
    ///
    /// # Errors
    /// [`Error`]: no such login is in force, or the store cannot tell.
    pub async fn find(&self, text: &SecretString) -> Result<ActiveLogin, Error> {
        if self.sessions.is_store_unavailable() {
            return Err(store::Error::Failed("it has been silent for too long".to_owned()).into());
        }
        // The secret of a cookie has no prefix.
        let prefixes = [LOGIN_PREFIX, KUBECTL_TOKEN_PREFIX];
        let prefix = prefixes
            .into_iter()
            .find(|prefix| text.expose_secret().starts_with(prefix));
        // What cannot be a secret costs no query.
        if prefix.is_some_and(|prefix| !secret::is_secret(text.expose_secret(), prefix)) {
            return Err(Error::Unknown);
        }
        let hash = SecretHash::of(text);
        let found = match self.found.get(hash.as_bytes()).await {
            Some(found) => found,
            None => {
                let found = self.read(hash, prefix).await?;
                self.found.insert(*hash.as_bytes(), found.clone()).await;
                found
            }
        };
        // INVARIANT: these are checked on every request, so that what is remembered outlives nothing.
        let now = self.clock.now();
        if found.login.revoked_at.is_some() || self.sessions.is_revoked(&found.login.session()) {
            return Err(Error::Revoked);
        }
        let used_at = Timestamp::from_microsecond(found.used_at.load(Ordering::Relaxed)).unwrap_or(Timestamp::MIN);
        let idle = Duration::try_from(now.duration_since(used_at)).unwrap_or_default();
        let is_idle = found.login.kind == LoginKind::Browser && idle > self.console.idle;
        if found.expires_at <= now || is_idle {
            return Err(Error::Expired);
        }
        if idle >= USE_PRECISION {
            self.record_use(&found, now);
        }
        Ok(found)
    }

    async fn read(&self, hash: SecretHash, prefix: Option<&str>) -> Result<ActiveLogin, Error> {
        let (login, token) = match prefix {
            Some(KUBECTL_TOKEN_PREFIX) => {
                let token = self.store.find_login_token(hash).await?.ok_or(Error::Unknown)?;
                (self.store.login(token.login).await?, Some(token))
            }
            Some(_) | None => (self.store.find_login(hash).await?, None),
        };
        let login = login.ok_or(Error::Unknown)?;
        // SECURITY: a cookie is no bearer token, and the other way round.
        let fits = match login.kind {
            LoginKind::Browser => prefix.is_none(),
            LoginKind::CommandLine => prefix.is_some(),
        };
        // A token for an agent is for `/k8s-proxy/` alone.
        if !fits || token.as_ref().is_some_and(|token| token.agent.is_some()) {
            return Err(Error::Unknown);
        }
        Ok(ActiveLogin {
            scope: match token {
                Some(_) => LoginScope::Clusters,
                None => LoginScope::Everything,
            },
            expires_at: token.map_or(login.expires_at, |token| token.expires_at.min(login.expires_at)),
            used_at: Arc::new(AtomicI64::new(login.used_at.as_microsecond())),
            login: Arc::new(login),
        })
    }

    fn record_use(&self, found: &ActiveLogin, now: Timestamp) {
        // Before the write, so that requests meanwhile do not write as well.
        found.used_at.store(now.as_microsecond(), Ordering::Relaxed);
        let (store, id) = (Arc::clone(&self.store), found.login.id);
        tokio::spawn(async move {
            if let Err(error) = store.record_login_use(id, now).await {
                tracing::warn!(%error, login = %id, "the last use of a login could not be written");
            }
        });
    }

    /// Ends a login, with everything that it has open, in every replica.
    ///
    /// # Errors
    /// The store does not answer; nothing ended then.
    pub async fn end(&self, login: &Login, by: &Actor) -> Result<(), store::Error> {
        let owner = SessionOwner {
            user: login.user.clone(),
            agent_id: None,
        };
        self.sessions.revoke(&login.session(), &owner, by).await.map(drop)
    }

    /// Ends the logins in force that are of a person. Returns how many.
    ///
    /// # Errors
    /// The store does not answer; some may have ended then.
    pub async fn end_of(
        &self,
        is_theirs: impl Fn(&Login) -> bool + Send + Sync,
        by: &Actor,
    ) -> Result<usize, store::Error> {
        let (filter, now) = (CredentialFilter::default(), self.clock.now());
        let mut page = Page {
            after: None,
            limit: LOGIN_PAGE,
        };
        let mut ended = 0_usize;
        loop {
            let logins = self.store.logins(&filter, now, &page).await?;
            for login in logins.iter().filter(|login| is_theirs(login)) {
                self.end(login, by).await?;
                ended = ended.saturating_add(1);
            }
            let is_full = u32::try_from(logins.len()).is_ok_and(|rows| rows >= page.limit);
            page.after = logins.last().map(|login| (login.created_at, login.id));
            if !is_full {
                return Ok(ended);
            }
        }
    }

    /// Whether a login was ended, or cannot be told to be in force.
    pub fn is_ended(&self, login: &Login) -> bool {
        self.sessions.is_store_unavailable() || self.sessions.is_revoked(&login.session())
    }
}
