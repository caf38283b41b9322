use serde_json::{Value, json};

use super::{Fixture, cluster, list, matrix, merge, parameters};
use crate::{ApplicationSet, GenerationBudget};

fn fails(made: Result<Vec<Value>, super::Error>) -> String {
    made.unwrap_err().to_string()
}

#[test]
fn a_matrix_gives_every_combination() {
    let children = json!([
        list(json!([{"a": "1"}, {"a": "2"}])),
        list(json!([{"b": "x"}, {"b": "y"}]))
    ]);
    let expected = [
        json!({"a": "1", "b": "x"}),
        json!({"a": "1", "b": "y"}),
        json!({"a": "2", "b": "x"}),
        json!({"a": "2", "b": "y"}),
    ];
    let fixture = Fixture::default();
    assert_eq!(fixture.fast(matrix(children.clone())).unwrap(), expected);
    assert_eq!(fixture.go(matrix(children)).unwrap(), expected);
}

#[test]
fn a_matrix_needs_two_children_with_one_generator_each() {
    let fixture = Fixture::default();
    let one = || list(json!([{"a": "1"}]));
    let path = "`spec.generators[0].matrix";
    for (children, why) in [
        (json!([]), "`: found less than two generators, Matrix support only two"),
        (
            json!([one()]),
            "`: found less than two generators, Matrix support only two",
        ),
        (
            json!([one(), one(), one()]),
            "`: found more than two generators, Matrix support only two",
        ),
        (
            json!([{"list": {}, "git": {}}, one()]),
            ".generators[0]`: found more than one generator in matrix.Generators",
        ),
        (
            json!([one(), {"list": {}, "git": {}}]),
            ".generators[1]`: found more than one generator in matrix.Generators",
        ),
        (
            json!([{"lists": {}}, one()]),
            ".generators[0]`: child generator generated no parameters",
        ),
        (
            json!([one(), {"selector": {}}]),
            ".generators[1]`: child generator generated no parameters",
        ),
    ] {
        assert!(
            fails(fixture.fast(matrix(children))).starts_with(&format!("{path}{why}")),
            "{why}"
        );
    }
}

#[test]
fn without_go_templates_equal_keys_must_have_equal_values() {
    let fixture = Fixture::default();
    let both = |one: Value, other: Value| fixture.fast(matrix(json!([list(json!([one])), list(json!([other]))])));
    assert_eq!(
        both(json!({"a": "1"}), json!({"a": "1", "b": "2"})).unwrap(),
        [json!({"a": "1", "b": "2"})]
    );
    assert_eq!(
        fails(both(json!({"a": "1"}), json!({"a": "2"}))),
        "`spec.generators[0].matrix`: found duplicate key a with different value, a: 1 ,b: 2"
    );
    let yaml = json!({"list": {"elementsYaml": "- {count: 1000000, l: [a, 1], m: {z: ~, x: true}}"}});
    let made = fixture.fast(matrix(json!([yaml, list(json!([{}]))]))).unwrap();
    assert_eq!(
        made,
        [json!({"count": "1e+06", "l": "[a 1]", "m": "map[x:true z:<nil>]"})]
    );
}

#[test]
fn with_go_templates_the_first_child_wins_and_mappings_are_merged() {
    let first = list(json!([{"a": 1, "deep": {"x": {"y": "first"}, "l": [1]}, "none": null, "empty": ""}]));
    let second =
        list(json!([{"a": 2, "deep": {"x": {"y": "second", "z": 2}, "l": [1, 2]}, "none": 1, "empty": "e", "b": {}}]));
    let made = Fixture::default().go(matrix(json!([first, second]))).unwrap();
    assert_eq!(
        made,
        [json!({"a": 1, "deep": {"x": {"y": "first", "z": 2}, "l": [1]}, "none": null, "empty": "", "b": {}})]
    );
}

#[test]
fn parameters_of_the_first_child_are_rendered_into_the_second() {
    let fixture = Fixture {
        clusters: vec![
            cluster("a", &[("env", "dev")], &[]),
            cluster("b", &[("env", "prod")], &[]),
        ],
        ..Fixture::default()
    };
    let envs = || list(json!([{"env": "prod"}, {"env": "none"}]));
    let chosen = |template: &str| json!({"clusters": {"selector": {"matchLabels": {"env": template}}, "values": {"v": format!("{template}")}}});
    let made = fixture.fast(matrix(json!([envs(), chosen("{{env}}")]))).unwrap();
    assert_eq!(made.len(), 1);
    assert_eq!((&made[0]["name"], &made[0]["values.v"]), (&json!("b"), &json!("prod")));
    let made = fixture.go(matrix(json!([envs(), chosen("{{.env}}")]))).unwrap();
    assert_eq!(made.len(), 1);
    assert_eq!(
        (&made[0]["name"], &made[0]["values"]["v"]),
        (&json!("b"), &json!("prod"))
    );
    // The first child cannot use parameters of the second.
    let error = fails(fixture.fast(matrix(json!([chosen("{{env}}"), envs()]))));
    assert!(error.contains("is not a value labels have"), "{error}");
    let error = fails(fixture.go(matrix(json!([envs(), chosen("{{.other}}")]))));
    assert!(
        error.starts_with("`spec.generators[0].matrix.generators[1]`: "),
        "{error}"
    );
}

#[test]
fn values_of_the_second_child_may_use_its_own_parameters() {
    let fixture = Fixture {
        clusters: vec![cluster("b", &[("env", "prod")], &[])],
        ..Fixture::default()
    };
    let second = json!({"clusters": {"selector": {"matchLabels": {"env": "prod"}}, "values": {"a": "{{.name}}", "b": "{{.app}}"}}});
    let made = fixture
        .go(matrix(json!([list(json!([{"app": "x"}])), second])))
        .unwrap();
    assert_eq!(made[0]["values"], json!({"a": "b", "b": "x"}));
}

