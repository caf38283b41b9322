//! HTTP clients for servers that the settings name: issuers, a platform, and the receiver of audit events.
//!
//! Security: a client follows no redirects, and every body is bounded.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Response};
use tollgate_core::diagnostic::with_causes;
use tollgate_runtime::followed::AuthorityFile;

/// Time limit for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The only roots that are trusted for a server.
#[derive(Clone, Debug)]
pub(crate) enum Authority {
    Pem(String),
    /// Those that a file has when the client connects.
    File(Arc<AuthorityFile>),
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pem(one), Self::Pem(other)) => one == other,
            // A file that is open already is opened as the same value.
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
            (Self::Pem(_), Self::File(_)) | (Self::File(_), Self::Pem(_)) => false,
        }
    }
}

impl Eq for Authority {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    Http1,
    Any,
}

/// Begins a client; an error says what is wrong with `authority`.
///
/// - `authority`: the system's when absent.
/// - `timeout`: for one request, including its body.
pub(crate) fn builder(
    authority: Option<&Authority>,
    versions: Versions,
    timeout: Duration,
) -> Result<ClientBuilder, String> {
    let builder = Client::builder()
        // An answer must not send a token or a password on to another server.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
    let builder = match versions {
        Versions::Http1 => builder.http1_only(),
        Versions::Any => builder,
    };
    let pem = match authority {
        None => return Ok(builder),
        Some(Authority::File(file)) => {
            // reqwest adds no protocols to TLS settings that it is given.
            let protocols: &[&[u8]] = match versions {
                Versions::Http1 => &[b"http/1.1"],
                Versions::Any => &[b"h2", b"http/1.1"],
            };
            let config = file.client_config(protocols).map_err(|error| with_causes(&error))?;
            return Ok(builder.tls_backend_preconfigured(config));
        }
        Some(Authority::Pem(pem)) => pem,
    };
    let roots = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|error| with_causes(&error))?;
    if roots.is_empty() {
        return Err("no certificate in it".to_owned());
    }
    Ok(builder.tls_certs_only(roots))
}

/// Reads a body; `None` if it has more than `allowed` bytes.
pub(crate) async fn bounded_body(mut response: Response, allowed: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len().saturating_add(chunk.len()) > allowed {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}
