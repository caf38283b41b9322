//! What commands share whose exit code is the answer to a question.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::{EXIT_NO_ANSWER, EXIT_USAGE};
use tollgate_core::diagnostic::{Diagnostic, Loaded};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("the {what} is refused")]
    Refused {
        what: &'static str,
        findings: Vec<Diagnostic>,
    },
    #[error("{0}")]
    Failed(String),
    #[error("the answer cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Prints the findings and the error.
    ///
    /// - Returns the exit code.
    pub(crate) fn report(&self, stderr: &mut dyn Write) -> u8 {
        // Nothing is left to do when standard error is closed.
        if let Self::Refused { findings, .. } = self {
            for finding in findings {
                let _ = writeln!(stderr, "{finding}");
            }
        }
        let _ = writeln!(stderr, "tollgate: {self}");
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Refused { .. } | Self::Failed(_) | Self::Output(_) => EXIT_NO_ANSWER,
        }
    }
}

/// The loaded part of the configuration, or its diagnostics as an error.
pub(crate) fn require_loaded<T>(loaded: Loaded<T>) -> Result<T, Error> {
    loaded.value.ok_or(Error::Refused {
        what: "configuration",
        findings: loaded.diagnostics,
    })
}

/// The settings file of commands that are not told another one, in the current folder.
pub const SETTINGS_FILE: &str = "tollgate.yaml";

/// `--config`.
#[derive(Args, Clone, Debug)]
pub struct SettingsArgs {
    /// Settings file of the gateway
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = SETTINGS_FILE,
        env = "TOLLGATE_CONFIG"
    )]
    pub config: PathBuf,
}
