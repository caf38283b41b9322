//! Applies the result of a mint to its slot: the outcome for its waiters, and the slot's next
//! state.
//!
//! Invariant: a minted credential that nobody uses is revoked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::super::{Credential, MintError, MintErrorClass};
use super::super::backoff;
use super::super::clock::Moment;
use super::super::health::LastError;
use super::super::in_flight::{InFlightMint, LeaseSharing, MintOutcome, SingleUseLease, finish};
use super::super::lifetime::{Deadlines, RenewalWindow};
use super::super::locked;
use super::super::shared::SharedState;
use super::{CurrentCredential, FailureBackoff, Lease, Lifecycle, Slot, SlotState};

/// How long a provider that returned nothing new is not asked again.
const PAUSE: Duration = Duration::from_secs(30);

/// The outcome of a mint, and a credential that nobody will use.
type CompletedMint = (MintOutcome, Option<Arc<Credential>>);

impl Slot {
    pub(in super::super) fn complete_mint(
        self: &Arc<Self>,
        shared: &SharedState,
        in_flight: &Arc<InFlightMint>,
        started: Moment,
        result: Result<Credential, MintError>,
    ) {
        let now = self.now();
        let mut state = locked(&self.state);
        let finished = self.clear(&mut state, in_flight);
        state.counters.mints += 1;
        state.counters.last_mint = Some(now.since(started));
        let (outcome, unused) = match (state.lifecycle, result) {
            (Lifecycle::Open, Ok(credential)) => self.accept(&mut state, shared, in_flight, started, credential),
            (Lifecycle::Open, Err(error)) => self.fail(&mut state, shared, error, now),
            (Lifecycle::Closed, result) => (MintOutcome::Stopped, result.ok().map(Arc::new)),
        };
        drop(state);
        drop(finished);
        if let Some(unused) = unused {
            self.revoke(&unused);
        }
        finish(in_flight, outcome);
    }

    /// Ends a mint that never ran or was dropped: the slot or the cache ends.
    pub(in super::super) fn abort_mint(&self, in_flight: &Arc<InFlightMint>) {
        let finished = self.clear(&mut locked(&self.state), in_flight);
        drop(finished);
        finish(in_flight, MintOutcome::Stopped);
    }

    /// Removes the mint in progress, and returns it so that the caller drops it without the lock.
    fn clear(&self, state: &mut SlotState, in_flight: &Arc<InFlightMint>) -> Option<Arc<InFlightMint>> {
        let finished = state.in_flight.take_if(|it| Arc::ptr_eq(it, in_flight))?;
        self.renew_not_before_ms.store(0, Ordering::Relaxed);
        Some(finished)
    }

    fn accept(
        self: &Arc<Self>,
        state: &mut SlotState,
        shared: &SharedState,
        in_flight: &InFlightMint,
        started: Moment,
        credential: Credential,
    ) -> CompletedMint {
        let now = self.now();
        state.backoff_state = None;
        let previous = state.rejected.take().or_else(|| self.current.load_full());
        let credential = Arc::new(credential);
        if !credential.cacheable {
            state.sharing = LeaseSharing::SingleUse;
            self.pause(now);
            let lease = next_lease(state, credential);
            return (
                MintOutcome::SingleUseLease(Arc::new(SingleUseLease::new(lease, self))),
                None,
            );
        }
        state.sharing = LeaseSharing::Shared;
        let Some(window) = window(shared, &credential, started) else {
            let mint = Arc::clone(&locked(&self.mint));
            tracing::warn!(cluster = mint.label(), key = ?self.key, "a provider gave a credential that is over already");
            self.pause(now);
            let lease = next_lease(state, Arc::clone(&credential));
            let unused = (in_flight.receiver_count() == 0).then_some(credential);
            return (MintOutcome::Shared(lease), unused);
        };
        let mut deadlines = window.deadlines_from(started);
        let same = previous.filter(|it| it.lease.credential.authenticates_like(&credential));
        let lease = match same {
            Some(same) => {
                deadlines = extended_deadlines(&same, &credential, deadlines, now);
                self.pause(now);
                Lease {
                    credential,
                    generation: same.lease.generation,
                }
            }
            None => next_lease(state, credential),
        };
        let next = CurrentCredential {
            lease: lease.clone(),
            deadlines,
            minted: started,
        };
        // The previous credential is not revoked, because requests may still be using it.
        self.install(state, Some(Arc::new(next)));
        tracing::debug!(key = ?self.key, generation = lease.generation, "a credential was minted");
        (MintOutcome::Shared(lease), None)
    }

