//! Derives the settings of one issuer from Argo CD's own single sign-on, `oidc.config` and
//! `dex.config` of `argocd-cm`.
//!
//! Security: the client secret is not read, since only signing in needs it.

use std::time::Duration;

use secrecy::ExposeSecret;
use serde::Deserialize;

use super::argocd_token::SECRET_NAME;
use super::dex;
use super::issuer::MissingAudience;
use super::keys::ServerAddress;
use crate::http_client::Authority;
use tollgate_config::ArgocdServer;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_objects::extensions::secrets::is_referable;
use tollgate_objects::{Resources, Text};

/// How long groups from the userinfo endpoint are cached, at most.
const MAX_USERINFO_AGE: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct OidcConfig {
    pub(super) issuer: String,
    pub(super) audiences: Vec<String>,
    pub(super) missing_audience: MissingAudience,
    /// The only roots trusted.
    pub(super) authority: Option<Authority>,
    /// Path under the issuer and how long an answer may be cached.
    pub(super) userinfo: Option<(String, Duration)>,
    /// Where its documents are fetched, if not at its own address.
    pub(super) via: Option<ServerAddress>,
    pub(super) location: Location,
}

/// `oidc.config` as Argo CD reads it; keys for signing in are left out.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawOidcConfig {
    issuer: String,
    #[serde(rename = "clientID")]
    client_id: String,
    #[serde(rename = "cliClientID")]
    cli_client_id: String,
    allowed_audiences: Vec<String>,
    skip_audience_check_when_token_has_no_audience: Option<bool>,
    #[serde(rename = "rootCA")]
    root_ca: String,
    enable_user_info_groups: bool,
    user_info_path: String,
    user_info_cache_expiration: String,
}

impl OidcConfig {
    /// Reads `oidc.config` or, without it, `dex.config`, as Argo CD does.
    ///
    /// - `server`: argocd-server, through which Dex is reached.
    pub(super) fn read(
        resources: &Resources,
        server: Option<&ArgocdServer>,
        findings: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let entry = |key| {
            let text = resources.argocd_cm.data.get(key);
            text.filter(|text| !text.value.trim().is_empty())
        };
        match (entry("oidc.config"), entry("dex.config")) {
            (None, None) => None,
            (None, Some(dex)) => dex::read(resources, dex, server, findings),
            (Some(oidc), dex) => {
                if let Some(dex) = dex {
                    let message = "`dex.config` is not used: `oidc.config` takes precedence, as in Argo CD";
                    findings.push(Diagnostic::warning(dex.location.clone(), message));
                }
                Self::read_oidc(resources, oidc, findings)
            }
        }
    }

    fn read_oidc(resources: &Resources, text: &Text, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let mut error = |message: String| findings.push(Diagnostic::error(text.location.clone(), message));
        // The parser's message is left out; it may quote a secret.
        let raw = serde_saphyr::from_str::<RawOidcConfig>(&text.value)
            .inspect_err(|_| error("`oidc.config` is not the YAML expected".to_owned()))
            .ok()?;
        let checked = raw.check(resources, text);
        checked.map_err(|messages| messages.into_iter().for_each(error)).ok()
    }
}

impl RawOidcConfig {
    fn check(self, resources: &Resources, text: &Text) -> Result<OidcConfig, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut resolve = |key: &str, value: &str| match resolved(resources, value) {
            Ok(value) => value,
            Err(reference) => {
                mistakes.push(format!(
                    "`oidc.config`: `{key}` refers to `{reference}`, which does not exist"
                ));
                String::new()
            }
        };
        let issuer = resolve("issuer", &self.issuer);
        let client = resolve("clientID", &self.client_id);
        let cli_client = resolve("cliClientID", &self.cli_client_id);
        let authority = resolve("rootCA", &self.root_ca);
        let audiences = self.allowed_audiences.iter();
        let mut audiences: Vec<_> = audiences
            .map(|audience| resolve("allowedAudiences", audience))
            .collect();
        if audiences.is_empty() {
            // As Argo CD does: the clients of its UI and of its command line.
            audiences = vec![client, cli_client];
        }
        audiences.retain(|audience| !audience.is_empty());
        // A reference that does not resolve is empty as well, and reported already.
        if mistakes.is_empty() && issuer.is_empty() {
            mistakes.push("`oidc.config` has no `issuer`".to_owned());
        }
        if mistakes.is_empty() && audiences.is_empty() {
            mistakes.push("`oidc.config` has neither `clientID` nor `allowedAudiences`".to_owned());
        }
        let userinfo = match (self.enable_user_info_groups, self.user_info_path) {
            (false, _) => None,
            (true, path) if path.starts_with('/') => Some(path),
            (true, _) => {
                mistakes.push("`oidc.config`: `userInfoPath` must start with `/` to look groups up".to_owned());
                None
            }
        };
        let max_age = userinfo_age(&self.user_info_cache_expiration).unwrap_or_else(|| {
            mistakes.push("`oidc.config`: `userInfoCacheExpiration` is not a duration such as `5m`".to_owned());
            MAX_USERINFO_AGE
        });
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        Ok(OidcConfig {
            issuer,
            audiences,
            missing_audience: match self.skip_audience_check_when_token_has_no_audience {
                Some(true) => MissingAudience::Accepted,
                Some(false) | None => MissingAudience::Refused,
            },
            authority: Some(authority)
                .filter(|authority| !authority.trim().is_empty())
                .map(Authority::Pem),
            userinfo: userinfo.map(|path| (path, max_age)),
            via: None,
            location: text.location.clone(),
        })
    }
}

/// Limited to [`MAX_USERINFO_AGE`], since a verified token is not cached longer.
fn userinfo_age(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return Some(MAX_USERINFO_AGE);
    }
    let duration: jiff::SignedDuration = text.parse().ok()?;
    Some(Duration::try_from(duration).ok()?.min(MAX_USERINFO_AGE))
}

/// Resolves a value: itself, or what `$key` in `argocd-secret` or `$secret:key` in a labeled
/// Secret stands for (Argo CD, `ReplaceStringSecret`). Unlike in Argo CD, a reference to nothing
/// is an error, and is returned.
fn resolved(resources: &Resources, value: &str) -> Result<String, String> {
    let Some(reference) = value.strip_prefix('$') else {
        return Ok(value.to_owned());
    };
    let (name, key) = reference.split_once(':').unwrap_or((SECRET_NAME, reference));
    let secret = resources.secrets.get(name).filter(|secret| is_referable(name, secret));
    secret
        .and_then(|secret| secret.values.get(key))
        .map(|value| value.expose_secret().trim().to_owned())
        .ok_or_else(|| value.to_owned())
}
