//! Gets the keys that sign tokens, from the configured source and through the configured roles.
//! Sessions of roles are kept in the host's memo.

use tollgate_provider::memo::{self, Entry};
use tollgate_provider::sigv4::Keys;
use tollgate_provider::{Error, Expiry, Instant, ambient, clock, copy, optional, public, secrets, trimmed};

use crate::config::{Config, Role, Source};
use crate::{sts, token};

/// Key of the memo entry.
const MEMO: &str = "session";

/// Keys and their expiry.
#[derive(Debug)]
pub struct Session {
    pub keys: Keys,
    pub expiry: Expiry,
}

/// The session for `config`, from the memo or new.
pub fn get(config: &Config) -> Result<Session, Error> {
    let role = config.role();
    if role.is_none() && config.chain.is_empty() {
        return source(config);
    }
    if let Some(session) = load() {
        return Ok(session);
    }
    let now = clock::now();
    let mut session = match (role, &config.web_identity) {
        (Some(role), Some(_)) => sts::assume_role_with_web_identity(config, &role)?,
        (role, _) => {
            let base = source(config)?;
            match role {
                Some(role) => assume(config, &base, &role)?,
                None => base,
            }
        }
    };
    for role in &config.chain {
        session = assume(config, &session, role)?;
    }
    store(&session, now);
    Ok(session)
}

fn assume(config: &Config, session: &Session, role: &Role) -> Result<Session, Error> {
    sts::assume_role(&config.region, &session.keys, role)
}

/// The keys of the configured source, before any role is assumed.
fn source(config: &Config) -> Result<Session, Error> {
    match config.credentials.unwrap_or_default() {
        Source::Static => Ok(Session {
            keys: Keys {
                access_key_id: public("accessKeyId")?,
                secret_access_key: trimmed("secretAccessKey")?,
                session_token: optional("sessionToken")?
                    .map(|token| secrets::trim(&token))
                    .transpose()?,
            },
            expiry: Expiry::unknown(),
        }),
        Source::PodIdentity => {
            let found = ambient::eks_pod_identity()?;
            let now = clock::now();
            Ok(Session {
                expiry: found
                    .expires_at
                    .map_or_else(Expiry::unknown, |end| Expiry::at(end, now)),
                keys: Keys {
                    access_key_id: found.access_key_id,
                    secret_access_key: found.secret_access_key,
                    session_token: found.session_token,
                },
            })
        }
    }
}

fn load() -> Option<Session> {
    let entry = memo::load(MEMO)?;
    let field = |name: &str| {
        entry
            .fields
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, text)| text.clone())
    };
    let access_key_id = field("access-key-id")?;
    let end = field("end")?.parse().ok()?;
    let mut values = entry.values;
    let mut take = |name: &str| {
        let index = values.iter().position(|(key, _)| key == name)?;
        Some(values.swap_remove(index).1)
    };
    Some(Session {
        keys: Keys {
            access_key_id,
            secret_access_key: take("secret-access-key")?,
            session_token: Some(take("session-token")?),
        },
        expiry: Expiry::at(end, clock::now()),
    })
}

/// Stores `session`, which was created at `now`, for as long as its tokens get their full lifetime.
fn store(session: &Session, now: Instant) {
    let (Some(end), Some(session_token)) = (session.expiry.at, &session.keys.session_token) else {
        return;
    };
    let expires_at = remembered_until(now, end);
    if expires_at <= now {
        return;
    }
    let keys = (copy(&session.keys.secret_access_key), copy(session_token));
    let (Ok(secret_access_key), Ok(session_token)) = keys else {
        return;
    };
    let entry = Entry {
        fields: vec![
            ("access-key-id".to_owned(), session.keys.access_key_id.clone()),
            ("end".to_owned(), end.to_string()),
        ],
        values: vec![
            ("secret-access-key".to_owned(), secret_access_key),
            ("session-token".to_owned(), session_token),
        ],
        expires_at,
    };
    memo::store(MEMO, entry);
}

/// When the memo entry expires: one token lifetime before the session, but not before half the
/// session's lifetime.
fn remembered_until(now: Instant, end: Instant) -> Instant {
    let lifetime = end.saturating_sub(now);
    end.saturating_sub(token::LIFETIME_MILLIS.min(lifetime / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_remembered_while_its_tokens_get_their_full_lifetime() {
        let minutes = |count: u64| count * 60_000;
        for (lifetime, remembered) in [(60, 45), (30, 15), (20, 10), (0, 0)] {
            assert_eq!(
                remembered_until(minutes(7), minutes(7 + lifetime)),
                minutes(7 + remembered),
                "{lifetime}"
            );
        }
    }
}
