//! Runs a compiled policy on an input and returns the value of `decision`.
//!
//! Invariant: no two threads share a machine or a data tree, as shared reference counts make two
//! threads slower than one. No lock is held during evaluation.

use std::cell::RefCell;
use std::num::{NonZeroU32, NonZeroU64};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use regorus::rvm::vm::{RegoVM, VmError};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{MemoryBudgetConfig, Value};

use super::compile::Compiled;
use super::{ATTEMPTS, Error, INSTRUCTIONS, MEMORY_BYTES, TIME, starvation};

/// Number of instructions between two checks of the clock.
const CLOCK_INTERVAL: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// This thread's machine for one generation of a bundle.
struct ThreadVm {
    generation: u64,
    alive: Weak<()>,
    vm: RegoVM,
}

thread_local! {
    static THREAD_VMS: RefCell<Vec<ThreadVm>> = const { RefCell::new(Vec::new()) };
}

/// Evaluates `decision` on this thread's machine for `generation`.
pub(super) fn run(generation: u64, alive: &Arc<()>, compiled: &Compiled, input: &Value) -> Result<Value, Error> {
    let known = THREAD_VMS.with_borrow_mut(|machines| {
        let at = machines.iter().position(|machine| machine.generation == generation)?;
        Some(machines.swap_remove(at))
    });
    let mut machine = match known {
        Some(machine) => machine,
        None => ThreadVm {
            generation,
            alive: Arc::downgrade(alive),
            vm: machine(compiled)?,
        },
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let result = execute(&mut machine.vm, input, ATTEMPTS);
        machine.vm.set_input(Value::Undefined);
        result
    }));
    // A machine that panicked is dropped, as its state is unknown.
    let result = outcome.map_err(|_| Error::Panicked)?;
    THREAD_VMS.with_borrow_mut(|machines| {
        // Machines of replaced bundles are dropped when a newer bundle is used.
        if has_older_generation(machines, &machine) {
            machines.retain(|machine| machine.alive.strong_count() > 0);
        }
        machines.push(machine);
    });
    result.map_err(|error| describe(&error))
}

fn has_older_generation(machines: &[ThreadVm], machine: &ThreadVm) -> bool {
    machines.iter().any(|other| other.generation < machine.generation)
}

/// A machine with its own copy of the data.
pub(super) fn machine(compiled: &Compiled) -> Result<RegoVM, Error> {
    let failed = |what: &str| Error::Evaluation {
        reason: what.to_owned(),
    };
    let mut vm = RegoVM::new();
    vm.load_program(compiled.program.clone());
    vm.set_max_instructions(INSTRUCTIONS);
    vm.set_strict_builtin_errors(true);
    vm.set_memory_budget_config(NonZeroU64::new(MEMORY_BYTES).map(|limit| MemoryBudgetConfig { limit }));
    let data = Value::from_json_str(&compiled.data).map_err(|_| failed("the data cannot be read"))?;
    vm.set_data(data).map_err(|_| failed("the data hides rules"))?;
    Ok(vm)
}

/// Runs a machine once, for tests of a bundle. The limits of its process bound how long it can be
/// held up.
pub(super) fn run_once(mut vm: RegoVM, input: &Value) -> Result<Value, Error> {
    execute(&mut vm, input, starvation::MAX_CHECK_ATTEMPTS).map_err(|error| describe(&error))
}

fn execute(vm: &mut RegoVM, input: &Value, attempts: u32) -> Result<Value, VmError> {
    starvation::retry_if_starved(TIME, attempts, |limit| {
        vm.set_execution_timer_config(Some(timer(limit)));
        vm.set_input(input.clone());
        vm.execute_entry_point_by_index(0)
    })
}

fn timer(limit: Duration) -> ExecutionTimerConfig {
    ExecutionTimerConfig {
        limit,
        check_interval: CLOCK_INTERVAL,
    }
}

/// Converts an engine's error. Its messages can contain values of the input, so only the kind of
/// failure is passed on.
fn describe(error: &VmError) -> Error {
    let failed = |reason: &str| Error::Evaluation {
        reason: reason.to_owned(),
    };
    match error {
        VmError::InstructionLimitExceeded { limit, .. } => Error::Instructions { limit: *limit },
        VmError::TimeLimitExceeded { .. } => Error::Time { limit: TIME },
        VmError::MemoryBudgetExceeded { usage, budget, .. } => Error::Memory {
            observed: *usage,
            limit: *budget,
        },
        VmError::MemoryLimitExceeded { usage, limit, .. } => Error::Memory {
            observed: *usage,
            limit: *limit,
        },
        VmError::RegexSizeLimitExceeded { .. } => failed("a pattern is too large"),
        VmError::BuiltinArgumentMismatch { .. } | VmError::BuiltinNotResolved { .. } => {
            failed("a built-in was called wrongly")
        }
        VmError::InvalidAddition { .. }
        | VmError::InvalidSubtraction { .. }
        | VmError::InvalidMultiplication { .. }
        | VmError::InvalidDivision { .. }
        | VmError::InvalidModulo { .. }
        | VmError::ModuloOnFloat { .. }
        | VmError::ArithmeticError { .. } => failed("arithmetic failed"),
        // Strict errors of built-ins are texts that contain values.
        _ => failed("a rule or built-in reported an error"),
    }
}
