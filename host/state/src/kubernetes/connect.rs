//! Makes the client for the API server from the settings.
//!
//! Security: no error contains a credential or any text of a kubeconfig.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::error_text::{describe_client_error, describe_kubeconfig_error, short};
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::with_causes;
use tollgate_runtime::certificates;

/// Seconds that one watch call lasts. A connection that died silently is noticed after at most this
/// time, and resuming costs the server almost nothing.
pub(crate) const WATCH_SECONDS: u32 = 60;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest silence of an answer: more than that of a watch without events.
const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Makes a client from the settings; the server need not be reachable yet.
pub(crate) async fn connect(settings: &KubernetesState) -> Result<Client, String> {
    client(client_config(settings).await?)
}

/// As [`connect`], from settings that were read.
pub(crate) fn client(mut config: Config) -> Result<Client, String> {
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

/// The files that a client is made of, so that it is made anew when one changes. Those of a pod are not
/// among them, because the client library reads them again by itself.
pub(crate) fn files(settings: &KubernetesState) -> Vec<PathBuf> {
    let Some(file) = &settings.kubeconfig else {
        return Vec::new();
    };
    // It makes the paths in the kubeconfig absolute. What cannot be read names no files.
    let kubeconfig = Kubeconfig::read_from(file).unwrap_or_default();
    let clusters = kubeconfig.clusters.into_iter().filter_map(|named| named.cluster);
    let users = kubeconfig.auth_infos.into_iter().filter_map(|named| named.auth_info);
    let named = clusters
        .filter_map(|cluster| cluster.certificate_authority)
        .chain(users.flat_map(|user| [user.client_certificate, user.client_key].into_iter().flatten()));
    std::iter::once(file.clone()).chain(named.map(PathBuf::from)).collect()
}

/// The last second of validity of the client certificate, since the Unix epoch; `None` if there is none, or
/// if a program makes it.
pub(crate) fn certificate_end(config: &Config) -> Option<u64> {
    let user = &config.auth_info;
    // As in client-go: data wins over a file.
    let pem = match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(file)) => std::fs::read(file).ok()?,
        (None, None) => return None,
    };
    certificates::end_of_pem(&pem)
}

#[cfg(test)]
mod tests;
