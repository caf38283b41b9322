//! Evaluates the rules of a bundle for an input. Everything that decides goes through here: the
//! gateway, cases, `tollgate policy eval` and `explain`, and the console.
//!
//! Any failure ends the evaluation, and denies: a function or operator that fails, and a rule with
//! two different values.
//!
//! Invariant: no two threads share a data tree, as shared reference counts make two threads slower
//! than one. No lock is held during evaluation.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};

use crate::compile::Compiled;
use crate::engine::{error_message, is_failure, reported_location};
use crate::error::Error;
use crate::functions::numbers;
use crate::limits::{MAX_ATTEMPTS, MAX_MEMORY_BYTES};
use crate::operators;
use crate::starvation;
use crate::usage::{self, Exceeded};

/// Bytes that an evaluation may leave in its engine. The engine frees them when the next one has started,
/// which can use as many beyond its bound.
const MAX_KEPT_BYTES: u64 = 64 * 1024;

/// Expressions between two readings of the clock.
const CLOCK_INTERVAL: NonZeroU32 = NonZeroU32::new(64).unwrap();

struct ThreadEngine {
    generation: u64,
    alive: Weak<()>,
    /// Has evaluated nothing.
    pristine: Engine,
    working: Engine,
}

thread_local! {
    static THREAD_ENGINES: RefCell<Vec<ThreadEngine>> = const { RefCell::new(Vec::new()) };
}

/// - `limit`: wall time, of which an attempt may use twice as much after one whose thread was held up.
pub(crate) fn run(
    generation: u64,
    alive: &Arc<()>,
    compiled: &Compiled,
    input: &Value,
    limit: Duration,
) -> Result<Value, Error> {
    // Taken out, so that nothing stays borrowed while a policy runs.
    let existing = THREAD_ENGINES.with_borrow_mut(|engines| {
        let at = engines.iter().position(|engine| engine.generation == generation)?;
        Some(engines.swap_remove(at))
    });
    let mut engine = match existing {
        Some(engine) => engine,
        None => {
            let pristine = compiled.new_engine()?;
            ThreadEngine {
                generation,
                alive: Arc::downgrade(alive),
                working: pristine.clone(),
                pristine,
            }
        }
    };
    let result = starvation::retry_if_starved(limit, MAX_ATTEMPTS, |limit| {
        let result = run_once(&mut engine.working, &compiled.entry_point, input, limit);
        if result.is_err() || leaves_much() {
            engine.working = engine.pristine.clone();
        }
        result
    });
    THREAD_ENGINES.with_borrow_mut(|engines| {
        // Engines of replaced bundles are dropped when a newer bundle is used.
        if engines.iter().any(|other| other.generation < generation) {
            engines.retain(|engine| engine.alive.strong_count() > 0);
        }
        engines.push(engine);
    });
    result
}

/// Evaluates once. After an error the engine must not be used again: what a failed evaluation leaves behind,
/// such as the value of a loop, must not reach the next.
///
/// - `limit`: wall time.
pub(crate) fn run_once(engine: &mut Engine, entry_point: &str, input: &Value, limit: Duration) -> Result<Value, Error> {
    let run = AssertUnwindSafe(|| evaluate(engine, entry_point, input, limit));
    catch_unwind(run).unwrap_or(Err(Error::Panicked))
}

/// Whether the last evaluation left more than [`MAX_KEPT_BYTES`] in its engine, which then must not be used
/// again.
pub(crate) fn leaves_much() -> bool {
    usage::memory() > MAX_KEPT_BYTES
}

fn evaluate(engine: &mut Engine, entry_point: &str, input: &Value, limit: Duration) -> Result<Value, Error> {
    if !numbers::are_exact(input) {
        let what = "the input has a whole number with a point or exponent, or with more digits than are kept";
        return Err(Error::Evaluation(what.to_owned()));
    }
    engine.set_execution_timer_config(ExecutionTimerConfig {
        limit,
        check_interval: CLOCK_INTERVAL,
    });
    engine.set_input(input.clone());
    usage::start(limit);
    let result = engine.eval_rule(entry_point.to_owned());
    // The engine must not keep a caller's input until its next decision.
    engine.set_input(Value::Undefined);
    // Between two calls of functions nothing counts the memory.
    match usage::exceeded() {
        Some(Exceeded::Memory(observed)) => Err(Error::Memory {
            observed,
            limit: MAX_MEMORY_BYTES,
        }),
        Some(Exceeded::Time) => Err(Error::Time),
        None => result.map_err(|error| describe(&format!("{error:#}"))),
    }
}

/// Texts of the engine, and what they say without the values that they contain.
const FAILURES: &[(&str, &str)] = &[
    ("expects set argument", numbers::NO_SET),
    (numbers::NO_SET, numbers::NO_SET),
    (numbers::NO_NUMBER, numbers::NO_NUMBER),
    (numbers::REMAINDER_BY_ZERO, numbers::REMAINDER_BY_ZERO),
    (numbers::REMAINDER_OF_FRACTION, numbers::REMAINDER_OF_FRACTION),
    (numbers::DIVISION_BY_ZERO, numbers::DIVISION_BY_ZERO),
    (numbers::TOO_MANY_DIGITS, numbers::TOO_MANY_DIGITS),
    (operators::SAME_KEY, operators::SAME_KEY),
    (operators::UNCLEAR_ORDER, operators::UNCLEAR_ORDER),
    (
        "should not produce multiple outputs",
        "the rule has two different values",
    ),
    (
        "rules must not produce multiple outputs",
        "the rule has two different values",
    ),
    (
        "rule conflicts with rule",
        "the rule has a value that conflicts with that of another rule",
    ),
    (
        "previous value is not",
        "the rule has a value that conflicts with that of another rule",
    ),
    (
        "functions must not produce multiple outputs",
        "the function has two different results",
    ),
    (
        "function produced multiple outputs",
        "the function has two different results",
    ),
    ("value for key ", "a key of an object has two different values"),
    ("`some .. in collection`", "`some … in` has no array, object or set"),
];

/// Converts the engine's error. Its text can contain values of the input, so it is passed on only as far
/// as it is known.
fn describe(text: &str) -> Error {
    let message = error_message(text);
    if message.starts_with("execution exceeded time limit") {
        return Error::Time;
    }
    let mut known = FAILURES.iter();
    let what = match known.find(|(part, _)| message.contains(part)) {
        Some((_, what)) => what,
        None if is_failure(message) => message,
        None => "a rule could not be evaluated",
    };
    match reported_location(text) {
        Some(place) => Error::Evaluation(format!("{}:{}: {what}", place.file, place.line)),
        None => Error::Evaluation(what.to_owned()),
    }
}

#[cfg(test)]
mod tests;
