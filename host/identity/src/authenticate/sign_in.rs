//! Signs people in at OpenID Connect issuers by the code flow with PKCE, and by accounts of Argo CD.
//!
//! Sources: OpenID Connect Core, RFC 7636 (PKCE), RFC 9207 (`iss` in answers), OpenID Connect
//! RP-Initiated Logout and Back-Channel Logout. The client is written here, because the only kept crate
//! brings RSA with RUSTSEC-2023-0071 and second versions of half a dozen crates
//! (docs/decisions/sign-in.md).
//!
//! Security: an answer counts only for the attempt, and the issuer, that it belongs to. No error holds a
//! code, a token or a secret.

use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use reqwest::Client;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use url::Url;

use super::error::InvalidTokenReason;
use super::fetch::{self, FetchError, OwnHosts};
use super::issuer::OidcIssuer;
use super::keys::{KeyError, ProviderMetadata, ServerAddress};
use super::principal::{CredentialTransport, Principal, string_claim};
use super::token::{TokenKind, UnverifiedToken};
use super::{Authenticator, Error as TokenError, argocd_token, login};
use crate::access::secret::{self, RandomError};
use crate::http_client::Authority;
use tollgate_config::{ArgocdServer, Issuer, OidcClient};
use tollgate_runtime::followed::AuthorityFile;

mod exchange;
mod logout;

pub use logout::{EndedAtIssuer, LogoutTokenError};

/// Longest `sub`, in bytes (OpenID Connect Core, section 2).
const MAX_SUBJECT_BYTES: usize = 255;

/// The name of Argo CD's accounts among the ways to sign in.
pub const ARGOCD: &str = "argocd";

/// What the gateway is at an issuer.
#[derive(Debug)]
pub(super) struct RelyingParty {
    settings: OidcClient,
    http: Client,
    own: OwnHosts,
}

/// A way to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInMethod {
    /// Its name, which is a segment of its paths.
    pub name: String,
    /// URL of the issuer; `None` for accounts of Argo CD.
    pub issuer: Option<String>,
}

/// One attempt to sign in, which the person's browser keeps until the issuer's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Returned by the issuer with its answer.
    pub state: String,
    /// Returned in the ID token.
    nonce: String,
    /// Proves to the issuer that the code came to the client that asked for it (PKCE).
    verifier: String,
    /// The way to sign in.
    method: String,
    /// Where the person wanted to go, as a path of the console.
    pub return_to: String,
}

/// An issuer's answer to an attempt: the query of the callback.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SignInAnswer {
    /// The code.
    pub code: Option<String>,
    /// [`Attempt::state`].
    pub state: Option<String>,
    /// `iss` (RFC 9207).
    pub iss: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
    /// The same, for people.
    pub error_description: Option<String>,
}

/// Somebody for whom an issuer vouches, or Argo CD.
#[derive(Debug)]
pub struct SignedIn {
    /// `iss`, or `argocd`.
    pub issuer: String,
    /// `sub`, or the account.
    pub subject: String,
    /// `sid`.
    pub sid: Option<String>,
    /// What a login keeps.
    pub claims: Map<String, Value>,
    /// When Argo CD's own token would end.
    pub latest_end: Option<Timestamp>,
    /// Whom they stand for now.
    pub principal: Arc<Principal>,
}

