//! Maps the errors of all stages to responses, in one match: a status, a stable reason and a public
//! text. Everything else about an error goes only to the record.
//!
//! Security: a response shows no internals, and does not reveal whether something exists that the
//! caller may not see.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use uuid::Uuid;

mod kubernetes;
mod page;

pub(crate) use kubernetes::control_plane_reason;

use crate::applicationsets::answer::refusal_members;
use crate::applicationsets::grpc;
use crate::applicationsets::request::{self, Code};
use crate::argocd;
use crate::extensions::{call, permit};
use crate::kubernetes::route::KUBERNETES_PREFIX;
use crate::kubernetes::status;
use crate::open_exchanges::NotAdmitted;
use crate::platform::api;
use crate::projects::update;
use crate::sign_in;
use crate::sign_in::theme::Theme;
use crate::strangers;
use tollgate_applicationset::Denial;
use tollgate_config::Compatibility;
use tollgate_core::diagnostic::with_causes;
use tollgate_identity::sessions::EndReason;
use tollgate_identity::{access, authenticate, store};
use tollgate_plugin as plugin;
use tollgate_policy::rego;
use tollgate_proxy::record::Outcome;
use tollgate_proxy::{forward, headers, target};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejection {
    #[error(transparent)]
    Route(#[from] target::Error),
    #[error(transparent)]
    Server(#[from] tollgate_proxy::server::RequestReadError),
    #[error("nothing is served here")]
    NotFound,
    #[error(transparent)]
    Authenticate(#[from] authenticate::Error),
    #[error(transparent)]
    Call(#[from] call::Error),
    #[error(transparent)]
    Authorize(#[from] permit::Error),
    #[error("required plugins are not loaded: {0}")]
    PluginsMissing(String),
    #[error(transparent)]
    Plugin(#[from] plugin::CallError),
    #[error(transparent)]
    Limit(#[from] forward::LimitExceeded),
    #[error(transparent)]
    TooManyStrangers(#[from] strangers::TooMany),
    #[error(transparent)]
    Assertion(#[from] tollgate_proxy::assertion::Error),
    #[error(transparent)]
    Headers(#[from] headers::Error),
    #[error(transparent)]
    Forward(#[from] forward::Error),
    #[error(transparent)]
    Credential(#[from] tollgate_cluster::access::Error),
    #[error("the cluster's certificate cannot be used")]
    UnusableCertificate(#[source] forward::BuildError),
    #[error("this cluster's credential is neither a token nor a client certificate")]
    NotPortable,
    #[error(transparent)]
    Origin(#[from] crate::kubernetes::origin::Forbidden),
    /// The path is not below the Kubernetes front's prefix, but the credential is only for that
    /// front.
    #[error(
        "the URL does not start with the expected prefix `{KUBERNETES_PREFIX}`; `kubectl proxy` keeps it with \
         `--append-server-path`"
    )]
    WrongPrefix,
    #[error(transparent)]
    Agent(#[from] authenticate::k8s_proxy::Error),
    #[error(transparent)]
    Access(#[from] access::Error),
    #[error("impersonation by the client is not allowed here: remove `{0}` (`kubectl --as` and its like)")]
    ClientImpersonates(HeaderName),
    #[error(transparent)]
    Kubernetes(#[from] crate::kubernetes::permit::Error),
    #[error("the audit log cannot be written")]
    Audit(#[source] store::Error),
    #[error("the session has ended")]
    Ended(EndReason),
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("the agent's cluster is not known")]
    UnknownCluster,
    #[error("the cluster refused the gateway's own credential")]
    ClusterUnauthorized,
    #[error(transparent)]
    Application(#[from] crate::applications::permit::Error),
    #[error(transparent)]
    ControlPlane(#[from] crate::control_plane::permit::Error),
    #[error(transparent)]
    Discovery(#[from] tollgate_cluster::discovery::Error),
    #[error(transparent)]
    Platform(#[from] api::Error),
    #[error(transparent)]
    Project(#[from] update::Error),
    #[error(transparent)]
    ApplicationSet(#[from] request::Error),
    #[error(transparent)]
    Grpc(#[from] grpc::Error),
    #[error(transparent)]
    Argocd(#[from] argocd::permit::Error),
    #[error(transparent)]
    SignIn(#[from] sign_in::Error),
    /// The store does not have or take what a request is about.
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    NotAnAgent(#[from] tollgate_agent::NotAnAgent),
    #[error("a stage panicked")]
    Panicked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    Tollgate,
    Argocd,
    /// The format of kube-apiserver: a `Status`.
    Kubernetes,
    /// The format of Argo CD's API, with a list of everything that is refused.
    ApplicationSets,
    /// A page for people with a browser.
    Page,
    /// A page of the console.
    Console(Theme),
}

impl ErrorFormat {
    pub(crate) fn of(compatibility: Compatibility) -> Self {
        match compatibility {
            Compatibility::None => Self::Tollgate,
            Compatibility::Argocd => Self::Argocd,
        }
    }
}

/// The response to a rejected request, before it is rendered.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    /// Stable reason code in snake case, for programs and metric labels.
    pub(crate) reason: &'static str,
    pub(crate) message: Cow<'static, str>,
    /// Whole seconds until a retry makes sense.
    pub(crate) retry_after: Option<u64>,
    pub(crate) code: Option<String>,
    /// The gRPC status code, if the HTTP status does not determine it.
    pub(crate) grpc: Option<Code>,
    /// Everything that is refused, if the message does not say it all.
    pub(crate) refusals: Vec<Denial>,
    /// Number of refusals that are left out of `refusals`.
    pub(crate) more_refusals: usize,
    pub(crate) outcome: Outcome,
}

impl Rejection {
    /// Text for operators: the whole chain of causes.
    pub(crate) fn detail(&self) -> String {
        with_causes(self)
    }

    pub(crate) fn answer(&self, format: ErrorFormat) -> ErrorResponse {
        let answer = self.native_response();
        match format {
            ErrorFormat::Tollgate
            | ErrorFormat::Kubernetes
            | ErrorFormat::ApplicationSets
            | ErrorFormat::Page
            | ErrorFormat::Console(_) => answer,
            ErrorFormat::Argocd => self.as_argocd(answer),
        }
    }

    /// The response before Argo CD's format is applied.
    fn native_response(&self) -> ErrorResponse {
        let text = || self.to_string();
        match self {
            Self::Route(_) => denied(StatusCode::BAD_REQUEST, "bad_request_target", text()),
            Self::Server(error) => {
                let retry_after = (error.status() == StatusCode::TOO_MANY_REQUESTS).then_some(1);
                denied(error.status(), server_refusal_reason(error), text()).retry_after(retry_after)
            }
            Self::NotFound => denied(StatusCode::NOT_FOUND, "not_found", text()),
            Self::Authenticate(error) => authentication_error(error),
            Self::Call(error) => denied(StatusCode::BAD_REQUEST, error.code(), text()),
            Self::Authorize(error) => authorization_error(error),
            Self::PluginsMissing(_) => {
                let text = "the gateway is not completely set up";
                failed(StatusCode::SERVICE_UNAVAILABLE, "plugin_missing", text)
            }
            Self::Plugin(error) => plugin_error(error),
            Self::Limit(error) => denied(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", text())
                .retry_after(Some(error.retry_after_seconds)),
            Self::TooManyStrangers(error) => {
                let reason = match error {
                    strangers::TooMany::OfAddress => "too_many_requests_of_address",
                    strangers::TooMany::InTotal => "too_many_requests_of_strangers",
                };
                denied(StatusCode::TOO_MANY_REQUESTS, reason, text()).retry_after(Some(1))
            }
            Self::Assertion(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "assertion_failed", NOT_PREPARED),
            Self::Headers(error) => headers_error(error),
            Self::Forward(error) => forward_error(error),
            Self::Credential(error) => credential_error(error),
            Self::UnusableCertificate(_) => ErrorResponse {
                code: Some("config.certificate".to_owned()),
                ..failed(StatusCode::BAD_GATEWAY, "credential_unavailable", text())
            },
            Self::NotPortable => failed(StatusCode::CONFLICT, "credential_not_portable", text()),
            Self::Origin(_) => denied(StatusCode::FORBIDDEN, "origin_not_allowed", text()),
            Self::WrongPrefix => denied(StatusCode::BAD_REQUEST, "wrong_prefix", text()),
            Self::Agent(error) => kubernetes::agent_credential_error(error),
            Self::Access(error) => kubernetes::access_error(error),
            Self::ClientImpersonates(_) => denied(StatusCode::BAD_REQUEST, "client_impersonates", text()),
            Self::Kubernetes(error) => kubernetes::kubernetes_error(error),
            Self::Application(error) => kubernetes::application_error(error),
            Self::ControlPlane(error) => kubernetes::control_plane_error(error),
            Self::Discovery(error) => kubernetes::discovery_error(error),
            Self::Store(_) => {
                let text = "the gateway's store does not answer, try again later";
                failed(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", text)
            }
            Self::Audit(_) => {
                let text = "the request cannot be written down right now, try again later";
                failed(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", text)
            }
            Self::Ended(ending) => kubernetes::ended(*ending),
            Self::NotAdmitted(NotAdmitted(EndReason::Withdrawn)) => {
                denied(StatusCode::FORBIDDEN, EndReason::Withdrawn.code(), text())
            }
            Self::NotAdmitted(NotAdmitted(ending)) => forward_error(&forward::Error::Ended(*ending)),
            Self::UnknownCluster => failed(StatusCode::BAD_GATEWAY, "cluster_unknown", text()),
            Self::ClusterUnauthorized => failed(StatusCode::BAD_GATEWAY, "credential_refused", text()),
            Self::Platform(error) => ErrorResponse::of(error.answer(), text()),
            Self::SignIn(error) => match error.answer() {
                (status, reason) if status.is_server_error() => failed(status, reason, text()),
                (status, reason) => denied(status, reason, text()),
            },
            Self::Project(error) => ErrorResponse::of(error.answer(), error.text()),
            Self::ApplicationSet(error) => applicationset_error(error),
            Self::Grpc(error) => {
                let (code, status, reason) = error.answer();
                ErrorResponse {
                    grpc: Some(code),
                    ..ErrorResponse::of((status, reason), text())
                }
            }
            Self::Argocd(error) => argocd_error(error),
            Self::NotAnAgent(_) => denied(StatusCode::BAD_REQUEST, "not_an_agent", text()),
            Self::Panicked => {
                let text = "the gateway could not answer the request";
                failed(StatusCode::INTERNAL_SERVER_ERROR, "panic", text)
            }
        }
    }

    /// Statuses and texts of Argo CD's extension handler (source: `CallExtension`). What it does not
    /// refuse stays as it is.
    fn as_argocd(&self, native: ErrorResponse) -> ErrorResponse {
        use authenticate::Error as Authenticate;
        let (status, message): (_, Cow<'static, str>) = match self {
            Self::Authenticate(Authenticate::NoCredential | Authenticate::Malformed(_)) => {
                (StatusCode::BAD_REQUEST, "Auth cookie not found".into())
            }
            Self::Authenticate(Authenticate::SessionUnusable(_)) => {
                (StatusCode::UNAUTHORIZED, "Invalid session".into())
            }
            Self::Authenticate(
                Authenticate::Invalid(_)
                | Authenticate::Expired
                | Authenticate::Revoked(_)
                | Authenticate::IssuerUnavailable { .. },
            ) => (StatusCode::UNAUTHORIZED, "Invalid token".into()),
            Self::Route(target::Error::ExtensionName) | Self::Call(call::Error::MissingName) => {
                (StatusCode::BAD_REQUEST, format!("Invalid URL: {self}").into())
            }
            Self::Call(_) => (StatusCode::BAD_REQUEST, format!("Invalid headers: {self}").into()),
            Self::Authorize(permit::Error::Denied(_) | permit::Error::Policy(_)) => {
                (StatusCode::UNAUTHORIZED, "Unauthorized extension request".into())
            }
            Self::Authorize(permit::Error::UnknownExtension(_)) => {
                (StatusCode::NOT_FOUND, "Extension not found".into())
            }
            Self::Authorize(permit::Error::NoBackend(_)) => (StatusCode::BAD_REQUEST, "invalid extension".into()),
            _ => return native,
        };
        ErrorResponse {
            status,
            message,
            ..native
        }
    }
}

const NOT_PREPARED: &str = "the request could not be prepared";

fn server_refusal_reason(refusal: &tollgate_proxy::server::RequestReadError) -> &'static str {
    use tollgate_proxy::server::RequestReadError;
    match refusal {
        RequestReadError::Target(_) | RequestReadError::ContentTooLong { .. } => "bad_request",
        RequestReadError::Malformed => "malformed_head",
        RequestReadError::Ambiguous => "ambiguous_head",
        RequestReadError::TargetTooLong => "target_too_long",
        RequestReadError::TooManyFields { .. } | RequestReadError::HeadTooLarge => "head_too_large",
        RequestReadError::HeadTimeout { .. } => "head_timeout",
        RequestReadError::Forwarded(_) => "bad_forwarded_fields",
        RequestReadError::TooManyOfAddress => "too_many_requests_of_address",
    }
}

fn authentication_error(error: &authenticate::Error) -> ErrorResponse {
    use authenticate::{Error, UserinfoError};
    let unauthorized = |text: &'static str| denied(StatusCode::UNAUTHORIZED, error.code(), text);
    match error {
        Error::NoCredential | Error::Malformed(_) => denied(StatusCode::UNAUTHORIZED, error.code(), error.to_string()),
        Error::CrossSite { .. } => denied(StatusCode::FORBIDDEN, error.code(), error.to_string()),
        // One reason for all of them, so that a forger does not learn which check failed.
        Error::Invalid(_) => denied(StatusCode::UNAUTHORIZED, "invalid_token", "the token is not valid"),
        Error::Expired => unauthorized(TOKEN_EXPIRED),
        Error::Revoked(_) => unauthorized("the token was revoked, sign in again"),
        Error::SessionUnusable(UserinfoError::OtherSubject) => unauthorized("the session is not usable"),
        Error::SessionUnusable(UserinfoError::Unreachable | UserinfoError::Busy) => {
            let text = "the issuer does not say who the caller is right now, try again later";
            failed(StatusCode::SERVICE_UNAVAILABLE, error.code(), text).retry_after(Some(5))
        }
        Error::RevocationsUnavailable => kubernetes::revocations_unavailable(),
        Error::StoreUnavailable(_) => {
            let text = "the login cannot be checked right now, try again later";
            failed(StatusCode::SERVICE_UNAVAILABLE, error.code(), text).retry_after(Some(5))
        }
        Error::Locked => denied(
            StatusCode::FORBIDDEN,
            error.code(),
            "you are locked: ask the people who run the gateway",
        ),
        Error::Scope(_) => denied(StatusCode::FORBIDDEN, error.code(), error.to_string()),
        Error::IssuerUnavailable { .. } => {
            let text = "the token cannot be checked right now, try again later";
            failed(StatusCode::SERVICE_UNAVAILABLE, error.code(), text).retry_after(Some(5))
        }
    }
}

const TOKEN_EXPIRED: &str = "the token has expired, sign in again";

fn authorization_error(error: &permit::Error) -> ErrorResponse {
    use permit::Error;
    let text = error.to_string();
    match error {
        Error::Denied(reason) => denied(StatusCode::FORBIDDEN, "permission_denied", reason.clone()),
        Error::UnknownExtension(_) => denied(StatusCode::NOT_FOUND, "extension_not_found", text),
        Error::NoBackend(_) => failed(StatusCode::NOT_FOUND, "no_backend_for_cluster", text),
        Error::ClusterDenied { .. } => denied(StatusCode::FORBIDDEN, "permission_denied", text),
        Error::UnknownCluster { .. } => denied(StatusCode::NOT_FOUND, "cluster_not_found", text),
        Error::AmbiguousCluster { .. } => denied(StatusCode::CONFLICT, "cluster_ambiguous", text),
        Error::Policy(rego::Error::Stuck) => failed(StatusCode::FORBIDDEN, "policy_stuck", text),
        Error::Policy(_) => failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

fn plugin_error(error: &plugin::CallError) -> ErrorResponse {
    use plugin::CallError;
    match error {
        CallError::Refused { status, reason, .. } => denied(*status, "refused_by_plugin", reason.clone()),
        CallError::Busy { .. } => {
            let text = "the gateway is busy, try again";
            failed(StatusCode::SERVICE_UNAVAILABLE, "plugin_busy", text).retry_after(Some(1))
        }
        CallError::Trap { .. }
        | CallError::Timeout { .. }
        | CallError::Memory { .. }
        | CallError::InvalidOutput { .. } => {
            let text = "a plugin could not do its work";
            failed(StatusCode::INTERNAL_SERVER_ERROR, "plugin_failed", text)
        }
    }
}

fn headers_error(error: &headers::Error) -> ErrorResponse {
    use headers::Error;
    match error {
        Error::NotUtf8 { .. } | Error::ConnectionOption | Error::UpgradeContent | Error::Authority(_) => {
            denied(StatusCode::BAD_REQUEST, "bad_headers", error.to_string())
        }
        Error::Identity { .. } | Error::Nameless => {
            denied(StatusCode::FORBIDDEN, "unusable_identity", error.to_string())
        }
        Error::Forbidden { .. }
        | Error::Duplicate { .. }
        | Error::Value { .. }
        | Error::Credential
        | Error::Impersonation => failed(StatusCode::INTERNAL_SERVER_ERROR, "headers_refused", NOT_PREPARED),
    }
}

/// Only permitted callers get this error, so they may see the code. The provider's text is for
/// operators.
fn credential_error(error: &tollgate_cluster::access::Error) -> ErrorResponse {
    let (class, code): (&str, _) = (error.class().into(), error.code());
    let message = format!("the cluster's credential is not available ({class}, `{code}`)");
    let retry_after = error.retry_after();
    let status = match retry_after {
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
        None => StatusCode::BAD_GATEWAY,
    };
    // Whole seconds, rounded up: a retry that comes too soon is refused.
    let seconds = |wait: Duration| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    ErrorResponse {
        code: Some(code.to_owned()),
        ..failed(status, "credential_unavailable", message).retry_after(retry_after.map(seconds))
    }
}

fn applicationset_error(error: &request::Error) -> ErrorResponse {
    let (status, reason) = error.answer();
    let answer = match reason {
        "policy_failed" => failed(status, reason, error.text()),
        _ => ErrorResponse::of((status, reason), error.text()),
    };
    let (refusals, more_refusals) = error.refusals();
    ErrorResponse {
        grpc: Some(error.grpc()),
        refusals: refusals.to_vec(),
        more_refusals,
        ..answer.retry_after(error.retry_after())
    }
}

fn argocd_error(error: &argocd::permit::Error) -> ErrorResponse {
    use argocd::RequestError;
    use argocd::permit::Error;
    let text = || error.to_string();
    match error {
        Error::Denied(reason) => denied(StatusCode::FORBIDDEN, "permission_denied", reason.clone()),
        Error::Child(_) => denied(StatusCode::FORBIDDEN, "permission_denied", text()),
        Error::Policy(rego::Error::Stuck) => failed(StatusCode::FORBIDDEN, "policy_stuck", text()),
        Error::Policy(_) => failed(StatusCode::FORBIDDEN, "policy_failed", text()),
        Error::Request(RequestError::Content(error)) => forward_error(error),
        Error::Request(RequestError::ContentType) => {
            denied(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_content_type", text())
        }
        Error::Request(RequestError::Slow) => denied(StatusCode::REQUEST_TIMEOUT, "client_silent", text()),
        Error::Request(RequestError::TooLong { .. }) => {
            denied(StatusCode::PAYLOAD_TOO_LARGE, "content_too_large", text())
        }
        Error::Request(
            RequestError::Frame
            | RequestError::Compressed
            | RequestError::Diff(_)
            | RequestError::Name(_)
            | RequestError::Parameter(_)
            | RequestError::Message(_),
        ) => denied(StatusCode::BAD_REQUEST, "bad_message", text()),
    }
}

fn forward_error(error: &forward::Error) -> ErrorResponse {
    use forward::Error;
    use tollgate_agent::connections::RequestError;
    let reason = match error {
        Error::Connect(_) => "backend_unreachable",
        Error::Broken(_) => "backend_broke_off",
        Error::Ended(ending) => {
            let text = match ending {
                // The same as for a credential that expired before it was checked.
                EndReason::Expired => TOKEN_EXPIRED,
                EndReason::Revoked => "the session was revoked, sign in again",
                EndReason::Withdrawn => "access was withdrawn",
                EndReason::StoreUnavailable => return kubernetes::store_unavailable(),
                EndReason::RevocationsUnavailable => return kubernetes::revocations_unavailable(),
                EndReason::Stopping => return kubernetes::stopping(),
            };
            return denied(error.status(), ending.code(), text);
        }
        Error::Silent { .. } => "backend_silent",
        Error::ExchangeTimeout { .. } => "backend_too_slow",
        Error::ContentTooLarge => "content_too_large",
        Error::ClientSilent => "client_silent",
        Error::ClientBroken => "client_broke_off",
        Error::Protocol => "protocol_not_asked_for",
        Error::UpgradeRefused { .. } => "protocol_not_switched",
        Error::Agent(RequestError::Absent) => "agent_absent",
        Error::Agent(RequestError::Busy) => "agent_busy",
        Error::Agent(RequestError::Broken(_) | RequestError::BrokenElsewhere) => "agent_broke_off",
        Error::Agent(RequestError::Wire(_)) => "agent_answer_unusable",
        Error::WrongBackend => "wrong_backend",
    };
    failed(error.status(), reason, error.to_string())
}

fn denied(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> ErrorResponse {
    ErrorResponse {
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

fn failed(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> ErrorResponse {
    ErrorResponse {
        outcome: Outcome::Failed,
        ..denied(status, reason, message)
    }
}

impl ErrorResponse {
    /// The response of an API, whose own failures are its statuses from 500 on.
    fn of((status, reason): (StatusCode, &'static str), message: impl Into<Cow<'static, str>>) -> Self {
        match status.is_server_error() {
            true => failed(status, reason, message),
            false => denied(status, reason, message),
        }
    }

    fn retry_after(self, retry_after: Option<u64>) -> Self {
        Self { retry_after, ..self }
    }

    /// The body in the format of Argo CD's API (`error`, `code`, `message`), with the refusals.
    fn applicationset_body(&self) -> serde_json::Value {
        let mut body = serde_json::json!({
            "error": self.message,
            "code": self.grpc().number(),
            "message": self.message,
            "reason": self.reason,
        });
        if let (false, Some(members)) = (self.refusals.is_empty(), body.as_object_mut()) {
            members.extend(refusal_members(&self.refusals, self.more_refusals));
        }
        body
    }

    pub(crate) fn grpc(&self) -> Code {
        self.grpc.unwrap_or_else(|| Code::from_http_status(self.status))
    }

    /// Renders the HTTP response: JSON with reason and decision id, plain text in Argo CD's format,
    /// or a `Status`.
    pub(crate) fn into_response(self, decision: Uuid, format: ErrorFormat) -> Response<Bytes> {
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
            ErrorFormat::Page => ("text/html; charset=utf-8", page::page(&self, decision)),
            ErrorFormat::Console(theme) => {
                let (title, link) = match self.status.is_server_error() {
                    true => ("This does not work right now", ("/console/", "Try again")),
                    false => ("That was refused", ("/console/sign-in", "Sign in again")),
                };
                let text = format!("{} ({}).", self.message, self.reason);
                let page = sign_in::refusal_page((title, text), link, (decision, theme));
                ("text/html; charset=utf-8", page)
            }
        };
        let mut response = Response::new(Bytes::from(body + "\n"));
        *response.status_mut() = self.status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        if matches!(format, ErrorFormat::Console(_)) {
            sign_in::pages::protect(fields);
        }
        if format == ErrorFormat::Page {
            fields.insert(
                CONTENT_SECURITY_POLICY,
                HeaderValue::from_static(page::CONTENT_SECURITY_POLICY),
            );
        }
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
    fn an_abandoned_policy_denies_with_its_own_reason() {
        for (cause, reason) in [
            (rego::Error::Stuck, "policy_stuck"),
            (rego::Error::Time, "policy_failed"),
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
