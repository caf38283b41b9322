//! A front's policy, and its decisions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::compile::{self, Compiled};
use crate::coverage::Coverage;
use crate::decision::{self, Decision};
use crate::dependencies::InputDependencies;
use crate::error::Error;
use crate::front::Front;
use crate::interpreter;
use crate::limits::DECISION_TIME_LIMIT;
use crate::source::BundleSource;
use crate::watchdog::Watchdog;
use crate::worker::Checker;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};

/// One front's policy, compiled, tested and ready.
#[derive(Debug)]
pub struct Bundle {
    compiled: Compiled,
    /// Hex SHA-256 of the bundle's files.
    pub digest: String,
    /// The front that it decides for.
    pub front: Front,
    /// Identifies this bundle among each thread's engines.
    generation: u64,
    alive: Arc<()>,
    watchdog: Watchdog,
}

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

impl Bundle {
    /// Reads, checks, tests and compiles the bundle of `front` in `directory`.
    ///
    /// Blocks for some 10 ms, at most for the checker's time limit. The bundle is scanned here,
    /// then parsed, compiled and tested in a child process with limits. Only then is it parsed in
    /// this process.
    ///
    /// Findings are everything that the child process reports about the bundle, including failing
    /// cases, or how the child process died.
    pub fn load(directory: &Path, front: Front, checker: &Checker) -> Loaded<Self> {
        Self::load_source(directory, front, checker).map(|(bundle, _)| bundle)
    }

    /// Like [`Bundle::load`], together with what `parse` makes of [`IMPERSONATION_FILE`](tollgate_policy::impersonate::IMPERSONATION_FILE).
    ///
    /// - `parse`: takes path and text. It returns `None` if the file is broken, which the child
    ///   process has then reported.
    /// - `what`: names what `parse` returns, for the finding that it returned nothing.
    pub fn load_with<T>(
        directory: &Path,
        front: Front,
        checker: &Checker,
        what: &str,
        parse: impl FnOnce(&str, &str) -> Option<T>,
    ) -> Loaded<(Self, T)> {
        let Loaded { value, mut diagnostics } = Self::load_source(directory, front, checker);
        let Some((bundle, source)) = value else {
            return Loaded::refused(diagnostics);
        };
        match source.impersonation().and_then(|(path, text)| parse(path, text)) {
            Some(parsed) => Loaded::new((bundle, parsed), diagnostics),
            None => {
                diagnostics.push(Diagnostic::error(None, format!("{what} could not be compiled")));
                Loaded::refused(diagnostics)
            }
        }
    }

    fn load_source(directory: &Path, front: Front, checker: &Checker) -> Loaded<(Self, BundleSource)> {
        let read = BundleSource::read(directory, front);
        let mut found = read.diagnostics;
        let Some(source) = read.value else {
            return Loaded::refused(found);
        };
        found.extend(checker.check(&source, Coverage::Off).diagnostics);
        if found.iter().any(Diagnostic::is_error) {
            return Loaded::refused(found);
        }
        let bundle = compile::compile_on_large_stack(&source).and_then(|compiled| {
            Self::new(compiled, &source).map_err(|error| {
                let message = format!("the watch over the bundle cannot be started: {error}");
                vec![Diagnostic::error(None, message)]
            })
        });
        match bundle {
            Ok(bundle) => Loaded::new((bundle, source), found),
            Err(more) => {
                found.extend(more);
                if !found.iter().any(Diagnostic::is_error) {
                    let here = Location::new(directory.display().to_string(), 0);
                    found.push(Diagnostic::error(here, "the bundle could not be compiled"));
                }
                Loaded::refused(found)
            }
        }
    }

    /// A bundle that tests trust, without the child process; `None` if it does not compile.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn unchecked(source: &BundleSource) -> Option<Self> {
        Self::unchecked_or_findings(source).ok()
    }

    /// As [`Bundle::unchecked`].
    ///
    /// # Errors
    /// Why it does not compile.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn unchecked_or_findings(source: &BundleSource) -> Result<Self, Vec<Diagnostic>> {
        let compiled = compile::compile_on_large_stack(source)?;
        Self::new(compiled, source).map_err(|error| vec![Diagnostic::error(None, error.to_string())])
    }

    /// The value of the rule that decides, for tests alone: [`Bundle::decide`] without conditions, and
    /// without reading the value as a decision.
    ///
    /// # Errors
    /// As [`Bundle::decide`]. A rule without a value is [`Error::Undefined`].
    #[cfg(any(test, feature = "unchecked"))]
    #[expect(clippy::needless_pass_by_value, reason = "an input is made for one decision")]
    pub fn evaluate(&self, input: regorus::Value) -> Result<regorus::Value, Error> {
        self.check_stuck()?;
        let value = self.watchdog.run(|| {
            interpreter::run(
                self.generation,
                &self.alive,
                &self.compiled,
                &input,
                DECISION_TIME_LIMIT,
            )
        })?;
        match value {
            regorus::Value::Undefined => Err(Error::Undefined),
            value => Ok(value),
        }
    }

    pub(crate) fn new(compiled: Compiled, source: &BundleSource) -> std::io::Result<Self> {
        let (digest, front) = (source.digest(), source.front);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let watchdog = Watchdog::start(generation, format!("{}@{digest}", front.as_ref()))?;
        Ok(Self {
            compiled,
            digest,
            front,
            generation,
            alive: Arc::new(()),
            watchdog,
        })
    }

    /// Decides one request.
    ///
    /// Takes microseconds; bounded by [`DECISION_TIME_LIMIT`] and [`MAX_MEMORY_BYTES`](crate::MAX_MEMORY_BYTES). Needs
    /// [`MAX_STACK_BYTES`](crate::MAX_STACK_BYTES) of stack. Never blocks on a lock that another decision holds: each thread
    /// has its own engine and data.
    ///
    /// # Errors
    /// Every [`Error`] is a denial. After a decision that did not return within [`STUCK_AFTER`](crate::STUCK_AFTER),
    /// [`Error::Stuck`] is returned at once until that decision returns.
    #[expect(clippy::needless_pass_by_value, reason = "an input is made for one decision")]
    pub fn decide(&self, input: regorus::Value) -> Result<Decision, Error> {
        self.decide_within(&input, DECISION_TIME_LIMIT)
    }

    pub(crate) fn decide_within(&self, input: &regorus::Value, limit: Duration) -> Result<Decision, Error> {
        self.check_stuck()?;
        self.watchdog.run(|| {
            if let Some(denied) = self.compiled.evaluate_conditions(input)? {
                return Ok(denied);
            }
            let value = interpreter::run(self.generation, &self.alive, &self.compiled, input, limit)?;
            decision::read(self.front, &value)
        })
    }

    /// # Errors
    /// [`Error::Stuck`] while the bundle is stuck.
    pub fn check_stuck(&self) -> Result<(), Error> {
        if self.is_stuck() { Err(Error::Stuck) } else { Ok(()) }
    }

    /// Whether a decision has been running for longer than [`STUCK_AFTER`](crate::STUCK_AFTER). Every further decision
    /// is then [`Error::Stuck`] until it returns or another bundle is loaded.
    pub fn is_stuck(&self) -> bool {
        self.watchdog.is_stuck()
    }

    /// Which parts of the input the decision can depend on.
    pub fn dependencies(&self) -> InputDependencies {
        self.compiled.dependencies
    }
}
