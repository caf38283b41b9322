//! Upper bounds on the size of a value, counted as an operation that traverses its whole tree sees
//! it. The size of a whole is computed from the sizes of its parts.
//!
//! Invariant: a bound is never less than the size at evaluation, if the input has the sizes below.
//! What cannot be determined counts as large.

use serde_json::Value as Json;

use crate::limits::MAX_MEMORY_BYTES;
use crate::schema::resolved;

/// Bytes of text or digits that count as one node.
const BYTES_PER_NODE: usize = 64;
/// Size of a text of `input`, in nodes: 512 bytes.
const INPUT_TEXT: u64 = 8;
/// Number of items of a list of `input` whose schema has no `maxItems`.
const INPUT_ITEMS: u64 = 256;
/// Maximum number of iterations of all loops of one decision together, in the time that it may take.
const MAX_ITERATIONS: u64 = 100_000;
/// Number of values that fit into the memory of one decision at 16 bytes or more each, doubled
/// because a built-in can overshoot.
const MAX_VALUES: u64 = MAX_MEMORY_BYTES / 8;

/// Upper bounds on one value. All counts saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Size {
    /// Nodes of the tree; a shared value counts at every place.
    pub(super) tree: u64,
    /// The largest tree among its parts that existed before: those built in an earlier statement or
    /// by another rule, or read from `input` and `data`.
    shared: u64,
    /// The largest tree of a direct item.
    item: u64,
    /// The largest tree of a direct key.
    key: u64,
    pub(super) length: u64,
    pub(super) depth: u64,
    /// The largest text or number anywhere in it, in nodes.
    pub(super) scalar: u64,
    /// Levels of keys in keys that are not texts. Writing such a key out as text escapes its quotes
    /// once more on each level.
    escapes: u32,
}

impl Size {
    /// No value: used where a definition cannot be the one that counts.
    pub(super) const NONE: Self = Self::scalar(0);
    /// A boolean, null, a small number or an empty collection.
    pub(super) const ONE: Self = Self::scalar(1);

    pub(super) const fn scalar(nodes: u64) -> Self {
        Self {
            tree: nodes,
            shared: nodes,
            item: 0,
            key: 0,
            length: 0,
            depth: 0,
            scalar: nodes,
            escapes: 0,
        }
    }

    pub(super) fn text(bytes: usize) -> Self {
        Self::scalar(1 + (bytes / BYTES_PER_NODE) as u64)
    }

    /// The pieces that `split` makes: up to one for each byte.
    pub(super) fn pieces(self) -> Self {
        let length = self.scalar.saturating_mul(BYTES_PER_NODE as u64).saturating_add(1);
        Self {
            tree: length.saturating_add(self.scalar),
            item: self.scalar,
            key: 1,
            length,
            depth: 1,
            ..Self::scalar(self.scalar)
        }
    }

    /// Results of splitting a text at a separator.
    pub(super) fn parameters(self) -> Self {
        let values = self.pieces();
        Self {
            tree: values.tree.saturating_mul(3),
            item: values.tree,
            key: self.scalar,
            length: values.length,
            depth: 2,
            ..Self::scalar(self.scalar)
        }
    }

    /// A literal with these entries: the key, if the entry has one, and the value.
    pub(super) fn literal(entries: impl Iterator<Item = (Option<Self>, Self)>) -> Self {
        let mut whole = Self { depth: 1, ..Self::ONE };
        for (key, value) in entries {
            whole = whole.grown(key, value, 1);
        }
        whole
    }

    /// A collection that gets an entry in each of at most `iterations` iterations.
    ///
    /// What the iterations build is new each time, so memory bounds it. What they refer to is not
    /// bounded by memory.
    pub(super) fn collected(key: Option<Self>, value: Self, iterations: u64) -> Self {
        let mut whole = Self { depth: 1, ..Self::ONE }.grown(key, value, iterations.min(MAX_ITERATIONS));
        whole.tree = whole.tree.min(MAX_VALUES.saturating_mul(whole.shared.max(1)));
        whole
    }

    fn grown(self, key: Option<Self>, value: Self, iterations: u64) -> Self {
        let own = key.unwrap_or(Self::NONE);
        let entry = own.tree.saturating_add(value.tree);
        Self {
            tree: self.tree.saturating_add(entry.saturating_mul(iterations)),
            shared: self.shared.max(own.shared).max(value.shared),
            item: self.item.max(value.tree),
            // The key of an array's item is a number, that of a set's item is the item itself.
            key: self.key.max(if key.is_some() { own.tree } else { value.tree.max(1) }),
            length: self.length.saturating_add(iterations),
            depth: self.depth.max(own.depth.max(value.depth).saturating_add(1)),
            scalar: self.scalar.max(own.scalar).max(value.scalar),
            escapes: self
                .escapes
                .max(value.escapes)
                .max(own.escapes.saturating_add(u32::from(own.depth > 0))),
        }
    }

