//! The page of the settings.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use super::schema::{alternatives, is_required, kind, properties, resolved, values};
use super::text::{entry, linked, wrapped};

const INTRODUCTION: &str = "\
# Settings

Every key of the settings file. [Configuration](../configuration.md) explains how the file is read, and which files are
read again while the gateway runs. `tollgate check --schema` prints the JSON Schema that this page is made from, by which
editors complete and check the file.

- Relative paths are relative to the folder of the settings file.
- Durations are strings: numbers with the units `ns`, `us`, `ms`, `s`, `m`, `h`, such as `300ms` or `1m30s`, or whole days
  such as `7d`.
- Sizes are numbers of bytes.
- `[]` stands for each entry of a list, `<name>` for a key that you choose.
";

/// Where the page is.
struct Page<'a> {
    root: &'a Value,
    text: String,
    /// References of list entries whose keys are on the page.
    shown: Vec<&'a str>,
}

pub(super) fn page(root: &Value) -> Result<String> {
    let mut page = Page {
        root,
        text: INTRODUCTION.to_owned(),
        shown: Vec::new(),
    };
    page.text.push_str("\n## Top level\n\n");
    let mut sections = properties(root);
    // Former names of keys.
    sections.retain(|_, schema| schema["deprecated"] != true);
    let is_section = |schema: &Value| !properties(&resolved(root, schema)).is_empty();
    for (&name, &schema) in sections.iter().filter(|(_, schema)| !is_section(schema)) {
        page.key(name, root, name, schema)?;
    }
    for (&name, &schema) in sections.iter().filter(|(_, schema)| is_section(schema)) {
        let mut about = description(schema).with_context(|| format!("`{name}`"))?.to_owned();
        if is_required(root, name) {
            about.push_str(" Required.");
        }
        write!(page.text, "\n## `{name}`\n\n{}\n", wrapped(&linked(&about), 0))?;
        page.below(name, schema)?;
    }
    Ok(page.text)
}

fn description(schema: &Value) -> Result<&str> {
    schema["description"]
        .as_str()
        .context("there is no description: write a doc comment on the field")
}

impl<'a> Page<'a> {
    /// Writes a key and those below it.
    fn key(&mut self, path: &str, parent: &Value, name: &str, schema: &'a Value) -> Result<()> {
        // Variants of an enum describe their only key.
        let about = description(schema).or_else(|_| description(parent));
        let about = about.with_context(|| format!("`{path}`"))?;
        let resolved = resolved(self.root, schema);
        let values = values(&resolved);
        let mut note = Vec::new();
        let kind = kind(self.root, schema);
        let has_meanings = values.iter().any(|(_, about)| !about.is_empty());
        if !values.is_empty() && !has_meanings {
            let values: Vec<String> = values.iter().map(|(value, _)| format!("`{value}`")).collect();
            note.push(values.join(", "));
        } else if !kind.is_empty() && kind != "one of" {
            note.push(kind);
        }
        if is_required(parent, name) {
            note.push("required".to_owned());
        }
        if let Some(default) = default(schema) {
            note.push(format!("default `{default}`"));
        }
        self.text.push_str(&entry(path, &note.join(", "), about));
        for (value, about) in values.iter().filter(|_| has_meanings) {
            self.text
                .push_str(&wrapped(&format!("  - `{value}`: {}", linked(about)), 4));
        }
        self.below(path, schema)
    }

    /// Writes the keys below a path.
    fn below(&mut self, path: &str, schema: &'a Value) -> Result<()> {
        let root = self.root;
        let schema = match schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            Some(name) => &root["$defs"][name],
            None => schema,
        };
        if let Some(items) = schema.get("items") {
            let reference = items["$ref"].as_str().unwrap_or_default();
            // Their description says where they are shown.
            if reference.is_empty() || !self.shown.contains(&reference) {
                self.shown.push(reference);
                self.below(&format!("{path}[]"), items)?;
            }
        }
        if let Some(entries) = schema.get("additionalProperties").filter(|entries| entries.is_object()) {
            self.below(&format!("{path}.<name>"), entries)?;
        }
        for one in alternatives(schema)
            .into_iter()
            .chain(schema["oneOf"].as_array().into_iter().flatten())
        {
            match one.get("$ref") {
                Some(_) => self.below(path, one)?,
                None => self.properties(path, one)?,
            }
        }
        self.properties(path, schema)
    }

    fn properties(&mut self, path: &str, schema: &'a Value) -> Result<()> {
        // A variant of an enum does not need its only key: another variant can take its place.
        let is_variant = schema.get("description").is_some() && properties(schema).len() == 1;
        for (name, below) in properties(schema) {
            let parent = if is_variant {
                &serde_json::json!({"description": schema["description"]})
            } else {
                schema
            };
            self.key(&format!("{path}.{name}"), parent, name, below)?;
        }
        Ok(())
    }
}

/// The default, as YAML. Defaults of sections are those of their keys.
fn default(schema: &Value) -> Option<String> {
    match schema.get("default")? {
        Value::Null | Value::Object(_) => None,
        Value::Array(all) if all.is_empty() => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
                .collect();
            Some(format!("[{}]", all.join(", ")))
        }
        other => Some(other.to_string()),
    }
}
