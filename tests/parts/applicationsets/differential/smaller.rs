//! Minimizes a pair on which the two sides differ.

use super::{Outcome, Pair, ask, compared};
use test_support::judge::Judge;

/// The most rounds for one pair.
const ROUNDS: usize = 60;

/// Describes the smallest pair found that still differs, with both results.
pub(super) fn minimized(judge: &Judge, pair: &Pair, results: &str) -> String {
    let (mut pair, mut results) = (pair.clone(), results.to_owned());
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
                    Outcome::Unexplained(results) => Some((candidate, results)),
                    Outcome::Same | Outcome::BothFail | Outcome::Refused(_) => None,
                });
        let Some(next) = found else { break };
        (pair, results) = next;
    }
    let Pair {
        text,
        parameters,
        missing_key,
        is_fast,
    } = pair;
    format!("{text:?} {missing_key:?} fast {is_fast}\n    given  {parameters}\n    {results}")
}

/// The pair with one parameter or a part of its text removed, the largest parts first.
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
