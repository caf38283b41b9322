//! Texts from the case tables, which generators mutate.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

/// Every text under one of the keys of a table, except the longest ones.
fn texts(table: &str, keys: &[&str]) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(table);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
    let mut found = BTreeSet::new();
    collect(&value, keys, false, &mut found);
    found.into_iter().filter(|text| text.len() < 4000).collect()
}

fn collect(value: &Value, keys: &[&str], wanted: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if wanted => drop(found.insert(text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(list) => list.iter().for_each(|item| collect(item, keys, wanted, found)),
        Value::Object(map) => {
            for (key, item) in map {
                collect(item, keys, keys.contains(&key.as_str()), found);
            }
        }
    }
}

/// Glob patterns.
pub(crate) static PATTERNS: LazyLock<Vec<String>> = LazyLock::new(|| texts("glob.yaml", &["pattern", "list"]));
/// Texts that globs are matched with.
pub(crate) static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| texts("glob.yaml", &["text"]));
/// Lines of policies.
pub(crate) static LINES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let keys = [
        "user",
        "runtime_policy",
        "policy",
        "policies",
        "csv",
        "line",
        "text",
        "value",
    ];
    let policies = texts("rbac.yaml", &keys);
    let lines: BTreeSet<String> = policies
        .iter()
        .flat_map(|policy| policy.split('\n'))
        .map(str::to_owned)
        .collect();
    lines.into_iter().filter(|line| line.contains(',')).collect()
});
/// Paths of requests to Kubernetes, without the gateway's prefix.
pub(crate) static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let paths = texts("kubernetes_access.yaml", &["path", "target", "url"]);
    let behind = paths.iter().map(|path| path.strip_prefix("/k8s-proxy").unwrap_or(path));
    behind.filter(|path| path.starts_with('/')).map(str::to_owned).collect()
});
