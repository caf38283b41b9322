//! The gateway's own settings: reads `tollgate.yaml` and the environment once, at start-up, and
//! checks them into a [`Config`].
//!
//! Invariant: no other crate reads the environment for settings.
//! Security: every default is the closed choice.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use tollgate_core::diagnostic::Location;

mod admission;
mod application_sets;
mod argocd;
mod connectors;
mod console;
mod control_plane;
pub mod duration;
mod egress;
mod kubernetes;
mod proxies;
pub mod raw;
mod state;
mod telemetry;

pub use admission::{Admission, AdmissionMode, AdmissionTls, AdmissionWriters, ManagedCertificate};
pub use application_sets::{
    ApplicationSetChecks, ApplicationSetPermissions, ApplicationSets, GenerationLimits, GitCache, GitLimits,
    UnknownFields,
};
pub use argocd::{ArgocdRedis, ArgocdServer, RedisTls, WhenUnavailable};
pub use connectors::{ConnectorSettings, PeerSettings};
pub use console::{Console, ConsoleHost, DeviceLogin, OidcClient};
pub use control_plane::{ControlPlane, ControlPlaneCaller, ControlPlaneMode, ReaderAccount};
pub use egress::EgressEntry;
pub use kubernetes::{
    AuditExport, Authorizer, GroupMembership, Kubernetes, KubernetesIssuer, NamespaceKind, SameSite, StoreConfig,
    StoreUrl, UserClaimMapping, UserLookupKey,
};
pub use proxies::{NetworkError, ProxyProtocol, TrustedProxies};
pub use state::{ApplicationNamespaces, KubernetesState, StateSource};
pub use telemetry::Telemetry;

/// All settings of one gateway process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Public address, for people and the control plane.
    pub listen: SocketAddr,
    /// Address of health, readiness and metrics; never public.
    pub admin_listen: SocketAddr,
    /// Certificate and key of the public listener; plain HTTP when absent.
    pub tls: Option<Tls>,
    /// Proxies in front of the public listener that say who their clients are.
    pub trusted_proxies: TrustedProxies,
    /// Whether they begin connections to it with the PROXY protocol.
    pub proxy_protocol: ProxyProtocol,
    /// Where the Kubernetes objects come from.
    pub state: StateSource,
    /// Namespace of the Argo CD control plane.
    pub control_plane_namespace: String,
    /// Folder with one policy bundle per front.
    pub policies_directory: PathBuf,
    /// Plugins.
    pub plugins: Plugins,
    /// Who may send requests.
    pub authentication: Authentication,
    /// How `policy.csv` is evaluated.
    pub rbac_semantics: RbacSemantics,
    /// The extension front.
    pub extensions: Extensions,
    /// Whether the cluster front serves requests to clusters.
    pub clusters: ClusterFront,
    /// The Kubernetes front; it is closed when absent.
    pub kubernetes: Option<Kubernetes>,
    /// The Applications front; it is closed when absent.
    pub applications: Option<Applications>,
    /// The front of Argo CD's own components; it is closed when absent.
    pub control_plane: Option<ControlPlane>,
    /// The admission webhook; it is off when absent.
    pub admission: Option<Admission>,
    /// Connectors of clusters that join; only those that Secrets name are known when absent.
    pub connectors: Option<ConnectorSettings>,
    /// The ApplicationSet front; it is closed when absent.
    pub application_sets: Option<ApplicationSets>,
    /// Where everything goes that is not Tollgate's own; answered with 404 when absent.
    pub argocd: Option<ArgocdServer>,
    /// Where Argo CD's list of revoked tokens is; it is not read when absent.
    pub argocd_redis: Option<ArgocdRedis>,
    /// Where tokens, sessions and audit events are stored.
    pub store: StoreConfig,
    /// How long a cluster's credential is used before it is renewed.
    pub renew_after: Duration,
    /// Bounds on requests.
    pub limits: RequestLimits,
    /// Where decision records go.
    pub decisions: DecisionLog,
    /// Where traces go; none are made when absent.
    pub telemetry: Option<Telemetry>,
    /// How long requests may keep running after a stop signal.
    pub drain: Duration,
}

impl Config {
    /// Whether anything keeps data in the store.
    pub fn needs_store(&self) -> bool {
        self.kubernetes.is_some() || self.connectors.is_some() || self.authentication.console.is_some()
    }
}

/// Whether `/clusters/{name}/k8s` is served. A caller can do there everything that the gateway's
/// own credential may do, so an operator must open it explicitly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterFront {
    /// It is not served: 404.
    #[default]
    Closed,
    /// It is served to callers with `clusters, get`; writes and tunnels also need `clusters,
    /// update`.
    Open,
}

