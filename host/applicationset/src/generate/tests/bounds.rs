use std::time::Duration;

use serde_json::{Value, json};

use super::{Error, Fixture, list, matrix};
use crate::budget::Excess;
use crate::generate::generate;
use crate::inputs::Metadata;
use crate::{ClusterInput, Exceeded, GenerationBudget};
use tollgate_config::GenerationLimits;

fn fixture(limits: GenerationLimits) -> Fixture {
    Fixture {
        limits,
        files: vec![("apps/one/x", "a: b"), ("apps/two/x", "a: b")],
        ..Fixture::default()
    }
}

fn many(key: &str, count: usize) -> Value {
    list((0..count).map(|index| json!({key: index.to_string()})).collect())
}

#[test]
fn a_matrix_stops_at_the_parameter_limit() {
    let limits = GenerationLimits {
        parameters: 30,
        ..GenerationLimits::default()
    };
    // 5 of one child, 4 of the other, 20 combinations.
    let fits = matrix(json!([many("a", 5), many("b", 4)]));
    assert_eq!(fixture(limits).fast(fits).unwrap().len(), 20);
    let large = matrix(json!([many("a", 5), many("b", 5)]));
    assert!(matches!(
        fixture(limits).fast(large),
        Err(Error::Exceeded(Exceeded::Parameters(Excess {
            observed: 31,
            allowed: 30
        })))
    ));
}

#[test]
fn nested_matrices_stop_at_the_limits() {
    let pair = |one: &str, other: &str| matrix(json!([many(one, 1000), many(other, 1000)]));
    let error = Fixture::default()
        .go(matrix(json!([pair("a", "b"), pair("c", "d")])))
        .unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Parameters { .. })), "{error}");
    let large = "x".repeat(1_000_000);
    let error = Fixture::default()
        .go(matrix(json!([list(json!([{"a": large}])), many("b", 1000)])))
        .unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

#[test]
fn aliases_and_long_keys_stop_at_the_byte_limit() {
    let text = "x".repeat(1_000_000);
    let aliases = format!("- a: &a {text}\n{}", "- a: *a\n".repeat(1000));
    let error = Fixture::default()
        .fast(json!({"list": {"elementsYaml": aliases}}))
        .unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
    let members: serde_json::Map<String, Value> = (0..1000).map(|index| (index.to_string(), json!(1))).collect();
    let fixture = Fixture {
        plugin_params: vec![serde_json::Map::from_iter([(text, Value::Object(members))])],
        ..Fixture::default()
    };
    let error = fixture.fast(json!({"plugin": {}})).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

#[test]
fn generators_are_counted_with_their_children() {
    let limits = GenerationLimits {
        generators: 5,
        ..GenerationLimits::default()
    };
    let fits = json!({"generators": [matrix(json!([many("a", 1), many("b", 1)])), {"list": {}, "selector": {}}, many("c", 1)]});
    assert_eq!(fixture(limits).params(fits.clone()).unwrap().len(), 2);
    let limits = GenerationLimits {
        generators: 4,
        ..limits
    };
    assert!(matches!(
        fixture(limits).params(fits),
        Err(Error::Exceeded(Exceeded::Generators(Excess {
            observed: 5,
            allowed: 4
        })))
    ));
}

#[test]
fn files_and_directories_are_counted() {
    let limits = GenerationLimits {
        parameters: 1,
        ..GenerationLimits::default()
    };
    for items in ["files", "directories"] {
        let git = |path: &str| json!({"git": {"repoURL": "https://r", items: [{"path": path}]}});
        let error = fixture(limits).fast(git("apps/*")).unwrap_err();
        assert!(matches!(error, Error::Exceeded(Exceeded::Parameters { .. })), "{error}");
        assert_eq!(fixture(limits).fast(git("apps/one")).unwrap().len(), 1, "{items}");
    }
}

#[test]
fn generation_stops_at_the_deadline() {
    let limits = GenerationLimits {
        time: Duration::ZERO,
        ..GenerationLimits::default()
    };
    let error = fixture(limits).fast(many("a", 1)).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Time(_))), "{error}");
}

/// SECURITY: numbers, empty strings and empty mappings have no characters to count, but take
/// memory.
#[test]
fn small_values_count_against_the_byte_limit() {
    let zeros: serde_json::Map<String, Value> = (0..1000).map(|index| (index.to_string(), json!(0))).collect();
    let nothing: Vec<Value> = (0..1000).map(|_| json!({})).collect();
    for element in [json!({"a": zeros}), json!({"a": nothing}), json!({"a": vec![""; 1000]})] {
        let one = list(json!([element]));
        for combined in [matrix(json!([one, many("b", 50)])), matrix(json!([many("b", 50), one]))] {
            assert_eq!(Fixture::default().go(combined).unwrap().len(), 50);
        }
        let error = Fixture::default()
            .go(matrix(json!([one, many("b", 5000)])))
            .unwrap_err();
        assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
    }
    let zeros = "0,".repeat(3_000_000);
    let made = |text: String| {
        let made = Fixture::default().go(json!({"list": {"elementsYaml": text}}));
        made.map(|made| made.len())
    };
    let error = made(format!("[{{a: [{zeros}]}}]")).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
    // Argo CD refuses that many aliases too.
    let aliases = format!("- a: &a [{}]\n{}", "0,".repeat(1000), "- b: *a\n".repeat(5_000));
    let error = made(aliases).unwrap_err();
    assert!(error.to_string().contains("what aliases bring"), "{error}");
    let few = format!("- a: &a [{}]\n{}", "0,".repeat(1000), "- b: *a\n".repeat(50));
    assert_eq!(
        Fixture::default()
            .go(json!({"list": {"elementsYaml": few}}))
            .unwrap()
            .len(),
        51
    );
}

