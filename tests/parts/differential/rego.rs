//! Compares decisions of policies in Rego with OPA's, asked both ways: with errors of functions that
//! end the evaluation, as in the gateway, and with those that make their expression undefined, OPA's
//! default.
//!
//! Against strict errors nothing may differ. Against the default we may only deny more. A policy that
//! the gateway refuses at load, and what it denies more, are counted by construct.

use std::collections::BTreeMap;

use regorus::Value;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use test_support::judge::Judge;
use tollgate_rego::Error;

use crate::differential::harness::{Kind, Outcome, Verdict, ask, run};
use crate::differential::random::Random;
use crate::opa::{Answer, Answers, Ours, is_same, load};

mod draw;
mod functions;
mod inputs;

pub(super) use inputs::input;

/// Path of the rule that is compared.
const ENTRY_POINT: &str = "data.example.decision";

/// A policy and inputs to decide by it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    // In the order in which a case is made smaller.
    policy: Vec<Rule>,
    imports: Vec<(File, String)>,
    /// Names of the rules whose values the decision has.
    reported: Vec<String>,
    requests: Vec<Json>,
    tables: BTreeMap<String, Json>,
}

/// A file of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum File {
    #[default]
    Policy,
    /// Another one of the same package.
    Second,
    /// One of another package.
    Library,
}

impl File {
    const ALL: &[Self] = &[Self::Policy, Self::Second, Self::Library];

    fn package(self) -> &'static str {
        match self {
            Self::Policy | Self::Second => "example",
            Self::Library => "lib",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy.rego",
            Self::Second => "second.rego",
            Self::Library => "lib.rego",
        }
    }
}

/// A rule, in parts that can be removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rule {
    file: File,
    head: String,
    body: Vec<String>,
    /// Value and body of each `else`. One without a value is empty.
    otherwise: Vec<(String, Vec<String>)>,
}

/// The names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

impl Rule {
    fn name(&self) -> &str {
        let head = self.head.strip_prefix("default ").unwrap_or(&self.head);
        words(head).next().unwrap_or_default()
    }

    fn text(&self) -> String {
        let mut text = self.head.clone();
        text.push_str(&body(&self.body));
        for (value, statements) in &self.otherwise {
            text.push_str(" else");
            if !value.is_empty() {
                text.push_str(" := ");
                text.push_str(value);
            }
            text.push_str(&body(statements));
        }
        text
    }
}

fn body(statements: &[String]) -> String {
    if statements.is_empty() {
        return String::new();
    }
    format!(" if {{\n\t{}\n}}", statements.join("\n\t"))
}

impl Case {
    fn is_accepted(&self) -> bool {
        load(ENTRY_POINT, &self.modules(), &json!(self.tables)).is_ok()
    }

    /// Without the rules that no decision can need, by the names in the text. OPA refuses some of what
    /// they do, and the gateway not always.
    fn without_unneeded(&self) -> Self {
        let texts: Vec<String> = self.policy.iter().map(Rule::text).collect();
        let from_elsewhere = self.imports.iter().filter(|(file, _)| *file != File::Library);
        let imports_library = from_elsewhere
            .map(|(_, path)| path)
            .any(|path| path.starts_with("data.lib"));
        let is_needed_by = |rule: &Rule, from: &str, text: &str| {
            let (package, name) = (rule.file.package(), rule.name());
            let path = format!("data.{package}.{name}");
            let has = |whole: &str| text.contains(whole);
            (from == package && words(text).any(|word| word == name))
                || (package == "lib" && imports_library)
                || [path, "in data;".to_owned(), format!("in data.{package};")]
                    .iter()
                    .any(|whole| has(whole))
        };
        let reported = self.reported.join(" ") + " allow";
        let mut needed: Vec<bool> = self
            .policy
            .iter()
            .map(|rule| is_needed_by(rule, "example", &reported))
            .collect();
        loop {
            let next = |(rule, is_needed): (&Rule, &bool)| {
                let by = self
                    .policy
                    .iter()
                    .zip(&texts)
                    .zip(&needed)
                    .filter(|(_, is_needed)| **is_needed);
                let mut by = by.map(|(by, _)| by);
                *is_needed || by.any(|(other, text)| is_needed_by(rule, other.file.package(), text))
            };
            let all: Vec<bool> = self.policy.iter().zip(&needed).map(next).collect();
            if all == needed {
                break;
            }
            needed = all;
        }
        let policy = self.policy.iter().zip(&needed).filter(|(_, is_needed)| **is_needed);
        Self {
            policy: policy.map(|(rule, _)| rule.clone()).collect(),
            // Whether it compiles is asked, and some inputs make functions of OPA panic.
            requests: Vec::new(),
            ..self.clone()
        }
    }

