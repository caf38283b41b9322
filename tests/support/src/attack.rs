//! The table of requests that two parsers could read differently, with the expected result of each.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::backend::Seen;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attacks {
    cases: Vec<Attack>,
}

/// One request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// What the request attempts.
    pub name: String,
    request: String,
    /// The status of the response.
    pub status: u16,
    /// Whether the gateway closes the connection after the response.
    #[serde(default)]
    pub closed: bool,
    #[serde(default)]
    backend: Option<Expected>,
}

/// The request that the backend receives.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    line: String,
    #[serde(default)]
    fields: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    absent: Vec<String>,
    #[serde(default)]
    content: String,
}

/// The whole table.
pub fn attacks() -> Vec<Attack> {
    let attacks: Attacks = serde_saphyr::from_str(include_str!("../../data/attacks.yaml")).unwrap();
    assert!(attacks.cases.len() >= 40);
    attacks.cases
}

impl Attack {
    /// The bytes to send.
    ///
    /// - `caller`: header lines of a caller who may do everything.
    pub fn bytes(&self, caller: &str) -> Vec<u8> {
        let text = self
            .request
            .replace("{caller}", caller)
            .replace("{long}", &"a".repeat(20_000));
        text.chars()
            .map(|c| u8::try_from(c).expect("every character fits in one byte"))
            .collect()
    }

    /// Asserts that the backend saw the expected request, or none.
    pub fn assert_seen(&self, seen: &[Seen]) {
        match (&self.backend, seen) {
            (None, []) => {}
            (Some(expected), [seen]) => expected.assert_is(&self.name, seen),
            (_, seen) => panic!("{}: the backend saw {seen:#?}", self.name),
        }
    }
}

impl Expected {
    fn assert_is(&self, name: &str, seen: &Seen) {
        assert_eq!(seen.line(), self.line, "{name}");
        for (field, values) in &self.fields {
            assert_eq!(&seen.values(field), values, "{name}: {field}");
        }
        for field in &self.absent {
            assert!(seen.values(field).is_empty(), "{name}: {}", seen.head);
        }
        assert_eq!(String::from_utf8_lossy(&seen.content), self.content, "{name}");
    }
}
