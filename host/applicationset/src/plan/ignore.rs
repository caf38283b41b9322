//! `ignoreApplicationDifferences`: fields of Applications that others may change.
//!
//! In: rules, an Application before and after. Out: what is written with those fields
//! as they are stored. Refuses: jq expressions, which are programs. Never: a rule left
//! out without a word.
//!
//! As in Argo CD, the fields are taken away from both sides, and what is left of the
//! difference is put on what is stored. A list is one value to that: an ignored field
//! in a list is written with the list once anything else in it differs.

use serde_json::{Map, Value};

use super::Problem;
use tollgate_state::write::same::is_distinct;
use tollgate_state::write::{merge, merge_patch};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Name of the Application; empty for all.
    name: String,
    /// JSON pointers, taken apart.
    pointers: Vec<Vec<String>>,
}

/// The rules of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    /// The rules a set has, and what cannot be followed.
    pub(super) fn of(set: &Value) -> (Self, Vec<Problem>) {
        let listed = set
            .pointer("/spec/ignoreApplicationDifferences")
            .and_then(Value::as_array);
        let mut problems = Vec::new();
        let mut rules = Vec::new();
        for (number, entry) in listed.into_iter().flatten().enumerate() {
            let texts = |key: &str| -> Vec<String> {
                let listed = entry.get(key).and_then(Value::as_array).into_iter().flatten();
                listed.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            for expression in texts("jqPathExpressions") {
                let why = format!("`jqPathExpressions` has `{expression}`; only `jsonPointers` are allowed here");
                problems.push(Problem::Ignore { number, why });
            }
            let mut pointers = Vec::new();
            for pointer in texts("jsonPointers") {
                match taken_apart(&pointer) {
                    Some(path) => pointers.push(path),
                    None => problems.push(Problem::Ignore {
                        number,
                        why: format!("`{pointer}` is no JSON pointer, which begins with `/` and names a field"),
                    }),
                }
            }
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            rules.push(Rule { name, pointers });
        }
        (Self(rules), problems)
    }

    /// Whether one of them is about this Application.
    pub(super) fn is_for(&self, name: &str) -> bool {
        self.0.iter().any(|rule| rule.name.is_empty() || rule.name == name)
    }

    /// `after`, with what is ignored as it is in `before`.
    pub(super) fn apply(&self, name: &str, before: &Value, after: Value) -> Value {
        let rules = || self.0.iter().filter(|rule| rule.name.is_empty() || rule.name == name);
        if !self.is_for(name) {
            return after;
        }
        let (mut stored, mut wanted) = (before.clone(), after);
        for path in rules().flat_map(|rule| &rule.pointers) {
            remove(&mut stored, path);
            remove(&mut wanted, path);
        }
        let mut result = before.clone();
        if let Some(patch) = merge_patch(&stored, &wanted) {
            merge(&mut result, &patch);
        }
        result
    }
}

/// Source: RFC 6901.
fn taken_apart(pointer: &str) -> Option<Vec<String>> {
    let path = pointer.strip_prefix('/')?;
    let steps = path.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
    Some(steps.collect())
}

/// Takes a field away, and what holds nothing without it: Argo CD leaves that out.
fn remove(value: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    match value {
        Value::Object(members) if rest.is_empty() => {
            members.remove(step);
        }
        Value::Object(members) => {
            let Some(inner) = members.get_mut(step) else { return };
            remove(inner, rest);
            let is_empty = inner.as_object().is_some_and(Map::is_empty);
            if is_empty && !is_distinct(step) {
                members.remove(step);
            }
        }
        Value::Array(items) => {
            let at = step.parse::<usize>().ok().filter(|at| *at < items.len());
            let Some(at) = at else { return };
            if rest.is_empty() {
                items.remove(at);
            } else if let Some(inner) = items.get_mut(at) {
                remove(inner, rest);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
