//! The gateway's own settings, checked.
//!
//! In: `tollgate.yaml` and the environment (only here). Out: [`Config`].
//! Never: a default that opens something; a value read later than start-up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::diagnostic::Location;

mod application_sets;
mod applications;
pub mod duration;
mod egress;
mod kubernetes;
pub mod raw;
mod state;

pub use application_sets::{ApplicationSets, GenerationLimits, GitCache, GitLimits, SetChecks};
pub use applications::{ImpersonationMode, ServiceAccountSemantics};
pub use egress::EgressEntry;
pub use kubernetes::{Authorizer, Kubernetes, PersonIssuer, PersonKey, SameSite, Store, StoreUrl, UserLink};
pub use state::{ApplicationNamespaces, KubernetesState, StateSource};

/// All settings of one gateway process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address people and the control plane reach.
    pub listen: SocketAddr,
    /// Address of health, readiness and metrics; never public.
    pub admin_listen: SocketAddr,
    /// Certificate and key of the public listener; plain HTTP when absent.
    pub tls: Option<Tls>,
    /// Where the Kubernetes objects come from.
    pub state: StateSource,
    /// Namespace of the Argo CD control plane.
    pub control_plane_namespace: String,
    /// Folder with one policy bundle per front.
    pub policies_directory: PathBuf,
    /// Plugins.
    pub plugins: Plugins,
    /// Who may call.
    pub authentication: Authentication,
    /// Verdicts of Argo CD's `policy.csv`.
    pub rbac_semantics: Semantics,
    /// The extension front.
    pub extensions: Extensions,
    /// Whether the cluster front serves requests to clusters.
    pub clusters: ClusterFront,
    /// The Kubernetes front; it is closed when absent.
    pub kubernetes: Option<Kubernetes>,
    /// The Applications front; it is closed when absent.
    pub applications: Option<Applications>,
    /// The ApplicationSet front; it is closed when absent.
    pub application_sets: Option<ApplicationSets>,
    /// Where tokens, sessions and audit are.
    pub store: Store,
    /// How long a cluster's credential serves before it is renewed.
    pub renew_after: Duration,
    /// Bounds on what one caller may send.
    pub limits: Limits,
    /// Where decision records go.
    pub decisions: Decisions,
    /// How long running requests may take after a stop signal.
    pub drain: Duration,
}

/// Whether `/clusters/{name}/k8s` is served. A caller acts there with all that
/// the gateway's own credential may do, so it is opened on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterFront {
    /// It is not: 404.
    #[default]
    Closed,
    /// For callers with `clusters, get`; for writes and tunnels with
    /// `clusters, update` besides.
    Open,
}

/// Settings of the Applications front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applications {
    /// How `destinationServiceAccounts` are read.
    pub semantics: ServiceAccountSemantics,
    /// Whether service accounts act, whatever `argocd-cm` says; none to ask it.
    pub mode: Option<ImpersonationMode>,
    /// Whether the gateway acts in its own name where no service account does.
    pub gateway_identity: GatewayIdentity,
}

/// Whether the gateway enters clusters for Applications in its own name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatewayIdentity {
    /// It does not: such requests are refused.
    #[default]
    Refused,
    /// It does: where impersonation is off or only audited, and where the fallback is
    /// the controller.
    Allowed,
}

/// Settings of the extension front.
#[derive(Clone, Debug)]
pub struct Extensions {
    /// Whether answers and namespace rules are Argo CD's or ours.
    pub compatibility: Compatibility,
    /// `iss` of the signed assertions backends receive.
    pub assertion_issuer: String,
    /// PEM (PKCS#8) of the key that signs them; a key made at start when absent.
    pub assertion_key: Option<PathBuf>,
}

/// Where decision records go.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// How many of the latest are kept in memory for `/api/v1/decisions`.
    pub keep: usize,
    /// A file that gets one JSON line a decision.
    pub file: Option<PathBuf>,
}

/// A certificate chain and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// PEM certificate chain, leaf first.
    pub certificate: PathBuf,
    /// PEM private key.
    pub key: PathBuf,
}

/// How `policy.csv` is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Semantics {
    /// Bit-compatible with Argo CD.
    #[default]
    Argocd,
    /// Deny wins over all principals, groups always count, subjects are typed,
    /// an invalid rule refuses the load.
    Strict,
}

/// How far the extension front follows Argo CD where it is surprising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compatibility {
    /// 401 without a good credential, 403 when denied; the application's
    /// namespace is part of the RBAC object and must be one the project allows.
    #[default]
    None,
    /// What Argo CD answers: 400 without a cookie, 401 when denied; the
    /// namespace is neither in the RBAC object nor checked against the project.
    Argocd,
}

