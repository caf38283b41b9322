//! Parameters that are maps of texts to Argo CD.
//!
//! In: sets of parameters. Out: nothing. Refuses: those that look as if a generator of
//! clusters, git or pull requests had made what another one did. Never: a template that
//! can tell the gateway from Argo CD by a type.
//!
//! With Go templates, `values` of clusters and git and `metadata` of clusters are
//! `map[string]string` within: a key that is missing is empty there, and `<no value>` in
//! other maps. Which generator made a set of parameters is told by keys only it gives.

use serde_json::{Map, Value};

use crate::applicationset::Params;
use crate::applicationset::template::{Made, made};

/// Keys by which parameters of a generator are known.
const MARKS: [&str; 3] = ["nameNormalized", "basenameNormalized", "head_short_sha"];

/// Judges what is not made by a generator of its own, but written by somebody.
pub(super) fn written(params: &Params) -> Result<(), String> {
    let mut open: Vec<&Map<String, Value>> = vec![params];
    while let Some(members) = open.pop() {
        if let Some(key) = MARKS.into_iter().find(|key| members.contains_key(*key)) {
            return Err(format!(
                "has the key `{key}`, by which parameters of another generator are known: call it otherwise"
            ));
        }
        for value in members.values() {
            below(value, &mut open);
        }
    }
    Ok(())
}

fn below<'a>(value: &'a Value, open: &mut Vec<&'a Map<String, Value>>) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(members) => open.push(members),
            Value::Array(items) => left.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Judges the content of a file, to which a git generator adds its own.
///
/// - `has_values`: whether the generator's own `values` take the place of the file's.
pub(super) fn content(object: &Params, has_values: bool) -> Result<(), String> {
    written(object)?;
    let texts = |value: &Value| {
        value
            .as_object()
            .is_some_and(|values| values.values().all(Value::is_string))
    };
    if !has_values && object.get("values").is_some_and(texts) {
        return Err("has `values` that are all texts, as those of the generator: call them otherwise".to_owned());
    }
    Ok(())
}

/// Judges two sets of parameters that become one.
pub(super) fn together(one: &Params, other: &Params) -> Result<(), String> {
    let sides = [(one, made(one)), (other, made(other))];
    let any = |wanted: Made| sides.iter().any(|(_, made)| *made == wanted);
    let clash = |key: &str, makers: &[Made]| {
        let is_made = makers.iter().any(|maker| any(*maker));
        let foreign =
            |(params, made): &(&Params, Made)| !makers.contains(made) && params.get(key).is_some_and(Value::is_object);
        (is_made && sides.iter().any(foreign))
            .then(|| format!("`{key}` of one generator cannot be told from that of another one: call it otherwise"))
    };
    let found = clash("values", &[Made::Clusters, Made::Git]).or_else(|| clash("metadata", &[Made::Clusters]));
    found.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{content, together, written};
    use crate::applicationset::Params;

    fn params(value: &Value) -> Params {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn nobody_writes_what_generators_are_known_by() {
        assert_eq!(
            written(&params(&json!({"name": "a", "values": {"a": "b"}, "metadata": {}}))),
            Ok(())
        );
        for forged in [
            json!({"nameNormalized": "x", "values": {"a": "b"}}),
            json!({"path": {"basenameNormalized": "x"}}),
            json!({"deep": [[{"nameNormalized": "x"}]]}),
            json!({"head_short_sha": "x", "labels": ["a"]}),
        ] {
            assert!(written(&params(&forged)).is_err(), "{forged}");
        }
    }

    #[test]
    fn values_of_a_file_are_not_those_of_its_generator() {
        for (object, has_values, is_good) in [
            (json!({"values": {"a": "b"}}), false, false),
            (json!({"values": {"a": "b"}}), true, true),
            (json!({"values": {"a": 1, "b": "c"}}), false, true),
            (json!({"values": "a"}), false, true),
            (json!({"nameNormalized": "a"}), true, false),
        ] {
            assert_eq!(content(&params(&object), has_values).is_ok(), is_good, "{object}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_put_together() {
        let cluster = json!({"nameNormalized": "c", "metadata": {"labels": {"a": "b"}}, "values": {"a": "b"}});
        let git = json!({"path": {"basenameNormalized": "p"}});
        for (one, other, is_good) in [
            (&cluster, json!({"name": "a"}), true),
            (&cluster, git.clone(), true),
            (&cluster, json!({"values": {"a": "b"}}), false),
            (&cluster, json!({"metadata": {"labels": {}}}), false),
            (&cluster, json!({"values": "text"}), true),
            (&git, json!({"values": {"a": "b"}}), false),
            (&git, json!({"metadata": {"labels": {}}}), true),
            (&json!({"values": {"a": "b"}}), json!({"values": {"c": "d"}}), true),
        ] {
            let (one, other) = (params(one), params(&other));
            assert_eq!(together(&one, &other).is_ok(), is_good, "{one:?} {other:?}");
            assert_eq!(together(&other, &one).is_ok(), is_good, "{one:?} {other:?}");
        }
    }
}
