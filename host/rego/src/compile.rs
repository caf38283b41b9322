//! Compiles the files of a bundle to what decides, [`Compiled`], or reports findings.
//!
//! Security: compilation needs a large stack. In the gateway's process it runs only after a child
//! process has done the same.

use regorus::unstable::Module;
use regorus::{Engine, Value};
use serde::Deserialize;

use super::explanation::UntrueCondition;
use super::source::{BundleSource, FileKind};
use crate::constructs;
use crate::decision::{self, Decision};
use crate::dependencies::InputDependencies;
use crate::engine::{error_message, new_engine, parse_text, reported_location};
use crate::error::Error;
use crate::front::Front;
use crate::graph;
use crate::growth;
use tollgate_core::diagnostic::{Diagnostic, Location, first_line};
use tollgate_core::yaml;
use tollgate_policy::cel;

/// Bytes of stack for parsing, compiling and testing.
pub(crate) const STACK_BYTES: usize = 64 * 1024 * 1024;
const MAX_CONDITIONS: usize = 32;

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) front: Front,
    /// The rules, ready to evaluate.
    pub(crate) engine: Engine,
    pub(crate) entry_point: String,
    /// The data tree as JSON. Each thread parses its own copy once.
    pub(crate) data: String,
    pub(crate) conditions: Vec<Condition>,
    /// Parts of the input that rules and conditions read.
    pub(crate) dependencies: InputDependencies,
}

/// A match condition. The request is denied unless it is true.
#[derive(Debug)]
pub(crate) struct Condition {
    name: String,
    message: String,
    location: Location,
    source: String,
    expression: cel::Expression,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawConditions {
    match_conditions: Vec<RawCondition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCondition {
    name: serde_saphyr::Spanned<String>,
    expression: serde_saphyr::Spanned<String>,
    message: String,
}

impl Compiled {
    /// An engine with its own copy of the data.
    ///
    /// # Errors
    /// [`Error::Evaluation`] if the engine refuses what it accepted when the bundle was loaded.
    pub(crate) fn new_engine(&self) -> Result<Engine, Error> {
        let broken = |_| Error::Evaluation("the data cannot be read".to_owned());
        let mut engine = self.engine.clone();
        engine.clear_data();
        let data = Value::from_json_str(&self.data).map_err(broken)?;
        engine.add_data(data).map_err(broken)?;
        engine
            .compile_with_entrypoint(&self.entry_point.as_str().into())
            .map_err(broken)?;
        Ok(engine)
    }

    /// The denial of the first condition that is not true; `None` if all are true.
    ///
    /// # Errors
    /// [`Error::Condition`] for a condition that cannot be evaluated, after every condition before
    /// it was true. This denies as well.
    pub(crate) fn evaluate_conditions(&self, input: &Value) -> Result<Option<Decision>, Error> {
        if self.conditions.is_empty() {
            return Ok(None);
        }
        let json =
            serde_json::to_value(input).map_err(|_| Error::Evaluation("the input cannot be written as JSON".into()))?;
        let failed = |name: &str, source| Error::Condition {
            name: name.to_owned(),
            source,
        };
        let variables = cel::Variables::new([("input", &json)]).map_err(|source| failed("*", source))?;
        for condition in &self.conditions {
            match condition.expression.eval_bool_in(&variables) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Decision::denied(&condition.message))),
                Err(source) => return Err(failed(&condition.name, source)),
            }
        }
        Ok(None)
    }

    /// The first condition that is not true, which denies. Of conditions joined by `&&` it is the first
    /// false one.
    pub(crate) fn untrue_condition(&self, input: &Value) -> Option<UntrueCondition> {
        let json = serde_json::to_value(input).ok()?;
        let variables = cel::Variables::new([("input", &json)]).ok()?;
        let is_true = |condition: &&Condition| condition.expression.eval_bool_in(&variables) == Ok(true);
        let condition = self.conditions.iter().find(|condition| !is_true(condition))?;
        let is_false = |part: &&str| {
            let part = cel::Expression::compile(part, &["input"]);
            part.and_then(|part| part.eval_bool_in(&variables)) == Ok(false)
        };
        let mut text = condition.source.as_str();
        while let Some(part) = cel::conjuncts(text).into_iter().find(is_false) {
            // What is no conjunction is its only part.
            if part.len() == text.len() {
                break;
            }
            text = part;
        }
        Some(UntrueCondition::new(&condition.location, &condition.name, text))
    }
}

/// Compiles on a thread with a large stack; a panic is a finding.
pub(crate) fn compile_on_large_stack(source: &BundleSource) -> Result<Compiled, Vec<Diagnostic>> {
    let message = "the policy compiler panicked or could not be started";
    let broken = || vec![Diagnostic::error(None, message)];
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("policy-compile".into())
            .stack_size(STACK_BYTES);
        let handle = thread.spawn_scoped(scope, || compile(source)).map_err(|_| broken())?;
        handle.join().map_err(|_| broken())?
    })
}

