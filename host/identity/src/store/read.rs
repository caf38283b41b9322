//! The queries of the store, and how rows become values again.
//!
//! Invariant: a column with an impossible value is an error; nothing is guessed.

use std::fmt::Write as _;

use jiff::Timestamp;
use sqlx::any::{Any, AnyArguments, AnyRow};
use sqlx::{Arguments as _, AssertSqlSafe, Decode, Encode, Row as _, Type};
use uuid::Uuid;

use super::database::{Database, DatabaseKind, Purpose, failed};
use super::{BrowserSession, CreationCursor, CredentialFilter, Error, Page, Revocation, SecretHash, Token};
use tollgate_core::agent::AgentId;
use tollgate_core::session::SessionId;
use tollgate_core::user::User;

/// The most rows of one answer.
pub(super) const ROWS: i64 = 1_000;

const TOKENS: &str = "SELECT id, name, user_id, username, agent_id, scopes, created_at, expires_at, revoked_at, \
                      last_used_at, agent FROM tokens";
const SESSIONS: &str = "SELECT id, csrf, user_id, username, created_at, expires_at, revoked_at FROM browser_sessions";

/// The order of pages of tokens and browser sessions.
const NEWEST: &str = "created_at DESC, id DESC";

/// A query, built from fixed texts and bound values.
pub(super) struct SelectQuery {
    sql: String,
    values: AnyArguments,
    /// Whether connections should keep it as a prepared statement.
    is_persistent: bool,
}

impl SelectQuery {
    /// - `from`: the query up to the conditions.
    pub(super) fn new(from: &'static str) -> Self {
        Self {
            sql: format!("{from} WHERE TRUE"),
            values: AnyArguments::default(),
            is_persistent: true,
        }
    }

    /// Adds a condition if there is a value for it.
    ///
    /// - `condition`: the text before the value, such as `id =`.
    pub(super) fn and<'v, T>(mut self, condition: &'static str, value: Option<T>) -> Result<Self, Error>
    where
        T: Encode<'v, Any> + Type<Any>,
    {
        if let Some(value) = value {
            let _ = write!(self.sql, " AND {condition} ");
            self.value(value)?;
        }
        Ok(self)
    }

    /// Adds the condition that a number is one of these.
    pub(super) fn and_one_of(mut self, column: &'static str, numbers: Option<&[AgentId]>) -> Self {
        if let Some(numbers) = numbers {
            // The numbers are written out, since there may be more than can be bound.
            self.is_persistent = false;
            let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            let _ = match numbers.as_slice() {
                [] => write!(self.sql, " AND FALSE"),
                some => write!(self.sql, " AND {column} IN ({})", some.join(", ")),
            };
        }
        self
    }

    /// Adds the condition that a row comes after another one, if there is one.
    ///
    /// - `condition`: the text before the values, such as `(created_at, id) <`.
    pub(super) fn and_after<'v, A, B>(mut self, condition: &'static str, other: Option<(A, B)>) -> Result<Self, Error>
    where
        A: Encode<'v, Any> + Type<Any>,
        B: Encode<'v, Any> + Type<Any>,
    {
        if let Some((first, second)) = other {
            let _ = write!(self.sql, " AND {condition} (");
            self.value(first)?;
            self.sql.push_str(", ");
            self.value(second)?;
            self.sql.push(')');
        }
        Ok(self)
    }

    /// Adds the condition that a text is one of these.
    pub(super) fn and_one_of_texts(mut self, column: &'static str, texts: &[String]) -> Result<Self, Error> {
        self.is_persistent = false;
        let _ = write!(self.sql, " AND {column} IN (");
        for (place, text) in texts.iter().enumerate() {
            if place > 0 {
                self.sql.push_str(", ");
            }
            self.value(text.clone())?;
        }
        self.sql.push_str(if texts.is_empty() { "NULL)" } else { ")" });
        Ok(self)
    }

    /// Puts the conditions into a larger query.
    ///
    /// - `is_persistent`: whether its text stays the same between uses.
    pub(super) fn wrap(self, is_persistent: bool, whole: impl FnOnce(&str) -> String) -> Self {
        Self {
            sql: whole(&self.sql),
            values: self.values,
            is_persistent: self.is_persistent && is_persistent,
        }
    }

    /// The database's plan for the query.
    #[cfg(test)]
    pub(super) fn explained(self) -> Self {
        self.wrap(false, |query| format!("EXPLAIN QUERY PLAN {query}"))
    }

    /// Runs the query for a limited number of rows.
    ///
    /// - `order`: such as `id DESC`.
    pub(super) async fn fetch(
        mut self,
        (database, purpose): (&Database, Purpose),
        order: &'static str,
        limit: i64,
    ) -> Result<Vec<AnyRow>, Error> {
        let _ = write!(self.sql, " ORDER BY {order} LIMIT ");
        self.value(limit)?;
        // SECURITY: the text contains only fixed parts and numbers.
        let query = sqlx::query_with(AssertSqlSafe(self.sql), self.values).persistent(self.is_persistent);
        database.rows(purpose, query).await.map_err(|error| failed(&error))
    }

    fn value<'v, T>(&mut self, value: T) -> Result<(), Error>
    where
        T: Encode<'v, Any> + Type<Any>,
    {
        self.values.add(value).map_err(|_| Error::Failed {
            detail: "a value cannot be bound".to_owned(),
        })?;
        let _ = write!(self.sql, "${}", self.values.len());
        Ok(())
    }
}

