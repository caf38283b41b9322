//! Every metric of the gateway, as `/metrics` serves it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use xtask::reference::Metric;

use tollgate_core::agent::{AgentId, ConfigurationStatus};
use tollgate_core::diagnostic::Location;
use tollgate_credential::cache::health::{Health, LastError, SlotStatus, Totals};
use tollgate_credential::{MintError, MintErrorClass};
use tollgate_objects::WatchAge;
use tollgate_objects::decode;
use tollgate_objects::{InvalidObject, ObjectName, extensions};
use tollgate_proxy::metrics::{CertificateUse, ConfigPart, Listener, Metrics};
use tollgate_proxy::record::{Recorder, Stage};
use tollgate_proxy::server::HandshakeFailure;
use tollgate_runtime::followed;

/// Every metric, in the order of the text.
pub fn served() -> Vec<Metric> {
    let text = filled().text().unwrap();
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            metrics.push(Metric {
                name: name.to_owned(),
                kind: String::new(),
                labels: Vec::new(),
                help: help.to_owned(),
            });
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let metric = metrics.last_mut().unwrap();
            kind.clone_into(&mut metric.kind);
            if kind == "counter" {
                metric.name.push_str("_total");
            }
        } else if let Some((_, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let metric = metrics.last_mut().unwrap();
            let labels = rest.split_once('}').unwrap().0.split("\",");
            for label in labels.map(|label| label.split_once('=').unwrap().0) {
                // Of histograms.
                if label != "le" && metric.labels.iter().all(|known| known != label) {
                    metric.labels.push(label.to_owned());
                }
            }
        }
    }
    metrics
}

/// The health of a credential that expires, and whose last renewal failed.
fn health() -> Health {
    let now = jiff::Timestamp::now();
    Health {
        standing: SlotStatus::Stale,
        generation: 1,
        fingerprint: None,
        minted_at: Some(now),
        expires_at: Some(now),
        refresh_at: None,
        last_mint_seconds: None,
        mints: 2,
        failed: 1,
        last_error: Some(LastError {
            error: MintError::new(MintErrorClass::Denied, "invalid_grant", "the role is gone"),
            at: now,
        }),
        next_attempt: None,
        warnings: Vec::new(),
    }
}

/// Metrics with a series in every family, because families without one are left out of the text.
pub fn filled() -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::default());
    let recorder = Recorder::start(1, None, Arc::clone(&metrics), None).unwrap();
    let mut record = recorder.open(Method::GET, "/");
    record.finish_stage(Stage::Authenticate);
    drop(record);

    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": "argocd"},
        "data": {"extension.config.echo": "{services: [{url: 'http://echo'}]}"},
    });
    let resources = decode::load_text(&object.to_string(), "argocd-cm.yaml", "argocd");
    let resources = resources.value.unwrap_or_else(|| panic!("{:?}", resources.diagnostics));
    let extension = &extensions::parse(&resources).value.unwrap()[0];
    metrics.count_forwarded(extension, 200);
    metrics.observe_exchange(extension, Duration::ZERO);

    metrics.count_load(ConfigPart::State, false);
    metrics.invalid_objects(&[InvalidObject {
        kind: "AppProject",
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: "shop".to_owned(),
        },
        location: Location::default(),
        mistake: "a mistake".to_owned(),
    }]);
    metrics.set_stuck_policies([("extensions", false)].into_iter());
    metrics.set_impersonation_grants([("prod", [1, 0, 0])].into_iter());
    metrics.set_application_grants([("prod", [[1, 0, 0]; 3])].into_iter());
    metrics.count_connector_event("agent.connected", "ok");

    metrics.credentials.record_mint("prod", "ok", 0.1);
    metrics
        .credentials
        .replace([("prod", health())].into_iter(), Totals::default());
    let agent = AgentId::new(1).unwrap();
    metrics
        .identity
        .configurations([(agent, ConfigurationStatus::Good)].into_iter());
    metrics.identity.stream_closed("revoked");
    metrics.identity.store.failed("audit");
    metrics.identity.store.observe("read", Duration::ZERO);
    metrics.connections(Listener::Public);
    metrics.load.observe_sizes("argocd", Some(1), Some(1));
    metrics.load.observe_reload(ConfigPart::State, Duration::ZERO);
    metrics.load.open_exchanges("argocd");
    metrics.load.set_cluster_connectors(vec![("prod".to_owned(), 1)]);
    let second = Some(Duration::from_secs(1));
    metrics.load.set_watch_ages(&[WatchAge {
        resource: "applications.argoproj.io".to_owned(),
        is_broken: false,
        since_event: second,
        since_list: second,
    }]);
    let end = (CertificateUse::Public, String::new(), 1_900_000_000);
    metrics.load.set_certificate_ends(vec![end]);
    metrics
        .load
        .count_failed_handshake("admission", HandshakeFailure::Timeout);
    followed::report("admission.tls.secret", false);
    metrics
}
