//! `POST /api/v4/internal/kubernetes/authorize_proxy_user`: this gateway as the platform of
//! other gateways.
//!
//! A gateway that has the shared secret sends a query and gets the answer as JSON. Errors are 400,
//! 401 without the secret, 401 with a different body for an invalid credential, 403, 404 and 500. CI
//! jobs are not supported.
//!
//! Security: the secret is checked before anything else is read. The answer never says why a
//! credential is invalid.
//!
//! Source: GitLab, `API::Internal::Kubernetes`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};

use super::agents::Agents;
use super::authorizer::Authorizer;
use super::gateway_token::SharedSecret;
use super::remote::{INVALID_KEY, SetupError, WireId};
use super::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error, IdToken};
use crate::clock::Clock;
use tollgate_core::agent::AgentId;
use tollgate_core::session::AccessType;
use tollgate_core::user::{AccessAs, Membership};

/// Path of the endpoint.
pub const PATH: &str = "/api/v4/internal/kubernetes/authorize_proxy_user";
/// Most bytes of one query: the longest ID token and a little more.
pub const MAX_BODY_BYTES: usize = 128 * 1024;
/// Header field with which a gateway authenticates.
pub const AUTH_HEADER: http::HeaderName = super::gateway_token::HEADER_NAME;

const INVALID_QUERY: &str = "the body is not a valid query for access to an agent";

/// Another gateway that has proved that it has the shared secret.
#[derive(Debug)]
pub struct AdmittedGateway(());

/// The answer to a sender without the secret.
pub fn not_admitted() -> Response<Bytes> {
    let text = "the gateway's own token is missing or not valid";
    message(StatusCode::UNAUTHORIZED, text)
}

/// The platform endpoint for other gateways.
#[derive(Debug)]
pub struct PlatformEndpoint {
    secret: SharedSecret,
    clock: Clock,
}

#[derive(Deserialize)]
struct WireAccessQuery {
    agent_id: WireId,
    access_type: AccessType,
    access_key: SecretString,
    csrf_token: Option<SecretString>,
}

impl PlatformEndpoint {
    /// Builds the endpoint from the settings; `None` without `platformSecretFile`. Blocks.
    ///
    /// # Errors
    /// [`SetupError`]: the secret cannot be used, or this gateway is not its own platform.
    pub fn new(config: &tollgate_config::Kubernetes, clock: Clock) -> Result<Option<Self>, SetupError> {
        let Some(file) = &config.platform_secret else {
            return Ok(None);
        };
        match config.authorizer {
            tollgate_config::Authorizer::Embedded => Ok(Some(Self {
                secret: SharedSecret::read(file)?,
                clock,
            })),
            tollgate_config::Authorizer::Remote { .. } => Err(SetupError::RemoteAuthorizer),
        }
    }

    /// Checks the sender of a query by the head of its request alone. `None` gets [`not_admitted`].
    ///
    /// - `field`: value of `Gitlab-Kas-Api-Request`, if there is exactly one.
    pub fn admit(&self, field: Option<&HeaderValue>) -> Option<AdmittedGateway> {
        let is_valid = self.secret.is_valid_token(field?, self.clock.unix_seconds());
        is_valid.then_some(AdmittedGateway(()))
    }
}

