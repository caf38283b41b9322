//! Detects parameters whose Go type in Argo CD is unknown or differs from the type here.
//!
//! With Go templates, `values` of clusters and git and `metadata` of clusters are
//! `map[string]string` in Argo CD: a missing key is empty there, and `<no value>` in other maps.
//! Keys that only one generator sets tell which generator made a set of parameters.
//!
//! Security: parameters that look as if a generator of another kind had made them are refused. No
//! accepted template can use a type to tell the gateway from Argo CD.

use serde_json::{Map, Value};

use crate::template::{ParamsOrigin, params_origin};
use crate::{Generator, MissingKey, Params, Spec, TemplateEngine};

/// Keys that identify which generator made a set of parameters.
const RESERVED_KEYS: [&str; 3] = ["nameNormalized", "basenameNormalized", "head_short_sha"];

/// Refuses such keys in parameters that were written by hand and not made by a generator.
pub(super) fn check_reserved_keys(params: &Params) -> Result<(), String> {
    let Some(key) = reserved_key(params) else {
        return Ok(());
    };
    Err(format!(
        "has the key `{key}`, by which parameters of another generator are known: call it otherwise"
    ))
}

fn reserved_key(members: &Map<String, Value>) -> Option<&'static str> {
    let own = RESERVED_KEYS.into_iter().find(|key| members.contains_key(*key));
    own.or_else(|| members.values().find_map(nested_reserved_key))
}

fn nested_reserved_key(value: &Value) -> Option<&'static str> {
    match value {
        Value::Object(members) => reserved_key(members),
        Value::Array(items) => items.iter().find_map(nested_reserved_key),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Whether the type of a file's `values` is unknown from the parameters of a git generator alone.
///
/// - `has_values`: whether the generator's own `values` replace the file's.
pub(super) fn has_ambiguous_values(object: &Params, has_values: bool) -> bool {
    let values = object.get("values").and_then(Value::as_object);
    !has_values && values.is_some_and(|values| values.values().all(Value::is_string))
}

/// Whether, once two sets of parameters are combined, their `values` or `metadata` no longer tell
/// which generator made them.
pub(super) fn have_ambiguous_types(one: &Params, other: &Params) -> bool {
    let sides = [(one, params_origin(one)), (other, params_origin(other))];
    let is_foreign = |key: &str, origins: &[ParamsOrigin]| {
        let is_any_listed = sides.iter().any(|(_, origin)| origins.contains(origin));
        let mut foreign = sides.iter().filter(|(_, origin)| !origins.contains(origin));
        is_any_listed && foreign.any(|(params, _)| params.get(key).is_some_and(Value::is_object))
    };
    is_foreign("values", &[ParamsOrigin::Clusters, ParamsOrigin::Git])
        || is_foreign("metadata", &[ParamsOrigin::Clusters])
}

/// Which parameters have, or may have, another type in Argo CD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TypeAmbiguity {
    /// Lists of strings: the segments of paths, and labels.
    Lists,
    /// Maps of strings as well; these give something else for a missing key.
    Maps,
}

/// Whether a template of the set could observe the ambiguous types.
///
/// Functions for maps of any type fail on maps of strings, here as in Argo CD.
pub(super) fn is_observable(spec: &Spec, ambiguity: TypeAmbiguity) -> bool {
    let TemplateEngine::GoTemplate { missing_key } = spec.engine else {
        return false;
    };
    let is_map = ambiguity == TypeAmbiguity::Maps;
    let is_revealing = |text: &str| text.contains("{{") && reveals_type(text, ambiguity);
    let settings = || {
        let kinds = spec.generators.iter().flat_map(Generator::kinds);
        kinds.map(|(_, settings)| settings)
    };
    let texts = settings().chain([&spec.template]);
    (is_map && missing_key == MissingKey::Zero)
        || texts.into_iter().any(|value| any_text(value, &is_revealing))
        || spec.template_patch.as_deref().is_some_and(is_revealing)
        // SECURITY: a string that is rendered twice may become any string.
        || settings().any(|settings| depth(settings) > 1 && is_templated(settings))
}

/// Functions whose result depends on the types of lists and maps.
const TYPE_SENSITIVE_FUNCTIONS: [&str; 10] = [
    "deepEqual",
    "has",
    "mustHas",
    "mustUniq",
    "mustWithout",
    "typeIs",
    "typeIsLike",
    "typeOf",
    "uniq",
    "without",
];
/// Functions whose result depends on the types of maps only.
const MAP_TYPE_SENSITIVE_FUNCTIONS: [&str; 2] = ["index", "printf"];

fn reveals_type(text: &str, ambiguity: TypeAmbiguity) -> bool {
    let mut names = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    // The formats of `printf` count for lists as well: `%T` and `%#v` print types.
    names.any(|name| {
        TYPE_SENSITIVE_FUNCTIONS.contains(&name)
            || (ambiguity == TypeAmbiguity::Maps && MAP_TYPE_SENSITIVE_FUNCTIONS.contains(&name))
    }) || text.split("printf").skip(1).any(|rest| !is_plain_format(rest))
}

/// Whether `printf` is followed by a literal format that does not print a type: neither `%T` nor
/// `%#v`.
fn is_plain_format(rest: &str) -> bool {
    let Some(quoted) = rest.trim_start().strip_prefix('"') else {
        return false;
    };
    let format = quoted.split('"').next().unwrap_or_default();
    !format.contains(['T', '#', '\\'])
}

