//! Reads `cases.yaml` and runs its cases against the compiled bundle.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::evaluator::Evaluator;
use crate::front::Front;
use crate::source::{BundleSource, FileKind};
use tollgate_core::diagnostic::{Diagnostic, Location, first_line};
use tollgate_core::yaml;

pub(crate) mod identities;

const MAX_CASES: usize = 2_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCases {
    #[serde(default)]
    base: Json,
    cases: Vec<serde_saphyr::Spanned<Case>>,
    #[serde(default)]
    identities: Vec<serde_saphyr::Spanned<identities::Case>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    note: String,
    #[serde(skip)]
    location: Location,
    /// Complete once all cases are read: merged over the input that they have in common.
    #[serde(default)]
    input: Json,
    want: Want,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    allow: bool,
    headers: Option<Json>,
    log: Option<Json>,
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseOutcome {
    /// As wanted.
    Pass,
    /// Not as wanted. Holds the difference.
    Fail(String),
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The note of the case, which says what it shows.
    pub note: String,
    /// File of the case.
    pub file: String,
    /// Line of the case.
    pub line: u32,
    /// The outcome.
    pub outcome: CaseOutcome,
    /// Time that it took, in microseconds.
    pub micros: u64,
}

#[derive(Default)]
pub(crate) struct Cases {
    pub(crate) decisions: Vec<Case>,
    /// Cases of the names and other values that [`IMPERSONATION_FILE`](tollgate_policy::impersonate::IMPERSONATION_FILE) gives.
    pub(crate) identities: Vec<identities::Case>,
}

/// Reads the cases. At least one must expect an allow and one a denial.
pub(crate) fn read(source: &BundleSource, found: &mut Vec<Diagnostic>) -> Cases {
    let Some(file) = source.files_of(FileKind::Cases).next() else {
        found.push(Diagnostic::error(None, "there is no `cases.yaml`"));
        return Cases::default();
    };
    let raw = yaml::deserialize::<RawCases>(&file.path, &file.text).map_err(|finding| found.push(finding));
    let Ok(raw) = raw else {
        return Cases::default();
    };
    let here = || Location::new(file.path.as_str(), 0);
    let observed = raw.cases.len() + raw.identities.len();
    if observed > MAX_CASES {
        let message = format!("there are {observed} cases, {MAX_CASES} are allowed");
        found.push(Diagnostic::error(here(), message));
        return Cases::default();
    }
    match source.front {
        Front::Extensions | Front::ApplicationSets | Front::Argocd | Front::ControlPlane
            if !raw.identities.is_empty() =>
        {
            let message = format!("the bundle of {} has no `identities`", source.front.as_ref());
            found.push(Diagnostic::error(here(), message));
        }
        Front::Extensions
        | Front::ApplicationSets
        | Front::Argocd
        | Front::ControlPlane
        | Front::Kubernetes
        | Front::Applications => {}
    }
    for (wanted, word) in [(true, "allowed"), (false, "denied")] {
        if !raw.cases.iter().any(|case| case.value.want.allow == wanted) {
            let hint = "a policy is tested both ways: one case that is allowed, one that is denied";
            found.push(Diagnostic::error(here(), format!("no case is {word}")).with_hint(hint));
        }
    }
    let complete = |line: u64, location: &mut Location, input: &mut Json| {
        *location = Location::new(file.path.as_str(), u32::try_from(line).unwrap_or(0));
        *input = merged(&raw.base, std::mem::take(input));
    };
    let mut cases = Cases::default();
    for mut case in raw.cases {
        complete(case.referenced.line(), &mut case.value.location, &mut case.value.input);
        cases.decisions.push(case.value);
    }
    for mut case in raw.identities {
        complete(case.referenced.line(), &mut case.value.location, &mut case.value.input);
        cases.identities.push(case.value);
    }
    cases
}

/// The input of a case: its own over the base, as in RFC 7396. Without one it is the base.
fn merged(base: &Json, own: Json) -> Json {
    let mut input = base.clone();
    json_patch::merge(&mut input, &if own.is_null() { json!({}) } else { own });
    input
}

/// What is wrong with an input; empty if it fits the schema of its front.
pub(crate) fn schema_errors(front: Front, input: &Json) -> Vec<String> {
    let Ok(validator) = jsonschema::validator_for(front.input_schema()) else {
        return vec!["the schema of the input is broken".to_owned()];
    };
    let errors = validator.iter_errors(input).take(5);
    errors
        .map(|error| first_line(&format!("`input{}`: {error}", error.instance_path())))
        .collect()
}

fn check_schema(front: Front, input: &Json) -> Result<(), String> {
    let wrong = schema_errors(front, input);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("the input does not fit the schema: {}", wrong.join("; ")))
}

