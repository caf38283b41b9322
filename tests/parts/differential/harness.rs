//! The loop of every differential test: draw cases, ask both sides, count the outcomes, and
//! minimize the unexplained differences.
//!
//! It does not use proptest, because the judge gets many cases in one line, and a case is minimized
//! with the judge's answers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::differential::exception::Exception;
use crate::differential::random::Random;
use crate::differential::shrink::smaller;
use test_support::judge::Judge;

/// Default number of pairs of each test. `cargo xtask nightly` compares a million, with another seed each night.
const PAIRS: u64 = 20_000;
/// Default seed. It is fixed so that CI compares the same pairs each time.
const SEED: u64 = 13;
/// A test ends early after so many differences.
const DIFFERENCES: usize = 12;
/// The most rounds for minimizing one case.
const ROUNDS: usize = 400;
/// The time for minimizing one case.
const MINIMIZING: Duration = Duration::from_secs(8);
/// The time for minimizing all cases.
const ALL_MINIMIZING: Duration = Duration::from_secs(24);

/// An answer that both sides give for a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It matches, is allowed or is read.
    Allow,
    /// It does not.
    Deny,
    /// The question itself is refused, because its policy, pattern or request is invalid.
    Refused,
}

/// How our answer and the judge's compare in one pair.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// They are the same.
    Same(Verdict),
    /// They differ on purpose.
    Exception(Exception),
    /// They differ by the named construct, and we do not permit more.
    Construct(String),
    /// They differ without a named reason: both answers.
    Unexplained(String),
}

/// A kind of comparison.
pub(crate) trait Kind {
    /// A question with everything it depends on. It may hold several pairs.
    type Case: Clone + Serialize + DeserializeOwned;
    /// The name of the kind in reports and in questions to the judge.
    const NAME: &'static str;
    /// Of 10,000 pairs, the smallest numbers that both sides must allow, deny and refuse. A test
    /// that never allows proves nothing.
    const FEWEST: [u64; 3];
    /// Cases in one line to the judge.
    const BATCH: usize = 250;

    /// Starts what the answers are compared with.
    fn judge() -> Judge {
        Judge::start()
    }

    /// Draws a random case.
    fn draw(random: &mut Random) -> Self::Case;

    /// The question to the judge about a case.
    fn question(case: &Self::Case) -> Value {
        serde_json::to_value(case).unwrap()
    }

    /// The case with only its pair at `at`, if a case can have only one.
    fn only(case: &Self::Case, _at: usize) -> Self::Case {
        case.clone()
    }

    /// What both answers have in common with those to a smaller case with the same difference.
    fn difference(_answers: &str) -> &str {
        ""
    }

    /// Compares our answers with the judge's, pair by pair.
    fn compare(case: &Self::Case, theirs: Result<&Value, &str>, judge: &Judge) -> Vec<Outcome>;
}

/// The judge's answer to each case.
pub(crate) fn ask(judge: &Judge, kind: &str, cases: &Value) -> Vec<Result<Value, String>> {
    let mut answer = judge
        .ask(&json!({"kind": kind, "batch": cases}))
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    let Value::Array(answers) = answer["value"].take() else {
        panic!("{kind}: the judge's answer is not a list");
    };
    let answer = |mut answer: Value| match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer["value"].take()),
    };
    answers.into_iter().map(answer).collect()
}

/// Compares as many pairs as the environment asks for.
///
/// # Panics
/// If a difference is unexplained, or a verdict is too rare.
#[expect(clippy::print_stdout, reason = "the output of the test shows the seed")]
pub(crate) fn run<K: Kind>() {
    let (pairs, seed) = (
        setting("TOLLGATE_DIFFERENTIAL_PAIRS").unwrap_or(PAIRS),
        setting("TOLLGATE_DIFFERENTIAL_SEED").unwrap_or(SEED),
    );
    println!("{}: seed {seed}", K::NAME);
    let judge = K::judge();
    let mut random = Random::new(seed, K::NAME);
    let mut report = Report::new(K::NAME, seed);
    let mut minimizing = ALL_MINIMIZING;
    while report.pairs < pairs && report.differences.len() < DIFFERENCES {
        let cases: Vec<K::Case> = (0..K::BATCH).map(|_| K::draw(&mut random)).collect();
        let answers = ask(&judge, K::NAME, &cases.iter().map(K::question).collect());
        for (case, answer) in cases.iter().zip(&answers) {
            let outcomes = K::compare(case, answer.as_ref().map_err(String::as_str), &judge);
            let differs = outcomes.iter().enumerate().find_map(|(at, outcome)| match outcome {
                Outcome::Unexplained(answers) => Some((at, answers.clone())),
                Outcome::Same(_) | Outcome::Exception(_) | Outcome::Construct(_) => None,
            });
            outcomes.into_iter().for_each(|outcome| report.count(&outcome));
            if let Some((at, found)) = differs.filter(|_| report.differences.len() < DIFFERENCES) {
                let start = Instant::now();
                let case = K::only(case, at);
                let (case, answers) = minimized::<K>((&case, found), &judge, minimizing.min(MINIMIZING));
                minimizing = minimizing.saturating_sub(start.elapsed());
                report.differences.insert(case, answers);
            }
        }
    }
    report.print();
    report.check(pairs, K::FEWEST);
}

