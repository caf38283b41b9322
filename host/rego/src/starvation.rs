//! Distinguishes a policy that runs too long from a thread that does not get to run.
//!
//! The engine measures wall time. On a busy machine a thread can wait for a processor for longer
//! than a decision may take, and its process can be stopped altogether; neither says anything about
//! the policy. An attempt that runs out of wall time without having used as much CPU time is
//! therefore repeated.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Maximum number of attempts where the process that checks a bundle sets another bound.
pub(crate) const MAX_CHECK_ATTEMPTS: u32 = 14;

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    wall: Instant,
    cpu: Duration,
}

impl ClockReading {
    fn read() -> Self {
        Self {
            wall: Instant::now(),
            // The CPU time is never negative.
            cpu: clock_gettime(ClockId::ThreadCPUTime)
                .try_into()
                .unwrap_or(Duration::MAX),
        }
    }
}

/// Repeats `attempt` while it fails because its thread was held up, `most` times at most. It was
/// held up if it failed after the wall time it was given, of which its thread had less than `limit`
/// of CPU time.
///
/// - `attempt`: takes the wall time that it may use: first `limit`, then twice as much each time.
///   It must have no side effects.
/// - `most`: maximum number of attempts.
pub(crate) fn retry_if_starved<T, E>(
    limit: Duration,
    most: u32,
    attempt: impl FnMut(Duration) -> Result<T, E>,
) -> Result<T, E> {
    retry_with_clock(ClockReading::read, limit, most, attempt)
}

fn retry_with_clock<T, E>(
    mut now: impl FnMut() -> ClockReading,
    limit: Duration,
    most: u32,
    mut attempt: impl FnMut(Duration) -> Result<T, E>,
) -> Result<T, E> {
    let mut allowed = limit;
    for _ in 1..most {
        let before = now();
        let result = attempt(allowed);
        if result.is_ok() {
            return result;
        }
        let after = now();
        let was_late = after.wall.saturating_duration_since(before.wall) >= allowed;
        let was_held_up = after.cpu.saturating_sub(before.cpu) < limit;
        if !(was_late && was_held_up) {
            return result;
        }
        allowed = allowed.saturating_mul(2);
    }
    attempt(allowed)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    /// Wall time, CPU time and result of each attempt.
    type Attempts<'a> = &'a [(Duration, Duration, Result<u8, &'static str>)];

    /// The result, and the wall times that were allowed.
    fn run(most: u32, attempts: Attempts<'_>) -> (Result<u8, &'static str>, Vec<Duration>) {
        let start = Instant::now();
        let (wall, cpu) = (Cell::new(Duration::ZERO), Cell::new(Duration::ZERO));
        let now = || ClockReading {
            wall: start + wall.get(),
            cpu: cpu.get(),
        };
        let mut left = attempts.iter();
        let mut allowed = Vec::new();
        let result = retry_with_clock(now, LIMIT, most, |limit| {
            allowed.push(limit);
            let (took, used, result) = left.next().expect("no further attempt");
            wall.set(wall.get() + *took);
            cpu.set(cpu.get() + *used);
            *result
        });
        (result, allowed)
    }

    #[test]
    fn an_attempt_that_was_held_up_is_repeated() {
        let (late, little) = (LIMIT * 10, LIMIT / 50);
        let attempts = [
            (late, little, Err("late")),
            (late, little, Err("late")),
            (late, LIMIT, Ok(1)),
        ];
        assert_eq!(run(3, &attempts), (Ok(1), vec![LIMIT, LIMIT * 2, LIMIT * 4]));
        // A result that is late is still used.
        assert_eq!(run(3, &[(late, little, Ok(2))]), (Ok(2), vec![LIMIT]));
    }

    #[test]
    fn other_failed_attempts_are_not_repeated() {
        for attempt in [(LIMIT, LIMIT), (LIMIT * 10, LIMIT), (LIMIT / 2, LIMIT / 50)] {
            let (took, used) = attempt;
            assert_eq!(
                run(3, &[(took, used, Err("no"))]),
                (Err("no"), vec![LIMIT]),
                "{attempt:?}"
            );
        }
    }

    #[test]
    fn attempts_are_bounded() {
        let held_up = (LIMIT * 100, Duration::ZERO, Err("late"));
        assert_eq!(run(3, &[held_up; 3]), (Err("late"), vec![LIMIT, LIMIT * 2, LIMIT * 4]));
        assert_eq!(run(1, &[held_up]), (Err("late"), vec![LIMIT]));
    }

    #[test]
    fn cpu_time_is_that_of_this_thread() {
        let before = ClockReading::read();
        let others = std::thread::spawn(|| {
            let start = ClockReading::read().cpu;
            while ClockReading::read().cpu - start < LIMIT {}
        });
        others.join().unwrap();
        let after = ClockReading::read();
        assert!(after.wall - before.wall >= LIMIT);
        assert!(after.cpu - before.cpu < LIMIT, "{:?}", after.cpu - before.cpu);
    }
}
