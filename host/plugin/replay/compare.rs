//! Requests, held against what a case expects.
//!
//! In: the plan of a case, what was sent. Out: differences, in words. Never: a
//! request more or less that goes unnoticed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::case::{Case, ExpectedRequest, Step};
use super::labels::Labels;
use super::wire::{Attempt, Seen};

/// Stands for any JWT in a form.
const ANY_JWT: &str = "<jwt>";
/// Stands for any text but the empty one, in forms, fields and JSON.
const ANY: &str = "<any>";

/// Every difference between the requests `case` expects and those there were.
pub(super) fn requests(case: &Case, attempts: &[Attempt], labels: &Labels) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..case.plan.len().max(attempts.len()) {
        let expected = case.plan.get(at).map(|step: &Step| step.expect.as_ref());
        let number = at + 1;
        match (expected, attempts.get(at)) {
            (Some(Some(expected)), Some(attempt)) => {
                let differences = request(expected, attempt, labels);
                found.extend(differences.into_iter().map(|text| format!("request {number}: {text}")));
            }
            (Some(Some(expected)), None) => {
                let url = labels.show(&expected.url);
                found.push(format!("request {number} was not sent: {} {url}", expected.method));
            }
            (None, Some(attempt)) => {
                found.push(format!(
                    "request {number} was not expected: {}",
                    described(attempt, labels)
                ));
            }
            (Some(None), _) | (None, None) => {}
        }
    }
    found
}

fn described(attempt: &Attempt, labels: &Labels) -> String {
    match &attempt.seen {
        Some(seen) => format!("{} {}", seen.method, labels.show(&seen.url)),
        None => format!("to {}", attempt.host),
    }
}

fn request(expected: &ExpectedRequest, attempt: &Attempt, labels: &Labels) -> Vec<String> {
    let Some(seen) = &attempt.seen else {
        // It never arrived, so that only its host is known.
        let host = url::Url::parse(&expected.url)
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned));
        return match host {
            Some(host) if host.trim_matches(['[', ']']) == attempt.host.trim_matches(['[', ']']) => Vec::new(),
            Some(_) | None => vec![differ(
                "url",
                &labels.show(&expected.url),
                &format!("host {}", attempt.host),
            )],
        };
    };
    let mut found = Vec::new();
    if expected.method != seen.method {
        found.push(differ("method", &expected.method, &seen.method));
    }
    if !same_url(&expected.url, &seen.url) {
        found.push(differ("url", &labels.show(&expected.url), &labels.show(&seen.url)));
    }
    fields(expected, seen, labels, &mut found);
    content(expected, seen, labels, &mut found);
    found
}

fn differ(what: &str, expected: &str, observed: &str) -> String {
    format!("{what}: expected `{expected}`, observed `{observed}`")
}

fn same_url(expected: &str, observed: &str) -> bool {
    match (url::Url::parse(expected), url::Url::parse(observed)) {
        (Ok(expected), Ok(observed)) => expected == observed,
        _ => false,
    }
}

fn fields(expected: &ExpectedRequest, seen: &Seen, labels: &Labels, found: &mut Vec<String>) {
    for (name, value) in &expected.headers {
        let name = name.to_ascii_lowercase();
        let observed: Vec<String> = seen
            .headers
            .get_all(&name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        let is_there = match observed.as_slice() {
            [one] => one == value || (value == ANY && !one.is_empty()),
            [] | [_, ..] => false,
        };
        if !is_there {
            let shown: Vec<String> = observed.iter().map(|value| labels.field(&name, value)).collect();
            let what = format!("field `{name}`");
            found.push(differ(&what, &labels.field(&name, value), &shown.join("`, `")));
        }
    }
    for name in &expected.absent_headers {
        if seen.headers.contains_key(name.to_ascii_lowercase()) {
            found.push(format!("field `{name}` must not be sent"));
        }
    }
}

fn content(expected: &ExpectedRequest, seen: &Seen, labels: &Labels, found: &mut Vec<String>) {
    let body = String::from_utf8_lossy(&seen.body);
    if let Some(exact) = expected.body_exact.as_ref().filter(|exact| exact.as_str() != body) {
        found.push(differ("body", &labels.show(exact), &labels.show(&body)));
    }
    if let Some(json) = &expected.json {
        match serde_json::from_slice::<Value>(&seen.body) {
            Ok(observed) => json_differences(json, &observed, "$", labels, found),
            Err(error) => found.push(format!("the body is not JSON: {error}")),
        }
    }
    if let Some(form) = &expected.form {
        let observed: Vec<(String, String)> = url::form_urlencoded::parse(&seen.body).into_owned().collect();
        form_differences(form, &observed, labels, found);
    }
}

/// The members that differ, by their paths.
fn json_differences(expected: &Value, observed: &Value, path: &str, labels: &Labels, found: &mut Vec<String>) {
    match (expected, observed) {
        (Value::Object(wanted), Value::Object(there)) => {
            for (name, value) in wanted {
                match there.get(name) {
                    Some(other) => json_differences(value, other, &format!("{path}.{name}"), labels, found),
                    None => found.push(format!("json: `{path}.{name}` is missing")),
                }
            }
            let more = there.keys().filter(|name| !wanted.contains_key(*name));
            found.extend(more.map(|name| format!("json: `{path}.{name}` was not expected")));
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            for (at, (value, other)) in wanted.iter().zip(there).enumerate() {
                json_differences(value, other, &format!("{path}[{at}]"), labels, found);
            }
        }
        (Value::String(any), Value::String(text)) if matches(any, text) => {}
        (expected, observed) if expected == observed => {}
        (expected, observed) => {
            let show = |value: &Value| match value {
                Value::String(text) => labels.show(text),
                other => labels.show(&other.to_string()),
            };
            found.push(differ(&format!("json `{path}`"), &show(expected), &show(observed)));
        }
    }
}

/// Values by name in order; the order of different names is free.
fn form_differences(
    expected: &[(String, String)],
    observed: &[(String, String)],
    labels: &Labels,
    found: &mut Vec<String>,
) {
    let (wanted, there) = (grouped(expected), grouped(observed));
    for (name, values) in &wanted {
        let others = there.get(name).map(Vec::as_slice).unwrap_or_default();
        let same =
            values.len() == others.len() && values.iter().zip(others).all(|(value, other)| matches(value, other));
        if !same {
            let show = |values: &[&str]| match values {
                [] => "nothing".to_owned(),
                values => values
                    .iter()
                    .map(|value| labels.show(value))
                    .collect::<Vec<_>>()
                    .join("`, `"),
            };
            found.push(differ(&format!("form `{name}`"), &show(values), &show(others)));
        }
    }
    let more = there.keys().filter(|name| !wanted.contains_key(*name));
    found.extend(more.map(|name| format!("form: `{}` was not expected", labels.show(name))));
}

fn grouped(pairs: &[(String, String)]) -> BTreeMap<&str, Vec<&str>> {
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in pairs {
        by_name.entry(name).or_default().push(value);
    }
    by_name
}

fn matches(expected: &str, observed: &str) -> bool {
    match expected {
        ANY => !observed.is_empty(),
        ANY_JWT => observed.split('.').filter(|part| !part.is_empty()).count() == 3,
        _ => expected == observed,
    }
}
