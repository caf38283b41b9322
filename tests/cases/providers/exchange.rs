//! Kind `exchange`: the exact requests of a provider, and the credential that it makes of the
//! responses.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_credential::{Credential, MintError};
use tollgate_plugin::ProviderCluster;

use super::compare::{self, ExpectedRequest};
use super::plugin_host::{MintInput, PluginHost};
use crate::suite::{Case, Table, same};
use test_support::providers::{Reply, Script};

/// The key of RFC 7515, appendix A.2, which tables refer to.
const RFC_7515_A2: &str = include_str!("../../data/rfc7515-a2.pem");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    provider: String,
    now: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    secret: BTreeMap<String, String>,
    #[serde(default)]
    ambient: Value,
    #[serde(default)]
    cluster: Option<Cluster>,
    #[serde(default)]
    expect_requests: Vec<ExpectedRequest>,
    #[serde(default)]
    responses: Vec<Answer>,
    expect: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    name: String,
    server: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    json: Option<Value>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    transport_error: Option<String>,
    #[serde(default)]
    stdout: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    token: Option<String>,
    /// Null means unknown; if absent, it is not compared.
    #[serde(default, deserialize_with = "null_is_some")]
    expiry: Option<Value>,
    #[serde(default)]
    cacheable: Option<bool>,
    #[serde(default)]
    client_cert: bool,
    #[serde(default)]
    token_url_host: Option<String>,
    #[serde(default)]
    error_class: Option<String>,
    #[serde(default)]
    retry_after_s: Option<u64>,
    #[serde(default)]
    revoke: Option<Value>,
    /// Text in a warning to the operator; if absent, warnings are not compared.
    #[serde(default)]
    warn: Option<String>,
    /// Text in the error that suggests a remedy.
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    expiry_source: Option<ExpirySource>,
}

/// Source of a credential's expiry.
#[derive(Clone, Copy, Debug, Deserialize)]
enum ExpirySource {
    /// `expires_in` beside the token in the last response.
    #[serde(rename = "sibling expires_in")]
    Sibling,
    /// The token's own claim.
    #[serde(rename = "jwt exp")]
    Jwt,
    /// `expiry.ttl` of the configuration, which is shorter than the response's lifetime.
    #[serde(rename = "config ttl caps")]
    Cap,
}

impl ExpirySource {
    /// The expiry according to this source.
    fn expiry(self, exchange: &Exchange, now: Timestamp) -> Result<Timestamp, String> {
        let answer = exchange.responses.last().and_then(|answer| answer.json.as_ref());
        let sibling = answer.and_then(|answer| answer["expires_in"].as_i64());
        let token = exchange.expect.token.as_deref().unwrap_or_default();
        let seconds = match self {
            Self::Sibling => sibling.map(|seconds| now.as_second() + seconds),
            Self::Jwt => {
                let claims = token
                    .split('.')
                    .nth(1)
                    .and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
                let claims = claims.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
                claims.and_then(|claims| claims["exp"].as_i64())
            }
            Self::Cap => {
                let ttl = exchange.config["expiry"]["ttl"].as_str().unwrap_or_default();
                let ttl = ttl.parse::<jiff::SignedDuration>().map_err(|error| error.to_string())?;
                if sibling.is_some_and(|seconds| seconds <= ttl.as_secs()) {
                    return Err("expiry_source: `ttl` caps nothing".to_owned());
                }
                Some(now.as_second() + ttl.as_secs())
            }
        };
        let seconds = seconds.ok_or_else(|| format!("expiry_source: the case has no {self:?}"))?;
        Timestamp::from_second(seconds).map_err(|error| error.to_string())
    }
}

/// Deserializes null as `Some`, so that it differs from an absent field.
fn null_is_some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(crate) fn run(table: &Table, case: &Case) -> Result<(), String> {
    let exchange: Exchange = case.read()?;
    let (hosts, audiences) = allowed_destinations(table)?;
    let plugin_host = PluginHost::of(&hosts, &audiences);
    let now: Timestamp = exchange.now.parse().map_err(|error| format!("now: {error}"))?;
    plugin_host.world.clock.set(now);
    *plugin_host.world.pod.given.lock().unwrap() = exchange.ambient.clone();
    *plugin_host.world.pod.now.lock().unwrap() = Some(now);
    let expected = expected_requests(&exchange);
    let input = mint_input(&exchange)?;
    let script = Script {
        replies: exchange.responses.iter().map(reply).collect::<Result<_, _>>()?,
        ..Script::default()
    };
    let planned = script.replies.len();
    let (minted, _, played) = plugin_host.mint(&input, script);
    let context = |why: String| format!("{why}; mint: {}", outcome(&minted));
    let reached = exchange
        .responses
        .iter()
        .filter(|answer| answer.transport_error.is_none());
    if planned == expected.len() && reached.count() == planned {
        compare::requests(&expected, &played.seen, now).map_err(context)?;
    } else {
        // Requests that did not arrive cannot be compared, only counted.
        let sent = planned - played.replies.len();
        same(&expected.len(), &sent).map_err(|why| context(format!("requests: {why}")))?;
    }
    check_result(&exchange.expect, &minted)?;
    if let Some(source) = exchange.expect.expiry_source {
        let observed = minted.map_err(|error| error.to_string())?.expires_at;
        same(&Some(source.expiry(&exchange, now)?), &observed).map_err(|why| format!("expiry_source: {why}"))?;
    }
    Ok(())
}