pub(crate) fn run(evaluator: &mut Evaluator<'_>, case: &Case) -> CaseResult {
    timed(&case.note, &case.location, || {
        let verdict = verdict(evaluator, case);
        // The gateway always has it, so a rule that is undefined without it surprises only here.
        let lacks_time = || evaluator.reads_time() && lacks_time(evaluator.front(), &case.input);
        verdict.map_err(|difference| match lacks_time() {
            true => format!("{difference}; the rules read `input.time`, which the case lacks: set it in `base`"),
            false => difference,
        })
    })
}

/// Whether the input has no time, although that of the front has one.
fn lacks_time(front: Front, input: &Json) -> bool {
    let has_time = front.input_schema().pointer("/properties/time");
    has_time.is_some() && input.get("time").is_none()
}

fn timed(note: &str, location: &Location, run: impl FnOnce() -> Result<(), String>) -> CaseResult {
    let started = Instant::now();
    let outcome = run().map_or_else(CaseOutcome::Fail, |()| CaseOutcome::Pass);
    CaseResult {
        note: note.to_owned(),
        file: location.file.to_string(),
        line: location.line,
        outcome,
        micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
    }
}

fn verdict(evaluator: &mut Evaluator<'_>, case: &Case) -> Result<(), String> {
    check_schema(evaluator.front(), &case.input)?;
    let decision = evaluator.decide(&case.input).map_err(|error| error.to_string())?;
    if decision.allow != case.want.allow {
        let word = |allow: bool| if allow { "allowed" } else { "denied" };
        let (wanted, observed) = (word(case.want.allow), word(decision.allow));
        return Err(format!("wanted {wanted}, got {observed} (`{}`)", decision.reason));
    }
    if let Some(reason) = case.reason.as_ref().filter(|reason| **reason != decision.reason) {
        let (wanted, observed) = (first_line(reason), decision.reason);
        return Err(format!("wanted the reason `{wanted}`, got `{observed}`"));
    }
    for (key, wanted) in [("headers", &case.want.headers), ("log", &case.want.log)] {
        let observed = decision.obligations.get(key);
        if wanted.as_ref().is_some_and(|wanted| Some(wanted) != observed) {
            let observed = observed.map_or_else(|| "none".to_owned(), ToString::to_string);
            return Err(format!("`{key}` is not as wanted, got {}", first_line(&observed)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::merged;

    #[test]
    fn inputs_are_merged_into_the_base() {
        let base = json!({"a": {"b": 1, "c": [1, 2]}, "d": 2});
        assert_eq!(merged(&base, Json::Null), base);
        assert_eq!(
            merged(&base, json!({"a": {"b": 3}})),
            json!({"a": {"b": 3, "c": [1, 2]}, "d": 2})
        );
        assert_eq!(
            merged(&base, json!({"a": {"c": [9]}})),
            json!({"a": {"b": 1, "c": [9]}, "d": 2})
        );
        assert_eq!(merged(&base, json!({"a": null})), json!({"d": 2}));
        assert_eq!(
            merged(&base, json!({"d": {"e": null, "f": 1}})),
            json!({"a": {"b": 1, "c": [1, 2]}, "d": {"f": 1}})
        );
        assert_eq!(merged(&base, json!({"x": {"y": {"z": null}}}))["x"], json!({"y": {}}));
    }
}