#[test]
fn elements_yaml_of_the_second_child_is_a_template() {
    let first = list(json!([{"elements": [{"name": "one"}, {"name": "two"}]}]));
    let second = json!({"list": {"elementsYaml": "{{ .elements | toJson }}"}});
    let made = Fixture::default().go(matrix(json!([first, second]))).unwrap();
    let names: Vec<&Value> = made.iter().map(|params| &params["name"]).collect();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn post_selectors_of_children_apply_and_are_not_templates() {
    let fixture = Fixture::default();
    let second = |value: &str| json!({"list": {"elements": [{"b": "x"}, {"b": "y"}]}, "selector": {"matchLabels": {"b": value}}});
    let made = fixture
        .fast(matrix(json!([list(json!([{"a": "x"}])), second("x")])))
        .unwrap();
    assert_eq!(made, [json!({"a": "x", "b": "x"})]);
    assert!(
        fixture
            .fast(matrix(json!([list(json!([{"a": "x"}])), second("{{a}}")])))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn matrix_and_merge_nest_only_once() {
    let fixture = Fixture::default();
    let pair = |one: &str, other: &str| {
        matrix(json!([
            list(json!([{one: "1"}, {one: "2"}])),
            list(json!([{other: "3"}]))
        ]))
    };
    let made = fixture.fast(matrix(json!([pair("a", "b"), pair("c", "d")]))).unwrap();
    assert_eq!(made.len(), 4);
    assert_eq!(made[1], json!({"a": "1", "b": "3", "c": "2", "d": "3"}));
    let made = fixture
        .go(merge(
            json!(["a"]),
            json!([pair("a", "b"), list(json!([{"a": "2", "b": "9"}]))]),
        ))
        .unwrap();
    assert_eq!(made, [json!({"a": "1", "b": "3"}), json!({"a": "2", "b": "9"})]);
    let deep = matrix(json!([
        matrix(json!([pair("a", "b"), list(json!([{}]))])),
        list(json!([{}]))
    ]));
    assert_eq!(
        fails(fixture.fast(deep)),
        "`spec.generators[0].matrix.generators[0].matrix.generators[0].matrix`: child generator generated no \
         parameters: matrix and merge can be nested only once"
    );
}

#[test]
fn rendered_keys_do_not_become_generators() {
    let first = list(json!([{"kind": "list", "a": "1"}]));
    let second = json!({"{{kind}}": {"elements": [{"b": "2"}]}});
    let spec = json!({"generators": [matrix(json!([first, second]))]});
    let object = json!({"metadata": {"name": "s", "namespace": "argocd"}, "spec": spec});
    // Such a set cannot be sent; a stored one generates nothing.
    assert!(ApplicationSet::read(object.clone()).is_err());
    let stored = ApplicationSet::read_stored(object).unwrap();
    let fixture = Fixture::default();
    let error = parameters(&stored.spec, &fixture.inputs(), &GenerationBudget::new(fixture.limits)).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("child generator generated no parameters"), "{error}");
}

#[test]
fn a_merge_overlays_the_first_child_by_keys() {
    let fixture = Fixture::default();
    let children = json!([
        list(json!([{"s": "1", "a": "x", "b": "x"}, {"s": "2", "a": "y"}, {"s": "3"}])),
        list(json!([{"s": "2", "a": "z", "c": "new"}, {"s": "9", "a": "lost"}])),
        list(json!([{"s": "1", "b": ""}, {"s": "2", "a": "last"}])),
    ]);
    let expected = [
        json!({"s": "1", "a": "x", "b": ""}),
        json!({"s": "2", "a": "last", "c": "new"}),
        json!({"s": "3"}),
    ];
    assert_eq!(fixture.fast(merge(json!(["s"]), children.clone())).unwrap(), expected);
    assert_eq!(fixture.go(merge(json!(["s", "s"]), children)).unwrap(), expected);
}

#[test]
fn with_go_templates_merged_mappings_keep_their_other_keys() {
    let base = list(json!([{"s": {"k": 1.0, "l": 2}, "values": {"a": 1, "b": 2}}]));
    let over = list(json!([{"s": {"l": 2, "k": 1}, "values": {"b": 3, "c": [4]}}]));
    let made = Fixture::default().go(merge(json!(["s"]), json!([base, over]))).unwrap();
    assert_eq!(made[0]["values"], json!({"a": 1, "b": 3, "c": [4]}));
}

#[test]
fn invalid_merge_generators_are_refused() {
    let fixture = Fixture::default();
    let one = |elements: Value| list(elements);
    for (keys, children, why) in [
        (
            json!(["a"]),
            json!([]),
            "found less than two generators, Merge requires two or more",
        ),
        (
            json!(["a"]),
            json!([one(json!([]))]),
            "found less than two generators, Merge requires two or more",
        ),
        (
            json!([]),
            json!([one(json!([])), one(json!([]))]),
            "no merge keys were specified, Merge requires at least one",
        ),
        (
            json!(["a"]),
            json!([one(json!([{"a": "b"}, {"a": "b"}])), one(json!([]))]),
            "Merge requires all param sets to be unique. Duplicate key was {\"a\":\"b\"}",
        ),
        (
            json!(["b", "a"]),
            json!([one(json!([])), one(json!([{"a": "b", "c": "1"}, {"a": "b", "c": "2"}]))]),
            "Merge requires all param sets to be unique. Duplicate key was {\"a\":\"b\",\"b\":null}",
        ),
    ] {
        let error = fails(fixture.fast(merge(keys, children)));
        assert!(
            error.starts_with("`spec.generators[0].merge`: ") && error.ends_with(why),
            "{error}"
        );
    }
}
