//! One credential of the cache. A request gets a lease of a credential that may be used now. After
//! a 401 of the cluster, it passes the lease's generation back and gets another credential.
//!
//! Invariant: a request for a credential that is present takes no lock, searches nothing and
//! allocates nothing.

mod completion;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::super::{Credential, Mint, MintError, MintReason, MintRequest};
use super::clock::{Clock, Moment};
use super::health::{Health, LastError, SlotStatus};
use super::in_flight::{self, InFlightMint, LeaseSharing, MintOutcome};
use super::key::{CredentialKey, fingerprint};
use super::lifetime::Deadlines;
use super::shared::SharedState;
use super::{Error, locked};

/// Minimum time between two mints forced by a 401.
pub(super) const FORCED_MINT_INTERVAL: Duration = Duration::from_secs(10);

/// A credential handed to one request.
#[derive(Clone, Debug)]
pub struct Lease {
    /// What to show the cluster.
    pub credential: Arc<Credential>,
    /// Its number in its slot, from 1. Pass it back when the cluster answers 401.
    pub generation: u64,
}

#[derive(Debug)]
struct CurrentCredential {
    lease: Lease,
    deadlines: Deadlines,
    /// When the request for it started.
    minted: Moment,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lifecycle {
    #[default]
    Open,
    Closed,
}

#[derive(Debug)]
struct FailureBackoff {
    error: MintError,
    /// How many failures of its class came in a row.
    nth: u32,
    until: Moment,
}

#[derive(Debug, Default)]
struct MintCounters {
    mints: u64,
    failed: u64,
    last_mint: Option<Duration>,
    last_error: Option<LastError>,
}

#[derive(Debug, Default)]
struct SlotState {
    lifecycle: Lifecycle,
    /// Whether waiters share the credential of the last mint.
    sharing: LeaseSharing,
    generation: u64,
    in_flight: Option<Arc<InFlightMint>>,
    /// The credential that the cluster rejected, until the mint forced by the 401 completes.
    rejected: Option<Arc<CurrentCredential>>,
    last_forced_mint: Option<Moment>,
    backoff_state: Option<FailureBackoff>,
    counters: MintCounters,
}

impl SlotState {
    /// The last failure, while no mint may follow it yet.
    fn active_backoff(&self, now: Moment) -> Option<&FailureBackoff> {
        self.backoff_state.as_ref().filter(|it| !now.is_at_or_after(it.until))
    }
}

/// What a request gets that finds no cached credential: a lease, or a mint to wait for.
enum Acquisition {
    Ready(Lease),
    Wait(tokio::sync::watch::Receiver<Option<MintOutcome>>),
}

/// What follows a 401 of the cluster.
enum UnauthorizedAction {
    /// Another credential would not help, or it is too soon for one.
    NoRetry,
    UseNewer(Lease),
    Wait,
}

/// The credential of one [`CredentialKey`]. The clusters of a snapshot hold their slots.
#[derive(derive_more::Debug)]
#[debug("Slot {{ key: {key:?}, .. }}")]
pub struct Slot {
    /// Its key.
    pub key: CredentialKey,
    clock: Arc<dyn Clock>,
    shared: Weak<SharedState>,
    current: ArcSwapOption<CurrentCredential>,
    /// When it was last asked for, in the clock's milliseconds.
    last_used_ms: AtomicU64,
    /// Time before which no background renewal starts, in the clock's milliseconds. `u64::MAX`
    /// while a mint is in progress.
    renew_not_before_ms: AtomicU64,
    mint: Mutex<Arc<dyn Mint>>,
    // INVARIANT: `current` is stored under this lock only, so that the number
    // of live credentials is right.
    state: Mutex<SlotState>,
}

impl Slot {
    pub(super) fn new(key: CredentialKey, mint: Arc<dyn Mint>, shared: &Arc<SharedState>) -> Self {
        let clock = Arc::clone(&shared.clock);
        Self {
            key,
            last_used_ms: AtomicU64::new(clock.now().millis()),
            clock,
            shared: Arc::downgrade(shared),
            current: ArcSwapOption::const_empty(),
            renew_not_before_ms: AtomicU64::new(0),
            mint: Mutex::new(mint),
            state: Mutex::default(),
        }
    }

