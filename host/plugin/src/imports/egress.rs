//! The interface `egress`: the host builds one request from a guest's parts and handles, sends it
//! and returns a response without secrets. It refuses hosts that manifest or grant do not name,
//! secrets that may not go to that host, and more requests than a call may send.
//!
//! Security: the egress log contains no body, query or header field.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::redacted_body::{RedactedBody, VisibleStrings, redact_body};
use crate::bindings::provider::tollgate::plugin::egress as wit;
use crate::bindings::provider::tollgate::plugin::secrets::{Encoding, Part};
use crate::bindings::secret::{Secret, encode};
use crate::call_state::{CallState, EgressRecord, HostRefusal, Phase};
use crate::egress::{Error, Request, Response, Target};
use crate::host_state::HostState;
use tollgate_core::json_path::SingularPath;

/// Maximum fields and query parameters that are written at all, and maximum bytes of their values,
/// because a small handle can stand for many bytes. The limits of a request are lower, and are
/// checked on the whole request.
const MAX_FIELDS: usize = 256;
const MAX_FIELDS_BYTES: usize = 256 << 10;
const MAX_CAPTURES: usize = 16;
/// Time that a guest has left after its last request timed out.
const GUEST_RESERVE: Duration = Duration::from_millis(200);
/// Bytes of one response field that reach the guest.
const MAX_FIELD_BYTES: usize = 4 << 10;

impl wit::Host for HostState {
    fn convert_egress_error(&mut self, error: wasmtime::Error) -> wasmtime::Result<wit::EgressError> {
        let of_secret = |error: wasmtime::Error| error.downcast().map(wit::EgressError::Secret);
        let error = error.downcast().or_else(of_secret)?;
        self.provider()?.record_refusal(&error);
        Ok(error)
    }

    async fn send(&mut self, request: wit::Request) -> wasmtime::Result<wit::Response> {
        let deadline = self.deadline();
        let call = self.provider_call()?;
        let (request, capture) = call.prepare(&request, deadline)?;
        let (method, target) = (request.method.to_string(), request.target.clone());
        let egress_client = call.services.environment.egress_client.clone();
        let started = Instant::now();
        let sent = egress_client.send(request).await;
        let call = self.provider()?;
        call.record_exchange(method, &target, &sent, started);
        let response = sent.map_err(|error| call.to_egress_error(&error))?;
        call.convert_response(&target, &capture, &response)
    }
}

impl CallState {
    /// Records that the host refused, so that a guest cannot report the failure as temporary.
    fn record_refusal(&mut self, error: &wit::EgressError) {
        // Only the first refusal counts: later ones may be provoked to hide it.
        if self.host_refusal == HostRefusal::Nothing {
            match error {
                wit::EgressError::Denied(reason) => self.host_refusal = HostRefusal::Refused(reason.clone()),
                wit::EgressError::Budget => self.host_refusal = HostRefusal::OverBudget,
                _ => {}
            }
        }
    }

    /// The request, and the paths of the strings to capture from its response.
    fn prepare(&mut self, wanted: &wit::Request, deadline: Instant) -> wasmtime::Result<(Request, Vec<SingularPath>)> {
        if self.phase == Phase::Check {
            return Err(denied("egress.phase", "`check` may send nothing").into());
        }
        // Refused requests count as well, so a guest cannot try out the allow-list without end.
        self.requests_left = self.requests_left.checked_sub(1).ok_or(wit::EgressError::Budget)?;
        let target = self.target(&wanted.url)?;
        let capture = paths(&wanted.capture)?;
        if wanted.headers.len() > MAX_FIELDS || wanted.query.len() > MAX_FIELDS {
            let message = format!("more than `{MAX_FIELDS}` fields or parameters");
            return Err(wit::EgressError::InvalidRequest(message).into());
        }
        let query = self.query(&wanted.query, &target)?;
        let mut headers = Vec::with_capacity(wanted.headers.len());
        let mut bytes: usize = 0;
        for wit::Header { name, value } in &wanted.headers {
            let value = self.parts(value, &target)?;
            bytes = bytes.saturating_add(value.len());
            headers.push((name.clone(), value));
            if bytes > MAX_FIELDS_BYTES {
                return Err(too_long("fields").into());
            }
        }
        let body = self.parts(&wanted.body, &target)?;
        // Leaves the guest time to report a timeout.
        let left = deadline.saturating_duration_since(Instant::now() + GUEST_RESERVE);
        let timeout = match wanted.timeout_ms {
            0 => left,
            requested => left.min(Duration::from_millis(requested.into())),
        };
        let method = match wanted.method {
            wit::Method::Get => Method::GET,
            wit::Method::Post => Method::POST,
            wit::Method::Put => Method::PUT,
            wit::Method::Patch => Method::PATCH,
            wit::Method::Delete => Method::DELETE,
        };
        let request = Request {
            method,
            target,
            query,
            headers,
            body,
            timeout,
        };
        Ok((request, capture))
    }

    /// The host must be in the grant, and in the manifest.
    fn target(&self, url: &str) -> Result<Target, wit::EgressError> {
        let allowed = self.services.grant.allow_list.allow(url);
        let target = allowed.map_err(|refused| self.to_egress_error(&refused.into()))?;
        let host = target.host();
        if self.permissions.allows_host(host, target.port()) {
            return Ok(target);
        }
        let message = format!("`{host}` is granted, but not among the hosts of the manifest");
        Err(denied("egress.manifest", &message))
    }