/// Settings of the Applications front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applications {
    /// How `destinationServiceAccounts` are read.
    pub semantics: ServiceAccountSemantics,
    /// Whether service accounts act, regardless of `argocd-cm`; `None` to follow `argocd-cm`.
    pub mode: Option<ImpersonationMode>,
    /// Whether the gateway acts with its own identity where no service account does.
    pub gateway_identity: GatewayIdentity,
}

/// Whether the gateway may use its own identity in clusters for Applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GatewayIdentity {
    /// Such requests are refused.
    #[default]
    Refused,
    /// The gateway's own identity acts.
    Allowed,
}

/// Whether Applications act as their service accounts. Applies to all Applications.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::AsRefStr, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum ImpersonationMode {
    /// They do not; the gateway's own identity acts.
    #[default]
    Off,
    /// They do not, but what [`ImpersonationMode::Enforce`] would refuse is recorded.
    Audit,
    /// They do.
    Enforce,
}

/// How `destinationServiceAccounts` are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAccountSemantics {
    /// Servers are compared without trailing slashes, and by cluster name too. Accounts must be
    /// names that Kubernetes can have. Accounts of Kubernetes' own namespaces and of the control
    /// plane's must be spelled out.
    #[default]
    #[serde(skip)]
    Strict,
    /// Exactly as Argo CD reads them.
    Argocd,
}

/// Settings of the extension front.
#[derive(Clone, Debug)]
pub struct Extensions {
    /// Whether answers and namespace rules follow Argo CD or are our own.
    pub compatibility: Compatibility,
    /// `iss` of the signed assertions backends receive.
    pub assertion_issuer: String,
    /// PEM file (PKCS#8) of the key that signs them; if absent, a key is made at start.
    pub assertion_key: Option<PathBuf>,
}

/// Where decision records go.
#[derive(Clone, Debug)]
pub struct DecisionLog {
    /// How many of the latest records are kept in memory for `/api/v1/decisions`.
    pub capacity: usize,
    /// A file to which one JSON line per decision is written.
    pub file: Option<PathBuf>,
}

/// A certificate chain and its key, as PEM files.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate chain, leaf first. Read again when it changes.
    pub certificate: PathBuf,
    /// PEM file with the private key. Read again when it changes.
    pub key: PathBuf,
}

/// How `policy.csv` is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RbacSemantics {
    /// Exactly as Argo CD does.
    #[default]
    Argocd,
    /// A deny for any of the caller's principals wins, groups always count, and subjects are typed. An
    /// invalid row refuses the load or, in a project, drops the roles of that project.
    Strict,
}

/// How calls of extensions are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Compatibility {
    /// 401 without a valid credential, 403 when denied. The application's namespace is part of the
    /// RBAC object and must be one that the project allows.
    #[default]
    #[serde(skip)]
    None,
    /// As Argo CD does. A request without a cookie gets 400, a denied one 401. The namespace is neither part
    /// of the RBAC object nor checked against the project. A request about an Application must name its
    /// project, and rows for `<project>/<extension>` do not count. Backends get either the name or the server
    /// of the cluster, whichever the Application's destination has, and commas in the groups of
    /// `Argocd-User-Groups` are not escaped.
    Argocd,
}

/// Bounds on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Most bytes of a request head: the request line and all headers.
    pub header_bytes: usize,
    /// Most header fields of a request.
    pub header_count: usize,
    /// Most bytes of a request body.
    pub body_bytes: u64,
    /// Time a client has to send its request head.
    pub header_timeout: Duration,
    /// Most open client connections.
    pub connections: usize,
    /// Most open client connections from one address.
    pub connections_per_address: usize,
    /// Most requests that one person may have open at once, over all extensions.
    pub requests_per_person: usize,
}

/// Where plugins come from and what they may do.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// Folder with `<name>.wasm` and `<name>.yaml` pairs; no plugins are loaded when absent.
    pub directory: Option<PathBuf>,
    /// Private folder of compiled guests; a folder in the system's cache when absent.
    pub cache: Option<PathBuf>,
    /// Plugins that must be loaded; otherwise every request is refused.
    pub required: Vec<String>,
    /// What each plugin may do, by plugin name.
    pub grants: std::collections::BTreeMap<String, PluginGrant>,
    /// Where to find the pod's own identities.
    pub ambient: Ambient,
}

/// Identities of the pod the gateway runs in, for plugins that are granted them.
#[derive(Clone, Debug, Default)]
pub struct Ambient {
    /// Files of projected ServiceAccount tokens, by audience.
    pub service_account_tokens: std::collections::BTreeMap<String, PathBuf>,
    /// The API server of the gateway's own cluster, which issues tokens for audiences that are not
    /// projected; `None` outside a pod.
    pub kubernetes: Option<KubernetesApi>,
    /// The EKS Pod Identity agent; `None` where there is no such agent.
    pub eks_pod_identity: Option<EksPodIdentity>,
}

