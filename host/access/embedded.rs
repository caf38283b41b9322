//! The gateway as its own platform.
//!
//! In: a credential, tokens and sessions of the store, the agents and people of
//! the state. Out: what an agent gives. Refuses: what is not known, revoked,
//! expired, for another agent, of another scope, with another CSRF token. Never:
//! a caller who learns of an agent before their credential proved good.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use jiff::Timestamp;
use secrecy::SecretString;

use super::agents::{Agents, Claimant};
use super::asked::{Asked, AskedKey};
use super::{Access, AccessType, Bearer, Error, IdToken, Refusal, SessionId};
use crate::clock::Clock;
use crate::config::UserLink;
use crate::state::people::Person;
use crate::store::{SecretHash, Store, Token};

/// The one scope a token may have.
const SCOPE: &str = "k8s_proxy";
/// How exact `last_used_at` is.
const USED_EVERY: Duration = Duration::from_secs(60);

/// Judges by store and state.
#[derive(Clone, Debug)]
pub(super) struct Embedded {
    store: Arc<Store>,
    links: Arc<[UserLink]>,
    clock: Clock,
}

/// Whose a good credential is.
struct Proven {
    session: SessionId,
    user_id: i64,
    expires_at: Timestamp,
}

impl Embedded {
    /// Of a store; `links` say who is meant by ID tokens.
    pub(super) fn new(store: Arc<Store>, links: &[UserLink], clock: Clock) -> Self {
        Self {
            store,
            links: Arc::from(links),
            clock,
        }
    }

    /// Judges one question.
    pub(super) async fn judge(&self, agents: &Agents, asked: &Asked) -> Result<Access, Error> {
        let proven = match &asked.key {
            AskedKey::PersonalAccessToken(token) => {
                let token = self.token(asked, token).await?;
                let proven = Proven {
                    session: SessionId::new(AccessType::PersonalAccessToken, token.id.to_string()),
                    user_id: token.user.id,
                    expires_at: token.expires_at,
                };
                let access = self.enter(agents, asked, proven)?;
                self.note_use(&token);
                return Ok(access);
            }
            AskedKey::SessionCookie { cookie, csrf_token } => self.cookie(cookie, csrf_token).await?,
            AskedKey::OidcIdToken(token) => return self.id_token(agents, asked, token),
            // Jobs are known to a platform that runs them.
            AskedKey::CiJobToken(_) => return Err(Refusal::UnknownKey.into()),
        };
        self.enter(agents, asked, proven)
    }

    async fn token(&self, asked: &Asked, secret: &SecretString) -> Result<Token, Error> {
        let token = self
            .store
            .find_token(SecretHash::of(secret))
            .await
            .map_err(unavailable)?;
        let token = token.ok_or(Refusal::UnknownKey)?;
        let good = self.check(token.revoked_at, token.expires_at).and_then(|()| {
            if token.scopes != [SCOPE] {
                return Err(Refusal::Scope);
            }
            if token.agent_id != asked.agent {
                return Err(Refusal::OtherAgent);
            }
            Ok(())
        });
        match good {
            Ok(()) => Ok(token),
            Err(refusal) => Err(refusal.of(Bearer {
                session: SessionId::new(AccessType::PersonalAccessToken, token.id.to_string()),
                user: token.user,
            })),
        }
    }

    async fn cookie(&self, cookie: &SecretString, csrf_token: &SecretString) -> Result<Proven, Error> {
        let session = self
            .store
            .find_session(SecretHash::of(cookie))
            .await
            .map_err(unavailable)?;
        let session = session.ok_or(Refusal::UnknownKey)?;
        let id = SessionId::new(AccessType::SessionCookie, session.id.to_string());
        let good = self.check(session.revoked_at, session.expires_at).and_then(|()| {
            // SECURITY: hashes, in constant time; the time says nothing of the token.
            let presented = SecretHash::of(csrf_token);
            verify_slices_are_equal(presented.as_bytes(), session.csrf.as_bytes()).map_err(|_| Refusal::Csrf)
        });
        match good {
            Ok(()) => Ok(Proven {
                session: id,
                user_id: session.user.id,
                expires_at: session.expires_at,
            }),
            Err(refusal) => Err(refusal.of(Bearer {
                user: session.user,
                session: id,
            })),
        }
    }

    fn id_token(&self, agents: &Agents, asked: &Asked, token: &IdToken) -> Result<Access, Error> {
        self.check(None, token.expires_at)?;
        if token.agent != asked.agent {
            return Err(Refusal::OtherAgent.into());
        }
        let person = agents.user_of(&self.links, &token.issuer, &token.claims);
        let claimant = Claimant {
            person,
            mapped: token.mapped.as_ref(),
        };
        let granted = agents.grant(asked.agent, claimant).map_err(|refusal| match person {
            Some(person) => refusal.of(Bearer {
                user: person.user.clone(),
                session: token.session.clone(),
            }),
            None => refusal.into(),
        })?;
        Ok(Access {
            agent: granted.agent,
            user: granted.user,
            access_as: granted.access_as,
            session: token.session.clone(),
            expires_at: Some(token.expires_at),
        })
    }

    fn check(&self, revoked_at: Option<Timestamp>, expires_at: Timestamp) -> Result<(), Refusal> {
        if revoked_at.is_some() {
            return Err(Refusal::Revoked);
        }
        if expires_at <= self.clock.now() {
            return Err(Refusal::Expired);
        }
        Ok(())
    }

    fn enter(&self, agents: &Agents, asked: &Asked, proven: Proven) -> Result<Access, Error> {
        let person: &Person = agents.user(proven.user_id).ok_or(Refusal::UnknownUser)?;
        let claimant = Claimant {
            person: Some(person),
            mapped: None,
        };
        let granted = agents.grant(asked.agent, claimant).map_err(|refusal| {
            refusal.of(Bearer {
                user: person.user.clone(),
                session: proven.session.clone(),
            })
        })?;
        Ok(Access {
            agent: granted.agent,
            user: granted.user,
            access_as: granted.access_as,
            session: proven.session,
            expires_at: Some(proven.expires_at),
        })
    }

    /// Writes down that a token was used, beside the request.
    fn note_use(&self, token: &Token) {
        let now = self.clock.now();
        let lately = token.last_used_at.is_some_and(|last| {
            let since = Duration::try_from(now.duration_since(last)).unwrap_or_default();
            since < USED_EVERY
        });
        if lately {
            return;
        }
        let (store, id) = (Arc::clone(&self.store), token.id);
        tokio::spawn(async move {
            if let Err(error) = store.used_token(id, now).await {
                tracing::warn!(%error, token = %id, "the last use of a token could not be written");
            }
        });
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` takes")]
fn unavailable(error: crate::store::Error) -> Error {
    Error::Unavailable {
        detail: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
