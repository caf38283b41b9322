//! The section `console` of the settings file, and the `client` of an issuer: their written shape, and
//! the checks that turn them into [`Console`] and [`OidcClient`].
//!
//! Security: codes and cookies travel over https only, or on loopback.

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use super::SettingsValidator;
use super::authentication::{has_user, without_user};
use super::kubernetes::bounded_duration;
use crate::{Console, ConsoleHost, DeviceLogin, Issuer, OidcClient, is_loopback};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Scopes that are requested unless the settings name others.
const DEFAULT_SCOPES: [&str; 3] = ["openid", "profile", "email"];
/// Longest text that says whom to ask, in characters.
const MAX_CONTACT: usize = 200;
/// Longest name of a client, in bytes.
const MAX_NAME_BYTES: usize = 63;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConsole {
    /// URL of the console, on a separate host name; the pages are below `/console/`. Must be `https` (`http`
    /// for loopback), without a path.
    url: String,
    /// Whether the console may share Argo CD's host name. Not advisable: scripts of Argo CD's pages could
    /// then act as the person who looks at them. By default, a shared host name is an error.
    #[serde(default)]
    shares_argocd_host: bool,
    /// Time without a request after which a browser's login ends. `5m` to `24h`.
    #[schemars(extend("default" = "1h"))]
    idle: Option<String>,
    /// Lifetime of a browser's login. `5m` to `7d`.
    #[schemars(extend("default" = "12h"))]
    lifetime: Option<String>,
    /// Whom to ask for permissions, such as `#platform on Slack`; shown below refusals. At most 200
    /// characters.
    contact: Option<String>,
    /// Logins of the command line.
    #[serde(default)]
    login: RawLogin,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLogin {
    /// Lifetime of a login of `tollgate login`. `15m` to `30d`.
    #[schemars(extend("default" = "12h"))]
    lifetime: Option<String>,
    /// Whether `tollgate login --device` is permitted.
    #[schemars(extend("default" = true))]
    device: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawClient {
    /// Client id of the gateway at this issuer. Must be one of `issuer.audiences`.
    id: String,
    /// File with the client secret, read each time. Without it, the client is public.
    secret_file: Option<PathBuf>,
    /// Scopes to request; must contain `openid`.
    #[schemars(extend("default" = ["openid", "profile", "email"]))]
    scopes: Option<Vec<String>>,
    /// Name on the sign-in page, and last segment of the callback's path: 1 to 63 letters, digits, `-`, `_`
    /// and `.`, unique, and not `argocd`. Defaults to the issuer's host.
    name: Option<String>,
}

impl RawConsole {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> Option<Console> {
        let url = Url::parse(&self.url).ok().filter(|url| {
            let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url));
            is_safe && url.path() == "/" && url.query().is_none() && url.fragment().is_none() && !has_user(url)
        });
        let Some(url) = url else {
            let message = format!(
                "`{}` is not an https URL of a host alone, or http on loopback",
                without_user(&self.url)
            );
            let hint = "such as `https://tollgate.example.com`; people reach `/console/` there";
            validator.refuse("console.url", message, hint);
            return None;
        };
        let contact = self
            .contact
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty());
        let length = contact.as_deref().map_or(0, |text| text.chars().count());
        if length > MAX_CONTACT {
            let message = format!("has {length} characters, allowed are {MAX_CONTACT}");
            validator.error_in("console.contact", message);
            return None;
        }
        let mut duration = |key: &str, text, default, bounds| {
            bounded_duration(&format!("console.{key}"), text, default, bounds, validator)
        };
        Some(Console {
            url,
            host: match self.shares_argocd_host {
                true => ConsoleHost::SharedWithArgocd,
                false => ConsoleHost::Own,
            },
            contact,
            idle: duration("idle", self.idle, HOUR, 5 * MINUTE..=DAY),
            lifetime: duration("lifetime", self.lifetime, 12 * HOUR, 5 * MINUTE..=7 * DAY),
            login_lifetime: duration("login.lifetime", self.login.lifetime, 12 * HOUR, 15 * MINUTE..=30 * DAY),
            device_login: match self.login.device {
                Some(false) => DeviceLogin::Refused,
                Some(true) | None => DeviceLogin::Allowed,
            },
        })
    }
}

impl RawClient {
    /// - `issuer`: URL of the issuer, whose host is the name if there is none.
    pub(super) fn check(
        self,
        key: &str,
        issuer: &str,
        audiences: &[String],
        validator: &mut SettingsValidator<'_>,
    ) -> Option<OidcClient> {
        if !audiences.contains(&self.id) {
            let message = format!("`{key}.id`: `{}` is not among `issuer.audiences`", self.id);
            validator.refuse(
                &format!("{key}.id"),
                message,
                "add it there: the issuer's ID tokens name it as `aud`",
            );
            return None;
        }
        let scopes = self.scopes.unwrap_or_else(|| DEFAULT_SCOPES.map(str::to_owned).into());
        if !scopes.iter().any(|scope| scope == "openid") {
            validator.error_in(
                &format!("{key}.scopes"),
                "has no `openid`, without which there is no ID token",
            );
            return None;
        }
        let host = Url::parse(issuer).ok().and_then(|url| Some(url.host_str()?.to_owned()));
        let name = self.name.or(host).unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_segment = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain);
        // The name is a segment of the callback's path, and browsers remove `.` and `..` there.
        if !is_segment || name.starts_with('.') || name == "argocd" {
            let message = format!(
                "`{name}` is not 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`, or is `argocd`, which is taken"
            );
            validator.error_in(&format!("{key}.name"), message);
            return None;
        }
        Some(OidcClient {
            id: self.id,
            secret_file: self.secret_file.map(|file| validator.base.join(file)),
            scopes,
            name,
        })
    }
}

