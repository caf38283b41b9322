//! The usual metrics of a process, read from `/proc` whenever somebody reads the metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use tollgate_core::metrics;

metrics! {
    #[derive(Debug)]
    pub(super) struct ProcessMetrics {
        cpu: Counter<f64, AtomicU64>, "process_cpu_seconds",
            "CPU time that the process spent";
        resident: Gauge, "process_resident_memory_bytes", "Memory of the process that is in RAM";
        virtual_size: Gauge, "process_virtual_memory_bytes", "Address space of the process";
        threads: Gauge, "process_threads", "Threads of the process. It grows when blocking work piles up";
        open_descriptors: Gauge, "process_open_fds",
            "Open file descriptors of the process; each connection has one or two";
        max_descriptors: Gauge, "process_max_fds", "Most file descriptors that may be open";
        start: Gauge<f64, AtomicU64>, "process_start_time_seconds", "When the process started, in seconds since 1970";
    }
}

#[derive(Debug, PartialEq)]
struct Status {
    cpu_ticks: u64,
    threads: i64,
    /// Since the machine started.
    start_ticks: u64,
    virtual_bytes: i64,
    resident_pages: i64,
}

impl ProcessMetrics {
    /// Reads the present values. Values that cannot be read stay as they were.
    pub(super) fn update(&self) {
        let read = |path| std::fs::read_to_string(path).ok();
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        let seconds = |ticks: u64| as_float(ticks) / as_float(ticks_per_second);
        if let Some(status) = read("/proc/self/stat").as_deref().and_then(Status::read) {
            let spent = seconds(status.cpu_ticks) - self.cpu.get();
            if spent > 0.0 {
                self.cpu.inc_by(spent);
            }
            let page = i64::try_from(rustix::param::page_size()).unwrap_or(4_096);
            self.resident.set(status.resident_pages.saturating_mul(page));
            self.virtual_size.set(status.virtual_bytes);
            self.threads.set(status.threads);
            let booted = read("/proc/stat").and_then(|text| value_of(&text, "btime "));
            if let Some(booted) = booted.and_then(|value| value.parse().ok()) {
                self.start.set(as_float(booted) + seconds(status.start_ticks));
            }
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            self.open_descriptors
                .set(i64::try_from(open.count()).unwrap_or(i64::MAX));
        }
        let most = read("/proc/self/limits").and_then(|text| value_of(&text, "Max open files"));
        if let Some(most) = most {
            self.max_descriptors.set(most.parse().unwrap_or(i64::MAX));
        }
    }
}

impl Status {
    /// Source: `man 5 proc_pid_stat`.
    fn read(text: &str) -> Option<Self> {
        // The name of the program, in parentheses, may have blanks.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The first of these fields is the third of the page.
        let number = |field: usize| fields.get(field.checked_sub(3)?)?.parse::<u64>().ok();
        let signed = |field: usize| number(field).and_then(|value| i64::try_from(value).ok());
        Some(Self {
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            threads: signed(20)?,
            start_ticks: number(22)?,
            virtual_bytes: signed(23)?,
            resident_pages: signed(24)?,
        })
    }
}

/// The first word behind `name` at the start of a line.
fn value_of(text: &str, name: &str) -> Option<String> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next().map(str::to_owned)
}

#[expect(clippy::cast_precision_loss, reason = "metrics have 53 bits")]
fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::{ProcessMetrics, Status, value_of};

    #[test]
    fn a_status_is_read_whatever_the_name_of_the_program() {
        let behind = "S 1 2 2 0 -1 4194560 9 0 0 0 17 5 0 0 20 0 13 0 4242 1048576 300 18446744073709551615";
        let expected = Status {
            cpu_ticks: 22,
            threads: 13,
            start_ticks: 4242,
            virtual_bytes: 1_048_576,
            resident_pages: 300,
        };
        for name in ["tollgate", "a b", "x) S 9 9", ""] {
            assert_eq!(
                Status::read(&format!("7 ({name}) {behind}")),
                Some(Status { ..expected })
            );
        }
        assert_eq!(Status::read("7 (tollgate) S 1 2"), None);
        assert_eq!(
            value_of("a 1\nMax open files  1024  4096 files", "Max open files").as_deref(),
            Some("1024")
        );
    }

    #[test]
    fn the_process_has_plausible_values() {
        let metrics = ProcessMetrics::default();
        metrics.update();
        let first = metrics.cpu.get();
        metrics.update();
        assert!(metrics.cpu.get() >= first);
        assert!(metrics.resident.get() > 100_000, "{metrics:?}");
        assert!(metrics.virtual_size.get() >= metrics.resident.get(), "{metrics:?}");
        assert!(metrics.threads.get() >= 1);
        assert!(metrics.open_descriptors.get() >= 3);
        assert!(metrics.max_descriptors.get() >= metrics.open_descriptors.get());
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let age = now.as_secs_f64() - metrics.start.get();
        assert!((-2.0..86_400.0).contains(&age), "{age}");
    }
}
