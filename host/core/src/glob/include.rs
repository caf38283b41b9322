//! Whether one pattern matches all that another does.
//!
//! In: two patterns without separators. Out: yes only when it is so. Never: work
//! beyond a bound; what it cannot tell within it is a no.

use std::collections::{BTreeSet, HashSet};

use super::Pattern;
use super::witness::Machine;

/// States and characters one answer may try.
const STEPS: usize = 200_000;

impl Pattern {
    /// Whether this pattern matches every text `narrow` matches, both without
    /// separators. A no may also mean that it could not be told within the bound.
    pub fn includes(&self, narrow: &Self) -> bool {
        if self.is_everything() || self.source() == narrow.source() {
            return true;
        }
        if let Some(literal) = narrow.literal() {
            return self.matches(literal);
        }
        let apart = |one: &str, two: &str| !one.starts_with(two) && !two.starts_with(one);
        if apart(self.literal_prefix(), narrow.literal_prefix()) {
            return false;
        }
        // The machines do not know texts laid over each other.
        if narrow.witnesses().iter().any(|text| !self.matches(text)) {
            return false;
        }
        match (Machine::new(self), Machine::new(narrow)) {
            (Some(wide), Some(narrow)) => wide.accepts_all_of(&narrow),
            (None, _) | (_, None) => false,
        }
    }
}

impl Machine {
    /// Walks `narrow` one state at a time and this machine in all its states at
    /// once; a text only `narrow` accepts is the deny.
    fn accepts_all_of(&self, narrow: &Self) -> bool {
        let alphabet = representatives(self.alphabet().iter().chain(narrow.alphabet()));
        let mut seen: HashSet<(usize, BTreeSet<usize>)> = HashSet::new();
        let start: BTreeSet<usize> = self.settle(0).into_iter().collect();
        let mut pending: Vec<(usize, BTreeSet<usize>)> =
            narrow.settle(0).into_iter().map(|at| (at, start.clone())).collect();
        let mut steps = 0_usize;
        while let Some((at, states)) = pending.pop() {
            if narrow.accepts(at) && !states.iter().any(|state| self.accepts(*state)) {
                return false;
            }
            if !seen.insert((at, states.clone())) {
                continue;
            }
            for c in &alphabet {
                let reached = narrow.step(at, *c);
                steps = steps.saturating_add(1 + states.len());
                if steps > STEPS {
                    return false;
                }
                if reached.is_empty() {
                    continue;
                }
                let next: BTreeSet<usize> = states.iter().flat_map(|state| self.step(*state, *c)).collect();
                pending.extend(reached.into_iter().map(|at| (at, next.clone())));
            }
        }
        true
    }
}

/// A character of each stretch the patterns treat alike: those they name and their
/// neighbors.
fn representatives<'a>(named: impl Iterator<Item = &'a char>) -> BTreeSet<char> {
    let near = |c: char, by: i64| {
        let code = u32::try_from(i64::from(u32::from(c)) + by).ok()?;
        char::from_u32(code)
    };
    let mut all = BTreeSet::from(['\u{1}']);
    for c in named {
        all.extend([near(*c, -1), Some(*c), near(*c, 1)].into_iter().flatten());
    }
    all
}
