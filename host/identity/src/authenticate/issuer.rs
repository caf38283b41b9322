//! Verifies tokens of one OpenID Connect issuer and finds whom they stand for.
//!
//! Security: unsigned and symmetrically signed tokens and tokens for another audience are
//! refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::error::{Error, IdentityField, InvalidTokenReason, MalformedCredential};
use super::keys::{KeyCache, KeyError};
use super::mapping::{CompiledClaimMappings, check_email_verified, check_unmapped_name};
use super::sign_in::RelyingParty;
use super::token::{LEEWAY_SECONDS, TokenKind, TokenTimes, UnverifiedToken};
use super::userinfo::UserinfoClient;
use super::{principal::VerifiedIdentity, principal::string_claim};
use crate::clock::Clock;
use crate::revoked_tokens::TokenIds;
use tollgate_core::claims::{scope_values, user_identifier};
use tollgate_core::principal::Kind;
use tollgate_core::user::Identity;

/// All algorithms an issuer may use. `HS*` and `none` are not among them.
pub(super) const ASYMMETRIC_ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Claims that policies see unchanged from the token.
const KEPT_CLAIMS: [&str; 5] = ["iss", "aud", "iat", "exp", "jti"];
/// Claims in the policies' view that never hold groups, regardless of `scopes`.
const NON_GROUP_CLAIMS: [&str; 7] = ["iss", "aud", "iat", "exp", "jti", "sub", "token"];

/// The claims by which policies see names that did not come from a token as they are: `sub`, and the
/// groups.
///
/// - `scopes`: claims in which Argo CD's RBAC finds groups.
pub(super) fn name_claims(username: &str, groups: &[String], scopes: &[String]) -> [(String, Value); 2] {
    // The scope must not be one such as `sub`, where the groups would replace the name.
    let free = |scope: &&String| !NON_GROUP_CLAIMS.contains(&scope.as_str());
    let scope = match scopes.iter().find(free) {
        Some(first) if !scopes.iter().any(|scope| scope == "groups") => first.as_str(),
        Some(_) | None => "groups",
    };
    [
        ("sub".to_owned(), Value::from(username)),
        (scope.to_owned(), Value::from(groups.to_vec())),
    ]
}

#[derive(Debug)]
pub(super) struct OidcIssuer {
    pub(super) verifier: Verifier,
    pub(super) interpretation: ClaimInterpretation,
    pub(super) scopes: Vec<String>,
    pub(super) accounts: Arc<BTreeSet<String>>,
    /// What the gateway is there, if people sign in at it.
    pub(super) client: Option<RelyingParty>,
}

/// Verifies that a token is from an issuer, meant for us and currently valid.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `iss`, compared byte by byte.
    pub(super) name: String,
    pub(super) audiences: Vec<String>,
    pub(super) missing_audience: MissingAudience,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) keys: Arc<KeyCache>,
    pub(super) profile: ValidationProfile,
}

/// What happens to a token without `aud`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingAudience {
    /// It is refused: it may be meant for anybody.
    Refused,
    /// It is accepted (Argo CD: `skipAudienceCheckWhenTokenHasNoAudience`).
    Accepted,
}

/// Which rules apply where the specification, Argo CD and Kubernetes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationProfile {
    /// OpenID Connect Core. Reserved are names that start with `system:`, and usernames that Argo CD's policies reserve for
    /// subjects that are not people.
    OpenIdConnect,
    /// kube-apiserver: `nbf` may be a minute ahead. Reserved
    /// are names that start with `system:`.
    Kubernetes,
}

impl ValidationProfile {
    fn leeway_seconds(self) -> i64 {
        match self {
            Self::OpenIdConnect => LEEWAY_SECONDS,
            Self::Kubernetes => 60,
        }
    }
}

#[derive(Debug)]
pub(super) enum ClaimInterpretation {
    /// `claimMappings`, with the rules that validate claims and users.
    Mapped(Box<CompiledClaimMappings>),
    /// As Argo CD reads them.
    Argocd { userinfo: Option<Arc<UserinfoClient>> },
}

/// An identity, and how long it may be cached if less than usual.
pub(super) type Verified = (VerifiedIdentity, Option<Duration>);

