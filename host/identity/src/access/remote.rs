//! Authorizes through a remote platform: GitLab, Plural or another Tollgate.
//!
//! The platform's answer is bound to an agent of this gateway's own state; an agent the state
//! does not have is refused.
//!
//! Security: an answer counts only if all of it is understood. The client ignores proxy
//! environment variables.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use url::Url;
use zeroize::Zeroizing;

use super::agents::Agents;
use super::embedded::EmbeddedPlatform;
use super::gateway_token::{self, SharedSecret};
use super::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error, IdToken};
use crate::clock::Clock;
use crate::http_client::{self, Authority, Versions};
use crate::person::PersonNames;
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::{Agent, AgentId};
use tollgate_core::diagnostic::with_causes;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, User};

mod configurations;
mod job;
mod person;

pub use configurations::ConfigurationReporter;

/// Most bytes of one answer; 1,000 entries take a tenth of it.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Time for one request, its body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Text in the body of a 401 that is about the person's credential, not the gateway's.
pub(super) const INVALID_KEY: &str = "Invalid user access key";

/// Why the authorizer cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file of the shared secret cannot be used.
    #[error("the shared secret in `{file}` cannot be used: {reason}")]
    SecretFile {
        /// Path as in the settings.
        file: String,
        /// The reason, without content of the file.
        reason: String,
    },
    /// `certificateAuthority` is not PEM, or TLS cannot start.
    #[error("the client for the platform cannot be made: {0}")]
    Client(String),
    /// The URL takes no path.
    #[error("`{0}` cannot be the base of a platform")]
    Url(String),
    /// The platform is remote, so this gateway cannot be one.
    #[error("`kubernetes.platformSecretFile` needs `kubernetes.authorizer: embedded`")]
    RemoteAuthorizer,
    /// The system has no randomness.
    #[error("the operating system provides no random numbers")]
    Randomness,
}

#[derive(Debug)]
pub(super) struct RemotePlatform {
    http: Client,
    person_url: Url,
    job_url: Url,
    configuration_url: Url,
    secret: SharedSecret,
    /// For access that the issuer alone grants; no platform is asked.
    embedded: EmbeddedPlatform,
    clock: Clock,
    /// How long open exchanges may last after the answer that let them in.
    stream_lifetime: Duration,
}

impl RemotePlatform {
    /// Builds it from the base URL, the PEM of its authorities and the file of the secret.
    /// Blocks.
    ///
    /// - `stream_lifetime`: how long an exchange may last after the answer that let it in.
    pub(super) fn new(
        base: &Url,
        authority: Option<&str>,
        secret: &Path,
        embedded: EmbeddedPlatform,
        clock: Clock,
        stream_lifetime: Duration,
    ) -> Result<Self, SetupError> {
        Ok(Self {
            http: client(authority)?,
            person_url: api_url(base, &["internal", "kubernetes", "authorize_proxy_user"])?,
            job_url: api_url(base, &["job", "allowed_agents"])?,
            configuration_url: api_url(base, &["internal", "kubernetes", "agent_configuration"])?,
            secret: SharedSecret::read(secret)?,
            embedded,
            clock,
            stream_lifetime,
        })
    }

