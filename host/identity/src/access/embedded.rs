//! Authorizes with the gateway as its own platform, from the tokens and sessions of the store
//! and the agents and people of the state.
//!
//! Credentials that are unknown, revoked, expired, for another agent, of another scope or with a
//! wrong CSRF token are refused.
//!
//! Security: a caller learns nothing of an agent before their credential is verified.
//!
//! Security: a token belongs to its agent and its person by name and cluster, not by their numbers alone.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use super::agents::{Agents, CredentialSubject, issuer_only_user};
use super::secret::KUBECTL_TOKEN_PREFIX;
use super::{
    AccessDenyReason, AccessGrant, AccessKey, AccessQuery, CredentialOwner, Error, IdToken, LinkedClaims, names_of,
};
use crate::clock::Clock;
use crate::person::PersonNames;
use tollgate_config::UserClaimMapping;
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::AgentId;
use tollgate_core::claims::EMAIL_VERIFIED;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Identity};
use tollgate_store::{SecretHash, Store, Token};

const SCOPE: &str = "k8s_proxy";
const LAST_USED_PRECISION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct EmbeddedPlatform {
    store: Arc<Store>,
    links: Arc<[UserClaimMapping]>,
    clock: Clock,
}

struct StoredCredential {
    owner: CredentialOwner,
    revoked_at: Option<Timestamp>,
    expires_at: Timestamp,
}

impl EmbeddedPlatform {
    /// Builds it on a store; `links` find the person an ID token stands for.
    pub(super) fn new(store: Arc<Store>, links: &[UserClaimMapping], clock: Clock) -> Self {
        Self {
            store,
            links: Arc::from(links),
            clock,
        }
    }

    pub(super) async fn evaluate(&self, agents: &Agents, query: &AccessQuery) -> Result<AccessGrant, Error> {
        match &query.key {
            AccessKey::PersonalAccessToken(secret) => self.token(agents, query.agent, secret).await,
            AccessKey::SessionCookie { cookie, csrf_token } => {
                self.cookie(agents, query.agent, cookie, csrf_token).await
            }
            AccessKey::OidcIdToken(token) => self.id_token(agents, query.agent, token),
            // Only a platform that runs jobs knows them.
            AccessKey::CiJobToken(_) => Err(AccessDenyReason::UnknownKey.into()),
        }
    }

    async fn token(&self, agents: &Agents, agent: AgentId, secret: &SecretString) -> Result<AccessGrant, Error> {
        if secret.expose_secret().starts_with(KUBECTL_TOKEN_PREFIX) {
            return self.login_token(agents, agent, secret).await;
        }
        let token = self.store.find_token(SecretHash::of(secret)).await?;
        let token = token.ok_or(AccessDenyReason::UnknownKey)?;
        let found = StoredCredential {
            owner: CredentialOwner {
                session: SessionId::new(AccessType::PersonalAccessToken, token.id.to_string()),
                user: token.user.clone(),
                issuer: None,
            },
            revoked_at: token.revoked_at,
            expires_at: token.expires_at,
        };
        let access = self.grant_to_owner(agents, agent, found, || {
            if token.scopes != [SCOPE] {
                return Err(AccessDenyReason::Scope);
            }
            if token.agent_id != agent {
                return Err(AccessDenyReason::OtherAgent);
            }
            // SECURITY: files assign the numbers, and may later assign one to another agent or
            // another cluster.
            let identity = agents.agent(agent).map(|agent| agent.identity());
            // An agent that is not there is refused by `grant`.
            if identity.is_some() && identity != token.agent {
                return Err(AccessDenyReason::FormerAgent);
            }
            Ok(())
        })?;
        self.record_use(&token);
        Ok(access)
    }

