//! Encodes refusals as a `Status` (Kubernetes, `apimachinery/pkg/apis/meta/v1`), always in JSON,
//! so that kubectl and client-go show them.
//!
//! Invariant: the code in the body equals the status of the response. Otherwise kubectl prints
//! neither.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use uuid::Uuid;

/// Tells a page that the gateway, not the cluster, refused its credential.
pub(crate) const UNAUTHORIZED_MARKER: HeaderName = HeaderName::from_static("gitlab-unauthorized");

/// The response of a refusal.
///
/// Fields: JSON, `nosniff`, `no-store`; on 401 the marker and `WWW-Authenticate`.
///
/// - `message`: one sentence without final period; no token, no upstream address,
///   nothing about what the caller may not know.
/// - `decision`: id by which operators find the details.
pub(crate) fn status(code: StatusCode, message: &str, decision: Uuid) -> Response<Bytes> {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: serde_json::Map::new(),
        status: "Failure",
        message: format!("Tollgate: {}. Trace ID: {decision}", message.trim_end_matches('.')),
        reason: reason(code),
        code: code.as_u16(),
    };
    // The content is texts and a number, so this cannot fail.
    let body = serde_json::to_vec(&status).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if code == StatusCode::UNAUTHORIZED {
        fields.insert(UNAUTHORIZED_MARKER, HeaderValue::from_static("true"));
        fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tollgate\""));
    }
    response
}

/// `metav1.StatusReason` of a code; clients branch on it. Empty for codes without
/// one.
pub(crate) fn reason(code: StatusCode) -> &'static str {
    match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: serde_json::Map<String, serde_json::Value>,
    status: &'static str,
    message: String,
    reason: &'static str,
    code: u16,
}

#[cfg(test)]
mod tests;
