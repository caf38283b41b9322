//! Statements and queries of fixed texts and bound values, and how rows become values again.
//!
//! Invariant: a column with an impossible value is an error; nothing is guessed.
//!
//! Security: outside text is never part of SQL.

use std::fmt::Write as _;

use jiff::Timestamp;
use sqlx::any::{Any, AnyArguments, AnyRow};
use sqlx::{AnyConnection, Arguments as _, AssertSqlSafe, Decode, Row as _, Type};
use uuid::Uuid;

use crate::database::{Database, Purpose, failed};
use crate::{Error, Page, SecretHash};
use tollgate_core::agent::AgentId;
use tollgate_core::user::User;

pub(crate) const ROWS: i64 = 1_000;

/// A value bound to a statement. PostgreSQL needs the type of NULL, too.
#[derive(Clone)]
pub(crate) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

macro_rules! values_from {
    ($($name:ident: $from:ty => $value:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($name: $from) -> Self {
                $value
            }
        }
    )*};
}

values_from! {
    number: i64 => Self::Integer(Some(number));
    number: Option<i64> => Self::Integer(number);
    agent: AgentId => agent.get().into();
    time: Timestamp => time.as_microsecond().into();
    time: Option<Timestamp> => time.map(Timestamp::as_microsecond).into();
    text: &str => Self::Text(Some(text.to_owned()));
    text: Option<String> => Self::Text(text);
    bytes: Vec<u8> => Self::Bytes(Some(bytes));
    id: Uuid => id.as_bytes().to_vec().into();
    id: Option<Uuid> => Self::Bytes(id.map(|id| id.as_bytes().to_vec()));
    hash: SecretHash => hash.0.to_vec().into();
    hash: Option<SecretHash> => Self::Bytes(hash.map(|hash| hash.0.to_vec()));
}

