//! HTTP clients for servers that the settings name: issuers, a platform, and the receiver of audit events.
//!
//! Security: a client follows no redirects, and every body is bounded.

use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Response};
use tollgate_core::diagnostic::with_causes;

/// Time limit for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Begins a client; an error says what is wrong with `authority`.
///
/// - `authority`: PEM of the only roots trusted; the system's when absent.
/// - `timeout`: for one request, including its body.
pub(crate) fn builder(authority: Option<&str>, timeout: Duration) -> Result<ClientBuilder, String> {
    let builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
    let Some(pem) = authority else {
        return Ok(builder);
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
