//! Signals when files below some folders have changed, once per settled change. It does not say
//! what changed; the reader loads everything again.
//!
//! The system's file events only trigger an early check. Changes are found by comparing
//! fingerprints, which is also done every two seconds. This covers folders that are replaced by a
//! rename or a symbolic link, as Kubernetes and git-sync do, and file systems without events.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

mod fingerprint;

use fingerprint::{Depth, Digests, Fingerprint};

/// The times of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Quiet time after the last file event before a change counts as settled.
    pub quiet_period: Duration,
    /// Longest wait for the quiet time.
    pub max_delay: Duration,
    /// Time between two checks without an event.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            quiet_period: Duration::from_millis(200),
            max_delay: Duration::from_secs(2),
            poll: Duration::from_secs(2),
        }
    }
}

/// Whether the system's file events are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvents {
    /// They are used where the system has them.
    IfAvailable,
    /// They are not used: check every [`Timing::poll`], contents included.
    Never,
}

/// A running watch; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<()>,
}

impl Watch {
    /// Waits for the next settled change. Changes while nobody waits count as one. `None` when the
    /// watch has ended.
    ///
    /// Cancel safe.
    pub async fn changed(&mut self) -> Option<()> {
        self.changes.recv().await
    }
}

/// Watches folders and files; they need not exist yet.
///
/// Changes are compared with the state when this returns, so read the files *after* it: a change in
/// between is reported. Hidden files and folders do not count. Must be called inside a Tokio
/// runtime.
pub async fn watch(paths: Vec<PathBuf>, timing: Timing, events: FileEvents) -> Watch {
    let (sender, changes) = mpsc::channel(1);
    let paths: Arc<[PathBuf]> = paths.into();
    let (hint, mut hints) = mpsc::channel(1);
    let mut watcher = listen(&paths, hint.clone(), events);
    let digests = Arc::default();
    let mut last = take_fingerprint(&paths, depth(watcher.as_ref()), &digests).await;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                _ = hints.recv() => settle(&mut hints, timing).await,
                () = tokio::time::sleep(timing.poll) => {}
            }
            let now = take_fingerprint(&paths, depth(watcher.as_ref()), &digests).await;
            if now.is_none() || now == last {
                continue;
            }
            // Folders may have been replaced; the old ones send no more events.
            watcher = listen(&paths, hint.clone(), events);
            last = now;
            // A full channel already says "changed"; a closed one ends the loop.
            let _ = sender.try_send(());
        }
    });
    Watch { changes }
}

/// Watches a counter of changes instead of files. Several changes within [`Timing`] count as one.
/// [`Timing::poll`] has no effect.
pub(crate) fn watch_counter(mut count: tokio::sync::watch::Receiver<u64>, timing: Timing) -> Watch {
    let (sender, changes) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                changed = count.changed() => if changed.is_err() { return },
            }
            let quiet = async {
                // An error means the end, which the loop also notices.
                while let Ok(Ok(())) = tokio::time::timeout(timing.quiet_period, count.changed()).await {}
            };
            let _ = tokio::time::timeout(timing.max_delay, quiet).await;
            // A full channel already says "changed"; a closed one ends the loop.
            let _ = sender.try_send(());
        }
    });
    Watch { changes }
}

async fn settle(hints: &mut mpsc::Receiver<()>, timing: Timing) {
    let quiet = async { while tokio::time::timeout(timing.quiet_period, hints.recv()).await.is_ok() {} };
    let _ = tokio::time::timeout(timing.max_delay, quiet).await;
}

async fn take_fingerprint(paths: &Arc<[PathBuf]>, depth: Depth, digests: &Arc<Mutex<Digests>>) -> Option<Fingerprint> {
    let (paths, digests) = (Arc::clone(paths), Arc::clone(digests));
    // A failed check is not a change; the next one comes soon.
    tokio::task::spawn_blocking(move || {
        let mut digests = digests.lock().unwrap_or_else(PoisonError::into_inner);
        fingerprint::take(&paths, depth, &mut digests)
    })
    .await
    .ok()
}

fn depth(watcher: Option<&RecommendedWatcher>) -> Depth {
    match watcher {
        Some(_) => Depth::Metadata,
        None => Depth::Contents,
    }
}

/// The system's file events, which stop when the watcher is dropped; `None` if there are none.
fn listen(paths: &[PathBuf], hint: mpsc::Sender<()>, events: FileEvents) -> Option<RecommendedWatcher> {
    if events == FileEvents::Never {
        return None;
    }
    let watcher = try_listen(paths, hint).inspect_err(|error| {
        tracing::warn!(%error, "no file events, files are compared every few seconds instead");
    });
    watcher.ok()
}

fn try_listen(paths: &[PathBuf], hint: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // The reads of a check are events too, and would bring about the next check without end.
        let read_only = event.is_ok_and(|event| event.kind.is_access());
        if !read_only {
            // A full channel already holds a hint.
            let _ = hint.try_send(());
        }
    })?;
    for path in paths.iter().filter(|path| path.exists()) {
        watcher.watch(path, RecursiveMode::Recursive)?;
        // A file is replaced by a rename, which ends the watch of the old inode: only its folder tells of it.
        if let Some(parent) = path.parent().filter(|_| path.is_file()) {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            watcher.watch(parent, RecursiveMode::NonRecursive)?;
        }
    }
    Ok(watcher)
}

#[cfg(test)]
mod tests;
