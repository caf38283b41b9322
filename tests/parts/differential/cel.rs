//! Compares predicates in CEL with cel-go. We may be stricter, never more permissive: what is true for
//! us must be true for cel-go.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_support::judge::Judge;
use tollgate_policy::cel::Expression;

use crate::differential::harness::{Kind, Outcome, Verdict, run};
use crate::differential::random::Random;

mod draw;

/// The only variable.
const INPUT: &str = "input";

/// An expression and inputs to evaluate it on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    /// Joined by `&&`.
    conjuncts: Vec<String>,
    inputs: Vec<Value>,
}

impl Case {
    fn expression(&self) -> String {
        let conjuncts: Vec<String> = self.conjuncts.iter().map(|part| format!("({part})")).collect();
        conjuncts.join(" && ")
    }
}

/// cel-go's answer.
#[derive(Deserialize)]
struct Answer {
    /// Why the type checker refuses the expression. The results are then those without it.
    #[serde(default)]
    unchecked: Option<String>,
    results: Vec<Answered>,
}

#[derive(Debug, Deserialize)]
struct Answered {
    /// `true`, `false` or a type.
    #[serde(default)]
    value: Option<String>,
}

impl Answered {
    /// What is true or false; `None` for an error and for another type.
    fn truth(&self) -> Option<bool> {
        self.value.as_deref()?.parse().ok()
    }
}

struct Expressions;

impl Kind for Expressions {
    type Case = Case;
    const NAME: &'static str = "cel";
    const FEWEST: [u64; 3] = [500, 1000, 500];
    const BATCH: usize = 100;

    fn judge() -> Judge {
        Judge::engines()
    }

    fn draw(random: &mut Random) -> Case {
        draw::case(random)
    }

    fn question(case: &Case) -> Value {
        let inputs: Vec<Value> = case.inputs.iter().map(|input| json!({INPUT: input})).collect();
        json!({"expression": case.expression(), "variables": [INPUT], "inputs": inputs})
    }

    fn only(case: &Case, at: usize) -> Case {
        Case {
            inputs: vec![case.inputs[at].clone()],
            ..case.clone()
        }
    }

    fn difference(answers: &str) -> &str {
        answers.split(':').next().unwrap_or_default()
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, _: &Judge) -> Vec<Outcome> {
        let all = |outcome: &Outcome| case.inputs.iter().map(|_| outcome.clone()).collect();
        let (ours, theirs) = match (Expression::compile(&case.expression(), &[INPUT]), theirs) {
            (Ok(ours), Ok(theirs)) => (ours, Answer::deserialize(theirs).unwrap()),
            (Err(_), Err(_)) => return all(&Outcome::Same(Verdict::Refused)),
            (Err(error), Ok(_)) => {
                return all(&Outcome::Construct(format!(
                    "refused: {}",
                    super::rego::construct(&error.to_string())
                )));
            }
            (Ok(_), Err(error)) => return all(&Outcome::Unexplained(format!("ours loads, cel-go refuses: {error}"))),
        };
        let pairs = case.inputs.iter().zip(&theirs.results);
        pairs
            .map(|(input, answered)| {
                let ours = ours.eval_bool(&[(INPUT, input)]);
                match (&ours, answered.truth()) {
                    (Ok(true), Some(true)) if theirs.unchecked.is_none() => Outcome::Same(Verdict::Allow),
                    (Ok(true), Some(true)) => Outcome::Construct("only cel-go refuses: types".to_owned()),
                    (Ok(true), _) => Outcome::Unexplained(format!("ours is true: cel-go {answered:?}")),
                    (Ok(false), Some(false)) => Outcome::Same(Verdict::Deny),
                    (Err(_), None) => Outcome::Same(Verdict::Refused),
                    (Ok(false), None) => Outcome::Construct("ours is false, cel-go fails".to_owned()),
                    (Ok(false), Some(true)) => Outcome::Unexplained("ours is false, cel-go true".to_owned()),
                    (Err(error), Some(_)) => {
                        Outcome::Construct(format!("ours fails: {}", super::rego::construct(&error.to_string())))
                    }
                }
            })
            .collect()
    }
}

#[test]
fn expressions_are_true_only_where_cel_go_says_so() {
    run::<Expressions>();
}
