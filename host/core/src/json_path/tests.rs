//! Tests with the RFC 9535 compliance suite and with paths that operators write.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Error, SingularPath};

#[derive(Deserialize)]
struct Suite {
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    selector: String,
    #[serde(default)]
    document: Value,
    result: Option<Vec<Value>>,
    results: Option<Vec<Vec<Value>>>,
    result_paths: Option<Vec<String>>,
    #[serde(default)]
    invalid_selector: bool,
}

/// Whether a valid query is singular, judged from its text: every segment is a dotted name, or
/// brackets with one quoted name or one whole number.
fn looks_singular(selector: &str) -> bool {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
    let mut rest = selector.strip_prefix('$').unwrap();
    loop {
        rest = rest.trim_start_matches(blank);
        if rest.is_empty() {
            return true;
        }
        if let Some(after) = rest.strip_prefix('[') {
            let after = after.trim_start_matches(blank);
            let end = match after.chars().next() {
                Some(quote @ ('\'' | '"')) => closing(after, quote),
                _ => after
                    .find(|c: char| !c.is_ascii_digit() && c != '-')
                    .filter(|end| *end > 0),
            };
            let Some(end) = end else { return false };
            match after.split_at(end).1.trim_start_matches(blank).strip_prefix(']') {
                Some(next) => rest = next,
                None => return false,
            }
        } else {
            let name = rest.strip_prefix('.').unwrap();
            let end = name.find(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_');
            let end = end.unwrap_or(name.len());
            if end == 0 {
                return false;
            }
            rest = name.split_at(end).1;
        }
    }
}

/// The byte after the closing quote.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = true; // the opening quote
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}

#[test]
fn every_case_of_the_compliance_suite_has_the_expected_result() {
    let text = include_str!("../../../../tests/data/jsonpath/cts.json");
    let suite: Suite = serde_json::from_str(text).unwrap();
    // Invalid queries that the parser accepts; they are refused as not singular.
    let mut accepted_by_parser = Vec::new();
    let (mut invalid, mut singular, mut not_singular) = (0, 0, 0);
    for case in &suite.tests {
        let path = SingularPath::parse(&case.selector);
        let about = format!("{}: `{}`: {path:?}", case.name, case.selector);
        if case.invalid_selector {
            assert!(path.is_err(), "{about}");
            invalid += 1;
            if !matches!(path, Err(Error::Invalid { .. })) {
                accepted_by_parser.push(case.name.as_str());
            }
        } else if !looks_singular(&case.selector) {
            assert!(matches!(path, Err(Error::NotSingular { .. })), "{about}");
            not_singular += 1;
        } else {
            let path = path.expect(&about);
            let found: Vec<&Value> = path.select(&case.document).into_iter().collect();
            assert_eq!(
                found,
                case.result.as_ref().unwrap().iter().collect::<Vec<_>>(),
                "{about}"
            );
            let normalized = case.result_paths.as_ref().unwrap();
            if !path.to_string().contains("[-") && !normalized.is_empty() {
                assert_eq!(*normalized, [path.to_string()], "{about}");
            }
            assert_eq!(SingularPath::parse(&path.to_string()).as_ref(), Ok(&path), "{about}");
            singular += 1;
        }
        let answers = case.result.iter().chain(case.results.iter().flatten());
        assert!(case.invalid_selector || answers.count() > 0, "{about}");
    }
    assert_eq!((suite.tests.len(), invalid, singular), (703, 247, 79));
    assert_eq!(not_singular, 703 - 247 - 79);
    assert_eq!(
        accepted_by_parser,
        [
            "functions, count, result must be compared",
            "functions, length, result must be compared",
            "functions, length, non-singular query arg",
            "functions, length, non-singular query arg, multiple index selectors",
            "functions, length, non-singular query arg, multiple name selectors",
            "functions, value, result must be compared",
        ]
    );
}

fn check(path: &str, document: &Value, expected: Option<&Value>) {
    let parsed = SingularPath::parse(path).unwrap();
    assert_eq!(parsed.select(document), expected, "{path}");
}

