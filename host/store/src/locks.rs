//! People who are locked: they may do nothing until somebody unlocks them.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::any::AnyRow;

use crate::audit_row::person_event;
use crate::change::{Change, Limit};
use crate::database::Purpose;
use crate::query::{SelectQuery, Statement, read, time};
use crate::{Actor, Error, Store, bounds};

/// Most locks that are read. More than there may be, because a lock that is not read is not enforced.
const READ_LOCKS: i64 = 10_000;

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
    /// Returns everybody who is locked, by name.
    pub async fn person_locks(&self) -> Result<Vec<PersonLock>, Error> {
        let query = SelectQuery::new("SELECT name, locked_at, locked_by, reason FROM person_locks");
        let rows = query.fetch(&self.database, Purpose::Lookup, "name", READ_LOCKS).await?;
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
        let insert = Statement::new(
            "INSERT INTO person_locks (name, locked_at, locked_by, reason) VALUES ($1, $2, $3, $4) \
             ON CONFLICT DO NOTHING",
            [name.into(), at.into(), by.name.as_str().into(), reason.into()],
        );
        let limit = Limit {
            count: Statement::new("SELECT COUNT(*) FROM person_locks WHERE name <> $1", [name.into()]),
            owner: "person locks".to_owned(),
            allowed: bounds::LOCKS,
        };
        let creation = Change::Creation {
            what: "person lock",
            expired: None,
            insert,
            limits: vec![limit],
            event: Some(person_event("person.locked", name, reason, at, by)?),
        };
        Ok(self.writer.change(creation).await?.rows > 0)
    }

    /// Unlocks a person, with the audit event `person.unlocked`. Returns whether they were locked.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`].
    pub async fn unlock_person(&self, name: &str, at: Timestamp, by: &Actor) -> Result<bool, Error> {
        bounds::check("name", name, bounds::USERNAME)?;
        let change = Change::Conditional {
            first: Statement::new("DELETE FROM person_locks WHERE name = $1", [name.into()]),
            then: Vec::new(),
            event: Some(person_event("person.unlocked", name, "", at, by)?),
        };
        Ok(self.writer.change(change).await?.rows > 0)
    }
}
