//! What every differential test does: draw cases, ask both sides, count, and make what
//! is left unexplained small enough to read.
//!
//! The generators are our own and not proptest's: many cases go to the judge in one
//! line, and a case is made smaller with the judge in the loop.

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

/// Pairs of each test where nothing else is said.
const PAIRS: u64 = 100_000;
/// Seed where nothing else is said, so that CI compares the same pairs each time.
const SEED: u64 = 13;
/// Cases asked in one line.
const BATCH: usize = 250;
/// A test ends early once it has found so many differences.
const DIFFERENCES: usize = 12;
/// Rounds of making one case smaller, how long they may take together, and how long those
/// of all cases may.
const ROUNDS: usize = 400;
const MINIMIZING: Duration = Duration::from_secs(8);
const ALL_MINIMIZING: Duration = Duration::from_secs(24);

/// What both sides say of one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It matches, passes, is read.
    Allow,
    /// It does not.
    Deny,
    /// The question itself is refused: a broken policy, pattern or request.
    Refused,
}

/// How the two sides stand to each other in one pair.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// They say the same.
    Same(Verdict),
    /// They differ on purpose.
    Exception(Exception),
    /// They differ: what each of them says.
    Unexplained(String),
}

/// One thing that is compared.
pub(crate) trait Kind {
    /// One question with everything it depends on; it may hold several pairs.
    type Case: Clone + Serialize + DeserializeOwned;
    /// Name of the kind, here and to the judge.
    const NAME: &'static str;
    /// Fewest of 10,000 pairs that both sides allow, deny and refuse: a test that never
    /// allows proves nothing.
    const FEWEST: [u64; 3];

    /// A case by chance.
    fn draw(random: &mut Random) -> Self::Case;

    /// Compares our answers with the judge's, pair by pair.
    fn compare(case: &Self::Case, theirs: Result<&Value, &str>, judge: &Judge) -> Vec<Outcome>;
}

/// Asks the judge for each case.
pub(crate) fn ask(judge: &Judge, kind: &str, cases: &Value) -> Vec<Result<Value, String>> {
    let mut answer = judge
        .ask(&json!({"kind": kind, "batch": cases}))
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    let Value::Array(answers) = answer["value"].take() else {
        panic!("{kind}: the judge's answer is no list");
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
/// For a difference that nothing explains, and where one kind of verdict is too rare.
#[expect(clippy::print_stdout, reason = "the seed is in the output of the test")]
pub(crate) fn run<K: Kind>() {
    let (pairs, seed) = (
        setting("TOLLGATE_DIFFERENTIAL_PAIRS").unwrap_or(PAIRS),
        setting("TOLLGATE_DIFFERENTIAL_SEED").unwrap_or(SEED),
    );
    println!("{}: seed {seed}", K::NAME);
    let judge = Judge::start();
    let mut random = Random::new(seed, K::NAME);
    let mut report = Report::new(K::NAME, seed);
    let mut minimizing = ALL_MINIMIZING;
    while report.pairs < pairs && report.differences.len() < DIFFERENCES {
        let cases: Vec<K::Case> = (0..BATCH).map(|_| K::draw(&mut random)).collect();
        let answers = ask(&judge, K::NAME, &serde_json::to_value(&cases).unwrap());
        for (case, answer) in cases.iter().zip(&answers) {
            let outcomes = K::compare(case, answer.as_ref().map_err(String::as_str), &judge);
            let differs = outcomes
                .iter()
                .any(|outcome| matches!(outcome, Outcome::Unexplained(_)));
            outcomes.into_iter().for_each(|outcome| report.count(&outcome));
            if differs && report.differences.len() < DIFFERENCES {
                let start = Instant::now();
                let (case, told) = minimized::<K>(case, &judge, minimizing.min(MINIMIZING));
                minimizing = minimizing.saturating_sub(start.elapsed());
                report.differences.insert(case, told);
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

/// The smallest version of a case that still differs, and what both sides say of it.
///
/// - `most`: no round begins later, but the first, which tells of the case itself.
fn minimized<K: Kind>(case: &K::Case, judge: &Judge, most: Duration) -> (String, String) {
    let told = |case: &K::Case, answer: &Result<Value, String>| {
        let outcomes = K::compare(case, answer.as_ref().map_err(String::as_str), judge);
        outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Unexplained(told) => Some(told),
            Outcome::Same(_) | Outcome::Exception(_) => None,
        })
    };
    let mut small = serde_json::to_value(case).unwrap();
    let mut last = String::new();
    let start = Instant::now();
    for round in 0..ROUNDS {
        if round > 0 && start.elapsed() > most {
            break;
        }
        // In the first round the case itself.
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
                // What is left out may be there all the same.
                (round == 0 || version != small).then_some((version, case))
            })
            .collect();
        let questions: Vec<&Value> = cases.iter().map(|(version, _)| version).collect();
        let answers = ask(judge, K::NAME, &json!(questions));
        let found = cases
            .iter()
            .zip(&answers)
            .find_map(|((version, case), answer)| Some((version, told(case, answer)?)));
        let Some((version, told)) = found else { break };
        small = version.clone();
        last = told;
    }
    (small.to_string(), last)
}

/// What a test counted.
struct Report {
    kind: &'static str,
    seed: u64,
    start: Instant,
    pairs: u64,
    allows: u64,
    denies: u64,
    refused: u64,
    unexplained: u64,
    exceptions: BTreeMap<&'static str, u64>,
    /// What both sides say, by the minimized case.
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
            exceptions: of_kind.map(|exception| (exception.name(), 0)).collect(),
            differences: BTreeMap::new(),
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        self.pairs += 1;
        match outcome {
            Outcome::Same(Verdict::Allow) => self.allows += 1,
            Outcome::Same(Verdict::Deny) => self.denies += 1,
            Outcome::Same(Verdict::Refused) => self.refused += 1,
            Outcome::Exception(exception) => *self.exceptions.entry(exception.name()).or_default() += 1,
            Outcome::Unexplained(_) => self.unexplained += 1,
        }
    }

    /// One line that `cargo xtask differential` reads.
    #[expect(clippy::print_stdout, reason = "the task reads the output of the test")]
    fn print(&self) {
        let line = json!({
            "kind": self.kind, "pairs": self.pairs, "allows": self.allows, "denies": self.denies,
            "refused": self.refused, "exceptions": self.exceptions, "unexplained": self.unexplained,
            "seconds": self.start.elapsed().as_secs_f64(), "seed": self.seed,
        });
        println!("differential: {line}");
    }

    fn check(&self, asked: u64, fewest: [u64; 3]) {
        let told: Vec<String> = self
            .differences
            .iter()
            .map(|(case, told)| format!("{case}\n    {told}"))
            .collect();
        assert!(
            self.unexplained == 0,
            "{}: {} of {} pairs differ, seed {}; minimized:\n{}",
            self.kind,
            self.unexplained,
            self.pairs,
            self.seed,
            told.join("\n")
        );
        // Fewer pairs say nothing of how often a verdict occurs.
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
