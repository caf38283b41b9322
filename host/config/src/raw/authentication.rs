//! The section `authentication` of the settings file: its written shape, and the checks that turn
//! it into [`crate::Authentication`]. Every mistake, unknown keys included, is reported with its
//! key.
//!
//! An entry of `jwt` has the shape of an entry in Kubernetes' `AuthenticationConfiguration`
//! (`apiserver.config.k8s.io/v1`), so it can be copied from there. Three keys are our own:
//! `algorithms`, `jwksMaxAge` and `allowedReservedNames`.
//!
//! Security: an issuer is reached over plain HTTP only on loopback.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use crate::{Authentication, ClaimMapping, ClaimRule, Issuer, is_loopback};
use tollgate_core::diagnostic::{Diagnostic, Loaded};

/// Bounds of `jwksMaxAge`.
const JWKS_MAX_AGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
/// Most issuers of one gateway (Kubernetes' bound).
const MAX_ISSUERS: usize = 64;
/// The algorithm Kubernetes accepts where none is named.
const DEFAULT_ALGORITHM: &str = "RS256";

/// `authentication`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawAuthentication {
    /// Accept Argo CD's sessions, API keys, project tokens, and tokens of the issuer in its
    /// `oidc.config`.
    pub argocd_sessions: bool,
    /// OpenID Connect issuers.
    pub jwt: Vec<RawIssuerEntry>,
    /// Origins whose requests with a cookie may make changes.
    pub trusted_origins: Vec<String>,
    /// Let requests without a credential pass; on loopback listeners only.
    pub anonymous: bool,
}

/// One entry of `jwt`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawIssuerEntry {
    /// The issuer and its audiences.
    pub issuer: RawIssuer,
    /// Rules on claims.
    #[serde(default)]
    pub claim_validation_rules: Vec<RawClaimRule>,
    /// How claims become an identity. Issuers of the Kubernetes front may omit it.
    #[serde(default)]
    pub claim_mappings: Option<RawClaimMappings>,
    /// Rules on the identity.
    #[serde(default)]
    pub user_validation_rules: Vec<RawUserRule>,
    /// Signature algorithms; `RS256` when absent.
    #[serde(default)]
    pub algorithms: Option<Vec<String>>,
    /// Longest age of cached keys, such as `1h`, the default.
    #[serde(default)]
    pub jwks_max_age: Option<String>,
    /// Reserved users and groups, and local accounts, that this issuer's mappings may give.
    #[serde(default)]
    pub allowed_reserved_names: Vec<String>,
}

/// `issuer`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawIssuer {
    /// `iss` of its tokens.
    pub url: String,
    /// Full URL of the discovery document, if it is served elsewhere.
    #[serde(default, rename = "discoveryURL")]
    pub discovery_url: Option<String>,
    /// Audiences; one of them must be in `aud`.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// `MatchAny`; required with several audiences.
    #[serde(default)]
    pub audience_match_policy: Option<String>,
    /// PEM.
    #[serde(default)]
    pub certificate_authority: Option<String>,
}

/// One of `claimValidationRules`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawClaimRule {
    /// Claim that must have `requiredValue`.
    pub claim: Option<String>,
    /// Its value.
    pub required_value: Option<String>,
    /// CEL over `claims`, instead of `claim` and `requiredValue`.
    pub expression: Option<String>,
    /// The message of the refusal.
    pub message: Option<String>,
}

/// `claimMappings`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawClaimMappings {
    /// The name.
    pub username: RawPrefixedClaim,
    /// The groups.
    #[serde(default)]
    pub groups: Option<RawPrefixedClaim>,
    /// A stable id.
    #[serde(default)]
    pub uid: Option<RawClaim>,
    /// Further attributes.
    #[serde(default)]
    pub extra: Vec<RawExtra>,
}

/// A claim with a prefix, or CEL over `claims`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawPrefixedClaim {
    /// Claim name.
    pub claim: Option<String>,
    /// Prefix, `""` for none; required with `claim`.
    pub prefix: Option<String>,
    /// CEL, instead of `claim` and `prefix`.
    pub expression: Option<String>,
}

/// A claim, or CEL over `claims`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawClaim {
    /// Claim name.
    pub claim: Option<String>,
    /// CEL, instead of `claim`.
    pub expression: Option<String>,
}

