//! The sections `kubernetes` and `store` of the settings file: their written shape, and the checks
//! that turn them into [`Kubernetes`] and the store's settings. Every mistake, unknown keys
//! included, is reported with its key.
//!
//! Security: no secret is sent over plain HTTP except on loopback.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use strum::VariantArray;
use url::Url;

use super::SettingsValidator;
use super::authentication::{RawIssuerEntry, check_origins, has_user, is_protected, issuers, without_user};
use crate::kubernetes::subject;
use crate::{
    AuditExport, Authorizer, GroupMembership, Issuer, Kubernetes, KubernetesIssuer, NamespaceKind, SameSite,
    StoreConfig, StoreUrl, UserClaimMapping, UserLookupKey, duration,
};
use tollgate_core::claims::EMAIL;
use tollgate_core::user::Role;

/// The claim GitLab and Plural put the agent's number in.
const AGENT_CLAIM: &str = "https://gitlab.org/claims/clusters/agents/k8s-proxy";
/// In seconds.
const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawKubernetes {
    /// Who decides whether a person may use an agent.
    #[schemars(extend("default" = "embedded"))]
    authorizer: RawAuthorizer,
    /// File with the shared secret, in base64, for other gateways that use this one as their remote
    /// authorizer. Without it, they get 404. Not with a remote authorizer.
    platform_secret_file: Option<PathBuf>,
    /// Origins of pages that may call the front with its cookie, compared byte by byte; other origins get
    /// 403. Each is `https://host[:port]`, or `http` for loopback. A request whose only credential is a token
    /// is served regardless of its origin, without `Access-Control-…` fields if the origin is not listed.
    allowed_origins: Vec<String>,
    /// Claim of ID tokens with the number of the one agent that the token is for.
    #[schemars(extend("default" = "https://gitlab.org/claims/clusters/agents/k8s-proxy"))]
    agent_claim: Option<String>,
    /// Issuers of ID tokens for this front only, at most 64. An entry has the keys of `authentication.jwt`,
    /// except `client`. `claimMappings` is optional, but agents with `access_as: mapped` need it.
    jwt: Vec<RawIssuerEntry>,
    /// How tokens map to people in the user directory, by issuer. Issuers of `kubernetes.jwt` without an
    /// entry map `sub` to the `id`.
    users: Vec<UserClaimMapping>,
    /// Roles that people have by the groups in their tokens, in addition to the user directory. See
    /// docs/sign-in.md#roles-from-groups.
    memberships: Vec<RawMembership>,
    /// Public URL of the front, for `tollgate kubeconfig`. Must end with `/k8s-proxy/`. Defaults to the
    /// address that the request used.
    #[serde(rename = "publicURL")]
    public_url: Option<String>,
    /// The cookie of browser sessions.
    cookie: RawCookie,
    /// How long decisions about people are cached.
    cache: RawCache,
    /// Longest lifetime of a personal access token. `1m` to `365d`.
    #[schemars(extend("default" = "365d"))]
    longest_token: Option<String>,
    /// Most groups that one request may impersonate. An identity with more is refused, because the cluster
    /// checks each of them. 1 to 2000.
    #[schemars(extend("default" = 200))]
    max_groups: Option<usize>,
    /// The audit log. See docs/audit.md.
    audit: RawAudit,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum RawAuthorizer {
    /// The gateway itself, by its user directory and store.
    #[default]
    Embedded,
    /// A GitLab, a Plural or another Tollgate. CI job tokens need one. See
    /// docs/configuration.md#a-remote-authorizer.
    #[serde(rename_all = "camelCase")]
    Remote {
        /// Base URL; `/api/v4/internal/kubernetes/…` is appended. Must be `https` (`http` for loopback), without
        /// user, query or fragment.
        url: String,
        /// File with the shared secret, in base64, that signs the gateway's requests.
        secret_file: PathBuf,
        /// PEM text of the only certificate authorities trusted for it. Defaults to the system's.
        certificate_authority: Option<String>,
        /// Longest lifetime of a watch, log or tunnel that it permits: it reports neither the expiry nor the
        /// revocation of a credential. Its decisions are cached for at most half of this time. `1m` to `1h`.
        #[schemars(extend("default" = "10m"))]
        stream_lifetime: Option<String>,
    },
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawMembership {
    /// `iss` of the tokens to which the entry applies.
    issuer: String,
    /// The group, as `claimMappings.groups` returns it. Must not be empty.
    oidc_group: String,
    /// Path of the project in which members have the role. Exactly one of `project` and `group` is required.
    project: Option<String>,
    /// Path of the group in which members have the role.
    group: Option<String>,
    /// Number of that project or group, for names such as `gitlab:project_role:7:developer`; at least 1.
    /// Defaults to the number in the user directory.
    id: Option<i64>,
    /// The role.
    #[schemars(schema_with = "role_names")]
    role: Role,
}

fn role_names(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"enum": Role::VARIANTS.iter().map(AsRef::as_ref).collect::<Vec<&str>>()})
}

