use tollgate_provider::Class;

use super::*;

/// The example of Argo CD's proposal, unchanged.
const SEED: &str = include_str!("tests/seed.json");

fn paths(path: &str) -> Result<(), String> {
    if path.starts_with('$') {
        Ok(())
    } else {
        Err("no singular query".to_owned())
    }
}

fn read(config: &str) -> Result<Plan, Error> {
    let raw = serde_json::from_str(config).map_err(|error| Error::config("shape", error.to_string()))?;
    Plan::new(&raw, &paths)
}

/// A configuration with the additional members `more`.
fn with(more: &str) -> String {
    let base = r#""method":"POST","url":"https://issuer.example.com/t","tokenPath":"$.token""#;
    format!("{{{base}{}{more}}}", if more.is_empty() { "" } else { "," })
}

fn refused(config: &str, code: &str, words: &str) {
    let failure = read(config).map(|_| ()).expect_err(config);
    assert_eq!(
        (failure.class, failure.code.as_str()),
        (Class::Config, code),
        "{config}: {failure:?}"
    );
    assert!(failure.message.contains(words), "{config}: {}", failure.message);
}

#[test]
fn the_proposals_example_is_refused_with_the_corrected_text() {
    let failure = read(SEED).map(|_| ()).expect_err("the example sends `${.orgName}`");
    assert_eq!(
        (failure.class, failure.code.as_str()),
        (Class::Config, "template.single_brace")
    );
    let corrected = "audience=upbound%3Aspaces%3Aapi&audience=upbound%3Aspaces%3Acontrolplanes&grant_type=urn%3Aietf%3A\
                     params%3Aoauth%3Agrant-type%3Atoken-exchange&scope=upbound%3Aorg%3A{{ .orgName | urlquery }}\
                     &subject_token={{ .token | urlquery }}&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3A\
                     token-type%3Aid_token";
    assert!(failure.message.contains(corrected), "{}", failure.message);
    assert!(
        failure.message.starts_with("`body`: line 1, column "),
        "{}",
        failure.message
    );
    // The host cuts longer messages.
    assert!(failure.message.len() <= 512, "{} bytes", failure.message.len());

    let mut config: Value = serde_json::from_str(SEED).expect("JSON");
    config["body"] = Value::from(corrected);
    let plan = read(&config.to_string()).expect("the corrected text is valid");
    assert!(plan.public_names().is_empty());
    config["body"] = Value::from("{.token}");
    config["headers"] = serde_json::json!({"Content-Type": "text/plain"});
    refused(&config.to_string(), "template.single_brace", "in full: {{ .token }}");
}

