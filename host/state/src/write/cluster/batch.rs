//! Writes several objects of a cluster: all of them, or none.
//!
//! A cluster has no transactions, so failed batches are undone. A write without an answer may have
//! been done, so the object is read again before the write counts as failed.
//!
//! Invariant: nobody else's change is overwritten. Only what controllers keep writing (`status`,
//! `operation`, their annotations) may have changed since the object was read, and it is kept.

use futures_util::future::join_all;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Map, Value};

use super::ClusterWriter;
use crate::write::batch::{BatchError, Propagation, UndoFailure, Write, object_version};
use crate::write::{
    Error, ObjectKey, ResourceVersion, StoredObject, merge, merge_patch, set_version, strip_server_metadata,
};
use tollgate_objects::equivalence::APPLICATION;

const MAX_CONCURRENT_WRITES: usize = 8;

/// How often a write is tried if a controller changes the object in between; as in Argo CD.
const MAX_ATTEMPTS: usize = 10;

/// Prefixes of annotations that controllers and people set on an Application all the time.
const VOLATILE_ANNOTATIONS: [&str; 2] = ["argocd.argoproj.io/", "notified.notifications.argoproj.io"];

#[derive(Debug)]
enum Undo {
    /// Delete the object, which was created like this.
    Remove(Value),
    /// Change the object back from the second to the first.
    PutBack(Value, Value),
    Recreate(Value),
}

/// The object as it is stored now, and how to undo the write; `None` if nothing was written.
type Done = (Option<StoredObject>, Option<Undo>);

impl ClusterWriter {
    pub(in crate::write) async fn batch(&self, writes: &[Write]) -> Result<Vec<Option<StoredObject>>, Box<BatchError>> {
        self.dry_run(writes).await?;
        let mut now = Vec::with_capacity(writes.len());
        let mut done: Vec<(ObjectKey, Undo)> = Vec::new();
        let mut failed = None;
        let groups = writes.chunk_by(alike);
        for group in groups.flat_map(|group| group.chunks(MAX_CONCURRENT_WRITES)) {
            let results = join_all(group.iter().map(|write| self.write(write))).await;
            // The whole group was sent, so each write that succeeded has to be known for the undo.
            for (write, result) in group.iter().zip(results) {
                match result {
                    Ok((stored, undo)) => {
                        now.push(stored);
                        done.extend(undo.map(|undo| (write.key().clone(), undo)));
                    }
                    Err(error) => {
                        failed.get_or_insert_with(|| (write.key().clone(), error));
                    }
                }
            }
            if let Some((key, error)) = failed {
                let mut failed = BatchError::nothing_written(key, error);
                self.undo_all(done, &mut failed).await;
                return Err(failed);
            }
        }
        Ok(now)
    }

    /// Tries deletions with `dryRun=All`, because they cannot be undone.
    pub(in crate::write) async fn dry_run(&self, writes: &[Write]) -> Result<(), Box<BatchError>> {
        for group in writes.chunks(MAX_CONCURRENT_WRITES) {
            let tries = group.iter().map(async |write| match write {
                Write::Delete {
                    key,
                    before,
                    propagation,
                } => {
                    let tried = self.remove(key, before, *propagation, true).await;
                    tried.map_err(|error| BatchError::nothing_written(key.clone(), error))
                }
                Write::Create { .. } | Write::Replace { .. } => Ok(false),
            });
            let tried: Result<Vec<_>, _> = join_all(tries).await.into_iter().collect();
            tried?;
        }
        Ok(())
    }

    async fn write(&self, write: &Write) -> Result<Done, Error> {
        match write {
            Write::Create { key, object } => self.add(key, object).await,
            Write::Replace {
                key,
                before,
                after,
                expected_version,
            } => self.change(key, before, after, expected_version).await,
            Write::Delete {
                key,
                before,
                propagation,
            } => {
                let is_there = self.remove(key, before, *propagation, false).await?;
                Ok((None, is_there.then(|| Undo::Recreate(before.clone()))))
            }
        }
    }