fn setting(name: &str) -> Option<u64> {
    let given: OsString = std::env::var_os(name)?;
    let parsed = given.to_str().and_then(|text| text.parse().ok());
    Some(parsed.unwrap_or_else(|| panic!("{name} is {given:?}, not a number")))
}

/// The smallest version of a case that still differs, and both answers to it.
///
/// - `found`: the answers that differ. They stay if the case does not differ alone.
/// - `limit`: no round begins later, except the first one, which compares the case itself.
fn minimized<K: Kind>((case, found): (&K::Case, String), judge: &Judge, limit: Duration) -> (String, String) {
    let unexplained = |case: &K::Case, answer: &Result<Value, String>| {
        let outcomes = K::compare(case, answer.as_ref().map_err(String::as_str), judge);
        outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Unexplained(answers) => Some(answers),
            Outcome::Same(_) | Outcome::Exception(_) | Outcome::Construct(_) => None,
        })
    };
    let mut small = serde_json::to_value(case).unwrap();
    let mut last = found;
    let start = Instant::now();
    for round in 0..ROUNDS {
        if round > 0 && start.elapsed() > limit {
            break;
        }
        // The first round compares the case itself.
        let versions = if round == 0 {
            vec![small.clone()]
        } else {
            smaller(&small)
        };
        let cases: Vec<(Value, K::Case)> = versions
            .into_iter()
            .filter_map(|version| {
                let case: K::Case = serde_json::from_value(version).ok()?;
                let version = serde_json::to_value(&case).unwrap();
                // A removed part may come back as a default.
                (round == 0 || version != small).then_some((version, case))
            })
            .collect();
        let questions: Value = cases.iter().map(|(_, case)| K::question(case)).collect();
        let answers = ask(judge, K::NAME, &questions);
        let found = cases
            .iter()
            .zip(&answers)
            .filter_map(|((version, case), answer)| Some((version, unexplained(case, answer)?)))
            .find(|(_, answers)| round == 0 || K::difference(answers) == K::difference(&last));
        let Some((version, both)) = found else { break };
        small = version.clone();
        last = both;
    }
    (small.to_string(), last)
}

/// Counts of a test.
struct Report {
    kind: &'static str,
    seed: u64,
    start: Instant,
    pairs: u64,
    allows: u64,
    denies: u64,
    refused: u64,
    unexplained: u64,
    /// Differences on purpose, by name or construct.
    exceptions: BTreeMap<String, u64>,
    /// Both answers, by minimized case.
    differences: BTreeMap<String, String>,
}

impl Report {
    fn new(kind: &'static str, seed: u64) -> Self {
        let of_kind = Exception::ALL.iter().filter(|exception| exception.kind() == kind);
        Self {
            kind,
            seed,
            start: Instant::now(),
            pairs: 0,
            allows: 0,
            denies: 0,
            refused: 0,
            unexplained: 0,
            exceptions: of_kind.map(|exception| (exception.name().to_owned(), 0)).collect(),
            differences: BTreeMap::new(),
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        self.pairs += 1;
        match outcome {
            Outcome::Same(Verdict::Allow) => self.allows += 1,
            Outcome::Same(Verdict::Deny) => self.denies += 1,
            Outcome::Same(Verdict::Refused) => self.refused += 1,
            Outcome::Exception(exception) => self.count_exception(exception.name()),
            Outcome::Construct(construct) => self.count_exception(construct),
            Outcome::Unexplained(_) => self.unexplained += 1,
        }
    }

    fn count_exception(&mut self, name: &str) {
        *self.exceptions.entry(name.to_owned()).or_default() += 1;
    }

    /// Prints the line that `cargo xtask differential` reads.
    #[expect(
        clippy::print_stdout,
        reason = "`cargo xtask differential` reads the output of the test"
    )]
    fn print(&self) {
        let line = json!({
            "kind": self.kind, "pairs": self.pairs, "allows": self.allows, "denies": self.denies,
            "refused": self.refused, "exceptions": self.exceptions, "unexplained": self.unexplained,
            "seconds": self.start.elapsed().as_secs_f64(), "seed": self.seed,
        });
        println!("differential: {line}");
    }

    fn check(&self, asked: u64, fewest: [u64; 3]) {
        let differences: Vec<String> = self
            .differences
            .iter()
            .map(|(case, answers)| format!("{case}\n    {answers}"))
            .collect();
        assert!(
            self.unexplained == 0,
            "{}: {} of {} pairs differ, seed {}; minimized:\n{}",
            self.kind,
            self.unexplained,
            self.pairs,
            self.seed,
            differences.join("\n")
        );
        // With fewer pairs, the frequency of a verdict means nothing.
        if asked < 10_000 {
            return;
        }
        for (name, count, fewest) in [
            ("allow", self.allows, fewest[0]),
            ("deny", self.denies, fewest[1]),
            ("refuse", self.refused, fewest[2]),
        ] {
            assert!(
                count * 10_000 >= self.pairs * fewest,
                "{}: both sides {name} only {count} of {} pairs; {fewest} of 10,000 are needed",
                self.kind,
                self.pairs
            );
        }
    }
}
