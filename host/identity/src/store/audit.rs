//! Audit events in the store: those the store makes itself, their rows, and the queries for
//! them.
//!
//! Security: an event contains neither a secret nor the hash of one.

use std::collections::HashMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use super::database::{Database, Purpose};
use super::read::{ROWS, ReadColumn, SelectQuery, all, invalid_column, time, uuid};
use super::{Actor, AuditEvent, AuditFilter, BrowserSession, Error, SessionOwner, Token, bounds};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};

/// Rows per statement: this saves round trips and stays far below the limit of bound values.
const ROWS_AT_ONCE: usize = 64;
const COLUMNS: usize = 11;

const EVENTS: &str =
    "SELECT id, first_at, last_at, count, action, username, user_id, agent_id, session, details FROM audit";

/// The detail with the user id of the owner of the token or session an event is about.
const OWNER: &str = "owner_id";

/// An event, checked and ready to be written.
#[derive(Clone, Debug)]
pub(super) struct AuditRow {
    id: Uuid,
    first_at: Timestamp,
    last_at: Timestamp,
    count: i64,
    action: String,
    username: String,
    user_id: Option<i64>,
    /// The owner of the token or session it is about; people see events about their own.
    owner_id: Option<i64>,
    agent_id: Option<AgentId>,
    session: Option<String>,
    details: String,
}

impl AuditRow {
    /// Checks an event and makes its row.
    pub(super) fn of(event: &AuditEvent) -> Result<Self, Error> {
        // JSON writes a NUL as `\u0000`.
        let details = serde_json::to_string(&event.details).map_err(|_| Error::Failed {
            detail: "details of an event cannot be written as JSON".to_owned(),
        })?;
        bounds::check("action", &event.action, bounds::ACTION)?;
        bounds::check("username", &event.user, bounds::USERNAME)?;
        bounds::check("session", event.session.as_deref().unwrap_or_default(), bounds::SESSION)?;
        bounds::check("details", &details, bounds::DETAILS)?;
        Ok(Self {
            id: event.id,
            first_at: event.first_at,
            last_at: event.last_at,
            count: i64::try_from(event.count).unwrap_or(i64::MAX),
            action: event.action.clone(),
            username: event.user.clone(),
            user_id: event.user_id,
            owner_id: event.details.get(OWNER).and_then(Value::as_i64),
            agent_id: event.agent_id,
            session: event.session.clone(),
            details,
        })
    }
}

/// The rows of one transaction, one per event; of several rows of an event, the last counts.
#[derive(Default)]
pub(super) struct Batch<'a> {
    rows: Vec<&'a AuditRow>,
    places: HashMap<Uuid, usize>,
}

impl<'a> Batch<'a> {
    pub(super) fn extend(&mut self, rows: impl IntoIterator<Item = &'a AuditRow>) {
        for row in rows {
            let place = *self.places.entry(row.id).or_insert(self.rows.len());
            match self.rows.get_mut(place) {
                Some(there) => *there = row,
                None => self.rows.push(row),
            }
        }
    }

    pub(super) async fn insert(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        for rows in self.rows.chunks(ROWS_AT_ONCE) {
            // SECURITY: the text contains only fixed parts and numbers.
            let mut query = sqlx::query(AssertSqlSafe(insert(rows.len())));
            for row in rows {
                query = query
                    .bind(row.id.as_bytes().as_slice())
                    .bind(row.first_at.as_microsecond())
                    .bind(row.last_at.as_microsecond())
                    .bind(row.count)
                    .bind(row.action.as_str())
                    .bind(row.username.as_str())
                    .bind(row.user_id)
                    .bind(row.owner_id)
                    .bind(row.agent_id.map(AgentId::get))
                    .bind(row.session.as_deref())
                    .bind(row.details.as_str());
            }
            query.execute(&mut *connection).await?;
        }
        Ok(())
    }
}

fn insert(rows: usize) -> String {
    let mut sql = "INSERT INTO audit (id, first_at, last_at, count, action, username, user_id, owner_id, agent_id, \
                   session, details) VALUES "
        .to_owned();
    for value in 0..rows * COLUMNS {
        let before = match value % COLUMNS {
            0 if value == 0 => "(",
            0 => "), (",
            _ => ", ",
        };
        let _ = write!(sql, "{before}${}", value + 1);
    }
    sql.push_str(") ON CONFLICT (id) DO UPDATE SET last_at = excluded.last_at, count = excluded.count");
    sql
}

pub(super) async fn select(database: &Database, filter: &AuditFilter) -> Result<Vec<AuditEvent>, Error> {
    let limit = i64::from(filter.limit).clamp(1, ROWS);
    let query = select_query(filter, limit)?;
    all(
        &query.fetch((database, Purpose::List), "id DESC", limit).await?,
        event_of,
    )
}