    /// The parts as bytes, if all their secrets may be sent to `target`.
    fn parts(&self, parts: &[Part], target: &Target) -> wasmtime::Result<Zeroizing<Vec<u8>>> {
        let (bytes, egress_scope) = self.concatenate(parts)?;
        if egress_scope.is_some_and(|egress_scope| !egress_scope.allows_host(target.host(), target.port())) {
            let message = format!("a secret may not be sent to `{}`", target.host());
            return Err(denied("egress.secret-host", &message).into());
        }
        Ok(bytes)
    }

    fn query(&self, pairs: &[(String, Vec<Part>)], target: &Target) -> wasmtime::Result<Option<Zeroizing<String>>> {
        if pairs.is_empty() {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(pairs.len());
        let mut length: usize = 0;
        for (name, value) in pairs {
            let value = self.parts(value, target)?;
            // `%xx` is the longest form of a byte.
            let pair = name
                .len()
                .saturating_mul(3)
                .saturating_add(value.len())
                .saturating_add(2);
            length = length.saturating_add(pair);
            if length > MAX_FIELDS_BYTES {
                return Err(too_long("parameters").into());
            }
            values.push(value);
        }
        // Never grows, so that no copy of a secret is left behind.
        let mut query = Zeroizing::new(Vec::with_capacity(length));
        for ((name, _), value) in pairs.iter().zip(&values) {
            if !query.is_empty() {
                query.push(b'&');
            }
            encode(name.as_bytes(), Encoding::Form, &mut query)?;
            query.push(b'=');
            query.extend_from_slice(value);
        }
        match std::str::from_utf8(&query) {
            Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
            Err(_) => Err(wit::EgressError::InvalidRequest("the query is not text".to_owned()).into()),
        }
    }

    fn record_exchange(&mut self, method: String, target: &Target, sent: &Result<Response, Error>, started: Instant) {
        let (status, error) = match sent {
            Ok(response) => (Some(response.status.as_u16()), None),
            Err(error) => (None, Some(self.redactor.redact_line(&error.to_string(), 256))),
        };
        self.egress_log.push(EgressRecord {
            method,
            host: target.authority(),
            path: self.redactor.redact_line(target.path(), 1024),
            status,
            error,
            milliseconds: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    fn convert_response(
        &mut self,
        target: &Target,
        capture: &[SingularPath],
        response: &Response,
    ) -> wasmtime::Result<wit::Response> {
        let egress_scope = self.permissions.capture_scope(target.host(), target.port());
        let visible = if self.services.reveals_bodies {
            VisibleStrings::All
        } else {
            VisibleStrings::Paths(&self.permissions.visible)
        };
        let RedactedBody { mut body, captured } = if response.status.is_success() {
            redact_body(&response.body, capture, visible)
        } else {
            RedactedBody {
                body: response.body.to_vec(),
                captured: capture.iter().map(|_| None).collect(),
            }
        };
        let mut insert = |bytes| self.insert_secret(Secret::new(bytes, egress_scope.clone())?);
        let captured = captured.into_iter().map(|bytes| bytes.map(&mut insert).transpose());
        let captured = captured.collect::<wasmtime::Result<_>>()?;
        // After `insert`, so that a captured value is also removed from the other places of the body.
        self.redactor.replace_secrets(&mut body, b"");
        Ok(wit::Response {
            status: response.status.as_u16(),
            headers: self.fields(response),
            body,
            captured,
        })
    }

    fn fields(&self, response: &Response) -> Vec<(String, String)> {
        let fields = response.headers.iter();
        let visible = fields.filter(|(name, _)| self.permissions.allows_response_header(name));
        visible
            .filter_map(|(name, value)| {
                let value = self.redactor.redact_line(value.to_str().ok()?, MAX_FIELD_BYTES);
                Some((name.as_str().to_owned(), value))
            })
            .collect()
    }

    fn to_egress_error(&self, error: &Error) -> wit::EgressError {
        let text = self.redactor.redact_line(&error.to_string(), 256);
        match error {
            Error::Denied(refused) => denied(&format!("egress.{}", <&str>::from(refused.code)), &text),
            Error::InvalidRequest { .. } => wit::EgressError::InvalidRequest(text),
            Error::Dns { .. } => wit::EgressError::Dns(text),
            Error::Connect { .. } => wit::EgressError::Connect(text),
            Error::Tls { .. } => wit::EgressError::Tls(text),
            Error::Timeout { .. } => wit::EgressError::Timeout,
            Error::Truncated { .. } => wit::EgressError::Truncated,
            Error::TooLarge { .. } => wit::EgressError::TooLarge,
        }
    }
}

fn too_long(what: &str) -> wit::EgressError {
    wit::EgressError::InvalidRequest(format!("the {what} have more than `{MAX_FIELDS_BYTES}` bytes"))
}

fn denied(code: &str, message: &str) -> wit::EgressError {
    wit::EgressError::Denied(format!("{code}: {message}"))
}

fn paths(texts: &[String]) -> Result<Vec<SingularPath>, wit::EgressError> {
    if texts.len() > MAX_CAPTURES {
        let message = format!("`{}` captures; at most `{MAX_CAPTURES}` are allowed", texts.len());
        return Err(wit::EgressError::InvalidRequest(message));
    }
    let parsed = texts.iter().map(|text| SingularPath::parse(text));
    parsed
        .collect::<Result<_, _>>()
        .map_err(|error| wit::EgressError::InvalidRequest(format!("a capture is no singular path: {error}")))
}
