//! Recognizes people by their login at the gateway itself: the cookie of the console, or the bearer
//! token of `tollgate login` and of kubectl.
//!
//! Security: the cookie counts only on the console's host. Whom a login stands for follows from its
//! claims by the settings and objects in force, so that rights change with them.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Uri};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::error::{Error, InvalidTokenReason, RevocationReason};
use super::principal::{CredentialTransport, Principal, VerifiedIdentity, hash_parts_hex};
use super::request_token::{PresentedToken, bearer, sole};
use super::verified_tokens::sha256;
use super::{Authenticator, Safety, argocd_token, origin};
use crate::logins::{self, ActiveLogin, Logins};
use crate::person::PersonNames;
use tollgate_config::Console;
use tollgate_core::principal::Kind;
use tollgate_store::{self as store, Login};

/// Name of the console's cookie: browsers take it over https only, for this host alone and from no
/// other.
const COOKIE: &str = "__Host-tollgate";
/// Name of the console's cookie without TLS, on loopback.
const PLAIN_COOKIE: &str = "tollgate";
/// Member of the claims of a login of Argo CD's account with what its token was issued as.
const ARGOCD_TOKEN: &str = "tollgate.dev/argocd-token";

/// Name of the cookie of a console.
pub fn cookie_name(console: &Console) -> &'static str {
    match console.url.scheme() {
        "https" => COOKIE,
        _ => PLAIN_COOKIE,
    }
}

/// Whether a request was sent to the console's host.
pub fn is_for_console(uri: &Uri, headers: &HeaderMap, console: &Console) -> bool {
    let authority = origin::host(uri, headers).unwrap_or_default();
    let (host, port) = origin::split_port(authority);
    let port = port.and_then(|port| port.parse::<u16>().ok());
    let is_host = console
        .url
        .host_str()
        .is_some_and(|ours| ours.eq_ignore_ascii_case(host));
    is_host && port.or_else(|| console.url.port_or_known_default()) == console.url.port_or_known_default()
}

impl Authenticator {
    /// The login of a request, if it carries the secret of one; `None` if it carries another
    /// credential or none.
    pub(super) async fn by_login(&self, head: &Parts, safety: Safety) -> Result<Option<Arc<Principal>>, Error> {
        let Some(logins) = &self.logins else { return Ok(None) };
        let Some(presented) = presented(head, logins)? else {
            return Ok(None);
        };
        if presented.transport == CredentialTransport::Cookie {
            // No other origin is trusted with the console.
            origin::check(head, safety, &[])?;
        }
        // Before the cache, which does not know which logins have ended.
        let found = logins.find(&SecretString::from(&*presented.token)).await;
        let found = found.map_err(|error| match error {
            logins::Error::Unknown => InvalidTokenReason::UnknownLogin.into(),
            logins::Error::Expired => Error::Expired,
            logins::Error::Revoked => RevocationReason::LoginEnded.into(),
            logins::Error::Store(error) => Error::StoreUnavailable(error),
        })?;
        let key = (sha256(&presented.token), presented.transport);
        if let Some(principal) = self.cache.get(&key, self.clock.unix_seconds()) {
            return Ok(Some(principal));
        }
        let identity = self.identity_of(&found.login)?;
        let (now, expires_at) = (self.clock.unix_seconds(), found.expires_at.as_second());
        let principal = Arc::new(Principal::of_login(identity, presented.transport, found));
        self.cache.insert(
            key,
            &presented.token,
            Arc::clone(&principal),
            None,
            now,
            Some(expires_at),
        );
        Ok(Some(principal))
    }

    /// Whom a login stands for now.
    ///
    /// # Errors
    /// [`Error`]: its issuer or account is gone, or its claims would be refused now.
    pub(super) fn identity_of(&self, login: &Login) -> Result<VerifiedIdentity, Error> {
        let expires_at = Some(login.expires_at.as_second());
        if login.issuer == argocd_token::ISSUER {
            let verifier = self.argocd_tokens.as_ref().ok_or(InvalidTokenReason::UnknownIssuer)?;
            return verifier.identity_of(login.claims.clone(), expires_at);
        }
        let issuer = self.issuers.get(&login.issuer);
        let issuer = issuer.ok_or(InvalidTokenReason::UnknownIssuer)?;
        issuer.identity_of(login.claims.clone(), expires_at)
    }

    /// Whom a login stands for now, unless they are locked.
    ///
    /// # Errors
    /// As for a request by the login.
    pub fn principal_of(&self, login: &Login) -> Result<Arc<Principal>, Error> {
        let identity = self.identity_of(login)?;
        self.unlocked(Arc::new(Principal::new(identity, CredentialTransport::Bearer)))
    }

