//! Reads JSON Schemas: references, alternatives with `null`, types.

use std::collections::BTreeMap;

use serde_json::Value;

/// The schema that a reference names, with what stands beside the reference; alternatives with `null` are left.
pub(super) fn resolved(root: &Value, schema: &Value) -> Value {
    let named = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
    let mut found = match named {
        Some(name) => resolved(root, &root["$defs"][name]),
        None => match alternatives(schema).as_slice() {
            [one] => resolved(root, one),
            _ => return schema.clone(),
        },
    };
    if let (Some(found), Some(beside)) = (found.as_object_mut(), schema.as_object()) {
        for (key, value) in beside
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "$ref" | "anyOf"))
        {
            found.insert(key.clone(), value.clone());
        }
    }
    found
}

/// The alternatives of `anyOf` but `null`.
pub(super) fn alternatives(schema: &Value) -> Vec<&Value> {
    let all = schema["anyOf"].as_array().into_iter().flatten();
    all.filter(|one| one["type"] != "null").collect()
}

/// The properties, in order of their names.
pub(super) fn properties(schema: &Value) -> BTreeMap<&str, &Value> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.map(|(name, schema)| (name.as_str(), schema)).collect()
}

/// Whether a property has to be there.
pub(super) fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one == name))
}

/// The type, for people.
pub(super) fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    if schema.get("enum").is_some() || schema.get("oneOf").is_some() {
        return "one of".to_owned();
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types
            .iter()
            .filter_map(Value::as_str)
            .filter(|kind| *kind != "null")
            .collect(),
        Value::String(kind) => vec![kind],
        _ => Vec::new(),
    };
    match types.as_slice() {
        ["array"] => match kind(root, &schema["items"]).as_str() {
            "" | "one of" => "list".to_owned(),
            "object" => "list of objects".to_owned(),
            item => format!("list of {item}s"),
        },
        ["object"] if schema["additionalProperties"].is_object() => "map".to_owned(),
        [one] => (*one).to_owned(),
        _ => String::new(),
    }
}

/// The values of an enumeration, each with its description.
pub(super) fn values(schema: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let plain = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| (text(value), String::new()));
    let described = schema["oneOf"].as_array().into_iter().flatten();
    let described = described.filter_map(|one| Some((text(one.get("const")?), text(&one["description"]))));
    plain.chain(described).collect()
}
