//! How Argo CD is to reach the gateway: address, authority, name of the certificate, token. Checks the
//! token against the settings, and against the gateway's listener.
//!
//! Security: the token is sent only to a server that the authority vouches for, and never shown.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use reqwest::StatusCode;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::{Host, Url};

use super::in_cluster;
use tollgate_client::api::unreachable;
use tollgate_client::failure::Failure;
use tollgate_client::input::read_file_or_stdin;
use tollgate_config::{ControlPlaneCaller, Tls};

const MAX_CERTIFICATE_BYTES: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(15);

/// A path of the gateway's that every caller may request, and that needs a valid token.
const PATH: &str = "/api/v1/tollgate/clusters";

/// `iss` of tokens that Argo CD signs.
const ARGOCD: &str = "argocd";

/// How Argo CD reaches the gateway.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) proxy_url: Url,
    /// A name of the gateway's certificate.
    pub(super) server_name: String,
    /// Whether it is the way to the cluster that Argo CD runs in. Inside the tunnel Argo CD then expects
    /// a certificate for [`in_cluster::HOST`].
    pub(super) is_in_cluster: bool,
    /// PEM of the authority that signed the certificate.
    pub(super) authority: String,
    pub(super) token: SecretString,
    /// Where Argo CD's pods have a token that they send instead.
    pub(super) projected_token: Option<String>,
}

impl Route {
    /// The gateway's address, as the Secret names it.
    pub(super) fn url(&self) -> &str {
        self.proxy_url.as_str().trim_end_matches('/')
    }

    pub(super) fn authority_base64(&self) -> String {
        STANDARD.encode(&self.authority)
    }

    /// Sends the token to the gateway, which must accept it, under each name that Argo CD verifies.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        self.probe_as(&self.server_name).await?;
        match self.is_in_cluster {
            true => self.probe_as(in_cluster::HOST).await,
            false => Ok(()),
        }
    }

    async fn probe_as(&self, server_name: &str) -> Result<(), Failure> {
        let (url, client) = self.client(server_name).await?;
        let request = client.get(url).bearer_auth(self.token.expose_secret());
        let answer = request.send().await.map_err(|error| {
            let server = format!("the gateway at `{}`, as `{server_name}`", self.url());
            unreachable(&server, &error, "--proxy-url", Some("--ca"))
        })?;
        if !answer.headers().contains_key("tollgate-decision-id") {
            let message = format!("what answers at `{}` is not Tollgate: {}", self.url(), answer.status());
            return Err(Failure::new("gateway.answer", message).with_hint("name the gateway's public listener"));
        }
        if answer.status() == StatusCode::UNAUTHORIZED {
            let message = "the gateway does not accept the token of `--token-file`: it answered 401";
            let hint = "make a new one, such as with `argocd account generate-token`";
            return Err(Failure::new("gateway.token", message).with_hint(hint));
        }
        Ok(())
    }

    /// A client that connects to the gateway's address and expects a certificate for `server_name`.
    async fn client(&self, server_name: &str) -> Result<(Url, reqwest::Client), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new("gateway.tls", error);
        let roots = reqwest::Certificate::from_pem_bundle(self.authority.as_bytes()).map_err(|error| failed(&error))?;
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .no_proxy()
            .tls_certs_only(roots);
        let mut url = self.proxy_url.clone();
        url.set_path(PATH);
        let host = self.proxy_url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.proxy_url.port_or_known_default().unwrap_or(443);
        if host != server_name {
            let lookup = tokio::net::lookup_host((host, port)).await;
            let addresses: Vec<_> = lookup.map(Iterator::collect).map_err(|error| {
                let message = format!("the gateway's host `{host}` is not known here: {error}");
                Failure::new("gateway.unreachable", message)
            })?;
            builder = builder.resolve_to_addrs(server_name, &addresses);
            url.set_host(Some(server_name)).map_err(|error| failed(&error))?;
        }
        Ok((url, builder.build().map_err(|error| failed(&error))?))
    }
}

