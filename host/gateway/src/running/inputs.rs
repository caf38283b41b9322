//! Opens the files and databases the settings name besides objects, policies and plugins.
//!
//! `serve` opens them at start. `check` tries all of them with the same function, and changes
//! nothing.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};
use secrecy::ExposeSecret as _;

use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::{store_url, telemetry};
use tollgate_argocd_fronts as argocd;
use tollgate_config::raw::SettingLocations;
use tollgate_config::{AdmissionTls, ArgocdServer, Config, StoreUrl, Tls, WhenUnavailable};
use tollgate_core::diagnostic::{Diagnostic, Location, with_causes};
use tollgate_identity::access::endpoint::PlatformEndpoint;
use tollgate_identity::audit::export;
use tollgate_identity::clock::Clock;
use tollgate_identity::revoked_tokens;
use tollgate_proxy::assertion::SigningKeys;
use tollgate_proxy::server::{Certificates, TlsError};
use tollgate_runtime::certificates;
use tollgate_store::Store;

/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// A certificate with less time left causes a warning.
const RENEWAL: Duration = Duration::from_secs(14 * 24 * 60 * 60);
const CLIENTS: &str = "admission.clientCertificateAuthority";
/// The first bytes of an SQLite database file.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Returns the problems of all inputs, each with the location in the settings that names the input.
pub async fn findings(config: &Config, locations: &SettingLocations, clock: &Clock) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    // In a pod it must be wider, because probes come to the pod's address.
    if !config.admin_listen.ip().is_loopback() && config.plugins.ambient.kubernetes.is_none() {
        let text = format!(
            "`admin.listen` is `{}`, and nobody who calls there is asked who they are",
            config.admin_listen
        );
        let hint = "keep it on loopback, such as `127.0.0.1:8081`";
        found.push(Diagnostic::warning(locations.locate("admin.listen"), text).with_hint(hint));
    }
    if let Some(tls) = &config.tls {
        certificates(
            Certificates::load(tls.clone(), None),
            "tls",
            tls,
            locations,
            clock,
            &mut found,
        );
    }
    if let Some(settings) = &config.admission
        && let AdmissionTls::Files(tls) = &settings.tls
    {
        let clients = settings.client_certificate_authority.as_deref();
        certificates(
            Certificates::load(tls.clone(), clients),
            "admission.tls",
            tls,
            locations,
            clock,
            &mut found,
        );
    }
    if let Some(file) = &config.decisions.file
        && let Err(error) = appendable(file)
    {
        let text = format!("`decisions.file`: `{}` cannot be written: {error}", file.display());
        found.push(file_error(locations.locate("decisions.file"), text, &error));
    }
    if let Some(path) = &config.extensions.assertion_key {
        let key = "extensions.assertion.key";
        if let Err(text) = SigningKeys::follow(key, path, config.extensions.assertion_issuer.clone()) {
            found.push(Diagnostic::error(locations.locate(key), text));
        }
    }
    if let Some(settings) = &config.argocd {
        if let Err(error) = argocd::backend(settings) {
            found.push(Diagnostic::error(locations.locate("argocd"), format!("{error:#}")));
        } else if let Err(error) = reachable(&settings.server).await {
            let text = format!(
                "`argocd.server`: `{}` cannot be reached: {error}",
                settings.server.origin().ascii_serialization()
            );
            let hint = "until it is, its pages and sign-in by its accounts answer 502";
            found.push(Diagnostic::warning(locations.locate("argocd.server"), text).with_hint(hint));
        } else if let Err(error) = answers(settings).await {
            let text = format!(
                "`argocd.server`: `{}` does not answer: {error}",
                settings.server.origin().ascii_serialization()
            );
            let hint =
                "look at its scheme (`argocd-server --insecure` is `http`), and at `argocd.ca` and `argocd.serverName`";
            found.push(Diagnostic::warning(locations.locate("argocd.server"), text).with_hint(hint));
        }
    }
    if let Some(settings) = &config.argocd_redis
        && let Err(error) = revoked_tokens::probe(settings).await
    {
        let text = format!("`argocd.redis`: {}", with_causes(&error));
        let finding = match settings.when_unavailable {
            // With `Deny`, tokens that may be on the list are refused while Redis does not answer.
            WhenUnavailable::Deny => Diagnostic::error(locations.locate("argocd.redis"), text),
            WhenUnavailable::Allow => Diagnostic::warning(locations.locate("argocd.redis"), text),
        };
        found.push(finding.with_hint(error.advice()));
    }
    if let Some(settings) = &config.kubernetes
        && let Err(error) = PlatformEndpoint::new(settings, clock.clone())
    {
        let key = "kubernetes.platformSecretFile";
        let text = format!("`{key}`: {}", with_causes(&error));
        found.push(Diagnostic::error(locations.locate(key), text));
    }
    if let Some(settings) = config
        .kubernetes
        .as_ref()
        .and_then(|settings| settings.audit_export.as_ref())
        && let Err(error) = export::check(settings)
    {
        let key = "kubernetes.audit.export";
        found.push(Diagnostic::error(locations.locate(key), format!("`{key}`: {error}")));
    }
    if let Some(settings) = &config.telemetry
        && let Err(error) = telemetry::tls_config(settings)
    {
        found.push(Diagnostic::error(
            locations.locate("telemetry.ca"),
            format!("{error:#}"),
        ));
    }
    if config.needs_store() {
        store(&config.store.url, locations, &mut found).await;
    }
    found
}

