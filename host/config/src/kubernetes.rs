//! Settings of the Kubernetes front and of the store.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::Issuer;
use tollgate_core::user::Role;

/// Settings of `/k8s-proxy/`.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// Who decides whether a person may use an agent.
    pub authorizer: Authorizer,
    /// File of the secret with which other gateways sign authorization requests. Without it, this
    /// gateway answers none.
    pub platform_secret: Option<PathBuf>,
    /// Browser origins that may send requests, compared byte by byte.
    pub allowed_origins: Vec<String>,
    /// Claim of ID tokens that contains the number of the one agent they are for.
    pub agent_claim: String,
    /// Issuers of ID tokens.
    pub issuers: Vec<KubernetesIssuer>,
    /// How tokens of each issuer map to people in the directory. Argo CD's own issuer (`argocd`) is
    /// among them.
    pub users: Vec<UserClaimMapping>,
    /// Roles that people have by their groups at an issuer, besides those of the directory.
    pub memberships: Vec<GroupMembership>,
    /// URL under which clients reach the front, with a trailing slash; for kubeconfigs.
    pub public_url: Option<Url>,
    /// Lifetime of browser sessions.
    pub cookie_lifetime: Duration,
    /// `SameSite` of the cookie.
    pub same_site: SameSite,
    /// How long granted access is cached.
    pub success_ttl: Duration,
    /// How long a refusal is cached.
    pub refusal_ttl: Duration,
    /// Longest lifetime of a personal access token.
    pub longest_token: Duration,
    /// Most groups that one request may impersonate.
    pub max_groups: usize,
    /// Period in which reads of one kind are counted together.
    pub audit_bucket: Duration,
    /// How long audit events are kept.
    pub audit_keep: Duration,
    /// Where audit events are exported to, if anywhere.
    pub audit_export: Option<AuditExport>,
}

/// What receives audit events, as lines of JSON.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
pub enum AuditExport {
    /// A file that lines are appended to.
    #[debug("File({})", _0.display())]
    File(PathBuf),
    /// A server that takes lines by POST.
    // SECURITY: without the URL's path and query.
    #[debug("Webhook({})", url.origin().ascii_serialization())]
    Webhook {
        /// Its URL; a secret may be part of it.
        url: Url,
        /// File of a bearer token.
        token: Option<PathBuf>,
        /// PEM file with the only authorities trusted for it; the system's when absent.
        ca: Option<PathBuf>,
    },
}

/// Who decides whether a person may use an agent.
#[derive(Clone, Debug)]
pub enum Authorizer {
    /// The gateway itself, with its user directory and store.
    Embedded,
    /// A GitLab, a Plural, or another Tollgate.
    Remote {
        /// Its base URL; `/api/v4/…` is appended.
        url: Url,
        /// File of the shared secret.
        secret: PathBuf,
        /// PEM of its authorities; the system's roots when absent.
        certificate_authority: Option<String>,
        /// Longest time that a stream based on one of its answers may last, 1 min to 1 h: it does
        /// not tell when credentials end.
        stream_lifetime: Duration,
    },
}

/// An issuer of ID tokens for the Kubernetes front.
#[derive(Clone, Debug)]
pub struct KubernetesIssuer {
    /// The issuer's settings, as for the other fronts.
    pub issuer: Issuer,
    /// Whether it has `claimMappings`, which agents with `access_as: mapped` need.
    pub is_mapped: bool,
}

/// How tokens of one issuer map to people in the directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserClaimMapping {
    /// `iss` of the tokens to which the entry applies; `argocd` for accounts of Argo CD.
    pub issuer: String,
    /// Claim that identifies the person in the user directory; for `argocd`, the name of the account. `email`
    /// causes a warning, and matches nobody if the token has an `email_verified` other than `true`.
    #[serde(default = "subject")]
    pub claim: String,
    /// Which field of the user directory the claim is compared with.
    #[serde(rename = "is")]
    pub key: UserLookupKey,
}

/// A role in a project or group that members of an issuer's group have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMembership {
    /// `iss` of their tokens.
    pub issuer: String,
    /// The group, as `claimMappings.groups` gives it.
    pub oidc_group: String,
    /// Whether the role is in a project or in a group.
    pub kind: NamespaceKind,
    /// Path of the project or group, in lower case.
    pub path: String,
    /// Its number, which names in clusters contain; `None` if the directory has it.
    pub id: Option<i64>,
    /// The role there.
    pub role: Role,
}

/// What a path of `user_access` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceKind {
    /// A project.
    Project,
    /// A group.
    Group,
}

/// The claim that identifies a person unless the settings name another one.
pub(crate) fn subject() -> String {
    "sub".to_owned()
}

/// The field by which a person is found in the user directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UserLookupKey {
    /// The number.
    Id,
    /// The name.
    Username,
}

/// `SameSite` of a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SameSite {
    /// Sent only with requests from the same site.
    #[default]
    Strict,
    /// Also sent when a person follows a link to the site.
    Lax,
    /// Always sent; needs TLS.
    None,
}

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Where it is.
    pub url: StoreUrl,
    /// How long the gateway keeps working while the store does not answer: 2 s to 5 min.
    pub grace_period: Duration,
}

/// Where the store is. A PostgreSQL URL can hold a password.
#[derive(Clone, Debug)]
pub enum StoreUrl {
    /// In the settings themselves.
    Text(SecretString),
    /// In a file, on its first line.
    File(PathBuf),
}
