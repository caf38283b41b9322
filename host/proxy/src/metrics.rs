//! Metrics of records and reloads for `/metrics` (OpenMetrics text) and for an OpenTelemetry collector.
//!
//! Security: no label contains a secret or a value that a caller chooses freely.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::metrics::v1 as proto;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use tollgate_core::metrics;
use tollgate_credential::duration_histogram;
use tollgate_identity::metrics as identity;
use tollgate_objects::InvalidObject;
use tollgate_objects::extensions::ExtensionSpec;
use tollgate_runtime::log;

mod busy;
mod labels;
mod load;
pub mod otlp;
mod process;

pub use busy::measure_threads;
pub use labels::{LABELS, Label};
pub use load::{CertificateUse, Counted, LoadMetrics, MAX_CLUSTERS};

use process::ProcessMetrics;

/// Labels whose values come from fixed lists: the type excludes text from callers.
type FixedLabels<const N: usize> = [(&'static str, &'static str); N];

type NameLabel = [(&'static str, String); 1];
type StatusLabel = [(&'static str, u16); 1];

metrics! {
    /// Every metric of the process.
    #[derive(Debug)]
    pub struct Metrics {
        build: Family<FixedLabels<1>, Gauge> = build(), "tollgate_build_info",
            "Always 1, with the version of the program as a label";
        forwarded: Family<(NameLabel, StatusLabel), Counter>, "argocd_proxy_extension_request",
            "Requests handed to an extension's backend";
        duration: Family<NameLabel, Histogram, fn() -> Histogram> = Family::new_with_constructor(duration_histogram),
            "argocd_proxy_extension_request_duration" in Unit::Seconds,
            "Time of a request to an extension's backend, until the response or the tunnel has ended";
        decisions: Family<FixedLabels<3>, Counter>, "tollgate_decisions",
            "Decision records: one for each request, with its outcome and reason";
        pub decision_lines_lost: Counter, "tollgate_decision_lines_lost",
            "Lines of `decisions.file` that were dropped because the disk was too slow or refused them. While it \
             rises, the file is not complete";
        log_lines_lost: Counter, "tollgate_log_lines_lost",
            "Log lines that were dropped because standard error was not read fast enough";
        pub(crate) log_lines_omitted: Counter, "tollgate_log_lines_omitted",
            "Log lines about refusals and ended exchanges that were left out, because there were already 20 with \
             the same reason in one second";
        connections: Family<FixedLabels<1>, Gauge>, "tollgate_connections", "Open connections of clients";
        connections_limit: Family<FixedLabels<1>, Gauge>, "tollgate_connections_limit",
            "Connections of clients that may be open. At the limit, idle ones are closed and new ones wait";
        connections_closed: Family<FixedLabels<2>, Counter>, "tollgate_connections_closed",
            "Connections that were refused, or closed while idle, because there were too many of one address or in \
             total";
        connections_not_accepted: Family<FixedLabels<1>, Counter>, "tollgate_connections_not_accepted",
            "Attempts to accept a connection that the system refused, for example for lack of file descriptors. \
             Clients wait meanwhile";
        pub spans_lost: Counter, "tollgate_spans_lost",
            "Spans that the collector of `telemetry` did not get, because 2,048 waited or it refused them";
        reloads_failed: Family<FixedLabels<1>, Counter>, "tollgate_reload_failures",
            "Loads of the configuration that were refused; the last good one stayed in force";
        broken: Family<FixedLabels<1>, Gauge>, "tollgate_configuration_broken",
            "1 while the latest content of a part of the configuration has mistakes and is not in force as a whole. \
             `/configuration` of the admin listener has the findings";
        generation: Gauge<u64, AtomicU64>, "tollgate_snapshot_generation",
            "Number of the configuration in force; it grows with each reload of this process";
        policy_stuck: Family<FixedLabels<1>, Gauge>, "tollgate_policy_stuck",
            "1 while a decision that did not return suspends a policy bundle; requests that need it are refused";
        invalid_objects: Family<FixedLabels<1>, Gauge>, "tollgate_objects_set_aside",
            "Objects of tenants that are not used because of a mistake in them";
        impersonation: Family<(NameLabel, FixedLabels<1>), Gauge>, "tollgate_impersonation_grants",
            "Kinds of names that the gateway must be able to impersonate in clusters of agents, by the cluster's \
             answer";
        application_grants: Family<(NameLabel, FixedLabels<2>), Gauge>, "tollgate_application_grants",
            "What the gateway must be able to do for the service accounts of Applications, by the cluster's answer";
        pub would_refuse: Counter, "tollgate_applications_would_refuse",
            "Requests for Applications that passed only because impersonation is audited. It must stand still \
             before impersonation is enforced";
        pub control_plane_would_refuse: Counter, "tollgate_control_plane_would_refuse",
            "Writes of Argo CD's components that passed only because `controlPlane.mode` is `audit`. It must stand \
             still before the mode becomes `enforce`";
        pub admission_would_refuse: Counter, "tollgate_admission_would_refuse",
            "Writes to the control plane's cluster that passed only because `admission.mode` is `audit`. It must \
             stand still before the mode becomes `enforce`";
        pub admission_overloaded: Counter, "tollgate_admission_overloaded",
            "Reviews for the admission webhook that did not arrive within 5 seconds, or for which the 24 MiB for \
             all reviews were in use that long. Writes fail meanwhile";
        connectors_connected: Gauge, "tollgate_connectors_connected" was "tollgate_agents_connected",
            "Connectors connected to this process. With several replicas, a connector connects to two of them";
        connector_streams: Gauge, "tollgate_connector_streams" was "tollgate_agent_streams",
            "Open requests through connectors";
        connector_events: Family<FixedLabels<2>, Counter>, "tollgate_connector_events" was "tollgate_agent_events",
            "Connectors that connected, disconnected or were refused, and connections refused at the listener for \
             other replicas (`replica.refused`)";
    } and {
        process: ProcessMetrics;
        /// Times, sizes and numbers of what the process does.
        pub load: LoadMetrics;
        /// Mints and expiry of cluster credentials.
        pub credentials: Arc<tollgate_credential::Metrics>;
        /// Streams, revocations, audit and store.
        pub identity: Arc<identity::Metrics>;
    }
}

/// Counts the connections of a listener.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCounters {
    /// Those that are open.
    pub open: Gauge,
    /// How many may be open.
    pub limit: Gauge,
    /// Those that the bound of one address closed, or refused.
    pub of_address: Counter,
    /// Those that the bound of all closed.
    pub in_total: Counter,
    /// Attempts to accept one that the system refused.
    pub not_accepted: Counter,
}

/// Where clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Listener {
    /// The fronts.
    Public,
    /// The admission webhook.
    Admission,
    /// Probes and metrics.
    Admin,
}

/// A part of the configuration that is loaded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ConfigPart {
    /// Kubernetes objects, with RBAC and extensions.
    State,
    /// Policy bundles.
    Policies,
    /// Plugins.
    Plugins,
}

impl Metrics {
    /// The text of `/metrics`.
    ///
    /// # Errors
    /// Only when the text cannot be built.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        self.process.update();
        self.load.read_name_lookups();
        self.load.read_runtime_threads();
        self.load.read_files();
        self.log_lines_lost.inner().store(log::lost_lines(), Ordering::Relaxed);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry())?;
        Ok(text)
    }

    /// Every metric with its name, unit and help, also those that have no series yet.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        self.add_to(&mut registry);
        registry
    }

    /// The metrics for an OpenTelemetry collector, counted since `start`.
    ///
    /// # Errors
    /// Only when they cannot be translated.
    pub fn to_otlp(&self, start: SystemTime) -> Result<Vec<proto::Metric>, otlp::Error> {
        let text = self.text().map_err(|std::fmt::Error| otlp::Error::Text)?;
        otlp::translate(&text, otlp::Times::new(start, SystemTime::now()))
    }

    /// What counts the connections of a listener.
    pub fn connections(&self, listener: Listener) -> ConnectionCounters {
        let listener = ("listener", listener.into());
        let closed = |bound| {
            let labels = [("bound", bound), listener];
            self.connections_closed.get_or_create_owned(&labels)
        };
        ConnectionCounters {
            open: self.connections.get_or_create_owned(&[listener]),
            limit: self.connections_limit.get_or_create_owned(&[listener]),
            of_address: closed("address"),
            in_total: closed("total"),
            not_accepted: self.connections_not_accepted.get_or_create_owned(&[listener]),
        }
    }

    /// Replaces how many connectors are connected, and how many requests are open through them.
    pub fn set_connectors(&self, connectors: usize, streams: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.connectors_connected.set(number(connectors));
        self.connector_streams.set(number(streams));
    }

    /// Counts what happened to a connector.
    pub fn count_connector_event(&self, event: &'static str, reason: &'static str) {
        let labels = [("event", event), ("reason", reason)];
        self.connector_events.get_or_create(&labels).inc();
    }

    pub(crate) fn count_decision(
        &self,
        front: &'static str,
        outcome: &'static str,
        reason: &'static str,
        stage_durations: [Duration; 4],
    ) {
        let labels = [("front", front), ("outcome", outcome), ("reason", reason)];
        self.decisions.get_or_create(&labels).inc();
        self.load.observe_request(front, stage_durations);
    }

    /// Counts a request that was sent to a backend. Takes the extension, not a name, so that only
    /// registered ones become labels: with a name from a path, callers could create any number of
    /// series.
    ///
    /// - `status`: counted as 0 unless its class is one of HTTP's.
    pub fn count_forwarded(&self, extension: &ExtensionSpec, status: u16) {
        let status = if (100..600).contains(&status) { status } else { 0 };
        let labels = ([("extension", extension.name.clone())], [("status", status)]);
        self.forwarded.get_or_create(&labels).inc();
    }

    /// Records how long a whole exchange with a backend took.
    pub fn observe_exchange(&self, extension: &ExtensionSpec, duration: Duration) {
        let label = [("extension", extension.name.clone())];
        self.duration.get_or_create(&label).observe(duration.as_secs_f64());
    }

    /// Counts a load of a part of the configuration; `good` says whether all its files are in force
    /// now.
    pub fn count_load(&self, part: ConfigPart, good: bool) {
        let label = [("part", part.into())];
        if !good {
            self.reloads_failed.get_or_create(&label).inc();
        }
        self.broken.get_or_create(&label).set(i64::from(!good));
    }

    /// Replaces, for each cluster, how many of the grants the gateway needs are given, missing
    /// and unknown.
    pub fn set_impersonation_grants<'a>(&self, clusters: impl Iterator<Item = (&'a str, [usize; 3])>) {
        // Else a cluster that was removed would keep its last counts.
        self.impersonation.clear();
        for (cluster, counts) in clusters {
            for (state, count) in by_state(counts) {
                let labels = ([("cluster", cluster.to_owned())], [("state", state)]);
                self.impersonation.get_or_create(&labels).set(count);
            }
        }
    }

    /// Replaces, for each cluster, how many grants of impersonation, existence and extra for the
    /// service accounts of Applications are given, missing and unknown.
    pub fn set_application_grants<'a>(&self, clusters: impl Iterator<Item = (&'a str, [[usize; 3]; 3])>) {
        // As above, for clusters that were removed.
        self.application_grants.clear();
        for (cluster, counts) in clusters {
            for (about, counts) in ["impersonation", "existence", "extra"].into_iter().zip(counts) {
                for (state, count) in by_state(counts) {
                    let labels = ([("cluster", cluster.to_owned())], [("about", about), ("state", state)]);
                    self.application_grants.get_or_create(&labels).set(count);
                }
            }
        }
    }

    /// Replaces, for the bundle of each open front, whether a decision that did not return suspends it.
    pub fn set_stuck_policies(&self, bundles: impl Iterator<Item = (&'static str, bool)>) {
        // Else the bundle of a front that was closed would keep its last value.
        self.policy_stuck.clear();
        for (bundle, is_stuck) in bundles {
            let label = [("bundle", bundle)];
            self.policy_stuck.get_or_create(&label).set(i64::from(is_stuck));
        }
    }

    /// Replaces the counts of invalid objects, which the state in force does not use.
    pub fn invalid_objects(&self, objects: &[InvalidObject]) {
        self.invalid_objects.clear();
        for object in objects {
            self.invalid_objects.get_or_create(&[("kind", object.kind)]).inc();
        }
    }

    /// Sets the generation of the snapshot in force.
    pub fn generation(&self, generation: u64) {
        self.generation.set(generation);
    }
}

