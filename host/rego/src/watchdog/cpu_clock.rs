//! The CPU time of a thread, read by another one.

use std::path::PathBuf;
use std::time::Duration;

/// Where the kernel tells what a thread has used. Source: proc(5), `/proc/pid/task/tid/stat`.
#[derive(Debug)]
pub(super) struct CpuClock(Option<PathBuf>);

impl CpuClock {
    /// Without `/proc`, it cannot be read.
    pub(super) fn of_this_thread() -> Self {
        let thread = std::fs::read_link("/proc/thread-self").ok();
        Self(thread.map(|thread| PathBuf::from("/proc").join(thread).join("stat")))
    }

    /// The time so far, in steps of 10 ms. `None` if the kernel does not tell.
    pub(super) fn read(&self) -> Option<Duration> {
        parse(&std::fs::read_to_string(self.0.as_ref()?).ok()?)
    }
}

/// Adds the 14th and 15th field, user and system time.
fn parse(stat: &str) -> Option<Duration> {
    // The second field is a name, which may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let sum = ticks()?.checked_add(ticks()?)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(sum.checked_mul(1_000)?.checked_div(per_second)?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CpuClock, parse};

    #[test]
    fn the_name_of_a_thread_is_no_field() {
        let stat = "7 (a) b) 1) R 1 7 7 0 -1 0 0 0 0 0 30 12 0 0 20 0 1 0 5 0 0\n";
        assert_eq!(parse(stat), Some(Duration::from_millis(420)));
        assert_eq!(parse("7 (a) R 1 7"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_thread_that_waits_uses_nothing_and_one_that_computes_does() {
        let clock = CpuClock::of_this_thread();
        let before = clock.read().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let waited = clock.read().unwrap();
        assert!(waited - before <= Duration::from_millis(50), "{:?}", waited - before);
        while clock.read().unwrap() - waited < Duration::from_millis(100) {}
        // Another thread reads it.
        let read = std::thread::spawn(move || clock.read()).join().unwrap();
        assert!(read.unwrap() >= waited + Duration::from_millis(100));
    }
}
