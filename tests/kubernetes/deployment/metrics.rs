//! docs/metrics.md, the alerts and the dashboard, compared with what the gateway registers. Prometheus' own
//! parser reads every expression (`tests/metrics`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chart;
use test_support::checkout;
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
use xtask::cache;

/// Type and names of labels of a metric.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

/// Families by their name in queries.
type Families = BTreeMap<String, Family>;

fn read(name: &str) -> String {
    std::fs::read_to_string(checkout().join(name)).unwrap()
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
fn filled() -> Arc<Metrics> {
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
    metrics.count_agent_event("agent.connected", "ok");

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
    metrics.load.set_cluster_agents(vec![("prod".to_owned(), 1)]);
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

/// The names that the code registered, in which counters have no suffix.
fn registered(metrics: &Metrics) -> BTreeSet<String> {
    let text = format!("{metrics:?}");
    let descriptors = text.split("Descriptor { name: \"").skip(1);
    let names = descriptors.map(|rest| {
        let name = rest.split('"').next().unwrap();
        let unit = rest.split_once(", unit: ").unwrap().1;
        // The text has the unit at the end of the name.
        if unit.starts_with("Some(Seconds)") {
            format!("{name}_seconds")
        } else if unit.starts_with("Some(Bytes)") {
            format!("{name}_bytes")
        } else {
            name.to_owned()
        }
    });
    names.collect()
}

/// The families of the text of `/metrics`.
fn families(text: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            current = format!("{name}{suffix}");
            let family = Family {
                kind: kind.to_owned(),
                labels: BTreeSet::new(),
            };
            families.insert(current.clone(), family);
        } else if let Some((_, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let labels = rest.split_once('}').unwrap().0.split("\",");
            let names = labels.map(|label| label.split_once('=').unwrap().0.to_owned());
            let family = families.get_mut(&current).unwrap();
            // Of histograms.
            family.labels.extend(names.filter(|name| name != "le"));
        }
    }
    families
}

/// The families in the tables of docs/metrics.md.
fn documented() -> Families {
    let page = read("docs/metrics.md");
    let mut families = Families::new();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let prefixes = ["tollgate_", "argocd_", "process_"];
    for row in rows.filter(|row| prefixes.iter().any(|prefix| row.starts_with(prefix))) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let &[name, kind, unit, labels, meaning, when, ""] = cells.as_slice() else {
            panic!("a row needs six cells: {row}");
        };
        assert!([unit, meaning, when].iter().all(|cell| !cell.is_empty()), "{row}");
        let family = Family {
            kind: kind.to_owned(),
            labels: labels.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        };
        let name = name.trim_end_matches('`').to_owned();
        assert!(families.insert(name, family).is_none(), "{row}");
    }
    families
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let metrics = filled();
    let families = families(&metrics.text().unwrap());
    let written = families.keys().map(|name| name.trim_end_matches("_total").to_owned());
    assert_eq!(
        written.collect::<BTreeSet<_>>(),
        registered(&metrics),
        "this test fills in every family"
    );
    let documented = documented();
    for (name, family) in &families {
        assert_eq!(documented.get(name), Some(family), "docs/metrics.md: `{name}`");
    }
    let gone: Vec<_> = documented.keys().filter(|name| !families.contains_key(*name)).collect();
    assert!(
        gone.is_empty(),
        "docs/metrics.md has metrics that do not exist: {gone:?}"
    );
    // Values of every label are listed.
    let page = read("docs/metrics.md");
    let values = page.split_once("## Labels").unwrap().1;
    for label in families.values().flat_map(|family| &family.labels) {
        assert!(values.contains(&format!("`{label}`")), "docs/metrics.md: `{label}`");
    }
}

/// What the program of `tests/metrics` prints.
#[derive(Debug, Deserialize)]
struct Uses {
    mistakes: Vec<String>,
    selectors: Vec<Use>,
    expressions: usize,
}

/// One use of a metric in an expression.
#[derive(Debug, Deserialize)]
struct Use {
    place: String,
    metric: String,
    labels: BTreeSet<String>,
}