pub(crate) fn arguments<'v>(values: impl IntoIterator<Item = &'v Value>) -> Result<AnyArguments, sqlx::Error> {
    let mut arguments = AnyArguments::default();
    for value in values {
        let bound = match value {
            Value::Integer(number) => arguments.add(*number),
            Value::Text(text) => arguments.add(text.clone()),
            Value::Bytes(bytes) => arguments.add(bytes.clone()),
        };
        bound.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

pub(crate) struct Statement {
    sql: &'static str,
    values: Vec<Value>,
}

impl Statement {
    pub(crate) fn new<const N: usize>(sql: &'static str, values: [Value; N]) -> Self {
        let values = values.into();
        Self { sql, values }
    }

    /// Returns how many rows it affected.
    pub(crate) async fn execute(&self, connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(self.sql, arguments(&self.values)?).execute(connection);
        Ok(done.await?.rows_affected())
    }

    pub(crate) async fn number(&self, connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar_with(self.sql, arguments(&self.values)?)
            .fetch_one(connection)
            .await
    }
}

pub(crate) struct SelectQuery {
    sql: String,
    values: Vec<Value>,
    /// Whether connections should keep it as a prepared statement.
    is_persistent: bool,
}

impl SelectQuery {
    /// - `from`: the query up to the conditions.
    pub(crate) fn new(from: &'static str) -> Self {
        Self {
            sql: format!("{from} WHERE TRUE"),
            values: Vec::new(),
            is_persistent: true,
        }
    }

    /// Adds a condition if there is a value for it.
    ///
    /// - `condition`: the text before the value, such as `id =`.
    pub(crate) fn and(mut self, condition: &'static str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            let _ = write!(self.sql, " AND {condition} ");
            self.value(value);
        }
        self
    }

    pub(crate) fn and_one_of(mut self, column: &'static str, numbers: Option<&[AgentId]>) -> Self {
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

    pub(crate) fn and_one_of_texts(mut self, column: &'static str, texts: &[String]) -> Self {
        // The text depends on how many there are.
        self.is_persistent = false;
        // `NULL` equals nothing, and keeps the list valid without texts.
        let _ = write!(self.sql, " AND {column} IN (NULL");
        for text in texts {
            self.sql.push_str(", ");
            self.value(text.as_str());
        }
        self.sql.push(')');
        self
    }

    /// Adds the condition that a row comes after another one, if there is one.
    ///
    /// - `condition`: the text before the values, such as `(created_at, id) <`.
    pub(crate) fn and_after(
        mut self,
        condition: &'static str,
        other: Option<(impl Into<Value>, impl Into<Value>)>,
    ) -> Self {
        if let Some((first, second)) = other {
            let _ = write!(self.sql, " AND {condition} (");
            self.value(first);
            self.sql.push_str(", ");
            self.value(second);
            self.sql.push(')');
        }
        self
    }

    /// Binds a value. Returns its place, for the text that [`SelectQuery::wrap`] adds.
    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// Puts the conditions into a larger query.
    ///
    /// - `is_persistent`: whether its text stays the same between uses.
    pub(crate) fn wrap(self, is_persistent: bool, whole: impl FnOnce(&str) -> String) -> Self {
        Self {
            sql: whole(&self.sql),
            values: self.values,
            is_persistent: self.is_persistent && is_persistent,
        }
    }

    /// The database's plan for the query.
    #[cfg(test)]
    pub(crate) fn explained(self) -> Self {
        self.wrap(false, |query| format!("EXPLAIN QUERY PLAN {query}"))
    }

    /// Runs the query for a limited number of rows.
    ///
    /// - `order`: such as `id DESC`.
    pub(crate) async fn fetch(
        mut self,
        database: &Database,
        purpose: Purpose,
        order: &'static str,
        limit: i64,
    ) -> Result<Vec<AnyRow>, Error> {
        let _ = write!(self.sql, " ORDER BY {order} LIMIT ");
        self.value(limit);
        let values = arguments(&self.values).map_err(|error| failed(&error))?;
        // SECURITY: the text contains only fixed parts and numbers.
        let query = sqlx::query_with(AssertSqlSafe(self.sql), values).persistent(self.is_persistent);
        database.rows(purpose, query).await.map_err(|error| failed(&error))
    }

    fn value(&mut self, value: impl Into<Value>) {
        self.values.push(value.into());
        let _ = write!(self.sql, "${}", self.values.len());
    }
}

pub(crate) fn page_limit<P>(page: &Page<P>) -> i64 {
    i64::from(page.limit).clamp(1, ROWS)
}

/// The single value of a query, in its column `number`.
pub(crate) async fn number(database: &Database, sql: &'static str) -> Result<i64, Error> {
    let query = sqlx::query_with(sql, AnyArguments::default());
    let rows = database.rows(Purpose::Lookup, query).await;
    let rows = rows.map_err(|error| failed(&error))?;
    read(rows.first().ok_or_else(|| invalid_column("number"))?, "number")
}

pub(crate) fn read<'r, T: Decode<'r, Any> + Type<Any>>(row: &'r AnyRow, column: &'static str) -> Result<T, Error> {
    row.try_get(column).map_err(|error| failed(&error))
}

pub(crate) fn time(row: &AnyRow, column: &'static str) -> Result<Timestamp, Error> {
    time_opt(row, column)?.ok_or_else(|| invalid_column(column))
}

pub(crate) fn time_opt(row: &AnyRow, column: &'static str) -> Result<Option<Timestamp>, Error> {
    let number: Option<i64> = read(row, column)?;
    number.map(|number| time_of(number, column)).transpose()
}

pub(crate) fn time_of(microseconds: i64, column: &'static str) -> Result<Timestamp, Error> {
    Timestamp::from_microsecond(microseconds).map_err(|_| invalid_column(column))
}

pub(crate) fn uuid(row: &AnyRow, column: &'static str) -> Result<Uuid, Error> {
    Uuid::from_slice(&read::<Vec<u8>>(row, column)?).map_err(|_| invalid_column(column))
}

pub(crate) fn user(row: &AnyRow) -> Result<User, Error> {
    Ok(User {
        id: read(row, "user_id")?,
        username: read(row, "username")?,
    })
}

pub(crate) fn agent(row: &AnyRow) -> Result<AgentId, Error> {
    agent_id(read(row, "agent_id")?)
}

pub(crate) fn agent_id(number: i64) -> Result<AgentId, Error> {
    AgentId::new(number).ok_or_else(|| invalid_column("agent_id"))
}

pub(crate) fn invalid_column(column: &'static str) -> Error {
    Error::Failed(format!("column `{column}` has a value that is not possible there"))
}
