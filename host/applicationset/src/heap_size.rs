//! Estimates the heap size of JSON values in bytes. An estimate is rather too high than too low.
//!
//! A small value takes more than its text: a mapping with one short string has a tree node with
//! room for eleven members. Counting only strings would let a set take many times its budget.
//!
//! Invariant: measuring a value does not recurse into it.
//!
//! Invariant: what generators and templates make is measured before it is made, YAML and JSON while they are read.

use serde_json::{Map, Value};

/// Bytes of any value itself, in any position.
pub(super) const VALUE_BYTES: u64 = 32;
/// Bytes of a string in addition to its characters.
const STRING_OVERHEAD_BYTES: u64 = 16;
/// Bytes of a string without its characters.
pub(super) const STRING_BYTES: u64 = VALUE_BYTES + STRING_OVERHEAD_BYTES;
/// Bytes of the first node of a mapping.
const LEAF: u64 = 640;
/// Number of members that the first node holds.
const LEAF_MEMBERS: u64 = 11;
/// Bytes of each further member in the next nodes, which are not full.
const MEMBER: u64 = 100;

pub(super) fn of(value: &Value) -> u64 {
    let mut bytes = 0_u64;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        let own = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(inner) => text(inner),
            Value::Array(items) => {
                open.extend(items);
                0
            }
            Value::Object(members) => {
                open.extend(members.values());
                let keys = members.keys().map(|key| text(key));
                keys.fold(map_overhead(members.len()), u64::saturating_add)
            }
        };
        bytes = bytes.saturating_add(VALUE_BYTES).saturating_add(own);
    }
    bytes
}

pub(super) fn of_members(members: &Map<String, Value>) -> u64 {
    map_overhead(members.len()).saturating_add(inside(members))
}

/// Heap size of a mapping with the members of both, in bytes.
pub(super) fn of_both(one: &Map<String, Value>, other: &Map<String, Value>) -> u64 {
    let overhead = map_overhead(one.len().saturating_add(other.len()));
    overhead.saturating_add(inside(one)).saturating_add(inside(other))
}

/// Heap size of a string in bytes; an empty one takes none.
pub(super) fn text(text: &str) -> u64 {
    match text.len() {
        0 => 0,
        length => count(length).saturating_add(STRING_OVERHEAD_BYTES),
    }
}

/// Heap size of a mapping without its keys and values, in bytes.
pub(super) fn map_overhead(members: usize) -> u64 {
    match count(members) {
        0 => 0,
        members => LEAF.saturating_add(members.saturating_sub(LEAF_MEMBERS).saturating_mul(MEMBER)),
    }
}

/// What one more member adds to [`map_overhead`].
pub(super) fn map_growth(members: usize) -> u64 {
    map_overhead(members.saturating_add(1)).saturating_sub(map_overhead(members))
}

fn inside(members: &Map<String, Value>) -> u64 {
    let members = members.iter().map(|(key, value)| text(key).saturating_add(of(value)));
    members.fold(0, u64::saturating_add)
}

pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{LEAF, MEMBER, STRING_OVERHEAD_BYTES, VALUE_BYTES, map_growth, map_overhead, of, of_both, of_members};

    #[test]
    fn small_values_count_as_well() {
        for (value, expected) in [
            (json!(null), VALUE_BYTES),
            (json!(1), VALUE_BYTES),
            (json!(""), VALUE_BYTES),
            (json!("ab"), VALUE_BYTES + STRING_OVERHEAD_BYTES + 2),
            (json!([]), VALUE_BYTES),
            (json!(["", 1, [true]]), 5 * VALUE_BYTES),
            (json!({}), VALUE_BYTES),
            (json!({"a": {}}), 2 * VALUE_BYTES + LEAF + STRING_OVERHEAD_BYTES + 1),
        ] {
            assert_eq!(of(&value), expected, "{value}");
        }
    }

    #[test]
    fn members_count_alone_and_together() {
        let members = |keys: std::ops::Range<u32>| -> Map<String, Value> {
            keys.map(|key| (format!("{key:02}"), json!(""))).collect()
        };
        let (few, more) = (members(0..11), members(20..25));
        let each = VALUE_BYTES + STRING_OVERHEAD_BYTES + 2;
        assert_eq!(of_members(&few), LEAF + 11 * each);
        assert_eq!(of_both(&few, &more), LEAF + 5 * MEMBER + 16 * each);
        assert_eq!(of_both(&few, &Map::new()), of_members(&few));
        assert_eq!(of(&Value::Object(more.clone())), VALUE_BYTES + of_members(&more));
        assert_eq!((0..30).map(map_growth).sum::<u64>(), map_overhead(30));
    }

    #[test]
    fn a_deep_value_needs_no_deep_stack() {
        let mut deep = json!([]);
        for _ in 0..100_000 {
            deep = Value::Array(vec![deep]);
        }
        assert_eq!(of(&deep), 100_001 * VALUE_BYTES);
        // Dropping it normally would recurse as deeply.
        while let Value::Array(mut items) = deep {
            deep = items.pop().unwrap_or_default();
        }
    }

    #[test]
    fn estimates_are_at_least_the_size_of_the_rust_values() {
        assert_eq!(usize::try_from(VALUE_BYTES).unwrap(), size_of::<Value>());
        let leaf = 11 * (size_of::<String>() + size_of::<Value>());
        assert!(map_overhead(1) >= u64::try_from(leaf).unwrap());
    }
}
