//! What tests compare with OPA: modules loaded as the gateway loads a bundle, and values.

use std::collections::BTreeMap;

use regorus::Value;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_rego::{Bundle, BundleSource, Error};

/// What OPA gives for each input of a policy.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answers {
    /// Errors of functions end the evaluation.
    pub(crate) strict: Vec<Answer>,
    /// Errors of functions make their expression undefined.
    pub(crate) default: Vec<Answer>,
}

/// What OPA gives for one input. `value` is absent if it is undefined or there is an error.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Answer {
    #[serde(default, deserialize_with = "present")]
    pub(crate) value: Option<Json>,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// `null` is a value.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// Loads modules and data on the path of a bundle in the gateway. The only differences are that any
/// rule decides, that the input can be anything, and that no child process checks the bundle first.
pub(crate) fn load(entry_point: &str, modules: &BTreeMap<String, String>, data: &Json) -> Result<Bundle, String> {
    let mut files = BTreeMap::new();
    for (at, text) in modules.values().enumerate() {
        let name = if at == 0 {
            "policy.rego".to_owned()
        } else {
            format!("policy{at}.rego")
        };
        files.insert(name, text.clone());
    }
    for (name, value) in data.as_object().into_iter().flatten() {
        files.insert(format!("data/{name}.json"), value.to_string());
    }
    let source = BundleSource::of_rule(entry_point, files);
    let text = |found: &[Diagnostic]| {
        let errors = found.iter().filter(|finding| finding.is_error());
        let errors: Vec<String> = errors.map(|finding| finding.message.clone()).collect();
        errors.join("; ")
    };
    let source = source.value.ok_or_else(|| text(&source.diagnostics))?;
    Bundle::unchecked_or_findings(&source).map_err(|found| text(&found))
}

/// Our answer for one input.
pub(crate) enum Ours {
    Value(Value),
    Undefined,
    Error(Error),
}

impl Ours {
    pub(crate) fn of(bundle: &Bundle, input: &Value) -> Self {
        match bundle.evaluate(input.clone()) {
            Ok(value) => Self::Value(value),
            Err(Error::Undefined) => Self::Undefined,
            Err(error) => Self::Error(error),
        }
    }

    pub(crate) fn show(&self) -> String {
        match self {
            Self::Value(value) => encode(value).to_string(),
            Self::Undefined => "undefined".to_owned(),
            Self::Error(error) => format!("error: {error}"),
        }
    }
}

impl Answer {
    pub(crate) fn show(&self) -> String {
        match (&self.value, &self.error) {
            (Some(value), _) => canonical(value).to_string(),
            (None, Some(error)) => format!("error: {error}"),
            (None, None) => "undefined".to_owned(),
        }
    }
}

pub(crate) fn is_same(ours: &Value, theirs: &Json) -> bool {
    encode(ours) == canonical(theirs)
}

/// A value as `tests/engines` encodes it, with sets and objects in the order of their texts.
fn encode(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Number(number) => plain(&number.format_decimal()),
        Value::String(text) => json!(text.as_ref()),
        Value::Array(items) => items.iter().map(encode).collect(),
        Value::Set(items) => json!({"set": sorted(items.iter().map(encode).collect())}),
        Value::Object(entries) => {
            let entries = entries.iter_sorted();
            json!({"object": sorted(entries.map(|(key, value)| json!([encode(key), encode(value)])).collect())})
        }
        Value::Undefined => json!({"undefined": true}),
    }
}

/// The answer of `tests/engines`, with sets and objects in the order of their texts.
fn canonical(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(canonical).collect(),
        Json::Object(map) if number(map).is_some() => number(map).map(plain).unwrap_or_default(),
        Json::Object(map) => {
            let ordered = |(key, value): (&String, &Json)| {
                let value = match canonical(value) {
                    Json::Array(items) => Json::Array(sorted(items)),
                    value => value,
                };
                (key.clone(), value)
            };
            map.iter().map(ordered).collect()
        }
        other => other.clone(),
    }
}

fn sorted(mut items: Vec<Json>) -> Vec<Json> {
    items.sort_by_cached_key(ToString::to_string);
    items
}

/// A number, written in one way, so that sets with it have one order.
fn plain(number: &str) -> Json {
    let (is_negative, digits, exponent) = decimal(number);
    let sign = if is_negative { "-" } else { "" };
    json!({"number": format!("{sign}{digits}e{exponent}")})
}

fn number(map: &serde_json::Map<String, Json>) -> Option<&str> {
    map.get("number")?.as_str()
}

/// Whether a number is negative, its digits without zeros around them, and the power of ten of the last.
fn decimal(text: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{places}");
    let digits = digits.trim_start_matches('-').trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return (false, String::new(), 0);
    }
    let dropped = i64::try_from(digits.len() - significant.len()).unwrap();
    let exponent = exponent.parse::<i64>().unwrap() - i64::try_from(places.len()).unwrap() + dropped;
    (whole.starts_with('-'), significant.to_owned(), exponent)
}

#[test]
fn numbers_are_compared_digit_by_digit() {
    for (one, other) in [
        ("1.0", "1"),
        ("100", "1e2"),
        ("-0.50", "-5E-1"),
        ("0", "-0.0"),
        ("007", "7"),
    ] {
        assert_eq!(decimal(one), decimal(other), "{one} {other}");
    }
    for (one, other) in [
        ("0.3", "0.30000000000000000001"),
        ("1", "-1"),
        ("10", "1"),
        ("9007199254740993", "9007199254740992"),
    ] {
        assert_ne!(decimal(one), decimal(other), "{one} {other}");
    }
}
