use serde_json::{Value, json};

use super::Fixture;

fn fixture(plugin_params: Value) -> Fixture {
    let plugin_params = plugin_params
        .as_array()
        .unwrap()
        .iter()
        .map(|params| params.as_object().unwrap().clone());
    Fixture {
        plugin_params: plugin_params.collect(),
        ..Fixture::default()
    }
}

#[test]
fn values_are_added_to_parameters_of_plugins() {
    let fixture = fixture(json!([{"branch": "main"}]));
    for kind in ["scmProvider", "pullRequest"] {
        let made = fixture.fast(json!({kind: {"values": {"v": "x-{{branch}}"}}})).unwrap();
        assert_eq!(made, [json!({"branch": "main", "values.v": "x-main"})], "{kind}");
        let made = fixture.go(json!({kind: {"values": {"v": "x-{{.branch}}"}}})).unwrap();
        assert_eq!(made, [json!({"branch": "main", "values": {"v": "x-main"}})], "{kind}");
    }
    let kind = "clusterDecisionResource";
    let made = fixture.go(json!({kind: {"values": {"v": "x-{{.branch}}"}}})).unwrap();
    assert_eq!(made, [json!({"branch": "main", "values": {"v": "x-{{.branch}}"}})]);
    assert_eq!(
        *fixture.accesses.lock().unwrap(),
        ["scmProvider", "scmProvider", "pullRequest", "pullRequest", kind]
    );
}

#[test]
fn parameters_of_a_plugin_generator_include_its_input() {
    let fixture = fixture(json!([{"a": {"b": 1}}]));
    let generator = json!({"plugin": {"input": {"parameters": {"k": "v"}}}});
    let given = json!({"input": {"parameters": {"k": "v"}}});
    assert_eq!(
        fixture.fast(generator.clone()).unwrap(),
        [json!({"a.b": "1", "generator": given})]
    );
    assert_eq!(
        fixture.go(generator).unwrap(),
        [json!({"a": {"b": 1}, "generator": given})]
    );
    assert_eq!(
        fixture.go(json!({"plugin": {}})).unwrap()[0]["generator"],
        json!({"input": {"parameters": {}}})
    );
}

#[test]
fn a_kind_no_plugin_provides_is_refused() {
    for kind in ["scmProvider", "pullRequest", "clusterDecisionResource", "plugin"] {
        let error = Fixture::default().fast(json!({kind: {}})).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("`spec.generators[0].{kind}`: no plugin provides `{kind}`")
        );
    }
}
