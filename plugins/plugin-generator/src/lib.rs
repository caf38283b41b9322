//! The generator `plugin-generator`: gets parameters from a server of Argo CD's `plugin` generator.
//! An ApplicationSet names the server in `configMapRef.name`.
//!
//! Security: URL and token come from the operator's list of servers, never from an ApplicationSet.
//!
//! Source of the protocol: Argo CD, "Plugin Generator":
//! `POST <baseUrl>/api/v1/getparams.execute` with a bearer token.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_generator::{
    Class, Error, GenerateInput, Generator, Json, Parameters, Request, classify, generator, trimmed,
};

/// The operator's configuration.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Servers, by the name that ApplicationSets use in `configMapRef.name`.
    servers: BTreeMap<String, Server>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Server {
    /// `https://host[:port][/path]`.
    base_url: String,
    /// The value of the grant's Secret that is the server's token. `None` if the server needs none.
    token: Option<String>,
}

/// The settings below `plugin`. The host handles `values` and `requeueAfterSeconds`.
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
        let without_token = config.servers.iter().filter(|(_, server)| server.token.is_none());
        let warning = |(name, _): (&String, &Server)| format!("server `{name}` is asked without a token");
        Ok(without_token.map(warning).collect())
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

/// Reads `{"output": {"parameters": [{…}, …]}}`.
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
    fn parameters_must_be_a_list_of_objects() {
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
