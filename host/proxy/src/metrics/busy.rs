//! What the threads of a runtime do: how long those that serve are busy without a pause, by their CPU
//! clocks, and how many there are. The time that the kernel gives to others does not count, so the
//! measure is the same on a machine that is busy.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// Bounds in seconds.
const BOUNDS: [f64; 8] = [0.000_1, 0.001, 0.005, 0.01, 0.02, 0.05, 0.25, 1.0];

/// One for the process: a runtime has its threads before it has anything else.
static BUSY: LazyLock<Histogram> = LazyLock::new(|| Histogram::new(BOUNDS));

/// Threads of the process' runtime, those that block included. tokio counts them only if the whole build
/// has its unstable features.
static THREADS: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static SINCE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Has the threads of a runtime measured.
pub fn measure_threads(runtime: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    runtime
        .on_thread_unpark(begin)
        .on_thread_park(end)
        .on_thread_start(|| {
            THREADS.fetch_add(1, Ordering::Relaxed);
        })
        .on_thread_stop(|| {
            THREADS.fetch_sub(1, Ordering::Relaxed);
        })
}

/// Threads of the runtime, those that serve and those that block.
pub(super) fn threads() -> i64 {
    THREADS.load(Ordering::Relaxed)
}

/// The measurements of all threads.
pub(super) fn histogram() -> Histogram {
    BUSY.clone()
}

fn begin() {
    SINCE.set(Some(cpu_time()));
}

fn end() {
    // A thread may park without having been woken, for example after it has started.
    if let Some(since) = SINCE.take() {
        BUSY.observe(cpu_time().saturating_sub(since).as_secs_f64());
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_is_busy_and_one_that_waits_is_not() {
        let seen = |from: f64| {
            let mut text = String::new();
            let mut registry = prometheus_client::registry::Registry::default();
            registry.register("busy", "", histogram());
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let count = |label: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(label)).unwrap();
                line.trim().parse::<u64>().unwrap()
            };
            count("busy_count") - count(&format!("busy_bucket{{le=\"{from}\"}}"))
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = measure_threads(builder.worker_threads(1).enable_all()).build().unwrap();
        let run = |work: Box<dyn Fn() + Send>| {
            runtime.block_on(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                tokio::spawn(async move { work() }).await.unwrap();
                // The thread has parked when a timer wakes it.
                tokio::spawn(tokio::time::sleep(Duration::from_millis(1)))
                    .await
                    .unwrap();
            });
        };
        run(Box::new(|| std::thread::sleep(Duration::from_millis(60))));
        assert_eq!(seen(0.05), 0);
        run(Box::new(|| {
            let start = cpu_time();
            while cpu_time() - start < Duration::from_millis(60) {}
        }));
        assert_eq!(seen(0.05), 1);
        // What nobody began is not counted.
        SINCE.set(None);
        end();
        assert_eq!(seen(0.05), 1);
    }
}
