//! `json.filter` and `json.remove` as OPA has them. The engine's own lose parts of the value that a path ends
//! within, and keep all of it for an empty path.

use std::collections::{BTreeMap, BTreeSet};

use regorus::Value;

/// What paths select below a value.
enum Selection {
    /// A path ends here.
    Whole,
    Parts(Parts),
}

type Parts = BTreeMap<Value, Selection>;

pub(super) fn filter(arguments: &[Value]) -> Option<Value> {
    let [object @ Value::Object(_), paths] = arguments else {
        return None;
    };
    Some(kept(object, &Selection::Parts(parts(paths)?)))
}

pub(super) fn remove(arguments: &[Value]) -> Option<Value> {
    let [object @ Value::Object(_), paths] = arguments else {
        return None;
    };
    without(object, Some(&Selection::Parts(parts(paths)?)))
}

/// - `paths`: an array or set of texts such as `a/0/b`, and of arrays of keys.
fn parts(paths: &Value) -> Option<Parts> {
    let mut parts = Parts::new();
    let mut add = |path: &Value| -> Option<()> {
        let path = keys(path)?;
        // An empty path selects nothing.
        let Some((last, above)) = path.split_last() else {
            return Some(());
        };
        let mut at = &mut parts;
        for key in above {
            let below = at.entry(key.clone()).or_insert_with(|| Selection::Parts(Parts::new()));
            match below {
                // A shorter path selects it already.
                Selection::Whole => return Some(()),
                Selection::Parts(below) => at = below,
            }
        }
        at.insert(last.clone(), Selection::Whole);
        Some(())
    };
    match paths {
        Value::Array(paths) => paths.iter().try_for_each(&mut add)?,
        Value::Set(paths) => paths.iter().try_for_each(&mut add)?,
        _ => return None,
    }
    Some(parts)
}

/// The keys of a path. Those of a text are separated by slashes and escaped as in RFC 6901.
fn keys(path: &Value) -> Option<Vec<Value>> {
    match path {
        Value::Array(keys) => Some(keys.iter().cloned().collect()),
        Value::String(text) if text.is_empty() => Some(Vec::new()),
        Value::String(text) => {
            let keys = text.trim_start_matches('/').split('/');
            Some(
                keys.map(|key| key.replace("~1", "/").replace("~0", "~").into())
                    .collect(),
            )
        }
        _ => None,
    }
}

fn kept(value: &Value, selection: &Selection) -> Value {
    let Selection::Parts(parts) = selection else {
        return value.clone();
    };
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let kept = items.filter_map(|(at, item)| Some(kept(item, parts.get(&position(at))?)));
            Value::from(kept.collect::<Vec<_>>())
        }
        Value::Set(items) => {
            let kept = items.iter().filter_map(|item| Some(kept(item, parts.get(item)?)));
            Value::from(kept.collect::<BTreeSet<_>>())
        }
        Value::Object(entries) => {
            let kept = entries
                .iter()
                .filter_map(|(key, item)| Some((key.clone(), kept(item, parts.get(key)?))));
            Value::from(kept.collect::<BTreeMap<_, _>>())
        }
        // What a path ends within stays.
        other => other.clone(),
    }
}

/// `None` for what is removed as a whole.
fn without(value: &Value, selection: Option<&Selection>) -> Option<Value> {
    let parts = match selection {
        None => return Some(value.clone()),
        Some(Selection::Whole) => return None,
        Some(Selection::Parts(parts)) => parts,
    };
    Some(match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let left = items.filter_map(|(at, item)| without(item, parts.get(&position(at))));
            Value::from(left.collect::<Vec<_>>())
        }
        Value::Set(items) => {
            let left = items.iter().filter_map(|item| without(item, parts.get(item)));
            Value::from(left.collect::<BTreeSet<_>>())
        }
        Value::Object(entries) => {
            let left = entries
                .iter()
                .filter_map(|(key, item)| Some((key.clone(), without(item, parts.get(key))?)));
            Value::from(left.collect::<BTreeMap<_, _>>())
        }
        other => other.clone(),
    })
}

/// The key of an item of an array, in a path.
fn position(at: usize) -> Value {
    at.to_string().into()
}

#[cfg(test)]
mod tests {
    use regorus::Value;
    use serde_json::json;

    use super::{filter, remove};

    /// The results are those of OPA 1.22.0.
    #[test]
    fn paths_select_what_they_select_in_opa() {
        let object = json!({"a": {"b": [1, {"c": 2}], "": 3}, "x/y": 4, "": 5, "s": "text"});
        for (paths, kept, left) in [
            (json!([]), json!({}), object.clone()),
            (json!([""]), json!({}), object.clone()),
            (json!([[]]), json!({}), object.clone()),
            (
                json!(["/"]),
                json!({"": 5}),
                json!({"a": {"b": [1, {"c": 2}], "": 3}, "x/y": 4, "s": "text"}),
            ),
            (
                json!(["a/b/1/c"]),
                json!({"a": {"b": [{"c": 2}]}}),
                json!({"a": {"b": [1, {}], "": 3}, "x/y": 4, "": 5, "s": "text"}),
            ),
            (
                json!([["a", "b", "0"], "x~1y"]),
                json!({"a": {"b": [1]}, "x/y": 4}),
                json!({"a": {"b": [{"c": 2}], "": 3}, "": 5, "s": "text"}),
            ),
            // A path that ends within a text, one below another, and positions that are no texts.
            (json!(["s/t"]), json!({"s": "text"}), object.clone()),
            (
                json!(["a/b/0", "a", "a/b"]),
                json!({"a": {"b": [1, {"c": 2}], "": 3}}),
                json!({"x/y": 4, "": 5, "s": "text"}),
            ),
            (json!([["a", "b", 0]]), json!({"a": {"b": []}}), object.clone()),
        ] {
            let arguments = [Value::from(object.clone()), Value::from(paths.clone())];
            assert_eq!(filter(&arguments), Some(Value::from(kept)), "{paths}");
            assert_eq!(remove(&arguments), Some(Value::from(left)), "{paths}");
        }
        for (object, paths) in [
            (json!([1]), json!([])),
            (json!({}), json!("a")),
            (json!({}), json!([1])),
        ] {
            let arguments = [Value::from(object), Value::from(paths)];
            assert_eq!((filter(&arguments), remove(&arguments)), (None, None));
        }
    }
}
