//! Checks the paths below `input` that a policy names against the schema of its front's input.
//!
//! A rule about a field that no input has is never true, so it does not refuse what it should.

use serde_json::Value;

use tollgate_core::diagnostic::{Diagnostic, Location};

/// A finding if the schema excludes such a path; `None` if it has the path or leaves it open.
pub(crate) fn unknown_field(schema: &Value, path: &[String], location: &Location) -> Option<Diagnostic> {
    let mut at = resolved(schema, schema)?;
    for (depth, part) in path.iter().enumerate() {
        let fields = at.get("properties")?.as_object()?;
        let Some(next) = fields.get(part) else {
            if at.get("additionalProperties") != Some(&Value::Bool(false)) {
                return None;
            }
            let above: String = path.iter().take(depth).map(|part| format!(".{part}")).collect();
            let message = format!("`input{above}` has no field `{part}`, so no rule about it is ever true");
            let near = fields
                .keys()
                .map(|known| (strsim::damerau_levenshtein(known, part), known))
                .min();
            let hint = match near {
                Some((distance, known)) if distance <= 2 => format!("is `{known}` meant?"),
                Some(_) | None => format!("known are {}", fields.keys().cloned().collect::<Vec<_>>().join(", ")),
            };
            return Some(Diagnostic::error(location.clone(), message).with_hint(hint));
        };
        at = resolved(schema, next)?;
    }
    None
}

/// Whether every value that the schema permits has a value at the path.
pub(crate) fn is_required(schema: &Value, path: &[String]) -> bool {
    resolved(schema, schema).is_some_and(|at| requires(schema, at, path))
}

/// Whether every element of the list at a path has a value at `below`, if there is such a list.
pub(crate) fn elements_require(schema: &Value, list: &[String], below: &[String]) -> bool {
    let list = find(schema, list).filter(|list| list.get("type").is_some_and(|kind| kind == "array"));
    let element = list.and_then(|list| resolved(schema, list.get("items")?));
    element.is_some_and(|element| requires(schema, element, below))
}

/// Whether every value that a part of the schema permits has a value at the path.
fn requires<'s>(schema: &'s Value, mut at: &'s Value, path: &[String]) -> bool {
    for part in path {
        let required = at.get("required").and_then(Value::as_array);
        let is_required = at.get("type").is_some_and(|kind| kind == "object")
            && required.into_iter().flatten().any(|name| name == part);
        let next = at.get("properties").and_then(|fields| fields.get(part));
        let Some(next) = next.filter(|_| is_required).and_then(|next| resolved(schema, next)) else {
            return false;
        };
        at = next;
    }
    true
}

/// The part of a schema that describes what is at a path.
fn find<'s>(schema: &'s Value, path: &[String]) -> Option<&'s Value> {
    path.iter().try_fold(resolved(schema, schema)?, |at, part| {
        resolved(schema, at.get("properties")?.get(part)?)
    })
}

/// The target of the `$ref` of a part of a schema, or the part itself.
pub(crate) fn resolved<'s>(schema: &'s Value, part: &'s Value) -> Option<&'s Value> {
    match part.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema.pointer(reference.strip_prefix('#')?),
        None => Some(part),
    }
}

#[cfg(test)]
mod tests {
    use super::unknown_field;
    use crate::front::Front;
    use tollgate_core::diagnostic::Location;

    #[test]
    fn unknown_input_paths_are_reported() {
        let found = |front: Front, path: &str| {
            let path: Vec<String> = path
                .split('.')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect();
            unknown_field(front.input_schema(), &path, &Location::new("p.rego", 3)).map(|finding| finding.to_string())
        };
        for (front, path) in [
            (Front::Extensions, ""),
            (Front::Extensions, "principal.id"),
            (Front::Extensions, "rbac.extensions_invoke.allow"),
            (Front::Extensions, "application.labels.anything"),
            (Front::Extensions, "principal.groups.0"),
            (Front::Kubernetes, "request.apiGroup"),
            (Front::Applications, "restriction.permitted"),
            (Front::ApplicationSets, "set.labels.tier"),
        ] {
            assert_eq!(found(front, path), None, "{path}");
        }
        for (front, path, text) in [
            (
                Front::Extensions,
                "principle.id",
                "p.rego:3: error: `input` has no field `principle`",
            ),
            (
                Front::Extensions,
                "principal.ids",
                "`input.principal` has no field `ids`",
            ),
            (Front::Extensions, "rbac.extensions_invoke.alow", "no field `alow`"),
            (
                Front::Kubernetes,
                "request.group",
                "`input.request` has no field `group`",
            ),
            (
                Front::Applications,
                "rbac.nothing",
                "`input.rbac` has no field `nothing`",
            ),
            (Front::ApplicationSets, "sets", "is `set` meant?"),
        ] {
            let found = found(front, path).unwrap_or_default();
            assert!(found.contains(text), "{path}: {found}");
        }
    }
}