/// One of `claimMappings.extra`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawExtra {
    /// Lower-case path with a domain, such as `example.org/tenant`.
    pub key: String,
    /// CEL over `claims`.
    pub value_expression: String,
}

/// One of `userValidationRules`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawUserRule {
    /// CEL over `user`.
    pub expression: String,
    /// The message of the refusal.
    #[serde(default)]
    pub message: Option<String>,
}

impl RawAuthentication {
    /// Checks every key.
    ///
    /// - `listen`: the gateway's public address; anonymous callers require it to be a loopback
    ///   address.
    ///
    /// CEL is compiled later, with the authenticator.
    pub fn check(self, listen: SocketAddr) -> Loaded<Authentication> {
        let mut findings = SectionFindings::new("authentication");
        if self.anonymous && !listen.ip().is_loopback() {
            findings.error(
                "anonymous",
                format!("needs a loopback address in `listen`, which is `{listen}`"),
            );
        }
        let issuers = issuers(self.jwt, &mut findings);
        let issuers = issuers
            .into_iter()
            .enumerate()
            .filter_map(|(index, (issuer, mappings))| {
                if mappings == Mappings::Absent {
                    findings.error(&format!("jwt[{index}].claimMappings"), "is missing");
                }
                issuer
            });
        let issuers = issuers.collect();
        for (index, origin) in self.trusted_origins.iter().enumerate() {
            if !is_origin(origin) {
                let expected = "is not `https://host[:port]`, or http with a loopback host";
                findings.error(&format!("trustedOrigins[{index}]"), format!("`{origin}` {expected}"));
            }
        }
        let authentication = Authentication {
            argocd_sessions: self.argocd_sessions,
            issuers,
            trusted_origins: self.trusted_origins,
            anonymous: self.anonymous,
        };
        Loaded::new(authentication, findings.found)
    }
}

/// Whether an issuer maps claims to an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mappings {
    /// It has `claimMappings`.
    Present,
    /// It has none: the name is `sub`, which alone identifies nobody.
    Absent,
}

/// Checks the entries of `jwt` in the section of `findings`, in their order. Entries with mistakes
/// are `None`.
pub(super) fn issuers(jwt: Vec<RawIssuerEntry>, findings: &mut SectionFindings) -> Vec<(Option<Issuer>, Mappings)> {
    if jwt.len() > MAX_ISSUERS {
        findings.error("jwt", format!("has {} issuers, {MAX_ISSUERS} are allowed", jwt.len()));
    }
    let mut urls = BTreeSet::new();
    let mut issuers = Vec::new();
    for (index, entry) in jwt.into_iter().enumerate() {
        let key = format!("jwt[{index}]");
        if !urls.insert(entry.issuer.url.clone()) {
            findings.error(
                &format!("{key}.issuer.url"),
                format!("`{}` is listed twice", entry.issuer.url),
            );
        }
        let mappings = match entry.claim_mappings {
            Some(_) => Mappings::Present,
            None => Mappings::Absent,
        };
        issuers.push((entry.check(&key, findings), mappings));
    }
    issuers
}

/// Diagnostics of one section of the settings, each with its key.
pub(super) struct SectionFindings {
    section: &'static str,
    pub(super) found: Vec<Diagnostic>,
}

impl SectionFindings {
    /// No diagnostics yet.
    pub(super) fn new(section: &'static str) -> Self {
        Self {
            section,
            found: Vec::new(),
        }
    }

    /// - `key`: relative to the section.
    pub(super) fn error(&mut self, key: &str, what: impl AsRef<str>) {
        let section = self.section;
        self.found
            .push(Diagnostic::error(None, format!("`{section}.{key}`: {}", what.as_ref())));
    }

    /// Like [`SectionFindings::error`], for something that is allowed all the same.
    pub(super) fn warning(&mut self, key: &str, what: impl AsRef<str>) {
        let section = self.section;
        self.found.push(Diagnostic::warning(
            None,
            format!("`{section}.{key}`: {}", what.as_ref()),
        ));
    }
}