fn select_query(filter: &AuditFilter, limit: i64) -> Result<SelectQuery, Error> {
    let query = SelectQuery::new("")
        .and_one_of("agent_id", filter.agents.as_deref())
        .and("action =", filter.action.as_deref())?
        .and("id <", filter.before.as_ref().map(|id| id.as_bytes().as_slice()))?;
    Ok(query.wrap(filter.user_id.is_none(), |conditions| match filter.user_id {
        None => format!("{EVENTS}{conditions}"),
        // Each half stops after its first rows in an index. One condition with OR would make
        // the database scan everybody's events.
        Some(user) => {
            let half = |column: &str| {
                format!(
                    "SELECT id FROM (SELECT id FROM audit{conditions} AND {column} = {user} \
                     ORDER BY id DESC LIMIT {limit}) AS {column}s"
                )
            };
            let (own, about) = (half("user_id"), half("owner_id"));
            format!("{EVENTS} WHERE id IN ({own} UNION {about})")
        }
    }))
}

fn event_of(row: &AnyRow) -> Result<AuditEvent, Error> {
    let details: String = row.read("details")?;
    let agent_id: Option<i64> = row.read("agent_id")?;
    Ok(AuditEvent {
        id: uuid(row, "id")?,
        first_at: time(row, "first_at")?,
        last_at: time(row, "last_at")?,
        count: u64::try_from(row.read::<i64>("count")?).unwrap_or_default(),
        action: row.read("action")?,
        user: row.read("username")?,
        user_id: row.read("user_id")?,
        agent_id: agent_id
            .map(|id| AgentId::new(id).ok_or_else(|| invalid_column("agent_id")))
            .transpose()?,
        session: row.read("session")?,
        details: serde_json::from_str(&details).map_err(|_| invalid_column("details"))?,
    })
}

/// `token.created`, by whoever made it.
pub(super) fn token_created(token: &Token, by: &Actor) -> Result<AuditRow, Error> {
    let mut event = event("token.created", token.created_at, by);
    event.agent_id = Some(token.agent_id);
    event.session = Some(SessionId::new(AccessType::PersonalAccessToken, token.id.to_string()).to_string());
    event.details = object(json!({
        "name": token.name,
        "owner": token.user.username,
        (OWNER): token.user.id,
        "scopes": token.scopes,
        "expires_at": token.expires_at,
    }));
    AuditRow::of(&event)
}

/// `session.created`, by whoever made it.
pub(super) fn session_created(session: &BrowserSession, by: &Actor) -> Result<AuditRow, Error> {
    let mut event = event("session.created", session.created_at, by);
    event.session = Some(SessionId::new(AccessType::SessionCookie, session.id.to_string()).to_string());
    event.details = object(json!({
        "owner": session.user.username,
        (OWNER): session.user.id,
        "expires_at": session.expires_at,
    }));
    AuditRow::of(&event)
}

/// `token.revoked` or `session.revoked`, by whoever ended it.
pub(super) fn revoked(session: &SessionId, at: Timestamp, by: &Actor, owner: &SessionOwner) -> Result<AuditRow, Error> {
    let action = match session.access_type() {
        AccessType::PersonalAccessToken => "token.revoked",
        AccessType::OidcIdToken | AccessType::SessionCookie | AccessType::CiJobToken => "session.revoked",
    };
    let mut event = event(action, at, by);
    event.agent_id = owner.agent_id;
    event.session = Some(session.to_string());
    event.details = object(json!({
        "owner": owner.user.username,
        (OWNER): owner.user.id,
    }));
    AuditRow::of(&event)
}

fn event(action: &str, at: Timestamp, by: &Actor) -> AuditEvent {
    AuditEvent {
        id: Uuid::now_v7(),
        first_at: at,
        last_at: at,
        count: 1,
        action: action.to_owned(),
        user: by.name.clone(),
        user_id: by.user_id,
        agent_id: None,
        session: None,
        details: Map::new(),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use sqlx::Row as _;

    use super::*;

    /// How SQLite would find the events of a filter.
    async fn plan(filter: &AuditFilter) -> String {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let database = Database::open(&SecretString::from(url)).await.unwrap();
        let query = select_query(filter, 100).unwrap().explained();
        let steps = query.fetch((&database, Purpose::List), "id DESC", 100).await.unwrap();
        let steps = steps.iter().map(|step| step.get::<String, _>("detail"));
        steps.collect::<Vec<_>>().join("\n")
    }

    /// A query for somebody without events must not make the database scan everybody's.
    #[tokio::test]
    async fn events_of_one_person_are_found_by_an_index() {
        let mut filter = AuditFilter {
            user_id: Some(7),
            action: Some("access.allowed".to_owned()),
            ..AuditFilter::default()
        };
        let text = plan(&filter).await;
        for index in ["audit_user_action (user_id=? AND action=?)", "audit_owner (owner_id=?)"] {
            assert!(text.contains(index), "no {index}:\n{text}");
        }
        assert!(!text.contains("SCAN audit"), "{text}");
        filter.action = None;
        let text = plan(&filter).await;
        assert!(text.contains("audit_user (user_id=?)"), "{text}");
        assert!(!text.contains("SCAN audit"), "{text}");
    }
}