    async fn cookie(
        &self,
        agents: &Agents,
        agent: AgentId,
        cookie: &SecretString,
        csrf_token: &SecretString,
    ) -> Result<AccessGrant, Error> {
        let session = self.store.find_session(SecretHash::of(cookie)).await?;
        let session = session.ok_or(AccessDenyReason::UnknownKey)?;
        let found = StoredCredential {
            owner: CredentialOwner {
                session: SessionId::new(AccessType::SessionCookie, session.id.to_string()),
                user: session.user,
                issuer: None,
            },
            revoked_at: session.revoked_at,
            expires_at: session.expires_at,
        };
        self.grant_to_owner(agents, agent, found, || {
            // SECURITY: hashes are compared, in constant time, so that the time reveals nothing
            // of the token.
            let presented = SecretHash::of(csrf_token);
            let same = verify_slices_are_equal(presented.as_bytes(), session.csrf.as_bytes());
            same.map_err(|_| AccessDenyReason::Csrf)
        })
    }

    /// - `more`: further checks for this kind of credential.
    fn grant_to_owner(
        &self,
        agents: &Agents,
        agent: AgentId,
        found: StoredCredential,
        more: impl FnOnce() -> Result<(), AccessDenyReason>,
    ) -> Result<AccessGrant, Error> {
        let result = self.check(found.revoked_at, found.expires_at).and_then(|()| {
            more()?;
            let person = agents.people.person(found.owner.user.id);
            let person = person.ok_or(AccessDenyReason::UnknownUser)?;
            // SECURITY: as for agents, a number may be assigned to another person.
            if person.user.username != found.owner.user.username {
                return Err(AccessDenyReason::FormerUser);
            }
            let subject = CredentialSubject {
                person: Some(person),
                mapped: None,
                vouched: None,
            };
            agents.grant(agent, subject, found.owner.session.clone())
        });
        match result {
            Ok(facts) => Ok(AccessGrant {
                names: PersonNames::of([facts.user.username.as_str()]),
                facts,
                expires_at: Some(found.expires_at),
                linked: None,
            }),
            Err(reason) => Err(reason.with_owner(found.owner)),
        }
    }

    fn id_token(&self, agents: &Agents, agent: AgentId, token: &IdToken) -> Result<AccessGrant, Error> {
        let subject = CredentialSubject {
            person: agents.user_of(&self.links, &token.issuer, &token.claims),
            mapped: token.mapped.as_ref(),
            vouched: token.mapped.as_ref().map(|identity| (&*token.issuer, identity)),
        };
        // The store has no row of an ID token. `Authorizer` asks whether its session was revoked.
        let result = self.check(None, token.expires_at).and_then(|()| {
            if token.agent != agent {
                return Err(AccessDenyReason::OtherAgent);
            }
            agents.grant(agent, subject, token.session.clone())
        });
        let linked = self.linked(&token.issuer, &token.claims, token.mapped.clone());
        vouched_for(result, subject, &token.session, token.expires_at, linked, token.names())
    }

    /// A token that a login made for kubectl.
    async fn login_token(&self, agents: &Agents, agent: AgentId, secret: &SecretString) -> Result<AccessGrant, Error> {
        let token = self.store.find_login_token(SecretHash::of(secret)).await?;
        let token = token.ok_or(AccessDenyReason::UnknownKey)?;
        let login = self.store.login(token.login).await?;
        let login = login.ok_or(AccessDenyReason::UnknownKey)?;
        let subject = CredentialSubject {
            person: agents.user_of(&self.links, &login.issuer, &login.claims),
            mapped: token.is_mapped.then_some(&token.identity),
            vouched: Some((&*login.issuer, &token.identity)),
        };
        let session = login.session();
        let expires_at = token.expires_at.min(login.expires_at);
        let result = self.check(login.revoked_at, expires_at).and_then(|()| {
            let (for_agent, identity) = token.agent.as_ref().ok_or(AccessDenyReason::OtherAgent)?;
            if *for_agent != agent {
                return Err(AccessDenyReason::OtherAgent);
            }
            // SECURITY: as for personal access tokens.
            let known = agents.agent(agent).map(|agent| agent.identity());
            if known.is_some_and(|known| known != *identity) {
                return Err(AccessDenyReason::FormerAgent);
            }
            agents.grant(agent, subject, session.clone())
        });
        let linked = self.linked(&login.issuer, &login.claims, Some(token.identity.clone()));
        let names = names_of(&login.claims, Some(&token.identity));
        let names = names.and([login.subject.as_str(), login.user.username.as_str()]);
        vouched_for(result, subject, &session, expires_at, linked, names)
    }