/// Why somebody is not signed in.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// No such way to sign in is set up.
    #[error("`{0}` is not an issuer for sign-in")]
    UnknownMethod(String),
    /// The answer belongs to no attempt of this browser.
    #[error("the answer belongs to no sign-in that this browser began, or to one that has ended")]
    NoAttempt,
    /// The answer is another issuer's.
    #[error("the answer is of another issuer than the one that was asked")]
    OtherIssuer,
    /// The issuer did not sign the person in.
    #[error("the identity provider answered `{code}`{}", .description.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Refused {
        /// `error` of its answer.
        code: String,
        /// Its text for people.
        description: Option<String>,
    },
    /// The answer has neither a code nor an error.
    #[error("the identity provider's answer has no code")]
    NoCode,
    /// The issuer cannot be reached, or says what it must not.
    #[error("the identity provider `{issuer}` cannot be used: {reason}")]
    Issuer {
        /// Its URL.
        issuer: String,
        /// What is wrong.
        reason: String,
    },
    /// The ID token is not acceptable.
    #[error("the ID token is refused")]
    Token(#[source] TokenError),
    /// The ID token is not for this attempt.
    #[error("the ID token is not for this sign-in: {0}")]
    NotForAttempt(&'static str),
    /// Argo CD refused the password.
    #[error("Argo CD does not accept this user name and password")]
    Password,
    /// There is no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl RelyingParty {
    pub(super) fn new(settings: OidcClient, issuer: &Issuer) -> Result<Self, FetchError> {
        let base = fetch::parse_url(&issuer.url)?;
        let discovery = issuer.discovery_url.as_deref().map(fetch::parse_url).transpose()?;
        let own: Vec<&Url> = [&base].into_iter().chain(&discovery).collect();
        let own = OwnHosts::of(&own);
        let authority = issuer.certificate_authority.clone().map(Authority::Pem);
        let http = fetch::client(&base, &own, authority.as_ref(), None)?;
        Ok(Self { settings, http, own })
    }

    /// Whether a token with these claims is for this client.
    fn is_audience_of(&self, claims: &Map<String, Value>) -> bool {
        match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.settings.id,
            Some(Value::Array(audiences)) => audiences.iter().any(|one| one.as_str() == Some(&self.settings.id)),
            _ => false,
        }
    }

    /// Checks that an ID token with these claims was issued to this client: the token of another
    /// client is not ours, even if its audience is accepted elsewhere.
    ///
    /// - `trusted`: audiences that the settings accept.
    fn check_party(&self, claims: &Map<String, Value>, trusted: &[String]) -> Result<(), SignInError> {
        if !self.is_audience_of(claims) {
            return Err(SignInError::NotForAttempt("`aud` is not this client"));
        }
        let is_trusted = |audience: &Value| trusted.iter().any(|one| audience.as_str() == Some(one));
        match (claims.get("azp"), claims.get("aud")) {
            (Some(party), _) if party.as_str() == Some(&self.settings.id) => Ok(()),
            (Some(_), _) => Err(SignInError::NotForAttempt("`azp` is not this client")),
            (None, Some(Value::Array(audiences))) if !audiences.iter().all(is_trusted) => Err(
                SignInError::NotForAttempt("`aud` has an audience that is not accepted, and there is no `azp`"),
            ),
            (None, _) => Ok(()),
        }
    }
}

impl Attempt {
    fn new(method: &str, return_to: String) -> Result<Self, RandomError> {
        let random = || Ok::<_, RandomError>(secret::generate_session_secret()?.expose_secret().to_owned());
        Ok(Self {
            state: random()?,
            nonce: random()?,
            verifier: random()?,
            method: method.to_owned(),
            return_to,
        })
    }
}

impl Authenticator {
    /// The ways to sign in, in the order of their names.
    pub fn sign_in_methods(&self) -> Vec<SignInMethod> {
        let issuers = self.issuers.values().filter_map(|issuer| {
            Some(SignInMethod {
                name: issuer.client.as_ref()?.settings.name.clone(),
                issuer: Some(issuer.verifier.name.clone()),
            })
        });
        let mut methods: Vec<SignInMethod> = issuers.collect();
        methods.sort_by(|one, other| one.name.cmp(&other.name));
        if self.argocd_tokens.is_some() && self.argocd_server.is_some() {
            methods.push(SignInMethod {
                name: ARGOCD.to_owned(),
                issuer: None,
            });
        }
        methods
    }

