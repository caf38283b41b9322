//! The types of a case. Unknown fields are refused.

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
    /// The caller's credential.
    pub(super) credential: Credential,
    /// The caller's request; none for sequences.
    pub(super) request: Option<RequestLine>,
    /// The platform's response. Without one, the gateway itself may authorize.
    pub(super) backend: Option<Backend>,
    /// The API server's response.
    #[serde(default)]
    pub(super) upstream_reply: UpstreamReply,
    /// The expected result.
    pub(super) expect: Expect,
    /// Steps of a sequence.
    #[serde(default)]
    pub(super) steps: Vec<Step>,
}

/// A configuration of the world by name, or the case's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ConfigChoice {
    Ref(String),
    Inline(Inline),
}

/// A case's own configuration.
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

/// Kinds of policies.
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

/// The caller's credential.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Credential {
    None {},
    /// A credential that cannot be parsed; it is in the request.
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
        /// The person that the claims identify.
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

/// A personal access token in the store.
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

/// The signature of an ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Signature {
    /// By the key that `kid` names.
    Valid,
    /// By the key that `kid` names, which the gateway has not fetched yet.
    ValidAfterRefetch,
    /// Over another payload.
    Tampered,
    /// By an unpublished key, regardless of `kid`.
    WrongKey,
    /// Absent.
    None,
}

/// A CI job that the platform knows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    pub(super) id: i64,
    pub(super) pipeline_id: i64,
    pub(super) project: Value,
    pub(super) user: Value,
    pub(super) environment: Option<Value>,
}

/// A request of the caller.
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
    /// Plain text with a `Content-Length`.
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

/// A response of the platform.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    pub(super) status: u16,
    pub(super) body: Option<String>,
    pub(super) json: Option<Value>,
}

/// A response of the API server.
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

/// Why the API server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum UpstreamError {
    #[serde(rename = "connection refused")]
    Refused,
}

/// The expected result of a case.
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

/// What the API server must have received.
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

/// The identity that the API server must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IdentityKind {
    Impersonated,
    ServiceAccount,
}

/// What the caller must have received.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseSide {
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) headers_absent: Vec<String>,
    pub(super) body: Option<BodyRule>,
}

/// The expected content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BodyRule {
    /// The content that the API server sent, byte for byte.
    Identical,
    Empty,
    #[serde(rename = "empty or Status")]
    EmptyOrStatus,
}

/// Expects that events arrive soon after they are sent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) max_flush_delay_ms: u64,
    /// Must be absent: the gateway has no such setting.
    #[serde(default, rename = "response_timeout")]
    pub(super) response_timeout: Option<u64>,
}

/// The expected state of the connection.
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
    /// Opens it with the personal access token of this user, unless `credential` is set.
    pub(super) user: Option<String>,
    /// Opens it with this credential.
    pub(super) credential: Option<Credential>,
    /// Name of the session in later steps.
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

/// The expected state after a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepExpect {
    pub(super) open_streams: Option<usize>,
    pub(super) audit_reason: Option<String>,
    pub(super) audit_entries: Option<Vec<BTreeMap<String, Value>>>,
}