    /// The current credential, if it may be used now. Never waits. Renews it in the background if
    /// it expires soon.
    pub fn cached(self: &Arc<Self>) -> Option<Lease> {
        let now = self.now();
        let millis = now.millis();
        // At most one store a second: a store for every request would move the cache line between
        // cores.
        if millis.saturating_sub(self.last_used_ms.load(Ordering::Relaxed)) >= 1000 {
            self.last_used_ms.store(millis, Ordering::Relaxed);
        }
        let current = self.current.load();
        let current = current.as_ref()?;
        if !current.deadlines.is_usable(now) {
            return None;
        }
        if current.deadlines.is_renewal_due(now) && millis >= self.renew_not_before_ms.load(Ordering::Relaxed) {
            self.renew(now);
        }
        Some(current.lease.clone())
    }

    /// A credential that may be used now: the current one, or the result of a mint that this call
    /// starts or joins.
    ///
    /// The mint continues if the caller goes away.
    ///
    /// # Errors
    /// [`Error::Mint`]: minting failed, now or so recently that its backoff lasts.
    /// [`Error::Timeout`]: `deadline` came first. [`Error::Stopped`]: the slot is closed; a newer
    /// snapshot may have another.
    ///
    /// Cancel safe.
    pub async fn get(self: &Arc<Self>, deadline: Instant) -> Result<Lease, Error> {
        match self.cached() {
            Some(lease) => Ok(lease),
            None => tokio::time::timeout_at(deadline, self.wait())
                .await
                .unwrap_or(Err(Error::Timeout)),
        }
    }

    /// The credential for one more attempt after the cluster answered 401 to the credential of
    /// `generation`. `None` if another attempt makes no sense.
    ///
    /// A 401 counts only against the current credential, and forces at most one mint in ten
    /// seconds. A cluster that rejects everything is therefore still asked with the current
    /// credential. Until the forced mint completes, no request gets the rejected credential. If
    /// that mint fails because the provider cannot be reached, the credential is used again: the
    /// cluster may have had another reason.
    ///
    /// # Errors
    /// As [`Slot::get`].
    ///
    /// Cancel safe.
    pub async fn lease_after_unauthorized(
        self: &Arc<Self>,
        generation: u64,
        deadline: Instant,
    ) -> Result<Option<Lease>, Error> {
        match self.handle_unauthorized(generation, self.now())? {
            UnauthorizedAction::NoRetry => Ok(None),
            UnauthorizedAction::UseNewer(lease) => Ok(Some(lease)),
            UnauthorizedAction::Wait => {
                let lease = self.get(deadline).await?;
                Ok((lease.generation != generation).then_some(lease))
            }
        }
    }

