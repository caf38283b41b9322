//! Makes engines: with the built-in functions and operators as policies call them, the texts of
//! policies, and their data.
//!
//! The interpreter looks for an extension before its own function of that name, so each function
//! that a policy may call is registered as one. That gives every call two things: the memory of the
//! decision is checked, and a failure is reported without the values of the arguments.

use std::num::NonZeroU32;

use regorus::unstable::{Expr, ExprRef, Module, Parser, Ref, Source, Span};
use regorus::{Engine, PolicyLengthConfig, Value};

use crate::builtins;
use crate::decision;
use crate::functions::{numbers, opa};
use crate::operators::{self, Operator};
use crate::usage;
use tollgate_core::diagnostic::Location;

/// Why a call failed. The text has no value: it goes into records.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("`{name}` failed, given {types}")]
    Failed { name: &'static str, types: String },
    #[error("{0}")]
    Operator(&'static str),
    #[error("the decision needs too much memory or time")]
    Exceeded,
}

pub(crate) fn parse_text(path: &str, text: &str) -> Result<Module, String> {
    let source = Source::from_contents(path.to_owned(), text.to_owned());
    let parsed = source.and_then(|source| {
        let mut parser = Parser::new(&source)?;
        parser.enable_rego_v1()?;
        parser.parse()
    });
    parsed.map_err(|error| format!("{error:#}"))
}

/// An engine with the texts of policies, by path, and data as JSON.
pub(crate) fn new_engine(files: impl Iterator<Item = (String, String)>, data: &str) -> Result<Engine, String> {
    let text = |error: &dyn std::fmt::Display| format!("{error:#}");
    let mut engine = Engine::new();
    engine.set_strict_builtin_errors(true);
    register(&mut engine)?;
    // Calls make lines longer.
    engine.set_policy_length_config(PolicyLengthConfig {
        max_col: NonZeroU32::MAX,
        ..PolicyLengthConfig::default()
    });
    let parsed = files.map(|(path, policy)| parse_text(&path, &policy).map(|module| (path, policy, module)));
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    let packages = operators::packages(parsed.iter().map(|(_, _, module)| module));
    for (path, policy, module) in parsed {
        let policy = operators::rewritten(&policy, &module, &packages);
        engine.add_policy(path, policy).map_err(|error| text(&error))?;
    }
    let data = Value::from_json_str(data).map_err(|error| text(&error))?;
    engine.add_data(data).map_err(|error| text(&error))?;
    Ok(engine)
}

/// The first place that an engine's error names.
pub(crate) fn reported_location(text: &str) -> Option<Location> {
    text.lines().find_map(|line| {
        let mut parts = line.trim_start().strip_prefix("--> ")?.rsplitn(3, ':');
        let column = parts.next()?.trim().parse().ok()?;
        let line = parts.next()?.parse().ok()?;
        Some(Location {
            file: parts.next()?.into(),
            line,
            column,
        })
    })
}

/// What follows `error: ` in an engine's error.
pub(crate) fn error_message(text: &str) -> &str {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.trim_start().strip_prefix("error: "))
        .unwrap_or(text)
}

fn check_usage() -> Result<(), CallError> {
    usage::is_within_bounds().then_some(()).ok_or(CallError::Exceeded)
}

/// Registers every function that a policy may call.
///
/// # Errors
/// The text says which could not be registered.
fn register(engine: &mut Engine) -> Result<(), String> {
    for name in builtins::names() {
        let theirs = regorus::unstable::BUILTINS.get(name).map(|(function, _)| *function);
        let ours = opa::find(name);
        let arity = builtins::arity(name).and_then(|arity| u8::try_from(arity).ok());
        let Some(arity) = arity.filter(|_| ours.is_some() || theirs.is_some()) else {
            return Err(format!("the engine has no function `{name}`"));
        };
        let (span, parameters) = placeholders(name, arity)?;
        let call = move |arguments: Vec<Value>| {
            let result = match ours {
                _ if opa::refuses(name, &arguments) => None,
                Some(function) => function(&arguments),
                None => theirs.and_then(|function| function(&span, &parameters, &arguments, true).ok()),
            };
            // After the call, so that its result counts.
            check_usage()?;
            let result = result.filter(|value| *value != Value::Undefined || opa::can_be_undefined(name));
            let result = result.map(numbers::normalized).filter(numbers::are_exact);
            Ok(result.ok_or_else(|| failed(name, &arguments))?)
        };
        let registered = engine.add_extension(name.to_owned(), arity, Box::new(call));
        registered.map_err(|error| format!("function `{name}`: {error}"))?;
    }
    for operator in Operator::all() {
        let name = operator.name();
        let arity = u8::try_from(operator.arity()).map_err(|error| error.to_string())?;
        let call = move |operands: Vec<Value>| {
            check_usage()?;
            Ok(operator.apply(&operands).map_err(CallError::Operator)?)
        };
        let registered = engine.add_extension(name.clone(), arity, Box::new(call));
        registered.map_err(|error| format!("operator `{name}`: {error}"))?;
    }
    Ok(())
}

/// Whether the text is that of a failed call, and so has no values.
pub(crate) fn is_failure(text: &str) -> bool {
    let called = text
        .strip_prefix('`')
        .and_then(|rest| rest.split_once("` failed, given "));
    called.is_some_and(|(name, _)| builtins::names().any(|known| known == name))
}

fn failed(name: &'static str, arguments: &[Value]) -> CallError {
    let types: Vec<String> = arguments
        .iter()
        .map(|argument| decision::type_of(argument).to_owned())
        .collect();
    CallError::Failed {
        name,
        types: types.join(", "),
    }
}

/// What the engine's functions take to say where a call is. The interpreter adds the real place.
fn placeholders(name: &str, arity: u8) -> Result<(Span, Vec<ExprRef>), String> {
    let source = Source::from_contents(name.to_owned(), name.to_owned()).map_err(|error| error.to_string())?;
    let span = Span {
        source,
        line: 1,
        col: 1,
        start: 0,
        end: 0,
    };
    let parameter = Expr::Null {
        span: span.clone(),
        value: Value::Null,
        eidx: 0,
    };
    Ok((span, vec![Ref::new(parameter); usize::from(arity)]))
}
