//! Group commit: changes that wait at the same time share one transaction.
//!
//! In: changes, from anywhere. Out: to each its own outcome, after the commit.
//! Never: an outcome before the commit; a change that fails because another one
//! beside it did; a queue without a bound; a caller who waits longer than
//! [`LIMIT`], or is told of a failure before their turn and served all the same.

use sqlx::error::ErrorKind;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::Error;
use super::audit::Batch;
use super::change::{Change, Outcome};
use super::database::{Database, LIMIT, failed};

/// Changes that wait; more callers wait before the queue.
const QUEUE: usize = 1024;
/// Changes in one transaction.
const TOGETHER: usize = 256;

struct Job {
    change: Change,
    /// When its caller is told that it failed: not begun any more then.
    deadline: Instant,
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

    /// Makes a change; waits while the queue is full, for [`LIMIT`] in all.
    ///
    /// Cancel safe: a change that is in the queue is made all the same, unless its
    /// time is up before its turn.
    pub(super) async fn change(&self, change: Change) -> Result<Outcome, Error> {
        let deadline = Instant::now() + LIMIT;
        let (done, outcome) = oneshot::channel();
        let ended = |()| Error::Failed {
            detail: "its writer has ended".to_owned(),
        };
        let job = Job { change, deadline, done };
        let made = async {
            self.queue.send(job).await.map_err(|_| ended(()))?;
            outcome.await.map_err(|_| ended(()))?
        };
        timeout_at(deadline, made).await.unwrap_or_else(|_| Err(late()))
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
    let jobs: Vec<_> = jobs.into_iter().filter_map(Job::in_time).collect();
    let Some(deadline) = jobs.iter().map(|job| job.deadline).max() else {
        return;
    };
    let (changes, waiting): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .map(|job| (job.change, (job.deadline, job.done)))
        .unzip();
    match transaction(database, deadline, &changes).await {
        Ok(outcomes) => {
            for ((_, done), outcome) in waiting.into_iter().zip(outcomes) {
                answer(done, Ok(outcome));
            }
        }
        Err(error) if changes.len() > 1 && lies_in_a_change(&error) => {
            let alone = changes.into_iter().zip(waiting);
            let alone = alone.map(|(change, (deadline, done))| Job { change, deadline, done });
            for job in alone {
                let Some(Job { change, deadline, done }) = job.in_time() else {
                    continue;
                };
                let outcome = transaction(database, deadline, std::slice::from_ref(&change)).await;
                answer(done, outcome.map(first).map_err(|error| told(&change, &error)));
            }
        }
        Err(error) => {
            if !lies_in_a_change(&error) {
                tracing::warn!(error = %failed(&error), changes = changes.len(), "the store could not be written");
            }
            for (change, (_, done)) in changes.iter().zip(waiting) {
                answer(done, Err(told(change, &error)));
            }
        }
    }
}

impl Job {
    /// The job, unless its caller was told that it failed.
    fn in_time(self) -> Option<Self> {
        if Instant::now() < self.deadline {
            return Some(self);
        }
        answer(self.done, Err(late()));
        None
    }
}

/// Makes all of the changes, or none.
///
/// - `deadline`: when nobody waits for any of them any more.
async fn transaction(database: &Database, deadline: Instant, changes: &[Change]) -> Result<Vec<Outcome>, sqlx::Error> {
    let mut held = database.writer(deadline).await?;
    let made = async {
        let mut transaction = held.begin(database.kind()).await?;
        let mut outcomes = Vec::with_capacity(changes.len());
        let mut events = Batch::default();
        for change in changes {
            outcomes.push(change.make(&mut transaction, database.kind(), &mut events).await?);
        }
        events.insert(&mut transaction).await?;
        transaction.commit().await?;
        Ok(outcomes)
    };
    let made = timeout_at(deadline, made).await;
    held.settle(made)
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

/// What a caller is told whose time is up.
fn late() -> Error {
    Error::Failed {
        detail: "no answer in time".to_owned(),
    }
}

fn first(outcomes: Vec<Outcome>) -> Outcome {
    outcomes.into_iter().next().unwrap_or(Outcome::Done)
}

fn answer(done: oneshot::Sender<Result<Outcome, Error>>, outcome: Result<Outcome, Error>) {
    // Nobody waits any more where the caller was cancelled.
    let _ = done.send(outcome);
}
