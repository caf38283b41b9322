//! Fetches JSON documents of an issuer.
//!
//! Security: no error contains text of the answer.

use std::net::IpAddr;
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
use crate::http_client::{self, Authority, Versions};
use tollgate_config::is_loopback;
use tollgate_core::address::SpecialPurposeRange;
use tollgate_runtime::name_lookup;

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
    #[error("the certificate authority cannot be used: {reason}")]
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
    #[error(
        "`{url}` is at an address of the kind `{range}`: besides the hosts that the settings name, an issuer may \
         name public ones, and private ones if its own is private"
    )]
    Address { url: String, range: &'static str },
    #[error("`{url}` would get a secret without TLS: use https")]
    PlainSecret { url: String },
    #[error("`{url}` is not at the issuer's own address, `{expected}`")]
    Elsewhere { url: String, expected: String },
    #[error("`{url}` lists no key that is usable here")]
    NoKeys { url: String },
    #[error("the file `{file}` cannot be used: {reason}")]
    SecretFile { file: String, reason: String },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// The hosts that the settings name for an issuer. What the issuer itself names may be elsewhere, but not
/// anywhere.
///
/// Security: an issuer must not make the gateway ask its own machine, or a network that the issuer is not in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnHosts {
    hosts: Vec<String>,
    has_loopback: bool,
}

impl OwnHosts {
    pub(super) fn of(urls: &[&Url]) -> Self {
        let hosts = urls.iter().filter_map(|url| url.host_str()).map(bare);
        Self {
            hosts: hosts.collect(),
            has_loopback: urls.iter().any(|url| is_loopback(url)),
        }
    }

    /// Checks a URL that the issuer names. The addresses of a host name are checked when it is resolved.
    pub(super) async fn check(&self, url: &Url) -> Result<(), FetchError> {
        let host = bare(url.host_str().unwrap_or_default());
        if self.hosts.contains(&host) {
            return Ok(());
        }
        let refused = |range: SpecialPurposeRange| FetchError::Address {
            url: url.to_string(),
            range: range.into(),
        };
        if is_loopback(url) && !self.has_loopback {
            return Err(refused(SpecialPurposeRange::Loopback));
        }
        let Ok(address) = host.parse::<IpAddr>() else {
            return Ok(());
        };
        let is_private = self.is_private().await;
        self.refused_range(address, is_private)
            .map_or(Ok(()), |range| Err(refused(range)))
    }

    /// Checks that no secret is sent without TLS, unless to the issuer itself.
    pub(super) fn check_secret(&self, url: &Url) -> Result<(), FetchError> {
        let is_own = url.host_str().is_some_and(|host| self.hosts.contains(&bare(host)));
        match url.scheme() == "https" || is_own {
            true => Ok(()),
            false => Err(FetchError::PlainSecret { url: url.to_string() }),
        }
    }

    /// Whether the issuer is in a private network.
    async fn is_private(&self) -> bool {
        for host in &self.hosts {
            // An issuer that cannot be resolved counts as public, for which more is refused.
            let Ok(found) = name_lookup::lookup(host, 0).await else {
                continue;
            };
            if found.iter().any(|address| is_private(address.ip())) {
                return true;
            }
        }
        false
    }

    /// The range for which an address of another host is refused.
    fn refused_range(&self, address: IpAddr, is_issuer_private: bool) -> Option<SpecialPurposeRange> {
        match SpecialPurposeRange::classify(address)? {
            SpecialPurposeRange::Loopback if self.has_loopback => None,
            SpecialPurposeRange::Private | SpecialPurposeRange::SharedSpace
                if is_issuer_private || self.has_loopback =>
            {
                None
            }
            range => Some(range),
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    matches!(
        SpecialPurposeRange::classify(address),
        Some(SpecialPurposeRange::Private | SpecialPurposeRange::SharedSpace)
    )
}

fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).to_ascii_lowercase()
}