/// Bounds on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request head, all headers and the request line.
    pub header_bytes: usize,
    /// Number of header fields.
    pub header_count: usize,
    /// Bytes of a request body.
    pub body_bytes: u64,
    /// Time a client has to send its request head.
    pub header_timeout: Duration,
    /// Open client connections.
    pub connections: usize,
    /// Of them, those of one address.
    pub connections_per_address: usize,
    /// Requests one person may have open at once, over all extensions.
    pub requests_per_person: usize,
}

/// Where plugins come from and what they may do.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// Folder with `<name>.wasm` and `<name>.yaml` pairs; none when absent.
    pub directory: Option<PathBuf>,
    /// Private folder of compiled guests; a folder in the system's cache when absent.
    pub cache: Option<PathBuf>,
    /// Names that must be loaded, or nothing passes.
    pub required: Vec<String>,
    /// What each plugin may do, by plugin name.
    pub grants: std::collections::BTreeMap<String, Grant>,
    /// Where the pod's own identities are.
    pub ambient: Ambient,
}

/// Identities of the pod the gateway runs in, for plugins that are granted them.
#[derive(Clone, Debug, Default)]
pub struct Ambient {
    /// Files of projected ServiceAccount tokens, by audience.
    pub service_account_tokens: std::collections::BTreeMap<String, PathBuf>,
    /// The API server of the gateway's own cluster, to ask for tokens of audiences
    /// that are not projected; none outside a pod.
    pub kubernetes: Option<KubernetesApi>,
    /// The EKS Pod Identity agent; none where there is no such agent.
    pub eks_pod_identity: Option<EksPodIdentity>,
}

/// How a pod reaches its API server.
#[derive(Clone, Debug)]
pub struct KubernetesApi {
    /// `https://host:port`.
    pub server: String,
    /// The pod's own token.
    pub token_file: PathBuf,
    /// Authorities of the server.
    pub ca_file: PathBuf,
}

/// How a pod reaches the EKS Pod Identity agent.
#[derive(Clone, Debug)]
pub struct EksPodIdentity {
    /// `http://169.254.170.23/v1/credentials` or its like.
    pub url: String,
    /// The token the agent wants.
    pub token_file: PathBuf,
}

/// An operator's grant to one plugin.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// Digest the guest must have (hex sha256), when pinned.
    pub sha256: Option<String>,
    /// Host interfaces it may import, such as `log` or `clock`.
    pub imports: Vec<String>,
    /// Extensions a header filter is applied to; empty for all.
    pub extensions: Vec<String>,
    /// Hosts a credential provider may talk to.
    pub hosts: Vec<EgressEntry>,
    /// Audiences of the pod's own tokens a credential provider may ask for.
    pub audiences: Vec<String>,
    /// Configuration handed to the guest, checked against the manifest's schema.
    pub config: serde_json::Value,
    /// Secret of the control plane's namespace whose values a generator may use.
    pub secret: Option<String>,
    /// Wall time of one call.
    pub time: Option<Duration>,
    /// Bytes of guest memory.
    pub memory_bytes: Option<usize>,
    /// Where the settings name it.
    pub location: Option<Location>,
}

/// Who may call, and how they prove it.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// Accept Argo CD's own session and project tokens.
    pub argocd_sessions: bool,
    /// OpenID Connect issuers, in the shape of Kubernetes'
    /// `AuthenticationConfiguration`.
    pub issuers: Vec<Issuer>,
    /// Browser origins (`https://host[:port]`) whose cookie requests may change
    /// things, besides the origin the request was sent to.
    pub trusted_origins: Vec<String>,
    /// Let requests without credential pass as nobody: no name, no groups, only
    /// what the default role allows. Refused unless `listen` is a loopback
    /// address; a bad credential is refused all the same.
    pub anonymous: bool,
}

/// Longest a cluster's credential serves before it is renewed.
pub const MAX_RENEW_AFTER: Duration = Duration::from_secs(3600);

/// `jwksMaxAge` where none is set.
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
    /// `allowedReservedNames`: users and groups that only this issuer's mappings may
    /// give although they are reserved.
    pub allowed_reserved_names: Vec<String>,
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
        /// What the refusal says.
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

/// Whether a URL leads to this machine by its words alone: `localhost`, 127/8 or
/// ::1. What is sent there nobody else reads.
pub fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
