//! The rows of audit events, and the events that the store makes itself.
//!
//! Security: an event contains neither a secret nor the hash of one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use crate::export_queue;
use crate::query::{Value, agent_id, arguments, invalid_column, read, time, uuid};
use crate::{Actor, AuditEvent, BrowserSession, Error, Login, LoginToken, SessionOwner, Token, bounds};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};

/// Rows per statement: this saves round trips and stays far below the limit of bound values.
const ROWS_AT_ONCE: usize = 64;
/// The columns of a row, in the order of its values.
pub(crate) const COLUMNS: [&str; 16] = [
    "id",
    "first_at",
    "last_at",
    "count",
    "action",
    "username",
    "user_id",
    "owner_id",
    "agent_id",
    "session",
    "details",
    "verb",
    "resource",
    "subresource",
    "namespace",
    "name",
];

/// The detail with the user id of the owner of the token or session an event is about.
const OWNER: &str = "owner_id";

/// An event, checked and ready to be written.
pub(crate) struct AuditRow {
    id: Uuid,
    count: i64,
    values: [Value; COLUMNS.len()],
}

impl AuditRow {
    pub(crate) fn of(event: &AuditEvent) -> Result<Self, Error> {
        // JSON writes a NUL as `\u0000`.
        let details = serde_json::to_string(&event.details)
            .map_err(|_| Error::Failed("details of an event cannot be written as JSON".to_owned()))?;
        bounds::check("action", &event.action, bounds::ACTION)?;
        bounds::check("username", &event.user, bounds::USERNAME)?;
        bounds::check("session", event.session.as_deref().unwrap_or_default(), bounds::SESSION)?;
        bounds::check("details", &details, bounds::DETAILS)?;
        // The owner of the token or session it is about; people see events about their own.
        let owner_id = event.details.get(OWNER).and_then(serde_json::Value::as_i64);
        // An event without a verb is about no object of a cluster, though it may have a name.
        let is_request = event.details.contains_key("verb");
        let about = |key: &str| {
            let text = event.details.get(key).and_then(serde_json::Value::as_str);
            // A NUL is in the details only, where JSON escapes it.
            let text = text.filter(|text| is_request && !text.contains('\0'));
            Value::from(text.map(str::to_owned))
        };
        let count = stored_count(event);
        Ok(Self {
            id: event.id,
            count,
            values: [
                event.id.into(),
                event.first_at.into(),
                event.last_at.into(),
                count.into(),
                event.action.as_str().into(),
                event.user.as_str().into(),
                event.user_id.into(),
                owner_id.into(),
                event.agent_id.map(AgentId::get).into(),
                event.session.clone().into(),
                details.as_str().into(),
                about("verb"),
                about("resource"),
                about("subresource"),
                about("namespace"),
                about("name"),
            ],
        })
    }
}

pub(crate) fn stored_count(event: &AuditEvent) -> i64 {
    i64::try_from(event.count).unwrap_or(i64::MAX)
}

/// The rows of one transaction, one per event; of several rows of an event, the last counts.
#[derive(Default)]
pub(crate) struct Batch<'a>(BTreeMap<Uuid, &'a AuditRow>);

impl<'a> Batch<'a> {
    pub(crate) fn extend(&mut self, rows: impl IntoIterator<Item = &'a AuditRow>) {
        self.0.extend(rows.into_iter().map(|row| (row.id, row)));
    }

    /// - `is_exported`: whether the events wait to be exported, too.
    pub(crate) async fn insert(&self, connection: &mut AnyConnection, is_exported: bool) -> Result<(), sqlx::Error> {
        let rows: Vec<_> = self.0.values().collect();
        for rows in rows.chunks(ROWS_AT_ONCE) {
            let values = arguments(rows.iter().flat_map(|row| &row.values))?;
            // SECURITY: the text contains only fixed parts and numbers.
            let query = sqlx::query_with(AssertSqlSafe(insert(rows.len())), values);
            query.execute(&mut *connection).await?;
            // In the same transaction, so that no crash loses an event between the log and its export.
            if is_exported {
                let counts: Vec<_> = rows.iter().map(|row| (row.id, row.count)).collect();
                export_queue::enqueue(connection, &counts).await?;
            }
        }
        Ok(())
    }
}

fn insert(rows: usize) -> String {
    let mut sql = format!("INSERT INTO audit ({}) VALUES ", COLUMNS.join(", "));
    for row in 0..rows {
        let numbers = (1..=COLUMNS.len()).map(|column| format!("${}", row * COLUMNS.len() + column));
        let before = if row == 0 { "" } else { ", " };
        let _ = write!(sql, "{before}({})", numbers.collect::<Vec<_>>().join(", "));
    }
    sql.push_str(" ON CONFLICT (id) DO UPDATE SET last_at = excluded.last_at, count = excluded.count");
    sql
}

