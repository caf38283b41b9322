use std::collections::BTreeMap;

use tollgate_provider::{Class, Encoding};
use tollgate_template::Value;

use super::*;

/// Keeps secrets as text, so that what would be sent can be read.
#[derive(Default)]
struct Open(Vec<String>);

impl Open {
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

impl Vault for Open {
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

/// Names that begin with `pub` are public, with the text in the map.
fn run(config: &serde_json::Value) -> Result<(Ask, Open), Error> {
    let raw = serde_json::from_value(config.clone()).expect("the shape is right");
    let plan = Plan::new(&raw, &|_| Ok(()))?;
    let public = BTreeMap::from([("pubHost", "issuer.example.com"), ("pubOrg", "a&b c"), ("pubEmpty", "")]);
    let values = |name: &str| match public.get(name) {
        Some(text) => Some(Value::Public((*text).to_owned())),
        None => (!name.starts_with("pub")).then_some(Value::Secret),
    };
    let mut vault = Open::default();
    let ask = ask(&plan, &values, &mut vault)?;
    Ok((ask, vault))
}

/// Method, URL with query, headers and body, as they would be sent.
fn sent(config: &serde_json::Value) -> (String, Vec<String>, String) {
    let (ask, vault) = run(config).expect("renders");
    let query: Vec<_> = ask
        .query
        .iter()
        .map(|(name, value)| format!("{name}={}", vault.text(value)))
        .collect();
    let headers = ask
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", vault.text(value)));
    let line = format!("{:?} {} {}", ask.method, ask.url, query.join("&"));
    (line, headers.collect(), vault.text(&ask.body))
}

#[test]
fn a_form_is_encoded_after_it_is_rendered() {
    let (line, headers, body) = sent(&serde_json::json!({
        "method": "POST", "url": "https://{{ .pubHost }}/t", "tokenPath": "$.t",
        "form": [["a b", "x:{{ .pubOrg }}"], ["k", "{{ .key }}"], ["k", "p-{{ .key | trim }}"], ["e", ""]],
    }));
    assert_eq!(line, "Post https://issuer.example.com/t ");
    assert_eq!(headers, ["Content-Type: application/x-www-form-urlencoded"]);
    assert_eq!(body, "a+b=x%3Aa%26b+c&k=<Form key>&k=<Form p-<trimmed key>>&e=");
}

#[test]
fn json_is_quoted_after_it_is_rendered() {
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
fn a_content_type_of_ones_own_stays_the_only_one() {
    let (_, headers, _) = sent(&serde_json::json!({
        "method": "POST", "url": "https://h/t", "tokenPath": "$.t",
        "headers": {"content-type": "application/json; charset=utf-8"}, "jsonBody": [],
    }));
    assert_eq!(headers, ["content-type: application/json; charset=utf-8"]);
}

#[test]
fn a_body_that_renders_to_nothing_is_none() {
    let (ask, _) = run(&serde_json::json!({
        "method": "POST", "url": "https://h/t", "tokenPath": "$.t", "body": "{{ .pubEmpty }}",
    }))
    .expect("renders");
    assert!(ask.body.is_empty());
}

#[test]
fn what_cannot_be_rendered_is_refused_before_it_is_sent() {
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
