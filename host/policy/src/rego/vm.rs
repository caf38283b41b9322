//! Runs a compiled policy on an input and returns the value of `decision`.
//!
//! Invariant: no two threads share a VM or a data tree, as shared reference counts make two
//! threads slower than one. No lock is held during evaluation.

use std::cell::RefCell;
use std::num::{NonZeroU32, NonZeroU64};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use regorus::rvm::vm::{RegoVM, VmError};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{MemoryBudgetConfig, Value};

use super::compile::Compiled;
use super::{DECISION_TIME_LIMIT, Error, MAX_ATTEMPTS, MAX_INSTRUCTIONS, MAX_MEMORY_BYTES, starvation};

const CLOCK_INTERVAL: NonZeroU32 = NonZeroU32::new(64).unwrap();

struct ThreadVm {
    generation: u64,
    alive: Weak<()>,
    vm: RegoVM,
}

thread_local! {
    static THREAD_VMS: RefCell<Vec<ThreadVm>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn run(generation: u64, alive: &Arc<()>, compiled: &Compiled, input: &Value) -> Result<Value, Error> {
    let existing = THREAD_VMS.with_borrow_mut(|thread_vms| {
        let at = thread_vms
            .iter()
            .position(|thread_vm| thread_vm.generation == generation)?;
        Some(thread_vms.swap_remove(at))
    });
    let mut thread_vm = match existing {
        Some(thread_vm) => thread_vm,
        None => ThreadVm {
            generation,
            alive: Arc::downgrade(alive),
            vm: new_vm(compiled)?,
        },
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let result = execute(&mut thread_vm.vm, input, MAX_ATTEMPTS);
        thread_vm.vm.set_input(Value::Undefined);
        result
    }));
    // A VM that panicked is dropped, as its state is unknown.
    let result = outcome.map_err(|_| Error::Panicked)?;
    THREAD_VMS.with_borrow_mut(|thread_vms| {
        // VMs of replaced bundles are dropped when a newer bundle is used.
        if thread_vms.iter().any(|other| other.generation < generation) {
            thread_vms.retain(|thread_vm| thread_vm.alive.strong_count() > 0);
        }
        thread_vms.push(thread_vm);
    });
    result.map_err(|error| describe(&error))
}

/// A VM with its own copy of the data.
pub(super) fn new_vm(compiled: &Compiled) -> Result<RegoVM, Error> {
    let failed = |what: &str| Error::Evaluation(what.to_owned());
    let mut vm = RegoVM::new();
    vm.load_program(compiled.program.clone());
    vm.set_max_instructions(MAX_INSTRUCTIONS);
    vm.set_strict_builtin_errors(true);
    vm.set_memory_budget_config(NonZeroU64::new(MAX_MEMORY_BYTES).map(|limit| MemoryBudgetConfig { limit }));
    let data = Value::from_json_str(&compiled.data).map_err(|_| failed("the data cannot be read"))?;
    vm.set_data(data).map_err(|_| failed("the data hides rules"))?;
    Ok(vm)
}

/// Runs a VM once, for tests of a bundle. The limits of its process bound how long it can be
/// held up.
pub(super) fn run_once(mut vm: RegoVM, input: &Value) -> Result<Value, Error> {
    execute(&mut vm, input, starvation::MAX_CHECK_ATTEMPTS).map_err(|error| describe(&error))
}

fn execute(vm: &mut RegoVM, input: &Value, attempts: u32) -> Result<Value, VmError> {
    starvation::retry_if_starved(DECISION_TIME_LIMIT, attempts, |limit| {
        vm.set_execution_timer_config(Some(ExecutionTimerConfig {
            limit,
            check_interval: CLOCK_INTERVAL,
        }));
        vm.set_input(input.clone());
        vm.execute_entry_point_by_index(0)
    })
}

/// Converts an engine's error. Its messages can contain values of the input, so only the kind of
/// failure is passed on.
fn describe(error: &VmError) -> Error {
    let failed = |reason: &str| Error::Evaluation(reason.to_owned());
    match error {
        VmError::InstructionLimitExceeded { limit, .. } => Error::Instructions(*limit),
        VmError::TimeLimitExceeded { .. } => Error::Time,
        VmError::MemoryBudgetExceeded {
            usage, budget: limit, ..
        }
        | VmError::MemoryLimitExceeded { usage, limit, .. } => Error::Memory {
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
