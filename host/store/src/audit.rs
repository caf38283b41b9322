//! Audit events in the store: the methods that add and find them.

use jiff::SignedDuration;

use crate::audit_row::{AuditRow, event_of, first_id};
use crate::change::Change;
use crate::database::Purpose;
use crate::query::{ROWS, SelectQuery};
use crate::{AuditEvent, AuditFilter, Error, Store};

/// How much later than its id's time an event may last happen: reads are counted for at most an
/// hour, and clocks of replicas differ.
const LATEST: SignedDuration = SignedDuration::from_mins(70);

const EVENTS: &str =
    "SELECT id, first_at, last_at, count, action, username, user_id, agent_id, session, details FROM audit";

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
        let rows = query.fetch(&self.database, Purpose::List, "id DESC", limit).await?;
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
                // `REPLACE` compares exactly. `LIKE` knows wildcards, and ignores case in SQLite.
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use secrecy::SecretString;
    use sqlx::Row as _;

    use super::*;
    use crate::database::Database;

    /// How SQLite would find the events of a filter.
    async fn plan(filter: &AuditFilter) -> String {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let database = Database::open(&SecretString::from(url)).await.unwrap();
        let query = select_query(filter, 100).explained();
        let steps = query.fetch(&database, Purpose::List, "id DESC", 100).await.unwrap();
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
