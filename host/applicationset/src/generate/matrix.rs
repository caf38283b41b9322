//! The matrix generator: every combination of what its two children generate.
//!
//! Invariant: each combination is charged to the budget before it is made.

use serde_json::{Map, Value};

use super::flatten::format_go_value;
use super::generator_run::GeneratorRun;
use super::type_ambiguity::{self, TypeAmbiguity};
use super::{Error, invalid};
use crate::decode::entry::NestingLevel;
use crate::decode::settings::CombinationSettings;
use crate::{Params, TemplateEngine, heap_size};
use tollgate_core::diagnostic::one_line;

/// Maximum length of a parameter in an error, in bytes.
const SHOWN_BYTES: usize = 240;

pub(super) fn parameters(
    run: &GeneratorRun<'_>,
    settings: &Value,
    level: NestingLevel,
    path: &str,
) -> Result<Vec<Params>, Error> {
    let children = CombinationSettings::read(settings, path)?.generators;
    let [first, second] = children else {
        let what = if children.len() < 2 { "less" } else { "more" };
        let what = format!("found {what} than two generators, Matrix support only two");
        return Err(invalid(path, what));
    };
    let child_at = |index: usize| format!("{path}.generators[{index}]");
    let ours = run.child(first, level, &child_at(0), None)?;
    let mut made = Vec::new();
    // A second child that uses no parameter generates the same each time.
    let mut fixed: Option<Vec<Params>> = None;
    // Without templates its inputs are read once, not once for each set of the first child.
    let is_fixed = !type_ambiguity::is_templated(second);
    for own in &ours {
        let generated;
        let theirs = match &fixed {
            Some(theirs) => theirs,
            None => {
                generated = run.child(second, level, &child_at(1), Some(own))?;
                if is_fixed { fixed.insert(generated) } else { &generated }
            }
        };
        for other in theirs {
            run.charge(heap_size::of_both(own, other))?;
            made.push(match run.engine {
                TemplateEngine::GoTemplate { .. } => {
                    if type_ambiguity::have_ambiguous_types(own, other) {
                        run.record_type_ambiguity(TypeAmbiguity::Maps, path);
                    }
                    let mut both = other.clone();
                    // The first child takes precedence.
                    overlay(&mut both, own);
                    both
                }
                TemplateEngine::FastTemplate => combined(own, other).map_err(|what| invalid(path, what))?,
            });
        }
    }
    Ok(made)
}

/// Merges `over` into `under`, objects member by member.
pub(super) fn overlay(under: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Object(under)), Value::Object(over)) => overlay(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Combines two sets of parameters, as strings; a key in both must have the same value.
fn combined(one: &Params, other: &Params) -> Result<Params, String> {
    let text = |value: &Value| Value::String(format_go_value(value).into_owned());
    let mut both: Params = one.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    for (key, value) in other {
        let value = text(value);
        match both.get(key) {
            Some(current) if *current != value => {
                let (current, value) = (format_go_value(current), format_go_value(&value));
                let (key, current, value) = (excerpt(key), excerpt(&current), excerpt(&value));
                return Err(format!(
                    "found duplicate key {key} with different value, a: {current} ,b: {value}"
                ));
            }
            Some(_) | None => both.insert(key.clone(), value),
        };
    }
    Ok(both)
}

pub(super) fn excerpt(text: &str) -> String {
    one_line(text, SHOWN_BYTES)
}
