//! The parameter `fields` of streams: which fields of an event are sent. Argo CD's server reads it
//! for streams alone, so lists and single sets are always whole.
//!
//! Source: <https://github.com/argoproj/pkg/blob/master/grpc/http/forwarders.go>

use std::collections::BTreeSet;
use std::ops::Bound;

use serde_json::Value;

/// Selects fields by their paths from the top of an event: `result.applicationSet.metadata.name`.
/// An element of a list has the path of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldFilter {
    paths: BTreeSet<String>,
    /// Whether all fields but these are sent, rather than only these.
    is_exclusion: bool,
}

impl FieldFilter {
    /// Reads paths with commas between them; a `-` before the first one excludes them all. `None` if
    /// the text is empty.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let excluded = text.strip_prefix('-');
        let paths = excluded.unwrap_or(text).split(',');
        Some(Self {
            paths: paths.map(str::to_owned).collect(),
            is_exclusion: excluded.is_some(),
        })
    }

    /// Removes the fields that are not selected.
    pub(crate) fn apply(&self, event: &mut Value) {
        self.apply_below(&mut String::new(), event);
    }

    /// - `path`: that of `value`; the same again afterwards.
    fn apply_below(&self, path: &mut String, value: &mut Value) {
        match value {
            Value::Object(members) => members.retain(|key, value| {
                let parent_bytes = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                let is_listed = self.paths.contains(path);
                let is_kept = match self.is_exclusion {
                    true => !is_listed,
                    false => self.has_path_with_prefix(path),
                };
                // A path that is listed includes everything below it.
                if is_kept && !is_listed {
                    self.apply_below(path, value);
                }
                path.truncate(parent_bytes);
                is_kept
            }),
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply_below(path, item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Whether a path begins with the text, as in Argo CD: it need not end at a dot.
    fn has_path_with_prefix(&self, text: &str) -> bool {
        let mut from = self.paths.range::<str, _>((Bound::Included(text), Bound::Unbounded));
        from.next().is_some_and(|path| path.starts_with(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::FieldFilter;

    fn filtered(fields: &str) -> Value {
        let mut event = json!({"result": {"type": "ADDED", "applicationSet": {
            "metadata": {"name": "a", "namespace": "b", "labels": {"x": "1"}},
            "spec": {"generators": [{"list": {"elements": [1]}}, {"git": {}}]},
            "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]},
        }}});
        FieldFilter::parse(fields).expect("a filter").apply(&mut event);
        event
    }

    #[test]
    fn selected_fields_are_kept_with_all_below_them() {
        assert_eq!(
            filtered("result.type,result.applicationSet.metadata.name,result.applicationSet.status.conditions.type"),
            json!({"result": {"type": "ADDED", "applicationSet": {
                "metadata": {"name": "a"},
                "status": {"conditions": [{"type": "A"}, {"type": "B"}]},
            }}})
        );
        assert_eq!(
            filtered("result.applicationSet.spec.generators.list"),
            json!({"result": {"applicationSet": {"spec": {"generators": [{"list": {"elements": [1]}}, {}]}}}})
        );
        assert_eq!(filtered("other"), json!({}));
        // A path that goes on below a text keeps the text, as does one whose beginning is a key.
        assert_eq!(filtered("result.type.x"), json!({"result": {"type": "ADDED"}}));
        assert_eq!(
            filtered("result.applicationSet.metadata.namesake"),
            json!({"result": {"applicationSet": {"metadata": {"name": "a"}}}})
        );
    }

    #[test]
    fn excluded_fields_are_removed() {
        assert_eq!(
            filtered("-result.applicationSet.spec,result.applicationSet.status,result.applicationSet.metadata.labels"),
            json!({"result": {"type": "ADDED", "applicationSet": {"metadata": {"name": "a", "namespace": "b"}}}})
        );
        assert_eq!(filtered("-").pointer("/result/type"), Some(&json!("ADDED")));
        assert_eq!(FieldFilter::parse(""), None);
    }
}
