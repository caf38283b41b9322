//! Several writes that belong together. If one fails, those already done are undone in reverse
//! order, and what could not be undone is reported.

use serde_json::Value;

use super::{Error, ObjectKey, ResourceVersion, StoredObject, Writer, blocking};

/// What happens in a cluster to the dependents of an object that is deleted.
///
/// Source: Kubernetes, `propagationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// The cluster deletes them afterwards.
    #[default]
    Background,
    /// They stay; the cluster removes their owner references.
    Orphan,
}

/// One write.
#[derive(Clone, Debug)]
pub enum Write {
    /// Adds an object.
    Create {
        /// The object's key.
        key: ObjectKey,
        /// The object.
        object: Value,
    },
    /// Changes an object.
    Replace {
        /// The object's key.
        key: ObjectKey,
        /// The object as it was read, with its version.
        before: Value,
        /// The object as wanted.
        after: Value,
        /// The version the change is based on.
        expected_version: ResourceVersion,
    },
    /// Deletes an object.
    Delete {
        /// The object's key.
        key: ObjectKey,
        /// The object as it was read, with its version.
        before: Value,
        /// What happens to its dependents.
        propagation: Propagation,
    },
}

impl Write {
    /// The object that is written.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { key, .. } | Self::Replace { key, .. } | Self::Delete { key, .. } => key,
        }
    }
}

/// A write that was done and could not be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoFailure {
    /// The object.
    pub key: ObjectKey,
    /// Why it could not be undone.
    pub why: String,
}

/// Why a batch was not done.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {error}")]
pub struct BatchError {
    /// The object whose write failed.
    pub key: ObjectKey,
    /// Why it failed.
    #[source]
    pub error: Error,
    /// Objects that were written and then restored.
    pub undone: Vec<ObjectKey>,
    /// Objects that were written, or may have been, and could not be restored.
    pub not_undone: Vec<UndoFailure>,
}

impl BatchError {
    /// A failure before anything was written.
    pub(super) fn nothing_written(key: ObjectKey, error: Error) -> Box<Self> {
        Box::new(Self {
            key,
            error,
            undone: Vec::new(),
            not_undone: Vec::new(),
        })
    }
}

pub(super) fn object_version(object: &Value) -> ResourceVersion {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    ResourceVersion::new(version.unwrap_or_default())
}

impl Writer {
    /// Does all writes in order, or none. Gives the objects as they are stored afterwards, `None`
    /// for deleted ones.
    ///
    /// In a folder all files change under one lock, and a load of the folder with all of them is
    /// tried first. In a cluster up to eight writes of one sort are sent at the same time.
    /// Deletions are tried as a dry run before anything is written, and what only controllers wrote
    /// since an object was read is kept.
    ///
    /// # Errors
    /// [`BatchError`] names the write that failed, what was undone, and what could not be.
    ///
    /// Dropping the future does not stop a batch that has begun.
    pub async fn batch(&self, writes: Vec<Write>) -> Result<Vec<Option<StoredObject>>, Box<BatchError>> {
        let Some(first) = writes.first().map(|write| write.key().clone()) else {
            return Ok(Vec::new());
        };
        for write in &writes {
            let refused = |error| BatchError::nothing_written(write.key().clone(), error);
            write.key().check().map_err(refused)?;
        }
        // After a panic nobody knows how far it came.
        let keys: Vec<ObjectKey> = writes.iter().map(|write| write.key().clone()).collect();
        let may_be_written = |key| UndoFailure {
            key,
            why: "the work ended early, and it may have been written".to_owned(),
        };
        let interrupted = |error| {
            Err(Box::new(BatchError {
                key: first,
                error,
                undone: Vec::new(),
                not_undone: keys.into_iter().map(may_be_written).collect(),
            }))
        };
        match self {
            Self::Folder(folder) => {
                let folder = folder.clone();
                let work = move || Ok(folder.batch(&writes));
                blocking(work).await.unwrap_or_else(interrupted)
            }
            Self::Cluster(cluster) => {
                let cluster = cluster.clone();
                // In a task, because a caller who goes away must not leave a batch half done and not undone.
                let done = tokio::spawn(async move { cluster.batch(&writes).await }).await;
                done.unwrap_or_else(|_| interrupted(Error::Interrupted))
            }
        }
    }

    /// Tries the deletions without effect.
    ///
    /// # Errors
    /// The first deletion that would fail.
    pub async fn dry_run(&self, writes: &[Write]) -> Result<(), Box<BatchError>> {
        match self {
            // A batch checks all of them before it writes.
            Self::Folder(_) => Ok(()),
            Self::Cluster(cluster) => cluster.dry_run(writes).await,
        }
    }
}
