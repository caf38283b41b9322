//! Tokens and browser sessions: made, found, listed and used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::audit_row::{session_created, token_created};
use crate::change::{Change, Limit, ROWS_PER_TRANSACTION};
use crate::database::Purpose;
use crate::query::{
    SelectQuery, Statement, Value, agent, invalid_column, number, page_limit, read, time, time_opt, user, uuid,
};
use crate::{Actor, BrowserSession, CreationCursor, CredentialFilter, Error, Page, SecretHash, Store, Token, bounds};
use tollgate_core::agent::AgentId;

const NEWEST: &str = "created_at DESC, id DESC";

trait Credential: Sized {
    const SELECT: &'static str;

    fn read(row: &AnyRow) -> Result<Self, Error>;
}

impl Credential for Token {
    const SELECT: &'static str = "SELECT id, name, user_id, username, agent_id, scopes, created_at, expires_at, \
                                  revoked_at, last_used_at, agent FROM tokens";

    fn read(row: &AnyRow) -> Result<Self, Error> {
        let scopes: String = read(row, "scopes")?;
        Ok(Self {
            id: uuid(row, "id")?,
            name: read(row, "name")?,
            user: user(row)?,
            agent_id: agent(row)?,
            agent: read(row, "agent")?,
            scopes: scopes.split_whitespace().map(str::to_owned).collect(),
            created_at: time(row, "created_at")?,
            expires_at: time(row, "expires_at")?,
            revoked_at: time_opt(row, "revoked_at")?,
            last_used_at: time_opt(row, "last_used_at")?,
        })
    }
}

impl Credential for BrowserSession {
    const SELECT: &'static str =
        "SELECT id, csrf, user_id, username, created_at, expires_at, revoked_at FROM browser_sessions";

    fn read(row: &AnyRow) -> Result<Self, Error> {
        let csrf: Vec<u8> = read(row, "csrf")?;
        Ok(Self {
            id: uuid(row, "id")?,
            user: user(row)?,
            csrf: SecretHash(csrf.try_into().map_err(|_| invalid_column("csrf"))?),
            created_at: time(row, "created_at")?,
            expires_at: time(row, "expires_at")?,
            revoked_at: time_opt(row, "revoked_at")?,
        })
    }
}

impl Store {
    /// Adds a token together with the audit event `token.created`. Its owner may then have at
    /// most [`bounds::TOKENS`] tokens that expire after this one was made.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Exists`], [`Error::TooLong`], [`Error::Character`].
    pub async fn create_token(&self, token: &Token, hash: SecretHash, by: &Actor) -> Result<(), Error> {
        self.add_token(token, hash, Some(by)).await
    }

    /// Adds a token of another platform unchanged, without an audit event and without a limit on
    /// their number.
    ///
    /// # Errors
    /// As [`Self::create_token`], except for [`Error::LimitReached`].
    pub async fn import_token(&self, token: &Token, hash: SecretHash) -> Result<(), Error> {
        self.add_token(token, hash, None).await
    }

