//! Group commit: changes that wait at the same time share one transaction.
//!
//! Each caller gets the outcome of its change, after the commit and within [`OPERATION_TIMEOUT`].
//!
//! Invariant: a change does not fail because another in its transaction did. A change whose
//! deadline passed in the queue is not made. The queue is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::error::ErrorKind;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::audit_row::Batch;
use crate::change::{Change, ChangeOutcome};
use crate::database::{Database, OPERATION_TIMEOUT, failed};
use tollgate_runtime::tasks::Tasks;

/// Most changes in the queue; further callers wait until there is room.
const QUEUE: usize = 1024;
const MAX_BATCH: usize = 256;

struct QueuedChange {
    change: Change,
    since: Instant,
    /// When its caller gets an error; the change is not begun after that.
    deadline: Instant,
    reply: oneshot::Sender<Result<ChangeOutcome, Error>>,
}

/// The sending side of the one task that writes. The task ends once this is dropped and all
/// waiting changes are written.
pub(crate) struct Writer {
    queue: mpsc::Sender<QueuedChange>,
    database: Database,
}

impl Writer {
    pub(crate) fn start(database: Database, exports: Arc<AtomicBool>, tasks: &Tasks) -> Self {
        let (queue, receiver) = mpsc::channel(QUEUE);
        tasks.spawn("store writer", write(database.clone(), exports, receiver));
        Self { queue, database }
    }

    /// Makes a change. Waits while the queue is full, for at most [`OPERATION_TIMEOUT`] in all.
    ///
    /// Cancel safe: a change in the queue is still made, unless its deadline passes before its
    /// turn.
    pub(crate) async fn change(&self, change: Change) -> Result<ChangeOutcome, Error> {
        let since = Instant::now();
        let deadline = since + OPERATION_TIMEOUT;
        let _waiting = self.database.count_waiting();
        let (reply, outcome) = oneshot::channel();
        let ended = || Error::Failed("its writer has ended".to_owned());
        let queued = QueuedChange {
            change,
            since,
            deadline,
            reply,
        };
        let made = async {
            self.queue.send(queued).await.map_err(|_| ended())?;
            outcome.await.map_err(|_| ended())?
        };
        let made = timeout_at(deadline, made).await;
        let made = made.unwrap_or_else(|_| Err(failed(&sqlx::Error::PoolTimedOut)));
        if matches!(made, Err(Error::Failed(_))) {
            self.database.count_failure("write");
        }
        made
    }
}

async fn write(database: Database, exports: Arc<AtomicBool>, mut queue: mpsc::Receiver<QueuedChange>) {
    let mut batch = Vec::new();
    // While one transaction waits for the disk, further changes gather.
    while queue.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let begun = Instant::now();
        for queued in &batch {
            database.observe("queue", queued.since);
        }
        commit(&database, &exports, std::mem::take(&mut batch)).await;
        database.observe("write", begun);
    }
}

async fn commit(database: &Database, exports: &AtomicBool, batch: Vec<QueuedChange>) {
    let batch: Vec<_> = batch.into_iter().filter_map(QueuedChange::unless_expired).collect();
    let Some(deadline) = batch.iter().map(|queued| queued.deadline).max() else {
        return;
    };
    match transaction(database, exports, deadline, &batch).await {
        Ok(outcomes) => {
            for (queued, outcome) in batch.into_iter().zip(outcomes) {
                queued.answer(outcome);
            }
        }
        Err(error) if batch.len() > 1 && is_caused_by_change(&error) => {
            // One of them is at fault, and the error does not say which: each is tried alone.
            for queued in batch.into_iter().filter_map(QueuedChange::unless_expired) {
                let made = transaction(database, exports, queued.deadline, std::slice::from_ref(&queued)).await;
                let made = made.map_err(|error| change_error(&queued.change, &error));
                let first = |mut outcomes: Vec<_>| outcomes.pop().unwrap_or_else(|| Ok(ChangeOutcome::default()));
                queued.answer(made.and_then(first));
            }
        }
        Err(error) => {
            // None is tried again: a failure during the commit may have come after it took effect.
            if !is_caused_by_change(&error) {
                tracing::warn!(error = %failed(&error), changes = batch.len(), "the store could not be written");
            }
            for queued in batch {
                let error = change_error(&queued.change, &error);
                queued.answer(Err(error));
            }
        }
    }
}

impl QueuedChange {
    /// Returns the change unless its deadline has passed; its caller then gets an error.
    fn unless_expired(self) -> Option<Self> {
        if Instant::now() < self.deadline {
            return Some(self);
        }
        self.answer(Err(failed(&sqlx::Error::PoolTimedOut)));
        None
    }

    fn answer(self, outcome: Result<ChangeOutcome, Error>) {
        // If the caller was cancelled, nobody receives the outcome.
        let _ = self.reply.send(outcome);
    }
}

/// - `deadline`: when no caller waits any more.
async fn transaction(
    database: &Database,
    exports: &AtomicBool,
    deadline: Instant,
    batch: &[QueuedChange],
) -> Result<Vec<Result<ChangeOutcome, Error>>, sqlx::Error> {
    let mut leased = database.writer(deadline).await?;
    let made = async {
        let mut transaction = leased.begin(database.kind).await?;
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut events = Batch::default();
        for queued in batch {
            let applied = queued.change.apply(&mut transaction, database.kind, &mut events);
            outcomes.push(applied.await?);
        }
        events.insert(&mut transaction, exports.load(Ordering::Relaxed)).await?;
        transaction.commit().await?;
        Ok(outcomes)
    };
    let made = timeout_at(deadline, made).await;
    leased.finish(made)
}

/// Whether another change, or a retry of this one, may succeed: the error is a violated
/// constraint, a refused value or a conflict between replicas.
fn is_caused_by_change(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let code = error.code().unwrap_or_default();
    !matches!(error.kind(), ErrorKind::Other) || ["22", "40"].iter().any(|class| code.starts_with(class))
}

fn change_error(change: &Change, error: &sqlx::Error) -> Error {
    let taken = error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation());
    match change {
        Change::Creation { what, .. } if taken => Error::Exists(what),
        _ => failed(error),
    }
}