impl AdmittedGateway {
    /// Answers one query.
    ///
    /// - `body`: at most [`MAX_BODY_BYTES`]; the caller bounds it.
    /// - `verify`: verifies an ID token, as for this gateway's own requests.
    ///
    /// Cancel safe.
    pub async fn answer<V, F>(
        self,
        body: &[u8],
        authorizer: &Authorizer,
        agents: &Arc<Agents>,
        verify: V,
    ) -> Response<Bytes>
    where
        V: FnOnce(SecretString) -> F,
        F: Future<Output = Result<Arc<IdToken>, Error>>,
    {
        let Ok(wire) = serde_json::from_slice::<WireAccessQuery>(body) else {
            return message(StatusCode::BAD_REQUEST, INVALID_QUERY);
        };
        let Some(agent) = wire.agent_id.number().and_then(AgentId::new) else {
            return message(StatusCode::BAD_REQUEST, "`agent_id` is not a number");
        };
        let key = match (wire.access_type, wire.csrf_token) {
            (AccessType::PersonalAccessToken, _) => AccessKey::PersonalAccessToken(wire.access_key),
            (AccessType::OidcIdToken, _) => match verify(wire.access_key).await {
                Ok(token) => AccessKey::OidcIdToken(token),
                Err(error) => return refused(&error),
            },
            (AccessType::SessionCookie, Some(csrf_token)) => AccessKey::SessionCookie {
                cookie: wire.access_key,
                csrf_token,
            },
            (AccessType::SessionCookie, None) => return message(StatusCode::BAD_REQUEST, "`csrf_token` is missing"),
            // Jobs need a platform that runs them, and a login belongs to one gateway.
            (AccessType::CiJobToken | AccessType::Login, _) => return message(StatusCode::BAD_REQUEST, INVALID_QUERY),
        };
        match authorizer.authorize(agents, &AccessQuery { agent, key }).await {
            Ok(access) => granted(&access),
            Err(error) => refused(&error),
        }
    }
}

fn granted(access: &AccessGrant) -> Response<Bytes> {
    let access_as = match &access.facts.access_as {
        AccessAs::Agent => json!({ "agent": {} }),
        AccessAs::User { projects, groups } => json!({
            "user": { "projects": memberships(projects), "groups": memberships(groups) }
        }),
        AccessAs::Mapped(_) => json!({ "mapped": {} }),
        AccessAs::CiJob(_) | AccessAs::Impersonate(_) => {
            // Cannot occur: no query has the token of a job.
            return message(StatusCode::INTERNAL_SERVER_ERROR, "the answer is about a CI job");
        }
    };
    let (agent, user) = (access.agent(), access.user());
    let body = json!({
        "agent": { "id": agent.id.get(), "config_project": { "id": agent.config_project } },
        "user": { "id": user.id, "username": user.username },
        "access_as": access_as,
    });
    respond(StatusCode::OK, "application/json", body.to_string().into())
}

fn memberships(of: &[Membership]) -> Vec<Value> {
    let one = |membership: &Membership| {
        let roles: Vec<&str> = membership.roles.iter().map(AsRef::as_ref).collect();
        json!({ "id": membership.id, "roles": roles })
    };
    of.iter().map(one).collect()
}

fn refused(error: &Error) -> Response<Bytes> {
    match error {
        Error::Refused { reason, .. } => match reason {
            AccessDenyReason::UnknownKey
            | AccessDenyReason::Expired
            | AccessDenyReason::Revoked
            | AccessDenyReason::Csrf
            | AccessDenyReason::UnknownUser
            | AccessDenyReason::FormerUser
            | AccessDenyReason::NameTaken
            | AccessDenyReason::Blocked
            | AccessDenyReason::Locked
            | AccessDenyReason::IdToken(_) => {
                let body = Bytes::from_static(INVALID_KEY.as_bytes());
                respond(StatusCode::UNAUTHORIZED, "text/plain; charset=utf-8", body)
            }
            AccessDenyReason::Scope
            | AccessDenyReason::OtherAgent
            | AccessDenyReason::FormerAgent
            | AccessDenyReason::NotShared(_)
            | AccessDenyReason::NotMember
            // Cannot occur: the platform is this gateway itself.
            | AccessDenyReason::Platform(_) => message(StatusCode::FORBIDDEN, "the user may not use the agent"),
            AccessDenyReason::UnknownAgent => message(StatusCode::NOT_FOUND, "there is no such agent"),
        },
        Error::JobNotAllowed => message(StatusCode::FORBIDDEN, "the user may not use the agent"),
        Error::Unavailable(detail) => {
            tracing::error!(%detail, "a query of another gateway cannot be answered");
            message(StatusCode::INTERNAL_SERVER_ERROR, "access cannot be decided")
        }
    }
}

fn message(status: StatusCode, text: &str) -> Response<Bytes> {
    let body = json!({ "message": text }).to_string();
    respond(status, "application/json", body.into())
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
