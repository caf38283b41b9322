//! Denials made of errors that several fronts share.
//!
//! Security: every 401 of the way into clusters has the same text, so that it does not reveal which agents or tokens
//! exist.

use std::time::Duration;

use http::StatusCode;

use super::Denial;
use tollgate_agent::NotAnAgent;
use tollgate_agent::request::RequestError;
use tollgate_cluster::discovery;
use tollgate_identity::access;
use tollgate_identity::authenticate::{self, k8s_proxy};
use tollgate_identity::sessions::EndReason;
use tollgate_proxy::server::RequestReadError;
use tollgate_proxy::{assertion, forward, headers, target};
use tollgate_store as store;

/// The text of every 401 on the way into clusters.
const UNAUTHORIZED: &str = "Unauthorized";

const NOT_PREPARED: &str = "the request could not be prepared";
const TOKEN_EXPIRED: &str = "the token has expired, sign in again";

impl From<target::Error> for Denial {
    fn from(error: target::Error) -> Self {
        let text = error.to_string();
        let mut denial = Self::denied(StatusCode::BAD_REQUEST, "bad_request_target", text);
        if matches!(error, target::Error::ExtensionName) {
            denial.as_argocd = Some((StatusCode::BAD_REQUEST, format!("Invalid URL: {error}").into()));
        }
        denial.caused_by(error)
    }
}

impl From<RequestReadError> for Denial {
    fn from(error: RequestReadError) -> Self {
        let reason = match &error {
            RequestReadError::Target(_) | RequestReadError::ContentTooLong { .. } => "bad_request",
            RequestReadError::Malformed => "malformed_head",
            RequestReadError::Ambiguous => "ambiguous_head",
            RequestReadError::TargetTooLong => "target_too_long",
            RequestReadError::TooManyFields { .. } | RequestReadError::HeadTooLarge => "head_too_large",
            RequestReadError::HeadTimeout { .. } => "head_timeout",
            RequestReadError::Forwarded(_) => "bad_forwarded_fields",
            RequestReadError::TooManyOfAddress => "too_many_requests_of_address",
        };
        // A slot is free as soon as another request ends, which takes no known time.
        let retry_after = (error.status() == StatusCode::TOO_MANY_REQUESTS).then_some(1);
        let denial = Self::denied(error.status(), reason, error.to_string()).retry_after(retry_after);
        denial.caused_by(error)
    }
}

impl From<authenticate::Error> for Denial {
    fn from(error: authenticate::Error) -> Self {
        use authenticate::{Error, UserinfoError};
        let code = error.code();
        let unauthorized = |text: &'static str| Self::denied(StatusCode::UNAUTHORIZED, code, text);
        let unavailable =
            |text: &'static str| Self::failed(StatusCode::SERVICE_UNAVAILABLE, code, text).retry_after(Some(5));
        let mut denial = match &error {
            Error::NoCredential | Error::Malformed(_) => {
                Self::denied(StatusCode::UNAUTHORIZED, code, error.to_string())
            }
            Error::CrossSite { .. } | Error::Scope(_) => Self::denied(StatusCode::FORBIDDEN, code, error.to_string()),
            // One reason for all of them, so that a forger does not learn which check failed.
            Error::Invalid(_) => Self::denied(StatusCode::UNAUTHORIZED, "invalid_token", "the token is not valid"),
            Error::Expired => unauthorized(TOKEN_EXPIRED),
            Error::Revoked(_) => unauthorized("the token was revoked, sign in again"),
            Error::SessionUnusable(UserinfoError::OtherSubject) => unauthorized("the session is not usable"),
            Error::SessionUnusable(UserinfoError::Unreachable | UserinfoError::Busy) => {
                unavailable("the issuer does not say who the caller is right now, try again later")
            }
            Error::RevocationsUnavailable => revocations_unavailable(),
            Error::StoreUnavailable(_) => unavailable("the login cannot be checked right now, try again later"),
            Error::Locked => {
                let text = "you are locked: ask the people who run the gateway";
                Self::denied(StatusCode::FORBIDDEN, code, text)
            }
            // Not 401, because the token may be valid.
            Error::IssuerUnavailable { .. } => unavailable("the token cannot be checked right now, try again later"),
        };
        denial.as_argocd = match &error {
            Error::NoCredential | Error::Malformed(_) => {
                Some((StatusCode::BAD_REQUEST, "Auth cookie not found".into()))
            }
            Error::SessionUnusable(_) => Some((StatusCode::UNAUTHORIZED, "Invalid session".into())),
            Error::Invalid(_) | Error::Expired | Error::Revoked(_) | Error::IssuerUnavailable { .. } => {
                Some((StatusCode::UNAUTHORIZED, "Invalid token".into()))
            }
            Error::CrossSite { .. }
            | Error::RevocationsUnavailable
            | Error::StoreUnavailable(_)
            | Error::Locked
            | Error::Scope(_) => None,
        };
        denial.caused_by(error)
    }
}