pub(super) async fn find_token(database: &Database, hash: SecretHash) -> Result<Option<Token>, Error> {
    let query = SelectQuery::new(TOKENS).and("hash =", Some(hash.0.as_slice()))?;
    first(&query.fetch((database, Purpose::Lookup), "id", 1).await?, token_of)
}

pub(super) async fn token(database: &Database, id: Uuid) -> Result<Option<Token>, Error> {
    let query = SelectQuery::new(TOKENS).and("id =", Some(id.as_bytes().as_slice()))?;
    first(&query.fetch((database, Purpose::Lookup), "id", 1).await?, token_of)
}

pub(super) async fn tokens(
    database: &Database,
    filter: &CredentialFilter,
    page: &Page<CreationCursor>,
) -> Result<Vec<Token>, Error> {
    let query = tokens_of(filter, page)?;
    let rows = query.fetch((database, Purpose::List), NEWEST, page_limit(page)).await?;
    all(&rows, token_of)
}

fn tokens_of(filter: &CredentialFilter, page: &Page<CreationCursor>) -> Result<SelectQuery, Error> {
    SelectQuery::new(TOKENS)
        .and("user_id =", filter.user_id)?
        .and("username =", filter.username.clone())?
        .and_one_of("agent_id", filter.agents.as_deref())
        .and_after("(created_at, id) <", page.after.as_ref().map(cursor_values))
}

pub(super) async fn find_session(database: &Database, hash: SecretHash) -> Result<Option<BrowserSession>, Error> {
    let query = SelectQuery::new(SESSIONS).and("hash =", Some(hash.0.as_slice()))?;
    first(&query.fetch((database, Purpose::Lookup), "id", 1).await?, session_of)
}

pub(super) async fn browser_session(database: &Database, id: Uuid) -> Result<Option<BrowserSession>, Error> {
    let query = SelectQuery::new(SESSIONS).and("id =", Some(id.as_bytes().as_slice()))?;
    first(&query.fetch((database, Purpose::Lookup), "id", 1).await?, session_of)
}

pub(super) async fn browser_sessions(
    database: &Database,
    filter: &CredentialFilter,
    open_at: Option<Timestamp>,
    page: &Page<CreationCursor>,
) -> Result<Vec<BrowserSession>, Error> {
    let query = sessions_of(filter, open_at, page)?;
    let rows = query.fetch((database, Purpose::List), NEWEST, page_limit(page)).await?;
    all(&rows, session_of)
}

fn sessions_of(
    filter: &CredentialFilter,
    open_at: Option<Timestamp>,
    page: &Page<CreationCursor>,
) -> Result<SelectQuery, Error> {
    SelectQuery::new(SESSIONS)
        .and("user_id =", filter.user_id)?
        .and("username =", filter.username.clone())?
        .and(
            "revoked_at IS NULL AND expires_at >",
            open_at.map(Timestamp::as_microsecond),
        )?
        .and_after("(created_at, id) <", page.after.as_ref().map(cursor_values))
}

pub(super) async fn revocations_after(database: &Database, sequence: i64) -> Result<Vec<Revocation>, Error> {
    let query =
        SelectQuery::new("SELECT sequence, session, until FROM revocations").and("sequence >", Some(sequence))?;
    all(
        &query.fetch((database, Purpose::Lookup), "sequence", ROWS).await?,
        |row| {
            let session: String = row.read("session")?;
            Ok(Revocation {
                sequence: row.read("sequence")?,
                session: SessionId::parse(&session).ok_or_else(|| invalid_column("session"))?,
                until: time(row, "until")?,
            })
        },
    )
}

pub(super) async fn latest_revocation(database: &Database) -> Result<i64, Error> {
    number(database, "SELECT COALESCE(MAX(sequence), 0) AS number FROM revocations").await
}

pub(super) async fn time_of(database: &Database) -> Result<Option<Timestamp>, Error> {
    match database.kind() {
        DatabaseKind::Sqlite => return Ok(None),
        DatabaseKind::Postgres => {}
    }
    let now = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS number";
    let now = number(database, now).await?;
    Timestamp::from_microsecond(now)
        .map(Some)
        .map_err(|_| invalid_column("now"))
}

pub(super) async fn time_watermark(database: &Database) -> Result<Option<Timestamp>, Error> {
    const REACHED: &str =
        "SELECT COALESCE((SELECT MAX(reached) FROM clock), (SELECT MAX(last_at) FROM audit), 0) AS number";
    let reached = number(database, REACHED).await?;
    if reached == 0 {
        return Ok(None);
    }
    Timestamp::from_microsecond(reached)
        .map(Some)
        .map_err(|_| invalid_column("reached"))
}

