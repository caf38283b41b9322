//! The section `argocd.redis`: its written shape, and the checks that turn it into
//! [`ArgocdRedis`].
//!
//! Security: the password is only ever in a file, and plain TCP has to be asked for by its scheme.

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use crate::raw::SettingsValidator;
use crate::raw::authentication::has_user;
use crate::raw::kubernetes::bounded_duration;
use crate::{ArgocdRedis, RedisTls, WhenUnavailable};

/// The port of Redis, with and without TLS.
const DEFAULT_PORT: u16 = 6379;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRedis {
    /// `redis://HOST[:PORT][/DATABASE]`, or `rediss` for TLS. No user or password.
    server: String,
    /// PEM file with the only certificate authorities trusted for it. Needs `rediss`. Defaults to the
    /// system's. Read for each connection.
    ca: Option<PathBuf>,
    /// Name for which its certificate must be valid. Needs `rediss`. Defaults to the host of `server`.
    server_name: Option<String>,
    /// User of Redis. Needs `passwordFile`. Defaults to Redis' default user.
    username: Option<String>,
    /// File with the password on its first line, read for each connection. Without it, no password is sent.
    password_file: Option<PathBuf>,
    /// What happens to tokens that may be revoked while Redis does not answer.
    #[serde(default)]
    #[schemars(extend("default" = "deny"))]
    when_unavailable: WhenUnavailable,
    /// Time for which Redis may be silent before `whenUnavailable` applies. `2s` to `5m`.
    #[schemars(extend("default" = "10s"))]
    grace_period: Option<String>,
}

/// What the URL says.
struct Address {
    host: String,
    port: u16,
    database: u32,
    is_encrypted: bool,
}

impl RawRedis {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> Option<ArgocdRedis> {
        let grace_period = bounded_duration("argocd.redis.gracePeriod", self.grace_period, 10, 2..=300, validator);
        let address = match address(&self.server) {
            Ok(address) => address,
            Err(why) => {
                let hint = "such as `redis://argocd-redis.argocd.svc:6379`, or `rediss://…` with TLS";
                // The URL is left out; it may have a password.
                validator.refuse("argocd.redis.server", format!("the URL {why}"), hint);
                return None;
            }
        };
        for (key, given) in [("ca", self.ca.is_some()), ("serverName", self.server_name.is_some())] {
            if given && !address.is_encrypted {
                let key = format!("argocd.redis.{key}");
                validator.error(&key, "has no effect, because `argocd.redis.server` is not `rediss`");
            }
        }
        if self.username.is_some() && self.password_file.is_none() {
            validator.error("argocd.redis.username", "needs `passwordFile`");
        }
        let tls = RedisTls {
            ca: self.ca.map(|file| validator.base.join(file)),
            server_name: self.server_name,
        };
        Some(ArgocdRedis {
            host: address.host,
            port: address.port,
            database: address.database,
            tls: address.is_encrypted.then_some(tls),
            username: self.username,
            password_file: self.password_file.map(|file| validator.base.join(file)),
            when_unavailable: self.when_unavailable,
            grace_period,
        })
    }
}

fn address(text: &str) -> Result<Address, &'static str> {
    let url = Url::parse(text).map_err(|_| "cannot be read")?;
    let is_encrypted = match url.scheme() {
        "redis" => false,
        "rediss" => true,
        _ => return Err("has another scheme than `redis` and `rediss`"),
    };
    if has_user(&url) {
        return Err("has a user or password; they are `username` and `passwordFile`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or fragment");
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or("has no host")?;
    let database = match url.path().trim_start_matches('/') {
        "" => Some(0),
        number => number.parse().ok(),
    };
    Ok(Address {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: url.port().unwrap_or(DEFAULT_PORT),
        database: database.ok_or("has a path that is no number of a database")?,
        is_encrypted,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::raw::parse;
    use crate::{ArgocdRedis, RedisTls, WhenUnavailable};

    fn check(text: &str) -> (Option<ArgocdRedis>, Vec<String>) {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\nargocd: {{redis: {text}}}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value.and_then(|config| config.argocd_redis), findings)
    }

    #[test]
    fn a_server_alone_is_enough_and_denies_while_it_is_away() {
        let (found, findings) = check("{server: 'redis://argocd-redis'}");
        assert_eq!(findings, [""; 0]);
        let expected = ArgocdRedis {
            host: "argocd-redis".to_owned(),
            port: 6379,
            database: 0,
            tls: None,
            username: None,
            password_file: None,
            when_unavailable: WhenUnavailable::Deny,
            grace_period: Duration::from_secs(10),
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn every_key_is_read() {
        let (found, findings) = check(
            "{server: 'rediss://[::1]:6380/3', ca: ca.pem, serverName: redis, username: tollgate, passwordFile: \
             password, whenUnavailable: allow, gracePeriod: 1m}",
        );
        assert_eq!(findings, [""; 0]);
        let expected = ArgocdRedis {
            host: "::1".to_owned(),
            port: 6380,
            database: 3,
            tls: Some(RedisTls {
                ca: Some("/etc/ca.pem".into()),
                server_name: Some("redis".to_owned()),
            }),
            username: Some("tollgate".to_owned()),
            password_file: Some("/etc/password".into()),
            when_unavailable: WhenUnavailable::Allow,
            grace_period: Duration::from_secs(60),
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn mistakes_are_reported_without_a_password() {
        for (text, why) in [
            ("{server: argocd-redis}", "the URL cannot be read"),
            ("{server: 'https://a'}", "another scheme"),
            ("{server: 'redis://u:hunter2@a'}", "has a user or password"),
            ("{server: 'redis://a?protocol=2'}", "query or fragment"),
            ("{server: 'redis://a/argocd'}", "no number of a database"),
            ("{server: 'redis://a', ca: ca.pem}", "`argocd.redis.ca` has no effect"),
            (
                "{server: 'redis://a', serverName: a}",
                "`argocd.redis.serverName` has no effect",
            ),
            ("{server: 'redis://a', username: a}", "needs `passwordFile`"),
            ("{server: 'redis://a', gracePeriod: 1s}", "not a duration of 2s to 5m"),
            (
                "{server: 'redis://a', whenUnavailable: maybe}",
                "`maybe` is not one of `deny`, `allow`",
            ),
            ("{server: 'redis://a', password: hunter2}", "unknown field `password`"),
        ] {
            let (found, findings) = check(text);
            assert_eq!(found, None, "{text}");
            assert!(
                matches!(findings.as_slice(), [one] if one.contains(why) && !one.contains("hunter2")),
                "{text}: {findings:?}"
            );
        }
    }
}
