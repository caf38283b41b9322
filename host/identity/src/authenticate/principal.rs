//! The verified identity of a caller.
//!
//! Security: a [`Principal`] contains no token. `Debug` shows no claim values except the names
//! that are logged anyway.

use crate::logins::ActiveLogin;
use crate::revoked_tokens::TokenIds;
use tollgate_core::principal::Kind;

use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

#[cfg(any(test, feature = "unchecked"))]
use tollgate_core::claims::{scope_values, user_identifier};
use tollgate_core::user::Identity;

/// How the credential was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialTransport {
    /// Cookie `argocd.token`; a browser sends it by itself. Also used for a request without
    /// credential if anonymous callers are allowed, since a browser can be made to send those,
    /// too.
    Cookie,
    /// `Authorization: Bearer`; no browser sends it by itself.
    Bearer,
}

/// A caller whose credential was verified. Only this stage makes one.
#[derive(derive_more::Debug)]
#[debug("Principal {{ kind: {:?}, issuer: {:?}, user_id: {:?}, presented: {transport:?}, .. }}", self.identity.kind, self.identity.issuer, self.identity.user_id)]
pub struct Principal {
    pub(super) identity: VerifiedIdentity,
    transport: CredentialTransport,
    limit_key: u64,
    login: Option<ActiveLogin>,
}

#[derive(Clone, PartialEq)]
pub(super) struct VerifiedIdentity {
    pub(super) kind: Kind,
    pub(super) issuer: String,
    pub(super) user_id: String,
    pub(super) names: Identity,
    pub(super) claims: Map<String, Value>,
    /// `exp` in seconds since 1970.
    pub(super) expires_at: Option<i64>,
    /// Set for tokens Argo CD signed.
    pub(super) issued: Option<ArgocdTokenRef>,
    /// What identifies the token on Argo CD's list of revoked tokens.
    pub(super) token_ids: TokenIds,
}

/// What a token of Argo CD was issued as, so that it can be looked up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArgocdTokenRef {
    /// Identifies the key that signed it, within this process.
    pub(super) key: u64,
    /// `sub` as it was signed.
    pub(super) subject: String,
    /// `jti`.
    pub(super) id: String,
    /// `iat`, seconds since 1970.
    pub(super) at: i64,
}

impl Principal {
    pub(super) fn new(identity: VerifiedIdentity, transport: CredentialTransport) -> Self {
        let hash = hash_parts(&[identity.kind.as_ref(), &identity.issuer, &identity.user_id]);
        let limit_key = hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        Self {
            identity,
            transport,
            limit_key,
            login: None,
        }
    }

    /// A caller who was verified by a login at the gateway.
    pub(super) fn of_login(identity: VerifiedIdentity, transport: CredentialTransport, login: ActiveLogin) -> Self {
        Self {
            login: Some(login),
            ..Self::new(identity, transport)
        }
    }

    /// The login at the gateway by which the caller was verified, if it was one.
    pub fn login(&self) -> Option<&ActiveLogin> {
        self.login.as_ref()
    }

    /// The identity that the caller's issuer vouches for.
    pub fn names(&self) -> &Identity {
        &self.identity.names
    }

    /// The subject policies decide on: `federated_claims.user_id` if set, else `sub` (Argo CD);
    /// the mapped username for issuers with claim mappings; the account's name without `:login`;
    /// empty for anonymous callers.
    pub fn user_id(&self) -> &str {
        &self.identity.user_id
    }

    /// The display name: [`Principal::user_id`] for tokens Argo CD signed, else the e-mail
    /// address if there is one, or the mapped username.
    pub fn username(&self) -> &str {
        &self.identity.names.username
    }

    /// All values of the configured scopes, in token order (Argo CD), or the
    /// mapped groups.
    pub fn groups(&self) -> &[String] {
        &self.identity.names.groups
    }

    /// The claims policies see. `sub` and the groups agree with [`Principal::user_id`] and
    /// [`Principal::groups`]. If an issuer has claim mappings, the token's own claims are under
    /// `token`.
    pub fn claims(&self) -> &Map<String, Value> {
        &self.identity.claims
    }

    /// `iss`: `argocd` for tokens Argo CD signed, empty for anonymous callers.
    pub fn issuer(&self) -> &str {
        &self.identity.issuer
    }

    /// `claimMappings.uid`, if the issuer has it.
    pub fn uid(&self) -> Option<&str> {
        self.identity.names.uid.as_deref()
    }

    /// `claimMappings.extra`: lower-case keys and their values.
    pub fn extra(&self) -> &[(String, Vec<String>)] {
        &self.identity.names.extra
    }

    /// How the credential was sent.
    pub fn transport(&self) -> CredentialTransport {
        self.transport
    }

    /// When the token expires; `None` for tokens that do not.
    pub fn expires_at(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.identity.expires_at?).ok()
    }

    /// What vouches for the caller.
    pub fn kind(&self) -> Kind {
        self.identity.kind
    }

    /// What identifies the token on Argo CD's list of revoked tokens.
    pub fn token_ids(&self) -> &TokenIds {
        &self.identity.token_ids
    }

    /// A hash of kind, issuer and user id, for limits. The same person has the same key with
    /// every token and after every restart.
    pub fn limit_key(&self) -> u64 {
        self.limit_key
    }

    /// A caller as a verified token with these claims from the issuer in `iss` would give, with
    /// `groups` as the only scope.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn for_test(claims: Map<String, Value>, transport: CredentialTransport) -> Self {
        let user_id = user_identifier(&claims).to_owned();
        let issuer = string_claim(&claims, "iss").to_owned();
        let kind = match (issuer.as_str(), user_id.starts_with("proj:")) {
            ("argocd", true) => Kind::ProjectToken,
            ("argocd", false) => Kind::Local,
            (_, _) => Kind::Oidc,
        };
        let username = match (kind, string_claim(&claims, "email")) {
            (Kind::Oidc, email) if !email.is_empty() => email.to_owned(),
            (_, _) => user_id.clone(),
        };
        let groups = scope_values(&claims, &["groups".to_owned()]);
        let expires_at = claims.get("exp").and_then(Value::as_i64);
        let token_ids = TokenIds::of(&claims);
        let identity = VerifiedIdentity {
            kind,
            issuer,
            user_id,
            names: Identity {
                username,
                groups,
                ..Identity::default()
            },
            claims,
            expires_at,
            issued: None,
            token_ids,
        };
        Self::new(identity, transport)
    }
}

/// The text of a claim; `""` if it is not a text.
pub(super) fn string_claim<'a>(claims: &'a Map<String, Value>, claim: &str) -> &'a str {
    claims.get(claim).and_then(Value::as_str).unwrap_or_default()
}

/// SHA-256 of texts. Each is preceded by its length, so that they cannot run together.
pub(super) fn hash_parts(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

pub(super) fn hash_parts_hex(parts: &[&str]) -> String {
    hash_parts(parts).iter().map(|byte| format!("{byte:02x}")).collect()
}
