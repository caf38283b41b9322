//! Tests of what the JSON Schema says about the settings, by which `cargo xtask reference` writes their page.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{parse, schema};

/// Settings with every section, of which each key with a default can be left out.
const SETTINGS: &str = "
tls: {certificate: c, key: k}
state: {kubernetes: {kubeconfig: k}}
policies: {directory: p}
plugins: {grants: {any: {hosts: [{host: a.example}]}}}
authentication:
  argocdSessions: true
  jwt:
  - issuer: {url: https://a.example, audiences: [x]}
    claimMappings: {username: {claim: sub, prefix: ''}}
    client: {id: x}
console: {url: https://c.example}
kubernetes:
  authorizer: {remote: {url: https://g.example, secretFile: s}}
  jwt: [{issuer: {url: https://b.example, audiences: [x]}}]
  users: [{issuer: https://a.example, is: id}]
  audit: {export: {webhook: {url: https://s.example}}}
applications: {}
applicationSets: {}
argocd: {server: https://a.example, redis: {server: rediss://r.example}}
controlPlane: {callers: [{issuer: argocd, user: u}], reader: 'n:r', credentialsNamespace: n}
admission: {listen: '127.0.0.1:8444', tls: {secret: s}}
connectors: {peers: {listen: '10.0.0.1:8445'}}
extensions: {assertion: {issuer: i}}
telemetry: {endpoint: http://c.example}
";

/// One key of the schema: where it is in [`SETTINGS`], and its schema.
struct Key {
    path: Vec<String>,
    schema: Map<String, Value>,
}

/// Appends the keys below a schema, through references, alternatives, lists and maps.
fn keys(root: &Value, schema: &Value, path: &[String], found: &mut Vec<Key>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").unwrap();
        keys(root, &root["$defs"][name], path, found);
    }
    for alternatives in ["anyOf", "oneOf"] {
        for one in schema[alternatives].as_array().into_iter().flatten() {
            keys(root, one, path, found);
        }
    }
    let with = |part: &str| [path, &[part.to_owned()]].concat();
    if schema["items"].is_object() {
        keys(root, &schema["items"], &with("0"), found);
    }
    if schema["additionalProperties"].is_object() {
        keys(root, &schema["additionalProperties"], &with("any"), found);
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    // Former names of keys cannot be there beside the new ones.
    for (key, below) in properties.filter(|(_, below)| below["deprecated"] != true) {
        let path = with(key);
        // Its entries have the keys of `authentication.jwt`.
        if path != ["kubernetes", "jwt"] {
            keys(root, below, &path, found);
        }
        let mut below = below.as_object().unwrap().clone();
        // Variants of an enum describe their only key.
        if let Some(description) = schema.get("description").filter(|_| schema["required"] == json!([key])) {
            below.entry("description").or_insert(description.clone());
        }
        found.push(Key { path, schema: below });
    }
}

fn all_keys() -> Vec<Key> {
    let root = schema().to_value();
    let mut found = Vec::new();
    keys(&root, &root, &[], &mut found);
    assert!(found.len() > 150, "{}", found.len());
    found
}

#[test]
fn every_key_has_a_description() {
    let keys = all_keys();
    let missing = keys.iter().filter(|key| !key.schema.contains_key("description"));
    let missing: Vec<_> = missing.map(|key| key.path.join(".")).collect();
    assert_eq!(missing, Vec::<String>::new(), "write a doc comment on the field");
}

/// The settings as the program reads them, or the mistakes.
fn read(settings: &Value) -> Result<String, String> {
    let text = serde_json::to_string(settings).unwrap();
    let loaded = parse(&text, "t.yaml", Path::new("/etc"));
    match loaded.value {
        // Locations differ, and say nothing about the value.
        Some(mut config) => {
            for grant in config.plugins.grants.values_mut() {
                grant.location = None;
            }
            Ok(format!("{config:?}"))
        }
        None => Err(format!("{:?}", loaded.diagnostics)),
    }
}

/// Sets the value at `path`; sections on the way are created.
fn set(settings: &mut Value, path: &[String], value: Value) {
    let mut at = settings;
    for part in path {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => {
                if at.is_null() {
                    *at = json!({});
                }
                &mut at[part]
            }
        };
    }
    *at = value;
}

#[test]
fn a_default_is_what_the_key_has_when_it_is_left_out() {
    let settings: Value = serde_saphyr::from_str(SETTINGS).unwrap();
    let without = read(&settings).unwrap();
    let mut compared = 0;
    for key in all_keys() {
        let Some(default) = key.schema.get("default") else {
            continue;
        };
        // Sections, optional values without a default, and what the settings above need.
        let pointer = format!("/{}", key.path.join("/"));
        if default.is_object() || default.is_null() || settings.pointer(&pointer).is_some() {
            continue;
        }
        let mut with = settings.clone();
        set(&mut with, &key.path, default.clone());
        assert_eq!(read(&with).as_ref(), Ok(&without), "{}: {default}", key.path.join("."));
        compared += 1;
    }
    assert!(compared > 60, "{compared}");
}