    /// Begins to sign somebody in at an issuer: where to send them, and what their browser keeps.
    ///
    /// - `callback`: URL of the console to which the issuer sends them back.
    ///
    /// # Errors
    /// [`SignInError::UnknownMethod`], [`SignInError::Issuer`].
    pub async fn begin_sign_in(
        &self,
        method: &str,
        callback: &Url,
        return_to: String,
    ) -> Result<(Url, Attempt), SignInError> {
        let (issuer, client) = self.client(method)?;
        let provider = provider(issuer).await?;
        let endpoint = provider.authorization_endpoint.as_deref();
        let mut url = endpoint_url(issuer, "authorization_endpoint", endpoint)?;
        let attempt = Attempt::new(method, return_to)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.settings.id)
            .append_pair("redirect_uri", callback.as_str())
            .append_pair("scope", &client.settings.scopes.join(" "))
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &secret::pkce_challenge(&attempt.verifier))
            .append_pair("code_challenge_method", "S256");
        Ok((url, attempt))
    }

    /// Ends an attempt with the issuer's answer.
    ///
    /// - `method`: the one whose callback was called.
    ///
    /// # Errors
    /// [`SignInError`]; nobody is signed in then.
    pub async fn complete_sign_in(
        &self,
        method: &str,
        attempt: &Attempt,
        answer: SignInAnswer,
        callback: &Url,
    ) -> Result<SignedIn, SignInError> {
        let state = answer.state.as_deref().ok_or(SignInError::NoAttempt)?;
        // SECURITY: each issuer has its own callback, so that the code of one never goes to
        // another.
        if attempt.method != method || !is_same(state, &attempt.state) {
            return Err(SignInError::NoAttempt);
        }
        let (issuer, client) = self.client(method)?;
        let provider = provider(issuer).await?;
        let is_named = match &answer.iss {
            Some(named) => *named == issuer.verifier.name,
            None => !provider.authorization_response_iss_parameter_supported,
        };
        // Before the error is looked at: it, too, counts only from this issuer (RFC 9207, section 2).
        if !is_named {
            return Err(SignInError::OtherIssuer);
        }
        if let Some(code) = answer.error {
            return Err(SignInError::Refused {
                code,
                description: answer.error_description,
            });
        }
        let code = SecretString::from(answer.code.ok_or(SignInError::NoCode)?);
        let tokens = exchange::redeem(issuer, client, &provider, &code, attempt, callback);
        let tokens = tokens.await?;
        let claims = self.verify_id_token(issuer, client, attempt, &tokens).await?;
        let identity = issuer.identity_of(claims.clone(), None).map_err(SignInError::Token)?;
        let text = |name: &str| Some(string_claim(&claims, name).to_owned()).filter(|text| !text.is_empty());
        Ok(SignedIn {
            issuer: issuer.verifier.name.clone(),
            subject: string_claim(&claims, "sub").to_owned(),
            sid: text("sid"),
            // The token says who signed in. For how long is up to the console's settings.
            latest_end: None,
            principal: Arc::new(Principal::new(identity, CredentialTransport::Cookie)),
            claims,
        })
    }

    /// Signs somebody in by an account of Argo CD, as `argocd login` does.
    ///
    /// # Errors
    /// [`SignInError::Password`], [`SignInError::Issuer`] if argocd-server does not answer.
    pub async fn sign_in_to_argocd(&self, username: &str, password: &SecretString) -> Result<SignedIn, SignInError> {
        let unknown = || SignInError::UnknownMethod(ARGOCD.to_owned());
        let verifier = self.argocd_tokens.as_ref().ok_or_else(unknown)?;
        let server = self.argocd_server.as_ref().ok_or_else(unknown)?;
        let token = exchange::argocd_session(server, username, password).await?;
        let parsed = UnverifiedToken::parse(token.expose_secret()).map_err(|error| SignInError::Token(error.into()))?;
        let identity = verifier.verify(parsed, self.clock.unix_seconds());
        let identity = identity.map_err(SignInError::Token)?;
        Ok(SignedIn {
            issuer: argocd_token::ISSUER.to_owned(),
            subject: identity.user_id.clone(),
            sid: None,
            claims: login::argocd_claims(&identity, &verifier.login_key),
            latest_end: identity.expires_at.and_then(|end| Timestamp::from_second(end).ok()),
            principal: Arc::new(Principal::new(identity, CredentialTransport::Cookie)),
        })
    }

    fn client(&self, method: &str) -> Result<(&OidcIssuer, &RelyingParty), SignInError> {
        let issuers = self.issuers.values();
        let mut clients = issuers.filter_map(|issuer| Some((issuer, issuer.client.as_ref()?)));
        let found = clients.find(|(_, client)| client.settings.name == method);
        found.ok_or_else(|| SignInError::UnknownMethod(method.to_owned()))
    }

    /// The claims of an ID token, if it is the answer to this attempt (OpenID Connect Core, section
    /// 3.1.3.7).
    async fn verify_id_token(
        &self,
        issuer: &OidcIssuer,
        client: &RelyingParty,
        attempt: &Attempt,
        tokens: &exchange::Tokens,
    ) -> Result<Map<String, Value>, SignInError> {
        let text = tokens.id_token.expose_secret();
        let token = UnverifiedToken::parse(text).map_err(|error| SignInError::Token(error.into()))?;
        if token.issuer() != issuer.verifier.name {
            return Err(SignInError::Token(InvalidTokenReason::UnknownIssuer.into()));
        }
        // SECURITY: an access token is not an ID token, regardless of its claims (RFC 9068).
        let algorithm = token.checked_algorithm(TokenKind::IdToken, &issuer.verifier.algorithms);
        let algorithm = algorithm.map_err(|reason| SignInError::Token(reason.into()))?;
        let verified = issuer.verifier.claims(token, &self.clock).await;
        let (claims, times) = verified.map_err(SignInError::Token)?;
        if times.issued_at.is_none() {
            return Err(SignInError::Token(InvalidTokenReason::missing("iat").into()));
        }
        check_subject(string_claim(&claims, "sub"))?;
        client.check_party(&claims, &issuer.verifier.audiences)?;
        if !is_same(string_claim(&claims, "nonce"), &attempt.nonce) {
            return Err(SignInError::NotForAttempt("`nonce` is another"));
        }
        // `at_hash` is optional in the code flow.
        if let (Some(hash), Some(access)) = (claims.get("at_hash"), &tokens.access_token) {
            let digest = at_hash(algorithm, access.expose_secret());
            if digest.as_deref() != hash.as_str() {
                return Err(SignInError::NotForAttempt("`at_hash` is of another access token"));
            }
        }
        Ok(claims)
    }
}

