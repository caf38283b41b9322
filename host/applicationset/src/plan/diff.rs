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
        let (before, after) = match self.action {
            Action::Keep => return String::new(),
            Action::Create => (None, self.after.as_ref()),
            Action::Update => (self.before.as_ref(), self.after.as_ref()),
            Action::Delete => (self.before.as_ref(), None),
        };
        let side = |object: Option<&Value>| match object {
            Some(object) => (name.as_str(), write::yaml_parts(object, &SHOWN, masked)),
            None => ("/dev/null", String::new()),
        };
        let ((before_name, before), (after_name, after)) = (side(before), side(after));
        let diff = TextDiff::configure()
            .algorithm(Algorithm::Myers)
            .diff_lines(before.as_str(), after.as_str());
        diff.unified_diff()
            .context_radius(CONTEXT)
            .header(before_name, after_name)
            .to_string()
    }
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
