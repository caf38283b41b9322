//! Queries the admin listener of a running gateway, which answers this machine without a credential.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::answer::{SETTINGS_FILE, SettingsArgs};
use super::api::{runtime, unreachable};
use super::failure::Failure;
use super::print_error;
use tollgate_config::raw;

/// The default of `admin.listen`.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8081));

/// Which admin listener.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminListener {
    /// URL of the gateway's admin listener; if omitted, `admin.listen` of the settings
    #[arg(long, value_name = "URL", env = "TOLLGATE_ADMIN")]
    admin: Option<String>,
    #[command(flatten)]
    settings: SettingsArgs,
}

impl AdminListener {
    /// Gets a document.
    ///
    /// - `path`: segments, which need no encoding.
    /// - `query`: parameters, of which those without a value are left out.
    ///
    /// # Errors
    /// The listener does not answer, or with a refusal.
    pub(crate) fn get(&self, path: &[&str], query: &[(&str, Option<&str>)]) -> Result<Value, Failure> {
        runtime()?.block_on(self.fetch(path, query))
    }

    async fn fetch(&self, path: &[&str], query: &[(&str, Option<&str>)]) -> Result<Value, Failure> {
        let (base, notice) = self.url()?;
        notice.iter().for_each(print_error);
        let base = base.trim_end_matches('/');
        let mut url = url::Url::parse(&format!("{base}/{}", path.join("/")))
            .map_err(|error| Failure::new("gateway.url", format_args!("`{base}`: {error}")))?;
        for (name, value) in query {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        let answer = reqwest::Client::new().get(url).send().await.map_err(|error| {
            let server = format!("the admin listener at `{base}`");
            unreachable(&server, &error, "--admin", None)
        })?;
        let broken = |error: &dyn std::error::Error| Failure::new("gateway.answer", error);
        let status = answer.status();
        let text = answer.text().await.map_err(|error| broken(&error))?;
        if !status.is_success() {
            let message = format!("the admin listener at `{base}` says {status}: {}", text.trim());
            return Err(Failure::new("gateway.refused", message));
        }
        serde_json::from_str(&text).map_err(|error| broken(&error))
    }

    /// The folder of policies of the settings.
    ///
    /// # Errors
    /// The settings cannot be read.
    pub(crate) fn policies_directory(&self) -> Result<PathBuf, Failure> {
        let file = &self.settings.config;
        let Some(config) = raw::load(file).value else {
            let message = format_args!("`{}` does not exist or cannot be used", file.display());
            let hint = "name the gateway's settings with `--config`, or the folder of the bundle";
            return Err(Failure::new("settings.file", message).with_hint(hint));
        };
        Ok(config.policies_directory)
    }

    /// Where this machine reaches it, and a notice if nothing names it.
    ///
    /// # Errors
    /// A settings file is named and not there.
    fn url(&self) -> Result<(String, Option<String>), Failure> {
        if let Some(url) = &self.admin {
            return Ok((url.clone(), None));
        }
        let file = &self.settings.config;
        if !file.exists() && *file != Path::new(SETTINGS_FILE) {
            let failure = Failure::new("settings.file", format_args!("`{}` does not exist", file.display()));
            return Err(failure.with_hint("name the settings with `--config`, or the admin listener with `--admin`"));
        }
        let Some(config) = raw::load(file).value else {
            let why = match file.exists() {
                true => "cannot be used",
                false => "does not exist",
            };
            let notice = format!(
                "`{}` {why}: asking the admin listener at http://{DEFAULT_ADMIN} (`--config` or `--admin` names another)",
                file.display()
            );
            return Ok((format!("http://{DEFAULT_ADMIN}"), Some(notice)));
        };
        let mut address = config.admin_listen;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Ok((format!("http://{address}"), None))
    }
}

#[cfg(test)]
mod tests {
    use super::{AdminListener, SETTINGS_FILE, SettingsArgs};

    #[test]
    fn without_settings_the_default_is_asked_and_named() {
        let listener = |admin: Option<&str>, config: &str| AdminListener {
            admin: admin.map(str::to_owned),
            settings: SettingsArgs { config: config.into() },
        };
        let (url, notice) = listener(None, SETTINGS_FILE).url().unwrap();
        assert_eq!(url, "http://127.0.0.1:8081");
        assert!(
            notice
                .unwrap()
                .contains("`tollgate.yaml` does not exist: asking the admin listener at http://127.0.0.1:8081")
        );
        let named = listener(Some("http://[::1]:1"), SETTINGS_FILE).url().unwrap();
        assert_eq!(named, ("http://[::1]:1".to_owned(), None));
        let missing = listener(None, "other.yaml").url().unwrap_err();
        assert_eq!(missing.code, "settings.file");
    }
}