impl Verifier {
    /// Returns the claims and times of a valid token; `exp` is required.
    pub(super) async fn claims(
        &self,
        token: UnverifiedToken<'_>,
        clock: &Clock,
    ) -> Result<(Map<String, Value>, TokenTimes), Error> {
        let (claims, times) = self.timely_claims(TokenKind::Bearer, token, clock).await?;
        if times.expires_at.is_none() {
            return Err(InvalidTokenReason::missing("exp").into());
        }
        self.check_audience(&claims)?;
        Ok((claims, times))
    }

    /// The claims and times of a logout token, of which nothing else was verified. `exp` may be
    /// missing, as in drafts of the specification.
    pub(super) async fn logout_claims(
        &self,
        token: UnverifiedToken<'_>,
        clock: &Clock,
    ) -> Result<(Map<String, Value>, TokenTimes), Error> {
        self.timely_claims(TokenKind::Logout, token, clock).await
    }

    /// The claims and times of a signed token, none of which is past.
    async fn timely_claims(
        &self,
        kind: TokenKind,
        token: UnverifiedToken<'_>,
        clock: &Clock,
    ) -> Result<(Map<String, Value>, TokenTimes), Error> {
        let algorithm = token.checked_algorithm(kind, &self.algorithms)?;
        let claims = self.signed_claims(token, algorithm).await?;
        // Checked after the signature, so that only the bearer of a genuine token learns that it
        // has expired.
        let times = TokenTimes::check(&claims, clock.unix_seconds(), self.profile.leeway_seconds())?;
        Ok((claims, times))
    }

    /// The claims of a token that a key of the issuer signed; nothing else is checked.
    async fn signed_claims(
        &self,
        token: UnverifiedToken<'_>,
        algorithm: Algorithm,
    ) -> Result<Map<String, Value>, Error> {
        let keys = self.keys.find(token.key_id(), algorithm).await;
        let keys = keys.map_err(|error| match error {
            KeyError::Unknown => InvalidTokenReason::UnknownKey.into(),
            KeyError::Unavailable => Error::IssuerUnavailable(self.name.clone()),
        })?;
        let key_id = token.key_id().map(str::to_owned);
        Ok(token.into_verified_claims(keys.candidates(key_id.as_deref(), algorithm), algorithm)?)
    }

    /// Checks that `aud` has a configured audience, as Argo CD and Kubernetes (`MatchAny`) do. Neither looks
    /// at `azp` here. A sign-in does, because its ID token must be for this client.
    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), Error> {
        let audiences: Vec<&str> = match claims.get("aud") {
            None if self.missing_audience == MissingAudience::Accepted => return Ok(()),
            None => Vec::new(),
            Some(Value::String(audience)) => vec![audience],
            Some(Value::Array(audiences)) => audiences.iter().filter_map(Value::as_str).collect(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                return Err(MalformedCredential::Claim("aud").into());
            }
        };
        let ours = |name: &str| self.audiences.iter().any(|audience| audience == name);
        if !audiences.iter().any(|audience| ours(audience)) {
            return Err(InvalidTokenReason::Audience.into());
        }
        Ok(())
    }
}

impl OidcIssuer {
    /// Verifies a token and returns whom it stands for.
    ///
    /// - `text`: the token itself, for the userinfo endpoint.
    pub(super) async fn verify(
        &self,
        token: UnverifiedToken<'_>,
        text: &str,
        clock: &Clock,
    ) -> Result<Verified, Error> {
        let (claims, times) = self.verifier.claims(token, clock).await?;
        match &self.interpretation {
            ClaimInterpretation::Mapped(mapping) => Ok((self.mapped(mapping, claims, times.expires_at)?, None)),
            ClaimInterpretation::Argocd { userinfo } => {
                let now = clock.now().as_second();
                self.argocd(userinfo.as_deref(), claims, text, times, now).await
            }
        }
    }

    /// Whom claims stand for that the issuer vouched for before, if they are still for us.
    ///
    /// # Errors
    /// [`Error`]: they would be refused now.
    pub(super) fn identity_of(
        &self,
        claims: Map<String, Value>,
        expires_at: Option<i64>,
    ) -> Result<VerifiedIdentity, Error> {
        self.verifier.check_audience(&claims)?;
        match &self.interpretation {
            ClaimInterpretation::Mapped(mapping) => self.mapped(mapping, claims, expires_at),
            ClaimInterpretation::Argocd { .. } => self.read(claims, expires_at),
        }
    }