    async fn add_token(&self, token: &Token, hash: SecretHash, by: Option<&Actor>) -> Result<(), Error> {
        let scopes = token.scopes.join(" ");
        bounds::check("token name", &token.name, bounds::TOKEN_NAME)?;
        bounds::check("username", &token.user.username, bounds::USERNAME)?;
        bounds::check("scopes", &scopes, bounds::SCOPES)?;
        bounds::check("agent", token.agent.as_deref().unwrap_or_default(), bounds::AGENT)?;
        let insert = Statement::new(
            "INSERT INTO tokens (id, hash, name, user_id, username, agent_id, scopes, created_at, expires_at, \
             revoked_at, last_used_at, agent) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            [
                token.id.into(),
                hash.into(),
                token.name.as_str().into(),
                token.user.id.into(),
                token.user.username.as_str().into(),
                token.agent_id.into(),
                scopes.as_str().into(),
                token.created_at.into(),
                token.expires_at.into(),
                token.revoked_at.into(),
                token.last_used_at.into(),
                token.agent.clone().into(),
            ],
        );
        // Tokens of another platform were made under its own limits.
        let limit = by.map(|_| Limit {
            count: Statement::new(
                "SELECT COUNT(*) FROM tokens WHERE user_id = $1 AND expires_at > $2",
                [token.user.id.into(), token.created_at.into()],
            ),
            owner: format!("user {}", token.user.id),
            allowed: bounds::TOKENS,
        });
        let creation = Change::Creation {
            what: "token",
            expired: None,
            insert,
            limits: limit.into_iter().collect(),
            event: by.map(|by| token_created(token, by)).transpose()?,
        };
        self.writer.change(creation).await.map(drop)
    }

    /// Returns the token with this secret, even if it has ended.
    pub async fn find_token(&self, hash: SecretHash) -> Result<Option<Token>, Error> {
        self.find("hash =", hash).await
    }

    /// Returns the token with this id, even if it has ended.
    pub async fn token(&self, id: Uuid) -> Result<Option<Token>, Error> {
        self.find("id =", id).await
    }

    /// Returns a page of tokens, newest first, including those that have ended.
    pub async fn tokens(&self, filter: &CredentialFilter, page: &Page<CreationCursor>) -> Result<Vec<Token>, Error> {
        let query = page_query::<Token>(filter, page).and_one_of("agent_id", filter.agents.as_deref());
        self.list(query, page).await
    }

    /// Records when a token was used. A time older than the recorded one is ignored.
    pub async fn record_token_use(&self, id: Uuid, at: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";
        self.execute(sql, [id.into(), at.into()]).await.map(drop)
    }

    /// Adds a browser session together with the audit event `session.created`. Its owner may then
    /// have at most [`bounds::BROWSER_SESSIONS`] sessions that expire after this one was made.
    ///
    /// - `hash`: hash of the cookie.
    ///
    /// # Errors
    /// As [`Self::create_token`].
    pub async fn create_session(&self, session: &BrowserSession, hash: SecretHash, by: &Actor) -> Result<(), Error> {
        bounds::check("username", &session.user.username, bounds::USERNAME)?;
        let insert = Statement::new(
            "INSERT INTO browser_sessions (id, hash, csrf, user_id, username, created_at, expires_at, revoked_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            [
                session.id.into(),
                hash.into(),
                session.csrf.into(),
                session.user.id.into(),
                session.user.username.as_str().into(),
                session.created_at.into(),
                session.expires_at.into(),
                session.revoked_at.into(),
            ],
        );
        let limit = Limit {
            count: Statement::new(
                "SELECT COUNT(*) FROM browser_sessions WHERE user_id = $1 AND expires_at > $2",
                [session.user.id.into(), session.created_at.into()],
            ),
            owner: format!("user {}", session.user.id),
            allowed: bounds::BROWSER_SESSIONS,
        };
        let creation = Change::Creation {
            what: "session",
            expired: None,
            insert,
            limits: vec![limit],
            event: Some(session_created(session, by)?),
        };
        self.writer.change(creation).await.map(drop)
    }

    /// Returns the browser session with this cookie, even if it has ended.
    pub async fn find_session(&self, hash: SecretHash) -> Result<Option<BrowserSession>, Error> {
        self.find("hash =", hash).await
    }

    /// Returns the browser session with this id, even if it has ended.
    pub async fn browser_session(&self, id: Uuid) -> Result<Option<BrowserSession>, Error> {
        self.find("id =", id).await
    }

    /// Returns a page of browser sessions, newest first. They are for all agents, so `filter`
    /// applies by person only.
    ///
    /// - `open_at`: returns only sessions in force at this time; without it, all.
    pub async fn browser_sessions(
        &self,
        filter: &CredentialFilter,
        open_at: Option<Timestamp>,
        page: &Page<CreationCursor>,
    ) -> Result<Vec<BrowserSession>, Error> {
        let query = page_query::<BrowserSession>(filter, page).and("revoked_at IS NULL AND expires_at >", open_at);
        self.list(query, page).await
    }

    /// Binds tokens from versions that identified an agent by its number alone to the agent that
    /// has the number now.
    ///
    /// A token whose number no agent has never lets anybody in again, even if an agent gets the
    /// number later. Returns how many tokens there are of either kind.
    ///
    /// - `agents`: all agents by number, as [`tollgate_core::agent::Agent::identity`].
    ///
    /// After an error, the remaining tokens are bound the next time.
    pub async fn bind_tokens(&self, agents: &BTreeMap<AgentId, String>) -> Result<(u64, u64), Error> {
        const UNBOUND: &str = "SELECT COALESCE((SELECT MIN(agent_id) FROM tokens WHERE agent IS NULL), 0) AS number";
        const BIND: &str = "UPDATE tokens SET agent = $2 WHERE id IN \
                            (SELECT id FROM tokens WHERE agent_id = $1 AND agent IS NULL LIMIT $3)";
        let (mut bound, mut orphaned) = (0_u64, 0_u64);
        // 0 is no agent's number: nothing is left to bind.
        while let Some(agent_id) = AgentId::new(number(&self.database, UNBOUND).await?) {
            let identity = agents.get(&agent_id);
            let count = if identity.is_some() { &mut bound } else { &mut orphaned };
            // An empty identity, which no agent has, binds them to none.
            let identity = identity.map(String::as_str).unwrap_or_default();
            let values = [agent_id.into(), identity.into(), ROWS_PER_TRANSACTION.into()];
            *count = count.saturating_add(self.execute(BIND, values).await?);
        }
        Ok((bound, orphaned))
    }

    async fn find<T: Credential>(&self, condition: &'static str, key: impl Into<Value>) -> Result<Option<T>, Error> {
        let query = SelectQuery::new(T::SELECT).and(condition, Some(key));
        let rows = query.fetch(&self.database, Purpose::Lookup, "id", 1).await?;
        rows.first().map(T::read).transpose()
    }

    async fn list<T: Credential>(&self, query: SelectQuery, page: &Page<CreationCursor>) -> Result<Vec<T>, Error> {
        let rows = query.fetch(&self.database, Purpose::List, NEWEST, page_limit(page));
        rows.await?.iter().map(T::read).collect()
    }
}

