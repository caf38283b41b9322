//! Asks a server of Argo CD's `plugin` generator for parameters.
//!
//! In: `configMapRef.name` and `input` of the generator; the operator's list of
//! servers by that name, each with a URL and the name of its token. Out: the server's
//! parameters. Never: a URL or a token an ApplicationSet chose.
//!
//! Source of the protocol: Argo CD, "Plugin Generator":
//! `POST <baseUrl>/api/v1/getparams.execute` with a bearer token.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_generator::{
    Class, Error, GenerateInput, Generator, Json, Parameters, Request, classify, generator, trimmed,
};

/// What the operator grants.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Servers by the name ApplicationSets have in `configMapRef.name`.
    servers: BTreeMap<String, Server>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Server {
    /// `https://host[:port][/path]`.
    base_url: String,
    /// Name of its token among the values of the grant's Secret; none for a server
    /// that wants none.
    token: Option<String>,
}

/// What stands below `plugin`. `values` and `requeueAfterSeconds` are the host's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    config_map_ref: Reference,
    #[serde(default)]
    input: Input,
}

#[derive(Debug, Deserialize)]
struct Reference {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Input {
    #[serde(default)]
    parameters: Map<String, Value>,
}

#[derive(Debug)]
struct Servers;

impl Generator for Servers {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        let bare = config.servers.iter().filter(|(_, server)| server.token.is_none());
        let warning = |(name, _): (&String, &Server)| format!("server `{name}` is asked without a token");
        Ok(bare.map(warning).collect())
    }

    fn generate(config: &Config, input: &GenerateInput, settings: &Value) -> Result<Vec<Parameters>, Error> {
        let settings = Settings::deserialize(settings)
            .map_err(|error| Error::config("settings.invalid", format!("`plugin`: {error}")))?;
        let name = &settings.config_map_ref.name;
        let server = config.servers.get(name).ok_or_else(|| {
            let text = format!("`configMapRef.name` is `{name}`, and the operator lists no server of that name");
            Error::config("plugin.no-server", text)
        })?;
        let token = server.token.as_deref().map(trimmed).transpose()?;
        let url = format!("{}/api/v1/getparams.execute", server.base_url.trim_end_matches('/'));
        let body = json!({"applicationSetName": input.name, "input": {"parameters": settings.input.parameters}});
        let mut request = Request::post(&url);
        if let Some(token) = &token {
            request = request.bearer(token);
        }
        let answer = request.json_body(&Json::from(body)).send()?;
        if !answer.is_success() {
            let class = classify::status(answer.status);
            return Err(answer.error(class, &format!("plugin.{}", answer.status), "the server refused"));
        }
        read(&answer.json()?)
    }
}

/// `{"output": {"parameters": [{…}, …]}}`.
fn read(answer: &Value) -> Result<Vec<Parameters>, Error> {
    let bad = |text: &str| Error::new(Class::Permanent, "plugin.answer", text);
    let list = answer.pointer("/output/parameters").and_then(Value::as_array);
    let list = list.ok_or_else(|| bad("the answer has no list `output.parameters`"))?;
    let one = |item: &Value| item.as_object().cloned();
    let all: Option<Vec<Parameters>> = list.iter().map(one).collect();
    all.ok_or_else(|| bad("an entry of `output.parameters` is no object"))
}

generator!(Servers);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_lists_of_objects() {
        let good = json!({"output": {"parameters": [{"a": "b"}, {"c": {"d": 1}}]}});
        assert_eq!(read(&good).unwrap().len(), 2);
        for bad in [
            json!({}),
            json!({"output": []}),
            json!({"output": {"parameters": ["a"]}}),
        ] {
            assert_eq!(read(&bad).unwrap_err().code, "plugin.answer");
        }
    }
}
