//! Says in the settings' own words what the YAML reader refused, and what to write instead.
//!
//! Security: only numbers and booleans are repeated, because any other value may be a secret.

use serde_saphyr::Error;

use super::connectors;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::yaml::{self, Entry, Node};

const ALL_KEYS: &str = "docs/reference/settings.md lists every key";

/// Longest value that a message repeats, in characters.
const SHOWN: usize = 40;

/// How similar a key must be to be suggested, from 0 to 1.
const SIMILAR: f64 = 0.8;

/// The finding about one error of the reader.
///
/// - `text`: the whole file.
pub(super) fn finding(file: &str, text: &str, error: &Error) -> Diagnostic {
    // SECURITY: a snippet quotes lines of the file, which may hold secrets.
    let error = error.without_snippet();
    let mut location = Location::new(file, 0);
    if let Some(at) = error.location() {
        let number = |value: u64| u32::try_from(value).unwrap_or(0);
        (location.line, location.column) = (number(at.line()), number(at.column()));
    }
    let parsed = yaml::parse(text);
    // The reader names a mapping by its first key.
    let at = |node: &Node| {
        let first = node.entries().and_then(<[Entry]>::first);
        let first = first.map(|entry| (entry.line, entry.column));
        let position = (location.line, location.column);
        (node.line, node.column) == position || first == Some(position)
    };
    let named = parsed.documents.first().and_then(|document| find(document, &at, ""));
    let (key, value) = match &named {
        Some((key, node)) => (format!("`{key}`"), node.scalar().map(|scalar| &*scalar.text)),
        None => ("the value".to_owned(), None),
    };
    let shown = value.map_or_else(String::new, |value| {
        format!(" is `{}`, but", value.chars().take(SHOWN).collect::<String>())
    });
    let (message, hint) = match error {
        Error::InvalidScalar { ty, .. } if is_number(ty) => {
            let hint = match value.and_then(bytes_of_quantity) {
                Some(bytes) => format!("write it in bytes, without a unit: `{bytes}`"),
                None => ALL_KEYS.to_owned(),
            };
            (format!("{key}{shown} must be a whole number"), hint)
        }
        Error::InvalidBooleanStrict { .. } => (
            format!("{key}{shown} must be `true` or `false`"),
            "YAML 1.2 has no other booleans; leave out quotes".to_owned(),
        ),
        Error::Unexpected { expected, .. } => (format!("{key} must be {}", kind(expected)), ALL_KEYS.to_owned()),
        Error::DuplicateMappingKey { key: twice, .. } => (
            format!("`{}` is there twice", twice.as_deref().unwrap_or("a key")),
            "keep one of them, with the keys of both".to_owned(),
        ),
        Error::SerdeUnknownField { field, expected, .. } => {
            // A former name is accepted with a warning, and nobody should write it anew.
            let is_current = |key: &&str| *key != connectors::FORMER_NAME;
            let expected: Vec<&str> = expected.iter().copied().filter(is_current).collect();
            let message = format!("unknown field `{field}`, expected one of {}", expected.join(", "));
            (
                message,
                suggestion(field, &expected).unwrap_or_else(|| ALL_KEYS.to_owned()),
            )
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let message = format!("`{variant}` is not one of `{}`", expected.join("`, `"));
            (
                message,
                suggestion(variant, expected).unwrap_or_else(|| ALL_KEYS.to_owned()),
            )
        }
        Error::SerdeMissingField { field, .. } => {
            let section = named.as_ref().map_or_else(String::new, |(key, _)| format!("{key}."));
            (format!("`{section}{field}` is missing"), ALL_KEYS.to_owned())
        }
        Error::ExpectedMappingEndAfterEnumVariantValue { .. } => (
            "only one key can be here, and this is the second".to_owned(),
            ALL_KEYS.to_owned(),
        ),
        _ if parsed.documents.is_empty() && parsed.problems.is_empty() => (
            "there are no settings in it".to_owned(),
            "`state` and `policies` are the least; `tollgate init` writes a whole file".to_owned(),
        ),
        other => (first_line(other), ALL_KEYS.to_owned()),
    };
    Diagnostic::error(location, message).with_hint(hint)
}