#[test]
fn copies_and_comparisons_of_a_merge_are_counted() {
    let merge = |keys: Value, children: Value| json!({"merge": {"mergeKeys": keys, "generators": children}});
    let limits = GenerationLimits {
        bytes: 8 * 1024 * 1024,
        ..GenerationLimits::default()
    };
    let keys = |count: usize| -> Value { (0..count).map(|key| format!("key-{key}")).collect::<Vec<_>>().into() };
    let both = |count: usize, keys: Value| {
        let sets: Vec<Value> = (0..count).map(|index| json!({"key-0": index.to_string()})).collect();
        merge(keys, json!([list(sets.clone().into()), list(sets.into())]))
    };
    assert_eq!(fixture(limits).go(both(500, keys(1))).unwrap().len(), 500);
    let error = fixture(limits).go(both(500, keys(5_000))).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

/// SECURITY: each generator has a copy of the template before it runs.
#[test]
fn copies_of_the_template_for_each_generator_are_counted() {
    let set = |generators: usize| {
        Fixture::set(json!({
            "generators": vec![json!({"list": {"elements": []}}); generators],
            "template": {"metadata": {"name": "a"}, "spec": {"x": vec![0; 1000]}},
        }))
    };
    let fixture = Fixture::default();
    let generated = |generators: usize| {
        let limits = GenerationLimits {
            bytes: 1024 * 1024,
            ..GenerationLimits::default()
        };
        generate(&set(generators), &fixture.inputs(), &GenerationBudget::new(limits))
    };
    assert!(generated(10).unwrap().is_empty());
    assert!(matches!(generated(20), Err(Error::Exceeded(Exceeded::Bytes { .. }))));
}

/// The maximum number of plain Applications fits into the default limits.
#[test]
fn five_thousand_plain_applications_fit() {
    let template = |name: &str, path: &str, server: &str| {
        json!({
            "metadata": {"name": name, "labels": {"team": "shop", "env": name}},
            "spec": {
                "project": "shop",
                "source": {"repoURL": "https://git.example.com/shop/deployments.git", "targetRevision": "HEAD", "path": path},
                "destination": {"server": server, "namespace": name},
                "syncPolicy": {"automated": {"prune": true, "selfHeal": true}, "syncOptions": ["CreateNamespace=true"]},
            },
        })
    };
    let cluster = |index: u32| ClusterInput {
        name: format!("production-{index}"),
        server: format!("https://production-{index}.clusters.example.com:6443"),
        project: String::new(),
        secret: Some(Metadata {
            labels: [
                ("env".to_owned(), "production".to_owned()),
                ("region".to_owned(), "eu-west-1".to_owned()),
            ]
            .into(),
            annotations: [("owner".to_owned(), "platform".to_owned())].into(),
        }),
    };
    let names: Vec<Value> = (0..5000).map(|index| json!({"name": format!("checkout-{index}"), "cluster": "production", "url": "https://production.clusters.example.com:6443"})).collect();
    let fixture = Fixture {
        clusters: (0..100).map(cluster).collect(),
        ..Fixture::default()
    };
    let few: Vec<Value> = (0..50).map(|index| json!({"app": format!("checkout-{index}"), "path": format!("apps/checkout-{index}/overlays/production")})).collect();
    for spec in [
        json!({"generators": [{"list": {"elements": names}}], "template": template("{{name}}", "apps/{{name}}", "{{url}}")}),
        json!({
            "generators": [{"list": {"elements": names}}], "goTemplate": true,
            "template": template("{{.name}}", "apps/{{.name}}", "{{.url}}"),
            "templatePatch": "spec: {info: [{name: owner, value: '{{.cluster}}'}]}",
        }),
        json!({
            "generators": [matrix(json!([{"clusters": {}}, list(few.into())]))], "goTemplate": true,
            "template": template("{{.app}}-{{.name}}", "{{.path}}", "{{.server}}"),
        }),
    ] {
        let budget = GenerationBudget::new(GenerationLimits::default());
        let made = generate(&Fixture::set(spec), &fixture.inputs(), &budget).unwrap();
        assert_eq!(made.len(), 5000);
    }
}
