//! Audit events that wait to be exported, and the lease of the process that exports them.
//!
//! Invariant: an event waits from the transaction that writes it until a receiver has its latest
//! count, whichever process wrote it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::audit_row::{COLUMNS, event_of, first_id, stored_count};
use crate::change::{Change, ROWS_PER_TRANSACTION};
use crate::database::Purpose;
use crate::query::{SelectQuery, number, time, uuid};
use crate::{AuditEvent, Error, Store};

const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

const LEASE: &str = "audit export";

const BATCH: usize = 500;

impl Store {
    /// From now on, every audit event that this process writes waits to be exported.
    pub fn export_audit_events(&self) {
        self.exports.store(true, Ordering::Relaxed);
    }

    /// Takes or renews the lease of the process that exports. Returns whether `process` has it.
    ///
    /// Writes only when the lease has ended or is half over, so that writers of replicas do not wait
    /// for each other.
    pub async fn take_export_lease(&self, process: Uuid, now: Timestamp, length: Duration) -> Result<bool, Error> {
        let query = SelectQuery::new("SELECT holder, until FROM leases").and("name =", Some(LEASE));
        let rows = query.fetch(&self.database, Purpose::List, "name", 1).await?;
        if let Some(row) = rows.first() {
            let (holder, until) = (uuid(row, "holder")?, time(row, "until")?);
            // `None` once the lease has ended: the difference is negative then.
            let left = Duration::try_from(until.duration_since(now)).ok();
            match left {
                Some(_) if holder != process => return Ok(false),
                Some(left) if left > length / 2 => return Ok(true),
                Some(_) | None => {}
            }
        }
        let until = now.checked_add(length).unwrap_or(Timestamp::MAX);
        // The condition is checked again here: another process may have taken the lease since it was read.
        let sql = "INSERT INTO leases (name, holder, until) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE \
                   SET holder = excluded.holder, until = excluded.until \
                   WHERE leases.holder = excluded.holder OR leases.until < $4";
        let values = [LEASE.into(), process.into(), until.into(), now.into()];
        Ok(self.execute(sql, values).await? > 0)
    }

    /// Returns up to 500 of the events that wait and that first happened before a time, oldest
    /// first. Until then, they may still be counted.
    pub async fn unexported(&self, before: Timestamp) -> Result<Vec<AuditEvent>, Error> {
        let query = SelectQuery::new("")
            .and("audit.first_at <", Some(before))
            // Keeps the database from reading what is not due.
            .and("audit_unexported.id <", Some(first_id(before, CLOCK_SKEW)));
        let query = query.wrap(true, |conditions| {
            let columns = COLUMNS.map(|column| format!("audit.{column}")).join(", ");
            format!("SELECT {columns} FROM audit_unexported JOIN audit ON audit.id = audit_unexported.id{conditions}")
        });
        let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let order = "audit_unexported.id";
        let rows = query.fetch(&self.database, Purpose::List, order, limit).await?;
        rows.iter().map(event_of).collect()
    }

    /// Removes events from those that wait, except ones that were counted further meanwhile.
    pub async fn mark_exported(&self, events: &[AuditEvent]) -> Result<(), Error> {
        let events = events.iter().map(|event| (event.id, stored_count(event))).collect();
        self.writer.change(Change::Exported(events)).await.map(drop)
    }

    /// How many events wait to be exported, up to a bound: there may be millions.
    pub async fn unexported_count(&self) -> Result<u64, Error> {
        let count = number(
            &self.database,
            "SELECT COUNT(*) AS number FROM (SELECT 1 FROM audit_unexported LIMIT 100001) AS waiting",
        );
        Ok(u64::try_from(count.await?).unwrap_or_default())
    }

    /// Forgets what waits and is gone: a process of another version may have removed it. If this process
    /// exports nothing, lets events older than `oldest` wait no longer either: the settings may once have
    /// had an export.
    pub(crate) async fn forget_unexported(&self, oldest: Timestamp) -> Result<(), Error> {
        let oldest = match self.exports.load(Ordering::Relaxed) {
            true => Timestamp::MIN,
            false => oldest,
        };
        let sql = "DELETE FROM audit_unexported WHERE id IN (SELECT waits.id FROM audit_unexported AS waits \
                   LEFT JOIN audit ON audit.id = waits.id WHERE audit.id IS NULL OR audit.last_at < $1 LIMIT $2)";
        let is_full = |rows| rows >= ROWS_PER_TRANSACTION.unsigned_abs();
        while is_full(self.execute(sql, [oldest.into(), ROWS_PER_TRANSACTION.into()]).await?) {}
        Ok(())
    }
}
