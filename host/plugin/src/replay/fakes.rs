//! What surrounds the provider in a case: the network's answers (`requests`), the pod's identities
//! (`ambient`) and the stopped clock (`now`). Nothing here opens a socket, reads a file or asks the
//! machine's clock.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::Value;

use super::case::{CannedResponse, Case, TransportFailure};
use crate::ambient::{Ambient, AmbientError, AwsCredentials, BearerToken};
use crate::clock::WallClock;
use crate::egress::{Error, RecordedAnswers};

/// The address of every name. It is public, because private ones need a setting in the grant.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));

#[derive(Clone)]
pub(super) struct Attempt {
    /// Host, without port.
    pub(super) host: String,
    /// The request as it arrived. `None` if it failed before.
    pub(super) seen: Option<ReceivedRequest>,
}

#[derive(Clone)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    /// `https://host[:port]/path?query`.
    pub(super) url: String,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Vec<u8>,
}

/// The surroundings of one case at a time.
#[derive(Default, derive_more::Debug)]
#[debug("CaseEnvironment")]
pub(super) struct CaseEnvironment(Mutex<State>);

#[derive(Default)]
struct State {
    now: Timestamp,
    ambient: Value,
    answers: VecDeque<Option<CannedResponse>>,
    attempts: Vec<Attempt>,
}

impl CaseEnvironment {
    pub(super) fn set(&self, case: &Case) {
        *self.state() = State {
            now: case.now,
            ambient: case.ambient.clone(),
            answers: case.exchanges.iter().map(|exchange| exchange.answer.clone()).collect(),
            attempts: Vec::new(),
        };
    }

    pub(super) fn attempts(&self) -> Vec<Attempt> {
        self.state().attempts.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An identity of the case, by the words of its source: `sa-token` {audience, token},
    /// `eks-pod-identity`, `gce-metadata` and `azure-imds`.
    fn identity(&self, key: &str) -> Result<Value, AmbientError> {
        let given = self.state().ambient.get(key).cloned();
        given.ok_or_else(|| AmbientError::Unavailable(format!("the case has no `ambient.{key}`")))
    }

    fn bearer(&self, key: &str) -> Result<BearerToken, AmbientError> {
        let given = self.identity(key)?;
        let token = secret(&given, "access_token")?;
        Ok(BearerToken::expiring(token, &given, self.now()))
    }
}

impl WallClock for CaseEnvironment {
    fn now(&self) -> Timestamp {
        self.state().now
    }
}

impl State {
    /// How the next request fails, if it does.
    fn next_failure(&self) -> Option<TransportFailure> {
        self.answers.front()?.as_ref()?.fail
    }

    /// Takes the next answer, and records the request it is for.
    fn next(&mut self, host: &str, seen: Option<ReceivedRequest>) -> Option<CannedResponse> {
        let host = host.to_owned();
        self.attempts.push(Attempt { host, seen });
        self.answers.pop_front().flatten()
    }
}

impl RecordedAnswers for CaseEnvironment {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut state = self.state();
        if state.next_failure() == Some(TransportFailure::Dns) {
            state.next(host, None);
            return Err(io::Error::other("the transcript says there is no such name"));
        }
        Ok(vec![SocketAddr::new(ADDRESS, port)])
    }

    fn answer<'a>(
        &'a self,
        host: &'a str,
        request: http::Request<Full<Bytes>>,
    ) -> BoxFuture<'a, Result<http::Response<Full<Bytes>>, Error>> {
        async move {
            let failure = self.state().next_failure();
            if let Some(error) = failure.and_then(|failure| connection_error(failure, host)) {
                self.state().next(host, None);
                return Err(error);
            }
            let seen = received(host, request).await;
            let answer = self.state().next(host, Some(seen));
            let response = match answer {
                // The request's own deadline ends the wait.
                Some(answer) if answer.fail == Some(TransportFailure::Timeout) => std::future::pending().await,
                Some(answer) if answer.fail.is_none() => response(answer).ok(),
                Some(_) | None => None,
            };
            response.ok_or_else(|| Error::Truncated { host: host.to_owned() })
        }
        .boxed()
    }
}

/// The error of a request that does not arrive.
fn connection_error(failure: TransportFailure, host: &str) -> Option<Error> {
    let host = host.to_owned();
    match failure {
        // An address is not resolved, so a failure of DNS arrives here for it.
        TransportFailure::Dns | TransportFailure::Connect => Some(Error::Connect {
            host,
            reason: io::Error::from(io::ErrorKind::ConnectionRefused).to_string(),
        }),
        TransportFailure::Tls => Some(Error::Tls {
            host,
            reason: rustls::Error::from(rustls::CertificateError::UnknownIssuer).to_string(),
        }),
        TransportFailure::Timeout | TransportFailure::Truncated => None,
    }
}

async fn received(host: &str, request: http::Request<Full<Bytes>>) -> ReceivedRequest {
    let (mut head, body) = request.into_parts();
    let Ok(body) = body.collect().await;
    let body = body.to_bytes().to_vec();
    if !body.is_empty() {
        // hyper adds the field when it sends a request.
        head.headers.insert(http::header::CONTENT_LENGTH, body.len().into());
    }
    let authority = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    ReceivedRequest {
        method: head.method.to_string(),
        url: format!("https://{}{}", authority.unwrap_or(host), head.uri),
        headers: head.headers,
        body,
    }
}

fn response(answer: CannedResponse) -> http::Result<http::Response<Full<Bytes>>> {
    let mut response = http::Response::builder().status(answer.status.unwrap_or(200));
    let typed = answer
        .headers
        .keys()
        .any(|name| name.eq_ignore_ascii_case("content-type"));
    if answer.json.is_some() && !typed {
        response = response.header("content-type", "application/json");
    }
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let body = match answer.json {
        Some(json) => json.to_string(),
        None => answer.body.unwrap_or_default(),
    };
    response.body(Full::new(Bytes::from(body)))
}

fn text<'a>(given: &'a Value, key: &str) -> Result<&'a str, AmbientError> {
    let text = given.get(key).and_then(Value::as_str);
    text.ok_or_else(|| AmbientError::Unavailable(format!("the identity of the case has no `{key}`")))
}

fn secret(given: &Value, key: &str) -> Result<SecretString, AmbientError> {
    Ok(SecretString::from(text(given, key)?))
}

impl Ambient for CaseEnvironment {
    fn service_account_token(&self, audience: String) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move {
            let given = self.identity("sa-token")?;
            if text(&given, "audience")? != audience {
                return Err(AmbientError::Unavailable(format!(
                    "the case has no token for `{audience}`"
                )));
            }
            Ok(BearerToken {
                token: secret(&given, "token")?,
                expires_at: None,
            })
        })
    }

    fn eks_pod_identity(&self) -> BoxFuture<'_, Result<AwsCredentials, AmbientError>> {
        Box::pin(async move {
            let given = self.identity("eks-pod-identity")?;
            let expires_at = given.get("Expiration").and_then(Value::as_str);
            Ok(AwsCredentials {
                access_key_id: text(&given, "AccessKeyId")?.to_owned(),
                secret_access_key: secret(&given, "SecretAccessKey")?,
                session_token: given.get("Token").map(|_| secret(&given, "Token")).transpose()?,
                expires_at: expires_at.and_then(|end| end.parse().ok()),
            })
        })
    }

    fn gce_metadata_token(&self, _: Vec<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.bearer("gce-metadata") })
    }

    fn azure_imds_token(&self, _: String, _: Option<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.bearer("azure-imds") })
    }
}