/// The requests that the table expects. Where it expects a program to print an ExecCredential, a
/// web service is expected instead.
fn expected_requests(exchange: &Exchange) -> Vec<ExpectedRequest> {
    let mut expected = exchange.expect_requests.clone();
    if exchange.responses.iter().any(|answer| answer.stdout.is_some()) {
        expected.push(ExpectedRequest::get("https://exec.example.com/credential"));
    }
    expected
}

/// Converts a case to the names and configuration of our plugins.
fn mint_input(exchange: &Exchange) -> Result<MintInput, String> {
    let mut config = exchange.config.clone();
    let mut set = |key: &str, value: &str| {
        if let Some(members) = config.as_object_mut() {
            members.insert(key.to_owned(), Value::from(value));
        }
    };
    let plugin = match exchange.provider.as_str() {
        "webapi" | "upbound" | "vault" => exchange.provider.as_str(),
        "eks" => "aws-eks",
        "gke" => "gcp-gke",
        "aks" => "azure-aks",
        "tokenrequest" => "kubernetes-token-request",
        grant @ ("token-exchange" | "client-credentials") => {
            set("grant", grant);
            "oauth2"
        }
        "exec-credential" => {
            set("url", "https://exec.example.com/credential");
            "exec-credential"
        }
        other => return Err(format!("no plugin implements the provider `{other}`")),
    };
    let secret = exchange
        .secret
        .iter()
        .map(|(name, value)| (name.clone(), filled(value)));
    let cluster = exchange.cluster.as_ref();
    Ok(MintInput {
        plugin: plugin.to_owned(),
        config,
        secret: secret.collect(),
        cluster: ProviderCluster {
            name: cluster.map_or("c1", |cluster| cluster.name.as_str()).to_owned(),
            server: cluster
                .map_or("https://cluster.example:6443", |cluster| cluster.server.as_str())
                .to_owned(),
        },
    })
}

/// Replaces placeholders of tables: the key of the RFC, and repeated letters.
fn filled(value: &str) -> String {
    if value.contains("RFC 7515") && value.starts_with('<') {
        return RFC_7515_A2.to_owned();
    }
    repeated(value).unwrap_or_else(|| value.to_owned())
}

/// Expands `<n x a>` to `n` times `a`.
fn repeated(value: &str) -> Option<String> {
    let (count, letter) = value.strip_prefix('<')?.strip_suffix('>')?.split_once(" x ")?;
    Some(letter.repeat(count.parse().ok()?))
}

fn reply(answer: &Answer) -> Result<Reply, String> {
    if let Some(error) = &answer.transport_error {
        return Ok(match error.as_str() {
            "TLS-certificate-error" => Reply::Untrusted,
            text if text.contains("timeout") || text.contains("refused") || text.contains("DNS") => Reply::Timeout,
            text if text.contains("truncated") || text.contains("incomplete") || text.contains("terminated") => {
                Reply::Cut
            }
            other => return Err(format!("cannot simulate the transport error `{other}`")),
        });
    }
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let body = match (&answer.json, &answer.body, &answer.stdout) {
        (Some(json), None, None) => {
            if !answer.headers.contains_key("content-type") {
                headers.push(("content-type".to_owned(), "application/json".to_owned()));
            }
            expand(json).to_string()
        }
        (None, Some(body), None) => repeated(body).unwrap_or_else(|| body.clone()),
        (None, None, Some(stdout)) => stdout.clone(),
        (None, None, None) => String::new(),
        _ => return Err("a response has only one of `json`, `body` and `stdout`".to_owned()),
    };
    Ok(Reply::Answer {
        status: answer.status.unwrap_or(200),
        headers,
        body: body.into_bytes(),
    })
}