    fn modules(&self) -> BTreeMap<String, String> {
        // A comprehension, so that a rule without a value does not hide the others.
        let shown = self
            .reported
            .iter()
            .map(|name| format!(", \"{name}\": [x | x := {name}]"));
        let shown: String = shown.collect();
        let decision = format!(
            "decision := {{\"allow\": allow{shown}}}\n\ndefault allow := false\n\ndenied if false\n\ndenials contains \"\" if false"
        );
        let mut modules = BTreeMap::new();
        for &file in File::ALL {
            let imports = self.imports.iter().filter(|(of, _)| *of == file);
            let imports: Vec<String> = imports.map(|(_, path)| format!("import {path}")).collect();
            let rules = self.policy.iter().filter(|rule| rule.file == file).map(Rule::text);
            let mut parts = vec![format!("package {}", file.package()), imports.join("\n")];
            if file == File::Policy {
                parts.push(decision.clone());
            }
            let before = parts.len();
            parts.extend(rules);
            if file == File::Policy || parts.len() > before {
                modules.insert(file.name().to_owned(), format!("{}\n", parts.join("\n\n")));
            }
        }
        modules
    }
}

struct Policies;

impl Kind for Policies {
    type Case = Case;
    const NAME: &'static str = "rego";
    const FEWEST: [u64; 3] = [500, 900, 500];
    const BATCH: usize = 100;

    fn judge() -> Judge {
        Judge::engines()
    }

    fn draw(random: &mut Random) -> Case {
        draw::case(random)
    }

    fn question(case: &Case) -> Json {
        json!({"modules": case.modules(), "data": case.tables, "query": ENTRY_POINT, "inputs": case.requests})
    }

    fn only(case: &Case, at: usize) -> Case {
        Case {
            requests: vec![case.requests[at].clone()],
            ..case.clone()
        }
    }

    fn difference(answers: &str) -> &str {
        let code = answers.split(' ').find(|word| word.starts_with("rego_"));
        code.unwrap_or_else(|| answers.split(':').next().unwrap_or_default())
    }

    fn compare(case: &Case, theirs: Result<&Json, &str>, judge: &Judge) -> Vec<Outcome> {
        let all = |outcome: &Outcome| case.requests.iter().map(|_| outcome.clone()).collect();
        let loaded = load(ENTRY_POINT, &case.modules(), &json!(case.tables));
        match (loaded, theirs) {
            (Ok(bundle), Ok(theirs)) => {
                let theirs = Answers::deserialize(theirs).unwrap();
                let answers = theirs.strict.iter().zip(&theirs.default);
                let pairs = case.requests.iter().zip(answers);
                pairs
                    .map(|(input, (strict, default))| {
                        compare_one(&Ours::of(&bundle, &Value::from(input.clone())), strict, default)
                    })
                    .collect()
            }
            (Err(_), Err(_)) => all(&Outcome::Same(Verdict::Refused)),
            (Err(finding), Ok(_)) => all(&Outcome::Construct(format!("refused: {}", construct(&finding)))),
            // OPA knows the types of literals and of the results of functions. We find the error when
            // the rule is evaluated.
            (Ok(_), Err(error)) if error.contains("rego_type_error") => {
                all(&Outcome::Construct("only OPA refuses: types".to_owned()))
            }
            (Ok(_), Err(error)) if error.contains(" unused") => {
                all(&Outcome::Construct("only OPA refuses: unused variables".to_owned()))
            }
            // A function of OPA panics, for one of the inputs.
            (Ok(_), Err(error)) if error.starts_with("panic: ") && case.requests.len() > 1 => {
                let each = (0..case.requests.len()).map(|at| Self::only(case, at));
                let compare = |one: Case| {
                    let answers = ask(judge, Self::NAME, &json!([Self::question(&one)]));
                    let answer = answers.first().unwrap().as_ref().map_err(String::as_str);
                    Self::compare(&one, answer, judge)
                };
                each.flat_map(compare).collect()
            }
            (Ok(bundle), Err(error)) if error.starts_with("panic: ") => {
                let input = Value::from(case.requests.first().unwrap().clone());
                match Ours::of(&bundle, &input) {
                    Ours::Value(ours) if ours_allows(&ours) => {
                        all(&Outcome::Unexplained(format!("ours permits where OPA fails: {error}")))
                    }
                    _ => all(&Outcome::Construct("OPA panics".to_owned())),
                }
            }
            (Ok(_), Err(_)) if is_accepted_without_unneeded(case, judge) => all(&Outcome::Construct(
                "only OPA refuses: what no decision needs".to_owned(),
            )),
            (Ok(_), Err(error)) => all(&Outcome::Unexplained(format!("ours loads, OPA refuses: {error}"))),
        }
    }
}

