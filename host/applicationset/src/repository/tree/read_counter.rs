//! Counts what one query of a tree reads, and checks the deadline as it goes.

use std::collections::HashMap;
use std::rc::Rc;

use gix::ObjectId;

use super::TreeEntry;
use crate::GenerationBudget;
use crate::inputs::InputError;

/// Number of steps between two checks of the deadline.
const STEPS_PER_DEADLINE_CHECK: usize = 256;

/// What one query has read so far.
pub(super) struct ReadCounter<'b> {
    budget: &'b GenerationBudget,
    /// Directory entries; those read twice count twice.
    pub(super) entries: usize,
    /// Size of the directories, in bytes.
    pub(super) bytes: u64,
    steps: usize,
    /// Directories that links lead through.
    pub(super) link_directories: HashMap<ObjectId, Rc<[TreeEntry]>>,
}

impl<'b> ReadCounter<'b> {
    pub(super) fn new(budget: &'b GenerationBudget) -> Self {
        Self {
            budget,
            entries: 0,
            bytes: 0,
            steps: 0,
            link_directories: HashMap::new(),
        }
    }

    /// Counts a step, and checks the deadline regularly.
    pub(super) fn step(&mut self) -> Result<(), InputError> {
        self.steps = self.steps.saturating_add(1);
        if self.steps.is_multiple_of(STEPS_PER_DEADLINE_CHECK) {
            self.check_deadline()?;
        }
        Ok(())
    }

    /// Checks the deadline.
    pub(super) fn check_deadline(&self) -> Result<(), InputError> {
        self.budget
            .check_deadline()
            .map_err(|exceeded| InputError(exceeded.to_string()))
    }
}