fn by_state(counts: [usize; 3]) -> impl Iterator<Item = (&'static str, i64)> {
    let counts = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    ["granted", "missing", "unknown"].into_iter().zip(counts)
}

fn build() -> Family<FixedLabels<1>, Gauge> {
    let build: Family<FixedLabels<1>, Gauge> = Family::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    build
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn a_metric_has_its_former_name_as_well() {
        let metrics = Metrics::default();
        metrics.set_connectors(2, 1);
        metrics.count_connector_event("agent.connected", "ok");
        metrics.load.set_cluster_connectors(vec![("prod".to_owned(), 1)]);
        let text = metrics.text().unwrap();
        for line in [
            "# HELP tollgate_agents_connected Deprecated: use `tollgate_connectors_connected`.",
            "tollgate_agents_connected 2",
            "tollgate_connectors_connected 2",
            "tollgate_agent_streams 1",
            "tollgate_connector_streams 1",
            "# HELP tollgate_agent_events Deprecated: use `tollgate_connector_events_total`.",
            "tollgate_agent_events_total{event=\"agent.connected\",reason=\"ok\"} 1",
            "tollgate_connector_events_total{event=\"agent.connected\",reason=\"ok\"} 1",
            "tollgate_cluster_agents{cluster=\"prod\"} 1",
            "tollgate_cluster_connectors{cluster=\"prod\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        metrics.load.set_cluster_connectors(Vec::new());
        assert!(!metrics.text().unwrap().contains("{cluster=\"prod\"}"));
    }
}
