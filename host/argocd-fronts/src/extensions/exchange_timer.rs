//! Measures how long a whole exchange with a backend takes, as Argo CD does.
//!
//! Source: Argo CD, `CallExtension`: it captures the metrics of the proxy's handler, which returns
//! when the response or the tunnel has ended.

use std::sync::Arc;
use std::time::Instant;

use crate::extensions::ExtensionPermit;
use tollgate_proxy::metrics::Metrics;

/// Records the duration when it is dropped.
pub(super) struct ExchangeTimer {
    started: Instant,
    metrics: Arc<Metrics>,
    permit: Arc<ExtensionPermit>,
}

impl ExchangeTimer {
    pub(super) fn start(metrics: &Arc<Metrics>, permit: &Arc<ExtensionPermit>) -> Self {
        Self {
            started: Instant::now(),
            metrics: Arc::clone(metrics),
            permit: Arc::clone(permit),
        }
    }
}

impl Drop for ExchangeTimer {
    fn drop(&mut self) {
        let spec = self.permit.extension().spec();
        self.metrics.observe_exchange(spec, self.started.elapsed());
    }
}
