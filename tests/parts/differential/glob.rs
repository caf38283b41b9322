//! Compares globs with Argo CD's `util/glob`: single patterns with separators, and lists of
//! patterns.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_core::glob::{ListMode, Pattern, matches_list};

use crate::differential::corpus;
use crate::differential::exception::Exception;
use crate::differential::harness::{Kind, Outcome, Verdict, ask, run};
use crate::differential::random::Random;
use test_support::judge::Judge;

pub(crate) mod draw;
mod reference;

/// A pattern or a list of patterns, and texts to match with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Case {
    pub(crate) pattern: String,
    pub(crate) separators: String,
    /// How a list is matched; without it, `pattern` is matched alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    pub(crate) list: Vec<String>,
    pub(crate) texts: Vec<String>,
}

/// How entries of a list are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Exact,
    Glob,
    Regexp,
}

struct Globs;

impl Kind for Globs {
    type Case = Case;
    const NAME: &'static str = "glob";
    const FEWEST: [u64; 3] = [1000, 1000, 20];

    fn draw(random: &mut Random) -> Case {
        let separators = random.pick(&["", "", "", "/", "/", ".", "/.", "é", ","]).to_owned();
        if random.chance(12) {
            return list(random);
        }
        let (pattern, mut texts) = if random.chance(20) {
            let pattern = random.one(&corpus::PATTERNS).clone();
            let texts: Vec<String> = (0..4).map(|_| random.one(&corpus::TEXTS).clone()).collect();
            (random.mutate(&pattern, draw::ODD), texts)
        } else {
            let drawn = draw::Glob::new(random);
            let texts = (0..5).map(|_| drawn.text(random)).collect();
            (drawn.pattern(), texts)
        };
        let near: Vec<String> = texts.iter().map(|text| random.mutate(text, draw::NEAR)).collect();
        texts.extend(near);
        texts.push(random.pick(&["", "/", "a", "\u{0}", "\u{fffd}", "é", "a/b"]).to_owned());
        Case {
            pattern: if random.chance(10) {
                random.mutate(&pattern, draw::ODD)
            } else {
                pattern
            },
            separators,
            texts,
            ..Case::default()
        }
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, judge: &Judge) -> Vec<Outcome> {
        if let Some(mode) = case.mode {
            return compare_list(case, mode, theirs, judge);
        }
        // Argo CD compiles a pattern only when it matches a text.
        if case.texts.is_empty() {
            return Vec::new();
        }
        let separators: Vec<char> = case.separators.chars().collect();
        let ours = Pattern::compile(&case.pattern, &separators);
        let (pattern, theirs) = match (ours, theirs) {
            (Ok(pattern), Ok(theirs)) => (pattern, theirs),
            (Err(error), Err(_)) if !error.is_gateway_limit() => return vec![Outcome::Same(Verdict::Refused)],
            (Err(error), _) if error.is_gateway_limit() => return vec![Outcome::Exception(Exception::GlobBounds)],
            (ours, theirs) => {
                let ours = ours.map(drop);
                return vec![Outcome::Unexplained(format!(
                    "ours {ours:?}, theirs {:?}",
                    theirs.map(drop)
                ))];
            }
        };
        let matched: Vec<Option<bool>> = serde_json::from_value(theirs["matched"].clone()).unwrap();
        let pairs = case.texts.iter().zip(matched);
        pairs
            .map(|(text, theirs)| match (pattern.matches(text), theirs) {
                (true, Some(true)) => Outcome::Same(Verdict::Allow),
                (false, Some(false)) => Outcome::Same(Verdict::Deny),
                (ours, theirs) => explain(&case.pattern, &separators, text, ours).map_or_else(
                    || Outcome::Unexplained(format!("on {text:?} ours {ours}, theirs {theirs:?}")),
                    Outcome::Exception,
                ),
            })
            .collect()
    }
}

/// The exception that explains a difference. `None` if our answer is not that of the reference
/// matcher, or no exception fits.
pub(crate) fn explain(pattern: &str, separators: &[char], text: &str, ours: bool) -> Option<Exception> {
    if pattern.contains('\0') {
        return (!ours).then_some(Exception::GlobBounds);
    }
    if reference::matches(pattern, separators, text)? != ours {
        return None;
    }
    if !pattern.is_ascii() || !text.is_ascii() {
        Some(Exception::GlobUnicode)
    } else if pattern.contains('{') {
        Some(Exception::GlobAlternatives)
    } else if text.is_empty() || (!separators.is_empty() && pattern.contains("***")) {
        Some(Exception::GlobEmptyText)
    } else if separators.len() > 1 || pattern.matches("[!").count() > 1 {
        Some(Exception::GlobExcludedCharacters)
    } else {
        None
    }
}