    /// The same value under a name: all of it exists already.
    pub(super) fn into_shared(self) -> Self {
        Self {
            shared: self.tree,
            ..self
        }
    }

    pub(super) fn any_item(self) -> Self {
        self.below(self.item)
    }

    /// Any key; for a set that is any item.
    pub(super) fn any_key(self) -> Self {
        self.below(self.key)
    }

    fn below(self, tree: u64) -> Self {
        let tree = tree.max(1);
        Self {
            tree,
            shared: tree,
            item: tree.min(self.tree),
            key: tree,
            length: tree,
            depth: self.depth.saturating_sub(1),
            ..self
        }
    }

    /// Either of two values: the larger bound in every respect.
    pub(super) fn either(self, other: Self) -> Self {
        Self {
            tree: self.tree.max(other.tree),
            shared: self.shared.max(other.shared),
            item: self.item.max(other.item),
            key: self.key.max(other.key),
            length: self.length.max(other.length),
            depth: self.depth.max(other.depth),
            scalar: self.scalar.max(other.scalar),
            escapes: self.escapes.max(other.escapes),
        }
    }

    /// Nodes of the value written out as text.
    pub(super) fn written(self) -> u64 {
        self.tree
            .saturating_mul(1_u64.checked_shl(self.escapes).unwrap_or(u64::MAX))
    }

    /// A value with all items of two values.
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            tree: self.tree.saturating_add(other.tree),
            length: self.length.saturating_add(other.length),
            ..self.either(other)
        }
    }

    /// A value with the items of all its items.
    pub(super) fn merged(self) -> Self {
        Self {
            tree: self.tree,
            length: self.tree,
            ..self.any_item()
        }
    }

    /// A value with its items and those of its items.
    pub(super) fn flattened(self) -> Self {
        Self {
            length: self.tree,
            ..self
        }
    }

    pub(super) fn keys(self) -> Self {
        Self { item: self.key, ..self }
    }

    /// A value without structure, which a function makes of `nodes` of texts and numbers, `factor`
    /// times as long.
    pub(super) fn flat(nodes: u64, factor: u64) -> Self {
        Self::scalar(nodes.max(1).saturating_mul(factor))
    }

    pub(super) fn of_json(value: &Json) -> Self {
        match value {
            Json::Null | Json::Bool(_) => Self::ONE,
            Json::Number(number) => Self::text(number.to_string().len()),
            Json::String(text) => Self::text(text.len()),
            Json::Array(items) => Self::literal(items.iter().map(|item| (Some(Self::ONE), Self::of_json(item)))),
            Json::Object(entries) => {
                let sizes = |(key, value): (&String, &Json)| (Some(Self::text(key.len())), Self::of_json(value));
                Self::literal(entries.iter().map(sizes))
            }
        }
        .into_shared()
    }

    /// The size of a value that fits the JSON Schema `schema`, a part of `whole`.
    pub(super) fn of_schema(whole: &Json, schema: &Json) -> Self {
        let schema = resolved(whole, schema).unwrap_or(schema);
        let text = |key: &str| Some(Self::text(key.len()));
        match schema.get("type").and_then(Json::as_str) {
            Some("object") => {
                let mut size = Self { depth: 1, ..Self::ONE };
                for (key, value) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
                    size = size.grown(text(key), Self::of_schema(whole, value), 1);
                }
                match schema.get("additionalProperties") {
                    Some(Json::Bool(false)) => size,
                    more => {
                        let value = more.map_or(Self::scalar(INPUT_TEXT), |more| Self::of_schema(whole, more));
                        size.grown(Some(Self::scalar(INPUT_TEXT)), value, INPUT_ITEMS)
                    }
                }
            }
            Some("array") => {
                let items = schema.get("maxItems").and_then(Json::as_u64).unwrap_or(INPUT_ITEMS);
                let item = schema.get("items").unwrap_or(&Json::Null);
                Self { depth: 1, ..Self::ONE }.grown(Some(Self::ONE), Self::of_schema(whole, item), items)
            }
            Some("boolean" | "null") => Self::ONE,
            _ => Self::scalar(INPUT_TEXT),
        }
        .into_shared()
    }
}