impl RawMembership {
    fn check(self, key: &str, validator: &mut SettingsValidator<'_>) -> Option<GroupMembership> {
        let (kind, path) = match (self.project, self.group) {
            (Some(path), None) => (NamespaceKind::Project, path),
            (None, Some(path)) => (NamespaceKind::Group, path),
            (Some(_), Some(_)) | (None, None) => {
                validator.error_in(
                    key,
                    "needs either `project` or `group`, the path that `user_access` lists",
                );
                return None;
            }
        };
        if self.oidc_group.is_empty() || path.is_empty() || self.id.is_some_and(|id| id < 1) {
            validator.error_in(key, "has an empty `oidcGroup` or path, or an `id` below 1");
            return None;
        }
        Some(GroupMembership {
            issuer: self.issuer,
            oidc_group: self.oidc_group,
            kind,
            // GitLab compares paths in lower case, and so the user directory has them.
            path: path.to_lowercase(),
            id: self.id,
            role: self.role,
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCookie {
    /// Lifetime of a browser session. `1m` to `30d`.
    #[schemars(extend("default" = "24h"))]
    lifetime: Option<String>,
    /// `SameSite` of the cookie.
    #[schemars(extend("default" = "strict"))]
    same_site: Option<SameSite>,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCache {
    /// Time for which a decision that permits access is cached. Revocations and changes of the state take
    /// effect at once nevertheless. `1s` to `5m`.
    #[schemars(extend("default" = "60s"))]
    success: Option<String>,
    /// Time for which a refusal is cached. `1s` to `1m`.
    #[schemars(extend("default" = "10s"))]
    refusal: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAudit {
    /// Time over which reads of one kind are counted in one event. `1s` to `1h`.
    #[schemars(extend("default" = "60s"))]
    bucket: Option<String>,
    /// Time for which audit events are kept. `1d` to `3650d`.
    #[schemars(extend("default" = "90d"))]
    keep: Option<String>,
    /// The receiver of audit events, as lines of OCSF. Without it, events stay in the store. See
    /// docs/audit.md#export.
    export: Option<RawAuditExport>,
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum RawAuditExport {
    /// File to which events are appended.
    File(PathBuf),
    /// HTTP receiver that gets events by POST.
    #[serde(rename_all = "camelCase")]
    Webhook {
        /// URL of the receiver. Must be `https` (`http` for loopback), without user and fragment.
        // It may have a secret in its path.
        #[schemars(with = "String")]
        url: SecretString,
        /// File with a bearer token, read for each request.
        token_file: Option<PathBuf>,
        /// PEM file with the only certificate authorities trusted for the receiver. Needs `https`. Defaults to the
        /// system's. Read again when it changes.
        ca: Option<PathBuf>,
    },
}

impl RawAuditExport {
    fn check(self, validator: &mut SettingsValidator<'_>) -> Option<AuditExport> {
        let (text, token_file, ca) = match self {
            Self::File(path) => return Some(AuditExport::File(validator.base.join(path))),
            Self::Webhook { url, token_file, ca } => (url, token_file, ca),
        };
        let url = Url::parse(text.expose_secret()).ok();
        let url = url.filter(|url| is_protected(url) && !has_user(url) && url.fragment().is_none());
        let Some(url) = url else {
            // SECURITY: the text is not repeated, because the path of the URL may have a secret.
            let message = "`kubernetes.audit.export.webhook.url` is not an https URL without user and fragment (http only for loopback)";
            let hint = "such as `https://siem.example.com/ocsf`; a user and password belong into `tokenFile`";
            validator.refuse("kubernetes.audit.export.webhook.url", message, hint);
            return None;
        };
        if url.scheme() == "http" && ca.is_some() {
            validator.error(
                "kubernetes.audit.export.webhook.ca",
                "has no effect, because the URL is not https",
            );
        }
        Some(AuditExport::Webhook {
            url,
            token: token_file.map(|file| validator.base.join(file)),
            ca: ca.map(|file| validator.base.join(file)),
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawStore {
    /// `sqlite:` followed by a path, or `postgres://user:password@host/database` for several replicas. Not
    /// together with `urlFile`. Defaults to `sqlite:tollgate.db`, beside the settings file.
    #[schemars(with = "Option<String>")]
    url: Option<SecretString>,
    /// File with the URL on its first line.
    url_file: Option<PathBuf>,
    /// Time for which a replica keeps serving while the store does not respond. Afterwards it ends all
    /// streams and requests of people, refuses new ones with 503 or 500, and fails `/readyz` until the store
    /// responds. A replica that cannot reach the store learns of a revocation after this time at the latest.
    /// `2s` to `5m`.
    #[schemars(extend("default" = "10s"))]
    grace_period: Option<String>,
}

impl RawStore {
    /// The store is `tollgate.db` beside the settings by default.
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> StoreConfig {
        let grace_period = bounded_duration("store.gracePeriod", self.grace_period, 10, 2..=300, validator);
        let url = store_url(self.url, self.url_file, validator.base).unwrap_or_else(|message| {
            validator.error("store", message);
            StoreUrl::Text(SecretString::from(""))
        });
        StoreConfig { url, grace_period }
    }
}

fn store_url(url: Option<SecretString>, file: Option<PathBuf>, base: &Path) -> Result<StoreUrl, &'static str> {
    let sqlite = |path: &str| StoreUrl::Text(format!("sqlite:{}", base.join(path).display()).into());
    match (url, file) {
        (Some(_), Some(_)) => Err("has both `url` and `urlFile`"),
        (None, Some(file)) => Ok(StoreUrl::File(base.join(file))),
        (None, None) => Ok(sqlite("tollgate.db")),
        (Some(url), None) => match url.expose_secret().split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() && !path.starts_with("//") => Ok(sqlite(path)),
            Some(("postgres" | "postgresql", _)) => Ok(StoreUrl::Text(url)),
            Some(_) | None => Err("`url` is neither `sqlite:PATH` nor `postgres://…`"),
        },
    }
}

impl RawKubernetes {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> Kubernetes {
        check_origins("kubernetes.allowedOrigins", &self.allowed_origins, validator);
        let issuers = kubernetes_issuers(self.jwt, validator);
        let mut users = self.users;
        for (index, link) in users.iter().enumerate().filter(|(_, link)| link.claim == EMAIL) {
            let (claim, key) = (&link.claim, format!("kubernetes.users[{index}].claim"));
            let why = "addresses change hands, and tokens without `email_verified` are taken at their word";
            validator.warning_in(&key, format_args!("`{claim}`: {why}; `sub` is safer"));
        }
        for KubernetesIssuer { issuer, .. } in &issuers {
            if !users.iter().any(|link| link.issuer == issuer.url) {
                users.push(UserClaimMapping {
                    issuer: issuer.url.clone(),
                    claim: subject(),
                    key: UserLookupKey::Id,
                });
            }
        }
        let authorizer = self.authorizer.check(validator);
        let memberships = self.memberships.into_iter().enumerate();
        let memberships = memberships
            .filter_map(|(index, raw)| raw.check(&format!("kubernetes.memberships[{index}]"), validator))
            .collect();
        let public_url = self.public_url.and_then(|text| public_url(&text, validator));
        let max_groups = validator.bounded("kubernetes.maxGroups", self.max_groups, 200, 1..=2_000);
        let platform_secret = self.platform_secret_file.map(|file| validator.base.join(file));
        let audit_export = self.audit.export.and_then(|export| export.check(validator));
        let mut duration = |key: &str, text, default, bounds| {
            bounded_duration(&format!("kubernetes.{key}"), text, default, bounds, validator)
        };
        Kubernetes {
            authorizer,
            platform_secret,
            allowed_origins: self.allowed_origins,
            agent_claim: self.agent_claim.unwrap_or_else(|| AGENT_CLAIM.to_owned()),
            issuers,
            users,
            memberships,
            public_url,
            cookie_lifetime: duration("cookie.lifetime", self.cookie.lifetime, DAY, 60..=30 * DAY),
            same_site: self.cookie.same_site.unwrap_or_default(),
            success_ttl: duration("cache.success", self.cache.success, 60, 1..=300),
            refusal_ttl: duration("cache.refusal", self.cache.refusal, 10, 1..=60),
            longest_token: duration("longestToken", self.longest_token, YEAR, 60..=YEAR),
            max_groups,
            audit_bucket: duration("audit.bucket", self.audit.bucket, 60, 1..=3600),
            audit_keep: duration("audit.keep", self.audit.keep, 90 * DAY, DAY..=10 * YEAR),
            audit_export,
        }
    }
}

impl RawAuthorizer {
    fn check(self, validator: &mut SettingsValidator<'_>) -> Authorizer {
        let Self::Remote {
            url,
            secret_file,
            certificate_authority,
            stream_lifetime,
        } = self
        else {
            return Authorizer::Embedded;
        };
        let parsed = Url::parse(&url)
            .ok()
            .filter(|url| is_protected(url) && url.query().is_none() && url.fragment().is_none() && !has_user(url));
        let Some(url) = parsed else {
            let message = format!(
                "`{}` is not an https URL without user, query and fragment",
                without_user(&url)
            );
            validator.error_in("kubernetes.authorizer.remote.url", message);
            // Only a stand-in: the error refuses all settings.
            return Authorizer::Embedded;
        };
        let key = "kubernetes.authorizer.remote.streamLifetime";
        let stream_lifetime = bounded_duration(key, stream_lifetime, 600, 60..=3600, validator);
        Authorizer::Remote {
            url,
            secret: validator.base.join(secret_file),
            certificate_authority,
            stream_lifetime,
        }
    }
}

fn kubernetes_issuers(jwt: Vec<RawIssuerEntry>, validator: &mut SettingsValidator<'_>) -> Vec<KubernetesIssuer> {
    let checked = issuers("kubernetes", jwt, validator);
    for (index, (issuer, _)) in checked.iter().enumerate() {
        if issuer.as_ref().is_some_and(|issuer| issuer.client.is_some()) {
            let key = format!("kubernetes.jwt[{index}].client");
            validator.error_in(&key, "people sign in at issuers of `authentication.jwt`; move it there");
        }
    }
    let checked = checked.into_iter();
    let mapped =
        |(issuer, is_mapped): (Option<Issuer>, bool)| issuer.map(|issuer| KubernetesIssuer { issuer, is_mapped });
    checked.filter_map(mapped).collect()
}

fn public_url(text: &str, validator: &mut SettingsValidator<'_>) -> Option<Url> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "https" | "http") && url.path().ends_with("/k8s-proxy/") && url.query().is_none()
    });
    if url.is_none() {
        let message = format!("`{text}` is not a URL that ends with `/k8s-proxy/`");
        validator.error_in("kubernetes.publicURL", message);
    }
    url
}

/// A duration; default and bounds are in seconds.
pub(super) fn bounded_duration(
    key: &str,
    text: Option<String>,
    default: u64,
    bounds: RangeInclusive<u64>,
    validator: &mut SettingsValidator<'_>,
) -> Duration {
    let default = Duration::from_secs(default);
    let (least, most) = bounds.into_inner();
    let bounds = Duration::from_secs(least)..=Duration::from_secs(most);
    text.map_or(default, |text| {
        let found = duration::parse_with_days(&text)
            .ok()
            .filter(|found| bounds.contains(found));
        found.unwrap_or_else(|| {
            let (least, most) = (duration::in_largest_unit(least), duration::in_largest_unit(most));
            validator.error_in(key, format_args!("`{text}` is not a duration of {least} to {most}"));
            default
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;

    #[test]
    fn audit_events_are_exported_to_one_receiver() {
        const URL: &str = "t.yaml:5:29: error: `kubernetes.audit.export.webhook.url` is not an https URL without user and \
                           fragment (http only for loopback) \
                           (such as `https://siem.example.com/ocsf`; a user and password belong into `tokenFile`)";
        for (export, expected) in [
            ("{file: audit.ocsf}", Ok("File(/etc/audit.ocsf)")),
            (
                "{webhook: {url: 'https://s.example/a?key=hidden'}}",
                Ok("Webhook(https://s.example)"),
            ),
            (
                "{webhook: {url: 'http://127.0.0.1:8088/', tokenFile: token}}",
                Ok("Webhook(http://127.0.0.1:8088)"),
            ),
            ("{webhook: {url: 'http://s.example/'}}", Err(URL)),
            ("{webhook: {url: 'https://user:hidden@s.example/'}}", Err(URL)),
            ("{webhook: {url: hidden}}", Err(URL)),
            (
                "{webhook: {url: 'http://[::1]/', ca: ca.pem}}",
                Err(
                    "t.yaml:5:50: error: `kubernetes.audit.export.webhook.ca` has no effect, because the URL is not https",
                ),
            ),
        ] {
            let text = format!(
                "state: {{directory: s}}\npolicies: {{directory: p}}\nkubernetes:\n  audit:\n    export: {export}\n"
            );
            let loaded = parse(&text, "t.yaml", Path::new("/etc"));
            let errors: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
            match expected {
                Ok(expected) => {
                    let settings = loaded.value.unwrap().kubernetes.unwrap();
                    assert_eq!(format!("{:?}", settings.audit_export.unwrap()), expected);
                }
                Err(expected) => assert_eq!(errors, [expected], "{export}"),
            }
        }
    }

    /// A URL with a user or a password is refused, and no finding shows them.
    #[test]
    fn no_url_has_a_user_and_none_is_shown() {
        for (section, scheme) in [
            ("argocd: {server: 'URL'}", "https"),
            ("argocd: {redis: {server: 'URL'}}", "rediss"),
            (
                "authentication: {jwt: [{issuer: {url: 'URL', audiences: [a]}}]}",
                "https",
            ),
            ("console: {url: 'URL'}", "https"),
            (
                "kubernetes: {authorizer: {remote: {url: 'URL', secretFile: s}}}",
                "https",
            ),
            ("kubernetes: {audit: {export: {webhook: {url: 'URL'}}}}", "https"),
            ("kubernetes: {jwt: [{issuer: {url: 'URL', audiences: [a]}}]}", "https"),
            ("telemetry: {endpoint: 'URL'}", "https"),
        ] {
            for url in [
                "://anna:hidden@h.example/",
                "://:hidden@h.example/",
                "://anna@h.example/",
                ":anna:hidden@h",
            ] {
                let section = section.replace("URL", &format!("{scheme}{url}"));
                let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\n{section}\n");
                let loaded = parse(&text, "t.yaml", Path::new("/etc"));
                let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
                let is_named = found.iter().any(|text| text.starts_with("t.yaml:3:"));
                assert!(is_named, "{section}: {found:?}");
                let shown = found
                    .iter()
                    .any(|text| text.contains("anna") || text.contains("hidden"));
                assert!(!shown, "{section}: {found:?}");
                assert!(loaded.value.is_none(), "{section}");
            }
        }
    }
}
