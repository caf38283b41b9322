//! Carries out an approved plan and reports what was written. A plan with problems, or with more
//! deletions than the caller confirmed, is refused.
//!
//! The set is written first, so that Argo CD's controller works towards the same state.
//! Applications are then created, then updated, and deleted last, because a deletion cannot be
//! undone.
//!
//! Invariant: a plan that was carried out only in part is reported as such.

use futures_util::future::join_all;
use serde_json::Value;
use uuid::Uuid;

use tollgate_applicationset::plan::{Action, Owner, Plan, PlanProblem, PlannedChange, with_owner_reference};
use tollgate_applicationset_rights::ApprovedPlan;
use tollgate_identity::clock::Clock;
use tollgate_state::write::batch::{BatchError, Propagation, UndoFailure, Write};
use tollgate_state::write::{self, ObjectKey, ResourceVersion, StoredObject, WritableKind, Writer, resource_version};

const MAX_CONCURRENT_DELETIONS: usize = 8;

const MAX_LISTED: usize = 5;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Most Applications that are deleted without confirmation of their number.
    pub(crate) max_deletions: u64,
    /// The number of Applications the caller expects to be deleted.
    pub(crate) confirmed: Option<u64>,
    /// The time at which objects of a folder are created.
    pub(crate) clock: Clock,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ApplyOutcome {
    pub(crate) set: Option<Value>,
    /// Applications of a deleted set that still exist, and why: the cluster deletes them by their
    /// owner references.
    pub(crate) left: Vec<UndoFailure>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", listed(.0, ToString::to_string))]
    Problems(Vec<PlanProblem>),
    #[error(
        "the change deletes {observed} applications, at most {allowed} are deleted without naming their number; name exactly {observed} to go ahead"
    )]
    TooManyDeletions { observed: u64, allowed: u64 },
    #[error("the change deletes {observed} applications, and {named} were named")]
    DeletionsMismatch { observed: u64, named: u64 },
    /// A write failed. All earlier writes are undone, except those that are named.
    #[error("{} was not written: {}; {}", .0.key, .0.error, rollback(.0, |left| format!("{}: {}", left.key, left.why)))]
    Batch(Box<BatchError>),
}

impl Error {
    pub(crate) fn write(&self) -> Option<&write::Error> {
        match self {
            Self::Batch(failed) => Some(&failed.error),
            Self::Problems(_) | Self::TooManyDeletions { .. } | Self::DeletionsMismatch { .. } => None,
        }
    }
}