    fn fail(&self, state: &mut SlotState, shared: &SharedState, error: MintError, now: Moment) -> CompletedMint {
        let MintError { class, retry_after, .. } = error;
        let streak = state.backoff_state.as_ref().filter(|it| it.error.class == class);
        let nth = streak.map_or(1, |it| it.nth.saturating_add(1));
        let wait = backoff::delay(class, nth, retry_after, shared.settings.jitter.fraction());
        let until = now.plus(wait);
        self.renew_not_before_ms.store(until.millis(), Ordering::Relaxed);
        state.counters.failed += 1;
        state.counters.last_error = Some(LastError {
            error: error.clone(),
            at: now.wall,
        });
        let mint = Arc::clone(&locked(&self.mint));
        tracing::warn!(
            cluster = mint.label(), key = ?self.key, class = class.as_ref(), code = %error.code, wait_ms = wait.as_millis(),
            "a mint failed"
        );
        let mut reported = error.clone();
        reported.retry_after = Some(wait);
        state.backoff_state = Some(FailureBackoff { error, nth, until });
        let mut unused = None;
        if let Some(rejected) = state.rejected.take() {
            if class == MintErrorClass::Retryable && rejected.deadlines.is_usable(now) {
                self.install(state, Some(rejected));
            } else {
                unused = Some(Arc::clone(&rejected.lease.credential));
            }
        }
        (MintOutcome::Failed(reported), unused)
    }

    /// Pauses renewals for a while, as long as there is a credential.
    fn pause(&self, now: Moment) {
        self.renew_not_before_ms
            .store(now.plus(PAUSE).millis(), Ordering::Relaxed);
    }
}

/// The renewal window of the credential. The operator may have configured an earlier renewal.
fn window(shared: &SharedState, credential: &Credential, started: Moment) -> Option<RenewalWindow> {
    let lifetime = credential.expires_at.map(|end| end.duration_since(started.wall));
    let window = RenewalWindow::for_lifetime(lifetime, shared.settings.jitter.fraction())?;
    Some(RenewalWindow {
        refresh: window.refresh.min(shared.settings.renew_after),
        ..window
    })
}

fn next_lease(state: &mut SlotState, credential: Arc<Credential>) -> Lease {
    state.generation += 1;
    Lease {
        credential,
        generation: state.generation,
    }
}

/// The deadlines of a credential that the provider returned again. If its expiry did not change,
/// the old deadline is kept: computing it from the shorter remaining lifetime each time would
/// shrink the safety margin.
fn extended_deadlines(before: &CurrentCredential, again: &Credential, anew: Deadlines, now: Moment) -> Deadlines {
    let later = match (before.lease.credential.expires_at, again.expires_at) {
        (Some(before), Some(again)) => again > before,
        (None, None) | (Some(_), None) | (None, Some(_)) => true,
    };
    let unusable = if later || !before.deadlines.is_usable(now) {
        anew.unusable
    } else {
        before.deadlines.unusable
    };
    let soonest = now.plus(PAUSE);
    let late_enough = anew.refresh.is_at_or_after(soonest);
    let refresh = if late_enough { anew.refresh } else { soonest };
    Deadlines { refresh, unusable }
}
