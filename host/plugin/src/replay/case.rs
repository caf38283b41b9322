//! The YAML format of a transcript's [`Case`].
//!
//! Invariant: an unknown key is an error, because a misspelled expectation would check nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::jwt::ExpectedJwt;
use super::{DEFAULT_CASE_BUDGET, Error, TIMEOUT_CASE_BUDGET};
use crate::provider::ProviderCluster;
use tollgate_credential::MintReason;

/// One case of a transcript. Its `Debug` shows no secret.
#[derive(Deserialize, derive_more::Debug)]
#[debug("Case {{ id: {id:?}, .. }}")]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its number in the transcript if it has none.
    #[serde(default)]
    pub(super) id: String,
    #[serde(deserialize_with = "now")]
    pub(super) now: Timestamp,
    #[serde(default)]
    pub(super) config: Value,
    #[serde(default)]
    pub(super) secret: BTreeMap<String, SecretString>,
    #[serde(default)]
    pub(super) public: BTreeSet<String>,
    #[serde(default)]
    pub(super) ambient: Value,
    #[serde(default = "default_cluster")]
    pub(super) cluster: ProviderCluster,
    #[serde(default)]
    pub(super) reason: MintReason,
    #[serde(default, deserialize_with = "previous_expiry")]
    pub(super) previous_expiry: Option<Timestamp>,
    budget_ms: Option<u64>,
    /// Of either form, once the case is checked.
    #[serde(skip)]
    pub(super) exchanges: Vec<ScriptedExchange>,
    requests: Option<Vec<ScriptedExchange>>,
    #[serde(default)]
    expect_requests: Vec<ExpectedRequest>,
    #[serde(default)]
    responses: Vec<CannedResponse>,
    #[serde(default, rename = "revoke")]
    pub(super) expects_revocation: bool,
    pub(super) expect: Expected,
    kind: Option<String>,
    /// Words for readers.
    #[serde(rename = "provider")]
    _provider: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedExchange {
    pub(super) expect: Option<ExpectedRequest>,
    pub(super) answer: Option<CannedResponse>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedRequest {
    pub(super) method: String,
    pub(super) url: String,
    /// A subset, by lower-case name.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) absent_headers: Vec<String>,
    pub(super) form: Option<Vec<(String, String)>>,
    pub(super) json: Option<Value>,
    #[serde(alias = "body")]
    pub(super) body_exact: Option<String>,
    /// The form's field of that name is such a JWT.
    pub(super) client_assertion: Option<ExpectedJwt>,
    pub(super) assertion: Option<ExpectedJwt>,
}

/// The canned response to a request: either status, fields and content, or a failure.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CannedResponse {
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) json: Option<Value>,
    pub(super) body: Option<String>,
    pub(super) fail: Option<TransportFailure>,
    transport_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TransportFailure {
    Dns,
    /// Nobody accepts the connection.
    Connect,
    Tls,
    Timeout,
    /// The connection ends within the response.
    Truncated,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expected {
    pub(super) token: Option<String>,
    /// Null means unknown. A missing value is not compared.
    #[serde(deserialize_with = "present_or_null")]
    pub(super) expiry: Option<Value>,
    pub(super) cacheable: Option<bool>,
    pub(super) client_cert: bool,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) error_class: Option<String>,
    pub(super) code: Option<String>,
    /// A part of the message.
    pub(super) message: Option<String>,
    pub(super) http_status: Option<u16>,
    pub(super) retry_after_s: Option<u64>,
    pub(super) correlation: Option<String>,
    /// Parts of the expected warnings. An empty list expects none.
    pub(super) warnings: Option<Vec<String>>,
    /// Values that the revocation must contain.
    pub(super) revoke: Option<Value>,
    /// Words for readers.
    #[serde(rename = "warn")]
    _warn: Option<String>,
    #[serde(rename = "hint")]
    _hint: Option<String>,
    #[serde(rename = "expiry_source")]
    _expiry_source: Option<String>,
}

impl Expected {
    pub(super) fn wants_error(&self) -> bool {
        self.error_class.is_some() || self.code.is_some()
    }

    fn wants_credential(&self) -> bool {
        self.token.is_some() || self.client_cert || !self.headers.is_empty()
    }
}

/// Distinguishes null from a missing value.
fn present_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn now<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    time("now", &String::deserialize(deserializer)?)
}

fn previous_expiry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| time("previous_expiry", &text)).transpose()
}

fn time<E: serde::de::Error>(key: &str, text: &str) -> Result<Timestamp, E> {
    text.parse()
        .map_err(|error| E::custom(format!("`{key}`: {error}; write it as 2026-01-02T03:04:05Z")))
}

fn default_cluster() -> ProviderCluster {
    ProviderCluster {
        name: "c1".to_owned(),
        server: "https://cluster.example:6443".to_owned(),
    }
}

