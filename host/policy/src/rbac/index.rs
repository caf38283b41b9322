//! Finds the rows of one subject whose patterns match a text, without looking at rows that cannot
//! match.
//!
//! A literal is found by hash; a pattern with literal ends by hash of its prefix, then of its
//! suffix, for each length that occurs. Only patterns that share both ends, and regular
//! expressions, are tried one by one.
//!
//! Invariant: a lookup allocates nothing and takes no lock. It never scans literals, prefixes or
//! suffixes.

use rustc_hash::FxHashMap;

use super::matcher::{Matcher, PatternId, PatternPool};

/// Up to this many literals are compared one by one instead of hashed.
const MAX_LINEAR_LITERALS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Index<V> {
    literals: Literals<V>,
    everything: Option<Box<V>>,
    by_prefix: Option<Box<ByLength<Bucket<V>>>>,
    others: Option<Box<LinearPatterns<V>>>,
    /// The row of an expression that cannot be evaluated; reaching it denies.
    broken: Option<u32>,
}

#[derive(Debug)]
enum Literals<V> {
    Linear(Vec<(Box<str>, V)>),
    Hashed(FxHashMap<Box<str>, V>),
}

#[derive(Debug, Default)]
struct Bucket<V> {
    /// The pattern `prefix*`.
    prefix_only: Option<V>,
    /// Other patterns, by literal suffix.
    by_suffix: ByLength<LinearPatterns<V>>,
}

/// Values by a key of few different lengths.
#[derive(Debug, Default)]
struct ByLength<V> {
    /// Lengths that occur, ascending.
    lengths: Vec<usize>,
    values: FxHashMap<Box<[u8]>, V>,
}

/// Patterns that are tried one by one.
type LinearPatterns<V> = FxHashMap<PatternId, V>;

impl<V> Default for Literals<V> {
    fn default() -> Self {
        Self::Linear(Vec::new())
    }
}

impl<V: Default> Index<V> {
    /// The value of a pattern, created if it does not exist. `None` if the pattern never matches. A
    /// pattern that cannot be evaluated is recorded with `row`.
    pub(super) fn entry(&mut self, id: PatternId, pool: &PatternPool, row: u32) -> Option<&mut V> {
        let pattern = match pool.matcher(id)? {
            Matcher::Glob(pattern) => pattern,
            Matcher::Regex(_) => return Some(self.others.get_or_insert_default().entry(id).or_default()),
            Matcher::BrokenRegex(_) => {
                self.broken.get_or_insert(row);
                return None;
            }
            Matcher::BrokenGlob(_) | Matcher::OutOfBounds(_) => return None,
        };
        if let Some(literal) = pattern.literal() {
            return Some(self.literals.entry(literal));
        }
        if pattern.is_everything() {
            return Some(self.everything.get_or_insert_default());
        }
        let (prefix, suffix) = (pattern.literal_prefix(), pattern.literal_suffix());
        let bucket = self.by_prefix.get_or_insert_default().entry(prefix.as_bytes());
        if suffix.is_empty() && matches!(pattern.source().strip_prefix(prefix), Some("*" | "**")) {
            return Some(bucket.prefix_only.get_or_insert_default());
        }
        Some(bucket.by_suffix.entry(suffix.as_bytes()).entry(id).or_default())
    }
}

impl<V> Index<V> {
    /// Calls `found` for every value whose pattern matches. Returns the row that stopped the
    /// evaluation, if any.
    pub(super) fn visit<'a>(&'a self, text: &str, pool: &PatternPool, found: &mut impl FnMut(&'a V)) -> Option<u32> {
        if let Some(value) = self.literals.get(text) {
            found(value);
        }
        if let Some(value) = &self.everything {
            found(value);
        }
        if let Some(by_prefix) = &self.by_prefix {
            let bytes = text.as_bytes();
            let prefix = |length| bytes.get(..length);
            let suffix = |length| bytes.get(bytes.len().checked_sub(length)?..);
            by_prefix.visit(prefix, &mut |bucket| {
                if let Some(value) = &bucket.prefix_only {
                    found(value);
                }
                let by_suffix = &bucket.by_suffix;
                by_suffix.visit(suffix, &mut |patterns| try_each(patterns, text, pool, found));
            });
        }
        if let Some(others) = &self.others {
            try_each(others, text, pool, found);
        }
        self.broken
    }
}

fn try_each<'a, V>(patterns: &'a LinearPatterns<V>, text: &str, pool: &PatternPool, found: &mut impl FnMut(&'a V)) {
    for (id, value) in patterns {
        if pool.matches(*id, text) {
            found(value);
        }
    }
}

impl<V> Literals<V> {
    fn get(&self, text: &str) -> Option<&V> {
        match self {
            Self::Linear(values) => {
                let mut values = values.iter();
                values.find_map(|(literal, value)| (**literal == *text).then_some(value))
            }
            Self::Hashed(values) => values.get(text),
        }
    }
}

impl<V: Default> Literals<V> {
    fn entry(&mut self, literal: &str) -> &mut V {
        if let Self::Linear(values) = self
            && values.len() >= MAX_LINEAR_LITERALS
            && values.iter().all(|(known, _)| **known != *literal)
        {
            *self = Self::Hashed(std::mem::take(values).into_iter().collect());
        }
        match self {
            Self::Hashed(values) => values.entry(literal.into()).or_default(),
            Self::Linear(values) => {
                let at = values
                    .iter()
                    .position(|(known, _)| **known == *literal)
                    .unwrap_or(values.len());
                if at == values.len() {
                    values.reserve_exact(1);
                    values.push((literal.into(), V::default()));
                }
                #[expect(clippy::indexing_slicing, reason = "`at` was found or pushed just above")]
                &mut values[at].1
            }
        }
    }
}

impl<V: Default> ByLength<V> {
    fn entry(&mut self, key: &[u8]) -> &mut V {
        if let Err(at) = self.lengths.binary_search(&key.len()) {
            self.lengths.insert(at, key.len());
        }
        self.values.entry(key.into()).or_default()
    }
}

impl<V> ByLength<V> {
    /// Calls `found` for every value whose key is the part of that length of a text. `part` returns
    /// `None` if the text is shorter.
    fn visit<'a, 't>(&'a self, part: impl Fn(usize) -> Option<&'t [u8]>, found: &mut impl FnMut(&'a V)) {
        for length in &self.lengths {
            // Lengths ascend, so the text is too short for the remaining ones as well.
            let Some(key) = part(*length) else { return };
            if let Some(value) = self.values.get(key) {
                found(value);
            }
        }
    }
}

/// Rows with one (resource, action, object).
#[derive(Debug, Default)]
pub(super) struct Leaf {
    pub(super) allow: Option<u32>,
    pub(super) deny: Option<u32>,
    pub(super) rows: Vec<u32>,
}

/// Objects of one (resource, action).
pub(super) type Objects = Index<Leaf>;

/// Rows of one subject.
pub(super) type Table = Index<Index<Objects>>;