/// How a pod reaches its API server.
#[derive(Clone, Debug)]
pub struct KubernetesApi {
    /// `https://host:port`.
    pub server: String,
    /// The pod's own token.
    pub token_file: PathBuf,
    /// File of the server's certificate authorities.
    pub ca_file: PathBuf,
}

/// How a pod reaches the EKS Pod Identity agent.
#[derive(Clone, Debug)]
pub struct EksPodIdentity {
    /// Its URL, such as `http://169.254.170.23/v1/credentials`.
    pub url: String,
    /// File of the token that the agent expects.
    pub token_file: PathBuf,
}

/// An operator's grant to one plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginGrant {
    /// Digest the guest must have (hex sha256), when pinned.
    pub sha256: Option<String>,
    /// Host interfaces it may import, such as `log` or `clock`.
    pub imports: Vec<String>,
    /// Extensions a header filter is applied to; empty for all.
    pub extensions: Vec<String>,
    /// Hosts a credential provider may talk to.
    pub hosts: Vec<EgressEntry>,
    /// Audiences for which a credential provider may ask for the pod's own tokens.
    pub audiences: Vec<String>,
    /// Configuration handed to the guest, checked against the manifest's schema.
    pub config: serde_json::Value,
    /// Secret in the control plane's namespace whose values a generator may use.
    pub secret: Option<String>,
    /// Most wall time of one call.
    pub time: Option<Duration>,
    /// Most bytes of guest memory.
    pub memory_bytes: Option<usize>,
    /// Location of the grant in the settings.
    pub location: Option<Location>,
}

/// Who may send requests, and how callers prove who they are.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// Accept Argo CD's own session and project tokens.
    pub argocd_sessions: bool,
    /// argocd-server, through which Argo CD's own issuer (Dex) is reached.
    pub argocd_server: Option<ArgocdServer>,
    /// OpenID Connect issuers, in the shape of Kubernetes'
    /// `AuthenticationConfiguration`.
    pub issuers: Vec<Issuer>,
    /// Browser origins (`https://host[:port]`) whose requests with a cookie may make changes,
    /// besides the origin that the request was sent to.
    pub trusted_origins: Vec<String>,
    /// Where people sign in to the gateway itself; they do not when absent.
    pub console: Option<Console>,
    /// Let requests without a credential pass as anonymous: no name, no groups, only what the
    /// default role allows. Refused unless `listen` is a loopback address. An invalid credential is
    /// still refused.
    pub anonymous: bool,
}

/// Longest time a cluster's credential is used before it is renewed.
pub const MAX_RENEW_AFTER: Duration = Duration::from_secs(3600);

/// Default of `jwksMaxAge`.
pub const DEFAULT_JWKS_MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// One entry of `jwt` in `AuthenticationConfiguration`.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// `issuer.url`.
    pub url: String,
    /// `issuer.discoveryURL`, when the document is served elsewhere.
    pub discovery_url: Option<String>,
    /// `issuer.audiences`; one of them must be in `aud`.
    pub audiences: Vec<String>,
    /// PEM of `issuer.certificateAuthority`; the system's roots when absent.
    pub certificate_authority: Option<String>,
    /// Signature algorithms accepted, such as `RS256`.
    pub algorithms: Vec<String>,
    /// Keys older than this are fetched again.
    pub jwks_max_age: Duration,
    /// File with the token that is sent when keys are fetched.
    pub jwks_token_file: Option<PathBuf>,
    /// `claimValidationRules`.
    pub claim_validation: Vec<ClaimRule>,
    /// `claimMappings.username`.
    pub username: ClaimMapping,
    /// `claimMappings.groups`.
    pub groups: Option<ClaimMapping>,
    /// `claimMappings.uid`.
    pub uid: Option<ClaimMapping>,
    /// `claimMappings.extra`: key and CEL expression.
    pub extra: Vec<(String, String)>,
    /// `userValidationRules`: CEL expression over `user` and its message.
    pub user_validation: Vec<(String, String)>,
    /// `allowedReservedNames`: reserved users and groups that this issuer's mappings may give.
    pub allowed_reserved_names: Vec<String>,
    /// `client`: what the gateway is at the issuer, by which people sign in there.
    pub client: Option<OidcClient>,
}

/// A rule a token's claims must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimRule {
    /// The claim has exactly this value.
    Required {
        /// Claim name.
        claim: String,
        /// Its value.
        value: String,
    },
    /// The CEL expression over `claims` is `true`.
    Expression {
        /// CEL source.
        expression: String,
        /// The message of the refusal.
        message: String,
    },
}

/// Where a part of the identity comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimMapping {
    /// A claim, with a prefix put before each value.
    Claim {
        /// Claim name.
        claim: String,
        /// Prefix, possibly empty.
        prefix: String,
    },
    /// A CEL expression over `claims`.
    Expression(String),
}

/// Whether a URL's host by its text alone means this machine: `localhost`, 127/8 or ::1. Nobody
/// else can read what is sent there.
pub fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
