//! What the gateway needs of the console's pages, and what they may ask of the gateway: its own API.
//!
//! Security: a page has no rights. Each of its requests is one of the person who views it, with their
//! cookie. It passes every stage and has a record, like a request from outside.
//!
//! Security: the gateway, not the page, sets the security headers of every page.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, request};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

pub use crate::pages::theme::{THEME_COOKIE, Theme};
pub use crate::pages::{STYLE_PATH, asset_path};
use tollgate_config::{Config, Console, ConsoleHost};
use tollgate_identity::authenticate::login::{cookie_name, is_for_console};
use tollgate_proxy::forward::Body;
use tollgate_proxy::server::Client;

/// Longest content of a form, in bytes. An `ApplicationSet` fits into it.
pub const FORM_BYTES: u64 = 2 * 1024 * 1024;
/// Longest answer of the API that a page reads, in bytes.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Where people go who did not say where.
pub const HOME: &str = "/console/";

/// The fields of a page's request that a request to the API has, too.
const KEPT: [HeaderName; 5] = [
    COOKIE,
    HOST,
    ORIGIN,
    USER_AGENT,
    HeaderName::from_static("sec-fetch-site"),
];

/// Renders the pages below `/console/` that are about anything but sign-in.
///
/// The gateway calls it only for people who are signed in, and changes only from the console's own
/// pages. It sets the security headers of every response itself.
pub trait Pages: Debug + Send + Sync {
    /// Whether a path is a script, a picture or the like, which everybody may load.
    fn asset(&self, path: &str) -> Option<Response<Bytes>>;

    /// Answers a request of somebody who is signed in.
    fn answer<'a>(&'a self, request: Request<Bytes>, api: Api<'a>) -> BoxFuture<'a, Response<Bytes>>;
}

/// Marks a request that a page makes.
#[derive(Clone, Copy, Debug)]
struct OfPage;

/// Whether a page makes a request.
pub fn is_of_page(extensions: &Extensions) -> bool {
    extensions.get::<OfPage>().is_some()
}

/// Whether a request was sent to the console's own host, if it has one.
pub fn is_at_own_host(config: &Config, uri: &Uri, headers: &HeaderMap) -> bool {
    let console = config.authentication.console.as_ref();
    let own = console.filter(|console| console.host == ConsoleHost::Own);
    own.is_some_and(|console| is_for_console(uri, headers, console))
}

