use serde_json::{Value, json};

use super::World;

fn world(made: Value) -> World {
    let made = made
        .as_array()
        .unwrap()
        .iter()
        .map(|params| params.as_object().unwrap().clone());
    World {
        made: made.collect(),
        ..World::default()
    }
}

#[test]
fn values_are_added_to_what_plugins_make() {
    let world = world(json!([{"branch": "main"}]));
    for kind in ["scmProvider", "pullRequest"] {
        let made = world.fast(json!({kind: {"values": {"v": "x-{{branch}}"}}})).unwrap();
        assert_eq!(made, [json!({"branch": "main", "values.v": "x-main"})], "{kind}");
        let made = world.go(json!({kind: {"values": {"v": "x-{{.branch}}"}}})).unwrap();
        assert_eq!(made, [json!({"branch": "main", "values": {"v": "x-main"}})], "{kind}");
    }
    let kind = "clusterDecisionResource";
    let made = world.go(json!({kind: {"values": {"v": "x-{{.branch}}"}}})).unwrap();
    assert_eq!(made, [json!({"branch": "main", "values": {"v": "x-{{.branch}}"}})]);
    assert_eq!(
        *world.read.lock().unwrap(),
        ["scmProvider", "scmProvider", "pullRequest", "pullRequest", kind]
    );
}

#[test]
fn what_a_plugin_generator_makes_knows_what_it_was_given() {
    let world = world(json!([{"a": {"b": 1}}]));
    let generator = json!({"plugin": {"input": {"parameters": {"k": "v"}}}});
    let given = json!({"input": {"parameters": {"k": "v"}}});
    assert_eq!(
        world.fast(generator.clone()).unwrap(),
        [json!({"a.b": "1", "generator": given})]
    );
    assert_eq!(
        world.go(generator).unwrap(),
        [json!({"a": {"b": 1}, "generator": given})]
    );
    assert_eq!(
        world.go(json!({"plugin": {}})).unwrap()[0]["generator"],
        json!({"input": {"parameters": {}}})
    );
}

#[test]
fn a_kind_no_plugin_provides_is_refused() {
    for kind in ["scmProvider", "pullRequest", "clusterDecisionResource", "plugin"] {
        let error = World::default().fast(json!({kind: {}})).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("`spec.generators[0].{kind}`: no plugin provides `{kind}`")
        );
    }
}
