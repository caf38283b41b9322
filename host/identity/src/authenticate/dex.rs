//! Derives the settings of Dex, the issuer that Argo CD brings along, from `dex.config` and `url` of
//! `argocd-cm`.
//!
//! Security: Dex is reached through argocd-server alone. Its public address is the gateway's own.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::fetch;
use super::issuer::MissingAudience;
use super::keys::ServerAddress;
use super::sso::OidcConfig;
use crate::http_client::Authority;
use tollgate_config::ArgocdServer;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::{Resources, Text};
use tollgate_runtime::followed::AuthorityFile;

/// Path of Dex below Argo CD's URL; with it, the URL is the issuer (source: `common/common.go`).
const PATH: &str = "/api/dex";
/// Clients whose tokens argocd-server accepts (source: `OAuth2AllowedAudiences` in
/// `util/settings/settings.go`).
const AUDIENCES: [&str; 2] = ["argo-cd", "argo-cd-cli"];

/// `None` with a finding if sign-ins through Dex are refused.
pub(super) fn read(
    resources: &Resources,
    dex: &Text,
    server: Option<&ArgocdServer>,
    findings: &mut Vec<Diagnostic>,
) -> Option<OidcConfig> {
    let mut refuse = |why: &str, hint: &str| {
        let message = format!("sign-ins through Dex are refused: {why}");
        findings.push(Diagnostic::warning(dex.location.clone(), message).with_hint(hint));
    };
    let Some(server) = server else {
        refuse("the gateway does not know argocd-server", "set `argocd.server`");
        return None;
    };
    // The parser's message is left out; it may quote a secret.
    let Ok(entries) = serde_saphyr::from_str::<BTreeMap<String, IgnoredAny>>(&dex.value) else {
        refuse("`dex.config` is not a mapping in YAML", "correct it");
        return None;
    };
    let url = resources.argocd_cm.data.get("url").filter(|url| !url.value.is_empty());
    let Some(url) = url else {
        refuse("`argocd-cm` has no `url`", "set it to the URL that people use");
        return None;
    };
    let authority = match &server.ca {
        None => None,
        Some(path) => match AuthorityFile::open("argocd.ca", path) {
            Ok(file) => Some(Authority::File(file)),
            Err(why) => {
                refuse(&why, "correct the setting");
                return None;
            }
        },
    };
    // Joined as Argo CD does, because `iss` is compared byte by byte.
    let issuer = format!("{}{PATH}", url.value);
    if let Err(error) = fetch::parse_url(&issuer) {
        refuse(&error.to_string(), "correct `url` of `argocd-cm`");
        return None;
    }
    // Argo CD uses Dex only if it has a setting.
    (!entries.is_empty()).then(|| OidcConfig {
        issuer,
        audiences: AUDIENCES.map(str::to_owned).to_vec(),
        missing_audience: MissingAudience::Refused,
        authority,
        userinfo: None,
        via: Some(ServerAddress {
            url: server.server.clone(),
            server_name: server.server_name.clone(),
        }),
        location: dex.location.clone(),
    })
}