/// An agent that some tokens identify by its number alone.
pub(super) async fn unbound_agent(database: &Database) -> Result<Option<AgentId>, Error> {
    const UNBOUND: &str = "SELECT COALESCE((SELECT MIN(agent_id) FROM tokens WHERE agent IS NULL), 0) AS number";
    number(database, UNBOUND).await.map(AgentId::new)
}

/// The single value of a query, in its column `number`.
async fn number(database: &Database, sql: &'static str) -> Result<i64, Error> {
    let query = sqlx::query_with(sql, AnyArguments::default());
    let rows = database
        .rows(Purpose::Lookup, query)
        .await
        .map_err(|error| failed(&error))?;
    rows.first().ok_or_else(|| invalid_column("number"))?.read("number")
}

fn token_of(row: &AnyRow) -> Result<Token, Error> {
    let scopes: String = row.read("scopes")?;
    Ok(Token {
        id: uuid(row, "id")?,
        name: row.read("name")?,
        user: user(row)?,
        agent_id: agent(row)?,
        agent: row.read("agent")?,
        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
        created_at: time(row, "created_at")?,
        expires_at: time(row, "expires_at")?,
        revoked_at: time_opt(row, "revoked_at")?,
        last_used_at: time_opt(row, "last_used_at")?,
    })
}

fn session_of(row: &AnyRow) -> Result<BrowserSession, Error> {
    let csrf: Vec<u8> = row.read("csrf")?;
    Ok(BrowserSession {
        id: uuid(row, "id")?,
        user: user(row)?,
        csrf: SecretHash(csrf.try_into().map_err(|_| invalid_column("csrf"))?),
        created_at: time(row, "created_at")?,
        expires_at: time(row, "expires_at")?,
        revoked_at: time_opt(row, "revoked_at")?,
    })
}

fn cursor_values((at, id): &CreationCursor) -> (i64, Vec<u8>) {
    (at.as_microsecond(), id.as_bytes().to_vec())
}

/// The most rows of a page.
pub(super) fn page_limit<P>(page: &Page<P>) -> i64 {
    i64::from(page.limit).clamp(1, ROWS)
}

/// Every row as a value.
pub(super) fn all<T>(rows: &[AnyRow], read: impl Fn(&AnyRow) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    rows.iter().map(read).collect()
}

fn first<T>(rows: &[AnyRow], read: impl Fn(&AnyRow) -> Result<T, Error>) -> Result<Option<T>, Error> {
    rows.first().map(read).transpose()
}

/// Reads a column by its name.
pub(super) trait ReadColumn {
    fn read<'r, T>(&'r self, column: &'static str) -> Result<T, Error>
    where
        T: Decode<'r, Any> + Type<Any>;
}

impl ReadColumn for AnyRow {
    fn read<'r, T>(&'r self, column: &'static str) -> Result<T, Error>
    where
        T: Decode<'r, Any> + Type<Any>,
    {
        self.try_get(column).map_err(|error| failed(&error))
    }
}

pub(super) fn time(row: &AnyRow, column: &'static str) -> Result<Timestamp, Error> {
    time_opt(row, column)?.ok_or_else(|| invalid_column(column))
}

pub(super) fn time_opt(row: &AnyRow, column: &'static str) -> Result<Option<Timestamp>, Error> {
    let number: Option<i64> = row.read(column)?;
    number
        .map(|number| Timestamp::from_microsecond(number).map_err(|_| invalid_column(column)))
        .transpose()
}

pub(super) fn uuid(row: &AnyRow, column: &'static str) -> Result<Uuid, Error> {
    let bytes: Vec<u8> = row.read(column)?;
    Uuid::from_slice(&bytes).map_err(|_| invalid_column(column))
}

pub(super) fn user(row: &AnyRow) -> Result<User, Error> {
    Ok(User {
        id: row.read("user_id")?,
        username: row.read("username")?,
    })
}

pub(super) fn agent(row: &AnyRow) -> Result<AgentId, Error> {
    AgentId::new(row.read("agent_id")?).ok_or_else(|| invalid_column("agent_id"))
}

/// The error for a column with an impossible value.
pub(super) fn invalid_column(column: &'static str) -> Error {
    Error::Failed {
        detail: format!("column `{column}` has what cannot be there"),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

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
        let tokens = tokens_of(&filter, &page).unwrap();
        let sessions = sessions_of(&filter, None, &page).unwrap();
        for (query, index) in [(tokens, "tokens_created"), (sessions, "browser_sessions_created")] {
            let steps = query
                .explained()
                .fetch((&database, Purpose::List), NEWEST, 100)
                .await
                .unwrap();
            let steps: Vec<String> = steps.iter().map(|step| step.get("detail")).collect();
            let wanted = format!("USING INDEX {index} ((created_at,id)<(?,?))");
            assert!(steps.len() == 1 && steps[0].contains(&wanted), "no {wanted}: {steps:?}");
        }
    }
}
