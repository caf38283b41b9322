//! The page of the metrics.

use anyhow::{Result, ensure};

use super::text::{entry, wrapped};
use super::{Facts, Label, Metric};

const INTRODUCTION: &str = "\
# Metrics

The admin listener serves every metric at `/metrics`, in the OpenMetrics text format.
[Monitoring](../monitoring.md) says how to scrape it, and has alerts and a dashboard. With `telemetry` they are also
pushed to an OpenTelemetry collector ([Metrics by OTLP](../monitoring.md#metrics-by-otlp)).

- Each process counts for itself. Sum counters over all replicas. A gauge about the configuration has the same value in
  every replica that has read the same objects, so take its maximum.
- The names are those to use in queries. A histogram has the series `_bucket` (with the label `le`), `_sum` and `_count`;
  a collector gets one metric for it.
- A metric without a series yet is left out: it appears with the first event.
";

pub(super) fn page(facts: &Facts) -> Result<String> {
    let mut page = format!("{INTRODUCTION}\n## Names\n\n");
    let mut metrics: Vec<&Metric> = facts.metrics.iter().collect();
    metrics.sort_by(|one, other| one.name.cmp(&other.name));
    for metric in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            [one] => format!(", label {one}"),
            several => format!(", labels {}", several.join(", ")),
        };
        page.push_str(&entry(&metric.name, &format!("{}{labels}", metric.kind), &metric.help));
    }
    page.push_str("\n## Labels\n\nNo label has a secret, the name of a person, or a value that a caller chooses.\n\n");
    for label in &facts.labels {
        let of: Vec<String> = label.metrics.iter().map(|name| format!("`{name}`")).collect();
        let of = if of.is_empty() {
            String::new()
        } else {
            format!(" of {}", of.join(", "))
        };
        page.push_str(&wrapped(&format!("- **`{}`**{of}: {}", label.name, label.values), 2));
    }
    explained(facts)?;
    Ok(page)
}

/// Every label of a metric is explained, and every explained label is one of a metric.
fn explained(facts: &Facts) -> Result<()> {
    let explains = |label: &Label, metric: &Metric, name: &str| {
        label.name == name && (label.metrics.is_empty() || label.metrics.contains(&metric.name))
    };
    for metric in &facts.metrics {
        for name in &metric.labels {
            let found = facts
                .labels
                .iter()
                .filter(|label| explains(label, metric, name))
                .count();
            let which = &metric.name;
            ensure!(
                found == 1,
                "label `{name}` of `{which}` is explained {found} times in `metrics::LABELS`"
            );
        }
    }
    for label in &facts.labels {
        let is_used = |name: &String| {
            facts
                .metrics
                .iter()
                .any(|metric| metric.name == *name && metric.labels.contains(&label.name))
        };
        let is_known =
            facts.metrics.iter().any(|metric| metric.labels.contains(&label.name)) && label.metrics.iter().all(is_used);
        ensure!(
            is_known,
            "no metric has the label `{}` as `metrics::LABELS` explains it",
            label.name
        );
    }
    Ok(())
}