fn list(random: &mut Random) -> Case {
    let mode = *random.one(&[Mode::Exact, Mode::Glob, Mode::Regexp]);
    let mut texts = Vec::new();
    let list = (0..=random.below(3))
        .map(|_| match random.below(if mode == Mode::Regexp { 4 } else { 2 }) {
            0 => random
                .pick(&["te*", "/", "//", "[", "prod", "*", "", "a{", "!te*", "/te*/", "test"])
                .to_owned(),
            1 => {
                let drawn = draw::Glob::new(random);
                texts.push(drawn.text(random));
                drawn.pattern()
            }
            _ => {
                let inner = random.pick(&[
                    "^te",
                    "st$",
                    ".*",
                    "a|b",
                    "(",
                    "^(?!prod)",
                    "t(?=e)",
                    "[a-z]+",
                    "^$",
                    "",
                    "te?st",
                    "^prod-[0-9]+$",
                    r"(\w)\1",
                    "a{2}",
                    "(?i)TEST",
                    "^team-(a|b)$",
                    "[",
                ]);
                format!("/{inner}/")
            }
        })
        .collect();
    texts.extend(["test", "prod", "prod-1", "team-a", "aa"].map(str::to_owned));
    let near: Vec<String> = texts.iter().map(|text| random.mutate(text, draw::NEAR)).collect();
    texts.extend(near);
    Case {
        mode: Some(mode),
        list,
        texts,
        ..Case::default()
    }
}

fn list_mode(mode: Mode) -> ListMode {
    match mode {
        Mode::Exact => ListMode::Exact,
        Mode::Glob => ListMode::Glob,
        Mode::Regexp => ListMode::Regexp,
    }
}

fn compare_list(case: &Case, mode: Mode, theirs: Result<&Value, &str>, judge: &Judge) -> Vec<Outcome> {
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(error) => return vec![Outcome::Unexplained(format!("theirs {error}"))],
    };
    let matched: Vec<Option<bool>> = serde_json::from_value(theirs["matched"].clone()).unwrap();
    let pairs = case.texts.iter().zip(matched);
    pairs
        .map(
            |(text, theirs)| match (matches_list(list_mode(mode), &case.list, text), theirs) {
                (true, Some(true)) => Outcome::Same(Verdict::Allow),
                (false, Some(false)) => Outcome::Same(Verdict::Deny),
                (ours, theirs) => explain_list(case, mode, text, (ours, theirs), judge).map_or_else(
                    || Outcome::Unexplained(format!("on {text:?} ours {ours}, theirs {theirs:?}")),
                    Outcome::Exception,
                ),
            },
        )
        .collect()
}

/// Both sides' answers to a list of one entry.
struct EntryVerdict<'c> {
    entry: &'c String,
    ours: bool,
    theirs: Option<bool>,
}

fn entry_verdicts<'c>(case: &'c Case, mode: Mode, text: &str, judge: &Judge) -> Vec<EntryVerdict<'c>> {
    let alone = |entry: &String| json!({"mode": mode, "list": [entry], "texts": [text]});
    let questions: Vec<Value> = case.list.iter().map(alone).collect();
    let answers = ask(judge, Globs::NAME, &Value::Array(questions));
    let verdict = |(entry, answer): (&'c String, Result<Value, String>)| EntryVerdict {
        entry,
        ours: matches_list(list_mode(mode), std::slice::from_ref(entry), text),
        theirs: answer.ok().and_then(|answer| answer["matched"][0].as_bool()),
    };
    case.list.iter().zip(answers).map(verdict).collect()
}

/// The exception that explains a difference on a list. Both sides must answer for the list as they
/// do for its entries alone, and each entry that differs must be an exception for globs.
fn explain_list(
    case: &Case,
    mode: Mode,
    text: &str,
    (ours, theirs): (bool, Option<bool>),
    judge: &Judge,
) -> Option<Exception> {
    let entries = entry_verdicts(case, mode, text, judge);
    // The library stops at the first entry that matches or makes it panic.
    let decisive = entries.iter().find(|entry| entry.theirs != Some(false));
    let follows_theirs = theirs == decisive.map_or(Some(false), |entry| entry.theirs);
    let follows_ours = ours == entries.iter().any(|entry| entry.ours);
    if mode == Mode::Exact || !follows_theirs || !follows_ours {
        return None;
    }
    // In a list of regular expressions, an entry may also be a glob.
    let globs = entry_verdicts(case, Mode::Glob, text, judge);
    let mut found = None;
    for (entry, glob) in entries.iter().zip(globs) {
        if entry.theirs != Some(entry.ours) {
            let differs = glob.theirs != Some(glob.ours);
            found = Some(explain(glob.entry, &[], text, glob.ours).filter(|_| differs)?);
        }
    }
    found
}

#[test]
fn globs_are_those_of_argo_cd() {
    run::<Globs>();
}
