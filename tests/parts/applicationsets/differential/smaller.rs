//! A difference, made small enough to read.

use super::{Outcome, Pair, ask, compared};
use test_support::judge::Judge;

/// Rounds of making one pair smaller.
const ROUNDS: usize = 60;

/// The smallest pair found that still differs, and what both sides say of it.
pub(super) fn shown(judge: &Judge, pair: &Pair, said: &str) -> String {
    let (mut pair, mut said) = (pair.clone(), said.to_owned());
    for _ in 0..ROUNDS {
        let candidates = candidates(&pair);
        if candidates.is_empty() {
            break;
        }
        let answers = ask(judge, &candidates);
        let found =
            candidates
                .into_iter()
                .zip(answers)
                .find_map(|(candidate, theirs)| match compared(&candidate, &theirs) {
                    Outcome::Unexplained(said) => Some((candidate, said)),
                    Outcome::Same | Outcome::Wrong | Outcome::Refused(_) => None,
                });
        let Some(next) = found else { break };
        (pair, said) = next;
    }
    let Pair {
        text,
        parameters,
        missing_key,
        is_fast,
    } = pair;
    format!("{text:?} {missing_key:?} fast {is_fast}\n    given  {parameters}\n    {said}")
}

/// The pair with a part of its text or one parameter left out, the largest parts first.
fn candidates(pair: &Pair) -> Vec<Pair> {
    let mut candidates = Vec::new();
    for key in pair.parameters.as_object().unwrap().keys() {
        let mut fewer = pair.clone();
        fewer.parameters.as_object_mut().unwrap().remove(key);
        if !fewer.parameters.as_object().unwrap().is_empty() && !pair.text.contains(key.as_str()) {
            candidates.push(fewer);
            break;
        }
    }
    let letters: Vec<char> = pair.text.chars().collect();
    let mut length = letters.len() / 2;
    while length > 0 {
        for start in (0..letters.len()).step_by(length.div_ceil(2)) {
            let end = (start + length).min(letters.len());
            let text = letters[..start].iter().chain(&letters[end..]).collect();
            candidates.push(Pair { text, ..pair.clone() });
        }
        length /= 2;
    }
    candidates.truncate(2_000);
    candidates
}