/// What the alerts and the dashboard use.
fn uses(rules: &str, dashboard: &str) -> Uses {
    let program = cache::metrics(checkout()).unwrap();
    assert!(
        program.is_file(),
        "no {}: run `cargo xtask kubernetes`",
        program.display()
    );
    let folder = tempfile::tempdir().unwrap();
    let files = [("rules.yaml", rules), ("dashboard.json", dashboard)].map(|(name, text)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let output = Command::new(program).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Labels that Prometheus gives to what it scrapes.
const OF_TARGETS: [&str; 3] = ["job", "namespace", "pod"];

/// Why a use is wrong.
fn mistake(used: &Use, families: &Families) -> Option<String> {
    let Use { place, metric, labels } = used;
    // Prometheus' own.
    let of_prometheus = metric == "up";
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .filter_map(|suffix| metric.strip_suffix(*suffix))
        .filter_map(|name| families.get(name))
        .find(|family| family.kind == "histogram");
    let family = histogram.or_else(|| families.get(metric).filter(|family| family.kind != "histogram"));
    if family.is_none() && !of_prometheus {
        return Some(format!("{place}: there is no metric `{metric}`"));
    }
    let is_known = |label: &&String| {
        OF_TARGETS.contains(&label.as_str())
            || (label.as_str() == "le" && metric.ends_with("_bucket") && histogram.is_some())
            || family.is_some_and(|family| family.labels.contains(*label))
    };
    let unknown: Vec<_> = labels.iter().filter(|label| !is_known(label)).collect();
    (!unknown.is_empty()).then(|| format!("{place}: `{metric}` has no label {unknown:?}"))
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist() {
    let families = documented();
    let (rules, dashboard) = (
        read("deploy/monitoring/rules.yaml"),
        read("deploy/monitoring/dashboard.json"),
    );
    let used = uses(&rules, &dashboard);
    assert_eq!(used.mistakes, Vec::<String>::new());
    assert!(used.expressions > 50, "{}", used.expressions);
    let mistakes: Vec<_> = used
        .selectors
        .iter()
        .filter_map(|one| mistake(one, &families))
        .collect();
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    // Every metric is on the dashboard or in an alert, except what only a person reads.
    let names: BTreeSet<&str> = used.selectors.iter().map(|one| one.metric.as_str()).collect();
    let is_used = |name: &str| names.contains(name) || names.contains(format!("{name}_bucket").as_str());
    let unused: Vec<_> = families.keys().filter(|name| !is_used(name)).collect();
    assert_eq!(unused, ["tollgate_credential_last_error"]);
}

#[test]
fn mistakes_in_alerts_and_dashboards_are_found() {
    let families = documented();
    let rule = |expression: &str| {
        json!({"groups": [{"name": "one", "rules": [{"alert": "One", "expr": expression}]}]}).to_string()
    };
    let nothing = json!({"panels": []}).to_string();
    let found = |rules: &str, dashboard: &str| {
        let used = uses(rules, dashboard);
        let mistakes = used.selectors.iter().filter_map(|one| mistake(one, &families));
        used.mistakes.iter().cloned().chain(mistakes).collect::<Vec<String>>()
    };
    assert_eq!(
        found(&rule("tollgate_open_streams > 0"), &nothing),
        Vec::<String>::new()
    );
    for (expression, expected) in [
        (
            "tollgate_open_stream > 0",
            "One: there is no metric `tollgate_open_stream`",
        ),
        (
            "tollgate_decisions_total{reson=\"ok\"} > 0",
            "One: `tollgate_decisions_total` has no label [\"reson\"]",
        ),
        (
            "sum by (front, agent) (tollgate_decisions_total)",
            "One: `tollgate_decisions_total` has no label [\"agent\"]",
        ),
        (
            "tollgate_credential_mint_seconds > 1",
            "One: there is no metric `tollgate_credential_mint_seconds`",
        ),
    ] {
        assert_eq!(found(&rule(expression), &nothing), [expected]);
    }
    let unparsed = found(&rule("sum by (front (tollgate_decisions_total)"), &nothing);
    assert!(unparsed[0].contains("could not parse expression"), "{unparsed:?}");
    let template = json!({"groups": [{"name": "one", "rules": [{
        "alert": "One", "expr": "up == 0", "annotations": {"summary": "{{ $labels.pod | humanise }}"},
    }]}]});
    let template = found(&template.to_string(), &nothing);
    assert!(
        template[0].contains("function \"humanise\" not defined"),
        "{template:?}"
    );
    let panel = json!({"panels": [{"title": "Row", "panels": [{
        "title": "Inner", "targets": [{"refId": "A", "expr": "rate(tollgate_open_streams[$__rate_intervall])"}],
    }]}]});
    let panel = found(&rule("up == 0"), &panel.to_string());
    assert!(panel[0].starts_with("panel \"Inner\", A: "), "{panel:?}");
}

/// Every alert has a severity, and a section of the page of monitoring.
#[test]
fn every_alert_says_what_to_do() {
    let page = read("docs/monitoring.md");
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/rules.yaml")).unwrap();
    let mut alerts = BTreeSet::new();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert!(alerts.insert(name), "`{name}` is there twice");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}: {severity}"
        );
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].is_string(), "{name}: no {annotation}");
        }
        let anchor = format!("docs/monitoring.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"], anchor);
    }
    let sections = page.lines().filter_map(|line| line.strip_prefix("### "));
    assert_eq!(sections.collect::<BTreeSet<_>>(), alerts);
}

/// The chart and `deploy/monitoring` have the same alerts and the same dashboard.
#[tokio::test]
async fn the_chart_has_these_alerts_and_this_dashboard() {
    let dashboard = "--set=metrics.dashboard.enabled=true,metrics.prometheusRule.enabled=true";
    let objects = chart::objects(&chart::template("argocd", &[dashboard]).await.unwrap());
    let rule = objects
        .iter()
        .find(|object| object["kind"] == "PrometheusRule")
        .unwrap();
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/rules.yaml")).unwrap();
    assert_eq!(rule["spec"], rules);
    let mut texts = objects
        .iter()
        .filter_map(|object| object["data"]["tollgate.json"].as_str());
    assert_eq!(texts.next().unwrap(), read("deploy/monitoring/dashboard.json"));
}
