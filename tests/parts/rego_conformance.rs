//! Runs OPA's conformance suite through the gateway's path of loading and deciding.
//!
//! A case that the gateway refuses, or in which it stops with an error where OPA has a value, is
//! counted by its reason. No case may have another value than OPA, or a value where OPA stops.
//!
//! Needs the program that `cargo xtask setup` builds.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use regorus::Value;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use test_support::judge::Judge;
use tollgate_rego::{Bundle, Error};

use crate::opa::{Answers, Ours, is_same, load};

/// The fewest cases that must end as in OPA: with the same value, undefined, or with an error. It may
/// only grow.
const FEWEST_ALIKE: usize = 1_441;
/// The fewest cases that must have OPA's value. It may only grow.
const FEWEST_VALUES: usize = 1_201;
/// Most cases that are named for an outcome.
const EXAMPLES: usize = 3;
/// The fewest cases that the suite must have.
const CASES: usize = 2_300;

#[derive(Deserialize)]
struct Case {
    note: String,
    modules: BTreeMap<String, String>,
    data: Json,
    #[serde(default)]
    input: Option<Json>,
    /// The document that the case asks for.
    #[serde(default)]
    path: String,
    #[serde(default)]
    answer: Option<Answers>,
}

#[derive(Default)]
struct Report {
    /// Notes of cases, by outcome.
    outcomes: BTreeMap<String, Vec<String>>,
    /// What may not be.
    wrong: Vec<String>,
}

impl Report {
    fn count(&mut self, case: &Case, outcome: impl Into<String>) {
        self.outcomes.entry(outcome.into()).or_default().push(case.note.clone());
    }

    /// Number of cases whose outcome starts so.
    fn number_of(&self, start: &str) -> usize {
        let outcomes = self.outcomes.iter().filter(|(outcome, _)| outcome.starts_with(start));
        outcomes.map(|(_, notes)| notes.len()).sum()
    }

    fn wrong(&mut self, case: &Case, what: &str) {
        let modules: Vec<&str> = case.modules.values().map(String::as_str).collect();
        self.wrong.push(format!(
            "{}: {what}\n{}\ndata: {}\ninput: {:?}",
            case.note,
            modules.join("\n"),
            case.data,
            case.input
        ));
    }
}

#[test]
fn the_suite_of_opa_gives_its_values_or_is_denied() {
    let mut answer = Judge::engines().ask(&json!({"kind": "conformance"})).unwrap();
    let cases: Vec<Case> = serde_json::from_value(answer["value"].take()).unwrap();
    assert!(cases.len() >= CASES, "the suite has {} cases", cases.len());
    let mut report = Report::default();
    for case in &cases {
        run(case, &mut report);
    }
    for (outcome, notes) in &report.outcomes {
        let examples: Vec<&str> = notes.iter().take(EXAMPLES).map(String::as_str).collect();
        println!("{:5} {outcome}, as {}", notes.len(), examples.join(", "));
    }
    assert!(
        report.wrong.is_empty(),
        "{} cases are wrong:\n{}",
        report.wrong.len(),
        report.wrong.join("\n\n")
    );
    for (start, fewest) in [(ALIKE, FEWEST_ALIKE), (VALUES, FEWEST_VALUES)] {
        let count = report.number_of(start);
        println!("{count:5} {start} in all");
        assert!(count >= fewest, "{count} cases end \"{start}\", {fewest} must");
    }
}

/// Start of the outcomes that are those of OPA.
const ALIKE: &str = "as OPA";
const VALUES: &str = "as OPA: a value";

fn run(case: &Case, report: &mut Report) {
    let Some(answers) = &case.answer else {
        return report.count(
            case,
            "left out: no query of the form `data.… = x`, an input that is no JSON, or refused by OPA",
        );
    };
    let theirs = &answers.strict[0];
    let loaded = catch_unwind(AssertUnwindSafe(|| load_case(case)));
    let bundle = match loaded {
        Ok(Ok(bundle)) => bundle,
        Ok(Err(finding)) => return report.count(case, format!("refused: {}", kind_of(&finding))),
        Err(_) => {
            report.count(case, "WRONG: panic");
            return report.wrong(case, "panic");
        }
    };
    let input = case.input.clone().map_or(Value::Undefined, Value::from);
    let ours = Ours::of(&bundle, &input);
    let what = match (&ours, &theirs.value, &theirs.error) {
        (Ours::Error(Error::Panicked), ..) => "panic",
        (Ours::Value(ours), Some(theirs), _) if is_same(ours, theirs) => {
            return report.count(case, VALUES);
        }
        (Ours::Undefined, None, None) => return report.count(case, format!("{ALIKE}: undefined")),
        (Ours::Error(_), None, Some(_)) => return report.count(case, format!("{ALIKE}: an error")),
        (Ours::Error(error), ..) => {
            return report.count(
                case,
                format!(
                    "denied: OPA has a value or is undefined, ours: {}",
                    kind_of(&error.to_string())
                ),
            );
        }
        (Ours::Value(_) | Ours::Undefined, _, Some(_)) => "value where OPA stops",
        (Ours::Value(_) | Ours::Undefined, _, None) => "another value",
    };
    report.count(case, format!("WRONG: {what}"));
    report.wrong(case, &format!("{what}: ours {}, OPA {}", ours.show(), theirs.show()));
}

/// Where the case asks for a document that is no rule, a rule in a separate package is asked that has its
/// value.
fn load_case(case: &Case) -> Result<Bundle, String> {
    let loaded = load(&case.path, &case.modules, &case.data);
    if !matches!(&loaded, Err(finding) if finding.contains("there is no rule")) {
        return loaded;
    }
    let mut modules = case.modules.clone();
    let asking = format!("package tollgate_asked\n\ndocument := {}\n", case.path);
    modules.insert("asking.rego".to_owned(), asking);
    load("data.tollgate_asked.document", &modules, &case.data)
}

/// A finding without the names and numbers of its case, except the names of functions.
fn kind_of(finding: &str) -> String {
    let first = finding.split("; ").next().unwrap_or_default();
    if first.contains("cannot be used in a policy") {
        return first.to_owned();
    }
    let mut kind = String::new();
    for (at, piece) in first.split('`').enumerate() {
        if at > 0 {
            kind.push('`');
        }
        kind.push_str(if at % 2 == 1 { "…" } else { piece });
    }
    kind.chars()
        .map(|letter| if letter.is_ascii_digit() { '#' } else { letter })
        .collect()
}
