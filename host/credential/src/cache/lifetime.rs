//! Computes from a credential's lifetime when to renew it and when to stop using it, which is
//! before it expires. Reads no clock.

use std::time::Duration;

use jiff::SignedDuration;

use super::clock::Moment;

/// Maximum safety margin: the time before its expiry from which a credential is no longer used.
const MAX_EXPIRY_SKEW: Duration = Duration::from_secs(30);

/// The assumed lifetime of a credential without a known expiry.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);

/// Largest fraction by which jitter shortens the time to renewal.
const MAX_JITTER: f64 = 0.05;

/// When a credential is renewed and when it stops being used, relative to the start of the request
/// that made it. `refresh` is never after `unusable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalWindow {
    /// From this time, using it renews it in the background.
    pub refresh: Duration,
    /// From this time, it is not used.
    pub unusable: Duration,
}

impl RenewalWindow {
    /// The window of a lifetime, counted from the start of the request that made the credential.
    /// `None` if only the requests that wait now may use it.
    ///
    /// - `lifetime`: `None` if unknown; five minutes are assumed. Zero or less has expired.
    /// - `jitter`: 0 (renew as late as allowed) to 1 (a twentieth sooner), so
    ///   that clusters that started together do not renew together.
    pub fn for_lifetime(lifetime: Option<SignedDuration>, jitter: f64) -> Option<Self> {
        let lifetime = match lifetime {
            Some(known) => Duration::try_from(known).ok().filter(|known| !known.is_zero())?,
            None => DEFAULT_LIFETIME,
        };
        let unusable = lifetime.saturating_sub(MAX_EXPIRY_SKEW.min(lifetime / 4));
        // Four fifths, divided first: lifetimes of centuries do not overflow.
        let refresh = lifetime
            .saturating_sub(lifetime / 5)
            .min(unusable)
            .min(tollgate_config::MAX_RENEW_AFTER);
        let sooner = refresh.mul_f64(MAX_JITTER * jitter.clamp(0.0, 1.0));
        Some(Self {
            refresh: refresh.saturating_sub(sooner),
            unusable,
        })
    }

    pub(super) fn deadlines_from(self, start: Moment) -> Deadlines {
        Deadlines {
            refresh: start.plus(self.refresh),
            unusable: start.plus(self.unusable),
        }
    }
}

/// The moments of a [`RenewalWindow`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    pub(super) refresh: Moment,
    pub(super) unusable: Moment,
}

impl Deadlines {
    /// Both clocks must say so.
    pub(super) fn is_usable(&self, now: Moment) -> bool {
        !now.is_at_or_after(self.unusable)
    }

    /// One clock is enough.
    pub(super) fn is_renewal_due(&self, now: Moment) -> bool {
        now.is_at_or_after(self.refresh)
    }
}

#[cfg(test)]
mod tests;
