//! Logs in to Vault with a token of the pod, or uses a configured token of Vault. The login is kept
//! in the host's memo, because a login for each credential would fill Vault with tokens.
//!
//! Source: "Kubernetes auth method (API)" of Vault.

use tollgate_provider::memo::{self, Entry};
use tollgate_provider::{Error, Expiry, Instant, Json, Request, Secret, ambient_token, clock, copy, trimmed};

use crate::config::Config;
use crate::{namespaced, refusal};

/// Key of the memo entry.
const MEMO: &str = "login";

/// A token for requests to Vault.
#[derive(Debug)]
pub struct Login {
    pub token: Secret,
    /// When the login expires. Its leases expire with it.
    pub expiry: Expiry,
    /// Whether the login is from an earlier call.
    pub remembered: bool,
}

impl Login {
    /// The configured token, the remembered login, or a new one.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let Some(role) = &config.auth_role else {
            return Ok(Self {
                token: trimmed("token")?,
                expiry: Expiry::unknown(),
                remembered: false,
            });
        };
        match load() {
            Some(login) => Ok(login),
            None => Self::make(config, role),
        }
    }

    fn make(config: &Config, role: &str) -> Result<Self, Error> {
        let jwt = ambient_token(config.login_audience())?.token;
        let body = Json::Object(vec![("role", role.into()), ("jwt", (&jwt).into())]);
        let url = config.url(&format!("auth/{}/login", config.auth_mount()));
        let request = Request::post(&url).json_body(&body).capture("$.auth.client_token");
        let mut answer = namespaced(request, config).send()?;
        if !answer.is_success() {
            return Err(refusal(&answer));
        }
        let json = answer.json()?;
        let token = answer.expect(0, "auth.client_token")?;
        // 0 means that the token does not expire.
        let duration = json
            .pointer("/auth/lease_duration")
            .filter(|value| value.as_f64() != Some(0.0));
        let login = Self {
            token,
            expiry: Expiry::after(duration, "lease_duration", answer.sent_at),
            remembered: false,
        };
        login.store(answer.sent_at);
        Ok(login)
    }

    /// Stores the login for half its lifetime, so that its leases can last at least the other half.
    fn store(&self, now: Instant) {
        let (Some(end), Ok(token)) = (self.expiry.at, copy(&self.token)) else {
            return;
        };
        let expires_at = remembered_until(now, end);
        if expires_at > now {
            let entry = Entry {
                fields: vec![("end".to_owned(), end.to_string())],
                values: vec![("token".to_owned(), token)],
                expires_at,
            };
            memo::store(MEMO, entry);
        }
    }
}

fn load() -> Option<Login> {
    let entry = memo::load(MEMO)?;
    let end = entry.fields.iter().find(|(name, _)| name == "end")?.1.parse().ok()?;
    let (_, token) = entry.values.into_iter().next()?;
    Some(Login {
        token,
        expiry: Expiry::at(end, clock::now()),
        remembered: true,
    })
}

/// Drops the stored login.
pub fn forget() {
    memo::forget(MEMO);
}

fn remembered_until(now: Instant, end: Instant) -> Instant {
    now.saturating_add(end.saturating_sub(now) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_remembered_for_half_its_lifetime() {
        assert_eq!(remembered_until(1000, 3000), 2000);
        assert_eq!(remembered_until(1000, 1000), 1000);
    }
}
