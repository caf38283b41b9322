//! The sections `kubernetes` and `store` of the settings file: their written shape, and the checks
//! that turn them into [`Kubernetes`] and the store's settings. Every mistake, unknown keys
//! included, is reported with its key.
//!
//! Security: no secret is sent over plain HTTP except on loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::authentication::{Mappings, RawIssuerEntry, SectionFindings, is_origin, issuers};
use crate::{
    Authorizer, Kubernetes, KubernetesIssuer, SameSite, StoreUrl, UserClaimMapping, UserLookupKey, duration,
    is_loopback,
};
use tollgate_core::claims::EMAIL;
use tollgate_core::diagnostic::Loaded;

/// The claim GitLab and Plural put the agent's number in.
const AGENT_CLAIM: &str = "https://gitlab.org/claims/clusters/agents/k8s-proxy";
/// A day, in seconds.
const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

/// `kubernetes`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawKubernetes {
    #[serde(default)]
    authorizer: RawAuthorizer,
    platform_secret_file: Option<PathBuf>,
    #[serde(default)]
    allowed_origins: Vec<String>,
    agent_claim: Option<String>,
    #[serde(default)]
    jwt: Vec<RawIssuerEntry>,
    #[serde(default)]
    users: Vec<RawUserClaimMapping>,
    #[serde(rename = "publicURL")]
    public_url: Option<String>,
    #[serde(default)]
    cookie: RawCookie,
    #[serde(default)]
    cache: RawCache,
    longest_token: Option<String>,
    max_groups: Option<usize>,
    #[serde(default)]
    audit: RawAudit,
}