    /// Creates an object. An existing one counts as created if it is equal: Argo CD's controller
    /// also creates the Applications of a set as soon as it sees the set.
    async fn add(&self, key: &ObjectKey, object: &Value) -> Result<Done, Error> {
        let mut created = self.create(key, object).await;
        if let Err(error) = &created
            && (matches!(error, Error::AlreadyExists(_)) || is_unanswered(error))
            && let Ok(found) = self.read(key).await
            && is_ours(&found.object, object)
        {
            created = if is_equivalent(&found.object, object) {
                Ok(found)
            } else {
                let now = with_desired_fields(&found.object, object);
                self.replace(key, &now, &found.version).await
            };
        }
        let stored = created?;
        let undo = Undo::Remove(stored.object.clone());
        Ok((Some(stored), Some(undo)))
    }

    /// Changes an object and keeps what controllers wrote since.
    async fn change(
        &self,
        key: &ObjectKey,
        before: &Value,
        after: &Value,
        expected_version: &ResourceVersion,
    ) -> Result<Done, Error> {
        let (mut was, mut wanted) = (before.clone(), after.clone());
        for object in [&mut was, &mut wanted] {
            object.as_object_mut().and_then(|members| members.remove("status"));
            strip_server_metadata(object);
        }
        let patch = merge_patch(&was, &wanted).unwrap_or(Value::Object(Map::new()));
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.read(key).await?;
            let is_it = found.version == *expected_version;
            // Only what controllers write differs then, which is no conflict for the caller.
            let is_as_it_was = object_version(before) == *expected_version && is_same(&found.object, before);
            // An attempt without an answer, or Argo CD's controller, has made the change.
            if is_equivalent(&found.object, after) && (last.is_some() || !is_it) {
                return Ok((Some(found), Some(Undo::PutBack(before.clone(), after.clone()))));
            }
            if !is_it && !is_as_it_was {
                let conflict = || Error::conflict(key, expected_version.as_str(), found.version.as_str());
                return Err(last.unwrap_or_else(conflict));
            }
            let mut now = found.object;
            merge(&mut now, &patch);
            match self.replace(key, &now, &found.version).await {
                Ok(stored) => return Ok((Some(stored), Some(Undo::PutBack(before.clone(), after.clone())))),
                Err(error) if is_retryable(&error, last.as_ref()) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or(Error::Interrupted))
    }

