//! The Secret in which an agent keeps its key, read and written with the agent's own account.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};

use crate::api_server::{self, ApiServer};
use crate::settings::SecretName;

/// Longest answer of the API server, in bytes: a Secret may have 1 MiB.
const ANSWER_BYTES: usize = 2 << 20;

/// Why a Secret cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server does not answer.
    #[error(transparent)]
    ApiServer(#[from] api_server::Error),
    /// It answers something else.
    #[error("Secret `{secret}` cannot be {verb}: the API server answers {status}: {message}")]
    Refused {
        secret: SecretName,
        /// `read` or `changed`.
        verb: &'static str,
        status: StatusCode,
        /// What the API server says.
        message: String,
    },
    /// The answer is cut off, too long, or something else than a Secret.
    #[error("Secret `{secret}` cannot be {verb}: the API server's answer is not a Secret of at most 2 MiB")]
    Unreadable {
        secret: SecretName,
        /// `read` or `changed`.
        verb: &'static str,
    },
    /// Somebody else changed it since it was read.
    #[error("Secret `{0}` was changed by another process")]
    Conflict(SecretName),
}

pub(crate) async fn read(api: &ApiServer, secret: &SecretName) -> Result<Value, Error> {
    send(api, secret, Method::GET, "read", None).await
}

/// Changes members of the Secret, if it has still this `resourceVersion`. Returns the whole.
///
/// - `data`: in base64; null removes a member.
pub(crate) async fn patch(
    api: &ApiServer,
    secret: &SecretName,
    resource_version: &str,
    data: Value,
) -> Result<Value, Error> {
    let patch = json!({"metadata": {"resourceVersion": resource_version}, "data": data});
    send(api, secret, Method::PATCH, "changed", Some(patch)).await
}

async fn send(
    api: &ApiServer,
    secret: &SecretName,
    method: Method,
    verb: &'static str,
    patch: Option<Value>,
) -> Result<Value, Error> {
    let SecretName { namespace, name } = secret;
    let content = patch.map(|patch| patch.to_string()).unwrap_or_default();
    let body = Full::new(Bytes::from(content))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut request = Request::new(body);
    *request.method_mut() = method;
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    *request.uri_mut() = path.parse().map_err(|_| api_server::Error::Url)?;
    let fields = request.headers_mut();
    fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let kind = HeaderValue::from_static("application/merge-patch+json");
    fields.insert(CONTENT_TYPE, kind);
    let response = api.send(request).await?;
    let status = response.status();
    let content = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
    let content = content.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let answer: Value = serde_json::from_slice(&content).unwrap_or_default();
    match status {
        // SECURITY: an answer that cannot be read must not pass for a Secret without a key, which would be written
        // anew. Every object has a version, and a patch without one would be made despite any change.
        StatusCode::OK if resource_version(&answer).is_empty() => Err(Error::Unreadable {
            secret: secret.clone(),
            verb,
        }),
        StatusCode::OK => Ok(answer),
        StatusCode::CONFLICT => Err(Error::Conflict(secret.clone())),
        status => Err(Error::Refused {
            secret: secret.clone(),
            verb,
            status,
            message: answer
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        }),
    }
}

/// Empty if there is none.
pub(crate) fn resource_version(secret: &Value) -> &str {
    let version = secret.pointer("/metadata/resourceVersion");
    version.and_then(Value::as_str).unwrap_or_default()
}
