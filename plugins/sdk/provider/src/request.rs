//! Builds requests from text and secrets, and reads their answers. The host sends each request
//! once.

use core::time::Duration;

use crate::bindings::tollgate::plugin::egress::{Header, Method, Request as Raw};
use crate::encoding::{form, unform};
use crate::{Encoding, Error, Json, Part, Secret, SecretRef, classify, clock, egress};

/// A text or a secret.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Plain text, which the guest encodes.
    Text(String),
    /// A secret, which the host encodes.
    Secret(&'a Secret),
}

impl From<&str> for Value<'_> {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Value<'_> {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl<'a> From<&'a Secret> for Value<'a> {
    fn from(secret: &'a Secret) -> Self {
        Self::Secret(secret)
    }
}

impl<'a> Value<'a> {
    fn raw(self) -> Part<'a> {
        self.part(Encoding::Raw, |text| text)
    }

    fn part(self, encoding: Encoding, encode: impl Fn(String) -> String) -> Part<'a> {
        match self {
            Self::Text(text) => Part::Text(encode(text)),
            Self::Secret(value) => Part::Secret(SecretRef { value, encoding }),
        }
    }
}

/// A builder of one request.
#[derive(Debug)]
#[must_use]
pub struct Request<'a>(Raw<'a>);

impl<'a> Request<'a> {
    /// A GET.
    pub fn get(url: &str) -> Self {
        Self::new(Method::Get, url)
    }

    /// A POST.
    pub fn post(url: &str) -> Self {
        Self::new(Method::Post, url)
    }

    /// A PUT.
    pub fn put(url: &str) -> Self {
        Self::new(Method::Put, url)
    }

    /// A PATCH.
    pub fn patch(url: &str) -> Self {
        Self::new(Method::Patch, url)
    }

    /// A DELETE.
    pub fn delete(url: &str) -> Self {
        Self::new(Method::Delete, url)
    }

    /// `url` may have a query, because OAuth endpoints may (RFC 6749, section 3.2).
    fn new(method: Method, url: &str) -> Self {
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unform(name), vec![Part::Text(value.to_owned())])
        };
        Self(Raw {
            method,
            url: url.to_owned(),
            query: query.split('&').filter(|text| !text.is_empty()).map(pair).collect(),
            headers: Vec::new(),
            body: Vec::new(),
            capture: Vec::new(),
            timeout_ms: 0,
        })
    }

    /// Adds a query parameter.
    pub fn query(mut self, name: &str, value: impl Into<Value<'a>>) -> Self {
        let part = value.into().part(Encoding::Form, |text| form(&text));
        self.0.query.push((name.to_owned(), vec![part]));
        self
    }

    /// Adds a query parameter whose value has several parts, which are already encoded.
    pub fn query_parts(mut self, name: &str, value: Vec<Part<'a>>) -> Self {
        self.0.query.push((name.to_owned(), value));
        self
    }

    /// Adds a header field.
    pub fn header(self, name: &str, value: impl Into<Value<'a>>) -> Self {
        let part = value.into().raw();
        self.header_parts(name, vec![part])
    }

    /// Adds a header field whose value has several parts.
    pub fn header_parts(mut self, name: &str, value: Vec<Part<'a>>) -> Self {
        self.0.headers.push(Header {
            name: name.to_owned(),
            value,
        });
        self
    }

    /// Adds `Authorization: Bearer …`.
    pub fn bearer(self, token: &'a Secret) -> Self {
        let parts = vec![Part::Text("Bearer ".to_owned()), Value::Secret(token).raw()];
        self.header_parts("authorization", parts)
    }

    /// Sets a body in application/x-www-form-urlencoded, with the pairs in order.
    pub fn form(mut self, pairs: impl IntoIterator<Item = (&'a str, Value<'a>)>) -> Self {
        for (index, (name, value)) in pairs.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "&" };
            self.0.body.push(Part::Text(format!("{separator}{}=", form(name))));
            self.0.body.push(value.part(Encoding::Form, |text| form(&text)));
        }
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    /// Sets a body in JSON.
    pub fn json_body(mut self, body: &Json<'a>) -> Self {
        self.0.body = body.parts();
        self.header("content-type", "application/json")
    }

    /// Sets a body of parts, which are already encoded.
    pub fn body(mut self, body: Vec<Part<'a>>) -> Self {
        self.0.body = body;
        self
    }

    /// Sets a body of plain text.
    pub fn body_text(self, body: String) -> Self {
        self.body(vec![Part::Text(body)])
    }

    /// Captures the string at `path` (an RFC 9535 singular query) of the answer as a secret. The
    /// first capture is number 0 of [`Answer::captured`].
    pub fn capture(mut self, path: &str) -> Self {
        self.0.capture.push(path.to_owned());
        self
    }

    /// Sets how long to wait for the answer. The default is the time left for the call.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Sends the request.
    ///
    /// # Errors
    /// Why there is no answer. An answer with an error status is not an error here.
    pub fn send(self) -> Result<Answer, Error> {
        let sent_at = clock::now();
        let response = egress::send(&self.0)?;
        Ok(Answer {
            status: response.status,
            sent_at,
            headers: response.headers,
            body: response.body,
            captured: response.captured,
        })
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status. Redirects and errors are returned as well.
    pub status: u16,
    /// When the request was sent, in milliseconds since 1970. Lifetimes count from here.
    pub sent_at: u64,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    captured: Vec<Option<Secret>>,
}

impl Answer {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of the first header field `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key == name)?;
        Some(value)
    }

    /// The body as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON. In a 2xx answer, strings that the manifest does not list under `visible`
    /// are empty.
    ///
    /// # Errors
    /// `permanent`: the body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Error::permanent("answer.not-json", "the answer is not JSON").with_status(self.status))
    }

    /// The body as JSON, or `null` if it is not JSON.
    pub fn json_or_null(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Takes the value of capture number `index`.
    pub fn captured(&mut self, index: usize) -> Option<Secret> {
        self.captured.get_mut(index)?.take()
    }

    /// Takes the value of capture number `index`. `what` names it in the error.
    ///
    /// # Errors
    /// `permanent`: the answer has no such string.
    pub fn expect(&mut self, index: usize, what: &str) -> Result<Secret, Error> {
        let status = self.status;
        self.captured(index).ok_or_else(|| {
            Error::permanent("answer.incomplete", format!("the answer has no string `{what}`")).with_status(status)
        })
    }

    /// How long the issuer asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        classify::retry_after(self.header("retry-after")?, self.sent_at)
    }

    /// The issuer's id of the request, from the header fields that cloud providers use.
    pub fn request_id(&self) -> Option<String> {
        const NAMES: [&str; 4] = ["x-amzn-requestid", "x-request-id", "x-ms-request-id", "audit-id"];
        NAMES.iter().find_map(|name| self.header(name)).map(str::to_owned)
    }

    /// An error that is classified by the status alone.
    pub fn refused(&self, issuer: &str) -> Error {
        self.error(classify::status(self.status), &format!("http.{}", self.status), issuer)
    }

    /// An error with this answer's status, wait and id. `reason` becomes part of the message.
    pub fn error(&self, class: crate::Class, code: &str, reason: &str) -> Error {
        let message = match self.header("location") {
            Some(_) => format!("status {}, redirects are not followed: {reason}", self.status),
            None => format!("status {}: {reason}", self.status),
        };
        Error::new(class, code, message)
            .with_status(self.status)
            .with_retry_after(self.retry_after())
            .with_correlation(self.request_id())
    }
}
