//! How often the configuration is loaded again.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two reloads in the long run.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many reloads may follow each other at once after a quiet time: who creates a project, an
/// Application in it, and syncs that at once, is not refused for what the gateway has not read yet.
const BURST: u32 = 2;

/// When the next reload may begin, by the generic cell rate algorithm.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the next reload would be due, if all so far had been [`INTERVAL`] apart.
    due: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now }
    }

    /// The earliest time of the next reload.
    pub(super) fn next(&self) -> Instant {
        // The reload that is due is itself the first of the burst.
        let ahead = INTERVAL * (BURST - 1);
        self.due.checked_sub(ahead).unwrap_or(self.due)
    }

    /// Counts a reload that begins.
    pub(super) fn reload(&mut self, now: Instant) {
        self.due = self.due.max(now) + INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many reloads of changes without a pause begin within a minute.
    fn reloads_of_a_minute(pace: &mut Pace, begin: Instant) -> usize {
        let end = begin + Duration::from_secs(60);
        let mut count = 0;
        loop {
            let now = pace.next().max(begin);
            if now >= end {
                return count;
            }
            pace.reload(now);
            count += 1;
        }
    }

    #[test]
    fn a_few_changes_are_read_at_once_and_many_once_a_second() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        assert_eq!(reloads_of_a_minute(&mut pace, begin), 61);
        let busy = begin + Duration::from_secs(60);
        assert_eq!(
            reloads_of_a_minute(&mut pace, busy),
            60,
            "only a quiet time earns a burst"
        );
        let quiet = begin + Duration::from_secs(3600);
        assert_eq!(reloads_of_a_minute(&mut pace, quiet), 61, "a longer one earns no more");
    }
}
