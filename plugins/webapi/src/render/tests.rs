use std::collections::BTreeMap;

use tollgate_provider::{Class, Encoding};
use tollgate_template::Value;

use super::*;

/// Keeps secrets as text, so that tests can read what would be sent.
#[derive(Default)]
struct TextStore(Vec<String>);

impl TextStore {
    fn keep(&mut self, text: String) -> Result<usize, Error> {
        self.0.push(text);
        Ok(self.0.len() - 1)
    }

    fn text(&self, pieces: &[Piece]) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Secret(secret, Encoding::Raw) => format!("<{}>", self.0[*secret]),
            Piece::Secret(secret, encoding) => format!("<{encoding:?} {}>", self.0[*secret]).replace("Encoding::", ""),
        };
        pieces.iter().map(text).collect()
    }
}

impl SecretStore for TextStore {
    fn named(&mut self, name: &str) -> Result<usize, Error> {
        self.keep(name.to_owned())
    }

    fn compose(&mut self, pieces: &[Piece], _encoding: Encoding) -> Result<usize, Error> {
        let text = self.text(pieces);
        self.keep(text)
    }

    fn trim(&mut self, secret: usize) -> Result<usize, Error> {
        let text = format!("trimmed {}", self.0[secret]);
        self.keep(text)
    }
}

/// Renders `config`. Names that begin with `pub` are public values, with the text in the map. All
/// others are secrets.
fn run(config: &serde_json::Value) -> Result<(RenderedRequest, TextStore), Error> {
    let raw = serde_json::from_value(config.clone()).expect("a configuration of the right shape");
    let plan = Plan::new(&raw, &|_| Ok(()))?;
    let public = BTreeMap::from([("pubHost", "issuer.example.com"), ("pubOrg", "a&b c"), ("pubEmpty", "")]);
    let values = |name: &str| match public.get(name) {
        Some(text) => Some(Value::Public((*text).to_owned())),
        None => (!name.starts_with("pub")).then_some(Value::Secret),
    };
    let mut store = TextStore::default();
    let request = render(&plan, &values, &mut store)?;
    Ok((request, store))
}

/// Method, URL with query, headers and body, as they would be sent.
fn sent(config: &serde_json::Value) -> (String, Vec<String>, String) {
    let (request, store) = run(config).expect("renders");
    let query: Vec<_> = request
        .query
        .iter()
        .map(|(name, value)| format!("{name}={}", store.text(value)))
        .collect();
    let headers = request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", store.text(value)));
    let line = format!("{:?} {} {}", request.method, request.url, query.join("&"));
    (line, headers.collect(), store.text(&request.body))
}

#[test]
fn a_form_is_encoded_after_rendering() {
    let (line, headers, body) = sent(&serde_json::json!({
        "method": "POST", "url": "https://{{ .pubHost }}/t", "tokenPath": "$.t",
        "form": [["a b", "x:{{ .pubOrg }}"], ["k", "{{ .key }}"], ["k", "p-{{ .key | trim }}"], ["e", ""]],
    }));
    assert_eq!(line, "Post https://issuer.example.com/t ");
    assert_eq!(headers, ["Content-Type: application/x-www-form-urlencoded"]);
    assert_eq!(body, "a+b=x%3Aa%26b+c&k=<Form key>&k=<Form p-<trimmed key>>&e=");
}

#[test]
fn json_is_quoted_after_rendering() {
    let (_, headers, body) = sent(&serde_json::json!({
        "method": "PUT", "url": "https://h/t", "tokenPath": "$.t",
        "jsonBody": {"a\"": ["{{ .key }}", "x\"{{ .pubOrg }}", 1, 2.5, true, null, {}], "b": {"c": "{{ .key }}!"}},
    }));
    assert_eq!(headers, ["Content-Type: application/json"]);
    assert_eq!(
        body,
        r#"{"a\"":[<Json key>,"x\"a&b c",1,2.5,true,null,{}],"b":{"c":<Json <key>!>}}"#
    );
}

#[test]
fn url_query_and_headers_are_rendered() {
    let (line, headers, body) = sent(&serde_json::json!({
        "method": "GET", "url": "https://h/{{ .pubOrg | pathescape }}?ttl=600&key={{ .key | urlquery }}&x=1", "tokenPath": "$.t",
        "headers": {"Authorization": "Basic {{ printf \"%s:%s\" .id .key | b64 }}", "Metadata-Flavor": "Google"},
    }));
    assert_eq!(line, "Get https://h/a%26b%20c ttl=600&key=<Form key>&x=1");
    assert_eq!(
        headers,
        ["Authorization: Basic <Base64 <id>:<key>>", "Metadata-Flavor: Google"]
    );
    assert_eq!(body, "");
}

#[test]
fn a_configured_content_type_is_kept() {
    let (_, headers, _) = sent(&serde_json::json!({
        "method": "POST", "url": "https://h/t", "tokenPath": "$.t",
        "headers": {"content-type": "application/json; charset=utf-8"}, "jsonBody": [],
    }));
    assert_eq!(headers, ["content-type: application/json; charset=utf-8"]);
}

#[test]
fn a_body_that_renders_empty_is_not_sent() {
    let (request, _) = run(&serde_json::json!({
        "method": "POST", "url": "https://h/t", "tokenPath": "$.t", "body": "{{ .pubEmpty }}",
    }))
    .expect("renders");
    assert!(request.body.is_empty());
}

#[test]
fn templates_that_cannot_be_rendered_are_refused() {
    let base = |url: &str, header: &str, body: &str| {
        serde_json::json!({
            "method": "POST", "url": url, "tokenPath": "$.t", "headers": {"X": header}, "body": body,
        })
    };
    for (config, code, words) in [
        (
            base("https://h/t", "x", "{{ .pubNope }}"),
            "template.missing",
            "`body`: line 1, column 4: there is no value `pubNope`",
        ),
        (
            base("https://h/t", "{{ .pubNope }}", "x"),
            "template.missing",
            "`headers.X`",
        ),
        (
            base("https://{{ .key }}/t", "x", "x"),
            "template.secret_in_url",
            "`url`: `key` is a secret",
        ),
        (
            base("https://h/{{ .key }}?a=b", "x", "x"),
            "template.secret_in_url",
            "`url`",
        ),
        (
            base("https://h/t?{{ .key }}=b", "x", "x"),
            "template.secret_in_url",
            "not its name",
        ),
        (
            base("https://h/t", "x", "{{ if .key }}y{{ end }}"),
            "template.secret_branch",
            "`key` is a secret",
        ),
        (base("{{ .pubOrg }}://h/t", "x", "x"), "template.url", "`url`"),
        (
            base("{{ \"http\" }}://{{ .pubHost }}/t", "x", "x"),
            "webapi.scheme",
            "TLS only",
        ),
    ] {
        let failure = run(&config).map(|_| ()).expect_err("refused");
        assert_eq!(
            (failure.class, failure.code.as_str()),
            (Class::Config, code),
            "{}",
            failure.message
        );
        assert!(failure.message.contains(words), "{}", failure.message);
    }
}
