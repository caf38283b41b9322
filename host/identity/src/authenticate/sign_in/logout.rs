//! Ends logins with the session at the issuer: sends a person there to sign out, and takes the issuer's
//! word that somebody signed out elsewhere.
//!
//! Sources: OpenID Connect RP-Initiated Logout 1.0, OpenID Connect Back-Channel Logout 1.0.

use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::{SignInError, endpoint_url, provider};
use crate::authenticate::Authenticator;
use crate::authenticate::error::{Error, InvalidTokenReason};
use crate::authenticate::principal::{hash_parts_hex, string_claim};
use crate::authenticate::token::UnverifiedToken;
use crate::logins::Logins;
use tollgate_store::{self as store, Actor, Login, SecretHash};

/// The event that makes a token a logout token.
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// How old a logout token may be.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(5);

/// Whose session ended at an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAtIssuer {
    /// `iss`.
    issuer: String,
    /// `sid`, if one session ended.
    sid: Option<String>,
    /// `sub`, if all of a person's did.
    subject: Option<String>,
    /// Identifies the token.
    id: SecretHash,
}

/// Why a logout token ends nothing.
#[derive(Debug, thiserror::Error)]
pub enum LogoutTokenError {
    /// It is not acceptable. The issuer may see which rule it broke.
    #[error("the logout token is refused: {0}")]
    Token(Error),
    /// It is not a logout token, or names nobody.
    #[error("the logout token {0}")]
    Content(&'static str),
    /// No such way to sign in is set up.
    #[error(transparent)]
    Method(#[from] SignInError),
    /// It came before.
    #[error("the logout token was used before")]
    Replayed,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Authenticator {
    /// Where a person signs out at the issuer of their login; `None` if it has no such place.
    ///
    /// - `back`: where the issuer sends them then.
    pub async fn end_session_url(&self, issuer: &str, back: &Url) -> Option<Url> {
        let issuer = self.issuers.get(issuer)?;
        let client = issuer.client.as_ref()?;
        let provider = provider(issuer).await.ok()?;
        let endpoint = provider.end_session_endpoint?;
        let mut url = endpoint_url(issuer, "end_session_endpoint", Some(&endpoint)).ok()?;
        url.query_pairs_mut()
            .append_pair("client_id", &client.settings.id)
            .append_pair("post_logout_redirect_uri", back.as_str());
        Some(url)
    }

    /// Verifies a logout token (Back-Channel Logout, section 2.6).
    ///
    /// # Errors
    /// [`LogoutTokenError`].
    pub async fn verify_logout_token(&self, method: &str, text: &str) -> Result<EndedAtIssuer, LogoutTokenError> {
        let (issuer, client) = self.client(method)?;
        let refused = |reason: InvalidTokenReason| LogoutTokenError::Token(reason.into());
        let token = UnverifiedToken::parse(text).map_err(|error| LogoutTokenError::Token(error.into()))?;
        if token.issuer() != issuer.verifier.name {
            return Err(refused(InvalidTokenReason::UnknownIssuer));
        }
        let verified = issuer.verifier.logout_claims(token, &self.clock).await;
        let (claims, times) = verified.map_err(LogoutTokenError::Token)?;
        if !client.is_audience_of(&claims) {
            return Err(refused(InvalidTokenReason::Audience));
        }
        let issued = times.issued_at.ok_or(LogoutTokenError::Content("has no `iat`"))?;
        if self.clock.unix_seconds().saturating_sub(issued) > MAX_AGE.as_secs() {
            return Err(LogoutTokenError::Content("is more than 5 minutes old"));
        }
        if claims.contains_key("nonce") {
            return Err(LogoutTokenError::Content("has a `nonce`: it is an ID token"));
        }
        if !claims
            .get("events")
            .is_some_and(|events| events.get(EVENT).is_some_and(Value::is_object))
        {
            return Err(LogoutTokenError::Content("has no logout event in `events`"));
        }
        let claim = |name: &str| Some(string_claim(&claims, name).to_owned()).filter(|text| !text.is_empty());
        let (sid, subject) = (claim("sid"), claim("sub"));
        if sid.is_none() && subject.is_none() {
            return Err(LogoutTokenError::Content("has neither `sid` nor `sub`"));
        }
        let id = claim("jti").ok_or(LogoutTokenError::Content("has no `jti`"))?;
        let id = hash_parts_hex(&[&issuer.verifier.name, &id]);
        Ok(EndedAtIssuer {
            issuer: issuer.verifier.name.clone(),
            sid,
            subject,
            id: SecretHash::of(&SecretString::from(id)),
        })
    }
}

impl Logins {
    /// Ends the logins whose session ended at their issuer. Returns how many there were.
    ///
    /// # Errors
    /// [`LogoutTokenError::Replayed`], [`LogoutTokenError::Store`].
    pub async fn end_with_issuer(&self, ended: &EndedAtIssuer) -> Result<usize, LogoutTokenError> {
        let now = self.clock.now();
        if self.store.is_logout_token_used(ended.id).await? {
            return Err(LogoutTokenError::Replayed);
        }
        let logins: Vec<Login> = match (&ended.sid, &ended.subject) {
            (Some(sid), subject) => {
                let of_sid = self.store.logins_of_sid(&ended.issuer, sid, now).await?;
                let is_of_subject = |login: &Login| subject.as_ref().is_none_or(|subject| login.subject == *subject);
                of_sid.into_iter().filter(is_of_subject).collect()
            }
            (None, Some(subject)) => self.store.open_logins(&ended.issuer, subject, now).await?,
            (None, None) => Vec::new(),
        };
        let by = Actor {
            user_id: None,
            name: ended.issuer.clone(),
        };
        for login in &logins {
            self.end(login, &by).await?;
        }
        // INVARIANT: the token counts as used once everything has ended. If the store fails before that, the
        // issuer sends it again; ending a login twice does nothing.
        // Twice the age, because `iat` may be ahead of this clock.
        let until = now.checked_add(MAX_AGE * 2).unwrap_or(Timestamp::MAX);
        self.store.use_logout_token(ended.id, until).await?;
        Ok(logins.len())
    }
}
