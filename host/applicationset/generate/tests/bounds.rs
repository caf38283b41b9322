use std::time::Duration;

use serde_json::{Value, json};

use super::{Error, World, list, matrix};
use crate::applicationset::{Exceeded, Limits};

fn world(limits: Limits) -> World {
    World {
        limits,
        files: vec![("apps/one/x", "a: b"), ("apps/two/x", "a: b")],
        ..World::default()
    }
}

fn many(key: &str, count: usize) -> Value {
    list((0..count).map(|index| json!({key: index.to_string()})).collect())
}

#[test]
fn a_matrix_stops_at_the_bound() {
    let limits = Limits {
        parameters: 30,
        ..Limits::default()
    };
    // 5 of one child, 4 of the other, 20 together.
    let fits = matrix(json!([many("a", 5), many("b", 4)]));
    assert_eq!(world(limits).fast(fits).unwrap().len(), 20);
    let large = matrix(json!([many("a", 5), many("b", 5)]));
    assert!(matches!(
        world(limits).fast(large),
        Err(Error::Exceeded(Exceeded::Parameters {
            observed: 31,
            allowed: 30
        }))
    ));
}

#[test]
fn matrices_of_matrices_stop_before_they_fill_the_memory() {
    let pair = |one: &str, other: &str| matrix(json!([many(one, 1000), many(other, 1000)]));
    let error = World::default()
        .go(matrix(json!([pair("a", "b"), pair("c", "d")])))
        .unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Parameters { .. })), "{error}");
    let large = "x".repeat(1_000_000);
    let error = World::default()
        .go(matrix(json!([list(json!([{"a": large}])), many("b", 1000)])))
        .unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

#[test]
fn aliases_and_long_keys_stop_before_they_fill_the_memory() {
    let text = "x".repeat(1_000_000);
    let aliases = format!("- a: &a {text}\n{}", "- a: *a\n".repeat(1000));
    let error = World::default()
        .fast(json!({"list": {"elementsYaml": aliases}}))
        .unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
    let members: serde_json::Map<String, Value> = (0..1000).map(|index| (index.to_string(), json!(1))).collect();
    let world = World {
        made: vec![serde_json::Map::from_iter([(text, Value::Object(members))])],
        ..World::default()
    };
    let error = world.fast(json!({"plugin": {}})).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

#[test]
fn generators_are_counted_with_their_children() {
    let limits = Limits {
        generators: 5,
        ..Limits::default()
    };
    let fits = json!({"generators": [matrix(json!([many("a", 1), many("b", 1)])), {"list": {}, "selector": {}}, many("c", 1)]});
    assert_eq!(world(limits).made(fits.clone()).unwrap().len(), 2);
    let limits = Limits {
        generators: 4,
        ..limits
    };
    assert!(matches!(
        world(limits).made(fits),
        Err(Error::Exceeded(Exceeded::Generators {
            observed: 5,
            allowed: 4
        }))
    ));
}

#[test]
fn files_and_directories_are_counted() {
    let limits = Limits {
        parameters: 1,
        ..Limits::default()
    };
    for items in ["files", "directories"] {
        let git = |path: &str| json!({"git": {"repoURL": "https://r", items: [{"path": path}]}});
        let error = world(limits).fast(git("apps/*")).unwrap_err();
        assert!(matches!(error, Error::Exceeded(Exceeded::Parameters { .. })), "{error}");
        assert_eq!(world(limits).fast(git("apps/one")).unwrap().len(), 1, "{items}");
    }
}

#[test]
fn time_ends() {
    let limits = Limits {
        time: Duration::ZERO,
        ..Limits::default()
    };
    let error = world(limits).fast(many("a", 1)).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Time { .. })), "{error}");
}
