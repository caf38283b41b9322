//! Audit events in the store: those the store makes itself, their rows, and the queries for
//! them.
//!
//! Security: an event contains neither a secret nor the hash of one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use super::change::Change;
use super::database::Purpose;
use super::query::{ROWS, SelectQuery, Value, agent_id, arguments, invalid_column, read, time, uuid};
use super::{
    Actor, AuditEvent, AuditFilter, BrowserSession, Error, Login, LoginToken, SessionOwner, Store, Token, bounds,
    export,
};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};

/// Rows per statement: this saves round trips and stays far below the limit of bound values.
const ROWS_AT_ONCE: usize = 64;
/// The columns of a row, in the order of its values.
pub(super) const COLUMNS: [&str; 16] = [
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

/// How much later than its id's time an event may last happen: reads are counted for at most an
/// hour, and clocks of replicas differ.
const LATEST: SignedDuration = SignedDuration::from_mins(70);

const EVENTS: &str =
    "SELECT id, first_at, last_at, count, action, username, user_id, agent_id, session, details FROM audit";

/// The detail with the user id of the owner of the token or session an event is about.
const OWNER: &str = "owner_id";

/// An event, checked and ready to be written.
pub(super) struct AuditRow {
    id: Uuid,
    count: i64,
    values: [Value; COLUMNS.len()],
}

impl AuditRow {
    fn of(event: &AuditEvent) -> Result<Self, Error> {
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

/// How often an event happened, as its row has it.
pub(super) fn stored_count(event: &AuditEvent) -> i64 {
    i64::try_from(event.count).unwrap_or(i64::MAX)
}

/// The rows of one transaction, one per event; of several rows of an event, the last counts.
#[derive(Default)]
pub(super) struct Batch<'a>(BTreeMap<Uuid, &'a AuditRow>);

impl<'a> Batch<'a> {
    pub(super) fn extend(&mut self, rows: impl IntoIterator<Item = &'a AuditRow>) {
        self.0.extend(rows.into_iter().map(|row| (row.id, row)));
    }

    /// - `is_exported`: whether the events wait to be exported, too.
    pub(super) async fn insert(&self, connection: &mut AnyConnection, is_exported: bool) -> Result<(), sqlx::Error> {
        let rows: Vec<_> = self.0.values().collect();
        for rows in rows.chunks(ROWS_AT_ONCE) {
            let values = arguments(rows.iter().flat_map(|row| &row.values))?;
            // SECURITY: the text contains only fixed parts and numbers.
            let query = sqlx::query_with(AssertSqlSafe(insert(rows.len())), values);
            query.execute(&mut *connection).await?;
            if is_exported {
                let counts: Vec<_> = rows.iter().map(|row| (row.id, row.count)).collect();
                export::enqueue(connection, &counts).await?;
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

impl Store {
    /// Adds audit events. For an id that exists already, the latest time and the count are
    /// replaced.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`]. After an error, no event is written.
    pub async fn record(&self, events: &[AuditEvent]) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let rows = events.iter().map(AuditRow::of).collect::<Result<_, _>>()?;
        self.writer.change(Change::Audit(rows)).await.map(drop)
    }

    /// Returns audit events, newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, Error> {
        let limit = i64::from(filter.limit).clamp(1, ROWS);
        let query = select_query(filter, limit);
        let rows = query.fetch((&self.database, Purpose::List), "id DESC", limit).await?;
        rows.iter().map(event_of).collect()
    }
}

fn select_query(filter: &AuditFilter, limit: i64) -> SelectQuery {
    let mut query = SelectQuery::new("")
        .and_one_of("agent_id", filter.agents.as_deref())
        .and("action =", filter.action.as_deref())
        .and("session =", filter.session.as_deref())
        .and("verb =", filter.verb.as_deref())
        .and("resource =", filter.resource.as_deref())
        .and("subresource =", filter.subresource.as_deref())
        .and("namespace =", filter.namespace.as_deref())
        .and("name =", filter.name.as_deref())
        // The bounds of the id keep the database from reading what is outside of the time. The index of
        // `last_at`, which the sign keeps it from using, would make it sort what is inside.
        .and("+last_at >=", filter.since)
        .and("id >=", filter.since.map(|since| first_id(since, -LATEST)))
        .and("first_at <", filter.until)
        .and("id <", filter.until.map(|until| first_id(until, LATEST)))
        .and("id <", filter.before);
    // SECURITY: the number alone may have been somebody else's. What an event is about has the name in its
    // details only, where no text can look like another member, because JSON escapes its quotes.
    let (is_own, is_about) = match (&filter.username, filter.user_id) {
        (Some(name), Some(_)) => {
            let member = format!("\"owner\":{}", serde_json::Value::from(name.as_str()));
            let (name, member) = (query.bind(name.as_str()), query.bind(member.as_str()));
            (
                format!(" AND username = {name}"),
                format!(" AND REPLACE(details, {member}, '') <> details"),
            )
        }
        (_, _) => (String::new(), String::new()),
    };
    query.wrap(filter.user_id.is_none(), |conditions| match filter.user_id {
        None => format!("{EVENTS}{conditions}"),
        // Each half stops after its first rows in an index. One condition with OR would make
        // the database scan everybody's events.
        Some(user) => {
            let half = |column: &str, named: &str| {
                format!(
                    "SELECT id FROM (SELECT id FROM audit{conditions} AND {column} = {user}{named} \
                     ORDER BY id DESC LIMIT {limit}) AS {column}s"
                )
            };
            let (own, about) = (half("user_id", &is_own), half("owner_id", &is_about));
            format!("{EVENTS} WHERE id IN ({own} UNION {about})")
        }
    })
}

/// The least id that an event can have at some time after `time`.
pub(super) fn first_id(time: Timestamp, later: SignedDuration) -> Uuid {
    let time = time.saturating_add(later).unwrap_or(time);
    let millis = u64::try_from(time.as_millisecond()).unwrap_or_default();
    Uuid::from_u64_pair(millis << 16, 0)
}

pub(super) fn event_of(row: &AnyRow) -> Result<AuditEvent, Error> {
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

pub(super) fn token_created(token: &Token, by: &Actor) -> Result<AuditRow, Error> {
    let session = SessionId::new(AccessType::PersonalAccessToken, token.id.to_string());
    let details = json!({
        "name": token.name,
        "owner": token.user.username,
        (OWNER): token.user.id,
        "scopes": token.scopes,
        "expires_at": token.expires_at,
    });
    let about = (Some(&session), Some(token.agent_id));
    event_row("token.created", (token.created_at, Some(by)), about, details)
}

pub(super) fn session_created(session: &BrowserSession, by: &Actor) -> Result<AuditRow, Error> {
    let id = SessionId::new(AccessType::SessionCookie, session.id.to_string());
    let details = json!({
        "owner": session.user.username,
        (OWNER): session.user.id,
        "expires_at": session.expires_at,
    });
    event_row(
        "session.created",
        (session.created_at, Some(by)),
        (Some(&id), None),
        details,
    )
}

pub(super) fn revoked(session: &SessionId, at: Timestamp, by: &Actor, owner: &SessionOwner) -> Result<AuditRow, Error> {
    let action = match session.access_type() {
        AccessType::PersonalAccessToken => "token.revoked",
        AccessType::Login => "login.revoked",
        AccessType::OidcIdToken | AccessType::SessionCookie | AccessType::CiJobToken => "session.revoked",
    };
    let details = json!({ "owner": owner.user.username, (OWNER): owner.user.id });
    event_row(action, (at, Some(by)), (Some(session), owner.agent_id), details)
}

pub(super) fn login_created(login: &Login) -> Result<AuditRow, Error> {
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
    let about = (Some(&login.session()), None);
    event_row("login.created", (login.created_at, Some(&by)), about, details)
}

pub(super) fn login_token_created(token: &LoginToken, login: &Login, at: Timestamp) -> Result<AuditRow, Error> {
    let details = json!({
        "owner": login.user.username,
        (OWNER): login.user.id,
        "login": login.id,
        "expires_at": token.expires_at,
    });
    let by = Actor::from(&login.user);
    let about = (Some(&login.session()), token.agent.as_ref().map(|(id, _)| *id));
    event_row("token.created", (at, Some(&by)), about, details)
}

/// An event about a person whom somebody locked or unlocked.
pub(super) fn person_event(
    action: &str,
    (name, reason): (&str, &str),
    (at, by): (Timestamp, &Actor),
) -> Result<AuditRow, Error> {
    let details = json!({ "owner": name, "reason": reason });
    event_row(action, (at, Some(by)), (None, None), details)
}

/// An event about the agent of a cluster.
///
/// - `by`: who did it, if it was a person.
pub(super) fn agent_event(
    action: &str,
    at: Timestamp,
    by: Option<&Actor>,
    details: serde_json::Value,
) -> Result<AuditRow, Error> {
    event_row(action, (at, by), (None, None), details)
}

fn event_row(
    action: &str,
    (at, by): (Timestamp, Option<&Actor>),
    (session, agent_id): (Option<&SessionId>, Option<AgentId>),
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

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use sqlx::Row as _;

    use super::super::database::Database;
    use super::*;

    /// How SQLite would find the events of a filter.
    async fn plan(filter: &AuditFilter) -> String {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let database = Database::open(&SecretString::from(url)).await.unwrap();
        let query = select_query(filter, 100).explained();
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
        filter.username = Some("ann".to_owned());
        let text = plan(&filter).await;
        for index in ["audit_user_action (user_id=? AND action=?)", "audit_owner (owner_id=?)"] {
            assert!(text.contains(index), "no {index}:\n{text}");
        }
        filter.action = None;
        let text = plan(&filter).await;
        assert!(text.contains("audit_user (user_id=?)"), "{text}");
        assert!(!text.contains("SCAN audit"), "{text}");
    }

    /// What somebody looks for may be long ago.
    #[tokio::test]
    async fn every_part_of_a_filter_has_an_index() {
        let text = || Some("text".to_owned());
        let time = Some(Timestamp::UNIX_EPOCH);
        let none = AuditFilter::default;
        for (filter, index) in [
            (
                AuditFilter {
                    session: text(),
                    ..none()
                },
                "audit_session (session=?)",
            ),
            (AuditFilter { verb: text(), ..none() }, "audit_verb (verb=?)"),
            (
                AuditFilter {
                    verb: text(),
                    resource: text(),
                    ..none()
                },
                "audit_request (verb=? AND resource=?)",
            ),
            (
                AuditFilter {
                    resource: text(),
                    ..none()
                },
                "audit_resource (resource=?)",
            ),
            (
                AuditFilter {
                    subresource: text(),
                    ..none()
                },
                "audit_subresource (subresource=?)",
            ),
            (
                AuditFilter {
                    namespace: text(),
                    ..none()
                },
                "audit_namespace (namespace=?)",
            ),
            (AuditFilter { name: text(), ..none() }, "audit_name (name=?)"),
            (AuditFilter { since: time, ..none() }, "sqlite_autoindex_audit_1 (id>?)"),
            (AuditFilter { until: time, ..none() }, "sqlite_autoindex_audit_1 (id<?)"),
        ] {
            let text = plan(&filter).await;
            assert!(text.contains(index), "no {index}:\n{text}");
            assert!(!text.contains("TEMP B-TREE"), "{text}");
        }
    }
}
