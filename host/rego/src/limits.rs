//! The bounds of a decision.

use std::time::Duration;

/// Maximum time of one decision, checked between expressions.
///
/// This is wall time, unless the thread did not run meanwhile: a decision that a busy machine held
/// up is repeated, with three attempts at most.
pub const DECISION_TIME_LIMIT: Duration = Duration::from_millis(50);
/// Maximum number of attempts for one decision, each with twice the wall time: 350 ms in all.
pub(crate) const MAX_ATTEMPTS: u32 = 3;
/// Bytes that one decision may allocate beyond its input, checked after each call of a built-in
/// function and at the end. A single call can overshoot by the factor that its terms allow, and what
/// stands between two calls by what the interpreter can build in its time.
pub const MAX_MEMORY_BYTES: u64 = 2 * 1024 * 1024;
/// Bytes of stack that a decision needs at most, [`MAX_LEVELS`](crate::MAX_LEVELS) deep.
pub const MAX_STACK_BYTES: usize = 16 * 1024 * 1024;
/// Stack size of threads that decide and of the worker's, four times [`MAX_STACK_BYTES`]. The memory is only
/// reserved.
pub const WORKER_STACK_BYTES: usize = 64 << 20;
