//! Fetches JSON documents of an issuer.
//!
//! Security: no error contains text of the answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use url::Url;
use zeroize::Zeroizing;

use super::keys::ServerAddress;
use crate::http_client;
use tollgate_config::is_loopback;

const MAX_DOCUMENT_BYTES: usize = 512 * 1024;
/// An API server sends its keys as nothing but the second one.
const ACCEPTED: &str = "application/json, application/jwk-set+json";
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Time limit for one request, including its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a document could not be fetched. The gateway keeps and logs it, but never sends it to a
/// caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchError {
    #[error("`{url}` must be https, or http to a loopback address, without user and fragment")]
    Url { url: String },
    #[error("the certificate authority is not PEM: {reason}")]
    Authority { reason: String },
    #[error("no connection to `{url}`: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("`{url}` answered {status}, 200 is expected")]
    Status { url: String, status: u16 },
    #[error("`{url}` sent more than {MAX_DOCUMENT_BYTES} bytes")]
    TooLong { url: String },
    #[error("`{url}` did not send the JSON expected")]
    Json { url: String },
    #[error("`{url}` speaks for issuer `{observed}`, configured is `{expected}`")]
    Issuer {
        url: String,
        observed: String,
        expected: String,
    },
    #[error("`{url}` is not at the issuer's own address, `{expected}`")]
    Elsewhere { url: String, expected: String },
    #[error("`{url}` lists no key that is usable here")]
    NoKeys { url: String },
    #[error("the file `{file}` cannot be used: {reason}")]
    SecretFile { file: String, reason: String },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// - `authority`: PEM of the only roots trusted; the system's when absent.
/// - `via`: the only server that it connects to, if not that of `base`.
pub(super) fn client(base: &Url, authority: Option<&str>, via: Option<&ServerAddress>) -> Result<Client, FetchError> {
    let unusable = |reason: String| FetchError::Authority { reason };
    let mut builder = http_client::builder(authority, REQUEST_TIMEOUT)
        .map_err(unusable)?
        .pool_max_idle_per_host(1);
    if is_loopback(base) || via.is_some() {
        builder = builder.no_proxy();
    }
    if let Some(server) = via {
        // argocd-server closes HTTP/2 connections that are not for gRPC.
        builder = builder.http1_only();
        let host = server.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        builder = builder.dns_resolver(Arc::new(OneHost(host.to_owned())));
    }
    builder.build().map_err(|error| unusable(error.to_string()))
}

/// Resolves every name to the addresses of one host, so that a certificate may be for another name.
struct OneHost(String);

impl Resolve for OneHost {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

pub(super) fn parse_url(text: &str) -> Result<Url, FetchError> {
    let refused = || FetchError::Url { url: text.to_owned() };
    let url = Url::parse(text).map_err(|_| refused())?;
    let safe = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url),
        _ => false,
    };
    let bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let is_accepted = safe && bare && url.has_host();
    is_accepted.then_some(url).ok_or_else(refused)
}

/// Reads the token of a file, without blanks and line ends around it.
pub(super) async fn read_token(file: &Path) -> Result<SecretString, FetchError> {
    read_secret(file, "a token", |byte| byte.is_ascii_graphic()).await
}

/// Reads the secret of an OAuth client from a file, without blanks and line ends around it. Blanks
/// within it are its own (RFC 6749, appendix A.2).
pub(super) async fn read_client_secret(file: &Path) -> Result<SecretString, FetchError> {
    read_secret(file, "a client secret", |byte| byte == b' ' || byte.is_ascii_graphic()).await
}

async fn read_secret(file: &Path, expected: &str, may_have: fn(u8) -> bool) -> Result<SecretString, FetchError> {
    let refused = |reason: String| FetchError::SecretFile {
        file: file.display().to_string(),
        reason,
    };
    let text = tokio::fs::read_to_string(file).await.map(Zeroizing::new);
    let text = text.map_err(|error| refused(error.to_string()))?;
    let secret = text.trim();
    if secret.is_empty() || secret.len() > MAX_TOKEN_BYTES || !secret.bytes().all(may_have) {
        let reason = format!("{expected} of at most {MAX_TOKEN_BYTES} ASCII characters is expected");
        return Err(refused(reason));
    }
    Ok(SecretString::from(secret))
}

/// - `bearer`: token sent with the request, if any.
pub(super) async fn fetch_json<T: DeserializeOwned>(
    client: &Client,
    url: &Url,
    bearer: Option<&str>,
) -> Result<T, FetchError> {
    let name = || url.to_string();
    // The URL is left out; our message already has it.
    let unreachable = |error: reqwest::Error| FetchError::Unreachable {
        url: name(),
        reason: cause(&error.without_url()),
    };
    let mut request = client.get(url.clone()).header(http::header::ACCEPT, ACCEPTED);
    if let Some(token) = bearer {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(FetchError::Status { url: name(), status });
    }
    let body = http_client::bounded_body(response, MAX_DOCUMENT_BYTES);
    let body = body.await.map_err(unreachable)?;
    let body = body.ok_or_else(|| FetchError::TooLong { url: name() })?;
    serde_json::from_slice(&body).map_err(|_| FetchError::Json { url: name() })
}

/// The innermost cause, which says more than "error sending request".
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
