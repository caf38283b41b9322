//! Authenticates requests: only this stage can make a [`Principal`].
//!
//! Errors are 401, 403 for a cross-site request, and 503 when an issuer's keys cannot be
//! fetched. What the caller may do is decided elsewhere.
//!
//! A token is looked up by its hash first; a token that was verified less than five minutes ago
//! is not verified again. What can revoke a token (accounts, projects, keys of `argocd-secret`,
//! settings) comes with a reload, which makes a new [`Authenticator`] with an empty cache. The
//! exception is Argo CD's list of revoked tokens, in which every token is looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::request::Parts;
use serde_json::Map;

mod account;
mod author;
mod build;

mod argocd_token;
mod dex;
mod error;
mod fetch;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod issuer;
pub mod k8s_proxy;
mod keys;
pub mod login;
mod mapping;
mod origin;
mod principal;
mod request_token;
pub mod sign_in;
mod sso;
mod token;
mod userinfo;
mod verified_tokens;

#[cfg(test)]
mod tests;

pub use argocd_token::ISSUER as ARGOCD_ISSUER;
pub use author::{AuthorError, AuthorKey, AuthoredSet, DeployedBy, KUBERNETES_ISSUER};
pub use error::{Error, InvalidTokenReason, UserinfoError};
pub use principal::{CredentialTransport, Principal};
use tollgate_core::principal::Kind;
pub use verified_tokens::VERIFIED_TOKEN_TTL;

use crate::clock::Clock;
use crate::logins::Logins;
use crate::revoked_tokens::{RevocationStatus, RevokedTokens};
use crate::sessions::SessionRegistry;
use argocd_token::ArgocdTokenVerifier;
use error::RevocationReason;
use issuer::{OidcIssuer, Verified};
use principal::VerifiedIdentity;
use request_token::PresentedToken;
use sign_in::ArgocdSignIn;
use token::UnverifiedToken;
use verified_tokens::{VerifiedTokens, sha256};

/// Verifies callers by one state of settings and resources.
#[derive(Debug)]
pub struct Authenticator {
    argocd_tokens: Option<ArgocdTokenVerifier>,
    /// By `iss`.
    issuers: BTreeMap<String, OidcIssuer>,
    trusted_origins: Vec<String>,
    /// The principal of requests without a credential, if they are allowed.
    anonymous: Option<Arc<Principal>>,
    cache: VerifiedTokens<([u8; 32], CredentialTransport), Arc<Principal>>,
    /// Tokens that Argo CD revoked; `None` if its Redis is not read.
    revoked: Option<Arc<RevokedTokens>>,
    /// argocd-server, for people who sign in by an account; `None` without a console.
    argocd_server: Option<ArgocdSignIn>,
    /// Logins at the gateway itself; `None` if people do not sign in there.
    logins: Option<Arc<Logins>>,
    /// Who is locked; `None` if nothing is stored.
    sessions: Option<Arc<SessionRegistry>>,
    clock: Clock,
}

/// What knows which credentials are in force, besides settings and objects. Each is `None` if there is
/// none.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    /// Tokens that Argo CD revoked.
    pub revoked: Option<Arc<RevokedTokens>>,
    /// Sessions that ended, and people who are locked.
    pub sessions: Option<Arc<SessionRegistry>>,
    /// Logins at the gateway itself.
    pub logins: Option<Arc<Logins>>,
}

/// Whether another site may cause the request. A safe request changes and runs nothing (RFC 9110,
/// section 9.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// The method decides.
    ByMethod,
    /// Not safe, regardless of its method: `GET` of a pod's `proxy` triggers anything that the pod
    /// does on `GET`.
    Unsafe,
}

impl Authenticator {
    /// Verifies the caller of a request and, for credentials a browser sends by
    /// itself, that no other site caused the request.
    ///
    /// - `safety`: what the route knows of the request beyond its method.
    ///
    /// Takes under 2 µs for a token seen before. For a new one it may wait for
    /// an issuer's keys or userinfo answer, at most some seconds. Cancel safe.
    ///
    /// # Errors
    /// Every [`Error`]; none of them holds the token.
    pub async fn authenticate(&self, head: &Parts, safety: Safety) -> Result<Arc<Principal>, Error> {
        let principal = match self.by_login(head, safety).await? {
            Some(principal) => principal,
            None => self.by_token(head, safety).await?,
        };
        self.unlocked(principal)
    }

