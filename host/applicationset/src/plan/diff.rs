//! Shows a change as a unified diff of YAML.
//!
//! Security: fields that only the store sets and passwords in URLs are left out.

use std::borrow::Cow;

use serde_json::Value;
use similar::{Algorithm, TextDiff};

use super::{Action, PlannedChange};
use tollgate_state::write;

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

impl PlannedChange {
    /// The change as a unified diff of YAML, without fields that only the store sets; empty if
    /// nothing changes. Passwords in URLs are masked.
    pub fn diff(&self) -> String {
        let name = format!("{}/{}", self.name.namespace, self.name.name);
        let text = |object: &Option<Value>| {
            let object = object.as_ref();
            object.map_or_else(String::new, |object| write::yaml_parts(object, &SHOWN, masked))
        };
        match self.action {
            Action::Keep => String::new(),
            Action::Create => {
                let text = text(&self.after);
                let header = format!("--- /dev/null\n+++ {name}\n@@ -0,0 +1,{} @@\n", text.lines().count());
                prefixed(header, '+', &text)
            }
            Action::Delete => {
                let text = text(&self.before);
                let header = format!("--- {name}\n+++ /dev/null\n@@ -1,{} +0,0 @@\n", text.lines().count());
                prefixed(header, '-', &text)
            }
            Action::Update => {
                let (before, after) = (text(&self.before), text(&self.after));
                let diff = TextDiff::configure()
                    .algorithm(Algorithm::Myers)
                    .diff_lines(before.as_str(), after.as_str());
                let mut diff = diff.unified_diff();
                diff.context_radius(CONTEXT).header(&name, &name).to_string()
            }
        }
    }
}

/// The header and all lines with a sign: a plan of new Applications takes a fifth longer where
/// `similar` compares each with nothing.
fn prefixed(header: String, sign: char, text: &str) -> String {
    text.split_inclusive('\n').fold(header, |mut diff, line| {
        diff.push(sign);
        diff.push_str(line);
        diff
    })
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
            // The last `@`: a password can contain one.
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
