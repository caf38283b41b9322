//! Renders a [`Denial`] in the format that the client reads.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use uuid::Uuid;

mod page;

use crate::grpc::{self, Transport};
use crate::pages::{self, Theme};
use crate::{Denial, kubernetes_status};
use tollgate_config::Compatibility;
use tollgate_proxy::forward::Body;

/// The format of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// JSON with `error`, `reason` and `decision`.
    Tollgate,
    /// Plain text, as Argo CD answers requests to extensions.
    Argocd,
    /// The format of kube-apiserver: a `Status`.
    Kubernetes,
    /// The format of Argo CD's API, with a list of everything that is refused.
    ApplicationSets,
    /// A page for people with a browser.
    Page,
    /// A page of the console.
    Console(Theme),
    /// The end of a call of gRPC or gRPC-Web.
    Grpc(Transport),
}

impl ErrorFormat {
    /// The format of the API, by `extensions.compat`.
    pub fn of(compatibility: Compatibility) -> Self {
        match compatibility {
            Compatibility::None => Self::Tollgate,
            Compatibility::Argocd => Self::Argocd,
        }
    }
}

/// The body in the format of Argo CD's API (`error`, `code`, `message`), with the refusals.
fn api_body(denial: &Denial) -> serde_json::Value {
    let mut body = serde_json::json!({
        "error": denial.message,
        "code": denial.grpc().number(),
        "message": denial.message,
        "reason": denial.reason,
    });
    if let (false, Some(members)) = (denial.refusals.is_empty(), body.as_object_mut()) {
        members.extend(denial.refusal_members());
    }
    body
}

/// Renders the response: JSON with reason and decision id, plain text in Argo CD's format, a `Status`, a page, or the
/// end of a call.
pub fn response(denial: &Denial, decision: Uuid, format: ErrorFormat) -> Response<Body> {
    let (status, message) = denial.public(format == ErrorFormat::Argocd);
    let (content_type, body) = match format {
        // A `Status` has its own head, because its code must equal that of the response.
        ErrorFormat::Kubernetes => {
            let mut response = kubernetes_status::status(denial.status, &denial.message, decision);
            if let Some(seconds) = denial.retry_after {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            return response.map(Body::from);
        }
        ErrorFormat::Grpc(transport) => return grpc::refuse(transport, denial),
        ErrorFormat::Tollgate => {
            let mut body = serde_json::json!({
                "error": denial.message,
                "reason": denial.reason,
                "decision": decision.to_string(),
            });
            if let (Some(code), Some(members)) = (&denial.code, body.as_object_mut()) {
                members.insert("code".to_owned(), code.as_str().into());
            }
            ("application/json", body.to_string())
        }
        // The body has no id, so that it is identical for what does not exist and what is not
        // the caller's.
        ErrorFormat::ApplicationSets => ("application/json", api_body(denial).to_string()),
        ErrorFormat::Argocd => ("text/plain; charset=utf-8", message.to_owned()),
        ErrorFormat::Page => ("text/html; charset=utf-8", page::page(denial, decision)),
        ErrorFormat::Console(theme) => {
            let (title, path, label) = match denial.status.is_server_error() {
                true => ("This does not work right now", "/console/", "Try again"),
                false => ("That was refused", "/console/sign-in", "Sign in again"),
            };
            let text = format!("{} ({}).", denial.message, denial.reason);
            let link = pages::PageLink { path, label };
            let page = pages::refusal_page(title, text, link, decision, theme);
            ("text/html; charset=utf-8", page)
        }
    };
    let mut response = Response::new(Body::from(Bytes::from(body + "\n")));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    // The page is on the origin to which browsers send the console's cookie.
    if matches!(format, ErrorFormat::Console(_)) {
        pages::protect(fields);
    }
    if format == ErrorFormat::Page {
        fields.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(page::CONTENT_SECURITY_POLICY),
        );
    }
    if status == StatusCode::UNAUTHORIZED {
        // RFC 9110, section 15.5.2: a 401 says how to authenticate.
        fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tollgate\""));
    }
    if let Some(seconds) = denial.retry_after {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