    /// The claims that decide which person is meant.
    fn linked(&self, issuer: &str, claims: &Map<String, Value>, identity: Option<Identity>) -> LinkedClaims {
        let links = self.links.iter().filter(|link| link.issuer == issuer);
        // `linked_person` looks at `email_verified` as well, for a link by `email`.
        let names = links.map(|link| link.claim.as_str()).chain([EMAIL_VERIFIED]);
        let claims = names.filter_map(|name| Some((name.to_owned(), claims.get(name)?.clone())));
        LinkedClaims {
            issuer: issuer.to_owned(),
            claims: claims.collect(),
            identity,
        }
    }

    /// Returns the access that agents and people now give to somebody who was let in before;
    /// `None` if agent or person is no longer the same. Does not check whether the credential was
    /// revoked or has expired.
    pub(super) fn reauthorize(&self, agents: &Agents, access: &Arc<AccessGrant>) -> Option<Arc<AccessGrant>> {
        let person = match (access.session().access_type(), &access.linked) {
            (AccessType::PersonalAccessToken | AccessType::SessionCookie, _) => {
                Some(agents.people.person(access.user().id)?)
            }
            (AccessType::OidcIdToken | AccessType::Login, Some(linked)) => {
                agents.user_of(&self.links, &linked.issuer, &linked.claims)
            }
            (AccessType::OidcIdToken | AccessType::Login, None) | (AccessType::CiJobToken, _) => return None,
        };
        let mapped = match &access.facts.access_as {
            AccessAs::Mapped(identity) => Some(identity),
            AccessAs::Agent | AccessAs::User { .. } | AccessAs::CiJob(_) | AccessAs::Impersonate(_) => None,
        };
        let linked = access.linked.as_ref();
        let vouched = linked.and_then(|linked| Some((&*linked.issuer, linked.identity.as_ref()?)));
        let subject = CredentialSubject {
            person,
            mapped,
            vouched,
        };
        let facts = agents.grant(access.agent().id, subject, access.session().clone());
        access.renewed(facts.ok()?)
    }

    fn check(&self, revoked_at: Option<Timestamp>, expires_at: Timestamp) -> Result<(), AccessDenyReason> {
        if revoked_at.is_some() {
            return Err(AccessDenyReason::Revoked);
        }
        if expires_at <= self.clock.now() {
            return Err(AccessDenyReason::Expired);
        }
        Ok(())
    }

    fn record_use(&self, token: &Token) {
        let now = self.clock.now();
        let is_lately = |last| Duration::try_from(now.duration_since(last)).unwrap_or_default() < LAST_USED_PRECISION;
        if token.last_used_at.is_some_and(is_lately) {
            return;
        }
        let (store, id) = (Arc::clone(&self.store), token.id);
        // The request does not wait for this.
        tokio::spawn(async move {
            if let Err(error) = store.record_token_use(id, now).await {
                tracing::warn!(%error, token = %id, "the last use of a token could not be written");
            }
        });
    }
}

/// Access of somebody whom an issuer vouches for, or why there is none, with whose it would be.
fn vouched_for(
    result: Result<AccessFacts, AccessDenyReason>,
    subject: CredentialSubject<'_>,
    session: &SessionId,
    expires_at: Timestamp,
    linked: LinkedClaims,
    names: PersonNames,
) -> Result<AccessGrant, Error> {
    let user = subject.person.map(|person| person.user.clone());
    let user = user.or_else(|| Some(issuer_only_user(subject.vouched?.1)));
    match (result, user) {
        (Ok(facts), _) => Ok(AccessGrant {
            names: names.and([facts.user.username.as_str()]),
            facts,
            expires_at: Some(expires_at),
            linked: Some(Arc::new(linked)),
        }),
        (Err(reason), Some(user)) => {
            let owner = CredentialOwner {
                user,
                session: session.clone(),
                issuer: Some(linked.issuer),
            };
            Err(reason.with_owner(owner))
        }
        (Err(reason), None) => Err(reason.into()),
    }
}

#[cfg(test)]
mod tests;
