//! Kinds `template`, `jsonpath` and `egress`, each with the guest `webapi`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::plugin_host::{MintInput, PluginHost, RUNTIME};
use crate::suite::{Case, Table, same};
use test_support::providers::{Reply, Script, World};

const HOST: &str = "template.example.com";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Templated {
    context: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
    template: String,
    expect: Outcome,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    #[serde(default)]
    output: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    error_class: Option<String>,
    /// Text in the error that suggests a remedy.
    #[serde(default)]
    hint: Option<String>,
    /// Text in a warning to the operator.
    #[serde(default)]
    warn: Option<String>,
}

pub(crate) fn template(table: &Table, case: &Case) -> Result<(), String> {
    let templated: Templated = case.read()?;
    let mut config = json!({"method": "POST", "url": format!("https://{HOST}/token"), "tokenPath": "$.token"});
    match templated.context.as_str() {
        "body" => config["body"] = json!(templated.template),
        "header" => config["headers"] = json!({"x-rendered": templated.template}),
        "url" => config["url"] = json!(templated.template),
        other => return Err(format!("no context `{other}`")),
    }
    let plugin_host = PluginHost::of(&rendered_hosts(table)?, &BTreeSet::new());
    let input = MintInput::webapi(config, templated.data);
    let script = Script {
        forever: Some(Reply::json(200, &json!({"token": "T"}))),
        ..Script::default()
    };
    let (minted, _, played) = plugin_host.mint(&input, script);
    let Some(expected) = templated.expect.output else {
        return refused(&templated.expect, &minted, played.seen.len());
    };
    let credential = minted.map_err(|error| error.to_string())?;
    super::exchange::check_warnings(templated.expect.warn.as_deref(), &credential.warnings)?;
    let [seen] = played.seen.as_slice() else {
        return Err(format!("{} requests", played.seen.len()));
    };
    let observed = match templated.context.as_str() {
        "body" => String::from_utf8_lossy(&seen.body).into_owned(),
        "header" => {
            let value = seen.headers.get("x-rendered").map(http::HeaderValue::as_bytes);
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        }
        _ => seen.url.clone(),
    };
    same(&expected, &observed)
}

/// Hosts to which the templates of a table render.
fn rendered_hosts(table: &Table) -> Result<BTreeSet<String>, String> {
    let mut hosts = BTreeSet::from([HOST.to_owned()]);
    for case in table.cases.iter().filter(|case| case.kind == "template") {
        let case: Value = case.read()?;
        let host = case["expect"]["output"]
            .as_str()
            .and_then(|url| url.strip_prefix("https://"));
        if let (true, Some(host)) = (case["context"] == "url", host) {
            hosts.extend(host.split(['/', '?']).next().map(str::to_owned));
        }
    }
    Ok(hosts)
}

