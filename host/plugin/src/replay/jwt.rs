//! Compares a JWT in a request with the header and claims that a case expects. The signature is
//! not checked: only the issuer can say whether it accepts it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedJwt {
    header: Value,
    /// All claims; `<any…>` stands for any text but the empty one.
    claims: BTreeMap<String, Value>,
    /// `exp` may be up to this many seconds after `now`, in place of equal.
    max_lifetime_s: Option<i64>,
    /// The whole of it.
    sample: Option<String>,
    /// A sample with a fixed id, which no run produces. For readers only.
    #[serde(rename = "sample_with_fixed_jti")]
    _sample_with_fixed_jti: Option<String>,
}

impl ExpectedJwt {
    /// Differences of `jwt` at `now`. They show names and values of claims, which are not secret,
    /// but not the signature.
    pub(super) fn differences(&self, jwt: &str, now: Timestamp) -> Vec<String> {
        let mut parts = jwt.split('.').map(part);
        let (Some(Some(header)), Some(Some(Value::Object(claims)))) = (parts.next(), parts.next()) else {
            return vec!["no JWT".to_owned()];
        };
        let mut found = Vec::new();
        if self.header != header {
            found.push(format!("header: expected `{}`, observed `{header}`", self.header));
        }
        for (name, expected) in &self.claims {
            let observed = claims.get(name);
            if !observed.is_some_and(|observed| self.is_met(name, expected, observed, now)) {
                let observed = observed.map_or_else(|| "nothing".to_owned(), Value::to_string);
                found.push(format!("claim `{name}`: expected `{expected}`, observed `{observed}`"));
            }
        }
        let more = claims.keys().filter(|name| !self.claims.contains_key(*name));
        found.extend(more.map(|name| format!("claim `{name}` was not expected")));
        if found.is_empty() && self.sample.as_deref().is_some_and(|sample| sample != jwt) {
            found.push("it differs from `sample`".to_owned());
        }
        found
    }

    fn is_met(&self, name: &str, expected: &Value, observed: &Value, now: Timestamp) -> bool {
        match (name, self.max_lifetime_s) {
            ("exp", Some(most)) => {
                let left = observed.as_i64().and_then(|end| end.checked_sub(now.as_second()));
                left.is_some_and(|left| (1..=most).contains(&left))
            }
            _ if expected.as_str().is_some_and(|text| text.starts_with("<any")) => {
                observed.as_str().is_some_and(|text| !text.is_empty())
            }
            _ => expected == observed,
        }
    }
}

fn part(text: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
