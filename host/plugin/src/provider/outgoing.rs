//! The interface `egress`: the host builds one request from a guest's parts and handles, sends it
//! and returns a response without secrets. It refuses hosts that manifest or grant do not name,
//! secrets that may not go to that host, and more requests than a call may send.
//!
//! Security: the egress log contains no body, query or header field.

use std::time::Duration;

use http::{HeaderName, Method};
use tokio::time::Instant;
use wasmtime::component::Resource;
use zeroize::Zeroizing;

use super::call_state::{CallState, EgressRecord, HostRefusal, Phase};
use super::redacted_body::{RedactedBody, VisibleStrings, redact_body};
use super::secret::{Secret, encode};
use crate::bindings::provider::tollgate::plugin::egress as wit;
use crate::bindings::provider::tollgate::plugin::secrets::{Encoding, Part};
use crate::budget::HostState;
use crate::egress::{Error, Request, Response, Target};
use tollgate_core::json_path::SingularPath;

/// Maximum fields and query parameters that are written at all, and maximum bytes of their values,
/// because a small handle can stand for many bytes. The limits of a request are lower, and are
/// checked on the whole request.
const MAX_FIELDS: usize = 256;
const MAX_FIELDS_BYTES: usize = 256 << 10;
/// Paths of one request.
const MAX_CAPTURES: usize = 16;
/// Time that a guest has left after its last request timed out.
const GUEST_RESERVE: Duration = Duration::from_millis(200);
/// Bytes of one response field that reach the guest.
const MAX_FIELD_BYTES: usize = 4 << 10;

impl wit::Host for HostState {
    async fn send(&mut self, request: wit::Request) -> wasmtime::Result<Result<wit::Response, wit::EgressError>> {
        let deadline = self.deadline();
        let call = self.provider_call()?;
        let prepared = match call.prepare(&request, deadline)? {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(call.record_refusal(error))),
        };
        let Prepared { request, capture } = prepared;
        let (method, target) = (request.method.to_string(), request.target.clone());
        let egress_client = call.services.environment.egress_client.clone();
        let started = Instant::now();
        let sent = egress_client.send(request).await;
        let call = self.provider()?;
        call.record_exchange(method, &target, &sent, started);
        Ok(match sent {
            Ok(response) => call.convert_response(&target, &capture, &response),
            Err(error) => {
                let error = call.to_egress_error(&error);
                Err(call.record_refusal(error))
            }
        })
    }
}

struct Prepared {
    request: Request,
    capture: Vec<SingularPath>,
}

type EgressResult<T> = wasmtime::Result<Result<T, wit::EgressError>>;

impl CallState {
    /// Records that the host refused, so that a guest cannot report the failure as temporary.
    fn record_refusal(&mut self, error: wit::EgressError) -> wit::EgressError {
        // Only the first refusal counts: later ones may be provoked to hide it.
        if self.host_refusal == HostRefusal::Nothing {
            match &error {
                wit::EgressError::Denied(reason) => self.host_refusal = HostRefusal::Refused(reason.clone()),
                wit::EgressError::Budget => self.host_refusal = HostRefusal::OverBudget,
                _ => {}
            }
        }
        error
    }

    fn prepare(&mut self, wanted: &wit::Request, deadline: Instant) -> EgressResult<Prepared> {
        if self.phase == Phase::Check {
            return Ok(Err(denied("egress.phase", "`check` may send nothing")));
        }
        let Some(left) = self.requests_left.checked_sub(1) else {
            return Ok(Err(wit::EgressError::Budget));
        };
        self.requests_left = left;
        let target = match self.target(&wanted.url) {
            Ok(target) => target,
            Err(error) => return Ok(Err(error)),
        };
        let capture = match paths(&wanted.capture) {
            Ok(capture) => capture,
            Err(error) => return Ok(Err(error)),
        };
        if wanted.headers.len() > MAX_FIELDS || wanted.query.len() > MAX_FIELDS {
            let message = format!("more than `{MAX_FIELDS}` fields or parameters");
            return Ok(Err(wit::EgressError::InvalidRequest(message)));
        }
        let query = match self.query(&wanted.query, &target)? {
            Ok(query) => query,
            Err(error) => return Ok(Err(error)),
        };
        let mut headers = Vec::with_capacity(wanted.headers.len());
        let mut bytes: usize = 0;
        for wit::Header { name, value } in &wanted.headers {
            match self.parts(value, &target)? {
                Ok(value) => {
                    bytes = bytes.saturating_add(value.len());
                    headers.push((name.clone(), value));
                }
                Err(error) => return Ok(Err(error)),
            }
            if bytes > MAX_FIELDS_BYTES {
                return Ok(Err(too_long("fields")));
            }
        }
        let body = match self.parts(&wanted.body, &target)? {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
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
        };
        let request = Request {
            method,
            target,
            query,
            headers,
            body,
            timeout,
        };
        Ok(Ok(Prepared { request, capture }))
    }

