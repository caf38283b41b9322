//! The alerts and the dashboard, compared with what the gateway serves. Prometheus' own parser reads every
//! expression (`tests/metrics`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};

use super::chart;
use test_support::{checkout, metrics};
use tollgate_proxy::metrics::Metrics;
use xtask::cache;
use xtask::reference::Metric;

fn read(name: &str) -> String {
    std::fs::read_to_string(checkout().join(name)).unwrap()
}

/// Families by their name in queries.
type Families = BTreeMap<String, Metric>;

fn families() -> Families {
    let metrics = metrics::served().into_iter();
    metrics.map(|metric| (metric.name.clone(), metric)).collect()
}

/// The names that the code registered, in which counters have no suffix.
fn registered(metrics: &Metrics) -> BTreeSet<String> {
    let text = format!("{:?}", metrics.registry());
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

#[test]
fn the_reference_has_every_metric() {
    let names: BTreeSet<String> = families().into_keys().collect();
    let written = names.iter().map(|name| name.trim_end_matches("_total").to_owned());
    assert_eq!(
        written.collect::<BTreeSet<_>>(),
        registered(&metrics::filled()),
        "`test_support::metrics` fills in every family"
    );
    // A test of the papers compares the page with these metrics.
    let page = read("docs/reference/metrics.md");
    let listed = page
        .lines()
        .filter_map(|line| line.strip_prefix("- **`")?.split('`').next());
    let listed: BTreeSet<&str> = listed.collect();
    let missing: Vec<_> = names.iter().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "run `cargo xtask reference`: {missing:?}");
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
            || family.is_some_and(|family| family.labels.contains(label))
    };
    let unknown: Vec<_> = labels.iter().filter(|label| !is_known(label)).collect();
    (!unknown.is_empty()).then(|| format!("{place}: `{metric}` has no label {unknown:?}"))
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist() {
    let families = families();
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
    // Every metric is on the dashboard or in an alert, except what only a person reads, and former names.
    let names: BTreeSet<&str> = used.selectors.iter().map(|one| one.metric.as_str()).collect();
    let is_used = |name: &str| names.contains(name) || names.contains(format!("{name}_bucket").as_str());
    let (shown, hidden): (Vec<&Metric>, Vec<&Metric>) = families.values().partition(|metric| is_used(&metric.name));
    let is_former = |metric: &&Metric| metric.help.starts_with("Deprecated: ");
    let unused = hidden.into_iter().filter(|metric| !is_former(metric));
    let unused: Vec<&str> = unused.map(|metric| metric.name.as_str()).collect();
    assert_eq!(unused, ["tollgate_credential_last_error"]);
    let outdated: Vec<&Metric> = shown.into_iter().filter(is_former).collect();
    assert!(outdated.is_empty(), "{outdated:?}");
}

#[test]
fn mistakes_in_alerts_and_dashboards_are_found() {
    let families = families();
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
