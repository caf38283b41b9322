//! The agent's settings, a file in YAML.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use crate::allow::{AllowList, OwnAccount};
use crate::file::ReadError;
use tollgate_config::KubernetesApi;
use tollgate_core::dns::{is_label, is_subdomain};
use tollgate_core::glob::{self, Pattern};

/// The agent's settings.
#[derive(Debug)]
pub struct Settings {
    /// The gateway's URL, of `https`.
    pub gateway: Url,
    /// PEM of the only authorities trusted for the gateway; the system's when absent.
    pub certificate_authority: Option<PathBuf>,
    /// The cluster's name, for the gateway's log.
    pub cluster: String,
    /// An HTTP proxy to the gateway, of `http`.
    pub proxy: Option<Url>,
    /// Where the private key is.
    pub key: KeySettings,
    /// The API server.
    pub api_server: ApiServerSettings,
    /// Whom the gateway may act as.
    pub allow: AllowList,
    /// Where liveness probes are answered.
    pub health: Option<SocketAddr>,
}

/// Where the private key is.
#[derive(Debug)]
pub enum KeySettings {
    /// A file.
    File(PathBuf),
    /// A Secret of the agent's cluster, where the agent makes it.
    Secret {
        /// Which.
        name: SecretName,
        /// The age at which the key is replaced.
        rotate_every: Duration,
    },
}

/// The namespace and name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{namespace}/{name}")]
pub struct SecretName {
    /// A label of DNS.
    pub namespace: String,
    /// A subdomain of DNS.
    pub name: String,
}

