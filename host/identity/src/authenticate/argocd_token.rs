//! Verifies tokens Argo CD signed itself (`iss: argocd`): sessions, API keys, project tokens.
//!
//! Security: whether a session was signed out is not known here; [`crate::revoked_tokens`] follows
//! the list that Argo CD keeps in its Redis.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use jsonwebtoken::{Algorithm, DecodingKey};
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

use super::account::{Accounts, Capability};
use super::error::{Error, InvalidTokenReason, RevocationReason};
use super::login;
use super::principal::{ArgocdTokenRef, VerifiedIdentity, string_claim};
use super::token::{LEEWAY_SECONDS, TokenKind, TokenTimes, UnverifiedToken};
use crate::revoked_tokens::TokenIds;
use tollgate_core::claims::scope_values;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::principal::Kind;
use tollgate_core::user::Identity;
use tollgate_objects::{Project, Resources};

/// The issuer of identities that Argo CD itself vouches for.
pub const ISSUER: &str = "argocd";
/// Name of the Secret with the signing key and the accounts' passwords.
pub(super) const SECRET_NAME: &str = "argocd-secret";
pub(super) const SIGNING_KEY: &str = "server.secretkey";
/// A signing key with fewer bytes can be guessed.
const MIN_KEY_BYTES: usize = 16;

/// Hashes signing keys into fingerprints, differently in each process.
static KEY_FINGERPRINTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

#[derive(derive_more::Debug)]
#[debug("ArgocdTokenVerifier {{ accounts: {accounts:?}, .. }}")]
pub(super) struct ArgocdTokenVerifier {
    key: DecodingKey,
    /// Identifies the key within this process, and reveals nothing of it.
    key_fingerprint: u64,
    pub(super) login_key: String,
    accounts: Accounts,
    projects: BTreeMap<String, Arc<Project>>,
    scopes: Vec<String>,
}

