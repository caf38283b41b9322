//! Compares JSON values, and writes JSON as YAML.
//!
//! Invariant: the YAML that is written is read back as the same value.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The JSON merge patch that turns `old` into `new`; lists are replaced whole. `None` when they are
/// equal.
///
/// Source: RFC 7396.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let changed = match old.get(key) {
            Some(before) => merge_patch(before, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|changed| (key.clone(), changed)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Writes JSON values as YAML in the style of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct YamlEmitter<'a> {
    pub(super) line_break: &'a str,
    /// Number of columns by which lists are indented from their key.
    pub(super) list_step: usize,
    /// Keys in the order that siblings use; others follow by name.
    pub(super) order: &'a [&'a str],
    pub(super) quotes: Quotes,
    /// Replaces each text before it is written; `None` writes it unchanged.
    pub(super) texts: Option<TextTransform>,
}

pub(crate) type TextTransform = for<'t> fn(&'t str) -> Cow<'t, str>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quotes {
    /// Those that would mean something else without quotes.
    WhereNeeded,
    /// All texts, as in JSON.
    Always,
}

impl YamlEmitter<'_> {
    pub(super) fn inline(&self, value: &Value) -> String {
        let mut line = String::new();
        self.put_inline(&mut line, value);
        line
    }

    /// Writes a key that stands at `indent`, after `blanks` blanks, and its value.
    pub(super) fn put_member(&self, lines: &mut String, key: &str, value: &Value, blanks: usize, indent: usize) {
        pad(lines, blanks);
        self.put_text(lines, key);
        lines.push(':');
        self.put_behind_colon(lines, value, indent);
    }

    /// Writes members that stand at `indent`; only the first line begins with `blanks` blanks.
    pub(super) fn put_members(&self, lines: &mut String, members: &Map<String, Value>, blanks: usize, indent: usize) {
        let blanks = std::iter::once(blanks).chain(std::iter::repeat(indent));
        for (blanks, (key, value)) in blanks.zip(self.sorted(members)) {
            self.put_member(lines, key, value, blanks, indent);
        }
    }

    fn put_items(&self, lines: &mut String, items: &[Value], blanks: usize, indent: usize) {
        let blanks = std::iter::once(blanks).chain(std::iter::repeat(indent));
        for (blanks, item) in blanks.zip(items) {
            self.put_item(lines, item, blanks, indent);
        }
    }

    /// Writes what stands after the colon of a key at `indent`, with its line break.
    pub(super) fn put_behind_colon(&self, lines: &mut String, value: &Value, indent: usize) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                let inner = indent.saturating_add(2);
                lines.push_str(self.line_break);
                self.put_members(lines, members, inner, inner);
            }
            Value::Array(items) if !items.is_empty() => {
                let inner = indent.saturating_add(self.list_step);
                lines.push_str(self.line_break);
                self.put_items(lines, items, inner, inner);
            }
            other => {
                lines.push(' ');
                self.put_inline(lines, other);
                lines.push_str(self.line_break);
            }
        }
    }

    /// Writes an item of a block list whose dashes stand at `indent`, with its line break.
    pub(super) fn put_item(&self, lines: &mut String, value: &Value, blanks: usize, indent: usize) {
        let inner = indent.saturating_add(2);
        pad(lines, blanks);
        lines.push_str("- ");
        match value {
            Value::Object(members) if !members.is_empty() => self.put_members(lines, members, 0, inner),
            Value::Array(items) if !items.is_empty() => self.put_items(lines, items, 0, inner),
            other => {
                self.put_inline(lines, other);
                lines.push_str(self.line_break);
            }
        }
    }

    fn put_inline(&self, line: &mut String, value: &Value) {
        let comma = |number: usize| if number == 0 { "" } else { ", " };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => line.push_str(&value.to_string()),
            Value::String(text) => self.put_text(line, text),
            Value::Array(items) => {
                line.push('[');
                for (number, item) in items.iter().enumerate() {
                    line.push_str(comma(number));
                    self.put_inline(line, item);
                }
                line.push(']');
            }
            Value::Object(members) => {
                line.push('{');
                for (number, (key, value)) in self.sorted(members).enumerate() {
                    line.push_str(comma(number));
                    self.put_text(line, key);
                    line.push_str(": ");
                    self.put_inline(line, value);
                }
                line.push('}');
            }
        }
    }

    fn sorted<'a>(&self, members: &'a Map<String, Value>) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let place = |key: &str| self.order.iter().position(|known| *known == key);
        let rank = |key: &str| place(key).unwrap_or(self.order.len());
        let mut sorted: Vec<_> = members.iter().map(|(key, value)| (key.as_str(), value)).collect();
        sorted.sort_by_key(|(key, _)| rank(key));
        sorted.into_iter()
    }

    fn put_text(&self, line: &mut String, text: &str) {
        let text = self.texts.map_or(Cow::Borrowed(text), |texts| texts(text));
        if self.quotes == Quotes::WhereNeeded && is_plain(&text) {
            line.push_str(&text);
        } else {
            // JSON's escapes are among those of YAML's double quotes.
            line.push_str(&Value::from(text).to_string());
        }
    }
}