/// Checks what the console and the issuers' clients need of each other.
///
/// - `has_argocd`: whether accounts of Argo CD can sign in.
pub(super) fn check_together(
    console: Option<&Console>,
    issuers: &[Issuer],
    has_argocd: bool,
    validator: &mut SettingsValidator<'_>,
) {
    let clients: Vec<(usize, &OidcClient)> = issuers
        .iter()
        .enumerate()
        .filter_map(|(index, issuer)| Some((index, issuer.client.as_ref()?)))
        .collect();
    if console.is_some() && clients.is_empty() && !has_argocd {
        let hint = "give an entry of `authentication.jwt` a `client`, or set `argocd.server` and \
                    `authentication.argocdSessions: true`";
        validator.refuse("console", "`console` has nobody to sign in", hint);
    }
    if console.is_none()
        && let Some((index, _)) = clients.first()
    {
        let key = format!("authentication.jwt[{index}].client");
        let message = format!("`{key}` needs `console.url`, where the issuer sends people back");
        validator.refuse(&key, message, "such as `console: {url: https://tollgate.example.com}`");
    }
    for (position, (index, client)) in clients.iter().enumerate() {
        if clients
            .iter()
            .take(position)
            .any(|(_, other)| other.name == client.name)
        {
            let key = format!("authentication.jwt[{index}].client.name");
            let message = format!("`{key}`: `{}` is the name of another issuer's client, too", client.name);
            validator.refuse(
                &key,
                message,
                "each issuer needs its own callback, so that none answers for another",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::raw::parse;
    use crate::{ConsoleHost, DeviceLogin};

    const ISSUER: &str = "authentication:\n  jwt:\n    - issuer: {url: https://idp.example.org, audiences: [tollgate]}\n      \
                          claimMappings: {username: {claim: sub, prefix: ''}}\n";

    fn read(text: &str) -> (Option<crate::Config>, Vec<String>) {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\n{text}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value, findings)
    }

    #[test]
    fn the_url_alone_is_enough_with_a_client() {
        let (config, findings) = read(&format!(
            "console: {{url: https://tollgate.example.com}}\n{ISSUER}      client: {{id: tollgate}}"
        ));
        assert_eq!(findings, [""; 0]);
        let authentication = config.unwrap().authentication;
        let console = authentication.console.unwrap();
        assert_eq!(
            (console.host, console.device_login),
            (ConsoleHost::Own, DeviceLogin::Allowed)
        );
        assert_eq!(console.lifetime, Duration::from_secs(12 * 60 * 60));
        let client = authentication.issuers[0].client.clone().unwrap();
        assert_eq!((&*client.name, client.secret_file), ("idp.example.org", None));
        assert_eq!(client.scopes, ["openid", "profile", "email"]);
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (text, expected) in [
            (
                "console: {url: 'http://tollgate.example.com'}".to_owned(),
                "t.yaml:3:16: error: `http://tollgate.example.com` is not an https URL of a host alone",
            ),
            (
                "console: {url: 'https://tollgate.example.com/console'}".to_owned(),
                "is not an https URL of a host alone, or http on loopback (such as `https://tollgate.example.com`",
            ),
            (
                "console: {url: 'https://tollgate.example.com'}".to_owned(),
                "error: `console` has nobody to sign in (give an entry of `authentication.jwt` a `client`, or set \
                 `argocd.server` and `authentication.argocdSessions: true`)",
            ),
            (
                format!("{ISSUER}      client: {{id: tollgate}}"),
                "`authentication.jwt[0].client` needs `console.url`, where the issuer sends people back",
            ),
            (
                format!("console: {{url: 'https://t.example.com'}}\n{ISSUER}      client: {{id: other}}"),
                "`authentication.jwt[0].client.id`: `other` is not among `issuer.audiences`",
            ),
            (
                format!(
                    "console: {{url: 'https://t.example.com'}}\n{ISSUER}      client: {{id: tollgate, scopes: [email]}}"
                ),
                "has no `openid`, without which there is no ID token",
            ),
            (
                format!("console: {{url: 'https://t.example.com', idle: 1m}}\n{ISSUER}      client: {{id: tollgate}}"),
                "`console.idle`: `1m` is not a duration of 5m to 1d",
            ),
        ] {
            let (_, findings) = read(&text);
            assert!(
                findings.iter().any(|found| found.contains(expected)),
                "{expected}: {findings:#?}"
            );
        }
    }
}