    /// The state of the slot.
    pub fn health(&self) -> Health {
        let now = self.now();
        let current = self.usable(now);
        let state = locked(&self.state);
        let standing = match (state.lifecycle, &current, &state.backoff_state) {
            (Lifecycle::Closed, _, _) => SlotStatus::Closed,
            (Lifecycle::Open, Some(_), None) => SlotStatus::Usable,
            (Lifecycle::Open, Some(_), Some(_)) => SlotStatus::Stale,
            (Lifecycle::Open, None, Some(_)) => SlotStatus::Failing,
            (Lifecycle::Open, None, None) => SlotStatus::Idle,
        };
        let credential = current.as_ref().map(|it| &it.lease.credential);
        Health {
            standing,
            generation: state.generation,
            fingerprint: credential.and_then(|it| it.token.as_ref().map(|token| fingerprint(token.expose()))),
            minted_at: current.as_ref().map(|it| it.minted.wall),
            expires_at: credential.and_then(|it| it.expires_at),
            refresh_at: current.as_ref().map(|it| it.deadlines.refresh.wall),
            last_mint_seconds: state.counters.last_mint.map(|took| took.as_secs_f64()),
            mints: state.counters.mints,
            failed: state.counters.failed,
            last_error: state.counters.last_error.clone(),
            next_attempt: state.active_backoff(now).map(|it| it.until.wall),
            warnings: credential.map(|it| it.warnings.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn last_used(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    pub(super) fn is_live(&self) -> bool {
        self.current.load().is_some()
    }

    pub(super) fn is_usable(&self, now: Moment) -> bool {
        self.usable(now).is_some()
    }

    fn usable(&self, now: Moment) -> Option<Arc<CurrentCredential>> {
        self.current.load_full().filter(|it| it.deadlines.is_usable(now))
    }

    pub(super) fn mint_with(&self, mint: Arc<dyn Mint>) {
        *locked(&self.mint) = mint;
    }

    pub(super) fn mint_if_open(&self) -> Option<Arc<dyn Mint>> {
        let open = locked(&self.state).lifecycle == Lifecycle::Open;
        open.then(|| Arc::clone(&locked(&self.mint)))
    }

    /// Drops the current credential. The next request mints.
    pub(super) fn empty(&self) {
        let gone = self.install(&mut locked(&self.state), None);
        if let Some(gone) = gone {
            self.revoke(&gone.lease.credential);
        }
    }

    pub(super) fn close(&self) {
        let (in_flight, gone, rejected) = {
            let mut state = locked(&self.state);
            state.lifecycle = Lifecycle::Closed;
            let gone = self.install(&mut state, None);
            (state.in_flight.take(), gone, state.rejected.take())
        };
        for gone in [gone, rejected].into_iter().flatten() {
            self.revoke(&gone.lease.credential);
        }
        if let Some(in_flight) = in_flight {
            in_flight::finish(&in_flight, MintOutcome::Stopped);
        }
    }

    /// Revokes a credential at its provider in the background, if it can be revoked and has not
    /// expired.
    pub(super) fn revoke(&self, credential: &Credential) {
        let over = credential.expires_at.is_some_and(|end| end <= self.now().wall);
        let Some(revocation) = credential.revocation.clone().filter(|_| !over) else {
            return;
        };
        if let Some(shared) = self.shared.upgrade() {
            shared.revoke(self.key, Arc::clone(&locked(&self.mint)), revocation);
        }
    }

    /// Waits for a mint, and for another one if its only credential went to another request.
    async fn wait(self: &Arc<Self>) -> Result<Lease, Error> {
        loop {
            let mut outcome = match self.acquire(self.now())? {
                Acquisition::Ready(lease) => return Ok(lease),
                Acquisition::Wait(outcome) => outcome,
            };
            let outcome = outcome.wait_for(Option::is_some).await;
            // An error means that the task is gone: the runtime ends.
            let outcome = outcome.ok().and_then(|outcome| outcome.clone());
            match outcome {
                Some(MintOutcome::Shared(lease)) => return Ok(lease),
                Some(MintOutcome::SingleUseLease(single)) => {
                    if let Some(lease) = single.take() {
                        return Ok(lease);
                    }
                }
                // The rejected credential may be in use again.
                Some(MintOutcome::Failed(error)) => return self.cached().ok_or(Error::Mint(error)),
                Some(MintOutcome::Stopped) | None => return Err(Error::Stopped),
            }
        }
    }

    /// Takes a lease, or joins or starts a mint.
    fn acquire(self: &Arc<Self>, now: Moment) -> Result<Acquisition, Error> {
        let mut state = locked(&self.state);
        if state.lifecycle == Lifecycle::Closed {
            return Err(Error::Stopped);
        }
        if let Some(current) = self.usable(now) {
            return Ok(Acquisition::Ready(current.lease.clone()));
        }
        if let Some(backoff) = state.active_backoff(now) {
            let mut error = backoff.error.clone();
            error.retry_after = Some(backoff.until.since(now));
            return Err(Error::Mint(error));
        }
        if let Some(in_flight) = &state.in_flight {
            return Ok(Acquisition::Wait(in_flight.subscribe()));
        }
        let sharing = state.sharing;
        let in_flight = self.start_mint(&mut state, sharing, MintReason::Initial)?;
        Ok(Acquisition::Wait(in_flight))
    }

    /// Starts a mint before the current credential expires.
    #[cold]
    fn renew(self: &Arc<Self>, now: Moment) {
        // The holder of the lock is renewing, or will soon be done. This request has its
        // credential, so it does not wait.
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        let current = self.current.load();
        let due = current.as_ref().is_some_and(|it| it.deadlines.is_renewal_due(now));
        let may_renew = now.millis() >= self.renew_not_before_ms.load(Ordering::Relaxed);
        if due && may_renew && state.lifecycle == Lifecycle::Open && state.in_flight.is_none() {
            // Nobody waits for the result, and a stopping cache starts no mints.
            let _ = self.start_mint(&mut state, LeaseSharing::Shared, MintReason::Refresh);
        }
    }

    fn handle_unauthorized(self: &Arc<Self>, generation: u64, now: Moment) -> Result<UnauthorizedAction, Error> {
        let mut state = locked(&self.state);
        if state.lifecycle == Lifecycle::Closed {
            return Err(Error::Stopped);
        }
        let Some(current) = self.usable(now) else {
            // Another mint would again give a credential for one request only.
            return Ok(match state.sharing {
                LeaseSharing::Shared => UnauthorizedAction::Wait,
                LeaseSharing::SingleUse => UnauthorizedAction::NoRetry,
            });
        };
        if current.lease.generation != generation {
            return Ok(UnauthorizedAction::UseNewer(current.lease.clone()));
        }
        let is_soon = |forced: Moment| !now.is_at_or_after(forced.plus(FORCED_MINT_INTERVAL));
        if state.last_forced_mint.is_some_and(is_soon) || state.active_backoff(now).is_some() {
            return Ok(UnauthorizedAction::NoRetry);
        }
        state.last_forced_mint = Some(now);
        state.rejected = self.install(&mut state, None);
        if state.in_flight.is_none() {
            drop(self.start_mint(&mut state, LeaseSharing::Shared, MintReason::Unauthorized)?);
        }
        Ok(UnauthorizedAction::Wait)
    }

    fn start_mint(
        self: &Arc<Self>,
        state: &mut SlotState,
        sharing: LeaseSharing,
        reason: MintReason,
    ) -> Result<tokio::sync::watch::Receiver<Option<MintOutcome>>, Error> {
        let shared = self.shared.upgrade().ok_or(Error::Stopped)?;
        let in_flight = Arc::new(InFlightMint::new(None));
        let waiter = in_flight.subscribe();
        let previous = state.rejected.clone().or_else(|| self.current.load_full());
        let request = MintRequest {
            reason,
            previous_expiry: previous.and_then(|it| it.lease.credential.expires_at),
            budget: shared.settings.mint_budget,
        };
        if sharing == LeaseSharing::Shared {
            state.in_flight = Some(Arc::clone(&in_flight));
            self.renew_not_before_ms.store(u64::MAX, Ordering::Relaxed);
        }
        let task = in_flight::run_mint(Arc::clone(self), Arc::clone(&shared), in_flight, request);
        shared.spawn(task);
        Ok(waiter)
    }

    fn install(&self, _state: &mut SlotState, next: Option<Arc<CurrentCredential>>) -> Option<Arc<CurrentCredential>> {
        let more = next.is_some();
        let before = self.current.swap(next);
        if let Some(shared) = self.shared.upgrade() {
            match (before.is_some(), more) {
                (false, true) => shared.live.fetch_add(1, Ordering::Relaxed),
                (true, false) => shared.live.fetch_sub(1, Ordering::Relaxed),
                (true, true) | (false, false) => 0,
            };
        }
        before
    }
}
