//! Builds an [`Authenticator`] from the settings, `argocd-cm`, `argocd-secret` and the projects,
//! and reports every finding.
//!
//! Building opens no connection: an issuer's keys are fetched with the first token that needs
//! them.

use super::issuer::{ASYMMETRIC_ALGORITHMS, ClaimInterpretation, MissingAudience, ValidationProfile, Verifier};
use super::keys::{KeyCache, KeySource};
use super::mapping::CompiledClaimMappings;
use super::sign_in::{ArgocdSignIn, RelyingParty};
use super::sso::OidcConfig;
use super::userinfo::{UserinfoClient, UserinfoSettings};
use super::{
    Arc, ArgocdTokenVerifier, Authenticator, BTreeMap, BTreeSet, Clock, CredentialTransport, Map, OidcIssuer,
    Principal, VerifiedIdentity, VerifiedTokens, fetch,
};
use crate::http_client::Authority;
use crate::revoked_tokens::TokenIds;
use tollgate_config::{ArgocdServer, ConsoleHost};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_core::principal::Kind;
use tollgate_core::user::Identity;
use tollgate_objects::Resources;
use tollgate_policy::rbac::account_names;
use url::Url;

/// Path of the discovery document under an issuer (OpenID Connect Discovery,
/// section 4).
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

impl Authenticator {
    /// Builds an authenticator for one state of settings and resources.
    ///
    /// - `scopes`: claims that hold groups (`scopes` of `argocd-rbac-cm`).
    /// - `previous`: the keys of its issuers are kept if the issuer has not changed. Verified
    ///   tokens are not kept, so that a revocation counts at once.
    pub fn build(
        config: &tollgate_config::Authentication,
        resources: &Resources,
        scopes: &[String],
        previous: Option<&Self>,
    ) -> Loaded<Self> {
        let clock = previous.map(|previous| previous.clock.clone()).unwrap_or_default();
        let mut builder = Builder {
            scopes,
            previous,
            clock,
            findings: Vec::new(),
            issuers: BTreeMap::new(),
            accounts: Arc::new(account_names(resources)),
        };
        for (index, issuer) in config.issuers.iter().enumerate() {
            builder.add_configured(issuer, &format!("authentication.jwt[{index}]"));
        }
        let mut argocd_tokens = None;
        if config.argocd_sessions {
            argocd_tokens = ArgocdTokenVerifier::read(resources, scopes, &mut builder.findings);
            builder.add_sso(resources, config.argocd_server.as_ref());
        }
        let argocd_server = builder.argocd_sign_in(config);
        builder.warn_shared_host(config, resources);
        builder.warn_shared_names(config);
        let Builder {
            mut findings,
            issuers,
            clock,
            ..
        } = builder;
        if !config.argocd_sessions && config.issuers.is_empty() && !config.anonymous {
            let hint = "set `authentication.argocdSessions: true` or list issuers under `authentication.jwt`";
            findings.push(Diagnostic::warning(None, "`authentication` lets nobody in").with_hint(hint));
        }
        let authenticator = Self {
            argocd_tokens,
            issuers,
            trusted_origins: config.trusted_origins.clone(),
            anonymous: config.anonymous.then(|| Arc::new(anonymous_principal())),
            cache: VerifiedTokens::new(),
            revoked: None,
            argocd_server,
            logins: None,
            sessions: None,
            clock,
        };
        Loaded::new(authenticator, findings)
    }
}

/// What every text of an expression begins with, as in `'corp:' + claims.sub`. Empty if that is not known:
/// the expression may give any name then.
fn literal_prefix(expression: &str) -> &str {
    let text = expression.trim_start();
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
        return "";
    };
    let Some((literal, rest)) = text.get(1..).and_then(|text| text.split_once(quote)) else {
        return "";
    };
    // A condition binds weaker than the sum, and chooses another text.
    let is_sum = rest.trim_start().starts_with('+') && !rest.contains('?');
    match is_sum && !literal.contains('\\') {
        true => literal,
        false => "",
    }
}

struct Builder<'a> {
    scopes: &'a [String],
    previous: Option<&'a Authenticator>,
    clock: Clock,
    findings: Vec<Diagnostic>,
    issuers: BTreeMap<String, OidcIssuer>,
    accounts: Arc<BTreeSet<String>>,
}