fn pad(lines: &mut String, indent: usize) {
    lines.extend(std::iter::repeat_n(' ', indent));
}

/// Whether a text means itself without quotes, in blocks and in brackets, for readers of YAML 1.1
/// and 1.2: it begins with a letter and has only characters of names, URLs and accounts.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let ends = text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    // A colon before a blank or at the end would make the text a key; there are none.
    starts && ends && text.chars().all(plain) && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Quotes, YamlEmitter, merge_patch};
    use tollgate_core::yaml;
    use tollgate_core::yaml::to_json as meaning;

    fn read(text: &str) -> Value {
        let parsed = yaml::parse(text);
        assert!(parsed.problems.is_empty(), "{text:?}: {:?}", parsed.problems);
        meaning(&parsed.documents[0])
    }

    #[test]
    fn numbers_keep_their_value() {
        let text = "{a: 0x10, b: 0o17, c: -5, d: 1.5, e: 18446744073709551615, f: .inf, g: \"7\", h: +3, i: ~}";
        let expected = json!({
            "a": 16, "b": 15, "c": -5, "d": 1.5, "e": 18_446_744_073_709_551_615_u64,
            "f": ".inf", "g": "7", "h": 3, "i": null,
        });
        assert_eq!(read(text), expected);
    }

    #[test]
    fn emitted_yaml_reads_back_as_the_same_value() {
        let value = json!({
            "a": ["*", "https://kubernetes.default.svc", "ns:name", "yes", "1", "", " x", "# no", "é\u{7}", "- a"],
            "b": {"c": [], "d": {}, "e": [[1, [2]], {"f": null}, true]},
            "x: y": "line\nbreak",
        });
        for (quotes, list_step) in [(Quotes::WhereNeeded, 0), (Quotes::WhereNeeded, 2), (Quotes::Always, 2)] {
            let emitter = YamlEmitter {
                line_break: "\n",
                list_step,
                order: &["b"],
                quotes,
                texts: None,
            };
            let mut text = String::new();
            emitter.put_members(&mut text, value.as_object().unwrap(), 0, 0);
            assert_eq!(read(&text), value, "{text}");
            assert_eq!(read(&emitter.inline(&value)), value);
            assert!(text.starts_with('b') || text.starts_with("\"b"), "{text}");
        }
    }

    #[test]
    fn patches_name_only_what_differs() {
        let old = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"keep": [1], "list": [1, 2]}});
        let new = json!({"metadata": {"name": "a"}, "spec": {"keep": [1], "list": [2], "new": true}});
        let patch = json!({"metadata": {"labels": null}, "spec": {"list": [2], "new": true}});
        assert_eq!(merge_patch(&old, &new), Some(patch));
        assert_eq!(merge_patch(&old, &old), None);
    }
}