/// Whether a method changes nothing.
pub fn reads(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// The content of a request to the API.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// None.
    Empty,
    /// Sent as JSON.
    Json(&'a Value),
    /// Sent as YAML, as it was typed.
    Yaml(&'a str),
}

/// Serves the requests of pages: the whole pipeline.
pub trait ApiHandler: Debug + Send + Sync {
    /// Answers a request, with a record. Every refusal is an answer.
    fn handle<'a>(&'a self, request: Request<Body>, client: &'a Arc<Client>) -> BoxFuture<'a, Response<Body>>;
}

/// The gateway's API, for the person who looks at a page.
#[derive(Clone, Copy, Debug)]
pub struct Api<'a> {
    /// Answers what the page asks.
    pub handler: &'a dyn ApiHandler,
    /// Who asked for the page.
    pub client: &'a Arc<Client>,
    /// The head of the request for the page, whose credential the page's own requests have.
    pub head: &'a request::Parts,
}

impl Api<'_> {
    /// Sends a request. An answer longer than 16 MiB is replaced by 502.
    ///
    /// - `target`: path and query, encoded.
    pub async fn call(&self, method: Method, target: PathAndQuery, content: Content<'_>) -> Response<Bytes> {
        let mut parts = self.head.uri.clone().into_parts();
        // The authority stays: over HTTP/2 it is the host, and a login counts on the console's host alone.
        parts.path_and_query = Some(target);
        let Ok(uri) = Uri::from_parts(parts) else {
            return status(StatusCode::BAD_REQUEST);
        };
        let (body, content_type) = match content {
            Content::Empty => (Body::empty(), None),
            Content::Json(value) => (Body::from(Bytes::from(value.to_string())), Some("application/json")),
            Content::Yaml(text) => (Body::from(Bytes::from(text.to_owned())), Some("application/yaml")),
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = self.head.version;
        request.extensions_mut().insert(OfPage);
        let fields = request.headers_mut();
        // `Origin` and `Sec-Fetch-Site` go along, so that a request that another site caused stays recognizable.
        for name in KEPT {
            for value in self.head.headers.get_all(&name) {
                fields.append(&name, value.clone());
            }
        }
        if let Some(content_type) = content_type {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        // Boxed, because this is itself part of answering a request.
        let (head, body) = self.handler.handle(request, self.client).await.into_parts();
        match Limited::new(body, ANSWER_BYTES).collect().await {
            Ok(content) => Response::from_parts(head, content.to_bytes()),
            Err(_) => status(StatusCode::BAD_GATEWAY),
        }
    }
}

fn status(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}

/// A path of the console to return to; its start if the text is anything else.
// SECURITY: `//host` and its like would lead to another site.
pub fn local_path(text: &str) -> &str {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    // Browsers read an encoded dot as a dot.
    let is_dots = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..");
    let leaves = path.split('/').any(is_dots);
    let is_local = text.starts_with("/console/") && !text.contains("//") && !text.contains('\\') && !leaves;
    // A line break would end the field `Location`.
    match is_local && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => text,
        false => HOME,
    }
}

/// Removes the console's cookies from a request that goes on to another server.
pub fn remove_cookies(console: &Console, fields: &mut HeaderMap) {
    let ours = cookie_name(console);
    // Byte by byte, as the authenticator reads them: another cookie of the line need not be UTF-8.
    let is_ours = |pair: &&[u8]| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.strip_prefix(ours.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-attempt-"))
    };
    fn pairs(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
        line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
    }
    let has_ours = |line: &HeaderValue| pairs(line).any(|pair| is_ours(&pair));
    if !fields.get_all(COOKIE).into_iter().any(has_ours) {
        return;
    }
    let lines: Vec<HeaderValue> = fields.get_all(COOKIE).into_iter().cloned().collect();
    fields.remove(COOKIE);
    for line in lines {
        let kept: Vec<&[u8]> = pairs(&line).filter(|pair| !is_ours(pair)).collect();
        if let (false, Ok(mut kept)) = (kept.is_empty(), HeaderValue::from_bytes(&kept.join(&b"; "[..]))) {
            // A value that is made anew is not sensitive by itself.
            kept.set_sensitive(line.is_sensitive());
            fields.append(COOKIE, kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;
    use http::{HeaderMap, HeaderValue};
    use url::Url;

    use super::{local_path, remove_cookies};
    use tollgate_config::{Console, ConsoleHost, DeviceLogin};

    #[test]
    fn only_paths_of_the_console_are_returned_to() {
        for path in [
            "/console/",
            "/console/device?user_code=A-B",
            "/console/login?port=1&state=x",
        ] {
            assert_eq!(local_path(path), path);
        }
        for other in [
            "/console/../x",
            "/console/%2e%2e/x",
            "/console/.%2E/x",
            "/console/a/./../../x",
            "",
            "//evil.example",
            "/console//evil.example",
            "/console/\\evil.example",
            "https://evil.example/console/",
            "/consoles/",
            "/api/v1/me",
            "/console/\r\nSet-Cookie: a=b",
            "javascript:alert(1)",
        ] {
            assert_eq!(local_path(other), "/console/", "{other}");
        }
    }

    fn console() -> Console {
        Console {
            url: Url::parse("https://tollgate.example.com").unwrap(),
            host: ConsoleHost::SharedWithArgocd,
            idle: std::time::Duration::from_secs(1),
            lifetime: std::time::Duration::from_secs(1),
            login_lifetime: std::time::Duration::from_secs(1),
            device_login: DeviceLogin::Refused,
            contact: None,
        }
    }

    #[test]
    fn argocd_server_sees_none_of_the_consoles_cookies() {
        for (sent, expected) in [
            ("argocd.token=a; __Host-tollgate=s; b=c", "argocd.token=a; b=c"),
            ("__Host-tollgate=s", ""),
            ("__Host-tollgate-attempt-x=s; a=b", "a=b"),
            ("__Host-tollgates=s", "__Host-tollgates=s"),
            ("a=b", "a=b"),
            ("name=Jörg; __Host-tollgate=s;b=c", "name=Jörg; b=c"),
            (" \t__Host-tollgate-attempt-x=ö", ""),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(COOKIE, HeaderValue::from_bytes(sent.as_bytes()).unwrap());
            remove_cookies(&console(), &mut fields);
            let left: Vec<&[u8]> = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
            assert_eq!(left.join(&b'|'), expected.as_bytes(), "{sent}");
        }
    }
}
