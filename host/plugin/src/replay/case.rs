//! The YAML format of a transcript's [`Case`].
//!
//! Invariant: an unknown key is an error, because a misspelled expectation would check nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::jwt::ExpectedJwt;
use super::{DEFAULT_CASE_BUDGET, Error, TIMEOUT_CASE_BUDGET};
use crate::credential::MintReason;
use crate::provider::{ProviderCluster, SecretValues};

mod answer;

pub(super) use answer::{CannedResponse, TransportFailure};

/// One case of a transcript. Its `Debug` shows no secret.
pub struct Case {
    pub(super) id: String,
    pub(super) now: Timestamp,
    pub(super) config: Value,
    pub(super) secret_values: SecretValues,
    pub(super) ambient: Value,
    pub(super) cluster: ProviderCluster,
    pub(super) reason: MintReason,
    pub(super) previous_expiry: Option<Timestamp>,
    pub(super) budget: Duration,
    pub(super) exchanges: Vec<ScriptedExchange>,
    pub(super) expects_revocation: bool,
    pub(super) expect: Expected,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Case {
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

/// An expected request and its canned response. Either may be missing.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedExchange {
    #[serde(default)]
    pub(super) expect: Option<ExpectedRequest>,
    #[serde(default)]
    pub(super) answer: Option<CannedResponse>,
}

/// The expected parts of a request.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedRequest {
    pub(super) method: String,
    pub(super) url: String,
    /// A subset, by lower-case name.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) absent_headers: Vec<String>,
    #[serde(default)]
    pub(super) form: Option<Vec<(String, String)>>,
    #[serde(default)]
    pub(super) json: Option<Value>,
    #[serde(default, alias = "body")]
    pub(super) body_exact: Option<String>,
    /// The form's field of that name is such a JWT.
    #[serde(default)]
    pub(super) client_assertion: Option<ExpectedJwt>,
    #[serde(default)]
    pub(super) assertion: Option<ExpectedJwt>,
}

/// The expected result.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    #[serde(default)]
    pub(super) token: Option<String>,
    /// Null means unknown. A missing value is not compared.
    #[serde(default, deserialize_with = "present_or_null")]
    pub(super) expiry: Option<Value>,
    #[serde(default)]
    pub(super) cacheable: Option<bool>,
    #[serde(default)]
    pub(super) client_cert: bool,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) error_class: Option<String>,
    #[serde(default)]
    pub(super) code: Option<String>,
    /// A part of the message.
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) http_status: Option<u16>,
    #[serde(default)]
    pub(super) retry_after_s: Option<u64>,
    #[serde(default)]
    pub(super) correlation: Option<String>,
    /// Parts of the expected warnings. An empty list expects none.
    #[serde(default)]
    pub(super) warnings: Option<Vec<String>>,
    /// Values that the revocation must contain.
    #[serde(default)]
    pub(super) revoke: Option<Value>,
    /// Words for readers.
    #[serde(default, rename = "warn")]
    _warn: Option<String>,
    #[serde(default, rename = "hint")]
    _hint: Option<String>,
    #[serde(default, rename = "expiry_source")]
    _expiry_source: Option<String>,
}

impl Expected {
    fn wants_error(&self) -> bool {
        self.error_class.is_some() || self.code.is_some()
    }

    fn wants_credential(&self) -> bool {
        self.token.is_some() || self.client_cert || !self.headers.is_empty()
    }
}

/// Distinguishes null from a missing value.
fn present_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    /// Read before the rest, so that every mistake can name the case.
    #[serde(default, rename = "id")]
    _id: Option<String>,
    now: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    secret: BTreeMap<String, String>,
    #[serde(default)]
    public: BTreeSet<String>,
    #[serde(default)]
    ambient: Value,
    #[serde(default)]
    cluster: Option<Cluster>,
    #[serde(default)]
    reason: RawReason,
    #[serde(default)]
    previous_expiry: Option<String>,
    #[serde(default)]
    budget_ms: Option<u64>,
    #[serde(default)]
    requests: Option<Vec<ScriptedExchange>>,
    #[serde(default)]
    expect_requests: Vec<ExpectedRequest>,
    #[serde(default)]
    responses: Vec<CannedResponse>,
    #[serde(default)]
    revoke: bool,
    expect: Expected,
    #[serde(default)]
    kind: Option<String>,
    /// Words for readers.
    #[serde(default, rename = "provider")]
    _provider: Option<String>,
    #[serde(default, rename = "note")]
    _note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    name: String,
    server: String,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawReason {
    #[default]
    Initial,
    Refresh,
    Unauthorized,
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
    read.and_then(|raw: RawCase| raw.into_case(&id))
        .map_err(|reason| Error::Case { case: id, reason })
}

impl RawCase {
    /// Checks that it is consistent.
    fn into_case(self, id: &str) -> Result<Case, String> {
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
        let exchanges = exchanges_of(self.requests, self.expect_requests, self.responses)?;
        let fails = exchanges.iter().filter_map(|exchange| exchange.answer.as_ref()?.fail);
        let usual = if fails.into_iter().any(|fail| fail == TransportFailure::Timeout) {
            TIMEOUT_CASE_BUDGET
        } else {
            DEFAULT_CASE_BUDGET
        };
        let cluster = self.cluster.unwrap_or_default();
        let previous = self.previous_expiry.as_deref();
        let values = self.secret.into_iter();
        Ok(Case {
            id: id.to_owned(),
            now: time("now", &self.now)?,
            previous_expiry: previous.map(|text| time("previous_expiry", text)).transpose()?,
            config: self.config,
            secret_values: SecretValues {
                values: values.map(|(name, value)| (name, value.into())).collect(),
                public: self.public,
            },
            ambient: self.ambient,
            cluster: ProviderCluster {
                name: cluster.name,
                server: cluster.server,
            },
            reason: self.reason.into(),
            budget: self.budget_ms.map_or(usual, Duration::from_millis),
            exchanges,
            expects_revocation: self.revoke,
            expect: self.expect,
        })
    }
}

fn time(key: &str, text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|error| format!("`{key}`: {error}; write it as 2026-01-02T03:04:05Z"))
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: "c1".to_owned(),
            server: "https://cluster.example:6443".to_owned(),
        }
    }
}

impl From<RawReason> for MintReason {
    fn from(reason: RawReason) -> Self {
        match reason {
            RawReason::Initial => Self::Initial,
            RawReason::Refresh => Self::Refresh,
            RawReason::Unauthorized => Self::Unauthorized,
        }
    }
}

/// Combines requests and responses into one list, from either form of a case.
fn exchanges_of(
    requests: Option<Vec<ScriptedExchange>>,
    expected: Vec<ExpectedRequest>,
    responses: Vec<CannedResponse>,
) -> Result<Vec<ScriptedExchange>, String> {
    let mut exchanges = match requests {
        Some(_) if !expected.is_empty() || !responses.is_empty() => {
            return Err("write `requests`, or `expect_requests` and `responses`, not both".to_owned());
        }
        Some(exchanges) => exchanges,
        None => {
            let mut responses = responses.into_iter();
            let mut exchanges: Vec<ScriptedExchange> = Vec::new();
            for expect in expected {
                let answer = responses.next();
                exchanges.push(ScriptedExchange {
                    expect: Some(expect),
                    answer,
                });
            }
            exchanges.extend(responses.map(|answer| ScriptedExchange {
                expect: None,
                answer: Some(answer),
            }));
            exchanges
        }
    };
    for exchange in &mut exchanges {
        if let Some(answer) = &mut exchange.answer {
            answer.validate()?;
        }
    }
    Ok(exchanges)
}
