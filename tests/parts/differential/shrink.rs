//! Makes smaller versions of a case in JSON, each with one part removed, the largest parts first.

use serde_json::Value;

/// Single characters are removed only from texts of at most this many.
const CHARACTERS: usize = 80;
/// The most versions of one round.
const MOST: usize = 150;

/// Versions of the value with one part removed.
pub(crate) fn smaller(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    parts(value, &mut |smaller| found.push(smaller));
    found.truncate(MOST);
    found
}

fn parts(value: &Value, found: &mut dyn FnMut(Value)) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => texts(text).into_iter().for_each(|text| found(Value::String(text))),
        Value::Array(list) => {
            for at in 0..list.len() {
                // Single items first: often one request of many shows the difference.
                if list.len() > 2 {
                    found(Value::Array(vec![list[at].clone()]));
                }
            }
            for at in 0..list.len() {
                let mut less = list.clone();
                less.remove(at);
                found(Value::Array(less));
            }
            for (at, item) in list.iter().enumerate() {
                parts(item, &mut |item| {
                    let mut less = list.clone();
                    less[at] = item;
                    found(Value::Array(less));
                });
            }
        }
        Value::Object(map) => {
            for key in map.keys() {
                let mut less = map.clone();
                less.remove(key);
                found(Value::Object(less));
            }
            for (key, item) in map {
                parts(item, &mut |item| {
                    let mut less = map.clone();
                    less.insert(key.clone(), item);
                    found(Value::Object(less));
                });
            }
        }
    }
}

fn texts(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let without = |pieces: &[&str], at: usize, joint: &str| {
        let kept = pieces.iter().enumerate().filter(|(index, _)| *index != at);
        kept.map(|(_, piece)| *piece).collect::<Vec<_>>().join(joint)
    };
    for joint in ["\n", "&", "/", ", "] {
        let pieces: Vec<&str> = text.split(joint).collect();
        if pieces.len() > 1 {
            found.extend((0..pieces.len()).map(|at| without(&pieces, at, joint)));
        }
    }
    let letters: Vec<char> = text.chars().collect();
    if letters.len() > 3 {
        let half = letters.len() / 2;
        found.push(letters[half..].iter().collect());
        found.push(letters[..half].iter().collect());
    }
    if letters.len() <= CHARACTERS {
        for at in 0..letters.len() {
            let mut less = letters.clone();
            less.remove(at);
            found.push(less.iter().collect());
        }
    }
    found
}
