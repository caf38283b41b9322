//! One mint in progress. It is a task of the cache, not of the request that needed it, and its
//! outcome goes to all its waiters.
//!
//! Invariant: a client that disconnects does not end the mint, and a panic does not leave requests
//! waiting.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::super::{Credential, Mint, MintError, MintErrorClass, MintRequest};
use super::locked;
use super::shared::SharedState;
use super::slot::{Lease, Slot};

/// How much longer than its budget a mint may take before it is dropped. This lets a mint that
/// checks its own budget report the timeout itself.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LeaseSharing {
    /// Everyone who waits for the slot.
    #[default]
    Shared,
    /// One request: each credential of the slot serves one.
    SingleUse,
}

#[derive(Clone, Debug)]
pub(super) enum MintOutcome {
    /// A credential for all of them.
    Shared(Lease),
    /// A credential for the first of them.
    SingleUseLease(Arc<SingleUseLease>),
    Failed(MintError),
    Stopped,
}

/// A lease for one request. If nobody takes it, its credential is revoked.
#[derive(Debug)]
pub(super) struct SingleUseLease {
    lease: Mutex<Option<Lease>>,
    slot: Weak<Slot>,
}

impl SingleUseLease {
    pub(super) fn new(lease: Lease, slot: &Arc<Slot>) -> Self {
        Self {
            lease: Mutex::new(Some(lease)),
            slot: Arc::downgrade(slot),
        }
    }

    /// The lease, for the first request that asks.
    pub(super) fn take(&self) -> Option<Lease> {
        locked(&self.lease).take()
    }
}

impl Drop for SingleUseLease {
    fn drop(&mut self) {
        if let (Some(lease), Some(slot)) = (self.take(), self.slot.upgrade()) {
            slot.revoke(&lease.credential);
        }
    }
}

/// A mint in progress. Its waiters are the subscribers.
pub(super) type InFlightMint = watch::Sender<Option<MintOutcome>>;

/// Notifies all waiters. Only the first outcome counts.
pub(super) fn finish(in_flight: &InFlightMint, outcome: MintOutcome) {
    in_flight.send_if_modified(|stored| {
        let is_first = stored.is_none();
        stored.get_or_insert(outcome);
        is_first
    });
}

pub(super) async fn run_mint(
    slot: Arc<Slot>,
    shared: Arc<SharedState>,
    in_flight: Arc<InFlightMint>,
    request: MintRequest,
) {
    let work = async {
        // Many slots become due at once after a start; their mints queue here.
        let permit = shared.mint_permits.acquire().await;
        let mint = slot.mint_if_open()?;
        let started = slot.now();
        let result = run(mint, request).await;
        drop(permit);
        Some((started, result))
    };
    let completion = tokio::select! {
        biased;
        completion = work => completion,
        () = shared.stop.cancelled() => None,
    };
    match completion {
        Some((started, result)) => slot.complete_mint(&shared, &in_flight, started, result),
        None => slot.abort_mint(&in_flight),
    }
    shared.evict_excess();
}

/// Calls the mint. A panic or a timeout becomes its error.
async fn run(mint: Arc<dyn Mint>, request: MintRequest) -> Result<Credential, MintError> {
    let limit = request.budget.saturating_add(GRACE);
    let guarded = AssertUnwindSafe(async move { mint.mint(request).await }).catch_unwind();
    let failed = |code, message: &str| Err(MintError::new(MintErrorClass::Retryable, code, message));
    match tokio::time::timeout(limit, guarded).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => failed("host.panic", "the gateway failed while it asked for a credential"),
        Err(_) => {
            let message = format!("no credential within {} ms", request.budget.as_millis());
            failed("host.timeout", &message)
        }
    }
}