/// The mappings used where `claimMappings` is absent.
fn default_claim_mappings() -> RawClaimMappings {
    RawClaimMappings {
        username: RawPrefixedClaim {
            claim: Some("sub".to_owned()),
            prefix: Some(String::new()),
            expression: None,
        },
        groups: None,
        uid: None,
        extra: Vec::new(),
    }
}

impl RawIssuerEntry {
    fn check(self, key: &str, findings: &mut SectionFindings) -> Option<Issuer> {
        let before = findings.found.len();
        let claim_mappings = self.claim_mappings.unwrap_or_else(default_claim_mappings);
        self.issuer.check(&format!("{key}.issuer"), findings);
        let jwks_max_age = max_age(self.jwks_max_age.as_deref(), &format!("{key}.jwksMaxAge"), findings);
        let algorithms = self.algorithms.unwrap_or_else(|| vec![DEFAULT_ALGORITHM.to_owned()]);
        if algorithms.is_empty() {
            findings.error(&format!("{key}.algorithms"), "is empty");
        }
        let rules = self.claim_validation_rules.into_iter().enumerate();
        let claim_validation = rules
            .filter_map(|(index, rule)| rule.check(&format!("{key}.claimValidationRules[{index}]"), findings))
            .collect();
        let mappings = format!("{key}.claimMappings");
        let username = claim_mappings.username.check(&format!("{mappings}.username"), findings);
        let groups = claim_mappings
            .groups
            .map(|raw| raw.check(&format!("{mappings}.groups"), findings));
        let uid = claim_mappings
            .uid
            .map(|raw| raw.check(&format!("{mappings}.uid"), findings));
        let extra = check_extra(claim_mappings.extra, &format!("{mappings}.extra"), findings);
        for (index, name) in self.allowed_reserved_names.iter().enumerate() {
            let is_name = !name.is_empty() && name.trim() == name && !name.chars().any(char::is_control);
            if !is_name {
                let message = "is empty, or has blanks at an edge or control characters";
                findings.error(&format!("{key}.allowedReservedNames[{index}]"), message);
            }
        }
        let rules = self.user_validation_rules.into_iter();
        let user_validation = rules
            .map(|rule| (rule.expression, rule.message.unwrap_or_default()))
            .collect();
        if findings.found.len() > before {
            return None;
        }
        Some(Issuer {
            url: self.issuer.url,
            discovery_url: self.issuer.discovery_url,
            audiences: self.issuer.audiences,
            certificate_authority: self.issuer.certificate_authority,
            algorithms,
            jwks_max_age,
            claim_validation,
            username: username?,
            groups: groups.flatten(),
            uid: uid.flatten(),
            extra,
            user_validation,
            allowed_reserved_names: self.allowed_reserved_names,
        })
    }
}

impl RawIssuer {
    fn check(&self, key: &str, findings: &mut SectionFindings) {
        check_url(&self.url, &format!("{key}.url"), findings);
        if let Some(discovery) = &self.discovery_url {
            let key = format!("{key}.discoveryURL");
            check_url(discovery, &key, findings);
            if *discovery == self.url {
                findings.error(&key, "is the issuer's URL, it must be the document's");
            }
        }
        let audiences = format!("{key}.audiences");
        if self.audiences.is_empty() {
            findings.error(&audiences, "is empty, tokens for anybody would pass");
        }
        let mut seen = BTreeSet::new();
        for audience in &self.audiences {
            if audience.is_empty() {
                findings.error(&audiences, "holds an empty audience");
            } else if !seen.insert(audience) {
                findings.error(&audiences, format!("holds `{audience}` twice"));
            }
        }
        match (self.audience_match_policy.as_deref(), self.audiences.len()) {
            (Some("MatchAny"), _) | (None | Some(""), 0 | 1) => {}
            (None | Some(""), _) => {
                findings.error(
                    &format!("{key}.audienceMatchPolicy"),
                    "must be `MatchAny` with several audiences",
                );
            }
            (Some(other), _) => {
                let message = format!("is `{other}`, only `MatchAny` is known");
                findings.error(&format!("{key}.audienceMatchPolicy"), message);
            }
        }
    }
}

