//! Runs what takes long away from the threads that serve requests, a few at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::Denial;
use tollgate_proxy::forward::LimitPermit;

/// Pieces of work at once.
const MAX_WORK: usize = 4;
/// Those among them that run a policy for a caller who tries it, which may take all their time.
const MAX_POLICY_RUNS: usize = 2;

/// Clones share their bounds.
#[derive(Clone, Debug)]
pub struct BlockingWork {
    slots: Arc<Semaphore>,
    /// Bounds how many of them run a policy.
    pub policy_runs: Arc<Semaphore>,
}

impl Default for BlockingWork {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(MAX_WORK)),
            policy_runs: Arc::new(Semaphore::new(MAX_POLICY_RUNS)),
        }
    }
}

impl BlockingWork {
    /// - `held`: what the caller may do no more of at once; held until the work ends, even if its
    ///   caller stops waiting.
    ///
    /// # Errors
    /// [`Denial::panicked`].
    pub async fn run<T: Send + 'static>(
        &self,
        held: LimitPermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Denial> {
        // Fails only if the semaphore is closed, which it never is.
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let working = tokio::task::spawn_blocking(move || {
            let _held = (held, slot);
            work()
        });
        working.await.map_err(|_| Denial::panicked())
    }
}