/// Reads a transcript: one case, a list of them, or a list under `cases`.
///
/// # Errors
/// [`Error`]: no YAML, no case, or what is wrong with one of them.
pub fn parse(text: &str) -> Result<Vec<Case>, Error> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| Error::Yaml(error.to_string()))?;
    let raw = match document {
        Value::Object(mut top) => match top.remove("cases") {
            Some(Value::Array(cases)) => {
                top.remove("meta");
                if let Some(key) = top.keys().next() {
                    return Err(Error::Yaml(format!(
                        "`{key}` stands beside `cases`; it belongs into a case"
                    )));
                }
                cases
            }
            Some(_) => return Err(Error::Yaml("`cases` is not a list".to_owned())),
            None if top.is_empty() => return Err(Error::Empty),
            None => vec![Value::Object(top)],
        },
        Value::Array(cases) => cases,
        Value::Null => return Err(Error::Empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(Error::Yaml("a transcript is a mapping or a list".to_owned()));
        }
    };
    if raw.is_empty() {
        return Err(Error::Empty);
    }
    raw.into_iter().enumerate().map(|(at, raw)| case(at, raw)).collect()
}

fn case(at: usize, raw: Value) -> Result<Case, Error> {
    let named = raw.get("id").and_then(Value::as_str).map(str::to_owned);
    let id = named.unwrap_or_else(|| (at + 1).to_string());
    let read = serde_json::from_value(raw).map_err(|error| error.to_string());
    let checked = read.and_then(|case: Case| case.check());
    match checked {
        Ok(case) => Ok(Case { id, ..case }),
        Err(reason) => Err(Error::Case(id, reason)),
    }
}

impl Case {
    fn check(mut self) -> Result<Self, String> {
        if let Some(kind) = self.kind.as_deref().filter(|kind| *kind != "exchange") {
            return Err(format!("kind `{kind}` is not replayed, only `exchange` is"));
        }
        match (self.expect.wants_credential(), self.expect.wants_error()) {
            (true, false) | (false, true) => {}
            (true, true) => return Err("`expect` names a credential and an error".to_owned()),
            (false, false) => {
                let text = "`expect` needs `token`, `client_cert` or `headers`, or else `error_class` or `code`";
                return Err(text.to_owned());
            }
        }
        let (expected, responses) = (take(&mut self.expect_requests), take(&mut self.responses));
        self.exchanges = match self.requests.take() {
            Some(_) if !expected.is_empty() || !responses.is_empty() => {
                return Err("write `requests`, or `expect_requests` and `responses`, not both".to_owned());
            }
            Some(exchanges) => exchanges,
            None => {
                let count = expected.len().max(responses.len());
                let (mut expected, mut responses) = (expected.into_iter(), responses.into_iter());
                let exchange = |_| ScriptedExchange {
                    expect: expected.next(),
                    answer: responses.next(),
                };
                (0..count).map(exchange).collect()
            }
        };
        let exchanges = self.exchanges.iter_mut();
        let mut answers = exchanges.filter_map(|exchange| exchange.answer.as_mut());
        answers.try_for_each(CannedResponse::check)?;
        Ok(self)
    }

    pub(super) fn budget(&self) -> Duration {
        let fails = |exchange: &ScriptedExchange| exchange.answer.as_ref()?.fail;
        let mut failures = self.exchanges.iter().filter_map(fails);
        match self.budget_ms {
            Some(budget) => Duration::from_millis(budget),
            // Such a case takes its whole budget.
            None if failures.any(|fail| fail == TransportFailure::Timeout) => TIMEOUT_CASE_BUDGET,
            None => DEFAULT_CASE_BUDGET,
        }
    }

    /// Hosts of the requests it expects, with a port other than 443.
    pub(super) fn expected_hosts(&self) -> BTreeSet<String> {
        let urls = self.exchanges.iter().filter_map(|exchange| exchange.expect.as_ref());
        let hosts = urls.filter_map(|expected| {
            let url = url::Url::parse(&expected.url).ok()?;
            let host = url.host_str()?;
            Some(match url.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            })
        });
        hosts.collect()
    }
}

impl CannedResponse {
    /// Checks that it is consistent, and translates the words of the tables.
    fn check(&mut self) -> Result<(), String> {
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
    // The order matters: `connection-timeout`, for example, has the words of two.
    const WORDS: [(TransportFailure, &[&str]); 5] = [
        (TransportFailure::Tls, &["tls", "certificate"]),
        (TransportFailure::Dns, &["dns"]),
        (TransportFailure::Truncated, &["truncated", "incomplete", "terminated"]),
        (TransportFailure::Connect, &["refused", "connection-timeout", "reset"]),
        (TransportFailure::Timeout, &["timeout"]),
    ];
    let lower = text.to_ascii_lowercase();
    let known = WORDS
        .iter()
        .find(|(_, words)| words.iter().any(|word| lower.contains(word)));
    known.map(|(failure, _)| *failure).ok_or_else(|| {
        format!("`{text}` is no known `transport_error`; `fail` has `dns`, `connect`, `tls`, `timeout`, `truncated`")
    })
}
