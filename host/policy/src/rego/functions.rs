//! The built-in functions as policies call them.
//!
//! The interpreter looks for an extension before its own function of that name, so each function
//! that a policy may call is registered as one. That gives every call two things: the memory of the
//! decision is checked, and a failure is reported without the values of the arguments.

use std::cell::Cell;
use std::time::{Duration, Instant};

use regorus::unstable::{Expr, ExprRef, Ref, Source, Span};
use regorus::{Engine, Value};

use super::operators::Operator;
use super::{MAX_MEMORY_BYTES, builtins, decision};

mod encoding;
pub(super) mod format;
mod json;
mod net;
pub(super) mod numbers;
pub(super) mod opa;
mod paths;
pub(super) mod reachable;
pub(super) mod texts;
mod units;
mod uri;
mod uuid;

thread_local! {
    static USAGE: Cell<Usage> = const { Cell::new(Usage { start: 0, deadline: None, exceeded: None }) };
}

/// What the decision that a thread makes has used.
#[derive(Clone, Copy)]
struct Usage {
    /// Bytes that the thread had allocated when the decision started.
    start: i64,
    deadline: Option<Instant>,
    /// The bound that ended the decision.
    exceeded: Option<Exceeded>,
}

/// A bound that a decision exceeded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exceeded {
    /// Bytes beyond the start.
    Memory(u64),
    Time,
}

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

/// Starts to count the memory and the time of a decision on this thread.
///
/// - `limit`: wall time.
pub(super) fn start(limit: Duration) {
    USAGE.set(Usage {
        start: regorus_mimalloc::current_thread_live_bytes(),
        deadline: Instant::now().checked_add(limit),
        exceeded: None,
    });
}

/// Bytes that are allocated now beyond those at the start of the decision.
pub(super) fn memory() -> u64 {
    let now = regorus_mimalloc::current_thread_live_bytes().saturating_sub(USAGE.get().start);
    u64::try_from(now).unwrap_or(0)
}

/// The bound that the decision on this thread exceeded, if it did. Also counts what is allocated now.
pub(super) fn exceeded() -> Option<Exceeded> {
    let now = memory();
    let exceeded = USAGE.get().exceeded;
    exceeded.or((now > MAX_MEMORY_BYTES).then_some(Exceeded::Memory(now)))
}

fn check_memory() -> Result<(), CallError> {
    let exceeded = exceeded();
    if exceeded.is_none() {
        return Ok(());
    }
    USAGE.set(Usage {
        exceeded,
        ..USAGE.get()
    });
    Err(CallError::Exceeded)
}

/// Whether the decision still has time. A function that takes long asks, because the engine looks at the
/// clock only between expressions.
fn has_time() -> bool {
    let usage = USAGE.get();
    let has_time = usage.deadline.is_none_or(|deadline| Instant::now() <= deadline);
    if !has_time && usage.exceeded.is_none() {
        USAGE.set(Usage {
            exceeded: Some(Exceeded::Time),
            ..usage
        });
    }
    has_time
}

/// Registers every function that a policy may call.
///
/// # Errors
/// The text says which could not be registered.
pub(super) fn register(engine: &mut Engine) -> Result<(), String> {
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
            check_memory()?;
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
            check_memory()?;
            Ok(operator.apply(&operands).map_err(CallError::Operator)?)
        };
        let registered = engine.add_extension(name.clone(), arity, Box::new(call));
        registered.map_err(|error| format!("operator `{name}`: {error}"))?;
    }
    Ok(())
}

/// Whether the text is that of a failed call, and so has no values.
pub(super) fn is_failure(text: &str) -> bool {
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
