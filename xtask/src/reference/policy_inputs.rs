//! The page of the inputs of policies.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::schema::{is_required, kind, properties, resolved, values};
use super::text::{entry, linked, wrapped};

/// Where the schemas are.
const SCHEMAS: &str = "host/rego/src/input";

const INTRODUCTION: &str = "\
# Inputs of policies

What the [policy](../policies.md) of each front gets as `input`. Every value comes from the gateway, which has verified
the caller before; none is a header field that the client sent. A missing value is absent and not empty.
[Names in clusters](../names-in-clusters.md) says how impersonated users are derived.

- `time` is there only if the rules of the bundle read it. It is in UTC: use `time.parse_rfc3339_ns`, then `time.weekday`
  or `time.clock` with a time zone.
- `as` is a keyword of Rego: write `input.access[\"as\"]`.
- `[]` stands for each entry of a list, `<key>` for each key of a map.
";

/// The fronts, in the order of the page.
const FRONTS: [&str; 6] = [
    "extensions",
    "kubernetes",
    "applications",
    "applicationsets",
    "argocd",
    "controlplane",
];

pub(super) fn page(root: &Path) -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for front in FRONTS {
        let path = format!("{SCHEMAS}/{front}.schema.json");
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("reading {path}"))?;
        let schema: Value = serde_json::from_str(&text).with_context(|| format!("reading {path}"))?;
        write!(page, "\n## The input of `{front}`\n\n")?;
        let about = schema["description"]
            .as_str()
            .with_context(|| format!("{path}: there is no description"))?;
        for paragraph in about.split("\n\n") {
            writeln!(page, "{}", wrapped(&linked(paragraph), 0))?;
        }
        below(&schema, "", &schema, &mut page).with_context(|| format!("{path}: write a description"))?;
    }
    Ok(page)
}

/// Writes the fields below a path.
fn below(root: &Value, path: &str, schema: &Value, page: &mut String) -> Result<()> {
    for (name, field) in properties(schema) {
        let found = resolved(root, field);
        let path = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        };
        let about = found["description"]
            .as_str()
            .with_context(|| format!("`{path}` has none"))?;
        let mut note = vec![kind(root, field)];
        if note[0] == "one of" {
            let values: Vec<String> = values(&found)
                .into_iter()
                .map(|(value, _)| format!("`{value}`"))
                .collect();
            note = vec![values.join(", ")];
        }
        if found["type"]
            .as_array()
            .is_some_and(|types| types.iter().any(|one| one == "null"))
        {
            note.push("or null".to_owned());
        }
        if !is_required(schema, name) {
            note.push("optional".to_owned());
        }
        page.push_str(&entry(&path, &note.join(", "), about));
        below(root, &path, &found, page)?;
        let items = resolved(root, &found["items"]);
        below(root, &format!("{path}[]"), &items, page)?;
    }
    Ok(())
}
