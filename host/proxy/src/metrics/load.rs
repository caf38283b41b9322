//! What the process is busy with: how long requests, reloads and reauthorizations take, how large
//! messages are, what is open, and whether its threads keep up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::{ConfigPart, FixedLabels, NameLabel, busy};
use crate::tls::HandshakeFailure;
use tollgate_core::metrics;
use tollgate_objects::WatchAge;
use tollgate_runtime::{followed, name_lookup};

/// Bounds of times that should be short, in seconds.
const SHORT: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// Bounds of times that may be long, in seconds.
const LONG: [f64; 10] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];
/// Bounds of sizes, in bytes.
const SIZES: [f64; 8] = [
    0.0,
    1_024.0,
    8_192.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    33_554_432.0,
];

/// Most clusters that have a separate series.
pub const MAX_CLUSTERS: usize = 5_000;

type Histograms<const N: usize> = Family<FixedLabels<N>, Histogram, fn() -> Histogram>;

metrics! {
    /// Times, sizes and numbers of what the process does.
    #[derive(Debug)]
    pub struct LoadMetrics {
        pub blocking_wait: Gauge<f64, AtomicU64>, "tollgate_blocking_wait_seconds",
            "How long blocking work (files, DNS, loads of the configuration) waits for a thread, measured every \
             second";
        runtime_threads: Gauge, "tollgate_runtime_threads",
            "Threads that serve, and those for blocking work, of which there are at most 512";
        pub snapshots: Gauge, "tollgate_snapshots_in_memory",
            "Generations of the configuration that something still uses, normally 1 or 2. Each one is megabytes";
        open_exchanges: Family<FixedLabels<1>, Gauge>, "tollgate_open_exchanges",
            "Open requests: watches, uploads, tunnels, and those without a response yet";
        cluster_connectors: Family<NameLabel, Gauge>, "tollgate_cluster_connectors" was "tollgate_cluster_agents",
            "Connectors of a cluster that are connected to this process, for each cluster that connectors serve; at \
             most 5,000 clusters, those without a connection first";
        watch_broken: Family<NameLabel, Gauge>, "tollgate_watch_broken",
            "1 while a watch of objects is broken: the last known objects stay in force, and may be old";
        watch_event_age: Family<NameLabel, Gauge<f64, AtomicU64>>, "tollgate_watch_event_age_seconds",
            "Time since the last event of a watch. Kinds that are never written have no events";
        watch_list_age: Family<NameLabel, Gauge<f64, AtomicU64>>, "tollgate_watch_list_age_seconds",
            "Time since a watch last had a complete list; a watch lists anew after each failure";
        name_lookups: Gauge, "tollgate_name_lookups", "Lookups of host names that wait for DNS; at most 64";
        name_lookups_unanswered: Counter, "tollgate_name_lookups_unanswered",
            "Lookups of host names without an answer within 10 seconds, or within the time limit of a connection, \
             or refused because 64 waited";
        files_unusable: Family<FixedLabels<1>, Gauge>, "tollgate_files_unusable",
            "1 while a file with a certificate, a key or authorities cannot be used, or the gateway cannot renew \
             its certificate (`admission.tls.secret`); the last good content stays in use";
        certificate_end: Family<(FixedLabels<1>, NameLabel), Gauge>, "tollgate_certificate_end_timestamp_seconds",
            "When a certificate expires that the gateway serves, presents to a server, or trusts by, in seconds \
             since 1970; for the 5,000 that expire first. Certificates from providers are not included";
        handshakes_failed: Family<FixedLabels<2>, Counter>, "tollgate_tls_handshakes_failed",
            "Connections on which a client and a listener did not agree on TLS";
        pub reauthorization: Histogram = short(), "tollgate_reauthorization" in Unit::Seconds,
            "Time to evaluate everything open again by a new configuration";
        pub withdrawal_lag: Histogram = short(), "tollgate_withdrawal_lag" in Unit::Seconds,
            "Time from the start of a load until everything that it does not permit has ended; the gateway promises \
             one second";
        pub runtime_lag: Histogram = short(), "tollgate_runtime_lag" in Unit::Seconds,
            "How late the threads that serve begin work that is due, measured ten times a second";
        thread_busy: Histogram = busy::histogram(), "tollgate_thread_busy" in Unit::Seconds,
            "CPU time that a serving thread spends between two waits, by the thread's own clock. While it computes \
             for long, its other work waits";
        request: Histograms<1> = Family::new_with_constructor(long), "tollgate_request" in Unit::Seconds,
            "Time from a request's head to that of its response";
        reload: Histograms<1> = Family::new_with_constructor(long), "tollgate_reload" in Unit::Seconds,
            "Time of a load of a part of the configuration";
        request_bytes: Histograms<1> = Family::new_with_constructor(sizes), "tollgate_request_size" in Unit::Bytes,
            "Size of the content of requests that passed, if their head states it";
        response_bytes: Histograms<1> = Family::new_with_constructor(sizes), "tollgate_response_size" in Unit::Bytes,
            "Size of the content of responses, if their head states it";
        stage: Histograms<2> = Family::new_with_constructor(long), "tollgate_request_stage" in Unit::Seconds,
            "Time of each stage of a request; a stage that a request did not reach is left out";
    }
}

impl LoadMetrics {
    pub(super) fn observe_request(&self, front: &'static str, stage_durations: [Duration; 4]) {
        let front = ("front", front);
        let total: Duration = stage_durations.iter().sum();
        self.request.get_or_create(&[front]).observe(total.as_secs_f64());
        let stages = ["authenticate", "authorize", "headers", "forward"];
        for (stage, duration) in stages.into_iter().zip(stage_durations) {
            // A stage that the request did not reach took no time at all.
            if !duration.is_zero() {
                let labels = [front, ("stage", stage)];
                self.stage.get_or_create(&labels).observe(duration.as_secs_f64());
            }
        }
    }

