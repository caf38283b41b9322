//! The client for the API server of the control plane's cluster.

use tollgate_config::KubernetesState;

mod connect;
mod error_text;

pub(crate) use connect::{WATCH_SECONDS, certificate_end, client, client_config, connect, files};
pub(crate) use error_text::{describe_client_error, short};

/// Checks that a kubeconfig can be used. Connects to no server.
///
/// # Errors
/// Why it cannot.
pub fn check_kubeconfig(settings: &KubernetesState) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(client_config(settings)).map(drop)
}
