//! `ignoreApplicationDifferences`: fields of Applications that others may change.
//!
//! As in Argo CD, the fields are removed from both sides, and the remaining difference is applied
//! to the stored object. A list counts as one value, so an ignored field in a list is written with
//! the whole list once anything else in the list differs.
//!
//! Rules with jq expressions are refused, because those are programs.
//!
//! Invariant: a rule that cannot be applied is reported, never skipped.

use serde_json::{Map, Value};

use super::PlanProblem;
use tollgate_objects::equivalence::APPLICATION;
use tollgate_state::write::{merge, merge_patch};

#[derive(Clone, Debug, PartialEq, Eq)]
struct IgnoreRule {
    /// Name of the Application; empty for all Applications.
    name: String,
    /// JSON pointers, split into their parts.
    pointers: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IgnoreRules(Vec<IgnoreRule>);

impl IgnoreRules {
    /// Reads the rules of a set, and the problems of those that cannot be applied.
    pub(super) fn of(set: &Value) -> (Self, Vec<PlanProblem>) {
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
                problems.push(PlanProblem::InvalidIgnoreRule { number, why });
            }
            let mut pointers = Vec::new();
            for pointer in texts("jsonPointers") {
                match parse_json_pointer(&pointer) {
                    Some(path) => pointers.push(path),
                    None => problems.push(PlanProblem::InvalidIgnoreRule {
                        number,
                        why: format!("`{pointer}` is no JSON pointer, which begins with `/` and names a field"),
                    }),
                }
            }
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            rules.push(IgnoreRule { name, pointers });
        }
        (Self(rules), problems)
    }

    fn rules_of(&self, name: &str) -> impl Iterator<Item = &IgnoreRule> {
        let rules = self.0.iter();
        rules.filter(move |rule| rule.name.is_empty() || rule.name == name)
    }

    pub(super) fn applies_to(&self, name: &str) -> bool {
        self.rules_of(name).next().is_some()
    }

    /// `after`, with ignored fields as they are in `before`.
    pub(super) fn apply(&self, name: &str, before: &Value, after: Value) -> Value {
        if !self.applies_to(name) {
            return after;
        }
        let (mut stored, mut wanted) = (before.clone(), after);
        for path in self.rules_of(name).flat_map(|rule| &rule.pointers) {
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
fn parse_json_pointer(pointer: &str) -> Option<Vec<String>> {
    let path = pointer.strip_prefix('/')?;
    // In this order, or `~01` would become `/` (RFC 6901, section 4).
    let steps = path.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
    Some(steps.collect())
}

/// Removes a field, and every parent that is empty without it, because Argo CD omits those.
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
            // An empty `automated`, for one, means something else than none.
            if is_empty && !APPLICATION.significant_zeros.contains(&step.as_str()) {
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