impl From<forward::LimitExceeded> for Denial {
    fn from(error: forward::LimitExceeded) -> Self {
        let seconds = error.retry_after_seconds;
        let denial = Self::denied(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", error.to_string());
        denial.retry_after(Some(seconds)).caused_by(error)
    }
}

impl From<assertion::Error> for Denial {
    fn from(error: assertion::Error) -> Self {
        Self::failed(StatusCode::INTERNAL_SERVER_ERROR, "assertion_failed", NOT_PREPARED).caused_by(error)
    }
}

impl From<headers::Error> for Denial {
    fn from(error: headers::Error) -> Self {
        use headers::Error;
        let denial = match &error {
            Error::NotUtf8 { .. } | Error::ConnectionOption | Error::UpgradeContent | Error::Authority(_) => {
                Self::denied(StatusCode::BAD_REQUEST, "bad_headers", error.to_string())
            }
            Error::Identity { .. } | Error::Nameless => {
                Self::denied(StatusCode::FORBIDDEN, "unusable_identity", error.to_string())
            }
            // A plugin or policy made these fields. The client cannot correct them, and learns nothing about them.
            Error::Forbidden { .. }
            | Error::Duplicate { .. }
            | Error::Value { .. }
            | Error::Credential
            | Error::Impersonation => Self::failed(StatusCode::INTERNAL_SERVER_ERROR, "headers_refused", NOT_PREPARED),
        };
        denial.caused_by(error)
    }
}

/// Only permitted callers get this error, so they may see the code. The provider's text is for operators.
impl From<tollgate_cluster::access::Error> for Denial {
    fn from(error: tollgate_cluster::access::Error) -> Self {
        let (class, code): (&str, _) = (error.class().into(), error.code().to_owned());
        let message = format!("the cluster's credential is not available ({class}, `{code}`)");
        let retry_after = error.retry_after();
        let status = match retry_after {
            Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            None => StatusCode::BAD_GATEWAY,
        };
        // Whole seconds, rounded up: a retry that comes too soon is refused.
        let seconds = |wait: Duration| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
        let mut denial = Self::failed(status, "credential_unavailable", message).retry_after(retry_after.map(seconds));
        denial.code = Some(code);
        denial.caused_by(error)
    }
}

impl From<forward::Error> for Denial {
    fn from(error: forward::Error) -> Self {
        use forward::Error;
        let status = error.status();
        let reason = match &error {
            Error::Connect(_) => "backend_unreachable",
            Error::Broken(_) => "backend_broke_off",
            Error::Ended(ending) => {
                let text = match ending {
                    // The same as for a credential that expired before it was checked.
                    EndReason::Expired => TOKEN_EXPIRED,
                    EndReason::Revoked => "the session was revoked, sign in again",
                    EndReason::Withdrawn => "access was withdrawn",
                    EndReason::StoreUnavailable => return store_unavailable().caused_by(error),
                    EndReason::RevocationsUnavailable => return revocations_unavailable().caused_by(error),
                    EndReason::Stopping => return stopping().caused_by(error),
                };
                return Self::denied(status, ending.code(), text).caused_by(error);
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
        let text = error.to_string();
        Self::failed(status, reason, text).caused_by(error)
    }
}

impl From<k8s_proxy::Error> for Denial {
    fn from(error: k8s_proxy::Error) -> Self {
        use k8s_proxy::Error;
        let denial = match &error {
            Error::NoCredential => Self::denied(StatusCode::UNAUTHORIZED, "no_credential", UNAUTHORIZED),
            Error::UnknownKind => Self::denied(StatusCode::UNAUTHORIZED, "unknown_credential", UNAUTHORIZED),
            Error::Malformed(_) => Self::denied(StatusCode::BAD_REQUEST, "malformed_credential", error.to_string()),
        };
        denial.caused_by(error)
    }
}

impl From<access::Error> for Denial {
    fn from(error: access::Error) -> Self {
        use access::Error;
        let denial = match &error {
            Error::Refused { .. } => Self::denied(StatusCode::UNAUTHORIZED, "access_refused", UNAUTHORIZED),
            Error::JobNotAllowed => Self::denied(StatusCode::FORBIDDEN, "job_not_allowed", error.to_string()),
            Error::Unavailable { .. } => {
                let text = "failed to authorize the user session";
                Self::failed(StatusCode::INTERNAL_SERVER_ERROR, "access_unavailable", text)
            }
        };
        denial.caused_by(error)
    }
}

impl From<discovery::Error> for Denial {
    fn from(error: discovery::Error) -> Self {
        use discovery::Error;
        let text = error.to_string();
        let denial = match &error {
            Error::Unknown { .. } => Self::denied(StatusCode::NOT_FOUND, "resource_unknown", text),
            Error::Unavailable { .. } => {
                Self::failed(StatusCode::SERVICE_UNAVAILABLE, "discovery_failed", text).retry_after(Some(1))
            }
        };
        denial.caused_by(error)
    }
}

/// The store does not have or take what a request is about.
impl From<store::Error> for Denial {
    fn from(error: store::Error) -> Self {
        let text = "the gateway's store does not answer, try again later";
        Self::failed(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", text).caused_by(error)
    }
}

impl From<NotAnAgent> for Denial {
    fn from(error: NotAnAgent) -> Self {
        Self::denied(StatusCode::BAD_REQUEST, "not_an_agent", error.to_string()).caused_by(error)
    }
}

/// The session of a request through an agent has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the session has ended")]
pub struct AccessEnded(pub EndReason);

impl From<AccessEnded> for Denial {
    fn from(error: AccessEnded) -> Self {
        let AccessEnded(ending) = error;
        let denial = match ending {
            EndReason::Revoked | EndReason::Expired | EndReason::Withdrawn => {
                Self::denied(StatusCode::UNAUTHORIZED, ending.code(), UNAUTHORIZED)
            }
            EndReason::StoreUnavailable => store_unavailable(),
            EndReason::RevocationsUnavailable => revocations_unavailable(),
            EndReason::Stopping => stopping(),
        };
        denial.caused_by(error)
    }
}

/// It cannot be determined whether the caller was revoked. Another replica may know.
fn store_unavailable() -> Denial {
    let text = "the store is unavailable, try again later";
    Denial::failed(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", text).retry_after(Some(1))
}

/// It cannot be determined whether Argo CD revoked the caller's token.
fn revocations_unavailable() -> Denial {
    let text = "Argo CD's list of revoked tokens is unavailable, try again later";
    let code = EndReason::RevocationsUnavailable.code();
    Denial::failed(StatusCode::SERVICE_UNAVAILABLE, code, text).retry_after(Some(1))
}

/// The request was not answered when the gateway stopped. Another replica answers it.
fn stopping() -> Denial {
    let text = "the gateway is stopping, try again";
    Denial::failed(StatusCode::SERVICE_UNAVAILABLE, EndReason::Stopping.code(), text).retry_after(Some(1))
}
