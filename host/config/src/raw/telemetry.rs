//! The section `telemetry` of the settings file: its written shape, and the checks that turn it into
//! [`Telemetry`].

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use super::SettingsValidator;
use super::authentication::{has_user, without_user};
use super::kubernetes::bounded_duration;
use crate::Telemetry;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTelemetry {
    /// Base URL of the collector, like `OTEL_EXPORTER_OTLP_ENDPOINT`; `/v1/traces` and `/v1/metrics` are
    /// appended. `http` or `https`, without user, query or fragment.
    endpoint: String,
    /// PEM file with the only certificate authorities trusted for it. Needs `https`. Defaults to the
    /// system's. Read again when it changes.
    ca: Option<PathBuf>,
    /// Share of the traces that begin at the gateway and are sent, 0 to 1. For a trace that a caller began,
    /// its `traceparent` decides.
    #[schemars(extend("default" = 1.0))]
    ratio: Option<f64>,
    /// Time between two pushes of the metrics. `1s` to `1h`.
    #[schemars(extend("default" = "60s"))]
    metrics_interval: Option<String>,
}

impl RawTelemetry {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> Option<Telemetry> {
        let endpoint = Url::parse(&self.endpoint).ok().filter(|url| {
            let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
            is_http && !has_user(url) && url.query().is_none() && url.fragment().is_none()
        });
        let Some(endpoint) = endpoint else {
            let message = format!(
                "`{}` is not an http or https URL without user and query",
                without_user(&self.endpoint)
            );
            let hint = "such as `http://otel-collector.monitoring.svc:4318`; `/v1/traces` and `/v1/metrics` are added";
            validator.refuse("telemetry.endpoint", message, hint);
            return None;
        };
        if endpoint.scheme() == "http" && self.ca.is_some() {
            validator.error(
                "telemetry.ca",
                "has no effect, because `telemetry.endpoint` is not https",
            );
        }
        let ratio = self.ratio.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&ratio) {
            validator.error_in("telemetry.ratio", format_args!("`{ratio}` is not a number from 0 to 1"));
            return None;
        }
        let metrics_interval = bounded_duration(
            "telemetry.metricsInterval",
            self.metrics_interval,
            60,
            1..=60 * 60,
            validator,
        );
        Some(Telemetry {
            endpoint,
            ca: self.ca.map(|file| validator.base.join(file)),
            ratio,
            metrics_interval,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::raw::parse;

    #[test]
    fn an_endpoint_is_enough_and_mistakes_say_what_to_write() {
        for (text, expected) in [
            ("{endpoint: 'http://c:4318'}", None),
            ("{endpoint: 'https://c/otlp/', ca: ca.pem, ratio: 0.1}", None),
            (
                "{endpoint: 'c:4318'}",
                Some("`c:4318` is not an http or https URL without user and query (such as `http://otel-collector"),
            ),
            (
                "{endpoint: 'http://user@c'}",
                Some("is not an http or https URL without user"),
            ),
            (
                "{endpoint: 'http://c', ca: ca.pem}",
                Some("`telemetry.ca` has no effect"),
            ),
            (
                "{endpoint: 'http://c', ratio: 10}",
                Some("`telemetry.ratio`: `10` is not a number from 0 to 1"),
            ),
        ] {
            let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\ntelemetry: {text}\n");
            let loaded = parse(&text, "t.yaml", Path::new("/etc"));
            let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
            match expected {
                None => assert!(
                    findings.is_empty() && loaded.value.unwrap().telemetry.is_some(),
                    "{findings:?}"
                ),
                Some(expected) => assert!(findings.iter().any(|found| found.contains(expected)), "{findings:?}"),
            }
        }
    }

    #[test]
    fn metrics_are_pushed_each_minute_unless_the_settings_say_otherwise() {
        for (interval, expected) in [
            ("", Ok(60)),
            (", metricsInterval: 1s", Ok(1)),
            (", metricsInterval: 1h", Ok(60 * 60)),
            (", metricsInterval: '0'", Err("0")),
            (", metricsInterval: 999ms", Err("999ms")),
            (", metricsInterval: 60m1s", Err("60m1s")),
            (", metricsInterval: '60'", Err("60")),
        ] {
            let text = format!(
                "state: {{directory: s}}\npolicies: {{directory: p}}\ntelemetry: {{endpoint: 'http://c'{interval}}}\n"
            );
            let loaded = parse(&text, "t.yaml", Path::new("/etc"));
            let found: Vec<String> = loaded.diagnostics.iter().map(|found| found.message.clone()).collect();
            match expected {
                Ok(seconds) => {
                    assert!(found.is_empty(), "{found:?}");
                    let telemetry = loaded.value.unwrap().telemetry.unwrap();
                    assert_eq!(telemetry.metrics_interval, Duration::from_secs(seconds));
                }
                Err(value) => assert_eq!(
                    found,
                    [format!(
                        "`telemetry.metricsInterval`: `{value}` is not a duration of 1s to 1h"
                    )]
                ),
            }
        }
    }
}
