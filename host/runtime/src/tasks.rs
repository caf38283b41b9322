//! Long-lived tasks, whose end somebody notices.
//!
//! Invariant: a task that panics or returns is reported to its owner, who ends the process or begins again.
//! A task that ended in silence would leave the gateway running in part: with an old configuration, or
//! without the end of what was revoked.

use tokio::sync::watch;

/// The tasks of one part of the process. Clones are the same tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    first_ended: watch::Sender<Option<&'static str>>,
}

/// Reports the end of a task when it is dropped, which a panic does as well.
struct EndGuard {
    name: &'static str,
    first_ended: watch::Sender<Option<&'static str>>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.first_ended.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(self.name);
            is_first
        });
    }
}

impl Tasks {
    /// Starts a task that ends only when what it works for is dropped.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let first_ended = self.first_ended.clone();
        let guard = EndGuard { name, first_ended };
        tokio::spawn(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// Waits until one of the tasks has ended, and returns its name. Cancel safe.
    pub async fn ended(&self) -> &'static str {
        let mut first_ended = self.first_ended.subscribe();
        let ended = first_ended.wait_for(Option::is_some).await;
        match ended.ok().and_then(|first| *first) {
            Some(name) => name,
            // This value has a sender, so the channel is open.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::Tasks;

    #[tokio::test]
    async fn a_task_that_panics_or_returns_is_noticed() {
        let tasks = Tasks::default();
        tasks.spawn("lives", pending());
        tokio::task::yield_now().await;
        assert!(
            timeout(Duration::ZERO, tasks.ended()).await.is_err(),
            "a task that runs is no end"
        );
        tasks.clone().spawn("panics", async { panic!("on purpose") });
        assert_eq!(tasks.ended().await, "panics");
        tasks.spawn("returns", async {});
        assert_eq!(tasks.ended().await, "panics", "the first one stays");
        let others = Tasks::default();
        others.spawn("returns", async {});
        assert_eq!(others.ended().await, "returns");
    }
}