/// Reads `--proxy-url`.
pub(super) fn proxy_url(text: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| {
        let failure = Failure::new("cluster.proxy_url", format_args!("`--proxy-url {text}` {why}"));
        failure.with_hint("name the gateway's public listener, such as `https://tollgate.tollgate.svc`")
    };
    let url = Url::parse(text).map_err(|_| wrong("is not a URL"))?;
    if url.scheme() != "https" {
        return Err(wrong("is not https, and the token would be readable on its way"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // Not shown, because it may be a password.
        let message = "`--proxy-url` has a user or a password";
        return Err(Failure::new("cluster.proxy_url", message).with_hint("the token is enough"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has more than a host and a port"));
    }
    Ok(url)
}

/// The name of the gateway's certificate: `--server-name`, or else the host of the URL.
///
/// - `is_in_cluster`: whether it is the way to the cluster that Argo CD runs in.
pub(super) fn server_name(option: Option<&str>, proxy_url: &Url, is_in_cluster: bool) -> Result<String, Failure> {
    let host = match proxy_url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    let Some(name) = option else { return Ok(host) };
    if is_in_cluster {
        let message = format!(
            "`--server-name {name}` has no effect: for the cluster that it runs in, Argo CD reads no name from the \
             secret"
        );
        let hint = format!("the certificate must be for `{host}` and for `{}`", in_cluster::HOST);
        return Err(Failure::new("cluster.server_name", message).with_hint(hint));
    }
    match ServerName::try_from(name) {
        Ok(ServerName::DnsName(_)) => Ok(name.to_owned()),
        Ok(_) if name == host => Ok(name.to_owned()),
        Ok(_) | Err(_) => {
            let message = format!("`--server-name {name}` is neither a host name nor the address of `--proxy-url`");
            Err(Failure::new("cluster.server_name", message))
        }
    }
}

/// The authority of the gateway's certificate: the file of `--ca`, or the certificate of the settings if
/// it signed itself.
pub(super) fn authority(option: Option<&Path>, tls: Option<&Tls>, now: Timestamp) -> Result<String, Failure> {
    let (path, is_named) = match (option, tls) {
        (Some(path), _) => (path, true),
        (None, Some(tls)) => (tls.certificate.as_path(), false),
        (None, None) => {
            return Err(Failure::new(
                "cluster.authority",
                "the settings have no `tls`; name `--ca FILE`",
            ));
        }
    };
    let shown = path.display();
    let wrong = |why: &str| {
        let failure = Failure::new("cluster.authority", format_args!("`{shown}` {why}"));
        failure.with_hint("name the authority that signed the gateway's certificate with `--ca FILE`, PEM")
    };
    let pem =
        read_file_or_stdin(path, MAX_CERTIFICATE_BYTES).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match certificates.as_deref() {
        Ok([_, ..]) if is_named => Ok(pem),
        Ok([only]) if is_self_signed(only, now) => Ok(pem),
        Ok([_, ..]) => Err(wrong("is a certificate that another authority signed")),
        Ok([]) | Err(_) => Err(wrong("has no PEM certificate")),
    }
}

/// Whether a certificate verifies with itself as the only authority.
fn is_self_signed(certificate: &CertificateDer<'_>, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else {
        return false;
    };
    if roots.add(certificate.clone().into_owned()).is_err() {
        return false;
    }
    let seconds = now.as_second().try_into().unwrap_or(0);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let verified = rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms.all);
    verified.is_ok()
}

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    sub: String,
    exp: Option<i64>,
}

/// Checks what a token says about itself; only the gateway can verify it.
///
/// - Returns a warning.
///
/// # Errors
/// It is of somebody who is not among `callers`, or has expired.
pub(super) fn check_token(
    token: &SecretString,
    callers: &[ControlPlaneCaller],
    now: Timestamp,
) -> Result<Option<String>, Failure> {
    let wrong = |message: String, hint: &str| Err(Failure::new("cluster.token", message).with_hint(hint));
    let Some(claims) = claims(token) else {
        let hint = "the callers of `controlPlane` have tokens of Argo CD, or of an issuer of the settings";
        return wrong("the token of `--token-file` is not a JSON Web Token".to_owned(), hint);
    };
    let names: Vec<String> = callers
        .iter()
        .map(|caller| format!("{} ({})", caller.user, caller.issuer))
        .collect();
    let names = names.join(", ");
    let (is_caller, who) = match claims.iss.as_str() {
        ARGOCD => {
            // Argo CD appends what the token is for, such as `controller:apiKey`.
            let user = claims.sub.split(':').next().unwrap_or_default();
            let is_it = |caller: &ControlPlaneCaller| caller.issuer == ARGOCD && caller.user == user;
            (callers.iter().any(is_it), format!("{user} ({ARGOCD})"))
        }
        // The issuer's mapping gives the name, so only the gateway knows it.
        issuer => (
            callers.iter().any(|caller| caller.issuer == issuer),
            format!("the issuer {issuer}"),
        ),
    };
    if !is_caller {
        let message = format!("the token of `--token-file` is of {who}, and `controlPlane.callers` has {names}");
        return wrong(message, "name a token of one of these callers");
    }
    let Some(expiry) = claims.exp.and_then(|seconds| Timestamp::from_second(seconds).ok()) else {
        return Ok(None);
    };
    if expiry <= now {
        return wrong(
            format!("the token of `--token-file` expired on {expiry}"),
            "make a new one",
        );
    }
    Ok(Some(format!(
        "the token of `--token-file` expires on {expiry}, and Argo CD cannot reach the cluster from then on"
    )))
}

fn claims(token: &SecretString) -> Option<Claims> {
    let payload = token.expose_secret().split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

#[cfg(test)]
mod tests;
