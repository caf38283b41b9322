//! Cases of kind `exchange`: a provider's requests byte by byte, and what it makes
//! of the answers.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_plugin::ProviderCluster;
use tollgate_plugin::credential::{Credential, MintError};

use super::compare::{self, ExpectedRequest};
use super::stage::{Asked, Stage};
use crate::suite::{Case, Table, same};
use test_support::providers::{Reply, Script};

/// The key of RFC 7515, appendix A.2, which the tables name.
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
    /// Null is unknown; nothing is said when it is missing.
    #[serde(default, deserialize_with = "said")]
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
    /// Words of a warning to the operator; there is none without.
    #[serde(default)]
    warn: Option<String>,
    /// Words of the error that say what may help.
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    expiry_source: Option<ExpirySource>,
}

/// What the end of a credential was taken from.
#[derive(Clone, Copy, Debug, Deserialize)]
enum ExpirySource {
    /// `expires_in` beside the token in the last answer.
    #[serde(rename = "sibling expires_in")]
    Sibling,
    /// The token's own claim.
    #[serde(rename = "jwt exp")]
    Jwt,
    /// `expiry.ttl` of the configuration, which is less than the answer says.
    #[serde(rename = "config ttl caps")]
    Cap,
}

impl ExpirySource {
    /// The end that this source tells.
    fn end(self, exchange: &Exchange, now: Timestamp) -> Result<Timestamp, String> {
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

/// Tells null from missing.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(crate) fn run(table: &Table, case: &Case) -> Result<(), String> {
    let exchange: Exchange = case.read()?;
    let (hosts, audiences) = talked_to(table)?;
    let stage = Stage::of(&hosts, &audiences);
    let now: Timestamp = exchange.now.parse().map_err(|error| format!("now: {error}"))?;
    stage.world.clock.set(now);
    *stage.world.pod.given.lock().unwrap() = exchange.ambient.clone();
    *stage.world.pod.now.lock().unwrap() = Some(now);
    let expected = expected_requests(&exchange);
    let asked = asked(&exchange)?;
    let script = Script {
        replies: exchange.responses.iter().map(reply).collect::<Result<_, _>>()?,
        ..Script::default()
    };
    let planned = script.replies.len();
    let (minted, _, played) = stage.mint(&asked, script);
    let context = |why: String| format!("{why}; mint: {}", outcome(&minted));
    let reached = exchange
        .responses
        .iter()
        .filter(|answer| answer.transport_error.is_none());
    if planned == expected.len() && reached.count() == planned {
        compare::requests(&expected, &played.seen, now).map_err(context)?;
    } else {
        // A request that never arrived cannot be compared.
        let sent = planned - played.replies.len();
        same(&expected.len(), &sent).map_err(|why| context(format!("requests: {why}")))?;
    }
    judge(&exchange.expect, &minted)?;
    if let Some(source) = exchange.expect.expiry_source {
        let observed = minted.map_err(|error| error.to_string())?.expires_at;
        same(&Some(source.end(&exchange, now)?), &observed).map_err(|why| format!("expiry_source: {why}"))?;
    }
    Ok(())
}

/// The table asks for the ExecCredential of a program; here a web service says it.
fn expected_requests(exchange: &Exchange) -> Vec<ExpectedRequest> {
    let mut expected = exchange.expect_requests.clone();
    if exchange.responses.iter().any(|answer| answer.stdout.is_some()) {
        expected.push(ExpectedRequest::get("https://exec.example.com/credential"));
    }
    expected
}

/// The names of the tables in the plugins' terms.
fn asked(exchange: &Exchange) -> Result<Asked, String> {
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
        other => return Err(format!("no plugin is the provider `{other}`")),
    };
    let secret = exchange
        .secret
        .iter()
        .map(|(name, value)| (name.clone(), filled(value)));
    let cluster = exchange.cluster.as_ref();
    Ok(Asked {
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

/// Placeholders of the tables: the public key pair of the RFC, repeated letters.
fn filled(value: &str) -> String {
    if value.contains("RFC 7515") && value.starts_with('<') {
        return RFC_7515_A2.to_owned();
    }
    repeated(value).unwrap_or_else(|| value.to_owned())
}

/// `<n x a>`.
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
            other => return Err(format!("no way to make the transport error `{other}`")),
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
        _ => return Err("an answer has one content".to_owned()),
    };
    Ok(Reply::Answer {
        status: answer.status.unwrap_or(200),
        headers,
        body: body.into_bytes(),
    })
}

/// Placeholders within a document.
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

/// Hosts an operator would grant for a table: those of its configurations and
/// requests; audiences likewise.
pub(crate) fn talked_to(table: &Table) -> Result<(BTreeSet<String>, BTreeSet<String>), String> {
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

fn judge(expected: &Expected, minted: &Result<Credential, MintError>) -> Result<(), String> {
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
            warned(expected.warn.as_deref(), &credential.warnings)?;
            judge_credential(expected, credential)
        }
    }
}

/// Compares warnings: one with the words that are expected.
pub(super) fn warned(expected: Option<&str>, observed: &[String]) -> Result<(), String> {
    match expected {
        Some(words) if observed.iter().any(|warning| warning.contains(words)) => Ok(()),
        Some(words) => Err(format!("warn: expected `{words}`, observed {observed:?}")),
        None => Ok(()),
    }
}

fn judge_credential(expected: &Expected, credential: &Credential) -> Result<(), String> {
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
                return Err("what revokes is another one".to_owned());
            }
        }
    }
    Ok(())
}

/// The URL within an EKS token.
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
