//! The merge generator: the first child's sets of parameters, overlaid with those of the other
//! children that have the same values of the merge keys.
//!
//! Invariant: a child never has two sets with the same values of the keys.

use std::collections::HashMap;

use serde_json::Value;

use super::flatten::format_go_value;
use super::generator_run::GeneratorRun;
use super::matrix::{excerpt, overlay};
use super::type_ambiguity::{self, TypeAmbiguity};
use super::{Error, invalid};
use crate::decode::entry::NestingLevel;
use crate::decode::settings::CombinationSettings;
use crate::{Params, TemplateEngine, heap_size};

pub(super) fn parameters(
    run: &GeneratorRun<'_>,
    settings: &Value,
    level: NestingLevel,
    path: &str,
) -> Result<Vec<Params>, Error> {
    let settings = CombinationSettings::read(settings, path)?;
    if settings.generators.len() < 2 {
        let what = "found less than two generators, Merge requires two or more";
        return Err(invalid(path, what));
    }
    let children = settings.generators.iter().enumerate();
    let made = children.map(|(index, child)| run.child(child, level, &format!("{path}.generators[{index}]"), None));
    let mut made = made.collect::<Result<Vec<_>, _>>()?.into_iter();
    // After the children, whose errors come first upstream.
    if settings.keys.is_empty() {
        let what = "no merge keys were specified, Merge requires at least one";
        return Err(invalid(path, what));
    }
    let mut keys = settings.keys;
    keys.sort_unstable();
    keys.dedup();
    let mut base = made.next().unwrap_or_default();
    let by_key = |sets: &[Params]| by_key(run, &keys, path, sets);
    let positions = by_key(&base)?;
    for overrides in made {
        run.budget.check_deadline()?;
        for (key, index) in by_key(&overrides)? {
            let under = positions.get(&key).and_then(|position| base.get_mut(*position));
            let (Some(under), Some(over)) = (under, overrides.get(index)) else {
                continue;
            };
            run.budget.charge_bytes(heap_size::of_members(over))?;
            match run.engine {
                TemplateEngine::GoTemplate { .. } => {
                    if type_ambiguity::have_ambiguous_types(under, over) {
                        run.record_type_ambiguity(TypeAmbiguity::Maps, path);
                    }
                    overlay(under, over);
                }
                TemplateEngine::FastTemplate => {
                    under.extend(over.iter().map(|(key, value)| (key.clone(), value.clone())))
                }
            }
        }
    }
    Ok(base)
}

/// The index of the set of parameters with each combination of values.
fn by_key(run: &GeneratorRun<'_>, keys: &[&str], path: &str, sets: &[Params]) -> Result<HashMap<String, usize>, Error> {
    let names = keys.iter().map(|key| heap_size::text(key)).fold(0, u64::saturating_add);
    let mut positions = HashMap::new();
    for (index, params) in sets.iter().enumerate() {
        run.budget.check_deadline()?;
        // Keys can be many and long, and repeat in every set.
        let values = keys.iter().filter_map(|key| params.get(*key)).map(heap_size::of);
        run.budget.charge_bytes(values.fold(names, u64::saturating_add))?;
        let values = keys.iter().map(|key| {
            let value = params.get(*key).map_or(Value::Null, compared);
            ((*key).to_owned(), value)
        });
        let key = Value::Object(values.collect()).to_string();
        if let Some(_first) = positions.insert(key.clone(), index) {
            let what = format!(
                "the parameters from a generator were not unique by the given mergeKeys, \
                 Merge requires all param sets to be unique. Duplicate key was {}",
                excerpt(&key)
            );
            return Err(invalid(path, what));
        }
    }
    Ok(positions)
}

/// A canonical form of the value: members in order, and each number written in one way, since all
/// numbers are floating point in Go.
fn compared(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough to be exact")]
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => Value::from(float as i64),
            Some(_) => Value::from(format_go_value(value)),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(compared).collect(),
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let members = members.into_iter().map(|(key, value)| (key.clone(), compared(value)));
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