    /// Deletes an object. Returns whether it existed: one that is gone or being deleted is no
    /// failure.
    async fn remove(
        &self,
        key: &ObjectKey,
        before: &Value,
        propagation: Propagation,
        is_dry_run: bool,
    ) -> Result<bool, Error> {
        let parameters = DeleteParams {
            dry_run: is_dry_run,
            propagation_policy: Some(match propagation {
                Propagation::Background => PropagationPolicy::Background,
                Propagation::Orphan => PropagationPolicy::Orphan,
            }),
            ..DeleteParams::default()
        };
        let mut version = object_version(before);
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            match self.delete(key, &version, parameters.clone()).await {
                Ok(()) => return Ok(true),
                // An earlier deletion got no answer, and the object is gone: that one deleted it.
                Err(Error::NotFound(_)) => return Ok(last.as_ref().is_some_and(is_unanswered)),
                Err(error) if is_retryable(&error, last.as_ref()) => {
                    let found = match self.read(key).await {
                        Ok(found) => found,
                        Err(Error::NotFound(_)) => return Ok(is_unanswered(&error)),
                        Err(_) => return Err(error),
                    };
                    if found.object.pointer("/metadata/deletionTimestamp").is_some() {
                        // A deletion by somebody else is nothing that an undo may take back.
                        return Ok(is_unanswered(&error));
                    }
                    if !is_same(&found.object, before) {
                        return Err(error);
                    }
                    version = found.version;
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or(Error::Interrupted))
    }

    async fn undo_all(&self, done: Vec<(ObjectKey, Undo)>, failed: &mut BatchError) {
        for (key, undo) in done.into_iter().rev() {
            let undone = match undo {
                Undo::Remove(object) => {
                    let removed = self.remove(&key, &object, Propagation::Background, false).await;
                    removed.map(drop).map_err(|error| error.to_string())
                }
                Undo::PutBack(before, after) => {
                    let put = self.change_back(&key, &before, &after).await;
                    put.map_err(|error| error.to_string())
                }
                Undo::Recreate(before) => self.recreate(&key, &before).await,
            };
            match undone {
                Ok(()) => failed.undone.push(key),
                Err(why) => failed.not_undone.push(UndoFailure { key, why }),
            }
        }
    }

    /// Changes an object back, unless somebody changed it again.
    async fn change_back(&self, key: &ObjectKey, before: &Value, after: &Value) -> Result<(), Error> {
        let found = self.read(key).await?;
        let mut after = after.clone();
        // `change` refuses a base that is not of the expected version.
        set_version(&mut after, &found.version);
        if !is_same(&found.object, &after) {
            return Err(Error::conflict(key, "of this batch", found.version.as_str()));
        }
        self.change(key, &after, before, &found.version).await.map(drop)
    }

    async fn recreate(&self, key: &ObjectKey, before: &Value) -> Result<(), String> {
        let mut object = before.clone();
        strip_server_metadata(&mut object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // The API server gives a new object its own.
            for name in ["uid", "creationTimestamp", "generation", "deletionTimestamp"] {
                metadata.remove(name);
            }
        }
        match self.create(key, &object).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists(_)) => Err("it is being deleted, which the cluster does not take back".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Whether two writes may be in progress together because their order does not matter.
fn alike(a: &Write, b: &Write) -> bool {
    a.key().kind == b.key().kind && std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Whether there was no answer, so that the write may have been done.
fn is_unanswered(error: &Error) -> bool {
    let Error::Cluster { status, .. } = error else {
        return false;
    };
    matches!(status, 0 | 500..=599)
}

/// Whether to read the object and retry: it changed meanwhile, or there was no answer for the first
/// time.
fn is_retryable(error: &Error, last: Option<&Error>) -> bool {
    matches!(error, Error::Conflict { .. }) || (is_unanswered(error) && !last.is_some_and(is_unanswered))
}

fn metadata_field<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    let value = object.get("metadata").and_then(|metadata| metadata.get(key));
    value.filter(|value| !value.is_null())
}

fn stable_annotations(object: &Value) -> Map<String, Value> {
    let annotations = metadata_field(object, "annotations").and_then(Value::as_object);
    let mut annotations = annotations.cloned().unwrap_or_default();
    annotations.retain(|key, _| !VOLATILE_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    annotations
}

/// Whether an object is still as it was read, except for what controllers write.
fn is_same(found: &Value, before: &Value) -> bool {
    let has_other_uid =
        metadata_field(before, "uid").is_some() && metadata_field(found, "uid") != metadata_field(before, "uid");
    !has_other_uid && is_equivalent(found, before)
}

/// Whether an object means the same as another one. Argo CD's controllers leave out fields with
/// zero values.
fn is_equivalent(found: &Value, wanted: &Value) -> bool {
    let parts = ["labels", "finalizers", "ownerReferences"];
    let is_equal = |key: &&str| APPLICATION.fields_equal(key, metadata_field(found, key), metadata_field(wanted, key));
    APPLICATION.fields_equal("spec", found.get("spec"), wanted.get("spec"))
        && stable_annotations(found) == stable_annotations(wanted)
        && parts.iter().all(is_equal)
}

/// Whether an existing object has the same owner as the one that was to be created.
fn is_ours(found: &Value, object: &Value) -> bool {
    let owner = metadata_field(object, "ownerReferences");
    owner.is_some() && metadata_field(found, "ownerReferences") == owner
}

fn with_desired_fields(found: &Value, object: &Value) -> Value {
    let mut now = found.clone();
    if let (Some(members), Some(spec)) = (now.as_object_mut(), object.get("spec")) {
        members.insert("spec".to_owned(), spec.clone());
    }
    if let Some(metadata) = now.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["labels", "annotations", "finalizers"] {
            match metadata_field(object, key) {
                Some(value) => metadata.insert(key.to_owned(), value.clone()),
                None => metadata.remove(key),
            };
        }
    }
    now
}

#[cfg(test)]
mod tests;
