//! Maps the errors of all stages to responses, in one match: a status, a stable reason and a public
//! text. Everything else about an error goes only to the record.
//!
//! Security: a response shows no internals, and does not reveal whether something exists that the
//! caller may not see.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use uuid::Uuid;

mod kubernetes;

use crate::applicationsets::grpc;
use crate::applicationsets::request;
use crate::applicationsets::request::Code;
use crate::extensions::call;
use crate::extensions::permit;
use crate::kubernetes::route::KUBERNETES_PREFIX;
use crate::kubernetes::status;
use crate::open_exchanges;
use crate::platform::api;
use crate::projects::update;
use tollgate_applicationset::Denial;
use tollgate_config::Compatibility;
use tollgate_core::diagnostic::with_causes;
use tollgate_identity::{access, authenticate, sessions, store};
use tollgate_plugin as plugin;
use tollgate_policy::rego;
use tollgate_proxy::record::Outcome;
use tollgate_proxy::{forward, headers, target};

/// An error of the stage that ended a request.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// The request target cannot be read.
    #[error(transparent)]
    Route(#[from] target::Error),
    /// The server refuses the form of the request.
    #[error(transparent)]
    Server(#[from] tollgate_proxy::server::RequestReadError),
    /// Nothing is served under this path.
    #[error("nothing is served here")]
    NotFound,
    /// The caller is unknown.
    #[error(transparent)]
    Authenticate(#[from] authenticate::Error),
    /// The call cannot be understood.
    #[error(transparent)]
    Call(#[from] call::Error),
    /// The policy denied the call.
    #[error(transparent)]
    Authorize(#[from] permit::Error),
    /// A required plugin is not loaded.
    #[error("required plugins are not loaded: {0}")]
    PluginsMissing(String),
    /// A plugin refused or failed.
    #[error(transparent)]
    Plugin(#[from] plugin::CallError),
    /// A limit was exceeded.
    #[error(transparent)]
    Limit(#[from] forward::LimitExceeded),
    /// No assertion could be signed.
    #[error(transparent)]
    Assertion(#[from] tollgate_proxy::assertion::Error),
    /// The outgoing head violated a rule of the host's own.
    #[error(transparent)]
    Headers(#[from] headers::Error),
    /// Forwarding failed, or the upstream did not answer.
    #[error(transparent)]
    Forward(#[from] forward::Error),
    /// There is no credential for the cluster.
    #[error(transparent)]
    Credential(#[from] tollgate_cluster::access::Error),
    /// The credential's certificate cannot be used for a connection.
    #[error("the cluster's certificate cannot be used")]
    UnusableCertificate(#[source] forward::BuildError),
    /// The credential is of a kind that clients cannot present.
    #[error("this cluster's credential is no token and no client certificate")]
    NotPortable,
    /// The browser's origin may not call the Kubernetes front.
    #[error(transparent)]
    Origin(#[from] crate::kubernetes::origin::Forbidden),
    /// The path is not below the Kubernetes front's prefix, but the credential is only for that
    /// front.
    #[error("the URL does not start with the expected prefix `{KUBERNETES_PREFIX}`")]
    WrongPrefix,
    /// The caller of the Kubernetes front presents no usable credential.
    #[error(transparent)]
    Agent(#[from] authenticate::k8s_proxy::Error),
    /// The caller may not use the agent.
    #[error(transparent)]
    Access(#[from] access::Error),
    /// The client's request has impersonation headers.
    #[error("impersonation by the client is not allowed here: remove `{0}` (`kubectl --as` and its like)")]
    ClientImpersonates(HeaderName),
    /// The policy of the Kubernetes front denied the request.
    #[error(transparent)]
    Kubernetes(#[from] crate::kubernetes::permit::Error),
    /// The audit log could not be written, so the request is refused.
    #[error("the audit log cannot be written")]
    Audit(#[source] store::Error),
    /// The session ended while the request was under way.
    #[error("the session has ended")]
    Ended(sessions::EndReason),
    /// A snapshot that came into force meanwhile does not permit the request.
    #[error(transparent)]
    Withdrawn(#[from] open_exchanges::Withdrawn),
    /// The agent's cluster is not one of the gateway's.
    #[error("the agent's cluster is not known")]
    UnknownCluster,
    /// The cluster does not accept the gateway's own credential.
    #[error("the cluster refused the gateway's own credential")]
    ClusterUnauthorized,
    /// The request may not enter the cluster of an Application.
    #[error(transparent)]
    Application(#[from] crate::applications::permit::Error),
    /// The resource's kind is not known.
    #[error(transparent)]
    Discovery(#[from] tollgate_cluster::discovery::Error),
    /// The API for tokens, sessions and audit refuses.
    #[error(transparent)]
    Platform(#[from] api::Error),
    /// The API for AppProjects refuses.
    #[error(transparent)]
    Project(#[from] update::Error),
    /// The API for ApplicationSets refuses.
    #[error(transparent)]
    ApplicationSet(#[from] request::Error),
    /// The call does not have gRPC's form.
    #[error(transparent)]
    Grpc(#[from] grpc::Error),
    /// A stage panicked.
    #[error("a stage panicked")]
    Panicked,
}

/// The format in which a front answers errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// The gateway's own JSON.
    Tollgate,
    /// The format of Argo CD's extension handler.
    Argocd,
    /// The format of kube-apiserver: a `Status`.
    Kubernetes,
    /// The format of Argo CD's API, with a list of everything that is refused.
    ApplicationSets,
}

impl ErrorFormat {
    /// The format of the extension front.
    pub fn of(compatibility: Compatibility) -> Self {
        match compatibility {
            Compatibility::None => Self::Tollgate,
            Compatibility::Argocd => Self::Argocd,
        }
    }
}

/// The response to a rejected request, before it is rendered.
#[derive(Debug)]
pub struct ErrorResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable reason code in snake case, for programs and metric labels.
    pub reason: &'static str,
    /// Text for people.
    pub message: Cow<'static, str>,
    /// Whole seconds until a retry makes sense.
    pub retry_after: Option<u64>,
    /// A provider's own error code.
    pub code: Option<String>,
    /// The gRPC status code, if the HTTP status does not determine it.
    pub grpc: Option<Code>,
    /// Everything that is refused, if the message does not say it all.
    pub refusals: Vec<Denial>,
    /// Number of refusals that are left out of `refusals`.
    pub more_refusals: usize,
    /// The outcome in the record.
    pub outcome: Outcome,
}

impl Rejection {
    /// Text for operators: the whole chain of causes.
    pub fn detail(&self) -> String {
        with_causes(self)
    }

    /// The response to the caller, in this format.
    pub fn answer(&self, format: ErrorFormat) -> ErrorResponse {
        let answer = self.native_response();
        match format {
            ErrorFormat::Tollgate | ErrorFormat::Kubernetes | ErrorFormat::ApplicationSets => answer,
            ErrorFormat::Argocd => self.as_argocd(answer),
        }
    }

    /// The response before Argo CD's format is applied.
    fn native_response(&self) -> ErrorResponse {
        match self {
            Self::Route(error) => {
                ErrorResponse::denied(StatusCode::BAD_REQUEST, "bad_request_target", error.to_string())
            }
            Self::Server(error) => {
                ErrorResponse::denied(error.status(), server_refusal_reason(error), error.to_string())
            }
            Self::NotFound => ErrorResponse::denied(StatusCode::NOT_FOUND, "not_found", "nothing is served here"),
            Self::Authenticate(error) => authentication_error(error),
            Self::Call(error) => ErrorResponse::denied(StatusCode::BAD_REQUEST, error.code(), error.to_string()),
            Self::Authorize(error) => authorization_error(error),
            Self::PluginsMissing(_) => ErrorResponse::failed(
                StatusCode::SERVICE_UNAVAILABLE,
                "plugin_missing",
                "the gateway is not completely set up",
            ),
            Self::Plugin(error) => plugin_error(error),
            Self::Limit(error) => ErrorResponse {
                retry_after: Some(error.retry_after_seconds),
                ..ErrorResponse::denied(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", error.to_string())
            },
            Self::Assertion(_) => ErrorResponse::failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                "assertion_failed",
                "the request could not be prepared",
            ),
            Self::Headers(error) => headers_error(error),
            Self::Forward(error) => forward_error(error),
            Self::Credential(error) => credential_error(error),
            Self::UnusableCertificate(_) => ErrorResponse {
                code: Some("config.certificate".to_owned()),
                ..ErrorResponse::failed(StatusCode::BAD_GATEWAY, "credential_unavailable", self.to_string())
            },
            Self::NotPortable => {
                ErrorResponse::failed(StatusCode::CONFLICT, "credential_not_portable", self.to_string())
            }
            Self::Origin(_) => ErrorResponse::denied(StatusCode::FORBIDDEN, "origin_not_allowed", self.to_string()),
            Self::WrongPrefix => ErrorResponse::denied(StatusCode::BAD_REQUEST, "wrong_prefix", self.to_string()),
            Self::Agent(error) => kubernetes::agent_credential_error(error),
            Self::Access(error) => kubernetes::access_error(error),
            Self::ClientImpersonates(_) => {
                ErrorResponse::denied(StatusCode::BAD_REQUEST, "client_impersonates", self.to_string())
            }
            Self::Kubernetes(error) => kubernetes::kubernetes_error(error),
            Self::Application(error) => kubernetes::application_error(error),
            Self::Discovery(error) => kubernetes::discovery_error(error),
            Self::Audit(_) => ErrorResponse::failed(
                StatusCode::SERVICE_UNAVAILABLE,
                "audit_unavailable",
                "the request cannot be written down right now, try again later",
            ),
            Self::Ended(ending) => kubernetes::ended(*ending),
            Self::Withdrawn(_) => {
                let reason = sessions::EndReason::Withdrawn.code();
                ErrorResponse::denied(StatusCode::FORBIDDEN, reason, "access was withdrawn")
            }
            Self::UnknownCluster => ErrorResponse::failed(StatusCode::BAD_GATEWAY, "cluster_unknown", self.to_string()),
            Self::ClusterUnauthorized => {
                ErrorResponse::failed(StatusCode::BAD_GATEWAY, "credential_refused", self.to_string())
            }
            Self::Platform(error) => platform_error(error),
            Self::Project(error) => project_error(error),
            Self::ApplicationSet(error) => applicationset_error(error),
            Self::Grpc(error) => grpc_error(error),
            Self::Panicked => ErrorResponse::failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                "panic",
                "the gateway could not answer the request",
            ),
        }
    }

    /// Statuses and texts of Argo CD's extension handler (source: `CallExtension`).
    fn as_argocd(&self, native: ErrorResponse) -> ErrorResponse {
        let (status, message) = match self {
            Self::Authenticate(authenticate::Error::NoCredential | authenticate::Error::Malformed(_)) => {
                (StatusCode::BAD_REQUEST, "Auth cookie not found".into())
            }
            Self::Authenticate(authenticate::Error::SessionUnusable(_)) => {
                (StatusCode::UNAUTHORIZED, "Invalid session".into())
            }
            Self::Authenticate(
                authenticate::Error::Invalid(_)
                | authenticate::Error::Expired
                | authenticate::Error::Revoked(_)
                | authenticate::Error::IssuerUnavailable { .. },
            ) => (StatusCode::UNAUTHORIZED, "Invalid token".into()),
            Self::Route(error @ target::Error::ExtensionName) => {
                (StatusCode::BAD_REQUEST, format!("Invalid URL: {error}").into())
            }
            Self::Call(error @ call::Error::MissingName) => {
                (StatusCode::BAD_REQUEST, format!("Invalid URL: {error}").into())
            }
            Self::Call(error) => (StatusCode::BAD_REQUEST, format!("Invalid headers: {error}").into()),
            Self::Authorize(permit::Error::Denied { .. } | permit::Error::Policy(_)) => {
                (StatusCode::UNAUTHORIZED, "Unauthorized extension request".into())
            }
            Self::Authorize(permit::Error::UnknownExtension { .. }) => {
                (StatusCode::NOT_FOUND, "Extension not found".into())
            }
            Self::Authorize(permit::Error::NoBackend { .. }) => (StatusCode::BAD_REQUEST, "invalid extension".into()),
            Self::Route(_)
            | Self::NotFound
            | Self::Authenticate(authenticate::Error::CrossSite { .. })
            | Self::PluginsMissing(_)
            | Self::Plugin(_)
            | Self::Limit(_)
            | Self::Server(_)
            | Self::Assertion(_)
            | Self::Headers(_)
            | Self::Forward(_)
            | Self::Authorize(
                permit::Error::ClusterDenied { .. }
                | permit::Error::UnknownCluster { .. }
                | permit::Error::AmbiguousCluster { .. },
            )
            | Self::Credential(_)
            | Self::UnusableCertificate(_)
            | Self::NotPortable
            | Self::Origin(_)
            | Self::WrongPrefix
            | Self::Agent(_)
            | Self::Access(_)
            | Self::ClientImpersonates(_)
            | Self::Kubernetes(_)
            | Self::Application(_)
            | Self::Discovery(_)
            | Self::Audit(_)
            | Self::Ended(_)
            | Self::Withdrawn(_)
            | Self::UnknownCluster
            | Self::ClusterUnauthorized
            | Self::Platform(_)
            | Self::Project(_)
            | Self::ApplicationSet(_)
            | Self::Grpc(_)
            | Self::Panicked => return native,
        };
        ErrorResponse {
            status,
            message,
            ..native
        }
    }
}

fn server_refusal_reason(refusal: &tollgate_proxy::server::RequestReadError) -> &'static str {
    use tollgate_proxy::server::RequestReadError;
    match refusal {
        RequestReadError::Target(_) | RequestReadError::ContentTooLong { .. } => "bad_request",
        RequestReadError::Malformed => "malformed_head",
        RequestReadError::Ambiguous => "ambiguous_head",
        RequestReadError::TargetTooLong => "target_too_long",
        RequestReadError::TooManyFields { .. } | RequestReadError::HeadTooLarge => "head_too_large",
        RequestReadError::HeadTimeout { .. } => "head_timeout",
    }
}

fn authentication_error(error: &authenticate::Error) -> ErrorResponse {
    use authenticate::Error;
    let text: Cow<'static, str> = match error {
        Error::NoCredential | Error::Malformed(_) | Error::CrossSite { .. } => error.to_string().into(),
        Error::Invalid(_) => "the token is not valid".into(),
        Error::Expired => "the token has expired, sign in again".into(),
        Error::Revoked(_) => "the token was revoked, sign in again".into(),
        Error::IssuerUnavailable { .. } => "the token cannot be checked right now, try again later".into(),
        Error::SessionUnusable(_) => "the session is not usable right now".into(),
    };
    match error {
        Error::CrossSite { .. } => ErrorResponse::denied(StatusCode::FORBIDDEN, error.code(), text),
        Error::IssuerUnavailable { .. } => ErrorResponse {
            retry_after: Some(5),
            ..ErrorResponse::failed(StatusCode::SERVICE_UNAVAILABLE, error.code(), text)
        },
        // One reason for all of them, so that a forger does not learn which check failed.
        Error::Invalid(_) => ErrorResponse::denied(StatusCode::UNAUTHORIZED, "invalid_token", text),
        Error::NoCredential | Error::Malformed(_) | Error::Expired | Error::Revoked(_) | Error::SessionUnusable(_) => {
            ErrorResponse::denied(StatusCode::UNAUTHORIZED, error.code(), text)
        }
    }
}

fn authorization_error(error: &permit::Error) -> ErrorResponse {
    use permit::Error;
    match error {
        Error::Denied { reason } => ErrorResponse::denied(StatusCode::FORBIDDEN, "permission_denied", reason.clone()),
        Error::UnknownExtension { .. } => {
            ErrorResponse::denied(StatusCode::NOT_FOUND, "extension_not_found", error.to_string())
        }
        Error::NoBackend { .. } => {
            ErrorResponse::failed(StatusCode::NOT_FOUND, "no_backend_for_cluster", error.to_string())
        }
        Error::ClusterDenied { .. } => {
            ErrorResponse::denied(StatusCode::FORBIDDEN, "permission_denied", error.to_string())
        }
        Error::UnknownCluster { .. } => {
            ErrorResponse::denied(StatusCode::NOT_FOUND, "cluster_not_found", error.to_string())
        }
        Error::AmbiguousCluster { .. } => {
            ErrorResponse::denied(StatusCode::CONFLICT, "cluster_ambiguous", error.to_string())
        }
        Error::Policy(cause) => {
            let reason = match cause {
                rego::Error::Stuck { .. } => "policy_stuck",
                rego::Error::Undefined
                | rego::Error::NotAnObject { .. }
                | rego::Error::NotABoolean { .. }
                | rego::Error::Reason { .. }
                | rego::Error::UnknownObligation { .. }
                | rego::Error::Obligation { .. }
                | rego::Error::Instructions { .. }
                | rego::Error::Time { .. }
                | rego::Error::Memory { .. }
                | rego::Error::Evaluation { .. }
                | rego::Error::Condition { .. }
                | rego::Error::Panicked => "policy_failed",
            };
            ErrorResponse::failed(StatusCode::FORBIDDEN, reason, error.to_string())
        }
    }
}

fn plugin_error(error: &plugin::CallError) -> ErrorResponse {
    use plugin::CallError;
    match error {
        CallError::Refused { status, reason, .. } => {
            ErrorResponse::denied(*status, "refused_by_plugin", reason.clone())
        }
        CallError::Busy { .. } => ErrorResponse {
            retry_after: Some(1),
            ..ErrorResponse::failed(
                StatusCode::SERVICE_UNAVAILABLE,
                "plugin_busy",
                "the gateway is busy, try again",
            )
        },
        CallError::Trap { .. }
        | CallError::Timeout { .. }
        | CallError::Memory { .. }
        | CallError::InvalidOutput { .. } => ErrorResponse::failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            "plugin_failed",
            "a plugin could not do its work",
        ),
    }
}

fn headers_error(error: &headers::Error) -> ErrorResponse {
    use headers::Error;
    match error {
        Error::NotUtf8 { .. } | Error::ConnectionOption | Error::UpgradeContent | Error::Authority(_) => {
            ErrorResponse::denied(StatusCode::BAD_REQUEST, "bad_headers", error.to_string())
        }
        Error::Identity { .. } | Error::Nameless => {
            ErrorResponse::denied(StatusCode::FORBIDDEN, "unusable_identity", error.to_string())
        }
        Error::Forbidden { .. }
        | Error::Duplicate { .. }
        | Error::Value { .. }
        | Error::Credential
        | Error::Impersonation => ErrorResponse::failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            "headers_refused",
            "the request could not be prepared",
        ),
    }
}

/// Only permitted callers get this error, so they may see the code. The provider's text is for
/// operators.
fn credential_error(error: &tollgate_cluster::access::Error) -> ErrorResponse {
    let class = error.class().as_str();
    let message = format!(
        "the cluster's credential is not available ({class}, `{}`)",
        error.code()
    );
    let retry_after = error.retry_after();
    let status = match retry_after {
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
        None => StatusCode::BAD_GATEWAY,
    };
    ErrorResponse {
        // Whole seconds, rounded up: a retry that comes too soon is refused.
        retry_after: retry_after.map(|wait| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))),
        code: Some(error.code().to_owned()),
        ..ErrorResponse::failed(status, "credential_unavailable", message)
    }
}

fn platform_error(error: &api::Error) -> ErrorResponse {
    let (status, reason) = (error.status(), error.code());
    if status.is_server_error() {
        return ErrorResponse::failed(status, reason, error.to_string());
    }
    ErrorResponse::denied(status, reason, error.to_string())
}

fn project_error(error: &update::Error) -> ErrorResponse {
    let (status, reason) = (error.status(), error.code());
    if status.is_server_error() {
        return ErrorResponse::failed(status, reason, error.text());
    }
    ErrorResponse::denied(status, reason, error.text())
}

fn applicationset_error(error: &request::Error) -> ErrorResponse {
    let (status, reason) = (error.status(), error.code());
    let answer = if status.is_server_error() || reason == "policy_failed" {
        ErrorResponse::failed(status, reason, error.text())
    } else {
        ErrorResponse::denied(status, reason, error.text())
    };
    let (refusals, more) = error.refusals();
    ErrorResponse {
        grpc: Some(error.grpc()),
        refusals: refusals.to_vec(),
        more_refusals: more,
        retry_after: error.retry_after(),
        ..answer
    }
}

fn grpc_error(error: &grpc::Error) -> ErrorResponse {
    let (status, reason) = (error.status(), error.reason());
    let answer = if status.is_server_error() {
        ErrorResponse::failed(status, reason, error.to_string())
    } else {
        ErrorResponse::denied(status, reason, error.to_string())
    };
    ErrorResponse {
        grpc: Some(error.code()),
        ..answer
    }
}

fn forward_error(error: &forward::Error) -> ErrorResponse {
    use forward::Error;
    let reason = match error {
        Error::Connect(_) => "backend_unreachable",
        Error::Broken(_) => "backend_broke_off",
        // The same as for a credential that expired before it was checked.
        Error::CredentialEnded => {
            return ErrorResponse::denied(
                error.status(),
                "credential_ended",
                "the token has expired, sign in again",
            );
        }
        Error::Revoked => {
            return ErrorResponse::denied(
                error.status(),
                "session_revoked",
                "the session was revoked, sign in again",
            );
        }
        Error::Withdrawn => {
            return ErrorResponse::denied(error.status(), "access_withdrawn", "access was withdrawn");
        }
        Error::StoreUnavailable => return kubernetes::store_unavailable(),
        Error::Silent { .. } => "backend_silent",
        Error::ExchangeTimeout { .. } => "backend_too_slow",
        Error::ContentTooLarge => "content_too_large",
        Error::ClientSilent => "client_silent",
        Error::ClientBroken => "client_broke_off",
        Error::Protocol => "protocol_not_asked_for",
        Error::UpgradeRefused { .. } => "protocol_not_switched",
        Error::WrongBackend => "wrong_backend",
    };
    ErrorResponse::failed(error.status(), reason, error.to_string())
}

impl ErrorResponse {
    fn denied(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
            retry_after: None,
            code: None,
            grpc: None,
            refusals: Vec::new(),
            more_refusals: 0,
            outcome: Outcome::Denied,
        }
    }

    fn failed(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            outcome: Outcome::Failed,
            ..Self::denied(status, reason, message)
        }
    }

    /// The body in the format of Argo CD's API (`error`, `code`, `message`), with the refusals.
    fn applicationset_body(&self) -> serde_json::Value {
        let refusals = self.refusals.iter().map(|refusal| {
            serde_json::json!({
                "about": refusal.about.to_string(),
                "rule": refusal.rule,
                "reason": refusal.reason,
            })
        });
        let mut body = serde_json::json!({
            "error": self.message,
            "code": self.grpc().number(),
            "message": self.message,
            "reason": self.reason,
        });
        if let (false, Some(members)) = (self.refusals.is_empty(), body.as_object_mut()) {
            members.insert("refusals".to_owned(), refusals.collect());
            if self.more_refusals > 0 {
                members.insert("moreRefusals".to_owned(), self.more_refusals.into());
            }
        }
        body
    }

    /// The gRPC status code.
    pub fn grpc(&self) -> Code {
        self.grpc.unwrap_or_else(|| Code::from_http_status(self.status))
    }

    /// Renders the HTTP response: JSON with reason and decision id, plain text in Argo CD's format,
    /// or a `Status`.
    pub fn into_response(self, decision: Uuid, format: ErrorFormat) -> Response<Bytes> {
        let (content_type, body) = match format {
            ErrorFormat::Kubernetes => {
                let mut response = status::status(self.status, &self.message, decision);
                if let Some(seconds) = self.retry_after {
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
                }
                return response;
            }
            ErrorFormat::Tollgate => {
                let mut body = serde_json::json!({
                    "error": self.message,
                    "reason": self.reason,
                    "decision": decision.to_string(),
                });
                if let (Some(code), Some(members)) = (self.code, body.as_object_mut()) {
                    members.insert("code".to_owned(), code.into());
                }
                ("application/json", body.to_string())
            }
            // The body has no id, so that it is identical for what does not exist and what is not
            // the caller's.
            ErrorFormat::ApplicationSets => ("application/json", self.applicationset_body().to_string()),
            ErrorFormat::Argocd => ("text/plain; charset=utf-8", self.message.into_owned()),
        };
        let mut response = Response::new(Bytes::from(body + "\n"));
        *response.status_mut() = self.status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        if self.status == StatusCode::UNAUTHORIZED {
            fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tollgate\""));
        }
        if let Some(seconds) = self.retry_after {
            fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{ErrorFormat, Outcome, Rejection};
    use crate::extensions::permit;
    use tollgate_policy::rego;

    #[test]
    fn a_policy_that_is_given_up_denies_with_a_reason_of_its_own() {
        for (cause, reason) in [
            (
                rego::Error::Stuck {
                    limit: rego::STUCK_AFTER,
                },
                "policy_stuck",
            ),
            (
                rego::Error::Time {
                    limit: rego::DECISION_TIME_LIMIT,
                },
                "policy_failed",
            ),
        ] {
            let rejection = Rejection::from(permit::Error::Policy(cause));
            let answer = rejection.answer(ErrorFormat::Tollgate);
            assert_eq!((answer.status, answer.reason), (StatusCode::FORBIDDEN, reason));
            assert!(matches!(answer.outcome, Outcome::Failed));
            assert_eq!(answer.message, "the policy could not be evaluated");
            assert_eq!(rejection.answer(ErrorFormat::Argocd).status, StatusCode::UNAUTHORIZED);
        }
    }
}