#[test]
fn names_and_indexes_select_one_value_or_none() {
    let document = json!({
        "access_token": "T1", "access-token": "T3", "0": "T7", "it's": "T11", "☺": "T12",
        "": "T13", "null": "T14", "number": 12345, "nothing": null,
        "data": { "token": "T2" }, "tokens": [{ "value": "T5" }, { "value": "T6" }],
    });
    for (path, expected) in [
        ("$.access_token", Some(json!("T1"))),
        ("$['access_token']", Some(json!("T1"))),
        ("$[\"access_token\"]", Some(json!("T1"))),
        ("$.data.token", Some(json!("T2"))),
        ("$['access-token']", Some(json!("T3"))),
        ("$.tokens[0].value", Some(json!("T5"))),
        ("$.tokens[-1].value", Some(json!("T6"))),
        ("$.tokens[2].value", None),
        ("$.tokens[-3]", None),
        ("$['0']", Some(json!("T7"))),
        ("$['it\\'s']", Some(json!("T11"))),
        ("$.☺", Some(json!("T12"))),
        ("$['\\u263a']", Some(json!("T12"))),
        ("$['']", Some(json!("T13"))),
        ("$.null", Some(json!("T14"))),
        ("$ .data ['token']", Some(json!("T2"))),
        ("$.number", Some(json!(12345))),
        ("$.nothing", Some(json!(null))),
        ("$.nothing.more", None),
        ("$.Access_Token", None),
        ("$.access_token[0]", None),
        ("$.tokens.value", None),
        ("$", Some(document.clone())),
    ] {
        check(path, &document, expected.as_ref());
    }
}

#[test]
fn errors_for_other_dialects_suggest_the_rfc_9535_form() {
    for (path, expected) in [
        ("{.access_token}", "write `$.access_token`"),
        ("{$.access_token}", "write `$.access_token`"),
        ("{.items[0].token}", "write `$.items[0].token`"),
        ("{ .path }", "write `$.path`"),
        ("{{ .path }}", "not a template"),
        ("${.token}", "is not an RFC 9535 path"),
        ("access_token", "write `$.access_token`"),
        (".access_token", "write `$.access_token`"),
        ("['a']", "write `$['a']`"),
        (" $.access_token", "write `$.access_token`"),
        ("$.access_token\n", "write `$.access_token`"),
        ("/access_token", "write `$['access_token']`"),
        ("/tokens/0/a~1b", "write `$['tokens'][0]['a/b']`"),
        ("@.token", "filters only"),
        ("$.access-token", "write `$['access-token']`"),
        ("$.data.access-token", "write `$.data['access-token']`"),
        ("", "write it like `$.access_token`"),
        ("$.0", "write `$['0']`"),
        ("$..", "is not an RFC 9535 path"),
        ("$.tokens[01]", "is not an RFC 9535 path"),
        ("$[9007199254740992]", "is not an RFC 9535 path"),
        ("$[\"\\uD800\"]", "is not an RFC 9535 path"),
        ("$.tokens[*]", "more than one value"),
        ("$.*", "more than one value"),
        ("$..access_token", "more than one value"),
        ("$.tokens[0:1]", "more than one value"),
        ("$['a','b']", "more than one value"),
        ("$[?@.a]", "more than one value"),
    ] {
        let error = SingularPath::parse(path).unwrap_err().to_string();
        assert!(error.contains(expected), "{path}: {error}");
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}

#[test]
fn invalid_paths_that_the_parser_repairs_are_refused() {
    for path in [
        "$.a b",
        "$. a",
        "$.a\u{a0}",
        "$.\u{2003}a",
        "$[- 1]",
        "$[1 2]",
        "$[-0]",
        "$[+1]",
        "$.a.",
        "$a",
        "$['a'",
        "$[\"a']",
        "$[a]",
        "$.a\u{85}",
    ] {
        let parsed = SingularPath::parse(path);
        assert!(matches!(parsed, Err(Error::Invalid { .. })), "{path:?}: {parsed:?}");
    }
}

#[test]
fn path_length_and_depth_are_limited() {
    let long = format!("$.{}", "a".repeat(1023));
    assert_eq!(SingularPath::parse(&long), Err(Error::TooLong(1025)));
    assert!(SingularPath::parse(long.split_at(1024).0).is_ok());
    assert!(SingularPath::parse(&format!("${}", ".a".repeat(64))).is_ok());
    let deep = format!("${}", ".a".repeat(65));
    assert_eq!(SingularPath::parse(&deep), Err(Error::TooDeep(65)));
    let nested = format!("$[?{}", "(".repeat(1000));
    assert!(SingularPath::parse(&nested).is_err());
}

#[test]
fn deeply_nested_paths_are_refused_quickly() {
    let started = std::time::Instant::now();
    for text in [
        format!("$[?{}", "(".repeat(1000)),
        format!("$[?{}@{}]", "(".repeat(400), ")".repeat(400)),
        format!("$[?{}@{}]", "!(".repeat(300), ")".repeat(300)),
        format!("${}", "[?@".repeat(300)),
        format!("${}{}", "[?@".repeat(250), "]".repeat(250)),
        format!("$[?{}", "length(".repeat(140)),
        format!("$[?{}@{} == 1]", "length(".repeat(100), ")".repeat(100)),
    ] {
        assert!(SingularPath::parse(&text).is_err(), "{text}");
    }
    assert!(
        started.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}