fn listed<T>(items: &[T], describe: impl Fn(&T) -> String) -> String {
    let mut texts: Vec<String> = items.iter().take(MAX_LISTED).map(describe).collect();
    let more = items.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

/// What became of the objects that were written before the one that failed.
pub(super) fn rollback(failed: &BatchError, describe: impl Fn(&UndoFailure) -> String) -> String {
    match (failed.undone.len(), failed.not_undone.as_slice()) {
        (0, []) => "nothing was changed".to_owned(),
        (restored, []) => format!("all {restored} objects written before it were restored"),
        (restored, left) => {
            let (number, left) = (left.len(), listed(left, describe));
            format!("of the objects written before it, {restored} were restored and {number} could not be: {left}")
        }
    }
}

/// Carries out an approved plan, wholly or not at all.
///
/// # Errors
/// [`Error::Batch`] says what was written, undone, and could not be undone. The others come
/// before anything is written.
///
/// A batch that has begun continues if the future is dropped.
pub(crate) async fn apply(writer: &Writer, approved: ApprovedPlan, options: &Options) -> Result<ApplyOutcome, Error> {
    carry_out(writer, approved.into_plan(), options).await
}

/// SECURITY: private, so that nothing is written that was not approved.
async fn carry_out(writer: &Writer, plan: Plan, options: &Options) -> Result<ApplyOutcome, Error> {
    if !plan.problems.is_empty() {
        return Err(Error::Problems(plan.problems));
    }
    check_deletions(plan.deletions(), options)?;
    match writer {
        Writer::Folder(_) => in_folder(writer, plan, &options.clock).await,
        Writer::Cluster(_) => in_cluster(writer, plan).await,
    }
    .map_err(Error::Batch)
}

fn check_deletions(observed: u64, options: &Options) -> Result<(), Error> {
    match options.confirmed {
        Some(named) if named == observed => Ok(()),
        Some(named) => Err(Error::DeletionsMismatch { observed, named }),
        None if observed <= options.max_deletions => Ok(()),
        None => Err(Error::TooManyDeletions {
            observed,
            allowed: options.max_deletions,
        }),
    }
}

/// In a folder everything is one change of files. What a cluster would add to new objects is added
/// here.
async fn in_folder(writer: &Writer, mut plan: Plan, clock: &Clock) -> Result<ApplyOutcome, Box<BatchError>> {
    let now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for change in plan.changes.iter_mut().chain([&mut plan.set]) {
        match change.action {
            Action::Create => add_creation_metadata(change, &now),
            Action::Update => increment_generation(change),
            Action::Delete | Action::Keep => {}
        }
    }
    // After `add_creation_metadata`, which gave the set the uid that the references name.
    if plan.set.action == Action::Create {
        set_owner_references(&mut plan);
    }
    let unchanged = plan.set.before.clone().filter(|_| plan.set.action == Action::Keep);
    // Otherwise the first result of the batch is not the set.
    let is_written = !matches!(plan.set.action, Action::Keep | Action::Delete);
    let set = write(WritableKind::ApplicationSet, plan.set, plan.cascade);
    let writes = set.into_iter().chain(ordered(plan.changes)).collect();
    let stored = writer.batch(writes).await?;
    Ok(stored_set(unchanged.or_else(|| first(stored).filter(|_| is_written))))
}

async fn in_cluster(writer: &Writer, plan: Plan) -> Result<ApplyOutcome, Box<BatchError>> {
    match plan.set.action {
        Action::Create => create_in_cluster(writer, plan).await,
        Action::Update | Action::Keep => {
            let unchanged = plan.set.before.clone().filter(|_| plan.set.action == Action::Keep);
            let set = write(WritableKind::ApplicationSet, plan.set, Propagation::Background);
            let writes = set.into_iter().chain(ordered(plan.changes)).collect();
            let stored = writer.batch(writes).await?;
            Ok(stored_set(unchanged.or_else(|| first(stored))))
        }
        Action::Delete => delete_in_cluster(writer, plan).await,
    }
}

/// The Applications name the set's uid, which the cluster assigns.
async fn create_in_cluster(writer: &Writer, mut plan: Plan) -> Result<ApplyOutcome, Box<BatchError>> {
    let set_key = ObjectKey::of(WritableKind::ApplicationSet, &plan.set.name);
    let set = write(WritableKind::ApplicationSet, plan.set.clone(), Propagation::Background);
    let set = first(writer.batch(set.into_iter().collect()).await?);
    plan.set.after.clone_from(&set);
    set_owner_references(&mut plan);
    let Err(mut failed) = writer.batch(ordered(plan.changes)).await else {
        return Ok(stored_set(set));
    };
    // The failed batch has undone its Applications, but the set was stored by another batch.
    let removal = Write::Delete {
        key: set_key.clone(),
        before: set.unwrap_or_default(),
        propagation: Propagation::Background,
    };
    match writer.batch(vec![removal]).await {
        Ok(_) => failed.undone.push(set_key),
        Err(error) => failed.not_undone.push(UndoFailure {
            key: set_key,
            why: error.error.to_string(),
        }),
    }
    Err(failed)
}

/// Once the set is deleted, the cluster deletes what it owned, regardless of what happens here.
async fn delete_in_cluster(writer: &Writer, plan: Plan) -> Result<ApplyOutcome, Box<BatchError>> {
    let set = write(WritableKind::ApplicationSet, plan.set, plan.cascade);
    if plan.cascade == Propagation::Orphan {
        // As long as the set exists, everything can be undone.
        let writes = ordered(plan.changes).into_iter().chain(set).collect();
        return writer.batch(writes).await.map(|_| ApplyOutcome::default());
    }
    let applications = ordered(plan.changes);
    // While the set exists: once it is gone, nothing can be undone.
    writer.dry_run(&applications).await?;
    writer.batch(set.into_iter().collect()).await?;
    let mut outcome = ApplyOutcome::default();
    for group in applications.chunks(MAX_CONCURRENT_DELETIONS) {
        // In batches of one, because a batch that fails undoes its other writes.
        let deleted = join_all(group.iter().map(|write| writer.batch(vec![write.clone()]))).await;
        for failed in deleted.into_iter().filter_map(Result::err) {
            outcome.left.push(UndoFailure {
                key: failed.key.clone(),
                why: failed.error.to_string(),
            });
        }
    }
    Ok(outcome)
}

fn stored_set(set: Option<Value>) -> ApplyOutcome {
    let left = Vec::new();
    ApplyOutcome { set, left }
}

fn first(stored: Vec<Option<StoredObject>>) -> Option<Value> {
    let first = stored.into_iter().next().flatten();
    first.map(|stored| stored.object)
}

fn ordered(changes: Vec<PlannedChange>) -> Vec<Write> {
    let rank = |write: &Write| match write {
        Write::Create { .. } => 0,
        Write::Replace { .. } => 1,
        Write::Delete { .. } => 2,
    };
    let writes = changes.into_iter();
    let writes = writes.filter_map(|change| write(WritableKind::Application, change, Propagation::Background));
    let mut writes: Vec<Write> = writes.collect();
    writes.sort_by_key(rank);
    writes
}

fn write(kind: WritableKind, change: PlannedChange, propagation: Propagation) -> Option<Write> {
    let key = ObjectKey::of(kind, &change.name);
    match (change.action, change.before, change.after) {
        (Action::Create, _, Some(object)) => Some(Write::Create { key, object }),
        (Action::Update, Some(before), Some(after)) => {
            // A `PUT` itself names the version it is based on.
            let expected_version = resource_version(&after).or_else(|| resource_version(&before));
            Some(Write::Replace {
                key,
                expected_version: expected_version.unwrap_or_else(|| ResourceVersion::new("")),
                before,
                after,
            })
        }
        (Action::Delete, Some(before), _) => Some(Write::Delete {
            key,
            before,
            propagation,
        }),
        (Action::Create | Action::Update | Action::Delete | Action::Keep, _, _) => None,
    }
}

/// Points new Applications to the set by its current uid.
fn set_owner_references(plan: &mut Plan) {
    let Some(set) = &plan.set.after else { return };
    let owner = Owner::of(&plan.set.name.name, set);
    for change in &mut plan.changes {
        if change.action == Action::Create {
            change.after = change.after.take().map(|after| with_owner_reference(after, &owner));
        }
    }
}

fn add_creation_metadata(change: &mut PlannedChange, now: &str) {
    let metadata = change.after.as_mut().and_then(|after| after.get_mut("metadata"));
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), Uuid::now_v7().to_string().into());
        metadata.insert("creationTimestamp".to_owned(), now.into());
        metadata.insert("generation".to_owned(), 1.into());
    }
}

/// Increments the generation, which counts changes of the spec, if the object has one.
fn increment_generation(change: &mut PlannedChange) {
    let (Some(before), Some(after)) = (&change.before, &mut change.after) else {
        return;
    };
    let generation = before.pointer("/metadata/generation").and_then(Value::as_i64);
    let has_changed = before.get("spec") != after.get("spec");
    let metadata = after.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(metadata), Some(generation), true) = (metadata, generation, has_changed) {
        metadata.insert("generation".to_owned(), generation.saturating_add(1).into());
    }
}

#[cfg(test)]
mod tests;
