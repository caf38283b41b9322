//! Finds keys of ApplicationSets and Applications that mean nothing, and required keys that are
//! missing. A cluster drops such a key without a word, and what its author meant does not happen: a
//! set without `generators` deletes all its Applications.
//!
//! Keys of maps belong to the author and are not checked, nor is `status`.
//!
//! Source: Argo CD 3.5.7, `manifests/crds`; metadata: Kubernetes. The generators inside a `matrix` or
//! `merge` that is itself inside one are any JSON there; Argo CD reads them as the fields of
//! `ApplicationSetTerminalGenerator`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::message::truncated;

/// Most errors that are reported of one object.
const MAX_ERRORS: usize = 10;
/// How similar a key must be to be suggested, 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;
/// Depth at which a set can be nested, and more.
const MAX_DEPTH: u8 = 32;

/// The types of objects. A line has a type's number and its keys; a key with a number has objects of
/// that type, or lists of them, as its value. The first two lines name the type of a whole object.
const TYPES: &str = include_str!("schema/types.txt");

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No field has this name.
    #[error("`{path}` is not known{}", did_you_mean(*nearest))]
    Unknown {
        /// Its path, from the root of the object.
        path: String,
        /// The field that may be meant.
        nearest: Option<&'static str>,
    },
    /// A required field is absent.
    #[error("`{path}` is missing")]
    Missing {
        /// Its path.
        path: &'static str,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// The errors of an ApplicationSet as somebody wrote it, at most twelve: ten of its fields, and one for each of
/// `generators` and `template` that is missing.
pub fn check_application_set(set: &Value) -> Vec<Error> {
    let schema = &*SCHEMA;
    let mut errors = Vec::new();
    schema.check(set, schema.application_set, &mut String::new(), MAX_DEPTH, &mut errors);
    for (field, path) in [("generators", "spec.generators"), ("template", "spec.template")] {
        let is_there = set
            .get("spec")
            .and_then(|spec| spec.get(field))
            .is_some_and(|value| !value.is_null());
        if !is_there {
            errors.push(Error::Missing { path });
        }
    }
    errors
}

/// The errors of an Application as somebody wrote it, at most ten.
pub fn check_application(application: &Value) -> Vec<Error> {
    let schema = &*SCHEMA;
    let mut errors = Vec::new();
    schema.check(
        application,
        schema.application,
        &mut String::new(),
        MAX_DEPTH,
        &mut errors,
    );
    errors
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::parse(TYPES));

#[derive(Debug, Default)]
struct Schema {
    application_set: usize,
    application: usize,
    types: Vec<BTreeMap<&'static str, Option<usize>>>,
}

impl Schema {
    fn parse(text: &'static str) -> Self {
        let mut schema = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match (
                words.next(),
                words.clone().next().and_then(|number| number.parse().ok()),
            ) {
                (Some("set"), Some(number)) => schema.application_set = number,
                (Some("application"), Some(number)) => schema.application = number,
                _ => schema.types.push(words.map(field).collect()),
            }
        }
        schema
    }

    /// - `path`: of `value`, the same again afterwards. `depth`: how deep to go on.
    fn check(&self, value: &Value, number: usize, path: &mut String, depth: u8, errors: &mut Vec<Error>) {
        let (Some(fields), Some(depth)) = (self.types.get(number), depth.checked_sub(1)) else {
            return;
        };
        let length = path.len();
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{index}]"));
                    self.check(item, number, path, depth, errors);
                    path.truncate(length);
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    if errors.len() >= MAX_ERRORS {
                        return;
                    }
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                    match fields.get(key.as_str()) {
                        None => errors.push(Error::Unknown {
                            path: truncated(path),
                            nearest: nearest(key, fields.keys().copied()),
                        }),
                        Some(None) => {}
                        Some(Some(number)) => self.check(value, *number, path, depth, errors),
                    }
                    path.truncate(length);
                }
            }
        }
    }
}

fn field(word: &'static str) -> (&'static str, Option<usize>) {
    match word.split_once(':') {
        Some((key, number)) => (key, number.parse().ok()),
        None => (word, None),
    }
}

