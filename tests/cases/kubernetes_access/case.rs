//! A case as it is written.
//!
//! Every field has its meaning here or in the module that reads it; unknown
//! ones are refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::suite::Documentation;

/// One case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    /// Configuration of the world's first agent.
    pub(super) config: ConfigChoice,
    /// What the caller holds.
    pub(super) credential: Credential,
    /// What the caller sends; none for sequences.
    pub(super) request: Option<RequestLine>,
    /// What the platform answers; the gateway judges itself without.
    pub(super) backend: Option<Backend>,
    /// What the API server answers.
    #[serde(default)]
    pub(super) upstream_reply: UpstreamReply,
    /// What must come of it.
    pub(super) expect: Expect,
    /// Steps of a sequence.
    #[serde(default)]
    pub(super) steps: Vec<Step>,
}

/// One of the world's configurations, or one of the case's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ConfigChoice {
    Ref(String),
    Inline(Inline),
}

/// A configuration of the case's own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inline {
    pub(super) user_access: Option<Value>,
    pub(super) ci_access: Option<Value>,
    pub(super) config_project_id: Option<i64>,
    pub(super) policy: Option<Policy>,
    pub(super) authentication: Option<Authentication>,
}

/// A policy over Kubernetes requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) kind: PolicyKind,
    pub(super) allow_verbs: Vec<String>,
}

/// What a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PolicyKind {
    ReadOnly,
}

/// Kubernetes' `AuthenticationConfiguration`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Authentication {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) jwt: Vec<Value>,
}

/// What the caller holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Credential {
    None {},
    /// Nothing that exists.
    Malformed {},
    Sequence {},
    Pat {
        user: Option<String>,
        token: String,
        record: Option<Record>,
        #[serde(default, rename = "note")]
        _note: Documentation,
    },
    SessionCookie {
        user: Option<String>,
        session: Option<String>,
        csrf_token: Option<String>,
        #[serde(default, rename = "note")]
        _note: Documentation,
    },
    Oidc {
        /// Whom the claims mean.
        #[serde(rename = "user")]
        _user: Option<String>,
        jose: Jose,
        claims: Map<String, Value>,
        #[serde(default, rename = "note")]
        _note: Documentation,
    },
    Ci {
        token: String,
        job: Job,
        #[serde(default, rename = "note")]
        _note: Documentation,
    },
    Mixed {
        parts: Vec<Self>,
    },
}

/// How a token is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) scopes: Vec<String>,
    pub(super) agent_id: i64,
    pub(super) expires_at: Timestamp,
    #[serde(default)]
    pub(super) revoked: bool,
}

/// How an ID token is signed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Jose {
    pub(super) alg: String,
    pub(super) kid: Option<String>,
    pub(super) signature: Signature,
}

/// What the signature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Signature {
    /// By the key that is named.
    Valid,
    /// The same, with a key the gateway has yet to fetch.
    ValidAfterRefetch,
    /// Over another payload.
    Tampered,
    /// By a key nobody knows, whatever `kid` says.
    WrongKey,
    /// Absent.
    None,
}

/// A CI job, for the platform.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    pub(super) id: i64,
    pub(super) pipeline_id: i64,
    pub(super) project: Value,
    pub(super) user: Value,
    pub(super) environment: Option<Value>,
}

/// What the caller sends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestLine {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    #[serde(default)]
    pub(super) headers: Vec<(String, String)>,
    pub(super) http_version: Option<String>,
    pub(super) body: Option<Content>,
}

/// Content of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    /// As it is, with its length.
    Text(String),
    /// In chunks, with trailers.
    Chunks(Chunks),
}

/// Content in chunks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chunks {
    pub(super) chunked: Vec<String>,
    #[serde(default)]
    pub(super) trailers: Vec<(String, String)>,
}

/// What the platform answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    pub(super) status: u16,
    pub(super) body: Option<String>,
    pub(super) json: Option<Value>,
}

/// What the API server answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamReply {
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
    pub(super) json: Option<Value>,
    pub(super) error: Option<UpstreamError>,
}

/// How the API server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum UpstreamError {
    #[serde(rename = "connection refused")]
    Refused,
}

/// What must come of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) status_alt: Vec<u16>,
    pub(super) forwarded: Option<bool>,
    pub(super) status_object: Option<BTreeMap<String, Value>>,
    pub(super) upstream: Option<Upstream>,
    pub(super) response: Option<ResponseSide>,
    pub(super) backend_called: Option<bool>,
    pub(super) jwks_fetches: Option<usize>,
    pub(super) jwks_fetches_max: Option<usize>,
    pub(super) stream: Option<Stream>,
    pub(super) connection: Option<Connection>,
    pub(super) bytes_after_response_forwarded: Option<usize>,
    pub(super) policy_input: Option<BTreeMap<String, Value>>,
    pub(super) indistinguishable_group: Option<String>,
}

/// What the API server must have seen.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    pub(super) query: Option<String>,
    pub(super) identity: Option<IdentityKind>,
    pub(super) impersonate: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    pub(super) absent: Vec<String>,
    #[serde(default)]
    pub(super) present: Vec<(String, String)>,
}

/// As whom the API server sees the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IdentityKind {
    Impersonated,
    ServiceAccount,
}

/// What the caller must have got.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseSide {
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) headers_absent: Vec<String>,
    pub(super) body: Option<BodyRule>,
}

/// What the content must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BodyRule {
    /// The API server's, byte for byte.
    Identical,
    Empty,
    #[serde(rename = "empty or Status")]
    EmptyOrStatus,
}

/// That content arrives while it is made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) max_flush_delay_ms: u64,
    /// Seconds a response may take; none is expected.
    #[serde(default, rename = "response_timeout")]
    pub(super) response_timeout: Option<u64>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Connection {
    Closed,
}

/// A step of a sequence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) at_seconds: u64,
    pub(super) request: Option<RequestLine>,
    pub(super) credential: Option<Credential>,
    pub(super) status: Option<u16>,
    pub(super) impersonate_groups: Option<Vec<String>>,
    pub(super) open: Option<Open>,
    pub(super) world_change: Option<BTreeMap<String, Value>>,
    pub(super) revoke_session: Option<String>,
    pub(super) expect: Option<StepExpect>,
}

/// A stream that is opened and stays open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    pub(super) kind: StreamKind,
    /// Comes with their personal access token.
    pub(super) user: Option<String>,
    /// Comes with this.
    pub(super) credential: Option<Credential>,
    /// What later steps call the session.
    pub(super) session: Option<String>,
}

/// Kinds of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StreamKind {
    ExecWebsocket,
    ExecSpdy,
    AttachWebsocket,
    #[serde(alias = "portforward", alias = "port-forward")]
    PortforwardWebsocket,
    Watch,
    #[serde(alias = "logs-follow", alias = "log")]
    Logs,
}

/// What must hold at a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepExpect {
    pub(super) open_streams: Option<usize>,
    pub(super) audit_reason: Option<String>,
    pub(super) audit_entries: Option<Vec<BTreeMap<String, Value>>>,
}
