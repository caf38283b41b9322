//! People who are locked: they may do nothing until somebody unlocks them.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::any::AnyRow;

use crate::audit_row::{AuditRow, person_event};
use crate::change::Change;
use crate::database::Purpose;
use crate::query::{ROWS, SelectQuery, Statement, read, time};
use crate::{Actor, Error, Store, bounds};

/// A person who may do nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PersonLock {
    /// A name of the person: in the directory, or as an issuer gives it.
    pub name: String,
    /// Since when.
    pub locked_at: Timestamp,
    /// Who did it.
    pub locked_by: String,
    /// Why, in their words.
    pub reason: String,
}

impl Store {
    /// Returns everybody who is locked, by name; at most [`bounds::LOCKS`].
    pub async fn person_locks(&self) -> Result<Vec<PersonLock>, Error> {
        let query = SelectQuery::new("SELECT name, locked_at, locked_by, reason FROM person_locks");
        let rows = query.fetch(&self.database, Purpose::Lookup, "name", ROWS).await?;
        let lock = |row: &AnyRow| {
            Ok(PersonLock {
                name: read(row, "name")?,
                locked_at: time(row, "locked_at")?,
                locked_by: read(row, "locked_by")?,
                reason: read(row, "reason")?,
            })
        };
        rows.iter().map(lock).collect()
    }

    /// Locks a person, with the audit event `person.locked`. Returns whether they were not locked
    /// before.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::TooLong`], [`Error::Character`].
    pub async fn lock_person(&self, name: &str, reason: &str, at: Timestamp, by: &Actor) -> Result<bool, Error> {
        bounds::check("name", name, bounds::USERNAME)?;
        bounds::check("reason", reason, bounds::REASON)?;
        let observed = self.person_locks().await?.len();
        if observed >= bounds::LOCKS {
            return Err(Error::LimitReached {
                what: "person lock",
                observed: u32::try_from(observed).unwrap_or(u32::MAX),
                allowed: u32::try_from(bounds::LOCKS).unwrap_or(u32::MAX),
            });
        }
        let first = Statement::new(
            "INSERT INTO person_locks (name, locked_at, locked_by, reason) VALUES ($1, $2, $3, $4) \
             ON CONFLICT DO NOTHING",
            [name.into(), at.into(), by.name.as_str().into(), reason.into()],
        );
        self.change_locks(first, person_event("person.locked", name, reason, at, by)?)
            .await
    }

    /// Unlocks a person, with the audit event `person.unlocked`. Returns whether they were locked.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`].
    pub async fn unlock_person(&self, name: &str, at: Timestamp, by: &Actor) -> Result<bool, Error> {
        bounds::check("name", name, bounds::USERNAME)?;
        let first = Statement::new("DELETE FROM person_locks WHERE name = $1", [name.into()]);
        self.change_locks(first, person_event("person.unlocked", name, "", at, by)?)
            .await
    }

    async fn change_locks(&self, first: Statement, event: AuditRow) -> Result<bool, Error> {
        let change = Change::Conditional {
            first,
            then: Vec::new(),
            event: Some(event),
        };
        Ok(self.writer.change(change).await?.rows > 0)
    }
}