/// The left half of the hash of an access token (OpenID Connect Core, section 3.1.3.6).
fn at_hash(algorithm: jsonwebtoken::Algorithm, token: &str) -> Option<String> {
    use jsonwebtoken::Algorithm;
    let digest: Vec<u8> = match algorithm {
        Algorithm::RS256 | Algorithm::PS256 | Algorithm::ES256 => Sha256::digest(token).to_vec(),
        Algorithm::RS384 | Algorithm::PS384 | Algorithm::ES384 => Sha384::digest(token).to_vec(),
        // Ed25519 hashes with SHA-512 (RFC 8032).
        Algorithm::RS512 | Algorithm::PS512 | Algorithm::EdDSA => Sha512::digest(token).to_vec(),
        _ => return None,
    };
    Some(URL_SAFE_NO_PAD.encode(digest.get(..digest.len() / 2)?))
}

async fn provider(issuer: &OidcIssuer) -> Result<ProviderMetadata, SignInError> {
    let keys = issuer.verifier.keys.current().await;
    let keys = keys.map_err(|error: KeyError| {
        let reason = match error {
            KeyError::Unavailable => "its discovery document or keys cannot be fetched; the log says why",
            KeyError::Unknown => "it has no usable key",
        };
        SignInError::Issuer {
            issuer: issuer.verifier.name.clone(),
            reason: reason.to_owned(),
        }
    })?;
    Ok(keys.provider.clone())
}

fn endpoint_url(issuer: &OidcIssuer, name: &str, url: Option<&str>) -> Result<Url, SignInError> {
    let wrong = |reason: String| SignInError::Issuer {
        issuer: issuer.verifier.name.clone(),
        reason,
    };
    let url = url.ok_or_else(|| wrong(format!("its discovery document has no `{name}`")))?;
    fetch::parse_url(url).map_err(|error| wrong(format!("its `{name}`: {error}")))
}

/// Checks `sub` (OpenID Connect Core, section 2).
fn check_subject(subject: &str) -> Result<(), SignInError> {
    match subject.len() {
        0 => Err(SignInError::Token(InvalidTokenReason::missing("sub").into())),
        1..=MAX_SUBJECT_BYTES => Ok(()),
        _ => Err(SignInError::Token(InvalidTokenReason::SubjectLength.into())),
    }
}

/// Whether two texts are equal, in a time that reveals nothing of them.
fn is_same(one: &str, other: &str) -> bool {
    // Two empty texts prove nothing.
    !one.is_empty() && verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

#[derive(Debug)]
pub(super) struct ArgocdSignIn {
    http: Client,
    url: Url,
}

impl ArgocdSignIn {
    /// # Errors
    /// The file `argocd.ca` cannot be used; the argocd front reports it as well.
    pub(super) fn new(settings: &ArgocdServer) -> Result<Self, FetchError> {
        let open = |path: &PathBuf| {
            let file = AuthorityFile::open("argocd.ca", path);
            file.map(Authority::File)
                .map_err(|reason| FetchError::Authority { reason })
        };
        let authority = settings.ca.as_ref().map(open).transpose()?;
        let via = ServerAddress {
            url: settings.server.clone(),
            server_name: settings.server_name.clone(),
        };
        let mut url = settings.server.clone();
        if let Some(name) = &settings.server_name {
            let wrong = || FetchError::Url { url: name.clone() };
            // TLS takes the name to verify from the URL; `via` says where to connect.
            url.set_host(Some(name)).map_err(|_| wrong())?;
        }
        let root = settings.root_path.as_deref().unwrap_or_default();
        url.set_path(&format!("{root}/api/v1/session"));
        Ok(Self {
            http: fetch::client(
                &settings.server,
                &OwnHosts::of(&[&settings.server]),
                authority.as_ref(),
                Some(&via),
            )?,
            url,
        })
    }
}
