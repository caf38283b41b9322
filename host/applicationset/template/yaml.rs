//! YAML of templates and patches.
//!
//! In: a document. Out: JSON, and back. Never: aliases without a bound.
//!
//! Source: `sigs.k8s.io/yaml`, which reads YAML 1.1 and writes JSON as YAML with
//! sorted keys.

use serde_json::Value;

/// JSON of a YAML document; an empty one is `null`.
///
/// # Errors
/// What is wrong with it.
pub(in crate::applicationset) fn read(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Option<Value>>(text, options)
        .map(Option::unwrap_or_default)
        .map_err(|error| error.to_string())
}
