//! Compares the functions that work on characters, for every Unicode character. A test run leaves out most of those
//! that no function treats in a special way: ideographs, private and unassigned ones. `cargo xtask nightly` sets
//! `TOLLGATE_DIFFERENTIAL_PAIRS`, with which all are compared.

use serde_json::{Value, json};
use tollgate_applicationset::MissingKey;

use super::{Outcome, Pair, ask, compared, setting};
use test_support::judge::Judge;

/// Characters in the parameters of one template.
const LETTERS: usize = 512;
/// Pairs in one question to the judge.
const BATCH: usize = 64;

/// Most put text around a character, because functions that trim would remove it at an edge.
const TEXTS: &[&str] = &[
    "{{ range .letters }}{{ print \"a\" . \"b\" | normalize }}|{{ end }}",
    "{{ range .letters }}{{ print . \"b\" . | trim }}|{{ end }}",
    "{{ range .letters }}{{ squote . }}{{ toJson . }}|{{ end }}",
    "{{ range .letters }}{{ splitList \"\" (print . \"b\" .) | join \",\" }}|{{ end }}",
    "{{ range .letters }}{{ printf \"%3s%-3v%.1s\" . . . }}|{{ end }}",
];

#[test]
fn every_letter_is_the_same_to_argo_cd() {
    let judge = Judge::start();
    let is_whole = setting("TOLLGATE_DIFFERENTIAL_PAIRS").is_some();
    let all: Vec<char> = (char::MIN..=char::MAX)
        .filter(|letter| is_whole || is_compared_always(*letter))
        .collect();
    let mut pairs = Vec::new();
    for letters in all.chunks(LETTERS) {
        let letters: Vec<Value> = letters.iter().map(|letter| json!(letter.to_string())).collect();
        let parameters = json!({"letters": letters});
        pairs.extend(TEXTS.iter().map(|text| pair(text, &parameters)));
    }
    let latin: Vec<Value> = ('\0'..='\u{17f}').map(|letter| json!(letter.to_string())).collect();
    let cases = "{{ range .letters }}{{ print \"a\" . \"b\" | upper }}{{ print \"a\" . \"b\" | lower }}|{{ end }}";
    pairs.push(pair(cases, &json!({"letters": latin})));
    let ascii: Vec<Value> = ('\0'..='\u{7f}').map(|letter| json!(letter.to_string())).collect();
    for function in ["title", "untitle", "swapcase", "quote", "printf \"%q\""] {
        let text = format!("{{{{ range .letters }}}}{{{{ print \"aB\" . \"cD\" | {function} }}}}|{{{{ end }}}}");
        pairs.push(pair(&text, &json!({"letters": ascii})));
    }
    let mut wrong = Vec::new();
    for pairs in pairs.chunks(BATCH) {
        for (pair, theirs) in pairs.iter().zip(ask(&judge, pairs)) {
            if compared(pair, &theirs) != Outcome::Same {
                wrong.push(differing(pair, &judge));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} templates render differently:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The planes with alphabets, symbols, marks and tags, and one of 61 characters of the others.
fn is_compared_always(letter: char) -> bool {
    let number = u32::from(letter);
    matches!(number >> 16, 0 | 1 | 14) || number.is_multiple_of(61)
}

fn pair(text: &str, parameters: &Value) -> Pair {
    Pair {
        text: text.to_owned(),
        parameters: parameters.clone(),
        missing_key: MissingKey::Default,
        is_fast: false,
    }
}

/// The first character on which the two sides differ, and how many more there are.
fn differing(whole: &Pair, judge: &Judge) -> String {
    let letters = whole.parameters["letters"].as_array().unwrap();
    let single: Vec<Pair> = letters
        .iter()
        .map(|letter| pair(&whole.text, &json!({"letters": [letter]})))
        .collect();
    let answers = ask(judge, &single);
    let outcomes = single
        .iter()
        .zip(answers)
        .map(|(pair, theirs)| (pair, compared(pair, &theirs)));
    let mut differing = outcomes.filter(|(_, outcome)| *outcome != Outcome::Same);
    let first = differing.next();
    let more = differing.count();
    format!("{}: {first:?} and {more} more", whole.text)
}