/// The least id that an event can have at some time after `time`.
pub(crate) fn first_id(time: Timestamp, later: SignedDuration) -> Uuid {
    let time = time.saturating_add(later).unwrap_or(time);
    let millis = u64::try_from(time.as_millisecond()).unwrap_or_default();
    // The first 48 bits of a UUID of version 7 are milliseconds.
    Uuid::from_u64_pair(millis << 16, 0)
}

pub(crate) fn event_of(row: &AnyRow) -> Result<AuditEvent, Error> {
    let details: String = read(row, "details")?;
    Ok(AuditEvent {
        id: uuid(row, "id")?,
        first_at: time(row, "first_at")?,
        last_at: time(row, "last_at")?,
        count: u64::try_from(read::<i64>(row, "count")?).unwrap_or_default(),
        action: read(row, "action")?,
        user: read(row, "username")?,
        user_id: read(row, "user_id")?,
        agent_id: read::<Option<i64>>(row, "agent_id")?.map(agent_id).transpose()?,
        session: read(row, "session")?,
        details: serde_json::from_str(&details).map_err(|_| invalid_column("details"))?,
    })
}

pub(crate) fn token_created(token: &Token, by: &Actor) -> Result<AuditRow, Error> {
    let session = SessionId::new(AccessType::PersonalAccessToken, token.id.to_string());
    let details = json!({
        "name": token.name,
        "owner": token.user.username,
        (OWNER): token.user.id,
        "scopes": token.scopes,
        "expires_at": token.expires_at,
    });
    event_row(
        "token.created",
        token.created_at,
        Some(by),
        Some(&session),
        Some(token.agent_id),
        details,
    )
}

pub(crate) fn session_created(session: &BrowserSession, by: &Actor) -> Result<AuditRow, Error> {
    let id = SessionId::new(AccessType::SessionCookie, session.id.to_string());
    let details = json!({
        "owner": session.user.username,
        (OWNER): session.user.id,
        "expires_at": session.expires_at,
    });
    event_row(
        "session.created",
        session.created_at,
        Some(by),
        Some(&id),
        None,
        details,
    )
}

pub(crate) fn revoked(session: &SessionId, at: Timestamp, by: &Actor, owner: &SessionOwner) -> Result<AuditRow, Error> {
    let action = match session.access_type() {
        AccessType::PersonalAccessToken => "token.revoked",
        AccessType::Login => "login.revoked",
        AccessType::OidcIdToken | AccessType::SessionCookie | AccessType::CiJobToken => "session.revoked",
    };
    let details = json!({ "owner": owner.user.username, (OWNER): owner.user.id });
    event_row(action, at, Some(by), Some(session), owner.agent_id, details)
}

pub(crate) fn login_created(login: &Login) -> Result<AuditRow, Error> {
    let details = json!({
        "owner": login.user.username,
        (OWNER): login.user.id,
        "kind": login.kind.as_ref(),
        "issuer": login.issuer,
        "client_name": login.client,
        "client": login.address,
        "expires_at": login.expires_at,
    });
    let by = Actor::from(&login.user);
    event_row(
        "login.created",
        login.created_at,
        Some(&by),
        Some(&login.session()),
        None,
        details,
    )
}

pub(crate) fn login_token_created(token: &LoginToken, login: &Login, at: Timestamp) -> Result<AuditRow, Error> {
    let details = json!({
        "owner": login.user.username,
        (OWNER): login.user.id,
        "login": login.id,
        "expires_at": token.expires_at,
    });
    let by = Actor::from(&login.user);
    let agent = token.agent.as_ref().map(|(id, _)| *id);
    event_row("token.created", at, Some(&by), Some(&login.session()), agent, details)
}

pub(crate) fn person_event(
    action: &str,
    name: &str,
    reason: &str,
    at: Timestamp,
    by: &Actor,
) -> Result<AuditRow, Error> {
    // Without a number of the directory: the name may be one that only an issuer gives.
    let details = json!({ "owner": name, "reason": reason });
    event_row(action, at, Some(by), None, None, details)
}

/// - `by`: who did it, if it was a person.
pub(crate) fn agent_event(
    action: &str,
    at: Timestamp,
    by: Option<&Actor>,
    details: serde_json::Value,
) -> Result<AuditRow, Error> {
    event_row(action, at, by, None, None, details)
}

fn event_row(
    action: &str,
    at: Timestamp,
    by: Option<&Actor>,
    session: Option<&SessionId>,
    agent_id: Option<AgentId>,
    details: serde_json::Value,
) -> Result<AuditRow, Error> {
    AuditRow::of(&AuditEvent {
        id: Uuid::now_v7(),
        first_at: at,
        last_at: at,
        count: 1,
        action: action.to_owned(),
        user: by.map(|by| by.name.clone()).unwrap_or_default(),
        user_id: by.and_then(|by| by.user_id),
        agent_id,
        session: session.map(ToString::to_string),
        details: serde_json::from_value(details).unwrap_or_default(),
    })
}