impl Builder<'_> {
    /// Warns of issuers that can give the same names: policies distinguish users by name alone,
    /// so two people could become one.
    fn warn_shared_names(&mut self, config: &tollgate_config::Authentication) {
        let configured = config.issuers.iter().map(|issuer| match &issuer.username {
            tollgate_config::ClaimMapping::Claim { prefix, .. } => (issuer.url.as_str(), prefix.as_str()),
            tollgate_config::ClaimMapping::Expression(text) => (issuer.url.as_str(), literal_prefix(text)),
        });
        let mut named: Vec<_> = configured.filter(|(url, _)| self.issuers.contains_key(*url)).collect();
        let listed = |url: &String| config.issuers.iter().any(|issuer| issuer.url == *url);
        // Argo CD's own issuer has no prefix.
        let unlisted = self.issuers.keys().filter(|url| !listed(url));
        named.extend(unlisted.map(|url| (url.as_str(), "")));
        let mut found = Vec::new();
        for (at, (url, prefix)) in named.iter().enumerate() {
            for (other, theirs) in named.iter().take(at) {
                if url != other && (prefix.starts_with(theirs) || theirs.starts_with(prefix)) {
                    let message = format!("issuers `{other}` and `{url}` can give two people the same username");
                    let hint = "give each its own `claimMappings.username.prefix`";
                    found.push(Diagnostic::warning(None, message).with_hint(hint));
                }
            }
        }
        self.findings.extend(found);
    }

    /// argocd-server, if people sign in to the console by its accounts.
    fn argocd_sign_in(&mut self, config: &tollgate_config::Authentication) -> Option<ArgocdSignIn> {
        config.console.as_ref()?;
        let server = config.argocd_server.as_ref().filter(|_| config.argocd_sessions)?;
        match ArgocdSignIn::new(server) {
            Ok(server) => Some(server),
            Err(error) => {
                let message = format!("`argocd`: {error}");
                self.findings.push(Diagnostic::error(None, message));
                None
            }
        }
    }

    /// Refuses a console on Argo CD's host, unless the settings say that it is meant.
    fn warn_shared_host(&mut self, config: &tollgate_config::Authentication, resources: &Resources) {
        let (Some(console), Some(url)) = (&config.console, resources.argocd_cm.data.get("url")) else {
            return;
        };
        let argocd = Url::parse(url.value.trim()).ok();
        let is_shared = argocd.is_some_and(|argocd| argocd.origin() == console.url.origin());
        match (is_shared, console.host) {
            (true, ConsoleHost::Own) => {
                let message = format!("`console.url` is Argo CD's own `url`, `{}`", &*url.value);
                let hint = "give the console its own host name; `console.sharesArgocdHost: true` serves both on one, \
                            where a script in a page of Argo CD can act as anyone who views it";
                self.findings
                    .push(Diagnostic::error(url.location.clone(), message).with_hint(hint));
            }
            (true, ConsoleHost::SharedWithArgocd) => {
                let message = "the console shares its host name with Argo CD";
                let hint = "a script in a page of Argo CD can act as anyone who views it; give the console its own \
                            host name";
                self.findings
                    .push(Diagnostic::warning(url.location.clone(), message).with_hint(hint));
            }
            (false, _) => {}
        }
    }

    fn add_configured(&mut self, issuer: &tollgate_config::Issuer, path: &str) {
        // Both are compiled even if the issuer cannot be used, so that all mistakes are reported at once.
        let mapping =
            CompiledClaimMappings::compile(issuer, ValidationProfile::OpenIdConnect, path, &mut self.findings);
        let known = self.known_keys(&issuer.url);
        let verifier = Verifier::build(
            issuer,
            path,
            ValidationProfile::OpenIdConnect,
            known,
            &self.clock,
            &mut self.findings,
        );
        if self.issuers.contains_key(&issuer.url) {
            let message = format!("`{path}.issuer.url`: `{}` is listed twice", issuer.url);
            return self.findings.push(Diagnostic::error(None, message));
        }
        let (Some(mapping), Some(verifier)) = (mapping, verifier) else {
            return;
        };
        let client = issuer.client.clone().map(|client| RelyingParty::new(client, issuer));
        let client = match client.transpose() {
            Ok(client) => client,
            Err(error) => {
                let message = format!("`{path}.client`: {error}");
                return self.findings.push(Diagnostic::error(None, message));
            }
        };
        let name = verifier.name.clone();
        let issuer = OidcIssuer {
            verifier,
            interpretation: ClaimInterpretation::Mapped(Box::new(mapping)),
            scopes: self.scopes.to_vec(),
            accounts: self.accounts.clone(),
            client,
        };
        self.issuers.insert(name, issuer);
    }

    fn add_sso(&mut self, resources: &Resources, server: Option<&ArgocdServer>) {
        let Some(sso) = OidcConfig::read(resources, server, &mut self.findings) else {
            return;
        };
        let location = sso.location.clone();
        let key = match sso.via {
            None => "oidc.config",
            Some(_) => "dex.config",
        };
        if self.issuers.contains_key(&sso.issuer) {
            let issuer = &sso.issuer;
            let message = format!("`{key}` is not used: `{issuer}` is listed under `authentication.jwt`");
            return self.findings.push(Diagnostic::warning(location, message));
        }
        let name = sso.issuer.clone();
        match self.sso_issuer(sso) {
            Ok(issuer) => drop(self.issuers.insert(name, issuer)),
            Err(error) => {
                let message = format!("`{key}`: {error}");
                self.findings.push(Diagnostic::error(location, message));
            }
        }
    }

    fn sso_issuer(&self, sso: OidcConfig) -> Result<OidcIssuer, fetch::FetchError> {
        let discovery = discovery_url(&sso.issuer);
        let source = KeySource {
            authority: sso.authority.clone(),
            via: sso.via,
            ..KeySource::of(&sso.issuer, &discovery)?
        };
        let keys = keys(source, self.known_keys(&sso.issuer), &self.clock)?;
        let mut userinfo = None;
        if let Some((path, max_age)) = sso.userinfo {
            let url = fetch::parse_url(&format!("{}{path}", sso.issuer.trim_end_matches('/')))?;
            let settings = UserinfoSettings {
                issuer: sso.issuer.clone(),
                url,
                authority: sso.authority.clone(),
                max_age,
            };
            userinfo = Some(match self.known_userinfo(&settings) {
                Some(known) => known,
                None => Arc::new(UserinfoClient::new(settings)?),
            });
        }
        Ok(OidcIssuer {
            verifier: Verifier {
                name: sso.issuer,
                audiences: sso.audiences,
                missing_audience: sso.missing_audience,
                algorithms: ASYMMETRIC_ALGORITHMS.to_vec(),
                keys,
                profile: ValidationProfile::OpenIdConnect,
            },
            interpretation: ClaimInterpretation::Argocd { userinfo },
            scopes: self.scopes.to_vec(),
            accounts: self.accounts.clone(),
            client: None,
        })
    }

    fn known_keys(&self, issuer: &str) -> Option<Arc<KeyCache>> {
        let previous = self.previous?.issuers.get(issuer)?;
        Some(previous.verifier.keys.clone())
    }
}

