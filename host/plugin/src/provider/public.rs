//! Finds the values of a cluster's Secret that the cluster's own configuration makes public. The
//! configuration has Go templates, as the plugin `webapi` takes them; a value is public if a
//! template uses it in a URL or in a condition. A value that is only sent stays secret.
//!
//! Security: the author of the configuration also writes the Secret, and declares a value public
//! by using it where no secret can stand. A guest cannot widen this, because the host reads the
//! templates itself.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_template::{Context, Template};

/// The names of public values in a configuration of the plugin `webapi`. A template that does not
/// parse contributes none; `check` reports the mistake.
pub fn webapi_public_values(config: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (key, context) in [
        ("url", Context::Url),
        ("headers", Context::Header),
        ("body", Context::Body),
        ("form", Context::Body),
        ("jsonBody", Context::Body),
    ] {
        texts(config.get(key).unwrap_or(&Value::Null), &mut |text| {
            if let Ok(template) = Template::parse(text) {
                names.extend(template.public_names(context));
            }
        });
    }
    names
}

/// Every text within a value.
fn texts(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, visit)),
        Value::Object(members) => members.values().for_each(|member| texts(member, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::webapi_public_values;

    #[test]
    fn only_values_in_urls_and_conditions_are_public() {
        let config = json!({
            "url": "https://{{ .host }}/{{ .org }}?key={{ .key | urlquery }}",
            "headers": {"Authorization": "Bearer {{ .token }}"},
            "body": "{{ if .flag }}a={{ .a }}{{ end }}",
            "form": [["x", "{{ .b }}"], {"name": "y", "value": "{{ or .c \"d\" }}"}],
        });
        let names: Vec<String> = webapi_public_values(&config).into_iter().collect();
        assert_eq!(names, ["c", "flag", "host", "org"]);
        assert!(webapi_public_values(&json!({"url": "https://{{ .host"})).is_empty());
    }
}
