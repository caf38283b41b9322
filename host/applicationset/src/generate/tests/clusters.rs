use serde_json::{Value, json};

use super::{Fixture, cluster, own_cluster};
use crate::ClusterInput;

fn fixture() -> Fixture {
    Fixture {
        clusters: vec![
            cluster("staging", &[("env", "dev")], &[]),
            cluster(
                "Prod_1/West",
                &[("env", "prod")],
                &[
                    ("team", "a"),
                    ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
                ],
            ),
            own_cluster(),
        ],
        ..Fixture::default()
    }
}

fn names(made: &[Value]) -> Vec<&str> {
    made.iter().map(|params| params["name"].as_str().unwrap()).collect()
}

#[test]
fn clusters_are_sorted_by_name_and_in_cluster_is_last() {
    let made = fixture().fast(json!({"clusters": {}})).unwrap();
    assert_eq!(
        made,
        [
            json!({
                "name": "Prod_1/West",
                "nameNormalized": "prod-1-west",
                "server": "https://prod_1/west.example",
                "project": "",
                "metadata.labels.env": "prod",
                "metadata.labels.argocd.argoproj.io/secret-type": "cluster",
                "metadata.annotations.team": "a",
            }),
            json!({
                "name": "staging",
                "nameNormalized": "staging",
                "server": "https://staging.example",
                "project": "",
                "metadata.labels.env": "dev",
                "metadata.labels.argocd.argoproj.io/secret-type": "cluster",
            }),
            json!({
                "name": "in-cluster",
                "nameNormalized": "in-cluster",
                "server": "https://kubernetes.default.svc",
                "project": "",
            }),
        ]
    );
}

#[test]
fn labels_and_annotations_are_mappings_with_go_templates() {
    let mut fixture = fixture();
    fixture.clusters.push(ClusterInput {
        secret: Some(crate::inputs::Metadata::default()),
        ..cluster("bare", &[], &[])
    });
    let made = fixture.go(json!({"clusters": {}})).unwrap();
    assert_eq!(names(&made), ["Prod_1/West", "bare", "staging", "in-cluster"]);
    assert_eq!(
        made[0]["metadata"],
        json!({
            "labels": {"env": "prod", "argocd.argoproj.io/secret-type": "cluster"},
            "annotations": {"team": "a"},
        })
    );
    assert_eq!(made[1]["metadata"], json!({}));
    assert_eq!(made[3].get("metadata"), None);
}

#[test]
fn a_selector_excludes_an_in_cluster_without_a_secret() {
    let fixture = fixture();
    let select = |selector: Value| fixture.fast(json!({"clusters": {"selector": selector}}));
    let made = select(json!({"matchLabels": {"env": "prod"}})).unwrap();
    assert_eq!(names(&made), ["Prod_1/West"]);
    let made = select(json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]})).unwrap();
    assert_eq!(names(&made), ["staging"]);
    // Every cluster Secret has this label, regardless of the value that the selector asks for.
    for value in ["cluster", "other"] {
        let made = select(json!({"matchLabels": {"argocd.argoproj.io/secret-type": value}})).unwrap();
        assert_eq!(names(&made), ["Prod_1/West", "staging"], "{value}");
    }
    assert_eq!(select(json!({"matchLabels": {}})).unwrap().len(), 3);
    let error = select(json!({"matchLabels": {"env": "a/b"}})).unwrap_err().to_string();
    assert!(
        error.starts_with("`spec.generators[0].clusters.selector`: error parsing label selector"),
        "{error}"
    );
}

#[test]
fn an_in_cluster_with_a_secret_is_treated_like_other_clusters() {
    let mut fixture = fixture();
    fixture.clusters.pop();
    fixture.clusters.push(ClusterInput {
        server: "https://kubernetes.default.svc".to_owned(),
        ..cluster("home", &[("env", "prod")], &[])
    });
    let made = fixture
        .fast(json!({"clusters": {"selector": {"matchLabels": {"env": "prod"}}}}))
        .unwrap();
    assert_eq!(names(&made), ["Prod_1/West", "home"]);
}

#[test]
fn of_clusters_with_equal_names_the_last_wins() {
    let mut fixture = fixture();
    fixture.clusters.push(ClusterInput {
        server: "https://second.example".to_owned(),
        ..cluster("staging", &[], &[])
    });
    let made = fixture.fast(json!({"clusters": {}})).unwrap();
    assert_eq!(names(&made), ["Prod_1/West", "staging", "in-cluster"]);
    assert_eq!(made[1]["server"], "https://second.example");
}

#[test]
fn values_are_templates_over_the_generated_parameters() {
    let fixture = fixture();
    let fast =
        json!({"clusters": {"values": {"a": "{{name}}-{{metadata.labels.env}}", "b": "{{values.a}}", "c": "x"}}});
    let made = fixture.fast(fast).unwrap();
    assert_eq!(made[1]["values.a"], "staging-dev");
    assert_eq!(made[1]["values.b"], "{{values.a}}");
    assert_eq!(made[1]["values.c"], "x");
    // The labels of the own cluster are unknown, so the tag stays as it is.
    assert_eq!(made[2]["values.a"], "in-cluster-{{metadata.labels.env}}");
    let selected = json!({"matchLabels": {"env": "dev"}});
    let go = json!({"clusters": {"selector": selected, "values": {"a": "{{.name}}-{{.metadata.labels.env}}"}}});
    assert_eq!(fixture.go(go).unwrap()[0]["values"], json!({"a": "staging-dev"}));
    let missing = json!({"clusters": {"values": {"a": "{{.none}}"}}});
    let error = fixture.go(missing).unwrap_err().to_string();
    assert!(error.starts_with("`spec.generators[0].clusters.values.a`: "), "{error}");
    let wrong = json!({"clusters": {"values": {"a": "{{"}}});
    let error = fixture.go(wrong).unwrap_err().to_string();
    assert!(error.starts_with("`spec.generators[0].clusters.values.a`: "), "{error}");
}

#[test]
fn a_flat_list_is_one_set_of_parameters() {
    let made = fixture()
        .go(json!({"clusters": {"flatList": true, "values": {"a": "{{.name}}"}}}))
        .unwrap();
    assert_eq!(made.len(), 1);
    let all = made[0]["clusters"].as_array().unwrap();
    assert_eq!(names(all), ["Prod_1/West", "staging", "in-cluster"]);
    assert_eq!(all[2]["values"]["a"], "in-cluster");
    let none = Fixture::default().go(json!({"clusters": {"flatList": true}})).unwrap();
    assert_eq!(none, [json!({"clusters": []})]);
}
