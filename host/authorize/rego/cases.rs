//! The cases beside a policy.
//!
//! In: `cases.yaml` and a compiled bundle. Out: a result a case. Never: a
//! verdict of one engine only: the interpreter and the machine must agree.

use std::time::{Duration, Instant};

use regorus::Value;
use regorus::utils::limits::ExecutionTimerConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::compile::Parsed;
use super::source::{Kind, Source};
use super::{Decision, Error, Front, decision, parse_yaml, shorten, vm};
use crate::diagnostic::{Diagnostic, Location};

/// Cases of one bundle.
const CASES: usize = 2_000;
/// Time the interpreter has for one case.
const INTERPRETER_TIME: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCases {
    #[serde(default)]
    base: Json,
    cases: Vec<serde_saphyr::Spanned<RawCase>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    note: String,
    #[serde(default)]
    input: Json,
    want: RawWant,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWant {
    allow: bool,
    headers: Option<Json>,
    log: Option<Json>,
}

/// One case, its input complete.
pub(super) struct Case {
    note: String,
    location: Location,
    input: Json,
    want: RawWant,
    reason: Option<String>,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As wanted.
    Pass,
    /// Not as wanted, and how.
    Fail(String),
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// What the case says it shows.
    pub note: String,
    /// File of the case.
    pub file: String,
    /// Line of the case.
    pub line: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Time both engines took together, in microseconds.
    pub micros: u64,
}

/// Reads the cases. At least one must be allowed and one denied.
pub(super) fn read(source: &Source, found: &mut Vec<Diagnostic>) -> Vec<Case> {
    let Some(file) = source.of(Kind::Cases).next() else {
        found.push(Diagnostic::error(None, "there is no `cases.yaml`"));
        return Vec::new();
    };
    let raw: RawCases = match parse_yaml(&file.path, &file.text) {
        Ok(raw) => raw,
        Err(finding) => {
            found.push(finding);
            return Vec::new();
        }
    };
    let here = || Location::new(file.path.as_str(), 0);
    if raw.cases.len() > CASES {
        let message = format!("there are {} cases, {CASES} are allowed", raw.cases.len());
        found.push(Diagnostic::error(here(), message));
        return Vec::new();
    }
    for (wanted, word) in [(true, "allowed"), (false, "denied")] {
        if !raw.cases.iter().any(|case| case.value.want.allow == wanted) {
            let hint = "a policy is tested both ways: one case that is allowed, one that is denied";
            found.push(Diagnostic::error(here(), format!("no case is {word}")).with_hint(hint));
        }
    }
    let base = raw.base;
    let complete = |case: serde_saphyr::Spanned<RawCase>| {
        let line = u32::try_from(case.referenced.line()).unwrap_or(0);
        let mut input = if base.is_null() {
            Json::Object(serde_json::Map::new())
        } else {
            base.clone()
        };
        let case = case.value;
        merge(&mut input, case.input);
        let location = Location::new(file.path.as_str(), line);
        Case {
            note: case.note,
            location,
            input,
            want: case.want,
            reason: case.reason,
        }
    };
    raw.cases.into_iter().map(complete).collect()
}

/// Lays `over` over `under`: objects key by key, `null` removes, anything else
/// replaces.
fn merge(under: &mut Json, over: Json) {
    match (under, over) {
        (_, Json::Null) => {}
        (Json::Object(under), Json::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    under.remove(&key);
                } else {
                    merge(under.entry(key).or_insert(Json::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}

/// What is wrong with an input, by the front's schema.
pub(super) fn schema_errors(front: Front, input: &Json) -> Vec<String> {
    let Ok(validator) = jsonschema::validator_for(front.input_schema()) else {
        return vec!["the schema of the input is broken".to_owned()];
    };
    let errors = validator.iter_errors(input).take(5);
    errors
        .map(|error| shorten(&format!("`input{}`: {error}", error.instance_path())))
        .collect()
}

/// Evaluates an input with both engines.
///
/// # Errors
/// The text says how the engines disagree; the inner error is a denial both
/// agree on.
pub(super) fn evaluate(front: Front, parsed: &mut Parsed, input: &Json) -> Result<Result<Decision, Error>, String> {
    let value = Value::from(input.clone());
    // The machine first: it has limits. What it cannot finish is no decision,
    // whatever the interpreter, which has fewer, would say.
    let ran = match vm::machine(&parsed.compiled).and_then(|machine| vm::once(machine, value.clone())) {
        Ok(ran) => ran,
        Err(error) => return Ok(Err(error)),
    };
    match interpret(front, parsed, value.clone()) {
        Ok(interpreted) if interpreted == ran => {}
        Ok(other) => {
            let (one, other) = (show(&ran), show(&other));
            return Err(format!(
                "the engines disagree: the machine gives {one}, the interpreter {other}"
            ));
        }
        Err(error) => {
            let one = show(&ran);
            return Err(format!(
                "the engines disagree: the machine gives {one}, the interpreter fails: {error}"
            ));
        }
    }
    match parsed.compiled.conditions_deny(&value) {
        Ok(None) => Ok(decision::read(front, &ran)),
        Ok(Some(denied)) => Ok(Ok(denied)),
        Err(error) => Ok(Err(error)),
    }
}

fn interpret(front: Front, parsed: &mut Parsed, input: Value) -> Result<Value, String> {
    let check_interval = std::num::NonZeroU32::MIN;
    parsed.engine.set_execution_timer_config(ExecutionTimerConfig {
        limit: INTERPRETER_TIME,
        check_interval,
    });
    parsed.engine.set_input(input);
    parsed.engine.eval_rule(front.entry_point()).map_err(|error| {
        let text = format!("{error:#}");
        let message = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("error: "))
            .unwrap_or(&text)
            .to_owned();
        shorten(&message)
    })
}

/// A short text of a value. What is deep or long is not written out.
fn show(value: &Value) -> String {
    match value {
        Value::Object(object) if object.len() <= 4 => {
            let entries = object
                .iter_sorted()
                .map(|(key, value)| format!("{}: {}", show(key), show_flat(value)));
            format!("`{{{}}}`", entries.collect::<Vec<_>>().join(", "))
        }
        other => show_flat(other),
    }
}

fn show_flat(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::String(text) => format!("\"{}\"", shorten(text).chars().take(60).collect::<String>()),
        Value::Undefined => "`undefined`".to_owned(),
        other => format!("a {}", decision::type_of(other)),
    }
}

/// Runs one case.
pub(super) fn run(front: Front, parsed: &mut Parsed, case: &Case) -> CaseResult {
    let started = Instant::now();
    let outcome = verdict(front, parsed, case).map_or_else(Outcome::Fail, |()| Outcome::Pass);
    CaseResult {
        note: case.note.clone(),
        file: case.location.file.to_string(),
        line: case.location.line,
        outcome,
        micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
    }
}

fn verdict(front: Front, parsed: &mut Parsed, case: &Case) -> Result<(), String> {
    let wrong = schema_errors(front, &case.input);
    if !wrong.is_empty() {
        return Err(format!("the input does not fit the schema: {}", wrong.join("; ")));
    }
    let decision = evaluate(front, parsed, &case.input)?.map_err(|error| error.to_string())?;
    if decision.allow != case.want.allow {
        let word = |allow: bool| if allow { "allowed" } else { "denied" };
        let (wanted, observed) = (word(case.want.allow), word(decision.allow));
        return Err(format!("wanted {wanted}, got {observed} (`{}`)", decision.reason));
    }
    if let Some(reason) = case.reason.as_ref().filter(|reason| **reason != decision.reason) {
        return Err(format!(
            "wanted the reason `{}`, got `{}`",
            shorten(reason),
            decision.reason
        ));
    }
    for (key, wanted) in [("headers", &case.want.headers), ("log", &case.want.log)] {
        let observed = decision.obligations.get(key);
        if wanted.as_ref().is_some_and(|wanted| Some(wanted) != observed) {
            let observed = observed.map_or_else(|| "none".to_owned(), ToString::to_string);
            return Err(format!("`{key}` is not as wanted, got {}", shorten(&observed)));
        }
    }
    Ok(())
}