pub(crate) fn compile(source: &BundleSource) -> Result<Compiled, Vec<Diagnostic>> {
    let mut found = Vec::new();
    let modules = parse(source, &mut found);
    if !found.is_empty() {
        return Err(found);
    }
    let entry_point = source.entry_point();
    let entry: Vec<&str> = entry_point.split('.').skip(1).collect();
    let needs = graph::check(&modules, &entry, source.input_schema()).map_err(|more| found.extend(more));
    let tree = data(source, &mut found);
    let reached = needs.as_ref().ok().map(|needs| &needs.rules);
    found.extend(constructs::check(&modules, reached, &tree, source.input_schema()));
    if !found.iter().any(Diagnostic::is_error) {
        // It follows references, and would not come to an end in a cycle, which is a finding by now.
        found.extend(growth::check(&modules, &tree, source.input_schema()));
    }
    let data = tree.to_string();
    let conditions = conditions(source, &mut found);
    let needs = needs.ok().filter(|_| !found.iter().any(Diagnostic::is_error));
    let Some(graph::Needs {
        input: mut dependencies,
        ..
    }) = needs
    else {
        return Err(found);
    };
    if !conditions.is_empty() {
        // What a condition reads is not analyzed, so everything counts as read.
        dependencies.record(&[]);
    }
    dependencies.content &= source.front == Front::Argocd;
    let mut policies = source.files_of(FileKind::Policy);
    let policy = policies.next().map_or("policy.rego", |file| file.path.as_str());
    build(source, &entry_point, &data)
        .map(|engine| Compiled {
            front: source.front,
            engine,
            entry_point,
            data,
            conditions,
            dependencies,
        })
        .map_err(|error| vec![engine_error(policy, &error)])
}

pub(crate) fn parse(source: &BundleSource, found: &mut Vec<Diagnostic>) -> Vec<Module> {
    let mut modules = Vec::new();
    for file in source.files_of(FileKind::Policy) {
        match parse_text(&file.path, &file.text) {
            Ok(module) => modules.push(module),
            Err(error) => found.push(engine_error(&file.path, &error)),
        }
    }
    modules
}

pub(crate) fn build(source: &BundleSource, entry_point: &str, data: &str) -> Result<Engine, String> {
    let files = source.files_of(FileKind::Policy);
    let files = files.map(|file| (file.path.clone(), file.text.clone()));
    let mut engine = new_engine(files, data)?;
    let compiled = engine.compile_with_entrypoint(&entry_point.into());
    compiled.map_err(|error| format!("{error:#}"))?;
    Ok(engine)
}

/// The engine's errors are texts such as
/// `--> policy.rego:3:5\n  |\n3 | …\n  | ^\nerror: message`.
fn engine_error(file: &str, text: &str) -> Diagnostic {
    let message = error_message(text);
    let location = reported_location(text).unwrap_or_else(|| Location::new(file, 0));
    Diagnostic::error(location, first_line(message).to_lowercase())
}

fn data(source: &BundleSource, found: &mut Vec<Diagnostic>) -> serde_json::Value {
    let mut tree = serde_json::Map::new();
    for file in source.files_of(FileKind::Data) {
        let here = || Location::new(file.path.as_str(), 0);
        if file.stem == "tollgate" {
            let message = "data must not have the name of the rules' package";
            found.push(Diagnostic::error(here(), message).with_hint("give the file another name"));
        }
        match yaml::deserialize(&file.path, &file.text) {
            Ok(value) => {
                if tree.insert(file.stem.clone(), value).is_some() {
                    let message = format!("there are two data files `{}`", file.stem);
                    found.push(Diagnostic::error(here(), message));
                }
            }
            Err(finding) => found.push(finding),
        }
    }
    tree.into()
}

fn conditions(source: &BundleSource, found: &mut Vec<Diagnostic>) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = Vec::new();
    for file in source.files_of(FileKind::Condition) {
        let raw = yaml::deserialize::<RawConditions>(&file.path, &file.text).map_err(|finding| found.push(finding));
        let Ok(raw) = raw else { continue };
        for raw in raw.match_conditions {
            let line = u32::try_from(raw.expression.referenced.line()).unwrap_or(0);
            let here = Location::new(file.path.as_str(), line);
            let name = raw.name.value;
            if let Err(problem) = decision::check_reason(&raw.message) {
                let message = format!("the message of condition `{name}` {problem}");
                found.push(Diagnostic::error(here.clone(), message));
            }
            if conditions.iter().any(|other| other.name == name) || conditions.len() >= MAX_CONDITIONS {
                let message = format!("condition `{name}` stands twice, or there are more than {MAX_CONDITIONS}");
                found.push(Diagnostic::error(here.clone(), message));
                continue;
            }
            match cel::Expression::compile(&raw.expression.value, &["input"]) {
                Ok(expression) => conditions.push(Condition {
                    name,
                    message: raw.message,
                    location: here,
                    source: raw.expression.value,
                    expression,
                }),
                Err(error) => found.push(Diagnostic::error(here, format!("condition `{name}`: {error}"))),
            }
        }
    }
    conditions
}