    /// Answers one query.
    ///
    /// The platform is also asked about agents the state does not have. Otherwise, while it is
    /// unreachable, the answer would tell which agents exist.
    ///
    /// The platform reports neither when a credential expires nor revocations. Access by its
    /// answer, and everything open by it, therefore ends after `stream_lifetime`; to continue, the
    /// client must be authorized again.
    pub(super) async fn evaluate(&self, agents: &Agents, query: &AccessQuery) -> Result<AccessGrant, Error> {
        let (answer, session, expires_at) = match &query.key {
            AccessKey::OidcIdToken(token) if token.agent != query.agent => {
                return Err(AccessDenyReason::OtherAgent.into());
            }
            AccessKey::OidcIdToken(_) if agents.is_granted_by_claim(query.agent) => {
                return self.embedded.evaluate(agents, query).await;
            }
            AccessKey::OidcIdToken(token) => {
                let answer = self.person(agents, query, Some(token)).await?;
                (answer, token.session.clone(), Some(token.expires_at))
            }
            AccessKey::PersonalAccessToken(secret) | AccessKey::SessionCookie { cookie: secret, .. } => {
                let answer = self.person(agents, query, None).await?;
                (answer, session(query.key.access_type(), secret), None)
            }
            AccessKey::CiJobToken(token) => {
                let answer = self.job(query.agent, token).await?;
                (answer, session(AccessType::CiJobToken, token), None)
            }
        };
        let agent = agents.agent(query.agent).ok_or(AccessDenyReason::UnknownAgent)?;
        let vouched = match &query.key {
            AccessKey::OidcIdToken(token) => token.names(),
            AccessKey::PersonalAccessToken(_) | AccessKey::SessionCookie { .. } | AccessKey::CiJobToken(_) => {
                PersonNames::default()
            }
        };
        let latest = self.clock.now().checked_add(self.stream_lifetime);
        let latest = latest.unwrap_or(Timestamp::MAX);
        Ok(AccessGrant {
            names: vouched.and([answer.user.username.as_str()]),
            facts: AccessFacts {
                agent: with_reported_project(agent, answer.config_project),
                user: answer.user,
                issuer_groups: None,
                access_as: answer.access_as,
                session,
            },
            expires_at: Some(expires_at.map_or(latest, |end: Timestamp| end.min(latest))),
            linked: None,
        })
    }

    /// As [`EmbeddedPlatform::reauthorize`]. For access the platform gave, checks that the agent
    /// still has the same name and cluster.
    pub(super) fn reauthorize(&self, agents: &Agents, access: &Arc<AccessGrant>) -> Option<Arc<AccessGrant>> {
        let by_claim = access.linked.is_some();
        let is_by_claim =
            access.session().access_type() == AccessType::OidcIdToken && agents.is_granted_by_claim(access.agent().id);
        match (by_claim, is_by_claim) {
            (true, true) => self.embedded.reauthorize(agents, access),
            (false, false) => {
                let agent = agents.agent(access.agent().id)?;
                let same = agent.name == access.agent().name && agent.cluster == access.agent().cluster;
                same.then(|| Arc::clone(access))
            }
            // Who decides is another one since: the client must be authorized anew.
            (true, false) | (false, true) => None,
        }
    }

    async fn person(
        &self,
        agents: &Agents,
        query: &AccessQuery,
        id_token: Option<&IdToken>,
    ) -> Result<PlatformAnswer, Error> {
        let (credential, csrf_token) = query.key.secrets();
        let wire = WireAccessQuery {
            agent_id: query.agent.get(),
            access_type: query.key.access_type(),
            access_key: credential.expose_secret(),
            csrf_token: csrf_token.map(|token| token.expose_secret()),
        };
        let body = serde_json::to_vec(&wire).map(Zeroizing::new);
        let body = body.map_err(|_| unavailable("the question cannot be written as JSON"))?;
        let (status, body) = self.post(&self.person_url, Bytes::from_owner(body)).await?;
        let refused = AccessDenyReason::Platform(status.as_u16());
        match status {
            StatusCode::OK => {}
            // GitLab answers 400 for an unknown access key. Distinguishing it from a refusal
            // would tell callers which keys exist.
            StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => return Err(refused.into()),
            StatusCode::UNAUTHORIZED if memchr::memmem::find(&body, INVALID_KEY.as_bytes()).is_some() => {
                return Err(refused.into());
            }
            StatusCode::UNAUTHORIZED => return Err(unavailable(WRONG_SECRET)),
            other => return Err(unexpected_status(other)),
        }
        person::read(&body, agents, query.agent, id_token)
    }

    async fn job(&self, id: AgentId, token: &SecretString) -> Result<PlatformAnswer, Error> {
        // No header field can hold it, so no platform knows it.
        let value = HeaderValue::from_str(token.expose_secret());
        let mut value = value.map_err(|_| AccessDenyReason::UnknownKey)?;
        value.set_sensitive(true);
        let request = self.http.get(self.job_url.clone()).header("Job-Token", value);
        let (status, body) = self.send(request).await?;
        match status {
            StatusCode::OK => {}
            StatusCode::FORBIDDEN => return Err(Error::JobNotAllowed),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => {
                return Err(AccessDenyReason::Platform(status.as_u16()).into());
            }
            other => return Err(unexpected_status(other)),
        }
        job::read(&body, id)
    }

