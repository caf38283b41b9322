//! Verifies ID tokens of people as kube-apiserver does, and yields [`access::IdToken`].
//!
//! Every invalid token gives the same 401; a failure to fetch an issuer's keys gives 500. A
//! verified token is cached until it expires, for at most five minutes. A reload forgets
//! verified tokens but keeps the issuers' keys.
//!
//! Security: a token without the agent claim is refused, and so is one that yields a name
//! Kubernetes reserves (`system:`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use super::super::error::{Error, InvalidTokenReason};
use super::super::issuer::{ValidationProfile, Verifier};
use super::super::mapping::CompiledClaimMappings;
use super::super::principal::{hash_parts_hex, string_claim};
use super::super::token::UnverifiedToken;
use super::super::verified_tokens::{VerifiedTokens, sha256};
use crate::access::{self, AccessDenyReason, IdToken};
use crate::clock::Clock;
use tollgate_core::agent::AgentId;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::Identity;

/// Verifies the ID tokens of people by one state of the settings.
#[derive(Debug)]
pub struct IdTokenVerifier {
    /// By `iss`.
    issuers: BTreeMap<String, IdTokenIssuer>,
    agent_claim: String,
    /// By hash of the token.
    cache: VerifiedTokens<[u8; 32], Arc<IdToken>>,
    clock: Clock,
}

#[derive(Debug)]
struct IdTokenIssuer {
    verifier: Verifier,
    mapping: CompiledClaimMappings,
    is_mapped: bool,
}

impl IdTokenVerifier {
    /// Compiles the issuers' rules. Nothing is fetched: keys come with the first
    /// token that needs them.
    ///
    /// - `previous`: the keys of its issuers are kept if the issuer has not changed.
    pub fn build(config: &tollgate_config::Kubernetes, previous: Option<&Self>, clock: &Clock) -> Loaded<Self> {
        let mut findings = Vec::new();
        let mut issuers = BTreeMap::new();
        for (index, person) in config.issuers.iter().enumerate() {
            let path = format!("kubernetes.jwt[{index}]");
            let issuer = IdTokenIssuer::build(person, &path, previous, clock, &mut findings);
            issuers.extend(issuer.map(|issuer| (issuer.verifier.name.clone(), issuer)));
        }
        let tokens = Self {
            issuers,
            agent_claim: config.agent_claim.clone(),
            cache: VerifiedTokens::new(),
            clock: clock.clone(),
        };
        Loaded::new(tokens, findings)
    }

    /// Verifies a token and returns what it says.
    ///
    /// Takes some microseconds for a token seen before; for a new one it may wait
    /// for an issuer's keys, at most some seconds. Cancel safe.
    ///
    /// # Errors
    /// [`access::Error::Refused`] with the reason, which is for records only;
    /// [`access::Error::Unavailable`] if the issuer's keys cannot be fetched.
    pub async fn verify(&self, token: &SecretString) -> Result<Arc<IdToken>, access::Error> {
        let key = sha256(token.expose_secret());
        let now = self.clock.unix_seconds();
        if let Some(known) = self.cache.get(&key, now) {
            return Ok(known);
        }
        let verified = self.verify_uncached(token).await.map_err(|error| refusal(&error))?;
        let verified = Arc::new(verified);
        self.cache.insert(
            key,
            token.expose_secret(),
            verified.clone(),
            None,
            now,
            Some(verified.expires_at.as_second()),
        );
        Ok(verified)
    }

    async fn verify_uncached(&self, token: &SecretString) -> Result<IdToken, Error> {
        let parsed = UnverifiedToken::parse(token.expose_secret())?;
        let issuer = self.issuers.get(parsed.issuer());
        let issuer = issuer.ok_or(InvalidTokenReason::UnknownIssuer)?;
        let (claims, times) = issuer.verifier.claims(parsed, &self.clock).await?;
        let expires_at = times
            .expires_at
            .and_then(|end| Timestamp::from_second(end).ok())
            .ok_or_else(|| InvalidTokenReason::missing("exp"))?;
        // SECURITY: only a number is accepted. Another type that could be read as one (a text, a
        // list) might be read as a different number elsewhere.
        let agent = claims
            .get(&self.agent_claim)
            .and_then(Value::as_i64)
            .and_then(AgentId::new)
            .ok_or_else(|| InvalidTokenReason::missing(&self.agent_claim))?;
        let mapped = issuer.mapped(&claims)?;
        Ok(IdToken {
            token: token.clone(),
            issuer: issuer.verifier.name.clone(),
            agent,
            session: session(&issuer.verifier.name, &claims, token.expose_secret()),
            expires_at,
            claims,
            mapped,
        })
    }
}

