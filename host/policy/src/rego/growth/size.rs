//! Upper bounds on the size of a value, as seen by what walks its whole tree.
//!
//! In: sizes of parts. Out: the size of the whole. Never: less than the value
//! has when it is evaluated with an input of the sizes below; what cannot be
//! told counts as large.

use serde_json::Value as Json;

use super::super::{INSTRUCTIONS, MEMORY_BYTES};

/// Bytes of text or of digits that count as one node.
const TEXT_UNIT: usize = 64;
/// Size of a text of `input`: 512 bytes.
const INPUT_TEXT: u64 = 8;
/// Items of a list of `input` whose schema has no `maxItems`.
const INPUT_ITEMS: u64 = 256;
/// Turns all loops of one decision can take together: each costs an instruction.
const TURNS: u64 = INSTRUCTIONS as u64;
/// Values that fit into the memory of one decision, 16 bytes and more each;
/// half of them because a built-in can overshoot.
const SLOTS: u64 = MEMORY_BYTES / 8;

/// How large a value can be. Counts saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Size {
    /// Nodes of the tree, a shared value counted wherever it stands.
    pub(super) tree: u64,
    /// The largest tree among its parts that were there before: built in an
    /// earlier statement, by another rule, or read from `input` and `data`.
    shared: u64,
    /// The largest tree of a direct item.
    item: u64,
    /// The largest tree of a direct key.
    key: u64,
    /// Direct items.
    pub(super) length: u64,
    /// Levels of brackets.
    pub(super) depth: u64,
    /// The largest text or number anywhere in it, in nodes.
    pub(super) scalar: u64,
    /// Levels of keys in keys that are no texts. Writing one out as text
    /// escapes its quotes, those of the level below once more, and so on.
    escapes: u32,
}

impl Size {
    /// Nothing: what a definition gives that cannot be the one that counts.
    pub(super) const NONE: Self = Self::scalar(0);
    /// A boolean, null, a small number or an empty collection.
    pub(super) const ONE: Self = Self::scalar(1);

    /// A text or number of `nodes`.
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

    /// A text of `bytes`.
    pub(super) fn text(bytes: usize) -> Self {
        Self::scalar(1 + (bytes / TEXT_UNIT) as u64)
    }

    /// The pieces `split` makes: one for each byte, if need be.
    pub(super) fn pieces(self) -> Self {
        let length = self.scalar.saturating_mul(TEXT_UNIT as u64).saturating_add(1);
        Self {
            tree: length.saturating_add(self.scalar),
            shared: self.scalar,
            item: self.scalar,
            key: 1,
            length,
            depth: 1,
            scalar: self.scalar,
            escapes: 0,
        }
    }

    /// A literal with these entries: key, if it has one of its own, and value.
    pub(super) fn literal(entries: impl Iterator<Item = (Option<Self>, Self)>) -> Self {
        let mut whole = Self { depth: 1, ..Self::ONE };
        for (key, value) in entries {
            whole = whole.grown(key, value, 1);
        }
        whole
    }

    /// A collection that gets an entry in each of at most `turns` turns.
    ///
    /// What the turns build is new each time, so memory bounds it; what they
    /// refer to is not.
    pub(super) fn collected(key: Option<Self>, value: Self, turns: u64) -> Self {
        let mut whole = Self { depth: 1, ..Self::ONE }.grown(key, value, turns.min(TURNS));
        whole.tree = whole.tree.min(SLOTS.saturating_mul(whole.shared.max(1)));
        whole
    }

    fn grown(self, key: Option<Self>, value: Self, turns: u64) -> Self {
        let own = key.unwrap_or(Self::NONE);
        let entry = own.tree.saturating_add(value.tree);
        Self {
            tree: self.tree.saturating_add(entry.saturating_mul(turns)),
            shared: self.shared.max(own.shared).max(value.shared),
            item: self.item.max(value.tree),
            // The key of an array's item is a number, that of a set's the item.
            key: self.key.max(if key.is_some() { own.tree } else { value.tree.max(1) }),
            length: self.length.saturating_add(turns),
            depth: self.depth.max(own.depth.max(value.depth).saturating_add(1)),
            scalar: self.scalar.max(own.scalar).max(value.scalar),
            escapes: self
                .escapes
                .max(value.escapes)
                .max(own.escapes.saturating_add(u32::from(own.depth > 0))),
        }
    }

    /// The same value, under a name: all of it is there already.
    pub(super) fn named(self) -> Self {
        Self {
            shared: self.tree,
            ..self
        }
    }

    /// Any item.
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
            scalar: self.scalar,
            escapes: self.escapes,
        }
    }

    /// One of two values.
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

    /// Nodes of the text that it is when written out.
    pub(super) fn written(self) -> u64 {
        self.tree
            .saturating_mul(1_u64.checked_shl(self.escapes).unwrap_or(u64::MAX))
    }

    /// All items of two values in one.
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            tree: self.tree.saturating_add(other.tree),
            length: self.length.saturating_add(other.length),
            ..self.either(other)
        }
    }

    /// The items of all its items in one.
    pub(super) fn merged(self) -> Self {
        Self {
            tree: self.tree,
            length: self.tree,
            ..self.any_item()
        }
    }

    /// The keys of it as a set.
    pub(super) fn keys(self) -> Self {
        Self { item: self.key, ..self }
    }

    /// A value with no structure left: what a function makes of all texts and
    /// numbers of it, `factor` times as long.
    pub(super) fn flat(nodes: u64, factor: u64) -> Self {
        Self::scalar(nodes.max(1).saturating_mul(factor))
    }

    /// What a JSON value has.
    pub(super) fn of_json(value: &Json) -> Self {
        match value {
            Json::Null | Json::Bool(_) => Self::ONE,
            Json::Number(number) => Self::text(number.to_string().len()),
            Json::String(text) => Self::text(text.len()),
            Json::Array(items) => {
                Self::literal(items.iter().map(|item| (Some(Self::ONE), Self::of_json(item)))).named()
            }
            Json::Object(entries) => {
                let entries = entries.iter();
                Self::literal(entries.map(|(key, value)| (Some(Self::text(key.len())), Self::of_json(value)))).named()
            }
        }
    }

    /// What a value has that fits the JSON Schema `schema`, a part of `whole`.
    pub(super) fn of_schema(whole: &Json, schema: &Json) -> Self {
        let schema = resolved(whole, schema);
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
        .named()
    }
}

/// The schema a `$ref` of `whole` means.
pub(super) fn resolved<'a>(whole: &'a Json, schema: &'a Json) -> &'a Json {
    let target = schema.get("$ref").and_then(Json::as_str);
    target
        .and_then(|target| whole.pointer(target.strip_prefix('#')?))
        .unwrap_or(schema)
}
