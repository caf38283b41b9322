//! What all slots share: their list, their tasks and revocations, and the limits over all of them.
//! If there are too many credentials, the least recently used are evicted.
//!
//! Invariant: no more mints run at once than allowed, and no task outlives the cache.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use secrecy::SecretString;
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::Mint;
use super::clock::Clock;
use super::key::CredentialKey;
use super::slot::Slot;
use super::{Settings, locked};

const MAX_CONCURRENT_REVOCATIONS: usize = 16;

#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) slots: Mutex<HashMap<CredentialKey, Arc<Slot>>>,
    /// Credentials in memory, over all slots.
    pub(super) live: AtomicUsize,
    pub(super) mint_permits: Semaphore,
    /// Cancelled once: mints end, nothing new begins.
    pub(super) stop: CancellationToken,
    revocation_permits: Semaphore,
    runtime: Handle,
    /// None once the cache has ended.
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl SharedState {
    pub(super) fn new(settings: Settings, clock: Arc<dyn Clock>, runtime: Handle) -> Self {
        Self {
            mint_permits: Semaphore::new(settings.max_concurrent_mints.max(1)),
            settings,
            clock,
            slots: Mutex::default(),
            live: AtomicUsize::new(0),
            stop: CancellationToken::new(),
            revocation_permits: Semaphore::new(MAX_CONCURRENT_REVOCATIONS),
            runtime,
            tasks: Mutex::new(Some(JoinSet::new())),
        }
    }

    /// Makes the cache's runtime the one on which tasks start.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Starts a task that ends with the cache; none once it has ended.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = locked(&self.tasks).as_mut() {
            while tasks.try_join_next().is_some() {}
            tasks.spawn_on(task, &self.runtime);
        }
    }

    pub(super) fn revoke(self: &Arc<Self>, key: CredentialKey, mint: Arc<dyn Mint>, revocation: SecretString) {
        let shared = Arc::clone(self);
        self.spawn(async move {
            let Ok(_permit) = shared.revocation_permits.acquire().await else {
                return;
            };
            let guarded = AssertUnwindSafe(async move { mint.revoke(revocation).await }).catch_unwind();
            let why = match tokio::time::timeout(shared.settings.revoke_timeout, guarded).await {
                Ok(Ok(Ok(()))) => return,
                Ok(Ok(Err(error))) => error.code,
                Ok(Err(_)) => "host.panic".to_owned(),
                Err(_) => "host.timeout".to_owned(),
            };
            tracing::warn!(key = ?key, code = %why, "a credential could not be revoked; it ends by itself");
        });
    }

    /// Evicts the least recently used credentials above [`Settings::max_live`].
    pub(super) fn evict_excess(self: &Arc<Self>) {
        let most = self.settings.max_live;
        let over = self.live.load(Ordering::Relaxed).saturating_sub(most);
        if over == 0 {
            return;
        }
        let mut by_use: Vec<_> = {
            let slots = locked(&self.slots);
            let live = slots.values().filter(|slot| slot.is_live());
            live.map(|slot| (slot.last_used(), Arc::clone(slot))).collect()
        };
        by_use.sort_by_key(|(used, _)| *used);
        for (_, slot) in by_use.into_iter().take(over) {
            slot.empty();
        }
    }

    /// Empties slots that were not used for long or whose credential has expired.
    pub(super) fn sweep(&self) {
        let slots: Vec<_> = locked(&self.slots).values().cloned().collect();
        let now = self.clock.now();
        let idle_timeout = u64::try_from(self.settings.idle_timeout.as_millis()).unwrap_or(u64::MAX);
        for slot in slots {
            let unused = now.millis().saturating_sub(slot.last_used()) >= idle_timeout;
            if slot.is_live() && (unused || !slot.is_usable(now)) {
                slot.empty();
            }
        }
    }

    /// Waits for every task, and drops those that take too long. Returns whether all of them
    /// completed.
    pub(super) async fn join_tasks(&self, within: Duration) -> bool {
        let all = poll_fn(|context| {
            loop {
                let mut tasks = locked(&self.tasks);
                match tasks.as_mut().map(|tasks| tasks.poll_join_next(context)) {
                    Some(Poll::Pending) => return Poll::Pending,
                    Some(Poll::Ready(Some(_))) => {}
                    None | Some(Poll::Ready(None)) => return Poll::Ready(()),
                }
            }
        });
        let ended = tokio::time::timeout(within, all).await.is_ok();
        // Dropping the set aborts what is left.
        let left = locked(&self.tasks).take();
        drop(left);
        ended
    }
}
