//! Caches credentials while they are valid, and renews them before they expire.
//!
//! Invariant: no two mints of one key run at once.
//!
//! Security: no secret reaches a log, and no credential reaches the disk.
//!
//! Invariant: a mint is a task of the cache, not of the request that asked first.

pub mod backoff;
pub mod clock;
pub mod health;
mod in_flight;
pub mod key;
pub mod lifetime;
mod shared;
mod slot;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use tollgate_config::MAX_RENEW_AFTER;
use tollgate_runtime::tasks::Tasks;

use super::{Mint, MintError};
use backoff::Jitter;
use clock::Clock;
use health::Totals;
use key::CredentialKey;
use shared::SharedState;

pub use slot::{Lease, Slot};

/// How often idle and expired credentials are dropped.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Why there is no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Minting failed, now or a moment ago. `retry_after` is the time until
    /// the next attempt.
    #[error("the cluster's provider gave no credential")]
    Mint(#[source] MintError),
    /// The request's deadline came before the end of the mint.
    #[error("the cluster's provider gave no credential in the request's time")]
    Timeout,
    /// The inputs of the credential changed or were removed, or the gateway is stopping.
    #[error("the cluster's configuration changed, or the gateway is stopping: its credential is not minted")]
    Stopped,
}

/// Limits of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long one mint may take.
    pub mint_budget: Duration,
    /// How many mints run at once, over all slots.
    pub max_concurrent_mints: usize,
    /// How many credentials are kept. Above it, the least recently used is evicted.
    pub max_live: usize,
    /// How long an unused credential is kept.
    pub idle_timeout: Duration,
    /// Time limit of one revocation in the background, and of all together when the gateway stops.
    pub revoke_timeout: Duration,
    /// How long a credential is used before it is renewed, even if it would live longer. At most
    /// [`MAX_RENEW_AFTER`].
    pub renew_after: Duration,
    /// Whether renewals and retries are randomized.
    pub jitter: Jitter,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mint_budget: Duration::from_secs(10),
            max_concurrent_mints: 16,
            max_live: 10_000,
            idle_timeout: Duration::from_secs(3600),
            revoke_timeout: Duration::from_secs(5),
            renew_after: MAX_RENEW_AFTER,
            jitter: Jitter::Random,
        }
    }
}

/// All credentials of the gateway. There is one cache in a process. It survives reloads, and so do
/// the slots whose key stays the same.
#[derive(Debug)]
pub struct CredentialCache {
    shared: Arc<SharedState>,
    /// The task that forgets credentials. It ends with the cache.
    pub tasks: Tasks,
}

impl CredentialCache {
    /// An empty cache whose tasks run on a runtime.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>, runtime: Handle) -> Self {
        let shared = Arc::new(SharedState::new(settings, clock, runtime));
        let (weak, stop) = (Arc::downgrade(&shared), shared.stop.clone());
        let tasks = Tasks::default();
        let _entered = shared.enter();
        tasks.spawn("sweep of credentials", async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(SWEEP_EVERY) => {}
                }
                let Some(shared) = weak.upgrade() else { return };
                shared.sweep();
            }
        });
        Self { shared, tasks }
    }

    /// The slot of a key, created if there is none. Call this once for each snapshot and keep the
    /// slot: [`Slot::get`] then needs no lookup.
    ///
    /// An existing slot mints with `mint` from now on.
    pub fn slot(&self, key: CredentialKey, mint: Arc<dyn Mint>) -> Arc<Slot> {
        let mut slots = locked(&self.shared.slots);
        if let Some(slot) = slots.get(&key) {
            slot.mint_with(mint);
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot::new(key, mint, &self.shared));
        if self.shared.stop.is_cancelled() {
            slot.close();
        } else {
            slots.insert(key, Arc::clone(&slot));
        }
        slot
    }

    /// Closes every slot whose key is not in `wanted`. Their requests get [`Error::Stopped`], their
    /// credentials are revoked and dropped, and credentials of their mints in progress are revoked
    /// too. Call it after the new snapshot has become the current one.
    pub fn retain(&self, wanted: &HashSet<CredentialKey>) {
        let unwanted: Vec<_> = {
            let mut slots = locked(&self.shared.slots);
            slots.extract_if(|key, _| !wanted.contains(key)).collect()
        };
        for (_, slot) in unwanted {
            slot.close();
        }
    }

    /// Sums over all slots.
    pub fn totals(&self) -> Totals {
        Totals {
            slots: locked(&self.shared.slots).len(),
            live: self.shared.live.load(Ordering::Relaxed),
            free_mints: self.shared.mint_permits.available_permits(),
        }
    }

    /// Cancels every mint, closes every slot and revokes the remaining credentials, all within
    /// [`Settings::revoke_timeout`]. Returns whether all revocations completed.
    pub async fn shutdown(&self) -> bool {
        self.shared.stop.cancel();
        let slots: Vec<_> = locked(&self.shared.slots).drain().collect();
        for (_, slot) in slots {
            slot.close();
        }
        self.shared.join_tasks(self.shared.settings.revoke_timeout).await
    }
}

impl Drop for CredentialCache {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Locks a value and ignores poisoning. The value is consistent even after a panic, because no code
/// of a plugin or a provider runs under these locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
