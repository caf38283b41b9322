//! Logins at the gateway itself: made, found, listed and used, and the short tokens that they make.

use jiff::Timestamp;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::audit_row::{login_created, login_token_created};
use crate::change::{Change, Limit};
use crate::database::Purpose;
use crate::query::{
    ROWS, SelectQuery, Statement, agent_id, invalid_column, page_limit, read, time, time_opt, user, uuid,
};
use crate::{CreationCursor, CredentialFilter, Error, Page, SecretHash, Store, bounds};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{Identity, User};

const SELECT: &str = "SELECT id, kind, issuer, subject, sid, username, user_id, claims, client, address, created_at, \
                      used_at, expires_at, revoked_at FROM logins";

/// What a login was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum LoginKind {
    /// A browser, at the console.
    Browser,
    /// `tollgate login`.
    CommandLine,
}

/// A person's login at the gateway itself, without its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Login {
    /// Its id, which is also the id of its session.
    pub id: Uuid,
    /// What it was made by.
    pub kind: LoginKind,
    /// Who vouched for the person: `iss`, or `argocd`.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// `sid`, the session at the issuer, if the issuer names it.
    pub sid: Option<String>,
    /// Name, and number in the directory; 0 for somebody who is not in it.
    pub user: User,
    /// The claims that the issuer vouched for.
    pub claims: serde_json::Map<String, serde_json::Value>,
    /// The name that the client gives itself.
    pub client: String,
    /// The address that it came from.
    pub address: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to about a minute.
    pub used_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A token that a login made for kubectl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginToken {
    /// The login, with which it ends.
    pub login: Uuid,
    /// The agent that it is for, and the agent's identity as
    /// [`tollgate_core::agent::Agent::identity`]; `None` for clusters that are entered by name or for an
    /// Application.
    pub agent: Option<(AgentId, String)>,
    /// Whom the issuer vouched for when it was made.
    pub identity: Identity,
    /// Whether that is by the issuer's `claimMappings`.
    pub is_mapped: bool,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Login {
    /// The session that everything done by it belongs to.
    pub fn session(&self) -> SessionId {
        SessionId::new(AccessType::Login, self.id.to_string())
    }
}

impl Store {
    /// Adds a login together with the audit event `login.created`.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the person has [`bounds::LOGINS`] unexpired ones, [`Error::Exists`],
    /// [`Error::TooLong`], [`Error::Character`].
    pub async fn create_login(&self, login: &Login, hash: SecretHash) -> Result<(), Error> {
        let claims = serde_json::to_string(&login.claims)
            .map_err(|_| Error::Failed("claims of a login cannot be written as JSON".to_owned()))?;
        bounds::check("issuer", &login.issuer, bounds::ISSUER)?;
        bounds::check("subject", &login.subject, bounds::ISSUER)?;
        bounds::check("sid", login.sid.as_deref().unwrap_or_default(), bounds::ISSUER)?;
        bounds::check("username", &login.user.username, bounds::USERNAME)?;
        bounds::check("claims", &claims, bounds::CLAIMS)?;
        bounds::check("client", &login.client, bounds::CLIENT_NAME)?;
        let insert = Statement::new(
            "INSERT INTO logins (id, hash, kind, issuer, subject, sid, username, user_id, claims, client, address, \
             created_at, used_at, expires_at, revoked_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
            [
                login.id.into(),
                hash.into(),
                login.kind.as_ref().into(),
                login.issuer.as_str().into(),
                login.subject.as_str().into(),
                login.sid.clone().into(),
                login.user.username.as_str().into(),
                login.user.id.into(),
                claims.as_str().into(),
                login.client.as_str().into(),
                login.address.as_str().into(),
                login.created_at.into(),
                login.used_at.into(),
                login.expires_at.into(),
                login.revoked_at.into(),
            ],
        );
        let limit = Limit {
            count: Statement::new(
                "SELECT COUNT(*) FROM logins \
                 WHERE issuer = $1 AND subject = $2 AND revoked_at IS NULL AND expires_at > $3",
                [
                    login.issuer.as_str().into(),
                    login.subject.as_str().into(),
                    login.created_at.into(),
                ],
            ),
            owner: format!("login {} {}", login.issuer, login.subject),
            allowed: bounds::LOGINS,
        };
        let creation = Change::Creation {
            what: "login",
            expired: None,
            insert,
            limits: vec![limit],
            event: Some(login_created(login)?),
        };
        self.writer.change(creation).await.map(drop)
    }

    /// Returns the login with this secret, even if it has ended.
    pub async fn find_login(&self, hash: SecretHash) -> Result<Option<Login>, Error> {
        self.one_login(SelectQuery::new(SELECT).and("hash =", Some(hash))).await
    }

    /// Returns the login with this id, even if it has ended.
    pub async fn login(&self, id: Uuid) -> Result<Option<Login>, Error> {
        self.one_login(SelectQuery::new(SELECT).and("id =", Some(id))).await
    }

    /// Returns the logins of a person that are in force at a time, at most 1,000.
    pub async fn open_logins(&self, issuer: &str, subject: &str, now: Timestamp) -> Result<Vec<Login>, Error> {
        let query = SelectQuery::new(SELECT).and("issuer =", Some(issuer));
        self.in_force(query.and("subject =", Some(subject)), now).await
    }

    /// Returns the logins that began with a session at the issuer and are in force at a time, at most
    /// 1,000.
    pub async fn logins_of_sid(&self, issuer: &str, sid: &str, now: Timestamp) -> Result<Vec<Login>, Error> {
        let query = SelectQuery::new(SELECT).and("issuer =", Some(issuer));
        self.in_force(query.and("sid =", Some(sid)), now).await
    }

    /// Returns a page of the logins that are in force at a time, newest first. They are for all agents, so
    /// `filter` applies by person only.
    pub async fn logins(
        &self,
        filter: &CredentialFilter,
        now: Timestamp,
        page: &Page<CreationCursor>,
    ) -> Result<Vec<Login>, Error> {
        let query = SelectQuery::new(SELECT)
            .and("user_id =", filter.user_id)
            .and("username =", filter.username.as_deref())
            .and_after("(created_at, id) <", page.after)
            .and("revoked_at IS NULL AND expires_at >", Some(now));
        let order = "created_at DESC, id DESC";
        let rows = query.fetch(&self.database, Purpose::List, order, page_limit(page));
        rows.await?.iter().map(login).collect()
    }

    /// Records when a login was used. A time older than the recorded one is ignored.
    pub async fn record_login_use(&self, id: Uuid, at: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE logins SET used_at = $2 WHERE id = $1 AND used_at < $2";
        self.execute(sql, [id.into(), at.into()]).await.map(drop)
    }

    /// Adds a token of a login together with the audit event `token.created`.
    ///
    /// - `login`: the login that `token` names. `at`: now.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the login has [`bounds::LOGIN_TOKENS`] unexpired ones, [`Error::Exists`],
    /// [`Error::TooLong`].
    pub async fn create_login_token(
        &self,
        token: &LoginToken,
        hash: SecretHash,
        login: &Login,
        at: Timestamp,
    ) -> Result<(), Error> {
        let (id, agent) = token.agent.clone().unzip();
        let identity = serde_json::to_string(&token.identity)
            .map_err(|_| Error::Failed("an identity cannot be written as JSON".to_owned()))?;
        bounds::check("agent", agent.as_deref().unwrap_or_default(), bounds::AGENT)?;
        bounds::check("identity", &identity, bounds::CLAIMS)?;
        let insert = Statement::new(
            "INSERT INTO login_tokens (hash, login, agent_id, agent, identity, is_mapped, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            [
                hash.into(),
                token.login.into(),
                id.map(AgentId::get).into(),
                agent.into(),
                identity.as_str().into(),
                i64::from(token.is_mapped).into(),
                token.expires_at.into(),
            ],
        );
        let limit = Limit {
            count: Statement::new(
                "SELECT COUNT(*) FROM login_tokens WHERE login = $1 AND expires_at > $2",
                [token.login.into(), at.into()],
            ),
            owner: format!("login tokens {}", token.login),
            allowed: bounds::LOGIN_TOKENS,
        };
        let creation = Change::Creation {
            what: "token",
            expired: None,
            insert,
            limits: vec![limit],
            event: Some(login_token_created(token, login, at)?),
        };
        self.writer.change(creation).await.map(drop)
    }

    /// Returns the token of a login with this secret, even if it has ended.
    pub async fn find_login_token(&self, hash: SecretHash) -> Result<Option<LoginToken>, Error> {
        let query =
            SelectQuery::new("SELECT login, agent_id, agent, identity, is_mapped, expires_at FROM login_tokens")
                .and("hash =", Some(hash));
        let rows = query.fetch(&self.database, Purpose::Lookup, "expires_at", 1).await?;
        let token = |row: &AnyRow| {
            let id = read::<Option<i64>>(row, "agent_id")?.map(agent_id).transpose()?;
            let agent: Option<String> = read(row, "agent")?;
            let identity: String = read(row, "identity")?;
            Ok(LoginToken {
                login: uuid(row, "login")?,
                agent: id.zip(agent),
                identity: serde_json::from_str(&identity).map_err(|_| invalid_column("identity"))?,
                is_mapped: read::<i64>(row, "is_mapped")? != 0,
                expires_at: time(row, "expires_at")?,
            })
        };
        rows.first().map(token).transpose()
    }

    /// Whether a logout token of an issuer was used.
    ///
    /// - `id`: hash of the issuer and `jti`.
    pub async fn is_logout_token_used(&self, id: SecretHash) -> Result<bool, Error> {
        let query = SelectQuery::new("SELECT until FROM logout_tokens").and("id =", Some(id));
        let rows = query.fetch(&self.database, Purpose::Lookup, "until", 1).await?;
        Ok(!rows.is_empty())
    }

    /// Notes a logout token of an issuer. Returns whether it is new.
    ///
    /// - `id`: hash of the issuer and `jti`. `until`: when such a token would be refused by itself.
    pub async fn use_logout_token(&self, id: SecretHash, until: Timestamp) -> Result<bool, Error> {
        let sql = "INSERT INTO logout_tokens (id, until) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        Ok(self.execute(sql, [id.into(), until.into()]).await? > 0)
    }

    async fn one_login(&self, query: SelectQuery) -> Result<Option<Login>, Error> {
        let rows = query.fetch(&self.database, Purpose::Lookup, "id", 1).await?;
        rows.first().map(login).transpose()
    }

    async fn in_force(&self, query: SelectQuery, now: Timestamp) -> Result<Vec<Login>, Error> {
        let query = query.and("revoked_at IS NULL AND expires_at >", Some(now));
        let rows = query.fetch(&self.database, Purpose::Lookup, "created_at", ROWS);
        rows.await?.iter().map(login).collect()
    }
}

fn login(row: &AnyRow) -> Result<Login, Error> {
    let kind: String = read(row, "kind")?;
    let claims: String = read(row, "claims")?;
    Ok(Login {
        id: uuid(row, "id")?,
        kind: kind.parse().map_err(|_| invalid_column("kind"))?,
        issuer: read(row, "issuer")?,
        subject: read(row, "subject")?,
        sid: read(row, "sid")?,
        user: user(row)?,
        claims: serde_json::from_str(&claims).map_err(|_| invalid_column("claims"))?,
        client: read(row, "client")?,
        address: read(row, "address")?,
        created_at: time(row, "created_at")?,
        used_at: time(row, "used_at")?,
        expires_at: time(row, "expires_at")?,
        revoked_at: time_opt(row, "revoked_at")?,
    })
}
