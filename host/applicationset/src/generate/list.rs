//! The list generator: one set of parameters for each item of `elements` and `elementsYaml`.
//!
//! Invariant: where templates only support strings, a value that is not a string is an error.

use serde_json::{Map, Value};

use super::generator_run::GeneratorRun;
use super::{Error, invalid, type_ambiguity};
use crate::decode::fields::{child_path, object};
use crate::decode::settings::ListSettings;
use crate::{Params, TemplateEngine, heap_size};

/// Runs a list generator. Both engines take the items of `elementsYaml` unchanged.
pub(super) fn parameters(run: &GeneratorRun<'_>, settings: &Value, path: &str) -> Result<Vec<Params>, Error> {
    let list = ListSettings::read(settings, path)?;
    let mut made = Vec::new();
    for (index, element) in list.elements.iter().enumerate() {
        run.charge(heap_size::of(element))?;
        let path = || format!("{path}.elements[{index}]");
        made.push(match element {
            // Go decodes `null` as an empty map.
            Value::Null => Params::new(),
            element => match run.engine {
                TemplateEngine::GoTemplate { .. } => {
                    let element = object(element, &path())?;
                    type_ambiguity::check_reserved_keys(element).map_err(|what| invalid(&path(), what))?;
                    element.clone()
                }
                TemplateEngine::FastTemplate => texts(object(element, &path())?, &path())?,
            },
        });
    }
    if !list.elements_yaml.is_empty() {
        let path = child_path(path, "elementsYaml");
        for element in elements(run, list.elements_yaml, &path)? {
            // The bytes were charged while parsing.
            run.charge(0)?;
            if matches!(run.engine, TemplateEngine::GoTemplate { .. }) {
                type_ambiguity::check_reserved_keys(&element).map_err(|what| invalid(&path, what))?;
            }
            made.push(element);
        }
    }
    Ok(made)
}

fn elements(run: &GeneratorRun<'_>, text: &str, path: &str) -> Result<Vec<Params>, Error> {
    let items = match run.yaml(text, |what| invalid(path, what))? {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.into_iter().map(mapping).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    };
    items.ok_or_else(|| invalid(path, "is no list of mappings"))
}

/// The parameters that an item of a list stands for; none for null.
pub(super) fn mapping(item: Value) -> Option<Params> {
    match item {
        Value::Null => Some(Params::new()),
        Value::Object(members) => Some(members),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// The strings of an element; those of `values` become `values.<key>`.
fn texts(element: &Map<String, Value>, path: &str) -> Result<Params, Error> {
    let mut params = Params::new();
    let text = |key: &str, value: &Value| -> Result<Value, Error> {
        let what = "error parsing value as string: without `goTemplate`, values are texts";
        let text = value.as_str().ok_or_else(|| invalid(&child_path(path, key), what))?;
        Ok(Value::from(text))
    };
    for (key, value) in element {
        match value {
            Value::Object(values) if key == "values" => {
                for (key, value) in values {
                    let key = format!("values.{key}");
                    let value = text(&key, value)?;
                    params.insert(key, value);
                }
            }
            _ if key == "values" => return Err(invalid(&child_path(path, key), "error parsing values map")),
            value => {
                params.insert(key.clone(), text(key, value)?);
            }
        }
    }
    Ok(params)
}