impl Builder<'_> {
    /// The client with these settings that the issuer had before, with its answers.
    fn known_userinfo(&self, settings: &UserinfoSettings) -> Option<Arc<UserinfoClient>> {
        let previous = self.previous?.issuers.get(&settings.issuer)?;
        match &previous.interpretation {
            ClaimInterpretation::Argocd {
                userinfo: Some(userinfo),
            } if userinfo.settings == *settings => Some(Arc::clone(userinfo)),
            ClaimInterpretation::Argocd { .. } | ClaimInterpretation::Mapped(_) => None,
        }
    }
}

impl Verifier {
    /// Builds the verifier of a configured issuer's tokens; `None` if a finding says why not.
    ///
    /// - `issuer`: the issuer, with its path in the settings.
    /// - `known`: the keys it had before. `clock`: for new ones.
    pub(super) fn build(
        issuer: &tollgate_config::Issuer,
        path: &str,
        profile: ValidationProfile,
        known: Option<Arc<KeyCache>>,
        clock: &Clock,
        findings: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let algorithms = algorithms(&issuer.algorithms, path, findings);
        let discovery = issuer.discovery_url.clone();
        let discovery = discovery.unwrap_or_else(|| discovery_url(&issuer.url));
        let keys = KeySource::of(&issuer.url, &discovery)
            .and_then(|source| {
                let source = KeySource {
                    authority: issuer.certificate_authority.clone().map(Authority::Pem),
                    token_file: issuer.jwks_token_file.clone(),
                    max_age: issuer.jwks_max_age,
                    ..source
                };
                keys(source, known, clock)
            })
            .inspect_err(|error| findings.push(Diagnostic::error(None, format!("`{path}.issuer`: {error}"))))
            .ok()?;
        Some(Self {
            name: issuer.url.clone(),
            audiences: issuer.audiences.clone(),
            missing_audience: MissingAudience::Refused,
            algorithms: algorithms?,
            keys,
            profile,
        })
    }
}

/// The keys an issuer had before if they come from the same source, else an
/// empty cache.
fn keys(source: KeySource, known: Option<Arc<KeyCache>>, clock: &Clock) -> Result<Arc<KeyCache>, fetch::FetchError> {
    match known.filter(|keys| keys.source == source) {
        Some(keys) => Ok(keys),
        None => KeyCache::new(source, clock.clone()).map(Arc::new),
    }
}

fn algorithms(names: &[String], path: &str, findings: &mut Vec<Diagnostic>) -> Option<Vec<jsonwebtoken::Algorithm>> {
    let mut algorithms = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for name in names {
        let known = name.parse().ok().filter(|known| ASYMMETRIC_ALGORITHMS.contains(known));
        match known {
            Some(algorithm) => drop(algorithms.insert(name, algorithm)),
            None => drop(unknown.insert(name.as_str())),
        }
    }
    for name in &unknown {
        let message = format!("`{path}.algorithms`: `{name}` is not one of {ASYMMETRIC_ALGORITHMS:?}");
        findings.push(Diagnostic::error(None, message));
    }
    (unknown.is_empty() && !algorithms.is_empty()).then(|| algorithms.into_values().collect())
}

fn discovery_url(issuer: &str) -> String {
    format!("{}{DISCOVERY_PATH}", issuer.trim_end_matches('/'))
}

/// The anonymous caller, who may do only what everybody may.
fn anonymous_principal() -> Principal {
    let identity = VerifiedIdentity {
        kind: Kind::Anonymous,
        issuer: String::new(),
        user_id: String::new(),
        names: Identity::default(),
        claims: Map::new(),
        expires_at: None,
        issued: None,
        token_ids: TokenIds::default(),
    };
    Principal::new(identity, CredentialTransport::Cookie)
}
