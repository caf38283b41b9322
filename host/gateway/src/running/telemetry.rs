//! Sends traces to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Spans wait in a queue of bounded length for a thread of their own. While the collector does not answer,
//! the oldest wait and new ones are dropped; no request waits for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor as _};

use tollgate_config::Telemetry;
use tollgate_proxy::record::Tracing;

/// How long the collector may take for one batch.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes what sends spans. The collector need not answer yet.
pub(super) fn tracing(settings: &Telemetry) -> anyhow::Result<Tracing> {
    let mut endpoint = settings.endpoint.clone();
    let path = format!("{}/v1/traces", endpoint.path().trim_end_matches('/'));
    endpoint.set_path(&path);
    let mut client = reqwest::blocking::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    if let Some(file) = &settings.ca {
        let authorities = authorities(file).with_context(|| format!("`telemetry.ca` `{}`", file.display()))?;
        client = client.tls_certs_only(authorities);
    }
    // A blocking client must not be made, or dropped, on a thread of the runtime.
    let client = std::thread::spawn(move || client.build())
        .join()
        .map_err(|_| anyhow::anyhow!("no client for the collector can be made"))?
        .context("no client for the collector can be made")?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.as_str())
        .with_timeout(TIMEOUT)
        .build()
        .context("no exporter of traces can be made")?;
    let mut processor = BatchSpanProcessor::builder(exporter).build();
    processor.set_resource(&Resource::builder().with_service_name("tollgate").build());
    Ok(Tracing::new(Arc::new(processor), settings.ratio))
}

/// The certificates of a file.
pub(super) fn authorities(file: &Path) -> anyhow::Result<Vec<reqwest::Certificate>> {
    let found = reqwest::Certificate::from_pem_bundle(&std::fs::read(file)?)?;
    anyhow::ensure!(!found.is_empty(), "it has no certificate");
    Ok(found)
}
