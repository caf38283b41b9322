//! Shows a change as a unified diff of YAML.
//!
//! Security: fields that only the store sets and passwords in URLs are left out.

use std::borrow::Cow;

use serde_json::Value;
use similar::{Algorithm, TextDiff};

use super::{Action, PlannedChange};
use tollgate_state::{ObjectName, write};

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// Members of `metadata` that users write.
const METADATA: [&str; 6] = [
    "name",
    "namespace",
    "annotations",
    "finalizers",
    "labels",
    "ownerReferences",
];

/// Fields of an object that users write.
const SHOWN: [(&str, Option<&[&str]>); 5] = [
    ("apiVersion", None),
    ("kind", None),
    ("metadata", Some(&METADATA)),
    ("operation", None),
    ("spec", None),
];

/// The diff of a change; empty if nothing changes.
pub(super) fn unified(change: &PlannedChange) -> String {
    let text = |object: Option<&Value>| object.map(shown).unwrap_or_default();
    let (before, after) = match change.action {
        Action::Keep => return String::new(),
        Action::Create => return one_sided_diff('+', &change.name, &text(change.after.as_ref())),
        Action::Update => (text(change.before.as_ref()), text(change.after.as_ref())),
        Action::Delete => return one_sided_diff('-', &change.name, &text(change.before.as_ref())),
    };
    let name = format!("{}/{}", change.name.namespace, change.name.name);
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .diff_lines(before.as_str(), after.as_str());
    diff.unified_diff()
        .context_radius(CONTEXT)
        .header(&name, &name)
        .to_string()
}

/// All lines of a created or deleted object, each with `sign`.
fn one_sided_diff(sign: char, name: &ObjectName, text: &str) -> String {
    let name = format!("{}/{}", name.namespace, name.name);
    let lines = text.bytes().filter(|byte| *byte == b'\n').count();
    let mut diff = match sign {
        '+' => format!("--- /dev/null\n+++ {name}\n@@ -0,0 +1,{lines} @@\n"),
        _ => format!("--- {name}\n+++ /dev/null\n@@ -1,{lines} +0,0 @@\n"),
    };
    diff.reserve(text.len().saturating_add(lines));
    for line in text.split_inclusive('\n') {
        diff.push(sign);
        diff.push_str(line);
    }
    diff
}

fn shown(object: &Value) -> String {
    write::yaml_parts(object, &SHOWN, masked)
}

/// SECURITY: some write a repository's login as `https://user:password@host`.
fn masked(text: &str) -> Cow<'_, str> {
    if !text.contains("://") || !text.contains('@') {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split("://");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        result.push_str("://");
        let end = part.find(['/', '?', '#', ' ', '\n', '"', '\'']).unwrap_or(part.len());
        let (authority, rest) = part.split_at_checked(end).unwrap_or((part, ""));
        let login = authority
            .rsplit_once('@')
            .and_then(|(login, host)| Some((login.split_once(':')?.0, host)));
        match login {
            Some((user, host)) => result.push_str(&format!("{user}:****@{host}")),
            None => result.push_str(authority),
        }
        result.push_str(rest);
    }
    Cow::Owned(result)
}