    /// The host must be in the grant, and in the manifest.
    fn target(&self, url: &str) -> Result<Target, wit::EgressError> {
        let target = self.services.grant.allow_list.allow(url).map_err(|refused| {
            let message = self.redactor.redact_line(&refused.message, 256);
            denied(&format!("egress.{}", refused.code.as_str()), &message)
        })?;
        if self.permissions.allows_host(target.host(), target.port()) {
            return Ok(target);
        }
        let host = target.host();
        let message = format!("`{host}` is granted, but not among the hosts of the manifest");
        Err(denied("egress.manifest", &message))
    }

    /// The parts as bytes, if all their secrets may be sent to `target`.
    fn parts(&self, parts: &[Part], target: &Target) -> EgressResult<Zeroizing<Vec<u8>>> {
        let (bytes, egress_scope) = match self.concatenate(parts)? {
            Ok(written) => written,
            Err(error) => return Ok(Err(wit::EgressError::Secret(error))),
        };
        if egress_scope.is_some_and(|egress_scope| !egress_scope.allows_host(target.host(), target.port())) {
            let message = format!("a secret may not be sent to `{}`", target.host());
            return Ok(Err(denied("egress.secret-host", &message)));
        }
        Ok(Ok(bytes))
    }

    fn query(&self, pairs: &[(String, Vec<Part>)], target: &Target) -> EgressResult<Option<Zeroizing<String>>> {
        let mut query = Zeroizing::new(Vec::with_capacity(4 << 10));
        for (name, value) in pairs {
            let value = match self.parts(value, target)? {
                Ok(value) => value,
                Err(error) => return Ok(Err(error)),
            };
            let mut pair = Zeroizing::new(Vec::with_capacity(name.len() * 3 + value.len() + 2));
            if !query.is_empty() {
                pair.push(b'&');
            }
            if let Err(error) = encode(name.as_bytes(), Encoding::Form, &mut pair) {
                return Ok(Err(wit::EgressError::Secret(error)));
            }
            pair.push(b'=');
            pair.extend_from_slice(&value);
            query.extend_from_slice(&pair);
            if query.len() > MAX_FIELDS_BYTES {
                return Ok(Err(too_long("parameters")));
            }
        }
        if pairs.is_empty() {
            return Ok(Ok(None));
        }
        Ok(match std::str::from_utf8(&query) {
            Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
            Err(_) => Err(wit::EgressError::InvalidRequest("the query is not text".to_owned())),
        })
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
    ) -> Result<wit::Response, wit::EgressError> {
        let egress_scope = self.permissions.capture_scope(target.host(), target.port());
        let visible = if self.reveals_bodies {
            VisibleStrings::All
        } else {
            VisibleStrings::Paths(self.permissions.visible())
        };
        let RedactedBody { mut body, captured } = if response.status.is_success() {
            redact_body(&response.body, capture, visible)
        } else {
            RedactedBody {
                body: response.body.to_vec(),
                captured: capture.iter().map(|_| None).collect(),
            }
        };
        let mut handles: Vec<Option<Resource<Secret>>> = Vec::with_capacity(captured.len());
        for bytes in captured {
            let secret = bytes
                .map(|bytes| Secret::new(bytes, egress_scope.clone()).and_then(|secret| self.insert_secret(secret)));
            handles.push(secret.transpose().map_err(wit::EgressError::Secret)?);
        }
        self.redactor.replace_secrets(&mut body, b"");
        Ok(wit::Response {
            status: response.status.as_u16(),
            headers: self.fields(response),
            body,
            captured: handles,
        })
    }

    fn fields(&self, response: &Response) -> Vec<(String, String)> {
        let visible = response
            .headers
            .iter()
            .filter(|(name, _): &(&HeaderName, _)| self.permissions.allows_response_header(name));
        visible
            .filter_map(|(name, value)| {
                let text = value.to_str().ok()?;
                Some((
                    name.as_str().to_owned(),
                    self.redactor.redact_line(text, MAX_FIELD_BYTES),
                ))
            })
            .collect()
    }

    fn to_egress_error(&self, error: &Error) -> wit::EgressError {
        let text = self.redactor.redact_line(&error.to_string(), 256);
        match error {
            Error::Denied(refused) => denied(&format!("egress.{}", refused.code.as_str()), &text),
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
