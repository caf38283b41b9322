//! Sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Spans wait in a queue of bounded length for a separate thread. While the collector does not answer,
//! the oldest wait and new ones are dropped and counted; no request waits for it. Metrics are cumulative, so each push
//! has everything that earlier ones had.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanProcessor as _;
use prometheus_client::metrics::counter::Counter;
use rustls::ClientConfig;
use url::Url;
use uuid::Uuid;

use tollgate_config::Telemetry;
use tollgate_proxy::record::Tracing;
use tollgate_runtime::followed::AuthorityFile;

pub(super) use metrics::{MetricsExporter, MetricsPush};
use spans::BoundedProcessor;

mod metrics;
mod spans;

/// How long the collector may take for one batch or push.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes what sends spans, and what pushes metrics. The collector need not answer yet.
///
/// - `lost`: counts spans that the collector did not get.
pub(super) fn start(settings: &Telemetry, lost: &Counter) -> anyhow::Result<(Tracing, MetricsExporter)> {
    let resource = resource();
    Ok((
        tracing(settings, &resource, lost)?,
        MetricsExporter::new(settings, &resource)?,
    ))
}

fn tracing(settings: &Telemetry, resource: &Resource, lost: &Counter) -> anyhow::Result<Tracing> {
    let endpoint = below(&settings.endpoint, "v1/traces");
    let mut client = reqwest::blocking::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    if let Some(config) = tls_config(settings)? {
        client = client.tls_backend_preconfigured(config);
    }
    // The exporter's thread blocks. Such a client must not be made, or dropped, on a thread of the runtime.
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
    let mut processor = BoundedProcessor::new(exporter, lost);
    processor.set_resource(resource);
    Ok(Tracing::new(Arc::new(processor), settings.ratio))
}

/// What traces and metrics say of this process. Of two replicas, only the id differs.
fn resource() -> Resource {
    let instance = Key::from_static_str("service.instance.id");
    let named = || Resource::builder().with_service_name("tollgate");
    let resource = named().build();
    // `OTEL_RESOURCE_ATTRIBUTES` may have one.
    if resource.get(&instance).is_some() {
        return resource;
    }
    let id = Uuid::now_v7().to_string();
    named().with_attribute(KeyValue::new(instance, id)).build()
}

/// The URL with this path below the collector's.
fn below(endpoint: &Url, path: &str) -> Url {
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/{path}", endpoint.path().trim_end_matches('/')));
    url
}

/// TLS with the authorities of the settings, if they have any.
pub(super) fn tls_config(settings: &Telemetry) -> anyhow::Result<Option<ClientConfig>> {
    let Some(path) = &settings.ca else { return Ok(None) };
    let file = AuthorityFile::open("telemetry.ca", path).map_err(anyhow::Error::msg)?;
    Ok(Some(file.client_config(&[b"h2", b"http/1.1"])?))
}