    /// As [`Authenticator::authenticate`], for servers that know no login of the gateway: a caller who
    /// has one besides is known by their token.
    ///
    /// # Errors
    /// As there; [`Error::Scope`] for the bearer token of a login.
    pub async fn authenticate_by_token(&self, head: &Parts) -> Result<Arc<Principal>, Error> {
        // A malformed one is refused by `by_token`.
        let bearer = request_token::bearer(&head.headers).ok().flatten();
        if bearer.is_some_and(|token| Logins::is_secret(&token)) {
            return Err(Error::Scope("Argo CD knows no login of Tollgate; use `argocd login`"));
        }
        let principal = self.by_token(head, Safety::ByMethod).await?;
        self.unlocked(principal)
    }

    async fn by_token(&self, head: &Parts, safety: Safety) -> Result<Arc<Principal>, Error> {
        let Some(credential) = request_token::read(&head.headers)? else {
            return self.without_credential(head, safety);
        };
        if credential.transport == CredentialTransport::Cookie {
            origin::check(head, safety, &self.trusted_origins)?;
        }
        // A principal says how its token was sent, so each way has an entry.
        let key = (sha256(&credential.token), credential.transport);
        if let Some(principal) = self.cache.get(&key, self.clock.unix_seconds()) {
            return self.unrevoked(principal);
        }
        let (identity, fresh_for) = self.verify(&credential).await?;
        let (now, expires_at) = (self.clock.unix_seconds(), identity.expires_at);
        let principal = Arc::new(Principal::new(identity, credential.transport));
        self.cache
            .insert(key, &credential.token, principal.clone(), fresh_for, now, expires_at);
        self.unrevoked(principal)
    }

    /// Recognizes logins, and refuses revoked tokens and people who are locked, from now on.
    #[must_use]
    pub fn with_registries(self, registries: Registries) -> Self {
        let Registries {
            revoked,
            sessions,
            logins,
        } = registries;
        Self {
            revoked,
            sessions,
            logins,
            ..self
        }
    }

    fn unrevoked(&self, principal: Arc<Principal>) -> Result<Arc<Principal>, Error> {
        let revoked = self.revoked.as_ref();
        match revoked.map_or(RevocationStatus::NotRevoked, |revoked| {
            revoked.status(principal.token_ids())
        }) {
            RevocationStatus::NotRevoked => Ok(principal),
            RevocationStatus::Revoked => Err(RevocationReason::SignedOut.into()),
            RevocationStatus::Unknown => Err(Error::RevocationsUnavailable),
        }
    }

    /// Whether a caller who was verified before, perhaps by an earlier state, would now be
    /// verified as the same person with the same groups.
    ///
    /// The account or token may have been withdrawn meanwhile, or be interpreted differently.
    /// Checks neither expiry nor the keys an issuer publishes: an issuer's token ends with its
    /// `exp`.
    pub fn is_still_valid(&self, principal: &Principal) -> bool {
        let identity = &principal.identity;
        let is_login_over = principal.login().is_some_and(|login| !self.is_login_in_force(login));
        if is_login_over || self.is_locked(principal) {
            return false;
        }
        match identity.kind {
            Kind::Anonymous => self.anonymous.is_some(),
            // An API server vouches for each of its requests; none stays open.
            Kind::Kubernetes => false,
            Kind::Oidc => {
                let issuer = self.issuers.get(&identity.issuer);
                issuer.is_some_and(|issuer| issuer.is_still_valid(identity))
            }
            Kind::Local | Kind::ProjectToken => {
                let argocd_tokens = self.argocd_tokens.as_ref();
                argocd_tokens.is_some_and(|verifier| verifier.is_still_valid(identity))
            }
        }
    }

    /// SECURITY: anonymous callers exist on loopback listeners only (checked with the settings).
    /// This keeps other sites in a browser on the same machine from acting as one.
    fn without_credential(&self, head: &Parts, safety: Safety) -> Result<Arc<Principal>, Error> {
        let anonymous = self.anonymous.as_ref().ok_or(Error::NoCredential)?;
        origin::check_loopback_host(head)?;
        origin::check(head, safety, &self.trusted_origins)?;
        Ok(anonymous.clone())
    }

    async fn verify(&self, credential: &PresentedToken<'_>) -> Result<Verified, Error> {
        let token = UnverifiedToken::parse(&credential.token)?;
        match (token.issuer(), &self.argocd_tokens) {
            (argocd_token::ISSUER, Some(verifier)) => Ok((verifier.verify(token, self.clock.unix_seconds())?, None)),
            (name, _) => {
                let issuer = self.issuers.get(name).ok_or(InvalidTokenReason::UnknownIssuer)?;
                issuer.verify(token, &credential.token, &self.clock).await
            }
        }
    }
}