    /// Records sizes of a message's content, as far as its heads say them.
    ///
    /// - `front`: one of the fixed names of the decision records.
    pub fn observe_sizes(&self, front: &'static str, request: Option<u64>, response: Option<u64>) {
        let label = [("front", front)];
        if let Some(bytes) = request {
            self.request_bytes.get_or_create(&label).observe(as_float(bytes));
        }
        if let Some(bytes) = response {
            self.response_bytes.get_or_create(&label).observe(as_float(bytes));
        }
    }

    /// Records how long a load of a part took.
    pub fn observe_reload(&self, part: ConfigPart, duration: Duration) {
        let label = [("part", part.into())];
        self.reload.get_or_create(&label).observe(duration.as_secs_f64());
    }

    /// How many exchanges of a front are open.
    pub fn open_exchanges(&self, front: &'static str) -> Gauge {
        self.open_exchanges.get_or_create(&[("front", front)]).clone()
    }

    /// Replaces how old what is known of each kind of object is. A kind that is watched in several
    /// namespaces has the greatest age.
    pub fn set_watch_ages(&self, ages: &[WatchAge]) {
        for family in [&self.watch_event_age, &self.watch_list_age] {
            family.clear();
        }
        self.watch_broken.clear();
        for age in ages {
            let label = [("resource", age.resource.clone())];
            let broken = self.watch_broken.get_or_create(&label);
            broken.set(broken.get().max(i64::from(age.is_broken)));
            drop(broken);
            for (family, since) in [
                (&self.watch_event_age, age.since_event),
                (&self.watch_list_age, age.since_list),
            ] {
                if let Some(since) = since {
                    let gauge = family.get_or_create(&label);
                    gauge.set(gauge.get().max(since.as_secs_f64()));
                }
            }
        }
    }

    /// Reads which files of the settings cannot be used.
    pub(super) fn read_files(&self) {
        self.files_unusable.clear();
        for (setting, is_unusable) in followed::unusable() {
            let gauge = self.files_unusable.get_or_create(&[("setting", setting)]);
            gauge.set(i64::from(is_unusable));
        }
    }

    /// Reads how lookups of names go.
    pub(super) fn read_name_lookups(&self) {
        let (running, unanswered) = name_lookup::counts();
        self.name_lookups.set(i64::try_from(running).unwrap_or(i64::MAX));
        self.name_lookups_unanswered
            .inner()
            .store(unanswered, Ordering::Relaxed);
    }

    /// Reads how many threads the runtime has.
    pub(super) fn read_runtime_threads(&self) {
        self.runtime_threads.set(busy::threads());
    }

    /// Replaces when certificates end, in seconds since the Unix epoch: by what each is for, and the name of
    /// what has it. Beyond [`MAX_CLUSTERS`], those that end last have no series.
    pub fn set_certificate_ends(&self, mut ends: Vec<(CertificateUse, String, u64)>) {
        ends.sort_by(|(_, name, end), (_, other, others)| (end, name).cmp(&(others, other)));
        // Sorted before, so that the certificates that are left out are the least urgent.
        ends.truncate(MAX_CLUSTERS);
        self.certificate_end.clear();
        // Of several with one name, the one that ends first.
        for (used, name, end) in ends.into_iter().rev() {
            let labels = ([("use", used.into())], [("name", name)]);
            let end = i64::try_from(end).unwrap_or(i64::MAX);
            self.certificate_end.get_or_create(&labels).set(end);
        }
    }

    /// Counts a connection to a listener that did not become one of TLS.
    pub fn count_failed_handshake(&self, listener: &'static str, failure: HandshakeFailure) {
        let labels = [("listener", listener), ("reason", failure.into())];
        self.handshakes_failed.get_or_create(&labels).inc();
    }

    /// Replaces how many connectors of each cluster are connected. Beyond [`MAX_CLUSTERS`], clusters with
    /// a connection are left out first.
    pub fn set_cluster_connectors(&self, mut clusters: Vec<(String, usize)>) {
        clusters.sort_by(|(name, connectors), (other, others)| (connectors, name).cmp(&(others, other)));
        clusters.truncate(MAX_CLUSTERS);
        self.cluster_connectors.clear();
        for (cluster, connectors) in clusters {
            let gauge = self.cluster_connectors.get_or_create(&[("cluster", cluster)]);
            // Added and not set, because two clusters may have one name.
            gauge.inc_by(i64::try_from(connectors).unwrap_or(i64::MAX));
        }
    }
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CertificateUse {
    /// The public listener serves it.
    Public,
    /// The admission webhook serves it.
    Admission,
    /// The admission webhook trusts API servers by it.
    AdmissionClients,
    /// It is presented to the API server of the control plane's cluster.
    State,
    /// It is presented to the API server of a cluster.
    Cluster,
    /// It is presented to the backend of an extension.
    Extension,
    /// A server that a setting names is trusted by it.
    Authority,
}

/// Counts one of something in a gauge for as long as it lives.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    /// Adds one to `gauge` until it is dropped.
    pub fn in_gauge(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn short() -> Histogram {
    Histogram::new(SHORT)
}

fn long() -> Histogram {
    Histogram::new(LONG)
}

fn sizes() -> Histogram {
    Histogram::new(SIZES)
}

#[expect(clippy::cast_precision_loss, reason = "metrics have 53 bits")]
fn as_float(bytes: u64) -> f64 {
    bytes as f64
}
