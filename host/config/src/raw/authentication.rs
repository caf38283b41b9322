//! The section `authentication` of the settings file: its written shape, and the checks that turn
//! it into [`crate::Authentication`]. Every mistake, unknown keys included, is reported with its
//! key.
//!
//! An entry of `jwt` has the shape of an entry in Kubernetes' `AuthenticationConfiguration`
//! (`apiserver.config.k8s.io/v1`), so it can be copied from there. Five keys are our own:
//! `algorithms`, `jwksMaxAge`, `jwksTokenFile`, `allowedReservedNames` and `client`.
//!
//! Security: an issuer is reached over plain HTTP only on loopback. A token is sent only to an issuer whose
//! authority the settings name.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::SettingsValidator;
use super::console::RawClient;
use crate::kubernetes::subject;
use crate::{Authentication, ClaimMapping, ClaimRule, Issuer, is_loopback};
use tollgate_core::dns::is_subdomain;

const JWKS_MAX_AGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
/// Most issuers of one gateway (Kubernetes' bound).
const MAX_ISSUERS: usize = 64;
/// The algorithm Kubernetes accepts where none is named.
const DEFAULT_ALGORITHM: &str = "RS256";

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAuthentication {
    /// Whether to accept the credentials that Argo CD accepts: its sessions (cookie `argocd.token` or
    /// `Authorization: Bearer`), API keys of accounts, project tokens, and tokens of the issuer in
    /// `oidc.config` of `argocd-cm` or, with `argocd.server`, of Dex. See docs/argocd.md#single-sign-on.
    argocd_sessions: bool,
    /// OpenID Connect issuers, at most 64. An entry has the format of `jwt` in Kubernetes'
    /// `AuthenticationConfiguration` and can be copied from there.
    jwt: Vec<RawIssuerEntry>,
    /// Browser origins, besides the gateway's own, whose requests with a cookie may do more than read:
    /// methods other than `GET`, `HEAD` and `OPTIONS`, upgrades, `…/proxy/…` of a cluster, and credentials of
    /// clusters. Each is `https://host[:port]`, or `http` for loopback.
    trusted_origins: Vec<String>,
    /// Whether to accept requests without a credential as anonymous, with the permissions of
    /// `policy.default`. Needs a loopback address in `listen`.
    anonymous: bool,
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawIssuerEntry {
    /// The issuer, and which of its tokens are accepted.
    issuer: RawIssuer,
    /// Rules that the claims of a token must satisfy.
    #[serde(default)]
    claim_validation_rules: Vec<RawClaimRule>,
    /// How claims become a user. Required, except in `kubernetes.jwt`.
    claim_mappings: Option<RawClaimMappings>,
    /// Rules that the mapped user must satisfy.
    #[serde(default)]
    user_validation_rules: Vec<RawUserRule>,
    /// Accepted signature algorithms; at least one. `none` and algorithms with a shared secret are not
    /// allowed. Specific to Tollgate.
    #[schemars(extend("default" = ["RS256"]))]
    algorithms: Option<Vec<String>>,
    /// Age after which the issuer's keys are fetched again. `1m` to `24h`. Specific to Tollgate.
    #[schemars(extend("default" = "1h"))]
    jwks_max_age: Option<String>,
    /// File with a bearer token to send when the keys are fetched, for an API server that requires one. Read
    /// each time. Needs `issuer.certificateAuthority`. Specific to Tollgate.
    jwks_token_file: Option<PathBuf>,
    /// Reserved users or groups that the mappings of this issuer may return, as full names, compared byte by
    /// byte. Reserved are `system:…`, `role:…`, `proj:…`, and the names of local accounts such as `admin`. By
    /// default, a token that maps to such a name is refused. Everyone to whom the mapping gives such a name
    /// has its permissions: never derive it from a claim that people choose themselves. Specific to Tollgate.
    #[serde(default)]
    allowed_reserved_names: Vec<String>,
    /// The gateway's client at this issuer, by which people sign in to the console. Needs `console`; not in
    /// `kubernetes.jwt`. Specific to Tollgate.
    client: Option<RawClient>,
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawIssuer {
    /// `iss` of the tokens. The discovery document is below this URL. Must be `https` (`http` for loopback),
    /// without user, query or fragment.
    url: String,
    /// Full URL of the discovery document if it is elsewhere; same rules as `url`, and different from it.
    #[serde(rename = "discoveryURL")]
    discovery_url: Option<String>,
    /// Accepted audiences: `aud` of a token must contain one of them. At least one is required, and no
    /// duplicates are allowed.
    #[serde(default)]
    audiences: Vec<String>,
    /// `MatchAny`; required if there are several audiences.
    audience_match_policy: Option<String>,
    /// PEM text of the only certificate authorities trusted for the issuer. Defaults to the system's.
    certificate_authority: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawClaimRule {
    /// Claim that must have the value `requiredValue`. Not together with `expression`.
    claim: Option<String>,
    /// The value that `claim` must have. Defaults to the empty text.
    required_value: Option<String>,
    /// CEL expression over `claims` that must be true. In place of `claim` and `requiredValue`.
    expression: Option<String>,
    /// Text of the refusal. Only with `expression`.
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawClaimMappings {
    /// How the username is derived. Required.
    username: RawPrefixedClaim,
    /// How the groups are derived. Without it, users have no groups.
    groups: Option<RawPrefixedClaim>,
    /// How a stable id is derived. Without it, users have none.
    uid: Option<RawClaim>,
    /// Additional attributes of the user.
    #[serde(default)]
    extra: Vec<RawExtra>,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawPrefixedClaim {
    /// Claim with the value. Needs `prefix`; not together with `expression`.
    claim: Option<String>,
    /// Text to put in front of each value; `""` for none. Required with `claim`.
    prefix: Option<String>,
    /// CEL expression over `claims` that returns the value or values. In place of `claim` and `prefix`.
    expression: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawClaim {
    /// Claim with the value. Exactly one of `claim` and `expression` is required.
    claim: Option<String>,
    /// CEL expression over `claims` that returns the value.
    expression: Option<String>,
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawExtra {
    /// Name of the attribute: a lower-case `domain/path`, outside of `kubernetes.io` and `k8s.io`.
    key: String,
    /// CEL expression over `claims` that returns its values.
    value_expression: String,
}

#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawUserRule {
    /// CEL expression over `user` that must be true.
    expression: String,
    /// Text of the refusal.
    message: Option<String>,
}

impl RawAuthentication {
    /// Checks every key. CEL is compiled later, with the authenticator.
    pub(super) fn check(self, listen: SocketAddr, findings: &mut SettingsValidator<'_>) -> Authentication {
        if self.anonymous && !listen.ip().is_loopback() {
            let message = format!("needs a loopback address in `listen`, which is `{listen}`");
            findings.error_in("authentication.anonymous", message);
        }
        let mut accepted = Vec::new();
        for (index, (issuer, is_mapped)) in issuers("authentication", self.jwt, findings).into_iter().enumerate() {
            if !is_mapped {
                findings.error_in(&format!("authentication.jwt[{index}].claimMappings"), "is missing");
            }
            accepted.extend(issuer);
        }
        check_origins("authentication.trustedOrigins", &self.trusted_origins, findings);
        Authentication {
            argocd_sessions: self.argocd_sessions,
            argocd_server: None,
            console: None,
            issuers: accepted,
            trusted_origins: self.trusted_origins,
            anonymous: self.anonymous,
        }
    }
}

/// Checks the entries of `jwt` in a section, in their order; also gives whether each has
/// `claimMappings`. Without them, the name is `sub`, which alone identifies nobody. Entries with
/// mistakes are `None`.
pub(super) fn issuers(
    section: &str,
    jwt: Vec<RawIssuerEntry>,
    findings: &mut SettingsValidator<'_>,
) -> Vec<(Option<Issuer>, bool)> {
    if jwt.len() > MAX_ISSUERS {
        let found = jwt.len();
        let message = format!("has {found} issuers, {MAX_ISSUERS} are allowed");
        findings.error_in(&format!("{section}.jwt"), message);
    }
    let mut urls = BTreeSet::new();
    let mut issuers = Vec::new();
    for (index, entry) in jwt.into_iter().enumerate() {
        let key = format!("{section}.jwt[{index}]");
        let url = &entry.issuer.url;
        // Kubernetes' rule: the `iss` of a token selects the issuer, so it must select one.
        if !urls.insert(url.clone()) {
            findings.error_in(
                &format!("{key}.issuer.url"),
                format_args!("`{}` is listed twice", without_user(url)),
            );
        }
        let is_mapped = entry.claim_mappings.is_some();
        issuers.push((entry.check(&key, findings), is_mapped));
    }
    issuers
}

/// The mappings used where `claimMappings` is absent.
fn default_claim_mappings() -> RawClaimMappings {
    let (claim, prefix) = (Some(subject()), Some(String::new()));
    RawClaimMappings {
        username: RawPrefixedClaim {
            claim,
            prefix,
            expression: None,
        },
        ..RawClaimMappings::default()
    }
}

impl RawIssuerEntry {
    fn check(self, key: &str, findings: &mut SettingsValidator<'_>) -> Option<Issuer> {
        let before = findings.findings.len();
        let claim_mappings = self.claim_mappings.unwrap_or_else(default_claim_mappings);
        self.issuer.check(&format!("{key}.issuer"), findings);
        let jwks_max_age = max_age(self.jwks_max_age.as_deref(), &format!("{key}.jwksMaxAge"), findings);
        if self.jwks_token_file.is_some() && self.issuer.certificate_authority.is_none() {
            let message = "needs `issuer.certificateAuthority`, the only authority whose server may get the token";
            findings.error_in(&format!("{key}.jwksTokenFile"), message);
        }
        let jwks_token_file = self.jwks_token_file.map(|file| findings.base.join(file));
        let algorithms = self.algorithms.unwrap_or_else(|| vec![DEFAULT_ALGORITHM.to_owned()]);
        if algorithms.is_empty() {
            findings.error_in(&format!("{key}.algorithms"), "is empty");
        }
        let rules = self.claim_validation_rules.into_iter().enumerate();
        let claim_validation = rules
            .filter_map(|(index, rule)| rule.check(&format!("{key}.claimValidationRules[{index}]"), findings))
            .collect();
        let mappings = format!("{key}.claimMappings");
        let username = claim_mappings.username.check(&format!("{mappings}.username"), findings);
        let groups = claim_mappings.groups;
        let groups = groups.and_then(|raw| raw.check(&format!("{mappings}.groups"), findings));
        let uid = claim_mappings.uid;
        let uid = uid.and_then(|raw| raw.check(&format!("{mappings}.uid"), findings));
        let extra = check_extra(claim_mappings.extra, &format!("{mappings}.extra"), findings);
        for (index, name) in self.allowed_reserved_names.iter().enumerate() {
            let is_name = !name.is_empty() && name.trim() == name && !name.chars().any(char::is_control);
            if !is_name {
                let message = "is empty, or has blanks at an edge or control characters";
                findings.error_in(&format!("{key}.allowedReservedNames[{index}]"), message);
            }
        }
        let (url, audiences) = (&self.issuer.url, &self.issuer.audiences);
        let client = self.client;
        let client = client.and_then(|raw| raw.check(&format!("{key}.client"), url, audiences, findings));
        let rules = self.user_validation_rules.into_iter();
        let user_validation = rules.map(|rule| (rule.expression, rule.message.unwrap_or_default()));
        if findings.findings.len() > before {
            return None;
        }
        Some(Issuer {
            url: self.issuer.url,
            discovery_url: self.issuer.discovery_url,
            audiences: self.issuer.audiences,
            certificate_authority: self.issuer.certificate_authority,
            algorithms,
            jwks_max_age,
            jwks_token_file,
            claim_validation,
            username: username?,
            groups,
            uid,
            extra,
            user_validation: user_validation.collect(),
            allowed_reserved_names: self.allowed_reserved_names,
            client,
        })
    }
}

impl RawIssuer {
    fn check(&self, key: &str, findings: &mut SettingsValidator<'_>) {
        check_url(&self.url, &format!("{key}.url"), findings);
        if let Some(discovery) = &self.discovery_url {
            let key = format!("{key}.discoveryURL");
            check_url(discovery, &key, findings);
            if *discovery == self.url {
                findings.error_in(&key, "is the issuer's URL, it must be the document's");
            }
        }
        let audiences = format!("{key}.audiences");
        if self.audiences.is_empty() {
            findings.error_in(&audiences, "is empty, tokens for anybody would pass");
        }
        let mut seen = BTreeSet::new();
        for audience in &self.audiences {
            if audience.is_empty() {
                findings.error_in(&audiences, "holds an empty audience");
            } else if !seen.insert(audience) {
                findings.error_in(&audiences, format!("holds `{audience}` twice"));
            }
        }
        let policy = format!("{key}.audienceMatchPolicy");
        match (self.audience_match_policy.as_deref(), self.audiences.len()) {
            (Some("MatchAny"), _) | (None | Some(""), 0 | 1) => {}
            (None | Some(""), _) => findings.error_in(&policy, "must be `MatchAny` with several audiences"),
            (Some(other), _) => findings.error_in(&policy, format_args!("is `{other}`, only `MatchAny` is known")),
        }
    }
}

impl RawClaimRule {
    fn check(self, key: &str, findings: &mut SettingsValidator<'_>) -> Option<ClaimRule> {
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
                let message = "needs either `claim` and `requiredValue`, or `expression` and `message`";
                findings.error_in(key, message);
                None
            }
        }
    }
}

impl RawPrefixedClaim {
    fn check(self, key: &str, findings: &mut SettingsValidator<'_>) -> Option<ClaimMapping> {
        match (self.claim, self.prefix, self.expression) {
            (Some(claim), Some(prefix), None) if !claim.is_empty() => Some(ClaimMapping::Claim { claim, prefix }),
            (Some(_), None, None) => {
                findings.error_in(key, "has `claim` and no `prefix`, write `prefix: \"\"` for none");
                None
            }
            (None, None, Some(expression)) => Some(ClaimMapping::Expression(expression)),
            (_, _, _) => {
                findings.error_in(key, "needs either `claim` and `prefix`, or `expression`");
                None
            }
        }
    }
}

impl RawClaim {
    fn check(self, key: &str, findings: &mut SettingsValidator<'_>) -> Option<ClaimMapping> {
        match (self.claim, self.expression) {
            (Some(claim), None) if !claim.is_empty() => Some(ClaimMapping::Claim {
                claim,
                prefix: String::new(),
            }),
            (None, Some(expression)) => Some(ClaimMapping::Expression(expression)),
            (_, _) => {
                findings.error_in(key, "needs either `claim` or `expression`");
                None
            }
        }
    }
}

fn check_extra(raw: Vec<RawExtra>, key: &str, findings: &mut SettingsValidator<'_>) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut extra = Vec::new();
    for entry in raw {
        let name = entry.key;
        if !is_extra_key(&name) {
            let expected = "is no lower-case path with a domain outside `kubernetes.io` and `k8s.io`";
            findings.error_in(key, format!("key `{name}` {expected}"));
        } else if !seen.insert(name.clone()) {
            findings.error_in(key, format!("key `{name}` is listed twice"));
        } else {
            extra.push((name, entry.value_expression));
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
    let taken = ["kubernetes.io", "k8s.io"].iter().any(|taken| {
        let rest = domain.strip_suffix(taken);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    let in_path = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._~/!$&'()*+,;=:".contains(&byte);
    !taken && is_subdomain(domain) && !path.is_empty() && path.bytes().all(in_path)
}

fn max_age(text: Option<&str>, key: &str, findings: &mut SettingsValidator<'_>) -> Duration {
    let Some(text) = text else {
        return crate::DEFAULT_JWKS_MAX_AGE;
    };
    let (least, most) = JWKS_MAX_AGE;
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let parsed = parsed.ok().and_then(|duration| Duration::try_from(duration).ok());
    let accepted = parsed.filter(|duration| (least..=most).contains(duration));
    accepted.unwrap_or_else(|| {
        findings.error_in(key, format_args!("`{text}` is not a duration from `1m` to `24h`"));
        crate::DEFAULT_JWKS_MAX_AGE
    })
}

/// Kubernetes requires https and only scheme, host, port and path. Here http is also accepted for
/// loopback hosts, where nobody can listen in.
fn check_url(text: &str, key: &str, findings: &mut SettingsValidator<'_>) {
    let fits = Url::parse(text)
        .is_ok_and(|url| is_protected(&url) && !has_user(&url) && url.query().is_none() && url.fragment().is_none());
    if !fits {
        let expected = "must be https (http for loopback hosts) without user, query and fragment";
        findings.error_in(key, format!("`{}` {expected}", without_user(text)));
    }
}

/// Whether a URL has a user or a password, which would be a secret in the settings.
pub(super) fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// A URL as a finding shows it: without a user and password, whether or not it can be read.
pub(super) fn without_user(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('@') {
        Some((_, rest)) => Cow::Owned(format!("…@{rest}")),
        None => Cow::Borrowed(text),
    }
}

/// Whether nobody on the way can read what is sent to the URL.
pub(super) fn is_protected(url: &Url) -> bool {
    url.has_host() && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url)))
}

/// Checks that each text is written as a browser writes `Origin`.
pub(super) fn check_origins(key: &str, origins: &[String], findings: &mut SettingsValidator<'_>) {
    let is_origin = |url: &Url, text: &str| is_protected(url) && url.origin().ascii_serialization() == text;
    for (index, text) in origins.iter().enumerate() {
        if !Url::parse(text).is_ok_and(|url| is_origin(&url, text)) {
            let expected = "is not `https://host[:port]`, or http with a loopback host";
            findings.error_in(&format!("{key}[{index}]"), format_args!("`{text}` {expected}"));
        }
    }
}

#[cfg(test)]
mod tests;