/// Whether any string or key is `wanted`.
fn any_text(value: &Value, wanted: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => wanted(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, wanted)),
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| wanted(key) || any_text(value, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

pub(super) fn is_templated(value: &Value) -> bool {
    any_text(value, &|text| text.contains("{{"))
}

/// How deeply generators with children are nested.
fn depth(settings: &Value) -> usize {
    let children = settings.get("generators").and_then(Value::as_array);
    let Some(children) = children else { return 0 };
    let settings = children.iter().filter_map(Value::as_object).flat_map(Map::values);
    settings.map(depth).max().unwrap_or_default().saturating_add(1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{TypeAmbiguity, check_reserved_keys, has_ambiguous_values, have_ambiguous_types, is_observable};
    use crate::{ApplicationSet, Params};

    fn params(value: &Value) -> Params {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn reserved_keys_in_parameters_are_refused() {
        assert_eq!(
            check_reserved_keys(&params(&json!({"name": "a", "values": {"a": "b"}, "metadata": {}}))),
            Ok(())
        );
        for forged in [
            json!({"nameNormalized": "x", "values": {"a": "b"}}),
            json!({"path": {"basenameNormalized": "x"}}),
            json!({"deep": [[{"nameNormalized": "x"}]]}),
            json!({"head_short_sha": "x", "labels": ["a"]}),
        ] {
            assert!(check_reserved_keys(&params(&forged)).is_err(), "{forged}");
        }
    }

    #[test]
    fn values_in_a_file_are_ambiguous_unless_its_generator_has_values() {
        for (object, has_values, expected) in [
            (json!({"values": {"a": "b"}}), false, true),
            (json!({"values": {"a": "b"}}), true, false),
            (json!({"values": {"a": 1, "b": "c"}}), false, false),
            (json!({"values": "a"}), false, false),
        ] {
            assert_eq!(has_ambiguous_values(&params(&object), has_values), expected, "{object}");
        }
    }

    #[test]
    fn combined_parameters_may_have_ambiguous_types() {
        let cluster = json!({"nameNormalized": "c", "metadata": {"labels": {"a": "b"}}, "values": {"a": "b"}});
        let git = json!({"path": {"basenameNormalized": "p"}});
        for (one, other, expected) in [
            (&cluster, json!({"name": "a"}), false),
            (&cluster, git.clone(), false),
            (&cluster, json!({"values": {"a": "b"}}), true),
            (&cluster, json!({"metadata": {"labels": {}}}), true),
            (&cluster, json!({"values": "text"}), false),
            (&git, json!({"values": {"a": "b"}}), true),
            (&git, json!({"metadata": {"labels": {}}}), false),
            (&json!({"values": {"a": "b"}}), json!({"values": {"c": "d"}}), false),
        ] {
            let (one, other) = (params(one), params(&other));
            assert_eq!(have_ambiguous_types(&one, &other), expected, "{one:?} {other:?}");
            assert_eq!(have_ambiguous_types(&other, &one), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn ambiguity_matters_only_where_templates_can_observe_types() {
        let set = |generators: Value, template: &str, options: Value| {
            let object = json!({
                "metadata": {"name": "a"},
                "spec": {
                    "goTemplate": true, "goTemplateOptions": options, "generators": generators,
                    "template": {"metadata": {"name": template}, "spec": {}},
                },
            });
            ApplicationSet::read(object).unwrap().spec
        };
        let list = json!([{"list": {"elements": [{"values": {"a": "typeOf"}}]}}]);
        let one =
            |text: &str| json!([{"matrix": {"generators": [{"list": {"elements": [{"a": text}]}}, {"clusters": {}}]}}]);
        let two = |text: &str| json!([{"matrix": {"generators": [{"clusters": {}}, one(text)[0]]}}]);
        for (generators, template, options, expected) in [
            (list.clone(), "{{ .values.a }}", json!([]), false),
            (list.clone(), "{{ typeOf .values }}", json!([]), true),
            (list.clone(), "{{ printf \"%T\" .values }}", json!([]), true),
            (list, "{{ .values.a }}", json!(["missingkey=zero"]), true),
            (one("{{ .name }}"), "a", json!([]), false),
            (one("{{ index .values \"a\" }}"), "a", json!([]), true),
            (two("b"), "a", json!([]), false),
            (two("{{ .name }}"), "a", json!([]), true),
        ] {
            let spec = set(generators, template, options);
            assert_eq!(is_observable(&spec, TypeAmbiguity::Maps), expected, "{spec:?}");
        }
        let list = || json!([{"list": {"elements": []}}]);
        for (template, expected) in [
            ("{{ index .path.segments 0 }}", false),
            ("{{ hasPrefix \"a\" .path.path }}", false),
            ("{{ printf \"%s-%v\" .a .path.segments }}", false),
            ("{{ printf \"%T\" .path.segments }}", true),
            ("{{ printf \"%#v\" .path.segments }}", true),
            ("{{ printf \"%\\x54\" .path.segments }}", true),
            ("{{ printf .a .path.segments }}", true),
            ("{{ printf (print \"%\" \"T\") .path.segments }}", true),
            ("{{ typeOf .path.segments }}", true),
            ("{{ deepEqual .path.segments (list \"a\") }}", true),
            ("{{ has (list \"a\") (list .path.segments) }}", true),
        ] {
            let spec = set(list(), template, json!(["missingkey=zero"]));
            assert_eq!(is_observable(&spec, TypeAmbiguity::Lists), expected, "{template}");
        }
    }
}