fn refused(
    expected: &Outcome,
    minted: &Result<tollgate_credential::Credential, tollgate_credential::MintError>,
    requests: usize,
) -> Result<(), String> {
    let class = expected.error_class.as_deref().ok_or("the case expects nothing")?;
    match minted {
        Ok(_) => Err(format!("expected an error of class {class}, observed a credential")),
        Err(error) => {
            same(&class, &error.class.as_ref()).map_err(|why| format!("{why} ({error})"))?;
            if let Some(words) = expected
                .hint
                .as_deref()
                .filter(|words| !error.to_string().contains(words))
            {
                return Err(format!("hint: expected `{words}` in `{error}`"));
            }
            if class == "config" && requests > 0 {
                return Err("a request was sent".to_owned());
            }
            Ok(())
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Path {
    path: String,
    document: String,
    rfc9535: String,
    expect: Outcome,
}

pub(crate) fn jsonpath(_: &Table, case: &Case) -> Result<(), String> {
    let Path {
        path,
        document,
        rfc9535,
        expect,
    } = case.read()?;
    if expect.warn.is_some() {
        return Err("a path has no warnings".to_owned());
    }
    let verdict = Verdict::of(&path, &document);
    same(&(rfc9535 == "singular"), &!matches!(verdict, Verdict::NoPath)).map_err(|why| format!("singular: {why}"))?;
    let wanted = match (&expect.token, expect.error_class.as_deref()) {
        (Some(token), None) => Verdict::Token(token.clone()),
        (None, Some("config")) => Verdict::NoPath,
        (None, Some("permanent")) => Verdict::NoToken,
        other => return Err(format!("no outcome `{other:?}`")),
    };
    same(&wanted, &verdict)?;
    // The same through the guest.
    let plugin_host = PluginHost::of(&BTreeSet::from([HOST.to_owned()]), &BTreeSet::new());
    let config = json!({"method": "GET", "url": format!("https://{HOST}/token"), "tokenPath": path});
    // An `error` in the response determines the class of the error, which can be another one.
    let response: Option<Value> = serde_json::from_str(&document).ok();
    let explained = response.is_some_and(|document| document["error"].is_string());
    let script = Script {
        forever: Some(Reply::Answer {
            status: 200,
            headers: Vec::new(),
            body: document.into_bytes(),
        }),
        ..Script::default()
    };
    let (minted, _, played) = plugin_host.mint(&MintInput::webapi(config, BTreeMap::new()), script);
    match (&expect.token, minted) {
        (Some(token), Ok(credential)) => same(
            &Some(token.as_str()),
            &credential.token.as_ref().map(|token| token.expose()),
        ),
        (Some(_), Err(error)) => Err(format!("expected a token, observed {error}")),
        (None, Err(_)) if explained => Ok(()),
        (None, minted) => refused(&expect, &minted, played.seen.len()),
    }
}

/// The result of a JSON path.
#[derive(Debug, PartialEq)]
enum Verdict {
    NoPath,
    NoToken,
    Token(String),
}

impl Verdict {
    fn of(path: &str, document: &str) -> Self {
        let Ok(path) = tollgate_core::json_path::SingularPath::parse(path) else {
            return Self::NoPath;
        };
        let Ok(document) = serde_json::from_str::<Value>(document) else {
            return Self::NoToken;
        };
        let text = path.select(&document).and_then(Value::as_str).unwrap_or_default();
        match tollgate_credential::Token::parse(text.to_owned()) {
            Ok(token) => Self::Token(token.expose().to_owned()),
            Err(_) => Self::NoToken,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Egress {
    allow: Vec<String>,
    url: String,
    expect: String,
    #[serde(default)]
    resolves_to: Option<Vec<IpAddr>>,
    #[serde(default)]
    private: bool,
}

pub(crate) fn egress(_: &Table, case: &Case) -> Result<(), String> {
    let Egress {
        allow,
        url,
        expect,
        resolves_to,
        private,
    } = case.read()?;
    let world = RUNTIME.block_on(World::new());
    let entry = |host: &String| tollgate_config::EgressEntry {
        private,
        ..world.entry(host)
    };
    let entries: Vec<_> = allow.iter().map(entry).collect();
    let plugin_host = match PluginHost::load(world, &["webapi"], &entries, &BTreeSet::new()) {
        Ok(plugin_host) => plugin_host,
        // Plugins with an invalid allow-list are not loaded.
        Err(_) if expect == "deny" => return Ok(()),
        Err(findings) => return Err(findings),
    };
    let config = json!({"method": "GET", "url": url, "tokenPath": "$.token"});
    let script = Script {
        forever: Some(Reply::json(200, &json!({"token": "T"}))),
        addresses: resolves_to,
        ..Script::default()
    };
    let (minted, _, played) = plugin_host.mint(&MintInput::webapi(config, BTreeMap::new()), script);
    match (expect.as_str(), minted) {
        ("allow", Ok(_)) => same(&1, &played.seen.len()),
        ("allow", Err(error)) => Err(format!("expected a response, observed {error}")),
        ("deny", Err(error)) => {
            same(&"config", &error.class.as_ref()).map_err(|why| format!("{why} ({error})"))?;
            same(&0, &played.seen.len())
        }
        ("deny", Ok(_)) => Err("the request was sent".to_owned()),
        (other, _) => Err(format!("no outcome `{other}`")),
    }
}
