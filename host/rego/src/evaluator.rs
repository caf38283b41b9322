//! Decides as the gateway does, for the checks of a bundle, and remembers which lines were reached.

use std::collections::{BTreeMap, BTreeSet};

use regorus::{Engine, Value};

use crate::compile::Compiled;
use crate::coverage::{Coverage, FileCoverage};
use crate::decision::{self, Decision};
use crate::error::Error;
use crate::front::Front;
use crate::interpreter;
use crate::limits::DECISION_TIME_LIMIT;
use crate::starvation::{self, MAX_CHECK_ATTEMPTS};

pub(crate) struct Evaluator<'a> {
    compiled: &'a Compiled,
    engine: Engine,
    coverage: Coverage,
    /// Lines of each file that engines reached before they were dropped.
    covered: BTreeMap<String, BTreeSet<u32>>,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(compiled: &'a Compiled, coverage: Coverage) -> Self {
        let mut evaluator = Self {
            compiled,
            engine: compiled.engine.clone(),
            coverage,
            covered: BTreeMap::new(),
        };
        evaluator.reset();
        evaluator
    }

    pub(crate) fn front(&self) -> Front {
        self.compiled.front
    }

    /// Whether rules or conditions read `input.time`.
    pub(crate) fn reads_time(&self) -> bool {
        self.compiled.dependencies.time
    }

    /// # Errors
    /// Every [`Error`] is a denial.
    pub(crate) fn decide(&mut self, input: &serde_json::Value) -> Result<Decision, Error> {
        let value = Value::from(input.clone());
        if let Some(denied) = self.compiled.evaluate_conditions(&value)? {
            return Ok(denied);
        }
        // The limits of the process bound how long a decision can be held up.
        let value = starvation::retry_if_starved(DECISION_TIME_LIMIT, MAX_CHECK_ATTEMPTS, |limit| {
            let value = interpreter::run_once(&mut self.engine, &self.compiled.entry_point, &value, limit);
            if value.is_err() || interpreter::leaves_much() {
                self.reset();
            }
            value
        });
        decision::read(self.front(), &value?)
    }

    /// Lines of each file, if they are asked for.
    pub(crate) fn coverage(mut self) -> Vec<FileCoverage> {
        let files = self.remember_lines();
        let files = files.into_iter().map(|(file, lines)| {
            let covered = self.covered.remove(&file).unwrap_or_default();
            FileCoverage {
                not_covered: lines.difference(&covered).copied().collect(),
                covered: covered.into_iter().collect(),
                file,
            }
        });
        files.collect()
    }

    /// Drops an engine with what it has evaluated, but not which lines it reached.
    fn reset(&mut self) {
        self.remember_lines();
        self.engine = self.compiled.engine.clone();
        self.engine.set_enable_coverage(self.coverage == Coverage::On);
    }

    /// Keeps the lines that the engine has reached. Returns all lines of each file.
    fn remember_lines(&mut self) -> Vec<(String, BTreeSet<u32>)> {
        if self.coverage == Coverage::Off {
            return Vec::new();
        }
        let Ok(report) = self.engine.get_coverage_report() else {
            return Vec::new();
        };
        let files = report.files.into_iter().map(|file| {
            let covered = self.covered.entry(file.path.clone()).or_default();
            covered.extend(&file.covered);
            let lines = file.covered.into_iter().chain(file.not_covered);
            (file.path, lines.collect())
        });
        files.collect()
    }
}
