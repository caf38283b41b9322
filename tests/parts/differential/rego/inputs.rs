//! Random inputs, of the types that the policies expect and of others.

use serde_json::{Map, Value, json};

use super::draw::Type;
use crate::differential::random::Random;

pub(super) const WORDS: &[&str] = &[
    "alice",
    "bob",
    "blue",
    "red",
    "team",
    "team-a",
    "admin",
    "a",
    "",
    "0",
    "1",
    "10",
    "7",
    "-1",
    "1.5",
    "Ärger",
    "a,b",
    "x-y.z",
    "true",
    "get",
    "delete",
    "api.example.com",
    "a b",
    "null",
    "2026-11-29",
    "ß",
    "0.1",
    "1.0",
    "0.30000000000000000001",
    "12345678901234567890123",
    "1e21",
    "1e400",
    "1500m",
    "0.1Gi",
    "007",
    "-0",
];
const FRACTIONS: &[f64] = &[
    0.1,
    0.2,
    0.3,
    0.7,
    1.1,
    2.2,
    3.0,
    0.25,
    1e-7,
    0.300_000_000_000_000_04,
    33.333_333_333_333_336,
    -0.1,
    -2.0,
];
/// Integers around those that floats stand for exactly.
const LARGE: &[i64] = &[
    9_007_199_254_740_991,
    9_007_199_254_740_993,
    -9_007_199_254_740_993,
    i64::MAX,
    i64::MIN,
    2_147_483_648,
];
const TIMES: &[&str] = &[
    "2026-11-29T15:30:00Z",
    "2024-02-29T00:00:00.123456789Z",
    "2026-01-01T23:59:59+02:00",
    "1969-12-31T00:00:00Z",
    "yesterday",
    "2026-13-01T00:00:00Z",
    "2026-11-29 15:30:00Z",
    "9999-12-31T23:59:59Z",
    "",
];
const VERSIONS: &[&str] = &[
    "1.2.3",
    "1.10.0",
    "2.0.0-rc.1",
    "2.0.0",
    "v1.0.0",
    "1.2",
    "1.2.3+build.5",
    "x",
    "",
    "1.02.3",
    "0.0.0",
];

pub(super) fn word(random: &mut Random) -> String {
    random.pick(WORDS).to_owned()
}

fn number(random: &mut Random) -> Value {
    match random.below(12) {
        0 => json!(-1),
        1 => json!(2.5),
        2 => json!(-0.5),
        3 => json!(100),
        4 => json!(1_796_000_000_000_000_000_u64),
        5 => json!(1_000_000_000),
        6 | 7 => random.pick(FRACTIONS).into(),
        8 => random.pick(LARGE).into(),
        // The gateway denies for such an input.
        9 if random.chance(4) => random.pick(&[3.0, -2.0, 1e21]).into(),
        _ => json!(random.below(5)),
    }
}

fn words(random: &mut Random) -> Value {
    (0..random.below(4)).map(|_| json!(word(random))).collect()
}

fn labels(random: &mut Random) -> Value {
    let names = ["team", "colour", "tier", "replicas", "owner"];
    let mut labels = Map::new();
    for _ in 0..random.below(4) {
        labels.insert(random.pick(&names).to_owned(), json!(word(random)));
    }
    labels.into()
}

/// Any JSON.
pub(super) fn any(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => json!(random.chance(50)),
        2 => number(random),
        3..=5 => json!(word(random)),
        6 => (0..random.below(4)).map(|_| any(random, depth - 1)).collect(),
        7 => labels(random),
        _ => {
            let mut object = Map::new();
            for _ in 0..random.below(4) {
                object.insert(word(random), any(random, depth - 1));
            }
            object.into()
        }
    }
}

fn items(random: &mut Random) -> Value {
    let item = |random: &mut Random| json!({"name": word(random), "size": number(random), "tags": words(random)});
    (0..random.below(4)).map(|_| item(random)).collect()
}