/// Connects to a server, and says nothing to it.
async fn reachable(url: &Url) -> Result<(), String> {
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err("it has no host".to_owned());
    };
    // `url` keeps the brackets of an IPv6 address, which the resolver does not understand.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match timeout(CONNECT, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {CONNECT:?}")),
    }
}

/// Asks argocd-server for its health, as the gateway would speak to it.
async fn answers(settings: &ArgocdServer) -> Result<(), String> {
    // The name that the certificate must have is only in the gateway's own connections.
    if settings.server_name.is_some() {
        return Ok(());
    }
    let mut client = reqwest::Client::builder()
        .timeout(CONNECT)
        // A redirect is what is looked for, from `http` to `https`.
        .redirect(reqwest::redirect::Policy::none());
    if let Some(ca) = &settings.ca {
        let pem = std::fs::read(ca).map_err(|error| error.to_string())?;
        let authorities = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| with_causes(&error))?;
        client = client.tls_certs_only(authorities);
    }
    let client = client.build().map_err(|error| with_causes(&error))?;
    let url = settings.server.join("/healthz").map_err(|error| error.to_string())?;
    let answer = client.get(url).send().await.map_err(|error| with_causes(&error))?;
    match answer.status().is_redirection() {
        true => Err("it redirects, as a server of `https` does that is called by `http`".to_owned()),
        false => Ok(()),
    }
}

/// An error about a file, with a hint if a folder or a permission is missing.
fn file_error(location: Location, text: String, error: &std::io::Error) -> Diagnostic {
    let finding = Diagnostic::error(location, text);
    match error.kind() {
        std::io::ErrorKind::NotFound => finding.with_hint("make the folder first"),
        std::io::ErrorKind::PermissionDenied => finding.with_hint("the gateway's account needs to write there"),
        _ => finding,
    }
}

