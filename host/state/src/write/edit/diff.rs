//! Computes which items to remove and insert to turn one list into another.
//!
//! Invariant: items that both lists have in the same order stay in place, and so do their comments.

use std::ops::Range;

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    pub(super) removed: Range<usize>,
    pub(super) inserted: Range<usize>,
}

/// Most pairs of items that are compared to find what two lists have in common.
const MAX_PAIRS: usize = 1_000_000;

/// The changes that turn the old list into the new one, keeping as many items as possible.
pub(super) fn diff(old: &[Value], new: &[Value]) -> Vec<Hunk> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()).saturating_sub(head);
    let tails = old.iter().rev().zip(new.iter().rev());
    let tail = tails.take(most).take_while(|(a, b)| a == b).count();
    let old_end = old.len().saturating_sub(tail);
    let new_end = new.len().saturating_sub(tail);
    let middle = (
        old.get(head..old_end).unwrap_or_default(),
        new.get(head..new_end).unwrap_or_default(),
    );
    let mut hunks = Vec::new();
    let (mut removed, mut inserted) = (head, head);
    for (a, b) in common(middle.0, middle.1) {
        let (a, b) = (head.saturating_add(a), head.saturating_add(b));
        hunks.push(Hunk {
            removed: removed..a,
            inserted: inserted..b,
        });
        (removed, inserted) = (a.saturating_add(1), b.saturating_add(1));
    }
    hunks.push(Hunk {
        removed: removed..old_end,
        inserted: inserted..new_end,
    });
    hunks.retain(|hunk| !hunk.removed.is_empty() || !hunk.inserted.is_empty());
    hunks
}

/// A longest sequence of items that both have in the same order, by their numbers.
fn common(old: &[Value], new: &[Value]) -> Vec<(usize, usize)> {
    let width = new.len().saturating_add(1);
    if old.len().saturating_add(1).saturating_mul(width) > MAX_PAIRS {
        return Vec::new();
    }
    // How many items `old[a..]` and `new[b..]` have in common.
    let mut lengths = vec![vec![0_usize; width]; old.len().saturating_add(1)];
    let length = |lengths: &[Vec<usize>], a: usize, b: usize| lengths.get(a).and_then(|row| row.get(b)).copied();
    for (a, before) in old.iter().enumerate().rev() {
        for (b, after) in new.iter().enumerate().rev() {
            let best = if before == after {
                length(&lengths, a + 1, b + 1).unwrap_or(0).saturating_add(1)
            } else {
                length(&lengths, a + 1, b).max(length(&lengths, a, b + 1)).unwrap_or(0)
            };
            if let Some(cell) = lengths.get_mut(a).and_then(|row| row.get_mut(b)) {
                *cell = best;
            }
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut pairs = Vec::new();
    while let (Some(before), Some(after)) = (old.get(a), new.get(b)) {
        if before == after {
            pairs.push((a, b));
            (a, b) = (a + 1, b + 1);
        } else if length(&lengths, a + 1, b) >= length(&lengths, a, b + 1) {
            a += 1;
        } else {
            b += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::diff;

    #[test]
    fn items_of_both_stay() {
        let list = |text: &str| -> Vec<Value> { text.chars().map(|c| c.to_string().into()).collect() };
        let check = |old: &str, new: &str, expected: &[(usize, usize, usize, usize)]| {
            let hunks = diff(&list(old), &list(new));
            let hunks: Vec<_> = hunks
                .iter()
                .map(|hunk| {
                    (
                        hunk.removed.start,
                        hunk.removed.end,
                        hunk.inserted.start,
                        hunk.inserted.end,
                    )
                })
                .collect();
            assert_eq!(hunks, expected, "{old} {new}");
        };
        check("abc", "abc", &[]);
        check("abc", "abcd", &[(3, 3, 3, 4)]);
        check("abc", "xac", &[(0, 0, 0, 1), (1, 2, 2, 2)]);
        check("abc", "", &[(0, 3, 0, 0)]);
        check("ab", "ba", &[(0, 1, 0, 0), (2, 2, 1, 2)]);
        check("aab", "ab", &[(1, 2, 1, 1)]);
    }
}
