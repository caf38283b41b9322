//! Compares the requests that were sent with those a case expects, and describes the differences.
//!
//! Invariant: a missing or additional request is always a difference.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::case::{Case, ExpectedRequest};
use super::fakes::{Attempt, ReceivedRequest};
use super::labels::SecretLabels;

/// Stands for any JWT in a form.
const ANY_JWT: &str = "<jwt>";
/// Stands for any text but the empty one, in forms, fields and JSON.
const ANY: &str = "<any>";

/// Every difference between the requests `case` expects and those there were.
pub(super) fn requests(case: &Case, attempts: &[Attempt], labels: &SecretLabels) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..case.exchanges.len().max(attempts.len()) {
        let expected = case.exchanges.get(at).map(|exchange| exchange.expect.as_ref());
        let number = at + 1;
        match (expected, attempts.get(at)) {
            (Some(Some(expected)), Some(attempt)) => {
                let mut differences = Differences {
                    labels,
                    now: case.now,
                    found: Vec::new(),
                };
                differences.request(expected, attempt);
                let differences = differences.found.into_iter();
                found.extend(differences.map(|text| format!("request {number}: {text}")));
            }
            (Some(Some(expected)), None) => {
                let url = labels.show(&expected.url);
                found.push(format!("request {number} was not sent: {} {url}", expected.method));
            }
            (None, Some(attempt)) => {
                let request = described(attempt, labels);
                found.push(format!("request {number} was not expected: {request}"));
            }
            (Some(None), None) => found.push(format!("request {number} was not sent")),
            // A case need not say what a request is like.
            (Some(None), Some(_)) | (None, None) => {}
        }
    }
    found
}

fn described(attempt: &Attempt, labels: &SecretLabels) -> String {
    match &attempt.seen {
        Some(seen) => format!("{} {}", seen.method, labels.show(&seen.url)),
        None => format!("to {}", attempt.host),
    }
}

struct Differences<'a> {
    labels: &'a SecretLabels,
    now: Timestamp,
    found: Vec<String>,
}

impl Differences<'_> {
    fn differ(&mut self, what: &str, expected: &str, observed: &str) {
        self.found
            .push(format!("{what}: expected `{expected}`, observed `{observed}`"));
    }

    fn request(&mut self, expected: &ExpectedRequest, attempt: &Attempt) {
        let wanted = self.labels.show(&expected.url);
        let Some(seen) = &attempt.seen else {
            // It never arrived, so that only its host is known.
            if host(&expected.url).as_deref() != Some(attempt.host.trim_matches(['[', ']'])) {
                self.differ("url", &wanted, &format!("host {}", attempt.host));
            }
            return;
        };
        if expected.method != seen.method {
            self.differ("method", &expected.method, &seen.method);
        }
        if !same_url(&expected.url, &seen.url) {
            self.differ("url", &wanted, &self.labels.show(&seen.url));
        }
        self.fields(expected, seen);
        self.content(expected, seen);
    }

    fn fields(&mut self, expected: &ExpectedRequest, seen: &ReceivedRequest) {
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
                let shown: Vec<String> = observed.iter().map(|value| self.labels.field(&name, value)).collect();
                let wanted = self.labels.field(&name, value);
                self.differ(&format!("field `{name}`"), &wanted, &listed(&shown));
            }
        }
        for name in &expected.absent_headers {
            if seen.headers.contains_key(name.to_ascii_lowercase()) {
                self.found.push(format!("field `{name}` must not be sent"));
            }
        }
    }

    fn content(&mut self, expected: &ExpectedRequest, seen: &ReceivedRequest) {
        let body = String::from_utf8_lossy(&seen.body);
        if let Some(exact) = expected.body_exact.as_ref().filter(|exact| exact.as_str() != body) {
            self.differ("body", &self.labels.show(exact), &self.labels.show(&body));
        }
        if let Some(json) = &expected.json {
            match serde_json::from_slice::<Value>(&seen.body) {
                Ok(observed) => self.json(json, &observed, "$"),
                Err(error) => self.found.push(format!("the body is not JSON: {error}")),
            }
        }
        let observed: Vec<(String, String)> = url::form_urlencoded::parse(&seen.body).into_owned().collect();
        if let Some(form) = &expected.form {
            self.form(form, &observed);
        }
        for (name, wanted) in [
            ("client_assertion", &expected.client_assertion),
            ("assertion", &expected.assertion),
        ] {
            let Some(wanted) = wanted else { continue };
            let sent = observed.iter().find(|(key, _)| key == name);
            let differences = wanted.differences(sent.map_or("", |(_, value)| value), self.now);
            let differences = differences
                .iter()
                .map(|text| format!("`{name}`: {}", self.labels.show(text)));
            self.found.extend(differences);
        }
    }

    /// The members that differ, by their paths.
    fn json(&mut self, expected: &Value, observed: &Value, path: &str) {
        match (expected, observed) {
            (Value::Object(wanted), Value::Object(there)) => {
                for (name, value) in wanted {
                    match there.get(name) {
                        Some(other) => self.json(value, other, &format!("{path}.{name}")),
                        None => self.found.push(format!("json: `{path}.{name}` is missing")),
                    }
                }
                let more = there.keys().filter(|name| !wanted.contains_key(*name));
                let more = more.map(|name| format!("json: `{path}.{}` was not expected", self.labels.show(name)));
                self.found.extend(more);
            }
            (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
                for (at, (value, other)) in wanted.iter().zip(there).enumerate() {
                    self.json(value, other, &format!("{path}[{at}]"));
                }
            }
            (Value::String(any), Value::String(text)) if matches(any, text) => {}
            (expected, observed) if expected == observed => {}
            (expected, observed) => {
                let show = |value: &Value| match value {
                    Value::String(text) => self.labels.show(text),
                    other => self.labels.show(&other.to_string()),
                };
                let (expected, observed) = (show(expected), show(observed));
                self.differ(&format!("json `{path}`"), &expected, &observed);
            }
        }
    }

    /// Values by name in order; the order of different names is free.
    fn form(&mut self, expected: &[(String, String)], observed: &[(String, String)]) {
        let (wanted, there) = (grouped(expected), grouped(observed));
        for (name, values) in &wanted {
            let others = there.get(name).map(Vec::as_slice).unwrap_or_default();
            let mut pairs = values.iter().zip(others);
            if values.len() != others.len() || !pairs.all(|(value, other)| matches(value, other)) {
                let show =
                    |values: &[&str]| listed(&values.iter().map(|value| self.labels.show(value)).collect::<Vec<_>>());
                let (values, others) = (show(values), show(others));
                self.differ(&format!("form `{name}`"), &values, &others);
            }
        }
        let more = there.keys().filter(|name| !wanted.contains_key(*name));
        let more = more.map(|name| format!("form: `{}` was not expected", self.labels.show(name)));
        self.found.extend(more);
    }
}

fn listed(texts: &[String]) -> String {
    match texts {
        [] => "nothing".to_owned(),
        texts => texts.join("`, `"),
    }
}

fn host(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    Some(url.host_str()?.trim_matches(['[', ']']).to_owned())
}

fn same_url(expected: &str, observed: &str) -> bool {
    // Parsed, because one URL has several spellings.
    url::Url::parse(expected).is_ok_and(|expected| url::Url::parse(observed) == Ok(expected))
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
