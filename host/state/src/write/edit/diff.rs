//! Computes which items to remove and insert to turn one list into another.
//!
//! Invariant: items that both lists have in the same order stay in place, and so do their comments.
//! Of lists with more than [`MAX_PAIRS`] pairs of items, a few of them may be written anew.

use serde_json::Value;
use similar::algorithms::{Capture, Replace, lcs, myers};
use similar::{DiffOp, DiffTag};

/// Most pairs of items that are compared to find what two lists have in common.
const MAX_PAIRS: usize = 1_000_000;

/// The changes that turn the old list into the new one, keeping as many items as possible.
pub(super) fn diff(old: &[Value], new: &[Value]) -> Vec<DiffOp> {
    let mut hunks = Replace::new(Capture::new());
    let (from, to) = (0..old.len(), 0..new.len());
    let Ok(()) = if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        myers::diff(&mut hunks, old, from, new, to)
    } else {
        lcs::diff_deadline_raw(&mut hunks, old, from, new, to, None)
    };
    let mut hunks = hunks.into_inner().into_ops();
    hunks.retain(|hunk| hunk.tag() != DiffTag::Equal);
    hunks
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::diff;

    #[test]
    fn items_of_both_lists_are_in_no_hunk() {
        let list = |text: &str| -> Vec<Value> { text.chars().map(|c| c.to_string().into()).collect() };
        let check = |old: &str, new: &str, expected: &[(usize, usize, usize, usize)]| {
            let hunks = diff(&list(old), &list(new));
            let hunks: Vec<_> = hunks
                .iter()
                .map(|hunk| (hunk.old_range(), hunk.new_range()))
                .map(|(removed, inserted)| (removed.start, removed.end, inserted.start, inserted.end))
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
