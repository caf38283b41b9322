use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{AllowedValues, Error, Selector};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pairs.collect()
}

#[test]
fn selector_strings_match_as_in_kubernetes() {
    let one = labels(&[("key1", "value1"), ("key2", "value1")]);
    let two = labels(&[("key1", "value2"), ("size", "7")]);
    for (text, takes) in [
        ("", [true, true]),
        (" \t", [true, true]),
        ("key1=value1", [true, false]),
        ("key1==value1", [true, false]),
        ("key1 = value1", [true, false]),
        ("key1!=value1", [false, true]),
        ("key3!=value1", [true, true]),
        ("key1 in (value1, value3)", [true, false]),
        ("key1 notin (value1)", [false, true]),
        ("key3 notin (value1)", [true, true]),
        ("key1", [true, true]),
        ("key2", [true, false]),
        ("!key2", [false, true]),
        ("! key2", [false, true]),
        ("key1=value1,key2=value1", [true, false]),
        ("key1=value1,!key2", [false, false]),
        ("size>6", [false, true]),
        ("size > 7", [false, false]),
        ("size<8", [false, true]),
        ("size<7", [false, false]),
        ("key1>1", [false, false]),
        ("key1=", [false, false]),
        ("key1=,key2", [false, false]),
        ("key2 in ()", [false, false]),
        ("key2 in (,value1)", [true, false]),
        ("key2 in (value1,)", [true, false]),
        ("in in (in)", [false, false]),
        ("!key1=value1", [true, false]),
    ] {
        let selector = Selector::parse(text).unwrap();
        assert_eq!([selector.matches(&one), selector.matches(&two)], takes, "{text}");
    }
}

#[test]
fn invalid_selector_strings_are_refused() {
    for (text, why) in [
        ("key1>value1", "must be an integer"),
        ("key1<value1", "must be an integer"),
        ("key1 gt 5", "expected: in, notin"),
        ("a,", "expected: identifier after ','"),
        (",a", "expected: !, identifier, or 'end of string'"),
        ("a=b c", "expected: ',' or 'end of string'"),
        ("a in b", "expected: '('"),
        ("a in (b", "expected: ',' or ')'"),
        ("a in (b c)", "expected: ',' or ')'"),
        ("a in (=)", "expected: ',', ')' or identifier"),
        ("a===b", "expected: identifier"),
        ("a=(", "expected: identifier"),
        ("!", "expected: identifier"),
        ("a!b", "expected: in, notin"),
        ("-a=b", "is not a label's name"),
        ("a/b/c=d", "is not a label's name"),
        ("/a=d", "is not a label's name"),
        ("A.b/c=d", "is not a label's name"),
        ("a=-b", "is not a value labels have"),
        ("a=\0", "expected: identifier"),
        ("a=ü", "is not a value labels have"),
    ] {
        let error = Selector::parse(text).unwrap_err();
        assert!(matches!(error, Error::Text { .. }), "{text}");
        let error = error.to_string();
        assert!(error.starts_with("error parsing the selector: "), "{error}");
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn selector_objects_match_as_in_kubernetes() {
    let given = labels(&[("env", "prod"), ("server", "https://a.example/x")]);
    let takes = |object: Value| Selector::read(&object, AllowedValues::Any).unwrap().matches(&given);
    let expressions = |operator: &str, values: &[&str]| {
        takes(json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]}))
    };
    assert!(takes(json!({})));
    assert!(takes(json!({"matchLabels": null, "matchExpressions": []})));
    assert!(takes(json!({"matchLabels": {"env": "prod"}})));
    assert!(!takes(json!({"matchLabels": {"env": "dev"}})));
    assert!(!takes(json!({"matchLabels": {"env": "prod", "other": "x"}})));
    assert!(takes(json!({"matchLabels": {"server": "https://a.example/x"}})));
    assert!(expressions("In", &["dev", "prod"]));
    assert!(!expressions("In", &["dev"]));
    assert!(expressions("NotIn", &["dev"]));
    assert!(!expressions("NotIn", &["prod"]));
    assert!(expressions("Exists", &[]));
    assert!(!expressions("DoesNotExist", &[]));
}

#[test]
fn invalid_selector_objects_are_refused() {
    let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
    for (object, values, why) in [
        (expression("In", &[]), AllowedValues::Any, "values set can't be empty"),
        (
            expression("NotIn", &[]),
            AllowedValues::Any,
            "values set can't be empty",
        ),
        (
            expression("Exists", &["x"]),
            AllowedValues::Any,
            "values set must be empty",
        ),
        (
            expression("DoesNotExist", &["x"]),
            AllowedValues::Any,
            "values set must be empty",
        ),
        (
            expression("Gt", &["1"]),
            AllowedValues::Any,
            "\"Gt\" is not a valid label selector operator",
        ),
        (
            json!({"matchLabels": {"": "x"}}),
            AllowedValues::Any,
            "is not a label's name",
        ),
        (
            json!({"matchLabels": {"a": "x/y"}}),
            AllowedValues::Labels,
            "is not a value labels have",
        ),
        (
            json!({"matchLabels": {"a": 1}}),
            AllowedValues::Any,
            "`selector.matchLabels.a` is a number",
        ),
        (
            json!({"matchLabels": []}),
            AllowedValues::Any,
            "`selector.matchLabels` is a list",
        ),
        (json!("a=b"), AllowedValues::Any, "`selector` is text"),
    ] {
        let error = Selector::read(&object, values).unwrap_err().to_string();
        assert!(error.starts_with("error parsing label selector: "), "{error}");
        assert!(error.contains(why), "{object}: {error}");
    }
    assert!(Selector::read(&json!({"matchLabels": {"a": "x/y"}}), AllowedValues::Any).is_ok());
}
