//! Decides whether one pattern matches everything that another one matches, for patterns without
//! separators.
//!
//! Invariant: the work is bounded, and a "yes" is always right. A "no" may mean that the bound was
//! reached.

use std::collections::{BTreeSet, HashSet};

use super::Pattern;
use super::witness::Nfa;

/// Most combinations of states and characters that one answer tries.
const MAX_STEPS: usize = 200_000;

impl Pattern {
    /// Whether this pattern matches every text that `narrow` matches. Both must have no separators.
    /// `false` may also mean that the bound was reached first.
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
        // The automata cannot express overlapping texts.
        if narrow.witnesses().iter().any(|text| !self.matches(text)) {
            return false;
        }
        match (Nfa::new(self), Nfa::new(narrow)) {
            (Some(wide), Some(narrow)) => wide.accepts_all_of(&narrow),
            (None, _) | (_, None) => false,
        }
    }
}

impl Nfa {
    /// Steps through `narrow` one state at a time, and through this automaton in all its states at
    /// once. A text that only `narrow` accepts makes the answer `false`.
    fn accepts_all_of(&self, narrow: &Self) -> bool {
        let alphabet = representatives(self.alphabet.iter().chain(&narrow.alphabet));
        let mut seen: HashSet<(u32, BTreeSet<u32>)> = HashSet::new();
        let (wide, narrow) = (&self.program, &narrow.program);
        let start: BTreeSet<u32> = wide.epsilon_closure(0).into_iter().collect();
        let mut pending: Vec<(u32, BTreeSet<u32>)> = narrow
            .epsilon_closure(0)
            .into_iter()
            .map(|at| (at, start.clone()))
            .collect();
        let mut steps = 0_usize;
        while let Some((at, states)) = pending.pop() {
            if narrow.accepts(at) && !states.iter().any(|state| wide.accepts(*state)) {
                return false;
            }
            if !seen.insert((at, states.clone())) {
                continue;
            }
            for c in &alphabet {
                let reached = narrow.step(at, *c);
                steps = steps.saturating_add(1 + states.len());
                if steps > MAX_STEPS {
                    return false;
                }
                if reached.is_empty() {
                    continue;
                }
                let next: BTreeSet<u32> = states.iter().flat_map(|state| wide.step(*state, *c)).collect();
                pending.extend(reached.into_iter().map(|at| (at, next.clone())));
            }
        }
        true
    }
}

/// One character of each range that the patterns treat alike: the characters that occur in them
/// and the neighbors of these.
fn representatives<'a>(listed: impl Iterator<Item = &'a char>) -> BTreeSet<char> {
    // Patterns such as `?*` list no character, but one must be tried.
    let mut all = BTreeSet::from(['\u{1}']);
    for c in listed {
        // Ranges of characters step over the surrogates.
        let (before, after) = (('\0'..=*c).nth_back(1), (*c..=char::MAX).nth(1));
        all.extend([before, Some(*c), after].into_iter().flatten());
    }
    all
}
