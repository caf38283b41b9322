//! What is counted, for `/metrics` (OpenMetrics text).
//!
//! In: records and reload results. Out: counters, gauges, histograms. Never: a
//! label whose values a caller chooses freely, or a secret.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::front::extensions::Extension;
use crate::record::Record;

/// Bounds Argo CD's own histogram has, in seconds.
const DURATION_BUCKETS: [f64; 7] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ForwardedLabels {
    extension: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExtensionLabel {
    extension: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DecisionLabels {
    front: &'static str,
    outcome: &'static str,
    /// Of a fixed list: the type keeps anything a caller chose out.
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PartLabel {
    part: &'static str,
}

/// Every metric of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    forwarded: Family<ForwardedLabels, Counter>,
    duration: Family<ExtensionLabel, Histogram, fn() -> Histogram>,
    decisions: Family<DecisionLabels, Counter>,
    /// Decision lines the disk was too slow for.
    pub decision_lines_lost: Counter,
    reloads_failed: Family<PartLabel, Counter>,
    broken: Family<PartLabel, Gauge>,
    generation: Gauge<u64, AtomicU64>,
    policy_stuck: Gauge,
}

/// Parts of the configuration that are loaded on their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Kubernetes objects, with RBAC and extensions.
    State,
    /// Policy bundles.
    Policies,
    /// Plugins.
    Plugins,
}

impl Part {
    /// Label value and log word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Policies => "policies",
            Self::Plugins => "plugins",
        }
    }
}

fn histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers every metric.
    pub fn new() -> Self {
        let forwarded = Family::default();
        let duration: Family<ExtensionLabel, Histogram, fn() -> Histogram> = Family::new_with_constructor(histogram);
        let decisions = Family::default();
        let decision_lines_lost = Counter::default();
        let reloads_failed = Family::default();
        let broken = Family::default();
        let generation = Gauge::default();
        let policy_stuck = Gauge::default();
        let mut registry = Registry::default();
        registry.register(
            "argocd_proxy_extension_request",
            "Requests handed to an extension's backend",
            forwarded.clone(),
        );
        registry.register(
            "argocd_proxy_extension_request_duration_seconds",
            "Time until the backend's response head",
            duration.clone(),
        );
        registry.register(
            "tollgate_decisions",
            "Decisions by outcome and reason",
            decisions.clone(),
        );
        registry.register(
            "tollgate_decision_lines_lost",
            "Decision-file lines dropped because the disk was too slow",
            decision_lines_lost.clone(),
        );
        registry.register(
            "tollgate_reload_failures",
            "Reloads refused; the last good one stayed",
            reloads_failed.clone(),
        );
        registry.register(
            "tollgate_configuration_broken",
            "1 while the files on disk are not in force",
            broken.clone(),
        );
        registry.register(
            "tollgate_snapshot_generation",
            "Generation of the configuration in force",
            generation.clone(),
        );
        registry.register(
            "tollgate_policy_stuck",
            "1 while a decision that did not come back keeps the policy in force from deciding",
            policy_stuck.clone(),
        );
        Self {
            registry,
            forwarded,
            duration,
            decisions,
            decision_lines_lost,
            reloads_failed,
            broken,
            generation,
            policy_stuck,
        }
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// Only when the text cannot be built.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a closed record.
    pub fn decided(&self, record: &Record) {
        let labels = DecisionLabels {
            front: record.front,
            outcome: record.outcome.as_str(),
            reason: record.reason,
        };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts a request that was handed to a backend. Takes the extension, not
    /// a name, so that only registered ones are labels: a name from a path would
    /// let callers make as many series as they like.
    ///
    /// - `status`: counted as 0 unless it is a class HTTP knows.
    /// - `seconds`: until the response head.
    pub fn forwarded(&self, extension: &Extension, status: u16, seconds: f64) {
        let extension = &**extension.name();
        let labels = ForwardedLabels {
            extension: extension.to_owned(),
            status: if (100..600).contains(&status) { status } else { 0 },
        };
        self.forwarded.get_or_create(&labels).inc();
        self.duration
            .get_or_create(&ExtensionLabel {
                extension: extension.to_owned(),
            })
            .observe(seconds);
    }

    /// A part was loaded: whether all its files are in force now.
    pub fn loaded(&self, part: Part, good: bool) {
        let label = PartLabel { part: part.as_str() };
        if !good {
            self.reloads_failed.get_or_create(&label).inc();
        }
        self.broken.get_or_create(&label).set(i64::from(!good));
    }

    /// Whether the policy in force is given up.
    pub fn policy_stuck(&self, stuck: bool) {
        self.policy_stuck.set(i64::from(stuck));
    }

    /// A snapshot took effect.
    pub fn generation(&self, generation: u64) {
        self.generation.set(generation);
    }
}