#[test]
fn the_shape_is_checked() {
    for (config, code, words) in [
        ("null".to_owned(), "shape", "invalid type"),
        (
            r#"{"method":"GET","url":"https://h/t"}"#.to_owned(),
            "shape",
            "tokenPath",
        ),
        (with(r#""query":"x""#), "shape", "unknown field `query`"),
        (with(r#""body":"a","form":[]"#), "webapi.body", "only one of"),
        (with(r#""body":"a","jsonBody":{}"#), "webapi.body", "only one of"),
        (with(r#""form":[],"jsonBody":{}"#), "webapi.body", "only one of"),
        (with(r#""form":[["{{ .a }}","x"]]"#), "webapi.form", "is no template"),
        (with(r#""form":[["a","{{ .a"]]"#), "template.syntax", "`form.a`: line 1"),
        (
            with(r#""jsonBody":{"a":["{{ x }}"]}"#),
            "template.unknown_function",
            "`jsonBody.a[0]`",
        ),
        (with(r#""tokenPath":"x""#), "shape", "duplicate"),
        (
            with("").replace("$.token", "{.token}"),
            "webapi.path",
            "`tokenPath`: no singular",
        ),
        (with(r#""expiry":{"path":"x"}"#), "webapi.path", "`expiry.path`"),
        (with(r#""expiry":{"format":"unix"}"#), "webapi.expiry", "is missing"),
        (
            with(r#""expiry":{"path":"$.x","format":"days"}"#),
            "shape",
            "unknown variant",
        ),
        (
            with(r#""expiry":{"ttl":"1m"},"ttl":"2m""#),
            "webapi.expiry",
            "write one",
        ),
        (with(r#""ttl":"soon""#), "webapi.expiry", "`90s`"),
        (with(r#""ttl":0"#), "webapi.expiry", "above 0"),
        (with(r#""ttl":"0s""#), "webapi.expiry", "above 0"),
    ] {
        refused(&config, code, words);
    }
    let plan = read(&with(r#""ttl":90,"expiry":{"path":"$.x"}"#)).expect("valid");
    assert_eq!(plan.lifetime.ttl_ms, Some(90_000));
    assert_eq!(plan.lifetime.path, Some(("$.x".to_owned(), Format::Seconds)));
}

#[test]
fn methods_are_written_in_upper_case() {
    for (word, method) in [
        ("GET", Method::Get),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
    ] {
        let plan = read(&with("").replace("POST", word)).expect(word);
        assert_eq!(plan.method, method);
    }
    refused(&with("").replace("POST", "post"), "webapi.method", "write `POST`");
    for word in ["HEAD", "OPTIONS", "TRACE", "CONNECT", "FETCH", "", "POST "] {
        let allowed = "allowed are `GET`, `POST`, `PUT`, `PATCH` and `DELETE`";
        refused(&with("").replace("POST", word), "webapi.method", allowed);
    }
    for word in ["PUT", "PATCH", "DELETE"] {
        let config = with(r#""body":"x""#).replace("POST", word);
        assert!(read(&config).is_ok(), "{word}");
    }
    let get = |more| with(more).replace("POST", "GET");
    refused(&get(r#""body":"x""#), "webapi.body", "a GET has no body");
    refused(&get(r#""form":[["a","b"]]"#), "webapi.body", "a GET has no body");
    assert!(read(&get(r#""body":"""#)).is_ok(), "an empty body counts as none");
}

#[test]
fn urls_are_https_only() {
    for (url, code) in [
        ("http://issuer.example.com/token", "webapi.scheme"),
        ("ftp://{{ .host }}/token", "webapi.scheme"),
        ("/token", "template.url"),
        ("https://u:p@h/token", "template.url"),
        ("https://h/a/../token", "template.url"),
        ("https://h/token#x", "template.url"),
    ] {
        refused(&with("").replace("https://issuer.example.com/t", url), code, "`url`");
    }
    for url in ["HTTPS://h/t", "https://{{ .host }}/t?x=http://y", "{{ .base }}/t"] {
        assert!(
            read(&with("").replace("https://issuer.example.com/t", url)).is_ok(),
            "{url}"
        );
    }
}

#[test]
fn headers_of_the_gateway_cannot_be_set() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "TE",
        "Upgrade",
        "Expect",
        "Cookie",
        "Proxy-X",
    ] {
        refused(
            &with(&format!(r#""headers":{{"{name}":"x"}}"#)),
            "webapi.header",
            "written by the gateway",
        );
    }
    for name in ["", "a b", "a:b", "é"] {
        refused(
            &with(&format!(r#""headers":{{"{name}":"x"}}"#)),
            "webapi.header",
            "is no name",
        );
    }
    refused(
        &with(r#""headers":{"X-Key":"a","x-key":"b"}"#),
        "webapi.header",
        "are the same header",
    );
    refused(&with(r#""headers":{"X":"a\nb"}"#), "template.header", "`headers.X`");
    let plan = read(&with(r#""headers":{"Authorization":"Bearer {{ .k }}","X-Key":"a"}"#)).expect("valid");
    assert_eq!(plan.headers.len(), 2);
}

#[test]
fn the_content_type_must_match_the_body() {
    refused(
        &with(r#""form":[["a","b"]],"headers":{"content-type":"text/plain"}"#),
        "webapi.header",
        "leave the header out",
    );
    refused(
        &with(r#""jsonBody":{},"headers":{"Content-Type":"text/json"}"#),
        "webapi.header",
        "`application/json`",
    );
    for more in [
        r#""jsonBody":{},"headers":{"Content-Type":"Application/JSON; charset=utf-8"}"#,
        r#""form":[{"name":"a","value":"b"}],"headers":{"Content-Type":"application/x-www-form-urlencoded"}"#,
        r#""body":"x","headers":{"Content-Type":"text/plain"}"#,
    ] {
        assert!(read(&with(more)).is_ok(), "{more}");
    }
}

#[test]
fn values_in_conditions_and_before_the_query_must_be_public() {
    let plan = read(&with(
        r#""jsonBody":{"a":"{{ if .b }}{{ .c }}{{ end }}"},"headers":{"X":"{{ or .d .e }}"}"#,
    ));
    let names: Vec<String> = plan.expect("valid").public_names().into_iter().collect();
    assert_eq!(names, ["b", "d"]);
    let plan = read(
        &with("")
            .replace("issuer", "{{ .host }}.x")
            .replace("/t\"", "/t?a={{ .key }}\""),
    );
    let names: Vec<String> = plan.expect("valid").public_names().into_iter().collect();
    assert_eq!(names, ["host"]);
}

#[test]
fn a_dollar_sign_before_a_value_causes_a_warning() {
    let plan = read(&with(r#""body":"x=${{ .org }}""#)).expect("valid");
    assert_eq!(plan.warnings.len(), 1);
    assert!(
        plan.warnings[0].starts_with("`body`: line 1, column 3"),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn the_example_in_the_documentation_is_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/webapi.md");
    let page = std::fs::read_to_string(path).expect("docs/webapi.md");
    let (_, rest) = page.split_once("```yaml\n").expect("start of the example");
    let (example, _) = rest.split_once("```").expect("end of the example");
    let document: Value = serde_saphyr::from_str(example).expect("YAML");
    let plan = read(&document["webAPIProviderConfig"].to_string()).expect("a plan");
    assert_eq!(
        (plan.headers.len(), plan.warnings.len(), plan.public_names().len()),
        (1, 0, 0)
    );
    assert_eq!(plan.content.templates().len(), 2);
}