/// - `section`: the key of the settings with the two files.
fn certificates(
    loaded: Result<Certificates, TlsError>,
    section: &str,
    tls: &Tls,
    locations: &SettingLocations,
    clock: &Clock,
    found: &mut Vec<Diagnostic>,
) {
    let (certificate, key) = (&*format!("{section}.certificate"), &*format!("{section}.key"));
    let chain = match loaded {
        Ok(certificates) => certificates.chain(),
        Err(error) => {
            let at = match &error {
                TlsError::File { path, .. } | TlsError::Empty(path) if *path == tls.certificate => certificate,
                TlsError::File { path, .. } | TlsError::Empty(path) if *path == tls.key => key,
                TlsError::Rustls(_) | TlsError::Pem(_) | TlsError::NoKey(_) | TlsError::OtherKey(_) => key,
                TlsError::File { .. } | TlsError::Empty(_) | TlsError::Clients { .. } => CLIENTS,
            };
            let text = format!("`{at}`: {}", with_causes(&error));
            return found.push(Diagnostic::error(locations.locate(at), text));
        }
    };
    for (number, one) in chain.iter().enumerate() {
        // Clients refuse an expired certificate, but a gateway that does not start would be worse
        // than one that some clients still reach.
        if let Some(text) = validity(one, clock.now()) {
            let which = match number {
                0 => "the certificate",
                _ => "a certificate of its chain",
            };
            let text = format!("`{certificate}`: {which} {text}");
            let finding = Diagnostic::warning(locations.locate(certificate), text);
            found.push(finding.with_hint("renew it; a new file is taken up without a restart"));
        }
    }
}

/// When the first certificate of a chain ends; `None` if it cannot be read.
pub(super) fn certificate_end(tls: &Tls) -> Option<Timestamp> {
    let chain = Certificates::load(tls.clone(), None).ok()?.chain();
    let seconds = certificates::end(chain.first()?)?;
    Timestamp::from_second(seconds.try_into().ok()?).ok()
}

/// What is wrong with a certificate's validity at a time; another error if nothing is.
fn verified_at(one: &CertificateDer<'_>, time: Timestamp) -> Option<CertificateError> {
    certificates::verify_at(one, time.as_second().try_into().unwrap_or(0))
}

/// The warning if the certificate has expired, is not valid yet or expires soon.
fn validity(certificate: &CertificateDer<'_>, now: Timestamp) -> Option<String> {
    let day = |time: UnixTime| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).map_or_else(|_| "never".to_owned(), |time| time.to_string())
    };
    match verified_at(certificate, now) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => {
            return Some(format!("expired on {}", day(not_after)));
        }
        Some(CertificateError::NotValidYetContext { not_before, .. }) => {
            return Some(format!("is not valid before {}", day(not_before)));
        }
        Some(_) | None => {}
    }
    match verified_at(certificate, now.checked_add(RENEWAL).ok()?) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => Some(format!("expires on {}", day(not_after))),
        Some(_) | None => None,
    }
}

async fn store(url: &StoreUrl, locations: &SettingLocations, found: &mut Vec<Diagnostic>) {
    let url = match store_url(url) {
        Ok(url) => url,
        Err(text) => return found.push(Diagnostic::error(locations.locate("store.urlFile"), text)),
    };
    let location = locations.locate("store.url");
    match url.expose_secret().strip_prefix("sqlite:") {
        Some(path) => {
            let path = Path::new(path);
            if let Err(error) = appendable(path).and_then(|()| database(path)) {
                let text = format!("`store`: `{}`: {error}", path.display());
                found.push(file_error(location, text, &error));
            }
        }
        None => {
            if let Err(error) = Store::probe(&url).await {
                // A server may come back, and the start waits for it.
                let hint = "until it can be, the gateway is not ready and serves nothing but its admin listener";
                found.push(Diagnostic::warning(location, format!("`store`: {error}")).with_hint(hint));
            }
        }
    }
}

/// Checks that lines can be appended to a file, or that the file can be created.
fn appendable(path: &Path) -> std::io::Result<()> {
    match std::fs::OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            // The file has no name, so that no other process sees it.
            tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
        }
        opened => opened.map(drop),
    }
}

/// Whether a file that exists is an SQLite database.
fn database(path: &Path) -> std::io::Result<()> {
    let mut head = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(SQLITE.len() as u64).read_to_end(&mut head)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // SQLite takes an empty file for a new database.
    if head.is_empty() || head == SQLITE {
        return Ok(());
    }
    Err(std::io::Error::other("is not an SQLite database"))
}

#[cfg(test)]
mod tests;