/// The fields of an input, each with its own type.
pub(in crate::differential) fn input(random: &mut Random) -> Value {
    let mut input = json!({
        "user": word(random),
        "verb": random.pick(&["get", "delete", "create"]),
        "groups": words(random),
        "labels": labels(random),
        "replicas": number(random),
        "sizes": (0..random.below(4)).map(|_| number(random)).collect::<Value>(),
        "flag": random.chance(50),
        "time": random.pick(TIMES),
        "version": random.pick(VERSIONS),
        "items": items(random),
    });
    let Value::Object(fields) = &mut input else {
        return input;
    };
    // Half of the inputs have exactly the types.
    if random.chance(50) {
        return input;
    }
    for _ in 0..=random.below(3) {
        let names: Vec<String> = fields.keys().cloned().collect();
        let Some(name) = names.get(random.below(names.len().max(1))) else {
            break;
        };
        if random.chance(35) {
            fields.remove(name);
        } else {
            fields.insert(name.clone(), any(random, 2));
        }
    }
    input
}

/// A value of the type, or now and then of any other.
pub(super) fn of_type(random: &mut Random, gives: Type) -> Value {
    if random.chance(8) {
        return any(random, 2);
    }
    match gives {
        Type::Any => any(random, 2),
        Type::Bool => random.chance(50).into(),
        Type::Number => number(random),
        Type::Nanoseconds => random.pick(LARGE).into(),
        Type::Text => word(random).into(),
        Type::Time => random.pick(TIMES).into(),
        Type::Version => random.pick(VERSIONS).into(),
        Type::TextArray | Type::TextList => words(random),
        Type::NumberArray => (0..random.below(4)).map(|_| number(random)).collect(),
        Type::Set | Type::Arguments => (0..random.below(4)).map(|_| any(random, 1)).collect(),
        Type::Sets => (0..random.below(3)).map(|_| words(random)).collect(),
        Type::Object if random.chance(30) => labels(random),
        Type::Object => {
            let mut object = Map::new();
            for _ in 0..random.below(4) {
                object.insert(random.pick(KEYS).to_owned(), nested(random, 3));
            }
            object.into()
        }
        Type::Items => items(random),
        Type::Paths => (0..random.below(3)).map(|_| path(random)).collect(),
    }
}

/// Keys that paths select by.
const KEYS: &[&str] = &["a", "b", "0", "1", "", "a/b", "~", "labels"];

/// Arrays and objects in one another.
fn nested(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 2 } else { 5 }) {
        0 => word(random).into(),
        1 => number(random),
        2 => (0..random.below(4)).map(|_| nested(random, depth - 1)).collect(),
        _ => {
            let mut object = Map::new();
            for _ in 0..random.below(4) {
                object.insert(random.pick(KEYS).to_owned(), nested(random, depth - 1));
            }
            object.into()
        }
    }
}

fn path(random: &mut Random) -> Value {
    let keys: Vec<&str> = (0..random.below(4)).map(|_| random.pick(KEYS)).collect();
    match random.below(4) {
        0 => json!(keys),
        1 => json!([random.pick(KEYS), random.below(3)]),
        _ => keys.join("/").into(),
    }
}

/// Positions in a list, mostly as numbers.
fn order(random: &mut Random) -> Value {
    let texts = random.chance(25);
    let position = |random: &mut Random| match random.below(3) {
        at if texts => json!(at.to_string()),
        at => json!(at),
    };
    (0..random.below(3)).map(|_| position(random)).collect()
}

pub(super) fn data(random: &mut Random) -> Vec<(String, Value)> {
    vec![
        ("teams".to_owned(), json!({"blue": words(random), "red": words(random)})),
        (
            "limits".to_owned(),
            json!({"get": number(random), "delete": 3, "create": any(random, 1)}),
        ),
        ("names".to_owned(), words(random)),
        ("order".to_owned(), order(random)),
        ("rows".to_owned(), json!([words(random), {"a": "b"}, order(random)])),
    ]
}