impl ArgocdTokenVerifier {
    /// Reads signing key, accounts and projects; `None`, with an error among
    /// the findings, without a signing key.
    pub(super) fn read(resources: &Resources, scopes: &[String], findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let secret = resources.secrets.get(SECRET_NAME);
        let key = secret.and_then(|secret| secret.values.get(SIGNING_KEY));
        let key = key.map(ExposeSecret::expose_secret);
        let location = secret.map(|secret| secret.location.clone());
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            findings.push(
                Diagnostic::error(location, format!("Secret `{SECRET_NAME}` has no `{SIGNING_KEY}`"))
                    .with_hint("set `authentication.argocdSessions: false` if Argo CD's sessions are not wanted"),
            );
            return None;
        };
        if key.len() < MIN_KEY_BYTES {
            let observed = key.len();
            let message =
                format!("`{SIGNING_KEY}` has {observed} bytes, at least {MIN_KEY_BYTES} are needed to resist guessing");
            findings.push(Diagnostic::warning(location, message));
        }
        Some(Self {
            key: DecodingKey::from_secret(key.as_bytes()),
            login_key: login::key_hash(key),
            key_fingerprint: KEY_FINGERPRINTS.hash_one(key.as_bytes()),
            accounts: Accounts::read(resources, findings),
            projects: resources.projects.clone(),
            scopes: scopes.to_vec(),
        })
    }

    /// Verifies a token and returns whom it stands for (Argo CD, `util/session` `Parse`).
    pub(super) fn verify(&self, token: UnverifiedToken<'_>, now: i64) -> Result<VerifiedIdentity, Error> {
        let algorithm = token.checked_algorithm(TokenKind::Bearer, &[Algorithm::HS256])?;
        let mut claims = token.into_verified_claims([&self.key], algorithm)?;
        let times = TokenTimes::check(&claims, now, LEEWAY_SECONDS)?;
        let issued_at = times.issued_at.ok_or_else(|| InvalidTokenReason::missing("iat"))?;
        // Argo CD never sets it here, and it would outrank the checked `sub`.
        claims.remove("federated_claims");
        let issued = ArgocdTokenRef {
            key: self.key_fingerprint,
            subject: string_claim(&claims, "sub").to_owned(),
            id: string_claim(&claims, "jti").to_owned(),
            at: issued_at,
        };
        self.identity(issued, claims, times.expires_at)
    }

    /// Whom a login stands for that began with a token of an account.
    ///
    /// # Errors
    /// [`Error`]: the account is gone, or the token would be refused now.
    pub(super) fn identity_of(
        &self,
        mut claims: Map<String, Value>,
        expires_at: Option<i64>,
    ) -> Result<VerifiedIdentity, Error> {
        let reference = login::take_argocd_reference(&mut claims);
        let (subject, key) = reference.ok_or(InvalidTokenReason::Subject)?;
        if key != self.login_key {
            return Err(InvalidTokenReason::Signature.into());
        }
        let issued = ArgocdTokenRef {
            key: self.key_fingerprint,
            subject,
            id: string_claim(&claims, "jti").to_owned(),
            // Without it, the token counts as older than every change of the password.
            at: claims.get("iat").and_then(Value::as_i64).unwrap_or_default(),
        };
        self.identity(issued, claims, expires_at)
    }

    /// Whom a token with these claims, whose signature was verified, stands for now.
    fn identity(
        &self,
        issued: ArgocdTokenRef,
        mut claims: Map<String, Value>,
        expires_at: Option<i64>,
    ) -> Result<VerifiedIdentity, Error> {
        let (kind, user_id) = self.check(&issued)?;
        let token_ids = match kind {
            // A project lists its tokens; Argo CD does not look for them on the other list.
            Kind::ProjectToken => TokenIds::default(),
            Kind::Local | Kind::Oidc | Kind::Anonymous | Kind::Kubernetes => TokenIds::of(&claims),
        };
        // Policies see the name without the suffix for the kind of token, as Argo CD's do.
        claims.insert("sub".to_owned(), Value::String(user_id.clone()));
        Ok(VerifiedIdentity {
            kind,
            issuer: ISSUER.to_owned(),
            names: Identity {
                username: user_id.clone(),
                groups: scope_values(&claims, &self.scopes),
                ..Identity::default()
            },
            user_id,
            claims,
            expires_at,
            issued: Some(issued),
            token_ids,
        })
    }

    /// Whether a token that was verified before would still verify and give the same identity.
    pub(super) fn is_still_valid(&self, known: &VerifiedIdentity) -> bool {
        let is_signed_by_key = |issued: &&ArgocdTokenRef| issued.key == self.key_fingerprint;
        let issued = known.issued.as_ref().filter(is_signed_by_key);
        let subject = issued.and_then(|issued| self.check(issued).ok());
        subject.is_some_and(|(kind, user_id)| {
            let same = kind == known.kind && user_id == known.user_id;
            same && scope_values(&known.claims, &self.scopes) == known.names.groups
        })
    }

    /// Returns whom a token stands for, if the account or role it was issued for still exists.
    ///
    /// Reads the forms of `sub` that Argo CD writes; a bare name is an API key of an old version.
    /// Unlike in Argo CD, an unknown suffix is refused.
    fn check(&self, issued: &ArgocdTokenRef) -> Result<(Kind, String), Error> {
        let parts: Vec<&str> = issued.subject.splitn(4, ':').collect();
        let (name, capability) = match parts.as_slice() {
            ["", ..] => return Err(InvalidTokenReason::Subject.into()),
            ["proj", project, role] if !project.is_empty() && !role.is_empty() => {
                self.check_role_token(project, role, &issued.id, issued.at)?;
                return Ok((Kind::ProjectToken, issued.subject.clone()));
            }
            [name] | [name, "apiKey"] => (*name, Capability::ApiKey),
            [name, "login"] => (*name, Capability::Login),
            _ => return Err(InvalidTokenReason::Subject.into()),
        };
        // Only tokens of roles may lack it.
        if issued.id.is_empty() {
            return Err(InvalidTokenReason::missing("jti").into());
        }
        self.accounts.check(name, capability, &issued.id, issued.at)?;
        Ok((Kind::Local, name.to_owned()))
    }

    /// Whether the role still lists the token: by `jti`, or by `iat` where the
    /// list has no `jti` for it (tokens of old versions).
    fn check_role_token(&self, project: &str, role: &str, id: &str, issued_at: i64) -> Result<(), RevocationReason> {
        let project = self.projects.get(project).ok_or(RevocationReason::NoRole)?;
        let role = project.roles.iter().find(|candidate| candidate.name == role);
        let role = role.ok_or(RevocationReason::NoRole)?;
        let listed = role.tokens.iter().any(|token| match token.id.as_str() {
            "" => token.issued_at == issued_at,
            listed => listed == id,
        });
        listed.then_some(()).ok_or(RevocationReason::NotListed)
    }
}
