//! Makes the client for the API server from the settings.
//!
//! Security: no error contains a credential or any text of a kubeconfig.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::error_text::{describe_client_error, describe_kubeconfig_error, short};
use super::kinds::WATCH_SECONDS;
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::with_causes;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest silence of an answer: more than that of a watch without events.
const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Makes a client from the settings; the server need not be reachable yet.
pub(crate) async fn connect(settings: &KubernetesState) -> Result<Client, String> {
    let mut config = client_config(settings).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // Otherwise the age of an idle connection would count as silence.
    config.reset_reader_on_write = true;
    Client::try_from(config).map_err(|error| format!("no client can be made: {}", describe_client_error(&error)))
}

/// Reads from the settings how the server is reached, and with which credential.
pub(crate) async fn client_config(settings: &KubernetesState) -> Result<Config, String> {
    match &settings.kubeconfig {
        None => Config::incluster().map_err(|error| {
            let causes = short(&with_causes(&error));
            format!("outside a pod `state.kubernetes.kubeconfig` must be set: {causes}")
        }),
        Some(file) => {
            let refused = |error: KubeconfigError| {
                let (file, why) = (short(&file.display().to_string()), describe_kubeconfig_error(&error));
                format!("the kubeconfig `{file}` cannot be used: {why}")
            };
            let kubeconfig = Kubeconfig::read_from(file).map_err(refused)?;
            let options = KubeConfigOptions {
                context: settings.context.clone(),
                ..KubeConfigOptions::default()
            };
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.map_err(refused)
        }
    }
}

#[cfg(test)]
mod tests;
