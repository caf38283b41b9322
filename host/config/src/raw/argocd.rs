//! The section `argocd` of the settings file: its written shape, and the checks that turn it into
//! [`ArgocdServer`] and [`ArgocdRedis`].
//!
//! Security: sessions and passwords pass through, so plain HTTP has to be asked for by its scheme,
//! and a certificate is always verified.

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use super::SettingsValidator;
use super::authentication::{has_user, without_user};
use crate::{ArgocdRedis, ArgocdServer};

mod redis;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawArgocd {
    /// Address of argocd-server, to which every path goes that is not Tollgate's own. `http` or `https`, with
    /// host and port. A path is the root path of argocd-server: letters, digits, `-`, `.`, `_` and `~`, not
    /// below `/api` or another path of Tollgate. Without it, such paths answer 404. See
    /// docs/argocd.md#put-it-in-front-of-an-existing-installation.
    server: Option<String>,
    /// PEM file with the only certificate authorities trusted for argocd-server, also when people sign in and
    /// for the keys of Dex. Needs `https`. Defaults to the system's. Read again when it changes.
    ca: Option<PathBuf>,
    /// Name for which the certificate of argocd-server must be valid. Needs `https`. Defaults to the host of
    /// `server`.
    server_name: Option<String>,
    /// Argo CD's Redis, whose list of revoked tokens is followed. Without it, a sign-out in Argo CD does not
    /// end sessions here. See docs/argocd.md#sign-out-and-revoked-tokens.
    redis: Option<redis::RawRedis>,
}

impl RawArgocd {
    /// Each is `None` if it is not set or has a mistake.
    pub(super) fn check(
        mut self,
        validator: &mut SettingsValidator<'_>,
    ) -> (Option<ArgocdServer>, Option<ArgocdRedis>) {
        let redis = self.redis.take();
        if self.server.is_none() && redis.is_none() {
            validator.error("argocd", "has neither `server` nor `redis`");
        }
        let redis = redis.and_then(|redis| redis.check(validator));
        (self.check_server(validator), redis)
    }

    fn check_server(self, validator: &mut SettingsValidator<'_>) -> Option<ArgocdServer> {
        let address = match self.server.as_deref().map(address) {
            Some(Ok(address)) => Some(address),
            Some(Err(why)) => {
                let text = self.server.unwrap_or_default();
                let hint = "such as `https://argocd-server.argocd.svc`";
                validator.refuse("argocd.server", format!("`{}` {why}", without_user(&text)), hint);
                return None;
            }
            None => None,
        };
        if address.as_ref().is_none_or(|(server, _)| server.scheme() == "http") {
            for (key, given) in [("ca", self.ca.is_some()), ("serverName", self.server_name.is_some())] {
                if given {
                    validator.error(
                        &format!("argocd.{key}"),
                        "has no effect, because `argocd.server` is not https",
                    );
                }
            }
        }
        let (server, root_path) = address?;
        Some(ArgocdServer {
            server,
            root_path,
            ca: self.ca.map(|file| validator.base.join(file)),
            server_name: self.server_name,
        })
    }
}

/// First segments of paths that Tollgate serves itself.
const OWN_SEGMENTS: [&str; 7] = [
    ".well-known",
    "api",
    "applications",
    "clusters",
    "console",
    "extensions",
    "k8s-proxy",
];

/// The address without its path, and the path.
fn address(text: &str) -> Result<(Url, Option<String>), &'static str> {
    let mut url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("has another scheme than `http` and `https`");
    }
    if has_user(&url) || url.query().is_some() || url.fragment().is_some() {
        return Err("has a user, password, query or fragment");
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path("/");
    if path.is_empty() {
        return Ok((url, None));
    }
    // SECURITY: escapes would be a second spelling of the root path, which is compared as text.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let mut segments = path.split('/').skip(1);
    if !segments.all(|segment| !segment.is_empty() && segment.bytes().all(is_plain)) {
        return Err("has a path with other characters than letters, digits, `-`, `.`, `_` and `~`");
    }
    if path
        .split('/')
        .nth(1)
        .is_some_and(|first| OWN_SEGMENTS.contains(&first))
    {
        return Err("has a path that Tollgate serves itself");
    }
    Ok((url, Some(path)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;

    fn check(text: &str) -> (Option<crate::ArgocdServer>, Vec<String>) {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\nargocd: {text}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value.and_then(|config| config.argocd), findings)
    }

    #[test]
    fn the_server_and_its_authorities_are_read() {
        let (found, findings) =
            check("{server: 'https://argocd-server.argocd.svc', ca: ca.pem, serverName: argocd-server}");
        let found = found.expect("valid settings");
        assert_eq!(findings, [""; 0]);
        assert_eq!(found.server.as_str(), "https://argocd-server.argocd.svc/");
        assert_eq!(found.ca.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert_eq!(found.server_name.as_deref(), Some("argocd-server"));
        let (found, _) = check("{server: 'http://127.0.0.1:8080'}");
        let found = found.expect("valid settings");
        assert_eq!((found.server.port(), found.root_path), (Some(8080), None));
        for text in ["https://a/tools/argo-cd", "https://a/tools/argo-cd/"] {
            let (found, _) = check(&format!("{{server: '{text}'}}"));
            let found = found.expect("valid settings");
            assert_eq!(found.server.as_str(), "https://a/", "{text}");
            assert_eq!(found.root_path.as_deref(), Some("/tools/argo-cd"), "{text}");
        }
    }

    #[test]
    fn an_address_that_would_not_be_used_as_written_is_refused() {
        for (text, why) in [
            ("argocd-server", "is not a URL"),
            ("grpc://a", "another scheme"),
            ("https://user:secret@a", "a user, password"),
            ("https://a/argo%2Dcd", "other characters"),
            ("https://a/argo//cd", "other characters"),
            ("https://a/api/argo", "Tollgate serves itself"),
            ("https://a/extensions", "Tollgate serves itself"),
            ("https://a/?x=y", "query"),
        ] {
            let (found, findings) = check(&format!("{{server: '{text}'}}"));
            assert_eq!(found, None, "{text}");
            assert!(
                matches!(findings.as_slice(), [one] if one.contains(why)),
                "{text}: {findings:?}"
            );
        }
        let (found, findings) = check("{server: 'http://a', ca: ca.pem}");
        assert_eq!(found, None);
        assert!(findings[0].contains("`argocd.ca` has no effect"), "{findings:?}");
        let (_, findings) = check("{server: 'https://a', insecure: true}");
        assert!(findings[0].contains("unknown field `insecure`"), "{findings:?}");
    }
}
