//! Group commit: changes that wait at the same time share one transaction.
//!
//! In: changes, from anywhere. Out: to each its own outcome, after the commit.
//! Never: an outcome before the commit; a change that fails because another one
//! beside it did; a queue without a bound.

use sqlx::error::ErrorKind;
use tokio::sync::{mpsc, oneshot};

use super::Error;
use super::audit::Batch;
use super::change::{Change, Outcome};
use super::database::{Database, failed, timed};

/// Changes that wait; more callers wait before the queue.
const QUEUE: usize = 1024;
/// Changes in one transaction.
const TOGETHER: usize = 256;

struct Job {
    change: Change,
    done: oneshot::Sender<Result<Outcome, Error>>,
}

/// The way to the one task that writes. It ends once this is dropped and what
/// waits is written.
pub(super) struct Writer {
    queue: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn start(database: Database) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE);
        tokio::spawn(write(database, jobs));
        Self { queue }
    }

    /// Makes a change; waits while the queue is full.
    ///
    /// Cancel safe: a change that is in the queue is made all the same.
    pub(super) async fn change(&self, change: Change) -> Result<Outcome, Error> {
        let (done, outcome) = oneshot::channel();
        let ended = |()| Error::Failed {
            detail: "its writer has ended".to_owned(),
        };
        self.queue.send(Job { change, done }).await.map_err(|_| ended(()))?;
        outcome.await.map_err(|_| ended(()))?
    }
}

async fn write(database: Database, mut jobs: mpsc::Receiver<Job>) {
    let mut together = Vec::new();
    // While one transaction waits for the disk, the next ones gather.
    while jobs.recv_many(&mut together, TOGETHER).await > 0 {
        commit(&database, std::mem::take(&mut together)).await;
    }
}

async fn commit(database: &Database, jobs: Vec<Job>) {
    let (changes, waiting): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.change, job.done)).unzip();
    match timed(transaction(database, &changes)).await {
        Ok(outcomes) => {
            for (done, outcome) in waiting.into_iter().zip(outcomes) {
                answer(done, Ok(outcome));
            }
        }
        Err(error) if changes.len() > 1 && lies_in_a_change(&error) => {
            for (change, done) in changes.into_iter().zip(waiting) {
                let outcome = timed(transaction(database, std::slice::from_ref(&change))).await;
                answer(done, outcome.map(first).map_err(|error| told(&change, &error)));
            }
        }
        Err(error) => {
            if !lies_in_a_change(&error) {
                tracing::warn!(error = %failed(&error), changes = changes.len(), "the store could not be written");
            }
            for (change, done) in changes.iter().zip(waiting) {
                answer(done, Err(told(change, &error)));
            }
        }
    }
}

/// Makes all of the changes, or none.
async fn transaction(database: &Database, changes: &[Change]) -> Result<Vec<Outcome>, sqlx::Error> {
    let mut transaction = database.begin().await?;
    let mut outcomes = Vec::with_capacity(changes.len());
    let mut events = Batch::default();
    for change in changes {
        outcomes.push(change.make(&mut transaction, database.kind(), &mut events).await?);
    }
    events.insert(&mut transaction).await?;
    transaction.commit().await?;
    Ok(outcomes)
}

/// Whether another change, or this one a second time, may still succeed: broken
/// constraints, refused values, and replicas that stood in each other's way.
fn lies_in_a_change(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let code = error.code().unwrap_or_default();
    !matches!(error.kind(), ErrorKind::Other) || ["22", "40"].iter().any(|class| code.starts_with(class))
}

fn told(change: &Change, error: &sqlx::Error) -> Error {
    let taken = error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation());
    match change.what().filter(|_| taken) {
        Some(what) => Error::Exists { what },
        None => failed(error),
    }
}

fn first(outcomes: Vec<Outcome>) -> Outcome {
    outcomes.into_iter().next().unwrap_or(Outcome::Done)
}

fn answer(done: oneshot::Sender<Result<Outcome, Error>>, outcome: Result<Outcome, Error>) {
    // Nobody waits any more where the caller was cancelled.
    let _ = done.send(outcome);
}