    /// Whether a token that was verified before would still be for us and give the same identity.
    /// Its signature and times are not checked.
    pub(super) fn is_still_valid(&self, known: &VerifiedIdentity) -> bool {
        let expires_at = known.expires_at;
        let again = match &self.interpretation {
            ClaimInterpretation::Mapped(mapping) => {
                let Some(Value::Object(token)) = known.claims.get("token") else {
                    return false;
                };
                let checked = self.verifier.check_audience(token);
                checked.and_then(|()| self.mapped(mapping, token.clone(), expires_at))
            }
            ClaimInterpretation::Argocd { .. } => {
                // Groups from the userinfo endpoint are already among these claims.
                let checked = self.verifier.check_audience(&known.claims);
                checked.and_then(|()| self.read(known.claims.clone(), expires_at))
            }
        };
        again.is_ok_and(|again| again == *known)
    }

    fn mapped(
        &self,
        mapping: &CompiledClaimMappings,
        claims: Map<String, Value>,
        expires_at: Option<i64>,
    ) -> Result<VerifiedIdentity, Error> {
        let mapped = mapping.apply(&claims)?;
        // SECURITY: policies distinguish users by name alone, so a name from an issuer must not
        // be that of a local account, such as `admin`.
        if self.accounts.contains(&mapped.username) && !mapping.allows_reserved(&mapped.username) {
            return Err(InvalidTokenReason::ReservedName(IdentityField::Username).into());
        }
        let token_ids = TokenIds::of(&claims);
        let claims = self.policy_claims(&mapped.username, &mapped.groups, claims);
        Ok(VerifiedIdentity {
            kind: Kind::Oidc,
            issuer: self.verifier.name.clone(),
            user_id: mapped.username.clone(),
            names: mapped,
            claims,
            expires_at,
            issued: None,
            token_ids,
        })
    }

    /// SECURITY: policies see the mapped names as subject and groups, so that no claim can bypass
    /// the mapping and its prefixes. The token's own claims are moved under `token`.
    fn policy_claims(&self, username: &str, groups: &[String], token: Map<String, Value>) -> Map<String, Value> {
        let mut claims = Map::new();
        for claim in KEPT_CLAIMS {
            claims.extend(token.get(claim).map(|value| (claim.to_owned(), value.clone())));
        }
        claims.extend(name_claims(username, groups, &self.scopes));
        claims.insert("token".to_owned(), Value::Object(token));
        claims
    }

    /// Identity as Argo CD reads it: raw claims, groups from the configured scopes.
    async fn argocd(
        &self,
        userinfo: Option<&UserinfoClient>,
        mut claims: Map<String, Value>,
        token: &str,
        times: TokenTimes,
        now: i64,
    ) -> Result<Verified, Error> {
        // `read` checks this as well, but only after a lookup.
        if user_identifier(&claims).is_empty() {
            return Err(InvalidTokenReason::missing("sub").into());
        }
        let mut fresh_for = None;
        if let Some(userinfo) = userinfo {
            let subject = string_claim(&claims, "sub");
            let (groups, counts_for) = userinfo.groups(token, subject, now, times.expires_at).await?;
            if let Some(groups) = groups {
                claims.insert("groups".to_owned(), groups);
            }
            fresh_for = Some(counts_for);
        }
        Ok((self.read(claims, times.expires_at)?, fresh_for))
    }

    /// Returns whom claims stand for, as Argo CD reads them.
    fn read(&self, claims: Map<String, Value>, expires_at: Option<i64>) -> Result<VerifiedIdentity, Error> {
        let user_id = user_identifier(&claims).to_owned();
        if user_id.is_empty() {
            return Err(InvalidTokenReason::missing("sub").into());
        }
        let verified = check_email_verified(&claims);
        // With this scope, policies grant rights to the address itself.
        if self.scopes.iter().any(|scope| scope == "email") {
            verified.clone()?;
        }
        let email = string_claim(&claims, "email");
        let has_email = !email.is_empty() && verified.is_ok();
        let username = if has_email { email } else { user_id.as_str() }.to_owned();
        let groups = scope_values(&claims, &self.scopes);
        check_unmapped_name(&user_id, IdentityField::Username)?;
        check_unmapped_name(&username, IdentityField::Username)?;
        for group in &groups {
            check_unmapped_name(group, IdentityField::Groups)?;
        }
        Ok(VerifiedIdentity {
            kind: Kind::Oidc,
            issuer: self.verifier.name.clone(),
            user_id,
            names: Identity {
                username,
                groups,
                ..Identity::default()
            },
            token_ids: TokenIds::of(&claims),
            claims,
            expires_at,
            issued: None,
        })
    }
}
