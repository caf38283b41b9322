//! A bound on the log lines about requests of one kind, since anybody can cause refusals. Metrics and
//! the decision file have all of them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Most lines with one reason in each [`PERIOD`].
pub(super) const LINES: u32 = 20;
pub(super) const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct LogLimit {
    // Reasons are constants of the program, so the map is bounded.
    by_reason: Mutex<FxHashMap<&'static str, Lines>>,
}

#[derive(Debug)]
struct Lines {
    since: Instant,
    written: u32,
    omitted: u64,
}

impl LogLimit {
    /// Whether a line with this reason may be written now; if so, how many were omitted before it since the
    /// last one.
    ///
    /// `now` is the time of the line; it comes from the caller so that tests own the clock.
    pub(super) fn try_take(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut by_reason = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = by_reason.entry(reason).or_insert_with(|| Lines {
            since: now,
            written: 0,
            omitted: 0,
        });
        if now.saturating_duration_since(lines.since) >= PERIOD {
            lines.since = now;
            lines.written = 0;
        }
        if lines.written >= LINES {
            lines.omitted = lines.omitted.saturating_add(1);
            return None;
        }
        lines.written = lines.written.saturating_add(1);
        Some(std::mem::take(&mut lines.omitted))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{LINES, LogLimit, PERIOD};

    #[test]
    fn lines_of_one_reason_are_bounded_and_other_reasons_are_not_affected() {
        let limit = LogLimit::default();
        let start = Instant::now();
        let taken_at = |reason, now| {
            (0..1_000)
                .filter_map(|_| limit.try_take(reason, now))
                .collect::<Vec<_>>()
        };
        let taken = |reason| taken_at(reason, start);
        let first = taken("unauthenticated");
        assert_eq!(first, vec![0; usize::try_from(LINES).unwrap()]);
        assert_eq!(taken("unauthenticated"), Vec::<u64>::new());
        assert_eq!(taken("permission_denied").len(), usize::try_from(LINES).unwrap());
        let next = taken_at("unauthenticated", start + PERIOD);
        assert_eq!(
            next.first(),
            Some(&(2_000 - u64::from(LINES))),
            "the next line counts what was omitted"
        );
        assert_eq!(next.len(), usize::try_from(LINES).unwrap());
    }
}