impl IdTokenIssuer {
    fn build(
        person: &tollgate_config::KubernetesIssuer,
        path: &str,
        previous: Option<&IdTokenVerifier>,
        clock: &Clock,
        findings: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let issuer = &person.issuer;
        let known = previous.and_then(|previous| previous.issuers.get(&issuer.url));
        let known = known.map(|known| known.verifier.keys.clone());
        let verifier = Verifier::build(issuer, path, ValidationProfile::Kubernetes, known, clock, findings);
        let mapping = CompiledClaimMappings::compile(issuer, ValidationProfile::Kubernetes, path, findings);
        if !person.is_mapped && !issuer.user_validation.is_empty() {
            let message = format!("`{path}.userValidationRules` check a user that only `claimMappings` make");
            findings.push(Diagnostic::error(None, message).with_hint("add `claimMappings`, or judge claims"));
        }
        Some(Self {
            verifier: verifier?,
            mapping: mapping?,
            is_mapped: person.is_mapped,
        })
    }

    /// The identity, if the issuer has mappings. Its claim rules are checked in any case.
    fn mapped(&self, claims: &Map<String, Value>) -> Result<Option<Identity>, Error> {
        if !self.is_mapped {
            self.mapping.check_claims(claims, &Value::Object(claims.clone()))?;
            return Ok(None);
        }
        let mut identity = self.mapping.apply(claims)?;
        let mut seen = std::collections::HashSet::new();
        identity.groups.retain(|group| seen.insert(group.clone()));
        Ok(Some(identity))
    }
}

/// Returns the session that can be revoked: the issuer's session if the token names one (OpenID
/// Connect Front-Channel Logout, section 3), else the sign-in of this person with this client at
/// one time (OpenID Connect Core, section 12.2: a refreshed token has the same `auth_time`), else
/// this token.
fn session(issuer: &str, claims: &Map<String, Value>, token: &str) -> SessionId {
    let (sid, jti) = (string_claim(claims, "sid"), string_claim(claims, "jti"));
    if !sid.is_empty() {
        // The second part keeps a `sid` apart from an equal `jti`.
        return SessionId::new(AccessType::OidcIdToken, hash_parts_hex(&[issuer, "sid", sid]));
    }
    if let Some([person, client, time]) = sign_in(claims) {
        let hash = hash_parts_hex(&[issuer, "auth_time", &person, &client, &time]);
        return SessionId::new(AccessType::OidcIdToken, hash);
    }
    let hash = if jti.is_empty() {
        hash_parts_hex(&[issuer, "token", token])
    } else {
        hash_parts_hex(&[issuer, "jti", jti])
    };
    SessionId::for_single_token(&hash)
}

/// `sub`, `azp` or else `aud`, and `auth_time`.
fn sign_in(claims: &Map<String, Value>) -> Option<[Cow<'_, str>; 3]> {
    let person = Some(string_claim(claims, "sub")).filter(|person| !person.is_empty())?;
    let time = claims.get("auth_time").filter(|time| time.is_number())?;
    let client = match string_claim(claims, "azp") {
        "" => claims.get("aud")?.to_string().into(),
        client => client.into(),
    };
    Some([person.into(), client, time.to_string().into()])
}

fn refusal(error: &Error) -> access::Error {
    match error {
        Error::Expired => AccessDenyReason::Expired.into(),
        Error::IssuerUnavailable(_) => access::Error::Unavailable(error.to_string()),
        Error::NoCredential
        | Error::Malformed(_)
        | Error::Invalid(_)
        | Error::Revoked(_)
        | Error::CrossSite { .. }
        | Error::RevocationsUnavailable
        | Error::StoreUnavailable(_)
        | Error::Scope(_)
        | Error::Locked
        | Error::SessionUnusable(_) => AccessDenyReason::IdToken(error.to_string()).into(),
    }
}
