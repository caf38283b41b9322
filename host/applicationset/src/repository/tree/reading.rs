//! What one question about a tree reads.
//!
//! In: steps. Out: counts. Never: a count that goes down; work that does not look at the
//! clock.

use std::collections::HashMap;
use std::rc::Rc;

use gix::ObjectId;

use super::Entry;
use crate::Budget;
use crate::inputs::InputError;

/// Steps between two looks at the clock.
const PACE: usize = 256;

/// What one question read so far.
pub(super) struct Reading<'b> {
    budget: &'b Budget,
    /// Entries of directories, those read twice counted twice.
    pub(super) entries: usize,
    /// Bytes of directories.
    pub(super) bytes: u64,
    steps: usize,
    /// Directories that links lead through.
    pub(super) passed: HashMap<ObjectId, Rc<[Entry]>>,
}

impl<'b> Reading<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self {
            budget,
            entries: 0,
            bytes: 0,
            steps: 0,
            passed: HashMap::new(),
        }
    }

    /// Counts a step, and looks at the clock now and then.
    pub(super) fn step(&mut self) -> Result<(), InputError> {
        self.steps = self.steps.saturating_add(1);
        if self.steps.is_multiple_of(PACE) {
            self.time()?;
        }
        Ok(())
    }

    /// Looks at the clock.
    pub(super) fn time(&self) -> Result<(), InputError> {
        self.budget.time().map_err(|exceeded| InputError(exceeded.to_string()))
    }
}
