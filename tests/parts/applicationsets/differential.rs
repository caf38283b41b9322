//! Compares how the gateway and Argo CD render the templates that authorization depends on.
//!
//! Templates and parameters come from a random generator, whose seed is printed. For each pair,
//! both sides must render the same text or both must fail, unless the gateway refuses the
//! template on purpose. Refusals are counted by reason; any other difference fails the test.
//!
//! `TOLLGATE_DIFFERENTIAL_PAIRS` sets how many pairs of each kind are compared, and
//! `TOLLGATE_DIFFERENTIAL_SEED` the seed.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tollgate_applicationset::template::{CompiledTemplate, Error};
use tollgate_applicationset::{GenerationBudget, MissingKey, TemplateEngine};
use tollgate_config::GenerationLimits;

use crate::differential::random::Random;
use test_support::judge::Judge;

mod calls;
mod letters;
mod programs;
mod smaller;

/// Default number of pairs of each kind. `cargo xtask nightly` compares a million, with another seed each night.
const PAIRS: u64 = 20_000;
/// Default seed. It is fixed so that CI compares the same pairs each time.
const SEED: u64 = 13;
/// Pairs in one question to the judge.
const BATCH: u64 = 500;
/// Worker threads, each with its own judge.
const WORKERS: u64 = 2;
/// A worker stops after so many differences.
const DIFFERENCES: usize = 6;

/// A template and its parameters.
#[derive(Clone, Debug)]
struct Pair {
    text: String,
    parameters: Value,
    missing_key: MissingKey,
    is_fast: bool,
}

impl Pair {
    fn question(&self) -> Value {
        let options: &[&str] = match self.missing_key {
            MissingKey::Default => &[],
            MissingKey::Zero => &["missingkey=zero"],
            MissingKey::Error => &["missingkey=error"],
        };
        json!({
            "template": self.text, "parameters": self.parameters, "fast": self.is_fast, "options": options,
        })
    }

    fn ours(&self) -> Result<String, Error> {
        let engine = match self.is_fast {
            true => TemplateEngine::FastTemplate,
            false => TemplateEngine::GoTemplate {
                missing_key: self.missing_key,
            },
        };
        let compiled = CompiledTemplate::for_authorization(engine, &Value::String(self.text.clone()))?;
        let rendered = compiled.render(
            self.parameters.as_object().unwrap(),
            &GenerationBudget::new(GenerationLimits::default()),
        )?;
        match rendered {
            Value::String(text) => Ok(text),
            other => panic!("the template rendered as {other}, not as a string"),
        }
    }
}

/// How our result and Argo CD's compare.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Both render the same.
    Same,
    /// Both fail.
    BothFail,
    /// We alone refuse it, on purpose, for this reason.
    Refused(String),
    /// They differ: both results.
    Unexplained(String),
}

fn compared(pair: &Pair, theirs: &Value) -> Outcome {
    let is_broken = theirs["broken"] == true;
    let theirs = match theirs.get("error").and_then(Value::as_str) {
        Some(error) => Err(error),
        None => Ok(theirs.get("text").and_then(Value::as_str).unwrap_or_default()),
    };
    match (pair.ours(), theirs) {
        (Ok(ours), Ok(theirs)) if ours == theirs && !is_broken => Outcome::Same,
        (Err(Error::Divergent { what, .. }), _) => Outcome::Refused(reason(&what)),
        (Err(Error::TemplateLimit { message, .. }), _) => Outcome::Refused(format!("bound: {}", reason(&message))),
        (Err(Error::Exceeded(bound)), _) => Outcome::Refused(format!("bound: {}", reason(&bound.to_string()))),
        (Err(Error::Execute { .. } | Error::MissingKey { .. } | Error::Syntax { .. }), Err(_)) => Outcome::BothFail,
        (ours, theirs) => Outcome::Unexplained(format!("ours   {ours:?}\n    theirs {theirs:?}")),
    }
}

/// The message of a refusal without quoted values and numbers, so that refusals for the same reason
/// are counted together.
fn reason(what: &str) -> String {
    let words = match (what.split_once('`'), what.rsplit_once('`')) {
        (Some((before, _)), Some((_, after))) => format!("{before}…{after}"),
        _ => what.to_owned(),
    };
    let digit = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
    words.chars().map(digit).collect()
}

