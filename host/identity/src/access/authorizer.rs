//! Asks the platform whether a person may use an agent, and caches the answer for a while.
//!
//! Security: a cached answer gives no access once its session is known to be revoked or has
//! expired.

use std::sync::Arc;

use secrecy::ExposeSecret as _;

use super::agents::Agents;
use super::cache::{AccessCache, AccessResult};
use super::embedded::EmbeddedPlatform;
use super::remote::{ConfigurationReporter, RemotePlatform, SetupError};
use super::secret::is_malformed_token;
use super::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error};
use crate::clock::Clock;
use crate::sessions::SessionRegistry;
use tollgate_store::Store;

/// Decides whether a person may use an agent. There is one per process; it outlives reloads.
#[derive(Debug)]
pub struct Authorizer {
    platform: Platform,
    cache: AccessCache,
    sessions: Arc<SessionRegistry>,
    clock: Clock,
}

#[derive(Clone, Debug)]
enum Platform {
    Embedded(EmbeddedPlatform),
    Remote(Arc<RemotePlatform>),
}

impl Authorizer {
    /// Builds the authorizer from the settings. Blocks while it reads the shared secret of a
    /// remote platform.
    ///
    /// # Errors
    /// [`SetupError`]: the secret or the certificate authority cannot be used.
    pub fn new(
        config: &tollgate_config::Kubernetes,
        store: Arc<Store>,
        sessions: Arc<SessionRegistry>,
        clock: Clock,
    ) -> Result<Self, SetupError> {
        let embedded = EmbeddedPlatform::new(store, &config.users, clock.clone());
        let (platform, success) = match &config.authorizer {
            tollgate_config::Authorizer::Embedded => (Platform::Embedded(embedded), config.success_ttl),
            tollgate_config::Authorizer::Remote {
                url,
                secret,
                certificate_authority,
                stream_lifetime,
            } => {
                let authority = certificate_authority.as_deref();
                let remote = RemotePlatform::new(url, authority, secret, embedded, clock.clone(), *stream_lifetime)?;
                // A cached answer must leave time for a stream, so that nobody is refused because it
                // ends before the platform is asked again.
                let success = config.success_ttl.min(*stream_lifetime / 2);
                (Platform::Remote(Arc::new(remote)), success)
            }
        };
        let cache = AccessCache::new(clock.clone(), success, config.refusal_ttl);
        Ok(Self {
            platform,
            cache: cache.map_err(|_| SetupError::Randomness)?,
            sessions,
            clock,
        })
    }

    /// Returns what tells the platform the agents' configurations; `None` if there is no remote one.
    pub fn reporter(&self) -> Option<ConfigurationReporter> {
        match &self.platform {
            Platform::Embedded(_) => None,
            Platform::Remote(remote) => Some(ConfigurationReporter::new(Arc::clone(remote))),
        }
    }

    /// Whether the person with this credential may use the agent, and which identity they act as.
    ///
    /// Takes some microseconds for a cached answer. Otherwise it reads the store or asks the
    /// platform, for at most 15 s. Cancel safe.
    ///
    /// # Errors
    /// `Refused`, which callers cannot tell apart; `JobNotAllowed` for CI jobs;
    /// `Unavailable`.
    pub async fn authorize(&self, agents: &Arc<Agents>, query: &AccessQuery) -> AccessResult {
        if let (Platform::Embedded(_), AccessKey::PersonalAccessToken(token)) = (&self.platform, &query.key)
            && is_malformed_token(token.expose_secret())
        {
            // The answer is that for any unknown token, but neither the store nor the cache is used
            // for it.
            return Err(AccessDenyReason::UnknownKey.into());
        }
        // INVARIANT: no cached answer lets anybody in while revocations are unknown.
        if self.sessions.is_store_unavailable() {
            return Err(Error::Unavailable("the store is unavailable".to_owned()));
        }
        let key = match &self.platform {
            Platform::Embedded(_) => self.cache.key(query, &[&agents.generation.to_le_bytes()]),
            // The key includes the agent's state, so that a reload takes effect at once.
            Platform::Remote(_) => match agents.agent(query.agent) {
                Some(agent) => {
                    let project = agent.config_project.to_le_bytes();
                    let by_claim = [u8::from(agents.is_granted_by_claim(agent.id))];
                    let dependencies: [&[u8]; 4] =
                        [agent.name.as_bytes(), agent.cluster.as_bytes(), &project, &by_claim];
                    self.cache.key(query, &dependencies)
                }
                // The platform is asked all the same, see `RemotePlatform::evaluate`.
                None => self.cache.key(query, &[]),
            },
        };
        let ask = || {
            let (platform, agents, query) = (self.platform.clone(), Arc::clone(agents), query.clone());
            async move {
                let access = match &platform {
                    Platform::Embedded(embedded) => embedded.evaluate(&agents, &query).await,
                    Platform::Remote(remote) => remote.evaluate(&agents, &query).await,
                };
                access.map(Arc::new)
            }
        };
        let access = self.cache.answer(key, ask).await?;
        // INVARIANT: this is checked on every request, so that no cached answer outlives a
        // revocation.
        let reason = if self.sessions.is_revoked(access.session()) {
            AccessDenyReason::Revoked
        } else if self.sessions.is_locked(access.names()) {
            AccessDenyReason::Locked
        } else if access.expires_at.is_some_and(|end| end <= self.clock.now()) {
            AccessDenyReason::Expired
        } else {
            return Ok(access);
        };
        Err(reason.with_owner(access.owner()))
    }

    /// Returns the access these agents give to somebody who was let in before, if agent and
    /// person are the same.
    ///
    /// For access a remote platform gave, this only checks that the agent is unchanged: the
    /// platform is asked again when its answer ends.
    pub fn reauthorize(&self, agents: &Agents, access: &Arc<AccessGrant>) -> Option<Arc<AccessGrant>> {
        match &self.platform {
            Platform::Embedded(embedded) => embedded.reauthorize(agents, access),
            Platform::Remote(remote) => remote.reauthorize(agents, access),
        }
    }

    /// Whether the gateway is its own platform. If so, tokens of CI jobs are an unknown kind of
    /// credential.
    pub fn is_embedded(&self) -> bool {
        match self.platform {
            Platform::Embedded(_) => true,
            Platform::Remote(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