    /// Sends JSON with the proof that this is the gateway.
    async fn post(&self, url: &Url, body: Bytes) -> Result<(StatusCode, Vec<u8>), Error> {
        let proof = self.secret.token(self.clock.unix_seconds());
        let proof = proof.ok_or_else(|| unavailable("no token for the platform can be signed"))?;
        let request = self.http.post(url.clone());
        let request = request.header(gateway_token::HEADER_NAME, proof);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(body)).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), Error> {
        // The URL is left out; it says nothing new.
        let failed = |error: reqwest::Error| {
            let reason = with_causes(&error.without_url());
            unavailable(format!("the platform cannot be reached: {reason}"))
        };
        let request = request.header(header::ACCEPT, "application/json");
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let body = http_client::bounded_body(response, MAX_RESPONSE_BYTES).await;
        let too_long = || unavailable(format!("the platform answered more than {MAX_RESPONSE_BYTES} bytes"));
        Ok((status, body.map_err(failed)?.ok_or_else(too_long)?))
    }
}

struct PlatformAnswer {
    config_project: i64,
    user: User,
    access_as: AccessAs,
}

#[derive(Serialize)]
struct WireAccessQuery<'a> {
    agent_id: i64,
    access_type: AccessType,
    access_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf_token: Option<&'a str>,
}

/// An id: a number, or text that stands for one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum WireId {
    Number(i64),
    Text(String),
}

impl WireId {
    /// The number, at least 1, given as a number or as canonical decimal.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => (*number > 0).then_some(*number),
            Self::Text(text) => AgentId::parse(text).map(AgentId::get),
        }
    }
}

#[derive(Debug, Deserialize)]
struct WireIdObject {
    id: WireId,
}

#[derive(Debug, Deserialize)]
struct WireUser {
    id: WireId,
    username: String,
}

const WRONG_SECRET: &str = "the platform rejects this gateway: `authorizer.remote.secretFile` does not hold its secret";
const NOT_ONE_KEY: &str = "`access_as` has not exactly one key";

fn single_entry(access_as: Map<String, Value>) -> Option<(String, Value)> {
    let mut entries = access_as.into_iter();
    entries.next().filter(|_| entries.next().is_none())
}

/// The id of a session whose credential a remote platform keeps. It is the same in every replica,
/// and no secret.
fn session(access_type: AccessType, credential: &SecretString) -> SessionId {
    let digest = Sha256::digest(credential.expose_secret().as_bytes());
    let half: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    SessionId::new(access_type, half)
}

fn with_reported_project(agent: &Arc<Agent>, config_project: i64) -> Arc<Agent> {
    if agent.config_project == config_project {
        return Arc::clone(agent);
    }
    Arc::new(Agent {
        config_project,
        ..Agent::clone(agent)
    })
}

fn api_url(base: &Url, path: &[&str]) -> Result<Url, SetupError> {
    let mut url = base.clone();
    url.path_segments_mut()
        .map_err(|()| SetupError::Url(base.to_string()))?
        .pop_if_empty()
        .extend(["api", "v4"])
        .extend(path);
    Ok(url)
}

fn client(authority: Option<&str>) -> Result<Client, SetupError> {
    let authority = authority.map(|pem| Authority::Pem(pem.to_owned()));
    let builder = http_client::builder(authority.as_ref(), Versions::Any, REQUEST_TIMEOUT);
    let builder = builder.map_err(|reason| SetupError::Client(format!("`certificateAuthority`: {reason}")))?;
    let client = builder.no_proxy().build();
    client.map_err(|error| SetupError::Client(with_causes(&error)))
}

fn unexpected_status(status: StatusCode) -> Error {
    unavailable(format!("the platform answered {}", status.as_u16()))
}

fn unavailable(detail: impl Into<String>) -> Error {
    Error::Unavailable(detail.into())
}

#[cfg(test)]
mod tests;
