//! The rows of audit events that wait to be exported.

use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use crate::query::{Value, arguments};

/// Puts events among those that wait, with the count that they have now.
pub(crate) async fn enqueue(connection: &mut AnyConnection, events: &[(Uuid, i64)]) -> Result<(), sqlx::Error> {
    let rows = numbered_pairs(events.len());
    let sql = format!(
        "INSERT INTO audit_unexported (id, count) VALUES {rows} ON CONFLICT (id) DO UPDATE SET count = excluded.count"
    );
    execute(connection, sql, events).await
}

/// Removes events from those that wait, each if it has the count beside it.
pub(crate) async fn dequeue(connection: &mut AnyConnection, events: &[(Uuid, i64)]) -> Result<(), sqlx::Error> {
    if events.is_empty() {
        return Ok(());
    }
    // The first condition alone is one that every database answers by the index.
    let ids: Vec<_> = (0..events.len()).map(|event| format!("${}", 2 * event + 1)).collect();
    let (ids, pairs) = (ids.join(", "), numbered_pairs(events.len()));
    let sql = format!("DELETE FROM audit_unexported WHERE id IN ({ids}) AND (id, count) IN (VALUES {pairs})");
    execute(connection, sql, events).await
}

async fn execute(connection: &mut AnyConnection, sql: String, events: &[(Uuid, i64)]) -> Result<(), sqlx::Error> {
    let values = events
        .iter()
        .flat_map(|(id, count)| [Value::from(*id), (*count).into()]);
    let values: Vec<_> = values.collect();
    // SECURITY: the text contains only fixed parts and numbers.
    let query = sqlx::query_with(AssertSqlSafe(sql), arguments(&values)?);
    query.execute(connection).await.map(drop)
}

/// `($1, $2), ($3, $4)` and so on.
fn numbered_pairs(pairs: usize) -> String {
    let pairs = (1..=pairs).map(|pair| format!("(${}, ${})", 2 * pair - 1, 2 * pair));
    pairs.collect::<Vec<_>>().join(", ")
}
