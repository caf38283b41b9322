//! Makes a failing sequence minimal: the fewest writes that still end in the same kind of violation.

use super::world::Installation;
use super::{Sequence, run};

/// The largest number of writes before the last for which every choice of them is tried.
const EXHAUSTIVE: usize = 3;

pub(super) async fn minimal(installation: &mut Installation, sequence: &Sequence, rule: &str) -> Sequence {
    let mut best = sequence.clone();
    // Without one after the other, from the back: what stays is needed for the rest.
    let mut at = best.writes.len().saturating_sub(1);
    while at > 0 {
        at -= 1;
        let mut shorter = best.clone();
        shorter.writes.remove(at);
        if fails(installation, &shorter, rule).await {
            best = shorter;
        }
    }
    // Fewer others may do as well.
    let Some((last, earlier)) = sequence.writes.split_last() else {
        return best;
    };
    for count in 0..best.writes.len().saturating_sub(1).min(EXHAUSTIVE) {
        for chosen in choices(earlier.len(), count) {
            let writes = chosen.iter().map(|at| earlier[*at]).chain([*last]).collect();
            let shorter = Sequence { writes, ..best.clone() };
            if fails(installation, &shorter, rule).await {
                return shorter;
            }
        }
    }
    best
}

async fn fails(installation: &mut Installation, sequence: &Sequence, rule: &str) -> bool {
    let outcome = run(installation, sequence).await;
    outcome.violations.iter().any(|(_, violation)| violation.rule == rule)
}

/// Every choice of `count` of the first `all` numbers, in order.
fn choices(all: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for last in 0..all {
        for mut chosen in choices(last, count - 1) {
            chosen.push(last);
            found.push(chosen);
        }
    }
    found
}
