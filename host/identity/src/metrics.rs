//! Metrics of people's access: streams, revocations, audit and the store.
//!
//! Security: no label names a person or a session. Agents appear only by number, which the state
//! bounds.

use std::sync::{Arc, LazyLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use tollgate_core::agent::{AgentId, ConfigurationStatus};

/// Tokens with a key that their issuer may have had since its keys were fetched a moment ago. Of the whole
/// process: an issuer's keys outlive each state.
pub(crate) static KEY_FETCHES_SPARED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// One label and its value.
type Label<V> = [(&'static str, V); 1];

/// Counts of people's access.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Watches, logs and tunnels open now.
    pub open_streams: Gauge,
    /// Revocations that took effect here, including those found at start.
    pub revocations: Counter,
    /// Audit events and counts that reached the store.
    pub audit_rows: Counter,
    /// Audit events and counts that wait for the store.
    pub audit_pending: Gauge,
    /// Audit events that the receiver of the export took from this process.
    pub(crate) audit_exported: Counter,
    /// Audit events that wait for the receiver of the export, if this process exports.
    pub(crate) audit_unexported: Gauge,
    /// Audit events that the receiver of the export refuses, and that were set aside.
    pub(crate) audit_set_aside: Counter,
    /// Attempts to export that failed.
    pub(crate) audit_export_failures: Counter,
    /// Tokens that Argo CD revoked and that have not expired.
    pub(crate) revoked_tokens: Gauge,
    /// 1 while revocations by Argo CD may be missing.
    pub(crate) revoked_tokens_unavailable: Gauge,
    /// Connections to Argo CD's Redis that failed or were lost.
    pub(crate) argocd_redis_failures: Counter,
    broken_configurations: Family<Label<i64>, Gauge>,
    closed_streams: Family<Label<&'static str>, Counter>,
    /// Those of the store itself.
    pub store: Arc<tollgate_store::metrics::Metrics>,
}

impl Metrics {
    /// Registers every metric of this crate, and those of the store.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.add_to(registry);
        metrics
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let (mut registry, mut text) = (Registry::default(), String::new());
        self.add_to(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn add_to(&self, registry: &mut Registry) {
        let help = "Open watches, logs and tunnels of people";
        registry.register("tollgate_open_streams", help, self.open_streams.clone());
        let help = "Watches, logs and tunnels of people that the gateway ended";
        registry.register("tollgate_closed_streams", help, self.closed_streams.clone());
        let help = "Revocations that took effect in this process, including those found at start. Every replica \
                    counts each revocation";
        registry.register("tollgate_session_revocations", help, self.revocations.clone());
        let help = "Audit events and counts that were written to the store";
        registry.register("tollgate_audit_rows", help, self.audit_rows.clone());
        let help = "Audit events and counts that wait for the store. Reads are refused once counts have waited for \
                    `store.gracePeriod`";
        registry.register("tollgate_audit_pending", help, self.audit_pending.clone());
        let help = "Audit events that the receiver of `kubernetes.audit.export` accepted from this process";
        registry.register("tollgate_audit_exported", help, self.audit_exported.clone());
        let help = "Audit events that wait for the receiver, 100,001 if there are more; 0 in replicas that do not \
                    export. Those of the last `kubernetes.audit.bucket` always wait";
        registry.register("tollgate_audit_unexported", help, self.audit_unexported.clone());
        let help = "Audit events that the receiver refuses while it accepts others, and therefore does not get. \
                    They stay in the store, and the log names each";
        registry.register("tollgate_audit_export_set_aside", help, self.audit_set_aside.clone());
        let help = "Attempts to export audit events that failed; the log has the reason";
        registry.register(
            "tollgate_audit_export_failures",
            help,
            self.audit_export_failures.clone(),
        );
        let help = "1 while the configuration of an agent has mistakes: its last good one stays in force, or the \
                    agent is closed";
        let broken = self.broken_configurations.clone();
        registry.register("tollgate_agent_configuration_broken", help, broken);
        let help = "Tokens that Argo CD revoked and that have not expired";
        registry.register("tollgate_argocd_revoked_tokens", help, self.revoked_tokens.clone());
        let help = "1 while Argo CD's list of revoked tokens could not be read for `argocd.redis.gracePeriod`. \
                    Tokens of Argo CD are refused meanwhile, unless `whenUnavailable` is `allow`";
        let unavailable = self.revoked_tokens_unavailable.clone();
        registry.register("tollgate_argocd_revoked_tokens_unavailable", help, unavailable);
        let help = "Connections to Argo CD's Redis that failed or were lost";
        let failures = self.argocd_redis_failures.clone();
        registry.register("tollgate_argocd_redis_failures", help, failures);
        let help = "Tokens with a signing key unknown to the gateway that were refused without fetching the \
                    issuer's keys, because that had been done less than 10 seconds before";
        registry.register("tollgate_issuer_key_fetches_spared", help, KEY_FETCHES_SPARED.clone());
        self.store.add_to(registry);
    }

    /// Replaces the agents of the state in force.
    pub fn configurations(&self, agents: impl Iterator<Item = (AgentId, ConfigurationStatus)>) {
        self.broken_configurations.clear();
        for (id, configuration) in agents {
            let broken = match configuration {
                ConfigurationStatus::Good => 0,
                ConfigurationStatus::Broken => 1,
            };
            let label = [("agent", id.get())];
            self.broken_configurations.get_or_create(&label).set(broken);
        }
    }

    /// - `reason`: `revoked`, `expired`, `withdrawn`, `store_unavailable` or
    ///   `revocations_unavailable`.
    pub fn stream_closed(&self, reason: &'static str) {
        self.closed_streams.get_or_create(&[("reason", reason)]).inc();
    }
}
