use serde_json::json;

use super::{Fixture, list};

#[test]
fn without_go_templates_element_values_must_be_strings() {
    let fixture = Fixture::default();
    let made = fixture
        .fast(list(json!([{"a": "1", "values": {"b": "2"}}, {}, null])))
        .unwrap();
    assert_eq!(made, [json!({"a": "1", "values.b": "2"}), json!({}), json!({})]);
    for (element, why) in [
        (
            json!({"a": 1}),
            "`spec.generators[0].list.elements[1].a`: error parsing value as string",
        ),
        (json!({"a": {"b": "c"}}), "error parsing value as string"),
        (
            json!({"values": "x"}),
            "`spec.generators[0].list.elements[1].values`: error parsing values map",
        ),
        (
            json!({"values": {"b": 1}}),
            "elements[1].values.b`: error parsing value as string",
        ),
        (
            json!("x"),
            "`spec.generators[0].list.elements[1]` is text, expected an object",
        ),
    ] {
        let error = fixture
            .fast(list(json!([{"a": "1"}, element])))
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn with_go_templates_elements_are_kept_unchanged() {
    let element = json!({"a": 1, "values": {"b": [true, null]}});
    let made = Fixture::default().go(list(json!([element, null]))).unwrap();
    assert_eq!(made, [element, json!({})]);
    let error = Fixture::default().go(list(json!([1]))).unwrap_err().to_string();
    assert!(
        error.contains("`spec.generators[0].list.elements[0]` is a number"),
        "{error}"
    );
}

#[test]
fn elements_yaml_is_appended_in_both_engines() {
    let yaml = "- name: x\n  live: yes\n  size: 0755\n  date: 2001-01-02\n  deep: {a: [b]}\n-\n- &a {b: 1.5}\n- *a\n";
    let generator = json!({"list": {"elements": [{"name": "w"}], "elementsYaml": yaml}});
    let expected = [
        json!({"name": "w"}),
        json!({"name": "x", "live": true, "size": 493, "date": "2001-01-02", "deep": {"a": ["b"]}}),
        json!({}),
        json!({"b": 1.5}),
        json!({"b": 1.5}),
    ];
    let fixture = Fixture::default();
    assert_eq!(fixture.fast(generator.clone()).unwrap(), expected);
    assert_eq!(fixture.go(generator).unwrap(), expected);
    for (yaml, why) in [
        ("a: b", "is no list of mappings"),
        ("- a", "is no list of mappings"),
        ("x", "is no list of mappings"),
        ("- [", "line "),
    ] {
        let error = fixture
            .fast(json!({"list": {"elementsYaml": yaml}}))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("`spec.generators[0].list.elementsYaml`: "), "{error}");
        assert!(error.contains(why), "{error}");
    }
    assert!(
        fixture
            .fast(json!({"list": {"elementsYaml": "# nothing"}}))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn post_selectors_match_flattened_parameters() {
    let fixture = Fixture::default();
    let elements = json!([{"env": "prod", "url": "https://a.example/x"}, {"env": "dev"}]);
    let select = |selector: serde_json::Value| json!({"list": {"elements": elements}, "selector": selector});
    let urls = select(json!({"matchLabels": {"url": "https://a.example/x"}}));
    assert_eq!(fixture.fast(urls).unwrap(), [elements[0].clone()]);
    let absent = select(json!({"matchExpressions": [{"key": "url", "operator": "DoesNotExist"}]}));
    assert_eq!(fixture.fast(absent).unwrap(), [elements[1].clone()]);
    assert_eq!(fixture.fast(select(json!({}))).unwrap().len(), 2);
    let error = fixture
        .fast(select(json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "`spec.generators[0].selector`: error parsing label selector: \"Like\" is not a valid label selector operator"
    );
}

#[test]
fn post_selectors_match_nested_keys_and_values_as_go_prints_them() {
    let element = json!({"a": {"b.c": {"d": 1_234_567}, "e": [{"f": true}, "x"], "g": {}, "n": null}, "a.k": 0.000_01});
    let takes = |key: &str, value: &str| {
        let selector = json!({"matchLabels": {key: value}});
        let generator = json!({"list": {"elements": [element]}, "selector": selector});
        !Fixture::default().go(generator).unwrap().is_empty()
    };
    for (key, value) in [
        ("a.b.c.d", "1.234567e+06"),
        ("a.e.0.f", "true"),
        ("a.e.1", "x"),
        ("a.n", "<nil>"),
        ("a.k", "1e-05"),
    ] {
        assert!(takes(key, value), "{key}");
        assert!(!takes(key, "other"), "{key}");
    }
    for key in ["a", "a.g", "a.e", "a.e.0", "a.e.2", "a.e.01", "a.e.1.x", "a.b"] {
        let selector = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        let generator = json!({"list": {"elements": [element]}, "selector": selector});
        assert!(Fixture::default().go(generator).unwrap().is_empty(), "{key}");
    }
}
