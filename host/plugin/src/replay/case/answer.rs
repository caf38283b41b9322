//! The canned response to one request of a case: either status, fields and content, or a transport
//! failure, never both.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The canned response to a request.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct CannedResponse {
    #[serde(default)]
    pub(in super::super) status: Option<u16>,
    #[serde(default)]
    pub(in super::super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(in super::super) json: Option<Value>,
    #[serde(default)]
    pub(in super::super) body: Option<String>,
    #[serde(default)]
    pub(in super::super) fail: Option<TransportFailure>,
    #[serde(default)]
    transport_error: Option<String>,
}

/// How a request fails without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum TransportFailure {
    /// The name does not resolve.
    Dns,
    /// Nobody accepts the connection.
    Connect,
    /// The certificate is not trusted.
    Tls,
    /// No response in time.
    Timeout,
    /// The connection ends within the response.
    Truncated,
}

impl CannedResponse {
    /// Checks that it is consistent, and translates the words of the tables.
    pub(super) fn validate(&mut self) -> Result<(), String> {
        if let Some(text) = self.transport_error.take() {
            self.fail = Some(transport(&text)?);
        }
        let says = self.status.is_some() || self.json.is_some() || self.body.is_some();
        match (self.fail.is_some(), says) {
            (true, true) => return Err("an answer with `fail` has no `status` and no content".to_owned()),
            (false, false) => return Err("an answer has a `status` or a `fail`".to_owned()),
            (true, false) | (false, true) => {}
        }
        if self.json.is_some() && self.body.is_some() {
            return Err("an answer has `json` or `body`, not both".to_owned());
        }
        Ok(())
    }
}

fn transport(text: &str) -> Result<TransportFailure, String> {
    let has = |words: &[&str]| words.iter().any(|word| text.to_ascii_lowercase().contains(word));
    if has(&["tls", "certificate"]) {
        Ok(TransportFailure::Tls)
    } else if has(&["dns"]) {
        Ok(TransportFailure::Dns)
    } else if has(&["truncated", "incomplete", "terminated"]) {
        Ok(TransportFailure::Truncated)
    } else if has(&["refused", "connection-timeout", "reset"]) {
        Ok(TransportFailure::Connect)
    } else if has(&["timeout"]) {
        Ok(TransportFailure::Timeout)
    } else {
        Err(format!(
            "`{text}` is no known `transport_error`; `fail` has `dns`, `connect`, `tls`, `timeout`, `truncated`"
        ))
    }
}