fn is_accepted_without_unneeded(case: &Case, judge: &Judge) -> bool {
    let questions = json!([Policies::question(&case.without_unneeded())]);
    ask(judge, Policies::NAME, &questions)
        .iter()
        .all(|answer| match answer {
            Ok(_) => true,
            Err(error) => error.contains("rego_type_error"),
        })
}

fn compare_one(ours: &Ours, strict: &Answer, default: &Answer) -> Outcome {
    let unexplained = |what: &str| {
        let (strict, default) = (strict.show(), default.show());
        Outcome::Unexplained(format!(
            "{what}: ours {}; OPA strict {strict}; default {default}",
            ours.show()
        ))
    };
    // OPA calls the functions in a statement before it looks at its references, and so finds that one has two
    // results where a reference beside it has no value. For the engine the statement is false.
    let is_conflict_of_function = |answer: &Answer| {
        let error = answer.error.as_deref().unwrap_or_default();
        error.contains("eval_conflict_error: function data.")
    };
    let is_allowed_by_default = default.value.as_ref().is_some_and(allows);
    match (ours, &strict.value, &strict.error) {
        (Ours::Value(_) | Ours::Undefined, None, Some(_)) if is_conflict_of_function(default) => {
            Outcome::Construct("only OPA stops: a function with two results".to_owned())
        }
        (Ours::Value(ours), ..) if ours_allows(ours) && !is_allowed_by_default => unexplained("only ours permits"),
        (Ours::Value(ours), Some(theirs), _) if is_same(ours, theirs) => Outcome::Same(if ours_allows(ours) {
            Verdict::Allow
        } else {
            Verdict::Deny
        }),
        (Ours::Undefined, None, None) => Outcome::Same(Verdict::Deny),
        (Ours::Error(Error::Time | Error::Memory { .. }), ..) => Outcome::Construct("bounds".to_owned()),
        (Ours::Error(Error::Panicked), ..) => unexplained("panic"),
        (Ours::Error(_), None, Some(error)) if is_allowed_by_default => {
            Outcome::Construct(format!("only strict errors deny: {}", failure(error)))
        }
        (Ours::Error(_), None, Some(_)) => Outcome::Same(Verdict::Refused),
        // Which conditions of a body are evaluated when one of them is false depends on their order, and
        // OPA has its own.
        (Ours::Error(error), ..) => Outcome::Construct(format!("only ours stops: {}", construct(&error.to_string()))),
        (Ours::Value(ours), None, Some(_)) if default.value.as_ref().is_some_and(|value| is_same(ours, value)) => {
            Outcome::Construct("only OPA stops, and goes on likewise by default".to_owned())
        }
        (Ours::Value(_) | Ours::Undefined, None, Some(_)) => unexplained("only OPA stops"),
        (Ours::Value(_) | Ours::Undefined, ..) => unexplained("values differ"),
    }
}

fn ours_allows(value: &Value) -> bool {
    value["allow"] == Value::Bool(true)
}

/// Whether a decision, as OPA gives it, allows.
fn allows(value: &Json) -> bool {
    let entries = value["object"].as_array();
    let mut entries = entries.into_iter().flatten();
    entries.any(|entry| *entry == json!(["allow", true]))
}

/// The kind of a finding, without the names in it, except those of functions.
pub(crate) fn construct(finding: &str) -> String {
    let first = finding.split("; ").next().unwrap_or_default();
    if first.contains("cannot be used in a policy") {
        return first.to_owned();
    }
    let pieces = first.split('`').enumerate();
    let pieces: Vec<&str> = pieces
        .map(|(at, piece)| if at % 2 == 1 { "…" } else { piece })
        .collect();
    pieces
        .join("`")
        .chars()
        .map(|letter| if letter.is_ascii_digit() { '#' } else { letter })
        .collect()
}

/// The function that failed, of an error such as
/// `policy.rego:9: eval_builtin_error: div: divide by zero`.
fn failure(error: &str) -> String {
    let mut parts = error.split(": ").skip(1);
    let kind = parts.next().unwrap_or_default();
    match kind {
        "eval_conflict_error" => kind.to_owned(),
        _ => parts.next().unwrap_or(kind).to_owned(),
    }
}

#[test]
fn policies_mean_what_opa_says() {
    run::<Policies>();
}
