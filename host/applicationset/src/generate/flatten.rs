//! Flattens JSON into strings under dotted keys, with values formatted as Go prints them.
//!
//! Source: Argo CD's use of `flatten` (dot style) and of Go's `%v`, where every number is a
//! `float64`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Error;
use super::generator_run::GeneratorRun;
use crate::template::go_float;
use crate::{Params, heap_size};

/// Every leaf of `object` as a string, by its dotted path. Empty objects and lists have no leaves.
pub(super) fn flat(run: &GeneratorRun<'_>, object: &Map<String, Value>) -> Result<Params, Error> {
    let mut params = Params::new();
    for (key, value) in object {
        leaves(run, key.clone(), value, &mut params)?;
    }
    Ok(params)
}

fn leaves(run: &GeneratorRun<'_>, key: String, value: &Value, params: &mut Params) -> Result<(), Error> {
    // Keys repeat in every leaf below them, so they are charged before they are made.
    run.budget.charge_bytes(heap_size::text(&key))?;
    match value {
        Value::Object(members) => {
            for (inner, value) in members {
                leaves(run, format!("{key}.{inner}"), value, params)?;
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                leaves(run, format!("{key}.{index}"), value, params)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            params.insert(key, Value::String(format_go_value(value).into_owned()));
        }
    }
    Ok(())
}

/// The string that [`flat`] would give for `key`.
pub(super) fn lookup<'v>(params: &'v Params, key: &str) -> Option<Cow<'v, str>> {
    // The whole key first: keys of parameters can themselves have dots.
    if let Some(leaf) = params.get(key).and_then(leaf) {
        return Some(leaf);
    }
    key.match_indices('.').find_map(|(dot, _)| {
        let (outer, inner) = key.split_at_checked(dot)?;
        inside(params.get(outer)?, inner.strip_prefix('.')?)
    })
}

fn leaf(value: &Value) -> Option<Cow<'_, str>> {
    (!value.is_object() && !value.is_array()).then(|| format_go_value(value))
}

fn inside<'v>(value: &'v Value, key: &str) -> Option<Cow<'v, str>> {
    match value {
        Value::Object(members) => lookup(members, key),
        Value::Array(items) => {
            let (index, rest) = key
                .split_once('.')
                .map_or((key, None), |(index, rest)| (index, Some(rest)));
            let position: usize = index.parse().ok()?;
            // `01` and `+1` are not valid indices.
            let item = items.get(position).filter(|_| position.to_string() == index)?;
            match rest {
                Some(rest) => inside(item, rest),
                None => leaf(item),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Formats a value as Go's `%v` does.
pub(super) fn format_go_value(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => {
            let mut text = String::new();
            print(&mut text, other);
            Cow::Owned(text)
        }
    }
}

fn print(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&go_float(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(inner) => text.push_str(inner),
        Value::Array(items) => print_all(text, "[", items.iter().map(|item| ("", "", item))),
        Value::Object(members) => {
            let members: BTreeMap<&String, &Value> = members.iter().collect();
            let members = members.into_iter().map(|(key, value)| (key.as_str(), ":", value));
            print_all(text, "map[", members);
        }
    }
}

fn print_all<'v>(text: &mut String, open: &str, items: impl Iterator<Item = (&'v str, &'v str, &'v Value)>) {
    text.push_str(open);
    for (index, (key, colon, value)) in items.enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(key);
        text.push_str(colon);
        print(text, value);
    }
    text.push(']');
}