fn nearest(key: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let key = key.to_lowercase();
    let scored = known.map(|known| (strsim::jaro_winkler(&key, &known.to_lowercase()), known));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= MIN_SIMILARITY).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_ERRORS, SCHEMA, check_application, check_application_set};

    #[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
    fn set(spec: Value) -> Value {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
            "metadata": {"name": "a", "labels": {"any": "x"}}, "spec": spec,
        })
    }

    /// The errors of a set with these generators and this template.
    #[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
    fn of(generators: Value, template: Value) -> Vec<String> {
        let errors = check_application_set(&set(json!({"generators": generators, "template": template})));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_keys_are_named_with_their_path_and_the_nearest_field() {
        for (spec, expected) in [
            (
                json!({"generator": [], "template": {}}),
                &[
                    "`spec.generator` is not known; did you mean `generators`?",
                    "`spec.generators` is missing",
                ][..],
            ),
            (
                json!({"generators": [], "templte": {}}),
                &[
                    "`spec.templte` is not known; did you mean `template`?",
                    "`spec.template` is missing",
                ],
            ),
            (
                json!({"generators": null, "template": {}}),
                &["`spec.generators` is missing"],
            ),
            (
                json!({"generators": [], "template": {}, "zzz": 1}),
                &["`spec.zzz` is not known"],
            ),
        ] {
            let found = check_application_set(&set(spec.clone()));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{spec}");
        }
        let spec = json!({"projct": "a", "syncPolcy": {}, "source": {"targetRevison": "b", "helm": {"valueFile": []}}});
        assert_eq!(
            of(json!([]), json!({"spec": spec})),
            [
                "`spec.template.spec.projct` is not known; did you mean `project`?",
                "`spec.template.spec.source.helm.valueFile` is not known; did you mean `valueFiles`?",
                "`spec.template.spec.source.targetRevison` is not known; did you mean `targetRevision`?",
                "`spec.template.spec.syncPolcy` is not known; did you mean `syncPolicy`?",
            ]
        );
    }

    #[test]
    fn generators_are_checked_at_every_level() {
        let clusters = || json!({"clusters": {"selector": {"matchLabel": {"a": "b"}}}});
        let unknown = "clusters.selector.matchLabel` is not known; did you mean `matchLabels`?";
        let nest = |child: Value| json!({"matrix": {"generators": [{"list": {}}, child]}});
        for (generator, path) in [
            (clusters(), ""),
            (nest(clusters()), "matrix.generators[1]."),
            (nest(nest(clusters())), "matrix.generators[1].matrix.generators[1]."),
            (
                nest(json!({"merge": {"mergeKeys": [], "generators": [clusters()]}})),
                "matrix.generators[1].merge.generators[0].",
            ),
        ] {
            let found = of(json!([generator]), json!({}));
            assert_eq!(found, [format!("`spec.generators[0].{path}{unknown}")]);
        }
        let selector = json!([{"list": {}, "selectr": {"matchLabels": {}}}]);
        assert_eq!(
            of(selector, json!({})),
            ["`spec.generators[0].selectr` is not known; did you mean `selector`?"]
        );
    }

    #[test]
    fn keys_of_maps_are_the_authors() {
        let own = || json!({"anything": "x", "Spec": "y"});
        let generators = json!([
            {"list": {"elements": [own(), {"deep": own()}]}, "selector": {"matchLabels": own()}},
            {"git": {"repoURL": "x", "values": own()}},
            {"plugin": {"configMapRef": {"name": "a"}, "input": {"parameters": own()}, "values": own()}},
        ]);
        let source = json!({
            "helm": {"valuesObject": own(), "values": "a: b"},
            "kustomize": {"commonLabels": own(), "replicas": [{"name": "a", "count": 2}]},
            "plugin": {"parameters": [{"name": "a", "map": own()}]},
        });
        let template = json!({"metadata": {"labels": own(), "annotations": own()}, "spec": {"source": source}});
        assert_eq!(of(generators, template), Vec::<String>::new());
        let mut whole = set(json!({"generators": [], "template": {}}));
        whole["status"] = own();
        whole["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "a", "name": "b", "uid": "c"}]);
        assert_eq!(check_application_set(&whole), []);
    }

    #[test]
    fn applications_are_checked_alike() {
        let application = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec, "operation": {"sync": {}}});
        assert_eq!(
            check_application(&application(json!({"project": "a", "sources": [{"ref": "b"}]}))),
            []
        );
        let found = check_application(&application(json!({"syncPolicy": {"automatd": {}}})));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["`spec.syncPolicy.automatd` is not known; did you mean `automated`?"]
        );
    }

    #[test]
    fn errors_and_depth_are_bounded() {
        let many: serde_json::Map<String, Value> = (0..100).map(|n| (format!("k{n}"), json!(1))).collect();
        let found = check_application_set(&json!({"spec": many}));
        assert!(found.len() <= MAX_ERRORS + 2, "{found:?}");
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert_eq!(check_application(&json!({"spec": {"sources": deep}})), []);
    }

    #[test]
    fn every_number_is_a_type() {
        let schema = &*SCHEMA;
        let numbers = schema.types.iter().flat_map(|fields| fields.values().flatten());
        for number in numbers.chain([&schema.application_set, &schema.application]) {
            assert!(*number < schema.types.len(), "{number}");
        }
    }
}
