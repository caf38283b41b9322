//! The TLS client configuration of a plugin's requests.
//!
//! Security: every connection verifies the certificate. Sessions are not resumed, so an earlier
//! verification does not count.

use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};

use tollgate_runtime::certificates::{Error, roots_from_pem, system_roots};
use tollgate_runtime::followed::AuthorityFile;

pub(super) fn with_authorities(pem: &str) -> Result<Arc<ClientConfig>, Error> {
    with_roots(roots_from_pem(pem)?)
}

/// Trusts the authorities that the file has when a connection is made.
pub(super) fn with_file(file: &Arc<AuthorityFile>) -> Result<Arc<ClientConfig>, Error> {
    Ok(Arc::new(file.client_config(&[b"h2", b"http/1.1"])?))
}

/// A configuration that trusts the system's authorities. Made once.
pub(super) fn with_system_authorities() -> Result<Arc<ClientConfig>, Error> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    match CONFIG.get() {
        Some(config) => Ok(config.clone()),
        None => with_roots(system_roots()?).map(|config| CONFIG.get_or_init(|| config).clone()),
    }
}

fn with_roots(roots: Arc<RootCertStore>) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