impl SecretName {
    /// Reads `<namespace>/<name>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        (is_label(namespace) && is_subdomain(name)).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// How the agent reaches its API server.
#[derive(Debug)]
pub struct ApiServerSettings {
    /// Its URL, of `https`, without a path.
    pub url: Url,
    /// PEM of the only authorities trusted.
    pub certificate_authority: PathBuf,
    /// File of the token of the agent's account. It is read again every minute.
    pub token: PathBuf,
}

/// Why settings cannot be used. Each text names the setting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is not YAML, or has a key or value that settings do not have.
    #[error("`{path}`: {message}", path = .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        message: String,
    },
    /// A URL is none of `https`.
    #[error("`{key}` must be a URL of `https` with a host, without user, query and fragment")]
    Url {
        /// The setting.
        key: &'static str,
    },
    /// The proxy is none that requests can go through.
    #[error("`proxy` must be a URL of `http` with a host and without a user, such as `http://proxy.example:3128`")]
    Proxy,
    /// It is not clear where the key is.
    #[error("one of `key` and `keySecret` must be set")]
    Key,
    /// It is no name of a Secret.
    #[error("`keySecret` is `{0}`; it must be `NAMESPACE/NAME`")]
    KeySecret(String),
    /// It is no duration, or too short.
    #[error("`rotateKeyEvery` is `{0}`; it must be a duration of at least a second, such as `720h`")]
    RotateKeyEvery(String),
    /// A pattern does not compile.
    #[error("`impersonate.{key}`: `{pattern}`: {source}")]
    Pattern {
        /// The setting.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// Why.
        source: glob::Error,
    },
    /// `apiServer` is absent, and this is no pod.
    #[error("`apiServer` is missing, and this is no pod: `KUBERNETES_SERVICE_HOST` does not say where it is")]
    NoPod,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    gateway: String,
    certificate_authority: Option<PathBuf>,
    proxy: Option<String>,
    cluster: String,
    key: Option<PathBuf>,
    key_secret: Option<String>,
    rotate_key_every: Option<String>,
    api_server: Option<RawApiServer>,
    #[serde(default)]
    impersonate: RawImpersonate,
    #[serde(default)]
    own_account: OwnAccount,
    health: Option<RawHealth>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawHealth {
    listen: SocketAddr,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawApiServer {
    url: String,
    certificate_authority: PathBuf,
    token: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawImpersonate {
    users: Vec<String>,
    groups: Vec<String>,
    service_accounts: Vec<String>,
    uids: Vec<String>,
    extras: Option<Vec<String>>,
}

impl Settings {
    /// Reads the settings. Paths in them are relative to the file.
    ///
    /// - `pod`: how the pod reaches its API server, if this is one.
    ///
    /// # Errors
    /// [`Error`], for the first thing found.
    pub fn load(path: &Path, pod: Option<KubernetesApi>) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(ReadError::of(path))?;
        let raw: Raw = serde_saphyr::from_str(&text).map_err(|error| Error::Syntax {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let in_folder = |path: PathBuf| folder.join(path);
        let RawImpersonate {
            users,
            groups,
            service_accounts,
            uids,
            extras,
        } = raw.impersonate;
        // Absent and empty differ: an empty list allows no key at all.
        let extras = extras.unwrap_or_else(|| vec![EXTRAS.to_owned()]);
        Ok(Self {
            gateway: https("gateway", &raw.gateway)?,
            certificate_authority: raw.certificate_authority.map(in_folder),
            cluster: raw.cluster,
            proxy: raw.proxy.as_deref().map(proxy).transpose()?,
            key: match (raw.key, raw.key_secret) {
                (Some(file), None) => KeySettings::File(in_folder(file)),
                (None, Some(secret)) => KeySettings::Secret {
                    name: SecretName::parse(&secret).ok_or(Error::KeySecret(secret))?,
                    rotate_every: rotate_every(raw.rotate_key_every)?,
                },
                (None, None) | (Some(_), Some(_)) => return Err(Error::Key),
            },
            api_server: match raw.api_server {
                Some(raw) => ApiServerSettings {
                    url: https("apiServer.url", &raw.url)?,
                    certificate_authority: in_folder(raw.certificate_authority),
                    token: in_folder(raw.token),
                },
                None => in_pod(pod.ok_or(Error::NoPod)?)?,
            },
            allow: AllowList {
                users: patterns("users", users)?,
                groups: patterns("groups", groups)?,
                service_accounts: patterns("serviceAccounts", service_accounts)?,
                uids: patterns("uids", uids)?,
                extras: patterns("extras", extras)?,
                own_account: raw.own_account,
            },
            health: raw.health.map(|health| health.listen),
        })
    }
}

/// The keys by which the gateway says which agent a request came through and who asked, if the settings do
/// not say.
const EXTRAS: &str = "agent.gitlab.com/*";

/// The age at which a key is replaced, if the settings do not say.
const ROTATE_EVERY: Duration = Duration::from_hours(30 * 24);

fn rotate_every(text: Option<String>) -> Result<Duration, Error> {
    let Some(text) = text else { return Ok(ROTATE_EVERY) };
    let parsed = tollgate_config::duration::parse(&text).ok();
    let parsed = parsed.filter(|duration| *duration >= Duration::from_secs(1));
    parsed.ok_or(Error::RotateKeyEvery(text))
}

fn proxy(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|_| Error::Proxy)?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    match url.scheme() == "http" && url.has_host() && is_plain {
        true => Ok(url),
        false => Err(Error::Proxy),
    }
}

fn in_pod(pod: KubernetesApi) -> Result<ApiServerSettings, Error> {
    Ok(ApiServerSettings {
        url: https("apiServer.url", &pod.server)?,
        certificate_authority: pod.ca_file,
        token: pod.token_file,
    })
}

fn https(key: &'static str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|_| Error::Url { key })?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    let is_bare = url.query().is_none() && url.fragment().is_none();
    match url.scheme() == "https" && url.has_host() && is_plain && is_bare {
        true => Ok(url),
        false => Err(Error::Url { key }),
    }
}

fn patterns(key: &'static str, texts: Vec<String>) -> Result<Vec<Pattern>, Error> {
    let compile = |pattern: String| match Pattern::compile_exact(&pattern, &[]) {
        Ok(compiled) => Ok(compiled),
        Err(source) => Err(Error::Pattern { key, pattern, source }),
    };
    texts.into_iter().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use super::{KeySettings, Settings};
    use crate::allow::OwnAccount;

    fn load(text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.yaml");
        std::fs::write(&path, text).unwrap();
        Settings::load(&path, None).map_err(|error| error.to_string())
    }

    const WHOLE: &str = "gateway: https://tollgate.example\ncluster: prod\nkey: key.pem\n\
                         apiServer: {url: 'https://10.0.0.1', certificateAuthority: ca.pem, token: token}\n";

    #[test]
    fn what_is_not_said_lets_the_gateway_act_as_nobody() {
        let settings = load(WHOLE).unwrap();
        assert!(settings.allow.users.is_empty() && settings.allow.groups.is_empty());
        assert_eq!(settings.allow.own_account, OwnAccount::Discovery);
        let KeySettings::File(file) = settings.key else {
            panic!("another key");
        };
        assert!(file.ends_with("key.pem") && file.is_absolute());
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, expected) in [
            (
                WHOLE.replace("https://tollgate", "http://tollgate"),
                "`gateway` must be a URL of `https`",
            ),
            (
                format!("{WHOLE}impersonate: {{users: ['[']}}\n"),
                "`impersonate.users`: `[`",
            ),
            (format!("{WHOLE}impersonates: {{}}\n"), "impersonates"),
            (WHOLE.replace("cluster: prod\n", ""), "cluster"),
            (WHOLE.replace("key: key.pem\n", ""), "one of `key` and `keySecret`"),
            (format!("{WHOLE}keySecret: a/b\n"), "one of `key` and `keySecret`"),
            (WHOLE.replace("key: key.pem", "keySecret: a"), "`keySecret` is `a`"),
            (
                format!(
                    "{}rotateKeyEvery: 1ms\n",
                    WHOLE.replace("key: key.pem", "keySecret: a/b")
                ),
                "`rotateKeyEvery` is `1ms`",
            ),
            (
                format!("{WHOLE}proxy: https://proxy\n"),
                "`proxy` must be a URL of `http`",
            ),
        ] {
            let error = load(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
