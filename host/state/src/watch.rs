//! Says when files below some folders have changed.
//!
//! In: folders or files. Out: one signal for each settled change. Never: what
//! changed (the reader looks at everything again), a signal without a change.
//!
//! The system's file events are only a hint to look at once; what counts is a
//! fingerprint, taken every two seconds in any case. Folders that are replaced
//! by a rename or a symbolic link, as Kubernetes and git-sync do, and file
//! systems without events are therefore covered too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

mod fingerprint;

use fingerprint::{Depth, Fingerprint};

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Quiet time after the last file event before a change counts as settled.
    pub settle: Duration,
    /// Longest wait for quiet.
    pub patience: Duration,
    /// Time between two looks without any event.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(200),
            patience: Duration::from_secs(2),
            poll: Duration::from_secs(2),
        }
    }
}

/// Whether the system's file events are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Where the system has them.
    WherePossible,
    /// Never: look every [`Timing::poll`], contents included.
    Never,
}

/// A running watch; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<()>,
}

impl Watch {
    /// Waits for the next settled change; several are one when nobody waits.
    /// `None` when the watch has ended.
    ///
    /// Cancel safe.
    pub async fn changed(&mut self) -> Option<()> {
        self.changes.recv().await
    }
}

/// Watches folders and files; they need not exist yet.
///
/// The comparison begins with what is there when this returns, so read them
/// *after* it: a change in between is reported. Hidden files and folders do
/// not count. Must be called inside a Tokio runtime.
pub async fn watch(paths: Vec<PathBuf>, timing: Timing, events: Events) -> Watch {
    let (sender, changes) = mpsc::channel(1);
    let paths: Arc<[PathBuf]> = paths.into();
    let (hint, hints) = mpsc::channel(1);
    let source = Source::start(&paths, hint.clone(), events);
    let last = look(&paths, &source).await;
    tokio::spawn(run(
        Task {
            paths,
            timing,
            events,
            hint,
            source,
            last,
        },
        hints,
        sender,
    ));
    Watch { changes }
}

/// A watch of something else than files, which counts its changes up; several
/// changes within [`Timing`] are one. [`Timing::poll`] has no meaning.
pub(crate) fn follow(mut count: tokio::sync::watch::Receiver<u64>, timing: Timing) -> Watch {
    let (sender, changes) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                changed = count.changed() => if changed.is_err() { return },
            }
            let quiet = async {
                // An error is the end, which the loop sees too.
                while let Ok(Ok(())) = tokio::time::timeout(timing.settle, count.changed()).await {}
            };
            let _ = tokio::time::timeout(timing.patience, quiet).await;
            // A full channel already says "changed"; a closed one ends the loop.
            let _ = sender.try_send(());
        }
    });
    Watch { changes }
}

struct Task {
    paths: Arc<[PathBuf]>,
    timing: Timing,
    events: Events,
    hint: mpsc::Sender<()>,
    source: Source,
    last: Option<Fingerprint>,
}

async fn run(mut task: Task, mut hints: mpsc::Receiver<()>, changes: mpsc::Sender<()>) {
    loop {
        tokio::select! {
            () = changes.closed() => return,
            _ = hints.recv() => settle(&mut hints, task.timing).await,
            () = tokio::time::sleep(task.timing.poll) => {}
        }
        let now = look(&task.paths, &task.source).await;
        if now.is_none() || now == task.last {
            continue;
        }
        // Folders may have been replaced: events of the old ones end here.
        task.source = Source::start(&task.paths, task.hint.clone(), task.events);
        task.last = now;
        // A full channel already says "changed"; a closed one ends the loop.
        let _ = changes.try_send(());
    }
}

/// Waits until no event came for a while.
async fn settle(hints: &mut mpsc::Receiver<()>, timing: Timing) {
    let quiet = async { while tokio::time::timeout(timing.settle, hints.recv()).await.is_ok() {} };
    let _ = tokio::time::timeout(timing.patience, quiet).await;
}

async fn look(paths: &Arc<[PathBuf]>, source: &Source) -> Option<Fingerprint> {
    let paths = paths.clone();
    let depth = match source {
        Source::Events(_) => Depth::Metadata,
        Source::Polling => Depth::Contents,
    };
    // A look that fails is no change; the next one comes soon.
    tokio::task::spawn_blocking(move || fingerprint::take(&paths, depth))
        .await
        .ok()
}

/// Where hints come from.
enum Source {
    /// Kept alive for its events.
    Events(#[expect(dead_code, reason = "events stop when it is dropped")] RecommendedWatcher),
    Polling,
}

impl Source {
    fn start(paths: &[PathBuf], hint: mpsc::Sender<()>, events: Events) -> Self {
        if events == Events::Never {
            return Self::Polling;
        }
        match listen(paths, hint) {
            Ok(watcher) => Self::Events(watcher),
            Err(error) => {
                tracing::warn!(%error, "no file events, files are compared every few seconds instead");
                Self::Polling
            }
        }
    }
}

fn listen(paths: &[PathBuf], hint: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let read_only = event.is_ok_and(|event| event.kind.is_access());
        if !read_only {
            // A full channel already holds a hint.
            let _ = hint.try_send(());
        }
    })?;
    for path in paths.iter().filter(|path| path.exists()) {
        watcher.watch(path, RecursiveMode::Recursive)?;
        if let Some(parent) = path.parent().filter(|_| path.is_file()) {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            watcher.watch(parent, RecursiveMode::NonRecursive)?;
        }
    }
    Ok(watcher)
}

#[cfg(test)]
mod tests;