/// Counts of outcomes.
#[derive(Debug, Default)]
struct Report {
    pairs: u64,
    same: u64,
    both_fail: u64,
    refused: BTreeMap<String, u64>,
    unexplained: Vec<String>,
}

impl Report {
    fn count(&mut self, outcome: Outcome, describe: impl FnOnce(&str) -> String) {
        self.pairs += 1;
        match outcome {
            Outcome::Same => self.same += 1,
            Outcome::BothFail => self.both_fail += 1,
            Outcome::Refused(reason) => *self.refused.entry(reason).or_default() += 1,
            Outcome::Unexplained(results) => self.unexplained.push(describe(&results)),
        }
    }

    fn add(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.same += other.same;
        self.both_fail += other.both_fail;
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.unexplained.extend(other.unexplained);
    }
}

fn ask(judge: &Judge, pairs: &[Pair]) -> Vec<Value> {
    let questions: Vec<Value> = pairs.iter().map(Pair::question).collect();
    let mut answer = judge
        .ask(&json!({"kind": "renderings", "renderings": questions}))
        .unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_value(answer["value"].take()).unwrap()
}

/// Compares as many pairs as the environment asks for.
///
/// - `share`: the smallest percentage of pairs that both sides must render. Pairs that fail or are
///   refused prove little.
///
/// # Panics
/// If a difference has no named reason, or too few pairs are rendered.
#[expect(
    clippy::print_stdout,
    reason = "`cargo xtask differential` reads the output of the test"
)]
fn run(kind: &'static str, share: u64, draw: fn(&mut Random) -> Pair) {
    let pairs = setting("TOLLGATE_DIFFERENTIAL_PAIRS").unwrap_or(PAIRS);
    let seed = setting("TOLLGATE_DIFFERENTIAL_SEED").unwrap_or(SEED);
    println!("{kind}: seed {seed}");
    let start = Instant::now();
    let mut report = Report::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let random = Random::new(seed, &format!("{kind} {worker}"));
                scope.spawn(move || work(pairs.div_ceil(WORKERS), random, draw))
            })
            .collect();
        for worker in workers {
            report.add(worker.join().unwrap());
        }
    });
    let line = json!({
        "kind": kind, "pairs": report.pairs, "same": report.same, "wrong": report.both_fail, "refused": report.refused,
        "unexplained": report.unexplained.len(), "seconds": start.elapsed().as_secs_f64(), "seed": seed,
    });
    println!("differential: {line}");
    assert!(
        report.unexplained.is_empty(),
        "{kind}: {} of {} pairs differ, seed {seed}:\n{}",
        report.unexplained.len(),
        report.pairs,
        report.unexplained.join("\n")
    );
    assert!(
        report.same * 100 >= report.pairs * share,
        "{kind}: both sides render {} of {} pairs, {share} of 100 are needed: {line}",
        report.same,
        report.pairs
    );
}

fn work(pairs: u64, mut random: Random, draw: fn(&mut Random) -> Pair) -> Report {
    let judge = Judge::start();
    let mut report = Report::default();
    while report.pairs < pairs && report.unexplained.len() < DIFFERENCES {
        let drawn: Vec<Pair> = (0..BATCH.min(pairs - report.pairs))
            .map(|_| draw(&mut random))
            .collect();
        for (pair, theirs) in drawn.iter().zip(ask(&judge, &drawn)) {
            let outcome = compared(pair, &theirs);
            report.count(outcome, |results| smaller::minimized(&judge, pair, results));
        }
    }
    report
}

#[expect(
    clippy::disallowed_methods,
    reason = "the task sets the number of pairs and the seed"
)]
fn setting(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok()?;
    Some(
        given
            .parse()
            .unwrap_or_else(|_| panic!("{name} is `{given}`, not a number")),
    )
}

#[test]
fn functions_of_judged_texts_give_what_argo_cd_s_give() {
    run("template-functions", 35, calls::draw);
}

#[test]
fn judged_texts_become_what_argo_cd_makes_of_them() {
    run("templates", 25, programs::draw);
}

#[test]
fn texts_of_the_fast_engine_become_what_argo_cd_makes_of_them() {
    run("fast-templates", 60, programs::draw_fast);
}