/// The node at a position, with its key, such as `authentication.jwt[0].issuer`.
fn find<'a>(node: &'a Node, at: &impl Fn(&Node) -> bool, key: &str) -> Option<(String, &'a Node)> {
    if !key.is_empty() && at(node) {
        return Some((key.to_owned(), node));
    }
    let entries = node.entries().unwrap_or_default().iter();
    let mut below = entries.map(|entry| {
        let key = match key {
            "" => entry.key.to_string(),
            key => format!("{key}.{}", entry.key),
        };
        (key, &*entry.value)
    });
    let items = node.items().unwrap_or_default().iter().enumerate();
    let mut items = items.map(|(index, item)| (format!("{key}[{index}]"), &**item));
    below
        .find_map(|(key, node)| find(node, at, &key))
        .or_else(|| items.find_map(|(key, node)| find(node, at, &key)))
}

fn is_number(rust_type: &str) -> bool {
    let width = rust_type.trim_start_matches(['u', 'i', 'f']);
    width == "size" || width.parse::<u8>().is_ok()
}

/// What the reader calls a kind of node, in words of YAML.
fn kind(expected: &str) -> &'static str {
    match expected {
        "mapping start" => "a mapping, with one key on each line below it",
        "sequence start" => "a list, such as `[a, b]`",
        _ => "a single value",
    }
}

/// The key that was probably meant.
fn suggestion(written: &str, expected: &[&str]) -> Option<String> {
    let similar = expected.iter().map(|key| (strsim::jaro_winkler(written, key), key));
    let (_, key) = similar
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(format!("did you mean `{key}`?"))
}

/// The bytes of a quantity as Kubernetes writes it, such as `1Gi` or `500M`.
fn bytes_of_quantity(text: &str) -> Option<u64> {
    let end = text.find(|symbol: char| !symbol.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(end)?;
    let factor = match unit {
        "k" | "K" | "kB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        "Ti" | "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// What the reader says, without the position, which the diagnostic has as well.
fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("not valid YAML");
    let Some(at) = error.location() else {
        return line.to_owned();
    };
    let prefix = format!("error: line {} column {}: ", at.line(), at.column());
    let line = line.strip_prefix(&prefix).unwrap_or(line);
    line.rsplit_once(" at line ")
        .map_or(line, |(before, _)| before)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\n{text}");
        let found = parse(&text, "t.yaml", Path::new("/etc")).diagnostics;
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, [expected], "{text}");
    }

    #[test]
    fn a_value_of_a_wrong_type_says_what_to_write() {
        for (text, expected) in [
            (
                "limits: {bodyBytes: 1Gi}",
                "t.yaml:3:21: error: `limits.bodyBytes` is `1Gi`, but must be a whole number (write it in bytes, \
                 without a unit: `1073741824`)",
            ),
            (
                "limits: {headerBytes: many}",
                "t.yaml:3:23: error: `limits.headerBytes` is `many`, but must be a whole number \
                 (docs/reference/settings.md lists every key)",
            ),
            (
                "clusters: {forward: yes}",
                "t.yaml:3:21: error: `clusters.forward` is `yes`, but must be `true` or `false` (YAML 1.2 has no other \
                 booleans; leave out quotes)",
            ),
            (
                "admin: 8081",
                "t.yaml:3:8: error: `admin` must be a mapping, with one key on each line below it \
                 (docs/reference/settings.md lists every key)",
            ),
            (
                "trustedProxies: {a: b}",
                "t.yaml:3:17: error: `trustedProxies` must be a list, such as `[a, b]` \
                 (docs/reference/settings.md lists every key)",
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn keys_that_are_wrong_are_named_with_what_was_meant() {
        for (text, expected) in [
            (
                "drain: 3s\ndrain: 4s",
                "t.yaml:4:1: error: `drain` is there twice (keep one of them, with the keys of both)",
            ),
            (
                "rbac: {semantics: stricht}",
                "t.yaml:3:19: error: `stricht` is not one of `argocd`, `strict` (did you mean `strict`?)",
            ),
            (
                "decisions: {kep: 1}",
                "t.yaml:3:13: error: unknown field `kep`, expected one of keep, file (did you mean `keep`?)",
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn a_text_that_may_be_a_secret_is_not_repeated() {
        check(
            "store: postgres://user:password@db/tollgate",
            "t.yaml:3:8: error: `store` must be a mapping, with one key on each line below it \
             (docs/reference/settings.md lists every key)",
        );
    }

    #[test]
    fn settings_without_what_is_required_say_so() {
        let found = parse("drain: 3s\n", "t.yaml", Path::new("/etc")).diagnostics;
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["t.yaml:1:1: error: `state` is missing (docs/reference/settings.md lists every key)"]
        );
    }
}
