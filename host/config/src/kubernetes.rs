//! Settings of the Kubernetes front and of the store.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::Issuer;

/// Settings of `/k8s-proxy/`.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// Who says whether a person may use an agent.
    pub authorizer: Authorizer,
    /// File of the secret other gateways sign their questions with; this one
    /// answers none without.
    pub platform_secret: Option<PathBuf>,
    /// Browser origins that may call, compared byte by byte.
    pub allowed_origins: Vec<String>,
    /// Claim of ID tokens that has the one agent's number.
    pub agent_claim: String,
    /// Issuers of ID tokens.
    pub issuers: Vec<PersonIssuer>,
    /// Who is meant in the directory by tokens of each issuer, Argo CD's own
    /// (`argocd`) among them.
    pub users: Vec<UserLink>,
    /// Where clients reach the front, with a slash at the end; for kubeconfigs.
    pub public_url: Option<Url>,
    /// Life of browser sessions.
    pub cookie_lifetime: Duration,
    /// `SameSite` of the cookie.
    pub same_site: SameSite,
    /// How long access is remembered.
    pub success_ttl: Duration,
    /// How long a refusal is remembered.
    pub refusal_ttl: Duration,
    /// Longest life of a personal access token.
    pub longest_token: Duration,
    /// Groups one request may impersonate.
    pub max_groups: usize,
    /// Time reads of one kind are counted together.
    pub audit_bucket: Duration,
    /// How long audit events are kept.
    pub audit_keep: Duration,
}

/// Who says whether a person may use an agent.
#[derive(Clone, Debug)]
pub enum Authorizer {
    /// The gateway itself, from its user directory and store.
    Embedded,
    /// A GitLab or Plural, or another Tollgate.
    Remote {
        /// Its base; `/api/v4/…` follows.
        url: Url,
        /// File of the shared secret.
        secret: PathBuf,
        /// PEM of its authorities; the system's roots when absent.
        certificate_authority: Option<String>,
        /// How long what was begun by an answer of it may last, a minute to an
        /// hour: it does not tell of credentials that end.
        stream_lifetime: Duration,
    },
}

/// An issuer of ID tokens for the Kubernetes front.
#[derive(Clone, Debug)]
pub struct PersonIssuer {
    /// As for the other fronts.
    pub issuer: Issuer,
    /// Whether it has `claimMappings`, for agents with `access_as: mapped`.
    pub is_mapped: bool,
}

/// Who in the directory is meant by an issuer's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLink {
    /// `iss`; `argocd` for local accounts.
    pub issuer: String,
    /// The claim that says it; for `argocd`, the account's name.
    pub claim: String,
    /// What that claim is in the directory.
    pub key: PersonKey,
}

/// What a person of the directory is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonKey {
    /// The number.
    Id,
    /// The name.
    Username,
}

/// `SameSite` of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Sent to the own site only.
    Strict,
    /// Also when a link leads here.
    Lax,
    /// Sent always; needs TLS.
    None,
}

/// The store, and how long it may be silent.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where it is.
    pub url: StoreUrl,
    /// How long the gateway goes on when it does not answer: 2 s to 5 min.
    pub grace_period: Duration,
}

/// Where the store is. A PostgreSQL URL can hold a password.
#[derive(Clone, Debug)]
pub enum StoreUrl {
    /// As the settings have it.
    Text(SecretString),
    /// In a file, on its first line.
    File(PathBuf),
}