/// Replaces placeholders within a document.
fn expand(json: &Value) -> Value {
    match json {
        Value::String(text) => Value::from(repeated(text).unwrap_or_else(|| text.clone())),
        Value::Array(items) => items.iter().map(expand).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), expand(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Hosts and audiences that an operator would allow for a table: those in its configurations and
/// requests.
pub(crate) fn allowed_destinations(table: &Table) -> Result<(BTreeSet<String>, BTreeSet<String>), String> {
    let mut hosts = BTreeSet::from(["exec.example.com".to_owned()]);
    let mut audiences = BTreeSet::new();
    for case in table.cases.iter().filter(|case| case.kind == "exchange") {
        let case: Value = case.read()?;
        for part in ["config", "expect_requests"] {
            urls(&case[part], &mut hosts);
        }
        if let Some(audience) = case["ambient"]["sa-token"]["audience"].as_str() {
            audiences.insert(audience.to_owned());
        }
    }
    Ok((hosts, audiences))
}

fn urls(value: &Value, hosts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let host = text
                .strip_prefix("https://")
                .and_then(|rest| rest.split(['/', '?']).next());
            let plain = |host: &&str| !host.is_empty() && !host.contains(['{', '@', '%', ' ']);
            hosts.extend(host.filter(plain).map(|host| host.to_ascii_lowercase()));
        }
        Value::Array(items) => items.iter().for_each(|item| urls(item, hosts)),
        Value::Object(members) => members.values().for_each(|member| urls(member, hosts)),
        _ => {}
    }
}

fn check_result(expected: &Expected, minted: &Result<Credential, MintError>) -> Result<(), String> {
    match (&expected.error_class, minted) {
        (Some(class), Err(error)) => {
            same(&class.as_str(), &error.class.as_ref()).map_err(|why| format!("class: {why} ({error})"))?;
            if let Some(words) = expected
                .hint
                .as_deref()
                .filter(|words| !error.to_string().contains(words))
            {
                return Err(format!("hint: expected `{words}` in `{error}`"));
            }
            match expected.retry_after_s {
                Some(seconds) => same(&Some(seconds), &error.retry_after.map(|wait| wait.as_secs())),
                None => Ok(()),
            }
        }
        (Some(class), Ok(_)) => Err(format!("expected an error of class {class}, observed a credential")),
        (None, Err(error)) => Err(format!(
            "expected a credential, observed {}: {error}",
            error.class.as_ref()
        )),
        (None, Ok(credential)) => {
            check_warnings(expected.warn.as_deref(), &credential.warnings)?;
            check_credential(expected, credential)
        }
    }
}

/// Checks that a warning contains the expected text.
pub(super) fn check_warnings(expected: Option<&str>, observed: &[String]) -> Result<(), String> {
    match expected {
        Some(words) if observed.iter().any(|warning| warning.contains(words)) => Ok(()),
        Some(words) => Err(format!("warn: expected `{words}`, observed {observed:?}")),
        None => Ok(()),
    }
}

fn check_credential(expected: &Expected, credential: &Credential) -> Result<(), String> {
    let token = credential.token.as_ref().map(|token| token.expose().to_owned());
    if let Some(host) = &expected.token_url_host {
        let url = presigned(token.as_deref().unwrap_or_default())?;
        same(&Some(host.as_str()), &url.host_str())?;
    } else {
        compare::tokens(expected.token.as_deref().map(filled).as_deref(), token.as_deref())?;
    }
    same(&expected.client_cert, &credential.certificate.is_some())?;
    if let Some(expiry) = &expected.expiry {
        let expiry = expiry.as_str().map(str::parse::<Timestamp>).transpose();
        let expiry = expiry.map_err(|error| format!("expiry: {error}"))?;
        same(&expiry, &credential.expires_at).map_err(|why| format!("expiry: {why}"))?;
    }
    same(&expected.cacheable.unwrap_or(true), &credential.cacheable).map_err(|why| format!("cacheable: {why}"))?;
    if let Some(revoke) = &expected.revoke {
        use secrecy::ExposeSecret as _;

        let held = credential
            .revocation
            .as_ref()
            .map(|held| held.expose_secret().to_owned());
        let held = held.ok_or("nothing to revoke with")?;
        for value in revoke
            .as_object()
            .into_iter()
            .flat_map(Map::values)
            .filter_map(Value::as_str)
        {
            if !held.contains(value) {
                return Err("revoke: the credential would revoke something else".to_owned());
            }
        }
    }
    Ok(())
}

/// The URL in an EKS token.
fn presigned(token: &str) -> Result<url::Url, String> {
    let bytes = token.strip_prefix("k8s-aws-v1.").ok_or("not a token of EKS")?;
    let bytes = URL_SAFE_NO_PAD.decode(bytes).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    url::Url::parse(&text).map_err(|error| error.to_string())
}

fn outcome(minted: &Result<Credential, MintError>) -> String {
    match minted {
        Ok(credential) => format!("a credential until {:?}", credential.expires_at),
        Err(error) => format!("{}: {error}", error.class.as_ref()),
    }
}