/// `embedded`, or `remote` with its address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum RawAuthorizer {
    #[default]
    Embedded,
    #[serde(rename_all = "camelCase")]
    Remote {
        url: String,
        secret_file: PathBuf,
        certificate_authority: Option<String>,
        stream_lifetime: Option<String>,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawUserClaimMapping {
    issuer: String,
    #[serde(default = "subject")]
    claim: String,
    is: RawUserLookupKey,
}

fn subject() -> String {
    "sub".to_owned()
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RawUserLookupKey {
    Id,
    Username,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCookie {
    lifetime: Option<String>,
    same_site: Option<RawSameSite>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RawSameSite {
    Strict,
    Lax,
    None,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCache {
    success: Option<String>,
    refusal: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAudit {
    bucket: Option<String>,
    keep: Option<String>,
}

/// `store`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawStore {
    url: Option<SecretString>,
    url_file: Option<PathBuf>,
    grace_period: Option<String>,
}

/// Default of `store.gracePeriod`.
pub(super) const GRACE_PERIOD: Duration = Duration::from_secs(10);

impl RawStore {
    /// How long the gateway keeps working while the store does not answer.
    ///
    /// # Errors
    /// The text is not a duration, or it is out of bounds.
    pub(super) fn grace_period(&self) -> Result<Duration, String> {
        let Some(text) = &self.grace_period else {
            return Ok(GRACE_PERIOD);
        };
        let bounds = Duration::from_secs(2)..=Duration::from_mins(5);
        let found = duration::parse(text).ok().filter(|found| bounds.contains(found));
        found.ok_or_else(|| format!("`{text}` is not a duration of `2s` to `5m`"))
    }

    /// Where the store is: `tollgate.db` beside the settings by default.
    ///
    /// # Errors
    /// Both keys are set, or the URL is of another kind.
    pub(super) fn check(self, base: &Path) -> Result<StoreUrl, String> {
        use secrecy::ExposeSecret as _;

        match (self.url, self.url_file) {
            (Some(_), Some(_)) => Err("has both `url` and `urlFile`".to_owned()),
            (None, Some(file)) => Ok(StoreUrl::File(base.join(file))),
            (None, None) => Ok(sqlite(&base.join("tollgate.db"))),
            (Some(url), None) => match url.expose_secret().split_once(':') {
                Some(("sqlite", path)) if !path.is_empty() && !path.starts_with("//") => Ok(sqlite(&base.join(path))),
                Some(("postgres" | "postgresql", _)) => Ok(StoreUrl::Text(url)),
                Some(_) | None => Err("`url` is neither `sqlite:PATH` nor `postgres://…`".to_owned()),
            },
        }
    }
}

fn sqlite(path: &Path) -> StoreUrl {
    StoreUrl::Text(SecretString::from(format!("sqlite:{}", path.display())))
}

impl RawKubernetes {
    /// Checks every key; `base` is where relative paths start.
    pub(super) fn check(self, base: &Path) -> Loaded<Kubernetes> {
        let mut findings = SectionFindings::new("kubernetes");
        let found = &mut findings;
        for (index, origin) in self.allowed_origins.iter().enumerate() {
            if !is_origin(origin) {
                let expected = "is not `https://host[:port]`, or http with a loopback host";
                found.error(&format!("allowedOrigins[{index}]"), format!("`{origin}` {expected}"));
            }
        }
        let issuers = kubernetes_issuers(self.jwt, found);
        let users = self.users.into_iter().enumerate();
        let mut users: Vec<UserClaimMapping> = users.map(|(index, link)| link.check(index, found)).collect();
        for issuer in &issuers {
            let url = &issuer.issuer.url;
            if !users.iter().any(|link| link.issuer == *url) {
                users.push(UserClaimMapping {
                    issuer: url.clone(),
                    claim: subject(),
                    key: UserLookupKey::Id,
                });
            }
        }
        let kubernetes = Kubernetes {
            authorizer: self.authorizer.check(base, found),
            platform_secret: self.platform_secret_file.map(|file| base.join(file)),
            allowed_origins: self.allowed_origins,
            agent_claim: self.agent_claim.unwrap_or_else(|| AGENT_CLAIM.to_owned()),
            issuers,
            users,
            public_url: self.public_url.and_then(|text| public_url(&text, found)),
            cookie_lifetime: bounded_duration("cookie.lifetime", self.cookie.lifetime, (DAY, 60, 30 * DAY), found),
            same_site: match self.cookie.same_site {
                None | Some(RawSameSite::Strict) => SameSite::Strict,
                Some(RawSameSite::Lax) => SameSite::Lax,
                Some(RawSameSite::None) => SameSite::None,
            },
            success_ttl: bounded_duration("cache.success", self.cache.success, (60, 1, 300), found),
            refusal_ttl: bounded_duration("cache.refusal", self.cache.refusal, (10, 1, 60), found),
            longest_token: bounded_duration("longestToken", self.longest_token, (YEAR, 60, YEAR), found),
            max_groups: groups(self.max_groups, found),
            audit_bucket: bounded_duration("audit.bucket", self.audit.bucket, (60, 1, 3600), found),
            audit_keep: bounded_duration("audit.keep", self.audit.keep, (90 * DAY, DAY, 10 * YEAR), found),
        };
        Loaded::new(kubernetes, findings.found)
    }
}

impl RawUserClaimMapping {
    fn check(self, index: usize, findings: &mut SectionFindings) -> UserClaimMapping {
        if self.claim == EMAIL {
            let why = "addresses change hands, and tokens without `email_verified` are taken at their word";
            findings.warning(
                &format!("users[{index}].claim"),
                format!("`{EMAIL}`: {why}; `sub` is safer"),
            );
        }
        UserClaimMapping {
            issuer: self.issuer,
            claim: self.claim,
            key: match self.is {
                RawUserLookupKey::Id => UserLookupKey::Id,
                RawUserLookupKey::Username => UserLookupKey::Username,
            },
        }
    }
}

impl RawAuthorizer {
    fn check(self, base: &Path, findings: &mut SectionFindings) -> Authorizer {
        let Self::Remote {
            url,
            secret_file,
            certificate_authority,
            stream_lifetime,
        } = self
        else {
            return Authorizer::Embedded;
        };
        let parsed = Url::parse(&url).ok().filter(|url| {
            let secure = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url));
            secure && url.query().is_none() && url.fragment().is_none() && url.username().is_empty()
        });
        let Some(url) = parsed else {
            let expected = "is not an https URL without user, query and fragment";
            findings.error("authorizer.remote.url", format!("`{url}` {expected}"));
            return Authorizer::Embedded;
        };
        Authorizer::Remote {
            url,
            secret: base.join(secret_file),
            certificate_authority,
            stream_lifetime: bounded_duration(
                "authorizer.remote.streamLifetime",
                stream_lifetime,
                (600, 60, 3600),
                findings,
            ),
        }
    }
}

fn kubernetes_issuers(jwt: Vec<RawIssuerEntry>, findings: &mut SectionFindings) -> Vec<KubernetesIssuer> {
    let checked = issuers(jwt, findings).into_iter();
    let kubernetes_issuers = checked.filter_map(|(issuer, mappings)| {
        Some(KubernetesIssuer {
            issuer: issuer?,
            is_mapped: mappings == Mappings::Present,
        })
    });
    kubernetes_issuers.collect()
}

fn public_url(text: &str, findings: &mut SectionFindings) -> Option<Url> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "https" | "http") && url.path().ends_with("/k8s-proxy/") && url.query().is_none()
    });
    if url.is_none() {
        findings.error(
            "publicURL",
            format!("`{text}` is not a URL that ends with `/k8s-proxy/`"),
        );
    }
    url
}

fn groups(wanted: Option<usize>, findings: &mut SectionFindings) -> usize {
    match wanted {
        None => 200,
        Some(most @ 1..=2_000) => most,
        Some(other) => {
            findings.error(
                "maxGroups",
                format!("`{other}` is out of bounds, allowed are 1 to 2000"),
            );
            200
        }
    }
}

/// A duration, in seconds: default, least, most.
fn bounded_duration(
    key: &str,
    text: Option<String>,
    (default, least, most): (u64, u64, u64),
    findings: &mut SectionFindings,
) -> Duration {
    let bounds = Duration::from_secs(least)..=Duration::from_secs(most);
    let Some(text) = text else {
        return Duration::from_secs(default);
    };
    match duration::parse(&text) {
        Ok(found) if bounds.contains(&found) => found,
        Ok(_) | Err(_) => {
            let expected = format!("is not a duration of {least}s to {most}s");
            findings.error(key, format!("`{text}` {expected}"));
            Duration::from_secs(default)
        }
    }
}