fn page_query<T: Credential>(filter: &CredentialFilter, page: &Page<CreationCursor>) -> SelectQuery {
    SelectQuery::new(T::SELECT)
        .and("user_id =", filter.user_id)
        .and("username =", filter.username.as_deref())
        .and_after("(created_at, id) <", page.after)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use sqlx::Row as _;

    use super::*;
    use crate::database::Database;

    /// The cost of a page of everybody's rows depends on its length, not on how many rows there
    /// are.
    #[tokio::test]
    async fn pages_begin_at_an_index_and_sort_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let database = Database::open(&SecretString::from(url)).await.unwrap();
        let (filter, page) = (
            CredentialFilter::default(),
            Page {
                after: Some((Timestamp::UNIX_EPOCH, Uuid::nil())),
                ..Page::default()
            },
        );
        let tokens = page_query::<Token>(&filter, &page);
        let sessions = page_query::<BrowserSession>(&filter, &page);
        for (query, index) in [(tokens, "tokens_created"), (sessions, "browser_sessions_created")] {
            let steps = query
                .explained()
                .fetch(&database, Purpose::List, NEWEST, 100)
                .await
                .unwrap();
            let steps: Vec<String> = steps.iter().map(|step| step.get("detail")).collect();
            let wanted = format!("USING INDEX {index} ((created_at,id)<(?,?))");
            assert!(steps.len() == 1 && steps[0].contains(&wanted), "no {wanted}: {steps:?}");
        }
    }
}