impl RawClaimRule {
    fn check(self, key: &str, findings: &mut SectionFindings) -> Option<ClaimRule> {
        match (self.claim, self.required_value, self.expression, self.message) {
            (Some(claim), value, None, None) if !claim.is_empty() => Some(ClaimRule::Required {
                claim,
                value: value.unwrap_or_default(),
            }),
            (None, None, Some(expression), message) => Some(ClaimRule::Expression {
                expression,
                message: message.unwrap_or_default(),
            }),
            (_, _, _, _) => {
                findings.error(
                    key,
                    "needs either `claim` and `requiredValue`, or `expression` and `message`",
                );
                None
            }
        }
    }
}

impl RawPrefixedClaim {
    fn check(self, key: &str, findings: &mut SectionFindings) -> Option<ClaimMapping> {
        match (self.claim, self.prefix, self.expression) {
            (Some(claim), Some(prefix), None) if !claim.is_empty() => Some(ClaimMapping::Claim { claim, prefix }),
            (Some(_), None, None) => {
                findings.error(key, "has `claim` and no `prefix`, write `prefix: \"\"` for none");
                None
            }
            (None, None, Some(expression)) => Some(ClaimMapping::Expression(expression)),
            (_, _, _) => {
                findings.error(key, "needs either `claim` and `prefix`, or `expression`");
                None
            }
        }
    }
}

impl RawClaim {
    fn check(self, key: &str, findings: &mut SectionFindings) -> Option<ClaimMapping> {
        match (self.claim, self.expression) {
            (Some(claim), None) if !claim.is_empty() => Some(ClaimMapping::Claim {
                claim,
                prefix: String::new(),
            }),
            (None, Some(expression)) => Some(ClaimMapping::Expression(expression)),
            (_, _) => {
                findings.error(key, "needs either `claim` or `expression`");
                None
            }
        }
    }
}

fn check_extra(raw: Vec<RawExtra>, key: &str, findings: &mut SectionFindings) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut extra = Vec::new();
    for RawExtra {
        key: name,
        value_expression,
    } in raw
    {
        if !is_extra_key(&name) {
            let expected = "is no lower-case path with a domain outside `kubernetes.io` and `k8s.io`";
            findings.error(key, format!("key `{name}` {expected}"));
        } else if !seen.insert(name.clone()) {
            findings.error(key, format!("key `{name}` is listed twice"));
        } else {
            extra.push((name, value_expression));
        }
    }
    extra
}

/// Kubernetes' rule for keys of `extra`: `domain/path`, lower case, not in a
/// domain Kubernetes keeps for itself.
fn is_extra_key(key: &str) -> bool {
    let Some((domain, path)) = key.split_once('/') else {
        return false;
    };
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let taken = ["kubernetes.io", "k8s.io"].iter().any(|taken| {
        domain
            .strip_suffix(taken)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    let in_path = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._~/!$&'()*+,;=:".contains(&byte);
    !taken && domain.split('.').all(label) && !path.is_empty() && path.bytes().all(in_path)
}

fn max_age(text: Option<&str>, key: &str, findings: &mut SectionFindings) -> Duration {
    let Some(text) = text else {
        return crate::DEFAULT_JWKS_MAX_AGE;
    };
    let (least, most) = JWKS_MAX_AGE;
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok());
    match parsed.filter(|duration| (least..=most).contains(duration)) {
        Some(duration) => duration,
        None => {
            findings.error(key, format!("`{text}` is not a duration from `1m` to `24h`"));
            crate::DEFAULT_JWKS_MAX_AGE
        }
    }
}

/// Kubernetes requires https and only scheme, host, port and path. Here http is also accepted for
/// loopback hosts, where nobody can listen in.
fn check_url(text: &str, key: &str, findings: &mut SectionFindings) {
    let fits = Url::parse(text).is_ok_and(|url| {
        let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        is_protected(&url) && bare && url.fragment().is_none()
    });
    if !fits {
        let expected = "must be https (http for loopback hosts) without user, query and fragment";
        findings.error(key, format!("`{text}` {expected}"));
    }
}

fn is_protected(url: &Url) -> bool {
    if !url.has_host() {
        return false;
    }
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))
}

/// Whether `text` is written as a browser writes `Origin`.
pub(super) fn is_origin(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| is_protected(&url) && url.origin().ascii_serialization() == text)
}

#[cfg(test)]
mod tests;
