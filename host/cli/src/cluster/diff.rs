//! Shows a change of Secrets as a unified diff.
//!
//! Security: only values that are listed here as public are shown. All others are `…`.

use serde_json::{Map, Value};
use similar::TextDiff;

use tollgate_state::write::cluster_secret::ClusterSecret;
use tollgate_state::write::yaml;

/// Values of a cluster's Secret that say nothing about a credential.
const PUBLIC_VALUES: [&str; 6] = ["name", "server", "project", "namespaces", "clusterResources", "shard"];

/// Values of `config` that are shown, by JSON Pointer.
const PUBLIC_CONFIG: [&str; 4] = [
    "/proxyUrl",
    "/disableCompression",
    "/tlsClientConfig/serverName",
    "/tlsClientConfig/insecure",
];

const HIDDEN: &str = "…";
const HIDDEN_NEW: &str = "… (new)";

const CONTEXT_LINES: usize = 10;

/// The change from one Secret to another; `None` means that there is none.
pub(super) fn change(before: Option<&ClusterSecret>, after: Option<&ClusterSecret>) -> String {
    let path = |secret: Option<&ClusterSecret>| {
        let name = secret.map(|secret| &secret.name);
        name.map_or_else(
            || "/dev/null".to_owned(),
            |name| format!("secret/{}/{}", name.namespace, name.name),
        )
    };
    let old = before.map_or_else(String::new, |secret| shown(secret, None));
    let new = after.map_or_else(String::new, |secret| shown(secret, before));
    let diff = TextDiff::from_lines(&old, &new);
    let mut unified = diff.unified_diff();
    unified
        .context_radius(CONTEXT_LINES)
        .header(&path(before), &path(after));
    unified.to_string()
}

/// A Secret as YAML, without what is secret.
///
/// - `before`: what it was, to mark what is new.
fn shown(secret: &ClusterSecret, before: Option<&ClusterSecret>) -> String {
    let mut object = Map::new();
    let mut annotations: Map<String, Value> = Map::new();
    for (key, value) in &secret.annotations {
        annotations.insert(key.clone(), value.as_str().into());
    }
    if secret.repeats_values {
        annotations.insert(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            HIDDEN.into(),
        );
    }
    let labels = secret
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().into()));
    let labels: Map<String, Value> = labels.collect();
    for (key, members) in [("labels", labels), ("annotations", annotations)] {
        if !members.is_empty() {
            object.insert(key.to_owned(), Value::Object(members));
        }
    }
    for key in secret.values.keys() {
        let value = match key.as_str() {
            "config" => {
                let old = before.map(|before| parse(before.config()));
                redact(parse(secret.config()), old.as_ref(), "")
            }
            key if PUBLIC_VALUES.contains(&key) => secret.text(key).into(),
            key => hidden(before.is_some_and(|before| before.text(key) != secret.text(key))),
        };
        object.insert(key.clone(), value);
    }
    // The emitter quotes them.
    let quoted = |text: &str| format!("\"{text}\"");
    yaml(&Value::Object(object))
        .replace(&quoted(HIDDEN), HIDDEN)
        .replace(&quoted(HIDDEN_NEW), HIDDEN_NEW)
}

fn parse(config: &str) -> Value {
    serde_json::from_str(config).unwrap_or_default()
}

fn hidden(is_new: bool) -> Value {
    if is_new { HIDDEN_NEW } else { HIDDEN }.into()
}

/// Replaces every value that is not public.
///
/// - `before`: the value that is replaced, if a document is replaced.
/// - `pointer`: where the value is.
fn redact(value: Value, before: Option<&Value>, pointer: &str) -> Value {
    match value {
        Value::Object(members) => {
            let redacted = members.into_iter().map(|(key, member)| {
                let old = before.map(|before| before.get(&key).unwrap_or(&Value::Null));
                let member = redact(member, old, &format!("{pointer}/{key}"));
                (key, member)
            });
            Value::Object(redacted.collect())
        }
        Value::String(text) if pointer == "/proxyUrl" && text.contains('@') => hidden(false),
        Value::String(_) | Value::Bool(_) if PUBLIC_CONFIG.contains(&pointer) => value,
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Null => {
            hidden(before.is_some_and(|before| *before != value))
        }
    }
}
