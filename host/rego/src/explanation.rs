//! Finds the conditions that were not true for one input, for `tollgate policy explain`.
//!
//! The engine reports which lines it reached, and no values. So the rules are compiled once more with a
//! probe for each start of each body that was tried: the first start that does not hold ends with the
//! condition that was not true. Bodies of functions depend on their arguments and are not looked into.
//!
//! This runs in the child process that evaluates policies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use regorus::unstable::{Module, Rule, RuleBody, RuleHead, Span};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use serde::{Deserialize, Serialize};

use crate::coverage::FileCoverage;
use crate::engine::new_engine;
use crate::source::{BundleSource, FileKind};
use crate::syntax;
use crate::usage;
use tollgate_core::diagnostic::Location;

/// Most bodies that are looked into. A policy that tries more is not read line by line anyway.
const MAX_BODIES: usize = 200;

/// Most conditions of a body that is looked into, with the rest of its rule.
const MAX_CONDITIONS: usize = 32;

/// Maximum time for all probes. The process has 20 s of CPU time for everything.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Maximum time of one probe.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// Rules of no policy start like this.
const PROBE: &str = "tollgate_explain";

/// A condition that was tried and was not true: it was false, or had no value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UntrueCondition {
    /// The file.
    pub file: String,
    /// Line on which it starts, from 1.
    pub line: u32,
    /// The rule that it is in, such as `permitted`, or the name of a match condition.
    pub rule: String,
    /// Its source, on one line.
    pub text: String,
}

impl UntrueCondition {
    pub(crate) fn new(at: &Location, rule: &str, text: &str) -> Self {
        Self {
            file: at.file.to_string(),
            line: at.line,
            rule: rule.to_owned(),
            text: one_line(text),
        }
    }
}

/// A body of a rule that was tried.
struct Body<'a> {
    package: String,
    rule: String,
    conditions: Vec<&'a Span>,
    /// Whether it is tried only if the one before it in the list does not hold.
    follows: bool,
}

/// The conditions of `modules` that were tried for this input and were not true, by file and line.
///
/// - `coverage`: the lines that the evaluation reached.
///
/// # Errors
/// The text says why they cannot be told.
pub(crate) fn untrue_conditions(
    source: &BundleSource,
    modules: &[Module],
    coverage: &[FileCoverage],
    data: &str,
    input: &Value,
) -> Result<Vec<UntrueCondition>, String> {
    let bodies = tried(modules, coverage);
    let probes = probes(&bodies);
    let files = source.files_of(FileKind::Policy).map(|file| {
        let more = probes.get(&file.path).map_or("", String::as_str);
        (file.path.clone(), format!("{}{more}", file.text))
    });
    let mut engine = new_engine(files, data)?;
    engine.set_input(input.clone());
    if let Some(body) = bodies.first() {
        let probe = probe_path(body, 0, 0);
        engine
            .compile_with_entrypoint(&probe.into())
            .map_err(|error| format!("{error:#}"))?;
    }
    let end = Instant::now() + TIME_LIMIT;
    let mut untrue = BTreeSet::new();
    let mut does_hold = false;
    for (number, body) in bodies.iter().enumerate() {
        if body.follows && does_hold {
            continue;
        }
        let mut failed = None;
        for (at, condition) in body.conditions.iter().enumerate() {
            if Instant::now() > end {
                return Err("the rules take too long".to_owned());
            }
            if !holds(engine.clone(), probe_path(body, number, at)) {
                failed = Some(condition);
                break;
            }
        }
        does_hold = failed.is_none();
        let found = failed.map(|span| UntrueCondition::new(&syntax::location(span), &body.rule, text(span)));
        untrue.extend(found);
    }
    Ok(untrue.into_iter().collect())
}

/// The bodies that may have been tried. A first body was, if one of its lines was reached.
fn tried<'a>(modules: &'a [Module], coverage: &[FileCoverage]) -> Vec<Body<'a>> {
    let mut bodies = Vec::new();
    for module in modules {
        let package = syntax::package(module).join(".");
        for rule in &module.policy {
            let Rule::Spec { head, bodies: own, .. } = &**rule else {
                continue;
            };
            if matches!(head, RuleHead::Func { .. }) {
                continue;
            }
            let name = syntax::dotted(syntax::head_of(rule));
            for (at, body) in own.iter().enumerate() {
                let follows = at > 0 && body.is_else;
                let is_tried = follows || is_reached(body, coverage);
                if !is_tried || body.query.stmts.len() > MAX_CONDITIONS {
                    break;
                }
                bodies.push(Body {
                    package: package.clone(),
                    rule: name.clone(),
                    conditions: body.query.stmts.iter().map(|condition| &condition.span).collect(),
                    follows,
                });
            }
        }
    }
    bodies.truncate(MAX_BODIES);
    bodies
}

fn is_reached(body: &RuleBody, coverage: &[FileCoverage]) -> bool {
    let mut conditions = body.query.stmts.iter();
    conditions.any(|condition| {
        let at = syntax::location(&condition.span);
        let file = coverage.iter().find(|file| file.file == *at.file);
        let end = at.line.saturating_add(line_breaks(text(&condition.span)));
        file.is_some_and(|file| file.covered.iter().any(|line| (at.line..=end).contains(line)))
    })
}

/// The source of a condition. The span of a text has no quotes, so they are missing where a condition
/// starts or ends with one.
fn text(span: &Span) -> &str {
    let contents = span.source.get_contents();
    let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
    let (start, end) = (at(span.start), at(span.end));
    let is_quote = |at: usize| matches!(contents.as_bytes().get(at), Some(b'"' | b'`'));
    let start = start.checked_sub(1).filter(|before| is_quote(*before)).unwrap_or(start);
    let end = if is_quote(end) { end.saturating_add(1) } else { end };
    contents.get(start..end).unwrap_or_default()
}

fn line_breaks(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The probes of each file, to be added at its end: a rule for each start of each body.
fn probes(bodies: &[Body<'_>]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for (number, body) in bodies.iter().enumerate() {
        let mut start = String::new();
        for (at, condition) in body.conditions.iter().enumerate() {
            let file: &mut String = files.entry(syntax::location(condition).file.to_string()).or_default();
            start.push_str(text(condition));
            start.push('\n');
            let name = name_of_probe(number, at);
            file.extend(["\n", &name, " if {\n", &start, "}\n"]);
        }
    }
    files
}

fn name_of_probe(body: usize, condition: usize) -> String {
    format!("{PROBE}_{body}_{condition}")
}

fn probe_path(body: &Body<'_>, number: usize, condition: usize) -> String {
    format!("data.{}.{}", body.package, name_of_probe(number, condition))
}

/// Whether all conditions of a probe are true. One that fails is not.
fn holds(mut engine: Engine, probe: String) -> bool {
    let check_interval = std::num::NonZeroU32::MIN;
    engine.set_execution_timer_config(ExecutionTimerConfig {
        limit: PROBE_TIME,
        check_interval,
    });
    usage::start(PROBE_TIME);
    engine.eval_rule(probe).is_ok_and(|value| value == Value::from(true))
}