    /// A caller, unless they are locked.
    ///
    /// # Errors
    /// [`Error::Locked`]; [`Error::StoreUnavailable`] if that cannot be told.
    pub fn unlocked(&self, principal: Arc<Principal>) -> Result<Arc<Principal>, Error> {
        if self.is_lock_unknown(&principal) {
            let silent = "it has been silent for too long, so nobody knows who is locked";
            return Err(Error::StoreUnavailable(store::Error::Failed(silent.to_owned())));
        }
        match self.is_locked(&principal) {
            true => Err(Error::Locked),
            false => Ok(principal),
        }
    }

    /// Checks that a form was sent by a page of the gateway itself.
    ///
    /// # Errors
    /// [`Error::CrossSite`].
    pub fn check_same_origin(&self, head: &Parts) -> Result<(), Error> {
        origin::check(head, Safety::Unsafe, &[])
    }

    pub(super) fn is_login_in_force(&self, active: &ActiveLogin) -> bool {
        let logins = self.logins.as_ref();
        logins.is_some_and(|logins| !logins.is_ended(&active.login))
    }

    /// Whether a caller is locked, by any of their names.
    pub fn is_locked(&self, principal: &Principal) -> bool {
        let sessions = self.sessions.as_ref().filter(|sessions| sessions.has_locks());
        sessions.is_some_and(|sessions| sessions.is_locked(&self.person_names(principal)))
    }

    /// Whether a caller may have been locked elsewhere, because the store has been silent for too long.
    // SECURITY: a process that is cut off from the store never learns of a lock.
    pub fn is_lock_unknown(&self, principal: &Principal) -> bool {
        match principal.kind() {
            // They have no name, or an API server vouches for them.
            Kind::Anonymous | Kind::Kubernetes => false,
            Kind::Local | Kind::Oidc | Kind::ProjectToken => {
                let sessions = self.sessions.as_ref();
                sessions.is_some_and(|sessions| sessions.is_store_unavailable())
            }
        }
    }

    /// Every name of a caller: the subject and the user name that their issuer gives, and the one in the
    /// directory.
    pub fn person_names(&self, principal: &Principal) -> PersonNames {
        let names = PersonNames::of([principal.user_id(), principal.username()]).and_subject(principal.claims());
        let login = principal.login().map(|active| &active.login);
        let of_login = login.map(|login| [login.subject.as_str(), login.user.username.as_str()]);
        let names = names.and(of_login.into_iter().flatten());
        match &self.sessions {
            Some(sessions) => sessions.with_directory_name(names, principal.issuer(), principal.claims()),
            None => names,
        }
    }

    /// Whether a login is of somebody with this name.
    pub fn is_login_of(&self, login: &Login, name: &str) -> bool {
        let stored = PersonNames::of([login.subject.as_str(), login.user.username.as_str()]);
        // This maps the claims anew, so it is done only if the stored names do not match.
        let vouched = || {
            let identity = self.identity_of(login).ok()?;
            let principal = Principal::new(identity, CredentialTransport::Bearer);
            Some(self.person_names(&principal))
        };
        stored.has(name) || vouched().is_some_and(|names| names.has(name))
    }
}

/// The claims of a login by a token that Argo CD issued, whose identity was verified.
///
/// - `key`: hash of the key that signed it.
pub(super) fn argocd_claims(identity: &VerifiedIdentity, key: &str) -> Map<String, Value> {
    let mut claims = identity.claims.clone();
    if let Some(issued) = &identity.issued {
        // SECURITY: another signing key ends the login, as it ends every session of Argo CD.
        let reference = serde_json::json!({ "subject": issued.subject, "key": key });
        claims.insert(ARGOCD_TOKEN.to_owned(), reference);
    }
    claims
}

/// What the token of a login was issued as, and the hash of the key that signed it; with the claims as
/// Argo CD wrote them.
pub(super) fn take_argocd_reference(claims: &mut Map<String, Value>) -> Option<(String, String)> {
    let reference = claims.remove(ARGOCD_TOKEN)?;
    let text = |name: &str| Some(reference.get(name)?.as_str()?.to_owned());
    Some((text("subject")?, text("key")?))
}

/// Hash of a signing key, in hex.
pub(super) fn key_hash(key: &str) -> String {
    hash_parts_hex(&["tollgate login", key])
}

fn presented<'a>(head: &'a Parts, logins: &Logins) -> Result<Option<PresentedToken<'a>>, Error> {
    // A malformed one is refused by the stage that reads all other tokens.
    let Ok(sent) = bearer(&head.headers) else {
        return Ok(None);
    };
    // No browser adds this field by itself, so a cookie beside it does not count.
    if let Some(token) = sent {
        let token = Some(token).filter(|token| Logins::is_secret(token));
        return Ok(token.map(|token| PresentedToken {
            token,
            transport: CredentialTransport::Bearer,
        }));
    }
    let console = &logins.console;
    if !is_for_console(&head.uri, &head.headers, console) {
        return Ok(None);
    }
    let cookie = sole(&head.headers, cookie_name(console))?;
    Ok(cookie.filter(|value| !value.is_empty()).map(|value| PresentedToken {
        token: Cow::Borrowed(value),
        transport: CredentialTransport::Cookie,
    }))
}