impl Resolve for OwnHosts {
    fn resolve(&self, name: Name) -> Resolving {
        let own = self.clone();
        Box::pin(async move {
            let mut found = name_lookup::lookup(name.as_str(), 0).await?;
            if !own.hosts.contains(&bare(name.as_str())) {
                let is_private = own.is_private().await;
                let mut refused = None;
                found.retain(|address| {
                    let range = own.refused_range(address.ip(), is_private);
                    refused = refused.or(range);
                    range.is_none()
                });
                if let Some(range) = refused.filter(|_| found.is_empty()) {
                    let error = FetchError::Address {
                        url: name.as_str().to_owned(),
                        range: range.into(),
                    };
                    return Err(error.into());
                }
            }
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// - `own`: the hosts that the settings name.
/// - `authority`: the system's when absent.
/// - `via`: the only server that it connects to, if not that of `base`.
pub(super) fn client(
    base: &Url,
    own: &OwnHosts,
    authority: Option<&Authority>,
    via: Option<&ServerAddress>,
) -> Result<Client, FetchError> {
    let unusable = |reason: String| FetchError::Authority { reason };
    // argocd-server closes HTTP/2 connections that are not for gRPC.
    let versions = match via {
        Some(_) => Versions::Http1,
        None => Versions::Any,
    };
    let mut builder = http_client::builder(authority, versions, REQUEST_TIMEOUT)
        .map_err(unusable)?
        .pool_max_idle_per_host(1);
    // A proxy does not reach this machine's loopback, and would resolve names past `OneHost`.
    if is_loopback(base) || via.is_some() {
        builder = builder.no_proxy();
    }
    if via.is_none() {
        builder = builder.dns_resolver(Arc::new(own.clone()));
    }
    if let Some(server) = via {
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
            let found = name_lookup::lookup(&host, 0).await?;
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

#[cfg(test)]
mod tests {
    use reqwest::dns::Resolve as _;
    use url::Url;

    use super::{FetchError, OwnHosts};

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn own(text: &str) -> OwnHosts {
        OwnHosts::of(&[&url(text)])
    }

    async fn refusal(issuer: &str, named: &str) -> Option<&'static str> {
        match own(issuer).check(&url(named)).await {
            Ok(()) => None,
            Err(FetchError::Address { range, .. }) => Some(range),
            Err(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn an_issuer_names_no_address_of_the_gateways_own_machine_or_network() {
        let public = "https://203.0.114.1/";
        for (named, range) in [
            ("http://127.0.0.1:15020/quitquitquit", "address-loopback"),
            ("https://127.9.9.9/", "address-loopback"),
            ("http://localhost:9000/", "address-loopback"),
            ("https://[::1]/", "address-loopback"),
            ("https://[::ffff:127.0.0.1]/", "address-embedded"),
            ("https://169.254.169.254/latest", "address-metadata"),
            ("https://10.0.0.1/", "address-private"),
            ("https://0.0.0.0/", "address-unspecified"),
        ] {
            assert_eq!(refusal(public, named).await, Some(range), "{named}");
        }
        for named in [
            "https://203.0.114.1:8443/keys",
            "https://8.8.8.8/keys",
            "https://keys.example/",
        ] {
            assert_eq!(refusal(public, named).await, None, "{named}");
        }
        // A private issuer may name its network, and one on loopback this machine.
        assert_eq!(refusal("https://10.1.0.1/", "https://10.2.0.1/keys").await, None);
        assert_eq!(
            refusal("https://10.1.0.1/", "https://127.0.0.1/").await,
            Some("address-loopback")
        );
        assert_eq!(refusal("http://127.0.0.1:1/", "http://127.0.0.1:2/keys").await, None);
    }

    #[tokio::test]
    async fn a_name_is_refused_by_its_addresses() {
        let named = || "localhost".parse().unwrap();
        assert!(own("https://203.0.114.1/").resolve(named()).await.is_err());
        assert!(
            own("http://127.0.0.1/")
                .resolve(named())
                .await
                .unwrap()
                .next()
                .is_some()
        );
        assert!(
            own("https://localhost/")
                .resolve(named())
                .await
                .unwrap()
                .next()
                .is_some()
        );
    }

    #[test]
    fn no_secret_goes_elsewhere_without_tls() {
        let own = own("http://127.0.0.1:1/");
        assert_eq!(own.check_secret(&url("http://127.0.0.1:2/token")), Ok(()));
        assert_eq!(own.check_secret(&url("https://127.0.0.2/token")), Ok(()));
        let elsewhere = url("http://127.0.0.2/token");
        assert!(matches!(
            own.check_secret(&elsewhere),
            Err(FetchError::PlainSecret { .. })
        ));
    }
}
