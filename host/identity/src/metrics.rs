//! Metrics of people's access: streams, revocations, audit and the store.
//!
//! Security: no label names a person or a session. Agents appear only by number, which the state
//! bounds.

use std::sync::{Arc, LazyLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use tollgate_core::agent::{AgentId, ConfigurationStatus};
use tollgate_core::metrics;

/// Tokens with a key that their issuer may have had since its keys were fetched a moment ago. Of the whole
/// process: an issuer's keys outlive each state.
pub(crate) static KEY_FETCHES_SPARED: LazyLock<Counter> = LazyLock::new(Counter::default);

type Label<V> = [(&'static str, V); 1];

metrics! {
    /// Counts of people's access.
    #[derive(Debug)]
    pub struct Metrics {
        pub open_streams: Gauge, "tollgate_open_streams", "Open watches, logs and tunnels of people";
        closed_streams: Family<Label<&'static str>, Counter>, "tollgate_closed_streams",
            "Watches, logs and tunnels of people that the gateway ended";
        pub revocations: Counter, "tollgate_session_revocations",
            "Revocations that took effect in this process, including those found at start. Every replica counts \
             each revocation";
        pub audit_rows: Counter, "tollgate_audit_rows", "Audit events and counts that were written to the store";
        pub audit_pending: Gauge, "tollgate_audit_pending",
            "Audit events and counts that wait for the store. Reads are refused once counts have waited for \
             `store.gracePeriod`";
        pub(crate) audit_exported: Counter, "tollgate_audit_exported",
            "Audit events that the receiver of `kubernetes.audit.export` accepted from this process";
        pub(crate) audit_unexported: Gauge, "tollgate_audit_unexported",
            "Audit events that wait for the receiver, 100,001 if there are more; 0 in replicas that do not export. \
             Those of the last `kubernetes.audit.bucket` always wait";
        pub(crate) audit_set_aside: Counter, "tollgate_audit_export_set_aside",
            "Audit events that the receiver refuses while it accepts others, and therefore does not get. They stay \
             in the store, and the log names each";
        pub(crate) audit_export_failures: Counter, "tollgate_audit_export_failures",
            "Attempts to export audit events that failed; the log has the reason";
        broken_configurations: Family<Label<i64>, Gauge>, "tollgate_agent_configuration_broken",
            "1 while the configuration of an agent has mistakes: its last good one stays in force, or the agent is \
             closed";
        pub(crate) revoked_tokens: Gauge, "tollgate_argocd_revoked_tokens",
            "Tokens that Argo CD revoked and that have not expired";
        pub(crate) revoked_tokens_unavailable: Gauge, "tollgate_argocd_revoked_tokens_unavailable",
            "1 while Argo CD's list of revoked tokens could not be read for `argocd.redis.gracePeriod`. Tokens of \
             Argo CD are refused meanwhile, unless `whenUnavailable` is `allow`";
        pub(crate) argocd_redis_failures: Counter, "tollgate_argocd_redis_failures",
            "Connections to Argo CD's Redis that failed or were lost";
        key_fetches_spared: Counter = KEY_FETCHES_SPARED.clone(), "tollgate_issuer_key_fetches_spared",
            "Tokens with a signing key unknown to the gateway that were refused without fetching the issuer's keys, \
             because that had been done less than 10 seconds before";
    } and {
        /// Those of the store itself.
        pub store: Arc<tollgate_store::metrics::Metrics>;
    }
}

impl Metrics {
    #[cfg(test)]
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let (mut registry, mut text) = (prometheus_client::registry::Registry::default(), String::new());
        self.add_to(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// Replaces the agents of the state in force.
    pub fn configurations(&self, agents: impl Iterator<Item = (AgentId, ConfigurationStatus)>) {
        // Agents that are gone must not stay.
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

    /// - `reason`: a value of the label of `tollgate_closed_streams_total`.
    pub fn stream_closed(&self, reason: &'static str) {
        self.closed_streams.get_or_create(&[("reason", reason)]).inc();
    }
}
