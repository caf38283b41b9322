//! The shape of `tollgate.yaml` as it is written, and the checks that turn it into a [`Config`].
//! Every mistake is reported with its key.
//!
//! Invariant: an unknown key is a mistake and is never ignored.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;

use super::{
    Applications, Authentication, ClusterFront, Compatibility, Config, DecisionLog, Extensions, GatewayIdentity,
    RbacSemantics, RequestLimits, ServiceAccountSemantics, Tls,
};
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location, Severity};
use tollgate_core::yaml;

mod admission;
mod application_sets;
mod argocd;
mod authentication;
mod connectors;
mod console;
mod control_plane;
mod kubernetes;
mod plugins;
mod proxies;
mod state;
mod syntax;
mod telemetry;
mod typed;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConfig {
    /// Public address and port. Port 0 picks a free one.
    #[serde(default = "default_listen")]
    listen: String,
    /// The admin listener: health, readiness, metrics and decisions.
    #[serde(default)]
    admin: RawAdmin,
    /// Certificate and key of `listen`. Without them, `listen` speaks plain HTTP.
    tls: Option<Tls>,
    /// Networks, such as `10.0.0.0/8`, or addresses of the load balancers and ingresses in front of `listen`,
    /// whose forwarding header fields are believed. At most 64, and not all addresses (`0.0.0.0/0`, `::/0`);
    /// not with `authentication.anonymous`. See docs/configuration.md#behind-a-load-balancer.
    #[serde(default)]
    trusted_proxies: proxies::RawTrustedProxies,
    /// Whether each connection to `listen` must begin with a PROXY protocol header, version 2. Then only
    /// `trustedProxies`, which are required, may connect.
    #[serde(default)]
    proxy_protocol: bool,
    /// Where the Kubernetes objects are read from. Exactly one of `directory` and `kubernetes` is required.
    /// See docs/state.md.
    state: state::RawState,
    /// Policy bundles. See docs/policies.md.
    policies: RawPolicies,
    /// WebAssembly plugins, and what each may do. See docs/plugins.md.
    #[serde(default)]
    plugins: plugins::RawPlugins,
    /// Whose credentials are accepted. Without any of these keys every request gets 401, except for the
    /// `kubernetes` front, which has its own credentials (docs/kubernetes-access.md#credentials).
    #[serde(default)]
    authentication: authentication::RawAuthentication,
    /// How Argo CD's `policy.csv` is evaluated.
    #[serde(default)]
    rbac: RawRbac,
    /// Extensions of Argo CD. The extensions themselves are configured in `argocd-cm`
    /// (docs/extension-config.md).
    #[serde(default)]
    extensions: RawExtensions,
    /// Credentials of clusters, and direct access to them. See docs/clusters.md.
    #[serde(default)]
    clusters: RawClusters,
    /// Enables `/k8s-proxy/…`, where people reach clusters through agents; `kubernetes: {}` is enough. See
    /// docs/kubernetes-access.md.
    kubernetes: Option<kubernetes::RawKubernetes>,
    /// Enables `/applications/{namespace}/{name}/k8s/…`, which reaches clusters on behalf of an Application;
    /// `applications: {}` is enough. See docs/applications.md.
    applications: Option<RawApplications>,
    /// Enables `/api/v1/applicationsets…` and the gRPC service for Argo CD's command line; `applicationSets:
    /// {}` is enough. See docs/applicationsets.md.
    application_sets: Option<application_sets::RawApplicationSets>,
    /// The Argo CD installation that the gateway stands in front of. See docs/argocd.md.
    argocd: Option<argocd::RawArgocd>,
    /// Enables the front through which Argo CD's own components reach clusters. Needs `tls` and
    /// `applications`. See docs/behind-argocd.md.
    control_plane: Option<control_plane::RawControlPlane>,
    /// Enables the webhook that judges writes to the control plane's cluster. Needs `applications`,
    /// `applicationSets` and `authentication.argocdSessions`. See docs/admission.md.
    admission: Option<admission::RawAdmission>,
    /// Lets connectors of clusters join; `connectors: {}` is enough. Needs the store. Without this section, only
    /// connectors whose keys are listed in Secrets can connect. See docs/connectors.md.
    connectors: Option<connectors::RawConnectors>,
    /// Former name of `connectors`.
    #[schemars(extend("deprecated" = true))]
    agents: Option<connectors::RawConnectors>,
    /// Enables sign-in to the gateway itself, and the pages below `/console/`. See docs/sign-in.md.
    console: Option<console::RawConsole>,
    /// The database of tokens, sessions and audit events. See docs/store.md.
    #[serde(default)]
    store: kubernetes::RawStore,
    /// Limits on requests and connections. See docs/configuration.md#limits.
    #[serde(default)]
    limits: RawLimits,
    /// Where decision records are kept. See docs/configuration.md#decision-records.
    #[serde(default)]
    decisions: RawDecisions,
    /// Sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP. See docs/monitoring.md.
    telemetry: Option<telemetry::RawTelemetry>,
    /// Time that open requests have to finish after SIGTERM; `/readyz` fails from its beginning. Requests
    /// still open 5 seconds before its end (or a quarter of it, if less), such as watches, end with the
    /// reason `gateway_stopping`. Afterwards, the gateway revokes credentials and writes what it holds in
    /// memory, for at most 30 seconds. Must be above 0.
    #[schemars(extend("default" = "30s"))]
    drain: Option<String>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAdmin {
    /// Address and port of the admin listener; must differ from `listen`. It does not authenticate callers,
    /// so never expose it publicly. `/agents`, `/applications`, `/credentials`, `/decisions` and
    /// `/configuration` answer 421 unless the `Host` is an IP address or `localhost`, which keeps web pages
    /// from reading them through a browser. It accepts at most 64 connections and applies `limits` to request
    /// heads.
    #[schemars(extend("default" = "127.0.0.1:8081"))]
    listen: Option<String>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPolicies {
    /// Folder with one bundle for each enabled front: `extensions`, `kubernetes`, `applications`,
    /// `applicationsets`, `argocd` and `controlplane`.
    directory: PathBuf,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawRbac {
    /// How `policy.csv` is evaluated. `tollgate rbac diff` shows what `strict` would change.
    #[schemars(extend("default" = "argocd"))]
    semantics: RbacSemantics,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawExtensions {
    /// Set to `argocd` to answer calls of extensions as Argo CD does.
    compat: Option<Compatibility>,
    /// Signed assertions of the caller's identity, which an extension's backend can request.
    assertion: Option<RawAssertion>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawApplications {
    /// Set to `argocd` to read `destinationServiceAccounts` exactly as Argo CD does; then a request that
    /// matches no entry is refused.
    compat: Option<ServiceAccountSemantics>,
    /// Whether the gateway may use its own identity when no service account acts, that is, when impersonation
    /// is off or only audited, or the fallback is the controller. The gateway's permissions exceed an
    /// Application's, so `tollgate check` and `tollgate serve` warn in both cases.
    #[schemars(extend("default" = "refused"))]
    gateway_identity: GatewayIdentity,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawClusters {
    /// Whether to forward `/clusters/{name}/k8s/…` to the API servers of clusters; otherwise these paths
    /// answer 404.
    forward: bool,
    /// Time after which a minted credential is renewed in the background, even if it is valid longer. Must be
    /// above 0 and at most `1h`.
    #[schemars(extend("default" = "1h"))]
    renew_after: Option<String>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAssertion {
    /// `iss` of the assertions; normally the URL of the gateway, which publishes its keys at
    /// `/.well-known/jwks.json`. Must not be empty. Without the section `assertion`, it is `tollgate`.
    issuer: String,
    /// PEM file with the signing key (PKCS#8, P-256 or Ed25519); all replicas need the same one. Defaults to
    /// a key that is generated at start. A new key is published for 5 minutes before it signs, and the former
    /// one for 5 minutes after.
    key: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    /// Most bytes of a request head; a larger one gets 431. 8192 (8 KiB) to 1048576 (1 MiB).
    #[schemars(extend("default" = 32 << 10))]
    header_bytes: Option<usize>,
    /// Most header fields of a request; more get 431. 10 to 1000.
    #[schemars(extend("default" = 100))]
    header_count: Option<usize>,
    /// Most bytes of a request body; a larger one gets 413. 0 to 1099511627776 (1 TiB). Defaults to 1 GiB.
    #[schemars(extend("default" = 1 << 30))]
    body_bytes: Option<u64>,
    /// Time that a client has to send its request head; then it gets 408. Must be above 0.
    #[schemars(extend("default" = "10s"))]
    header_timeout: Option<String>,
    /// Most open client connections. When the limit is reached, idle connections are closed to make room for
    /// new ones. 1 to 1000000.
    #[schemars(extend("default" = 10_000))]
    connections: Option<usize>,
    /// Most open connections of one client address (IPv6: of one /64 network). Further ones are closed on
    /// arrival, unless an idle one of the same address can be closed instead. For clients behind
    /// `trustedProxies`, each open request counts, and further ones get 429; the proxies' own connections do
    /// not count. 1 to 1000000.
    #[schemars(extend("default" = 2_500))]
    connections_per_address: Option<usize>,
    /// Most requests that one person may have open across all extensions; further ones get 429. 1 to 100000.
    #[schemars(extend("default" = 100))]
    requests_per_person: Option<usize>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawDecisions {
    /// Number of latest decision records kept in memory for `tollgate decisions`. For the latest 1000, the
    /// inputs of policies are kept too, in at most 32 MiB. 1 to 1000000.
    #[schemars(extend("default" = 10_000))]
    keep: Option<usize>,
    /// File to which each decision is appended as one line of JSON. Another line with `decision_id` and
    /// `ended` follows if the gateway later ends what the decision allowed. Created with mode 0600. Without
    /// it, decisions are not written to disk.
    file: Option<PathBuf>,
}

fn default_listen() -> String {
    "127.0.0.1:8080".to_owned()
}

/// Reads and checks the settings file at `path`.
///
/// Relative paths in it start at the file's own folder.
///
/// # Errors
/// The result has every finding of the file. If one of them is an error, nothing is used.
pub fn load(path: &Path) -> Loaded<Config> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, &file, path.parent().unwrap_or(Path::new(""))),
        Err(error) => {
            let message = format!("the settings file cannot be read: {error}");
            let finding = Diagnostic::error(Location::new(file, 0), message);
            Loaded::refused(vec![finding.with_hint("name it with `--config FILE`")])
        }
    }
}

/// JSON Schema (draft 2020-12) of `tollgate.yaml`: keys, types and defaults. The checks of [`parse`]
/// go further.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(RawConfig)
}

/// Checks the text of a settings file; `base` is where relative paths start.
pub fn parse(text: &str, file: &str, base: &Path) -> Loaded<Config> {
    let raw: RawConfig = match typed::read(text) {
        Ok(raw) => raw,
        Err(errors) => {
            let findings = errors.iter().map(|error| syntax::finding(file, text, error));
            return Loaded::refused(findings.collect());
        }
    };
    let locations = SettingLocations::parse(text, file.to_owned());
    let mut validator = SettingsValidator::new(base, locations);
    let config = validator.config(raw);
    Loaded::new(config, validator.findings)
}

/// The locations of the values in a settings file.
#[derive(Debug)]
pub struct SettingLocations {
    file: String,
    /// The file parsed again, with positions.
    document: Option<Rc<yaml::Node>>,
}

impl SettingLocations {
    /// Reads the settings file at `path`. If it cannot be read, every location is the file alone.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text, path.display().to_string())
    }

    fn parse(text: &str, file: String) -> Self {
        Self {
            file,
            document: yaml::parse(text).documents.into_iter().next(),
        }
    }

    /// The location of the value of `key`, such as `authentication.jwt[0].issuer.url`, or of the
    /// deepest part of the key that exists.
    pub fn locate(&self, key: &str) -> Location {
        self.walk(key).0
    }

    /// The location of the key `name` in the mapping at `section`; `""` is the whole file.
    fn locate_key(&self, section: &str, name: &str) -> Location {
        let (mut location, node) = self.walk(section);
        let mut entries = node.and_then(yaml::Node::entries).unwrap_or_default().iter();
        if let Some(entry) = entries.find(|entry| &*entry.key == name) {
            (location.line, location.column) = (entry.line, entry.column);
        }
        location
    }

    /// The value of `key`, if it exists, and the location of its deepest part that does.
    fn walk(&self, key: &str) -> (Location, Option<&yaml::Node>) {
        let mut location = Location::new(self.file.as_str(), 0);
        let mut at = self.document.as_ref();
        for part in key.split(['.', '[']).filter(|part| !part.is_empty()) {
            at = at.and_then(|node| match part.strip_suffix(']') {
                Some(index) => node.items()?.get(index.parse::<usize>().ok()?),
                None => node.get(part),
            });
            let Some(node) = at else { break };
            (location.line, location.column) = (node.line, node.column);
        }
        (location, at.map(Rc::as_ref))
    }
}

struct SettingsValidator<'a> {
    /// Where relative paths start.
    base: &'a Path,
    locations: SettingLocations,
    findings: Vec<Diagnostic>,
}

impl<'a> SettingsValidator<'a> {
    fn new(base: &'a Path, locations: SettingLocations) -> Self {
        Self {
            base,
            locations,
            findings: Vec::new(),
        }
    }

    fn config(&mut self, raw: RawConfig) -> Config {
        let listen = self.address("listen", &raw.listen);
        let admin = raw.admin.listen.as_deref().unwrap_or("127.0.0.1:8081");
        let admin_listen = self.address("admin.listen", admin);
        // With port 0, each listener gets a port that is free.
        if listen == admin_listen && listen.port() != 0 {
            self.error("admin.listen", &format!("`{admin}` is the public listener's address"));
        }
        let control_plane_namespace = raw.state.namespace.clone();
        let mut state = raw.state.check(self);
        let surroundings = control_plane::Surroundings {
            has_tls: raw.tls.is_some(),
            has_applications: raw.applications.is_some(),
            namespace: &control_plane_namespace,
            state: &mut state,
        };
        let control_plane = raw.control_plane.and_then(|raw| raw.check(surroundings, self));
        let (argocd, argocd_redis) = raw.argocd.map_or((None, None), |raw| raw.check(self));
        let authentication = Authentication {
            argocd_server: argocd.clone(),
            console: raw.console.and_then(|raw| raw.check(self)),
            ..raw.authentication.check(listen, self)
        };
        let has_argocd = argocd.is_some() && authentication.argocd_sessions;
        let (console, issuers) = (authentication.console.as_ref(), &authentication.issuers);
        console::check_together(console, issuers, has_argocd, self);
        let admission = raw.admission.map(|section| {
            let surroundings = admission::Surroundings {
                base: self.base,
                namespace: &control_plane_namespace,
                state: &state,
                has_applications: raw.applications.is_some(),
                has_application_sets: raw.application_sets.is_some(),
                has_argocd_sessions: authentication.argocd_sessions,
            };
            section.check(&surroundings, self)
        });
        let kubernetes = raw.kubernetes.map(|raw| raw.check(self));
        let plugins = raw.plugins.check(self);
        let trusted_proxies = raw.trusted_proxies.check(authentication.anonymous, self);
        let proxy_protocol = proxies::protocol(raw.proxy_protocol, &trusted_proxies, self);
        Config {
            listen,
            admin_listen,
            tls: raw.tls.map(|tls| Tls {
                certificate: self.base.join(tls.certificate),
                key: self.base.join(tls.key),
            }),
            trusted_proxies,
            proxy_protocol,
            state,
            control_plane_namespace,
            policies_directory: self.base.join(raw.policies.directory),
            plugins,
            authentication,
            rbac_semantics: raw.rbac.semantics,
            extensions: self.extensions(raw.extensions),
            clusters: match raw.clusters.forward {
                true => ClusterFront::Open,
                false => ClusterFront::Closed,
            },
            kubernetes,
            applications: raw.applications.map(|raw| Applications {
                semantics: raw.compat.unwrap_or_default(),
                mode: None,
                gateway_identity: raw.gateway_identity,
            }),
            control_plane,
            admission,
            connectors: connectors::check(raw.connectors, raw.agents, self),
            application_sets: raw.application_sets.map(|raw| raw.check(self)),
            argocd,
            argocd_redis,
            store: raw.store.check(self),
            renew_after: self.renew_after(raw.clusters.renew_after.as_deref()),
            limits: self.limits(&raw.limits),
            telemetry: raw.telemetry.and_then(|raw| raw.check(self)),
            decisions: DecisionLog {
                capacity: self.bounded("decisions.keep", raw.decisions.keep, 10_000, 1..=1_000_000),
                file: raw.decisions.file.map(|file| self.base.join(file)),
            },
            drain: self.duration("drain", raw.drain.as_deref(), Duration::from_secs(30)),
        }
    }

    fn extensions(&mut self, raw: RawExtensions) -> Extensions {
        let (assertion_issuer, assertion_key) = match raw.assertion {
            None => ("tollgate".to_owned(), None),
            Some(assertion) => {
                if assertion.issuer.is_empty() {
                    self.error("extensions.assertion.issuer", "is empty");
                }
                (assertion.issuer, assertion.key.map(|key| self.base.join(key)))
            }
        };
        Extensions {
            compatibility: raw.compat.unwrap_or_default(),
            assertion_issuer,
            assertion_key,
        }
    }

    fn limits(&mut self, raw: &RawLimits) -> RequestLimits {
        let (header_timeout, per_address) = (raw.header_timeout.as_deref(), raw.connections_per_address);
        let mut number = |key: &str, raw, default, bounds| self.bounded(&format!("limits.{key}"), raw, default, bounds);
        RequestLimits {
            header_bytes: number("headerBytes", raw.header_bytes, 32 << 10, 8 << 10..=1 << 20),
            header_count: number("headerCount", raw.header_count, 100, 10..=1_000),
            connections: number("connections", raw.connections, 10_000, 1..=1_000_000),
            connections_per_address: number("connectionsPerAddress", per_address, 2_500, 1..=1_000_000),
            requests_per_person: number("requestsPerPerson", raw.requests_per_person, 100, 1..=100_000),
            body_bytes: self.bounded("limits.bodyBytes", raw.body_bytes, 1 << 30, 0..=1 << 40),
            header_timeout: self.duration("limits.headerTimeout", header_timeout, Duration::from_secs(10)),
        }
    }

    fn address(&mut self, key: &str, text: &str) -> SocketAddr {
        text.parse().unwrap_or_else(|_| {
            self.error(key, &format!("`{text}` is not an address such as `127.0.0.1:8080`"));
            // Only a stand-in: an error refuses all settings.
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    /// The credential cache has the same bound, so a longer time would have no effect.
    fn renew_after(&mut self, text: Option<&str>) -> Duration {
        let most = crate::MAX_RENEW_AFTER;
        let key = "clusters.renewAfter";
        let found = self.duration(key, text, most);
        if found > most {
            self.error(key, &format!("`{found:?}` is too long; at most `{most:?}` is allowed"));
        }
        found.min(most)
    }

    fn duration(&mut self, key: &str, text: Option<&str>, default: Duration) -> Duration {
        let Some(text) = text else { return default };
        match crate::duration::parse_with_days(text) {
            Ok(found) if found > Duration::ZERO => found,
            Ok(_) | Err(_) => {
                self.error(key, &format!("`{text}` is not a duration above zero such as `10s`"));
                default
            }
        }
    }

    fn bounded<N: PartialOrd + Display + Copy>(
        &mut self,
        key: &str,
        value: Option<N>,
        default: N,
        bounds: RangeInclusive<N>,
    ) -> N {
        let value = value.unwrap_or(default);
        if bounds.contains(&value) {
            return value;
        }
        let (least, most) = bounds.into_inner();
        let message = format!("`{value}` is out of bounds, allowed are {least} to {most}");
        self.error(key, &message);
        default
    }

    fn error(&mut self, key: &str, message: &str) {
        self.find(Severity::Error, key, format!("`{key}` {message}"));
    }

    fn find(&mut self, severity: Severity, key: &str, message: String) {
        self.findings.push(Diagnostic {
            severity,
            location: Some(self.locations.locate(key)),
            message,
            hint: None,
        });
    }

    /// As [`SettingsValidator::error`], with advice and without the key in the message.
    fn refuse(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        let finding = Diagnostic::error(self.locations.locate(key), message);
        self.findings.push(finding.with_hint(hint));
    }

    /// As [`SettingsValidator::error`], for a finding about a part of a list or mapping.
    fn error_in(&mut self, key: &str, message: impl Display) {
        self.find(Severity::Error, key, format!("`{key}`: {message}"));
    }

    /// As [`SettingsValidator::error_in`], for something that is allowed all the same.
    fn warning_in(&mut self, key: &str, message: impl Display) {
        self.find(Severity::Warning, key, format!("`{key}`: {message}"));
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parse;
    use crate::StateSource;

    const REQUIRED: &str = "state: {directory: s}\npolicies: {directory: p}\n";

    fn findings(text: &str) -> Vec<String> {
        let loaded = parse(&format!("{REQUIRED}{text}"), "t.yaml", Path::new("/etc"));
        assert_eq!(loaded.value.is_none(), !loaded.diagnostics.is_empty());
        loaded.diagnostics.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_minimal_settings_are_valid_and_let_nobody_in() {
        assert_eq!(findings(""), Vec::<String>::new());
        let config = parse(REQUIRED, "t.yaml", Path::new("/etc")).value.unwrap();
        assert!(config.listen.ip().is_loopback() && config.admin_listen.ip().is_loopback());
        assert!(!config.authentication.argocd_sessions && !config.authentication.anonymous);
        assert_eq!(config.state, StateSource::Directory("/etc/s".into()));
    }

    #[test]
    fn every_mistake_is_reported_with_its_location() {
        let text = "listen: nowhere\nlimits:\n  headerBytes: 1\n  headerTimeout: 0s\nauthentication:\n  jwt:\n  \
                    - issuer: {url: 'http://idp.example.org', audiences: [a]}\n    claimMappings: {username: {claim: a, \
                    prefix: ''}}\n";
        let found = findings(text);
        let locations: Vec<&str> = found.iter().filter_map(|line| line.split(": error").next()).collect();
        assert_eq!(
            locations,
            ["t.yaml:3:9", "t.yaml:9:19", "t.yaml:5:16", "t.yaml:6:18"],
            "{found:#?}"
        );
    }

    #[test]
    fn every_value_of_a_wrong_type_is_reported() {
        let found = findings(
            "limits:\n  headerBytes: many\n  bodyBytes: 1Gi\n  connections: 5\ndrain: [a]\nclusters:\n  forward: \
             \"yes\"\nkubernetes: {maxGroups: x, longestToken: [1]}\ndecisions: {kep: 1}\n",
        );
        let locations: Vec<&str> = found.iter().filter_map(|line| line.split(": error").next()).collect();
        assert_eq!(
            locations,
            [
                "t.yaml:4:16",
                "t.yaml:5:14",
                "t.yaml:7:8",
                "t.yaml:9:12",
                "t.yaml:10:25",
                "t.yaml:10:42",
                "t.yaml:11:13"
            ],
            "{found:#?}"
        );
    }

    /// Rust's formatter panics on a width above 65,535.
    #[test]
    fn a_long_value_of_a_wrong_type_is_reported() {
        let found = findings(&format!(
            "limits:\n  headerBytes: {}\n  bodyBytes: 1Gi\n",
            "x".repeat(70_000)
        ));
        let locations: Vec<&str> = found.iter().filter_map(|line| line.split(": error").next()).collect();
        assert_eq!(locations, ["t.yaml:4:16", "t.yaml:5:14"]);
    }

    #[test]
    fn booleans_are_true_or_false() {
        for text in ["yes", "y", "on", "\"yes\"", "'y'", "1"] {
            let found = findings(&format!("clusters: {{forward: {text}}}\n"));
            assert!(
                matches!(found.as_slice(), [one] if one.starts_with("t.yaml:3:21: error")),
                "{text}: {found:?}"
            );
        }
        for text in ["true", "false"] {
            assert_eq!(findings(&format!("clusters: {{forward: {text}}}\n")), [""; 0]);
        }
    }

    #[test]
    fn unknown_keys_are_reported_once_with_their_location() {
        let found = findings("limits: {headrBytes: 1}\n");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("t.yaml:3:10: error: unknown field `headrBytes`, expected one of headerBytes"),
            "{found:?}"
        );
    }
}
